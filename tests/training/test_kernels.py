"""Fused kernels against plain torch: on CUDA, or on the host by Triton's interpreter (``make test-kernels``)."""

import dataclasses
import importlib.util
import os

import pytest
import torch

import unseam
from unseam.data import place
from unseam.models import _fused
from unseam.training import Trial, stack_trials, training_steps

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and not INTERPRETED, reason="needs CUDA, or Triton's interpreter: make test-kernels"
)

SMALL = Trial(
    world="nonlinear",
    likelihood="gaussian",
    latent=2,
    encoder_widths=(12,),
    decoder_widths=(12,),
    beta=1e-3,
    batch_size=16,
    precision="float32",
)
on_cuda = pytest.mark.skipif(
    DEVICE == "cpu", reason="needs CUDA: the interpreter takes minutes, and cuts bfloat16 instead of rounding"
)
STEPS = 20 if DEVICE == "cuda" else 3  # the interpreter runs one program after another
LAUNCHES: list[str] = []


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    """Kernels are used on this device, and every launch is counted."""
    LAUNCHES.clear()
    device = _fused._device

    def counting(x):
        LAUNCHES.append(x.device.type)
        return device(x)

    monkeypatch.setattr(_fused, "_device", counting)
    if DEVICE == "cpu":
        for module in ("training.step", "models.bernoulli", "models.affine"):
            monkeypatch.setattr(f"unseam.{module}.can_fuse", lambda x: x.dtype != torch.float64)


def trained(trials, world, **options):
    stack = stack_trials(trials, world.shape, size=len(world), device=DEVICE, **options)
    for _ in training_steps(stack, place(world, DEVICE)):
        pass
    return stack


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=on_cuda)])
def test_kernels_compute_what_torch_does(dtype):
    add_bias, narrowed, bernoulli_rows = _fused.add_bias, _fused.narrowed, _fused.bernoulli_rows
    scale_rows, sum_rows = _fused.scale_rows, _fused.sum_rows
    generator = torch.Generator(DEVICE).manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, device=DEVICE)

    ulp = torch.finfo(dtype).eps
    y, bias = draw(3, 7, 1300).to(dtype), draw(3, 1400)[:, 50:1350]
    torch.testing.assert_close(add_bias(y.clone(), bias), (y.float() + bias[:, None]).to(dtype))
    torch.testing.assert_close(sum_rows(y), y.double().sum(1).float(), rtol=1e-5, atol=1e-5)
    wide = draw(3, 2000)[:, 100:1400].view(3, 26, 50)
    assert torch.equal(narrowed(wide, dtype), wide.to(dtype))
    x, logits = draw(20, 1500).sigmoid(), (30 * draw(20, 1500)).to(dtype)
    logits[0, :2] = torch.tensor([300.0, -300.0])
    sums, slopes = bernoulli_rows(x, logits)
    exact = x * logits.double() - torch.nn.functional.softplus(logits.double())
    torch.testing.assert_close(sums.double(), exact.sum(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(slopes.double(), x - logits.double().sigmoid(), rtol=ulp, atol=ulp)
    by = draw(20)
    torch.testing.assert_close(scale_rows(slopes, by), (slopes.float() * by[:, None]).to(dtype))


@pytest.mark.parametrize("optimiser", ["adam", "adagrad", "sgd"])
@pytest.mark.parametrize("objective", ["beta_elbo", pytest.param("factor_vae", marks=on_cuda)])
def test_fused_updates_follow_those_of_torch(optimiser, objective, monkeypatch):
    """Rounding apart, also where one member of three diverges, and for the two optimisers of FactorVAE."""
    world = unseam.data.load("nonlinear", size=500)
    trial = dataclasses.replace(
        SMALL, optimiser=optimiser, objective=objective, learning_rate=1e-3, steps=STEPS
    )
    trials = [trial, dataclasses.replace(trial, seed=1), dataclasses.replace(trial, learning_rate=1e30)]
    fused = trained(trials, world)
    assert LAUNCHES
    monkeypatch.setattr("unseam.training.step.can_fuse", lambda flat: False)
    plain = trained(trials, world)
    torch.testing.assert_close(fused.flat[:2], plain.flat[:2], rtol=0, atol=1e-5)
    assert fused.stopped_at.tolist() == plain.stopped_at.tolist()
    assert fused.stopped_at[0] == -1 and fused.stopped_at[2] > 0
    assert fused.flat.isfinite().all()


@on_cuda
@pytest.mark.parametrize("optimiser", ["adam", "adagrad"])
@pytest.mark.parametrize("objective", ["beta_elbo", "factor_vae"])
def test_parameters_updated_one_by_one_follow_those_in_blocks(optimiser, objective, monkeypatch):
    world = unseam.data.load("nonlinear", size=500)
    trial = dataclasses.replace(SMALL, optimiser=optimiser, objective=objective, steps=STEPS)
    trials = [trial, dataclasses.replace(trial, learning_rate=1e30)]
    blocks = trained(trials, world)
    monkeypatch.setattr("unseam.training.step.GATHERED", 0)
    pieces = trained(trials, world)
    assert torch.equal(pieces.flat, blocks.flat)
    assert pieces.stopped_at.tolist() == blocks.stopped_at.tolist() and blocks.stopped_at[1] > 0


@on_cuda
@pytest.mark.parametrize("posterior", ["diagonal", "full"])
@pytest.mark.parametrize(("name", "tolerance"), [("float32", 1e-4), ("bf16", 0.05)])
def test_stacked_layers_train_as_plain_ones(posterior, name, tolerance):
    """Apart by a small part of the way gone: affine layers, biases and the Bernoulli likelihood have kernels of their
    own."""
    world = unseam.data.load("sprites", scales=2, orientations=2, positions=4, resolution=24)
    trial = Trial(
        encoder_widths=(40,), decoder_widths=(30, 20), latent=3, posterior=posterior, batch_size=8, steps=60,
        precision=name,
    )  # fmt: skip
    trials = [dataclasses.replace(trial, seed=seed) for seed in range(2)]
    start = stack_trials(trials, world.shape, size=len(world), device=DEVICE).flat
    ours, theirs = (trained(trials, world, products=products).flat for products in (True, False))
    assert (ours - theirs).norm() < tolerance * (theirs - start).norm()
