"""Training does not depend on what a program around it has set: torch's default type, gradient modes."""

import dataclasses

import pytest
import torch

import unseam
from unseam.training import Trial, stack_trials, training_steps

TRIAL = Trial(
    world="nonlinear",
    world_options={"size": 60},
    likelihood="gaussian",
    latent=2,
    encoder_widths=(8,),
    decoder_widths=(8,),
    batch_size=16,
    steps=6,
)
TRIALS = [
    TRIAL,
    dataclasses.replace(TRIAL, objective="factor_vae"),
    dataclasses.replace(TRIAL, posterior="full", precision="float64"),
]


@pytest.fixture(scope="module")
def expected():
    return unseam.train(TRIALS, device="cpu")


def assert_same(found, expected):
    for one, other in zip(found.stacks, expected.stacks, strict=True):
        assert one.flat.dtype == other.flat.dtype
        assert torch.equal(one.flat, other.flat)
    assert found.history.equals(expected.history)


@pytest.fixture
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def test_the_default_type_changes_nothing(double, expected, tmp_path):
    found = unseam.train(TRIALS, device="cpu", out=tmp_path)
    assert_same(found, expected)
    assert_same(unseam.load(tmp_path), expected)
    x = unseam.data.load("nonlinear", size=5).images(torch.arange(5))
    assert found[0].encode(x).mean.dtype == torch.float32


@pytest.fixture
def elsewhere():
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_the_default_device_changes_nothing(elsewhere, expected, tmp_path):
    assert_same(unseam.train(TRIALS, device="cpu", out=tmp_path), expected)
    assert_same(unseam.load(tmp_path), expected)


def test_automatic_mixed_precision_changes_nothing(expected, tmp_path):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = unseam.train(TRIALS, device="cpu", out=tmp_path)
        inspected = unseam.Run.open(tmp_path).inspect([0], points=20)[0]
    assert_same(found, expected)
    assert inspected.dto == unseam.Run.open(tmp_path).inspect([0], points=20)[0].dto


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_training_works_where_gradients_are_switched_off(mode, expected, tmp_path):
    with mode():
        found = unseam.train(TRIALS, device="cpu", out=tmp_path)
    assert_same(found, expected)
    found[0](torch.zeros(2, 6), torch.zeros(2, 2))
    with mode():
        again = unseam.train(TRIALS, device="cpu", out=tmp_path, resume=True)
    assert_same(again, expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_loop_works_where_gradients_are_switched_off(mode, expected):
    with mode():
        world = unseam.data.load("nonlinear", size=60)
        stack = stack_trials(TRIALS[:1], world.shape, size=60)
        assert [record.step for record in training_steps(stack, world)] == [6]
    assert torch.equal(stack.flat, expected.stacks[0].flat)
