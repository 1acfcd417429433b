"""Members together equal members alone."""

import dataclasses

import pytest
import torch

import unseam
from unseam.training import Trial

TRIAL = Trial(
    world="nonlinear", likelihood="gaussian", latent=2, encoder_widths=(8,), decoder_widths=(8,), steps=5
)


@pytest.fixture(scope="module")
def world():
    return unseam.data.load("nonlinear", size=200)


@pytest.fixture(scope="module")
def ensemble(world):
    full = dataclasses.replace(TRIAL, posterior="full")
    return unseam.train([TRIAL, full, dataclasses.replace(TRIAL, seed=1)], world=world, device="cpu")


def test_encode_equals_each_member(ensemble, world):
    x = world.images(torch.arange(7))
    together = ensemble.encode(x)
    for member, model in enumerate(ensemble):
        mean, variance = model.encode(x)
        torch.testing.assert_close(together.mean[member], mean)
        expected = variance if variance.ndim == 3 else variance.diag_embed()
        torch.testing.assert_close(together.variance[member], expected)


def test_decode_and_reconstruct_equal_each_member(ensemble, world):
    x = world.images(torch.arange(7))
    own = ensemble.encode(x).mean
    for member, model in enumerate(ensemble):
        torch.testing.assert_close(ensemble.decode(own[member])[member], model.decode(own[member]))
        torch.testing.assert_close(ensemble.decode(own)[member], model.decode(own[member]))
        torch.testing.assert_close(ensemble.reconstruct(x)[member], model.reconstruct(x))


def test_members_of_different_precision_run_in_their_own(world):
    fine = dataclasses.replace(TRIAL, precision="float64")
    coarse = [dataclasses.replace(TRIAL, precision=precision, seed=1) for precision in ("tf32", "float32")]
    ensemble = unseam.train([coarse[0], fine, coarse[1]], world=world, device="cpu")
    x = world.images(torch.arange(7)).double() + 1e-9
    found = ensemble.encode(x)
    assert found.mean.dtype == found.variance.dtype == ensemble.decode(found.mean).dtype == torch.float64
    for member, model in enumerate(ensemble):
        dtype = next(model.parameters()).dtype
        expected, code = model.encode(x.to(dtype)), found.mean[member].to(dtype)
        torch.testing.assert_close(found.mean[member].to(dtype), expected.mean)
        torch.testing.assert_close(ensemble.decode(found.mean)[member].to(dtype), model.decode(code))
        torch.testing.assert_close(ensemble.reconstruct(x)[member].to(dtype), model.reconstruct(x.to(dtype)))


def test_members_with_parameters_of_different_shapes_are_named(world):
    wide = dataclasses.replace(TRIAL, likelihood="gaussian_pixel")
    ensemble = unseam.train([TRIAL, dataclasses.replace(TRIAL, seed=1), wide], world=world, device="cpu")
    message = (
        r"got \(6,\) of member 0 \(gaussian\), \(12,\) of member 2 \(gaussian_pixel\): decode them one by one"
    )
    with pytest.raises(ValueError, match=message):
        ensemble.decode(torch.zeros(3, 2))
    x = world.images(torch.arange(7))
    assert ensemble.encode(x).mean.shape == (3, 7, 2)
    assert ensemble.reconstruct(x).shape == (3, 7, 6)


def test_numpy_is_accepted(ensemble, world):
    x = world.images(torch.arange(4))
    assert torch.equal(ensemble.encode(x.numpy()).mean, ensemble.encode(x).mean)


def test_chunks_do_not_matter(ensemble, world, monkeypatch):
    x = world.images(torch.arange(11))
    whole = ensemble.encode(x).mean
    monkeypatch.setattr("unseam.training.ensemble.AT_ONCE", 60)
    torch.testing.assert_close(ensemble.encode(x).mean, whole)


def test_members_are_ordinary_modules(ensemble):
    assert len(ensemble) == 3
    assert isinstance(ensemble[-1], torch.nn.Module)
    assert not ensemble[0].training
    assert len(ensemble[1:]) == 2


def test_history_has_a_row_a_record_and_member(ensemble):
    assert set(ensemble.history["member"]) == {0, 1, 2}
    assert {"step", "alive", "loss", "reconstruction", "kl"} <= set(ensemble.history.columns)


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("encode", torch.zeros(3, 5), r"x must have shape \(batch, 6\)"),
        ("encode", torch.zeros(0, 6), "hold something"),
        ("encode", torch.zeros(3, 6, dtype=torch.int64), "x must hold floating point numbers"),
        ("decode", torch.zeros(3, 4), r"z must have shape \(batch, 2\)"),
        ("decode", torch.zeros(2, 3, 2), "z must hold points for 3 members"),
    ],
)
def test_bad_input(ensemble, method, value, message):
    with pytest.raises(ValueError, match=message):
        getattr(ensemble, method)(value)


def test_no_such_member(ensemble):
    with pytest.raises(IndexError, match="member 3 is not among the ensemble's 3"):
        ensemble[3]
