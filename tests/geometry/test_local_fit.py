"""Local decoders fitted around posterior means."""

import importlib
import math

import numpy as np
import pytest
import torch
from torch import nn

from unseam.geometry import jacobian, local_fit
from unseam.geometry.local_fit import local_fits

F64 = torch.float64
LONG = {"steps": 800, "noises": 24}


@pytest.fixture
def mean(generator):
    return torch.randn(4, 3, generator=generator, dtype=F64)


@pytest.fixture
def variance(generator):
    return torch.rand(4, 3, generator=generator, dtype=F64) / 10 + 0.01


@pytest.fixture
def covariance(generator):
    root = torch.randn(4, 3, 3, generator=generator, dtype=F64) / 5
    return root @ root.mT + 0.02 * torch.eye(3, dtype=F64)


@pytest.fixture
def weights(generator):
    return torch.randn(10, 3, generator=generator, dtype=F64)


def fresh():
    return torch.Generator().manual_seed(7)


@pytest.mark.parametrize("solver", ["descent", "exact"])
@pytest.mark.parametrize("full", [False, True])
def test_linear_decoder_gives_its_jacobian(weights, mean, variance, covariance, solver, full):
    given = covariance if full else variance
    fit = local_fit(lambda z: z @ weights.T - 2, mean, given, generator=fresh(), solver=solver, **LONG)
    torch.testing.assert_close(fit.matrix, weights.expand(4, 10, 3), rtol=0, atol=1e-8)
    torch.testing.assert_close(fit.bias, torch.zeros(4, 10, dtype=F64), rtol=0, atol=1e-8)
    assert fit.error.max() < 1e-14
    torch.testing.assert_close(fit.predicted_stochastic, fit.stochastic)


@pytest.mark.parametrize("full", [False, True])
def test_tanh_of_a_matrix_gives_the_matrix(weights, mean, variance, covariance, full):
    """Each point's decoder is tanh(M (z - μ)) around its own mean, which decodes to zero."""

    def decoder(z):
        nearest = torch.cdist(z, mean).argmin(1)
        return ((z - mean[nearest]) @ weights.T).tanh()

    apart = 100 * torch.arange(4, dtype=F64)[:, None] + mean
    mean.copy_(apart)
    given = covariance if full else variance
    fit = local_fit(decoder, mean, given, form="nonlinear", generator=fresh(), steps=3000, noises=24)
    torch.testing.assert_close(fit.matrix, weights.expand(4, 10, 3), rtol=0, atol=1e-6)
    assert fit.error.max() < 1e-12
    linear = local_fit(decoder, mean, given, generator=fresh(), steps=3000, noises=24)
    assert (linear.error > 1e6 * fit.error).all()


def test_descent_reaches_least_squares(weights, mean, variance):
    def decoder(z):
        return (z @ weights.T).sin()

    exact = local_fit(decoder, mean, variance, generator=fresh(), solver="exact", **LONG)
    found = local_fit(decoder, mean, variance, generator=fresh(), **LONG)
    torch.testing.assert_close(found.matrix, exact.matrix, rtol=0, atol=1e-8)
    torch.testing.assert_close(found.train_error, exact.train_error)
    torch.testing.assert_close(found.error, exact.error)


def test_exact_fit_against_numpy(weights, mean, variance):
    fit = local_fit(
        lambda z: (z @ weights.T).sin(), mean, variance, generator=fresh(), solver="exact", noises=9
    )
    noise = torch.randn(9 + 32, 4, 3, generator=fresh(), dtype=F64)
    for b in range(4):
        shift = noise[:9, b] * variance[b].sqrt()
        target = ((mean[b] + shift) @ weights.T).sin() - (mean[b] @ weights.T).sin()
        design = np.column_stack([shift, np.ones(9)])
        expected = np.linalg.lstsq(design, target.numpy(), rcond=None)[0]
        np.testing.assert_allclose(fit.matrix[b], expected[:3].T, rtol=1e-8)
        np.testing.assert_allclose(fit.bias[b], expected[3], rtol=1e-6, atol=1e-10)


def test_one_step_against_autograd(weights, mean, variance):
    """Each form's first step from zero, and the second with momentum, follow the gradient of the loss."""
    noise = torch.randn(6 + 2, 4, 3, generator=fresh(), dtype=F64)[:6]
    design = torch.cat([noise, torch.ones(6, 4, 1, dtype=F64)], -1).transpose(0, 1)
    target = ((mean + noise * variance.sqrt()) @ weights.T).sin() - (mean @ weights.T).sin()
    rate = 0.5 / torch.linalg.eigvalsh(design.mT @ design / 6)[:, -1][:, None, None]
    unknown = torch.zeros(4, 4, 10, dtype=F64)
    velocity = torch.zeros_like(unknown)
    for _ in range(2):
        current = unknown.clone().requires_grad_()
        loss = ((design @ current).tanh() - target.transpose(0, 1)).square().sum() / 12
        (gradient,) = torch.autograd.grad(loss, [current])
        velocity = 0.9 * velocity - rate * gradient
        unknown = unknown + velocity
    fit = local_fit(
        lambda z: (z @ weights.T).sin(), mean, variance, form="nonlinear", generator=fresh(),
        noises=6, held_out=2, steps=2, learning_rate=0.5,
    )  # fmt: skip
    torch.testing.assert_close(fit.matrix, (unknown[:, :3] / variance.sqrt()[:, :, None]).mT)
    torch.testing.assert_close(fit.bias, unknown[:, 3])


def test_narrow_posterior_gives_the_jacobian(generator):
    decoder = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 6)).double()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=F64) / 2)
    mean = torch.randn(3, 3, generator=generator, dtype=F64)
    fit = local_fit(decoder, mean, torch.full_like(mean, 1e-12), generator=fresh(), **LONG)
    torch.testing.assert_close(fit.matrix, jacobian(decoder, mean).detach(), rtol=1e-5, atol=1e-5)
    assert not fit.matrix.requires_grad


@pytest.mark.parametrize("form", ["linear", "nonlinear"])
@pytest.mark.parametrize("size", [None, 3])
def test_one_descent_gives_the_fits_of_several(weights, mean, variance, form, size):
    def decoder(z):
        return (z @ weights.T).sin()

    steps = (1, 4, 30)
    found = local_fits(decoder, mean, variance, steps=steps, form=form, generator=fresh(), chunk_size=size)
    assert len(found) == 3
    for count, fit in zip(steps, found, strict=True):
        alone = local_fit(decoder, mean, variance, form=form, generator=fresh(), steps=count, chunk_size=size)
        for one, other in zip(fit, alone, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_an_exact_fit_takes_no_steps(weights, mean, variance):
    def decoder(z):
        return (z @ weights.T).sin()

    (found,) = local_fits(decoder, mean, variance, steps=(1, 2), solver="exact", generator=fresh(), noises=24)
    alone = local_fit(decoder, mean, variance, solver="exact", generator=fresh(), noises=24)
    torch.testing.assert_close(found.matrix, alone.matrix, rtol=0, atol=0)


def test_as_many_noises_as_unknowns_are_met_exactly(weights, mean, variance):
    fit = local_fit(
        lambda z: (z @ weights.T).sin(), mean, variance, solver="exact", generator=fresh(), noises=4
    )
    assert fit.train_error.max() < 1e-20 < fit.error.min()


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((), "steps must hold a number of steps, got none"),
        ((0, 3), "steps must be at least 1, got 0"),
        ((5, 5), "steps must ascend, got 5, 5"),
    ],
)
def test_steps_that_make_no_path_are_refused(mean, variance, steps, message):
    with pytest.raises(ValueError, match=message):
        local_fits(lambda z: z, mean, variance, steps=steps, generator=fresh())


@pytest.mark.parametrize("form", ["linear", "nonlinear"])
def test_points_do_not_know_of_each_other(weights, mean, variance, form):
    def decoder(z):
        return (z @ weights.T).sin()

    whole = local_fit(decoder, mean, variance, form=form, generator=fresh())
    for size in (1, 3):
        parts = local_fit(decoder, mean, variance, form=form, generator=fresh(), chunk_size=size)
        for one, other in zip(parts, whole, strict=True):
            torch.testing.assert_close(one, other)


def test_rotation_of_the_data_turns_the_linear_fit(weights, mean, variance, generator):
    rotation = torch.linalg.qr(torch.randn(10, 10, generator=generator, dtype=F64)).Q
    expected = local_fit(lambda z: (z @ weights.T).sin(), mean, variance, generator=fresh())
    found = local_fit(lambda z: (z @ weights.T).sin() @ rotation.T, mean, variance, generator=fresh())
    torch.testing.assert_close(found.matrix, rotation @ expected.matrix)
    torch.testing.assert_close(found.error, expected.error)


@pytest.mark.parametrize("form", ["linear", "nonlinear"])
def test_scale_of_a_latent_goes_into_its_column(weights, mean, variance, form):
    scale = torch.tensor([1e-3, 1.0, 50.0], dtype=F64)
    expected = local_fit(lambda z: (z @ weights.T).sin(), mean, variance, form=form, generator=fresh())
    found = local_fit(
        lambda z: ((z / scale) @ weights.T).sin(),
        mean * scale,
        variance * scale**2,
        form=form,
        generator=fresh(),
    )
    torch.testing.assert_close(found.matrix * scale, expected.matrix)
    torch.testing.assert_close(found.error, expected.error)


def test_intervals(weights, mean, variance):
    fit = local_fit(lambda z: (z @ weights.T).sin(), mean, variance, generator=fresh(), held_out=200)
    torch.testing.assert_close(fit.interval.mean(1), fit.error)
    torch.testing.assert_close(fit.mean_interval.mean(), fit.mean_error)
    reach = 1.959963984540054 * fit.error.std() / 2
    torch.testing.assert_close(fit.mean_interval[1] - fit.mean_error, reach)
    truth = local_fit(
        lambda z: (z @ weights.T).sin(), mean, variance, generator=fresh(), held_out=20_000
    ).error
    assert ((fit.interval[:, 0] < truth) & (truth < fit.interval[:, 1])).sum() >= 3
    alone = local_fit(lambda z: (z @ weights.T).sin(), mean[:1], variance[:1], generator=fresh())
    assert alone.mean_interval.isnan().all()


def test_pictures_types_and_numpy(weights, mean, variance):
    def decoder(z):
        return (z @ weights.to(z).T).view(-1, 2, 5)

    fit = local_fit(decoder, mean.float().numpy(), variance.float().numpy(), generator=fresh())
    assert fit.matrix.shape == (4, 10, 3)
    assert all(part.dtype == torch.float32 for part in fit)
    torch.testing.assert_close(fit.matrix, weights.float().expand(4, 10, 3), rtol=1e-3, atol=1e-3)


def test_default_chunks_bound_what_is_held(mean, variance, monkeypatch):
    module = importlib.import_module("unseam.geometry.local_fit")  # the package's name is the function
    monkeypatch.setitem(module._BUDGET, "cpu", 2 * 32 * 10)
    seen = []

    def decoder(z):
        seen.append(len(z))
        return z.repeat(1, 4)[:, :10]

    local_fit(decoder, mean, variance, generator=fresh(), steps=1)
    assert max(seen[1:]) == 2  # after the first glance


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"form": "cubic"}, "form must be 'linear' or 'nonlinear', got 'cubic'"),
        ({"solver": "newton"}, "solver must be 'descent' or 'exact', got 'newton'"),
        ({"solver": "exact", "form": "nonlinear"}, "solver 'exact' needs form 'linear', got 'nonlinear'"),
        ({"solver": "exact", "noises": 3}, "noises must be at least 4, got 3"),
        ({"noises": 0}, "noises must be at least 1, got 0"),
        ({"held_out": 1}, "held_out must be at least 2, got 1"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        (
            {"learning_rate": 50.0, "steps": 2000},
            "learning_rate must be small enough for the fit to converge",
        ),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
        ({"variance": torch.zeros(2, 3)}, "variance must be positive, got 0"),
        ({"mean": torch.full((2, 3), math.nan)}, "mean must be finite"),
        ({"decoder": lambda z: z.sum()}, r"decoder must map \(batch, latent\) to \(batch, \*data\)"),
        ({"decoder": lambda z: torch.where(z == 0, z, torch.nan)}, "decoder must give finite outputs"),
    ],
)
def test_bad_input_is_refused(change, message):
    given = {
        "decoder": lambda z: z,
        "mean": torch.zeros(2, 3),
        "variance": torch.ones(2, 3),
        "generator": fresh(),
    }
    with pytest.raises(ValueError, match=message):
        local_fit(**given | change)
