"""On an accelerator: capture, streaming and batched products give what the plain way on the host gives."""

import dataclasses

import numpy as np
import pytest
import torch

import unseam
from unseam import choices
from unseam.data import ArrayWorld, place
from unseam.training import Trial, make_step, stack_trials, training_steps, update

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

SMALL = Trial(
    world="nonlinear",
    likelihood="gaussian",
    latent=2,
    encoder_widths=(12,),
    decoder_widths=(12,),
    beta=1e-3,
    batch_size=16,
    steps=100,
    precision="float32",
)
OBJECTIVES = [
    name for name, choice in choices.built_in(choices.Objective).items() if choice.variance is not False
]


def trained(trials, world, device, **options):
    stack = stack_trials(trials, world.shape, size=len(world), device=device, **options)
    for _ in training_steps(stack, place(world, device)):
        pass
    return stack


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_captured_training_follows_the_host(objective):
    world = unseam.data.load("nonlinear", size=500)
    beta = 1.0 if objective == "annealed_capacity" else SMALL.beta
    trial = dataclasses.replace(SMALL, objective=objective, beta=beta, steps=30, precision="float64")
    trials = [dataclasses.replace(trial, seed=seed) for seed in range(3)]
    here, there = trained(trials, world, "cpu"), trained(trials, world, "cuda")
    # noise is drawn in float32, whose logarithms and cosines differ between devices in the last digit
    torch.testing.assert_close(there.flat.cpu(), here.flat, rtol=0, atol=1e-5)


def test_capture_leaves_no_trace_of_its_warm_up():
    world = place(unseam.data.load("nonlinear", size=500), "cuda")
    captured, eager = (stack_trials([SMALL], world.shape, size=500, device="cuda") for _ in range(2))
    index, noise = torch.arange(16, device="cuda")[None], torch.zeros(1, 16, 2, device="cuda")
    step = make_step(captured, world)
    for _ in range(3):
        step(index, noise, None)
        update(eager, world.images(index[0])[None], noise, None)
    torch.testing.assert_close(captured.flat, eager.flat, rtol=0, atol=1e-6)
    assert float(captured.clock) == float(eager.clock) == 3


def test_streamed_world_trains_the_same():
    world = unseam.data.load("nonlinear", size=500)
    table = world.images(torch.arange(500)).numpy()
    streamed = ArrayWorld(
        np.ascontiguousarray(table),
        world.factors,
        name="streamed",
        factor_names=world.factor_names,
        factor_sizes=world.factor_sizes,
        device="cuda",
    )
    assert not streamed.resident
    whole = trained([SMALL], world, "cuda")
    stack = stack_trials([SMALL], world.shape, size=500, device="cuda")
    for _ in training_steps(stack, streamed):
        pass
    torch.testing.assert_close(stack.flat, whole.flat, rtol=0, atol=1e-6)


@pytest.mark.parametrize("architecture", ["study", "bhowal_faces", "bhowal_shapes"])
def test_batched_products_train_as_grouped_convolutions(architecture):
    world = unseam.data.load("sprites", scales=2, orientations=2, positions=4)
    trial = Trial(architecture=architecture, latent=3, batch_size=8, steps=5, precision="float64")
    trials = [dataclasses.replace(trial, seed=seed) for seed in range(2)]
    ours, theirs = (trained(trials, world, "cuda", products=products) for products in (True, False))
    torch.testing.assert_close(ours.flat, theirs.flat, rtol=0, atol=1e-8)
    for name, value in ours.buffers.items():
        torch.testing.assert_close(value, theirs.buffers[name], rtol=0, atol=1e-8)


def test_divergence_inside_a_captured_step():
    world = unseam.data.load("nonlinear", size=500)
    calm = dataclasses.replace(SMALL, optimiser="sgd", learning_rate=1e-3)
    wild = dataclasses.replace(calm, learning_rate=1e6)
    stack = trained([calm, wild], world, "cuda")
    assert stack.stopped_at.tolist()[0] == -1
    assert stack.stopped_at.tolist()[1] > 0
    assert stack.flat.isfinite().all()


@pytest.mark.parametrize("name", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("captured", [False, True])
def test_nothing_is_read_before_it_is_written(name, captured):
    """Large blocks full of NaN are handed to an eager step: any number that it takes from there stops a member."""
    world = place(unseam.data.load("sprites", scales=2, orientations=2, positions=8), "cuda")
    trial = Trial(
        encoder_widths=(1200, 1200), decoder_widths=(1200, 1200), latent=5, batch_size=250, optimiser="adagrad",
        learning_rate=1e-4, steps=3, precision=name,
    )  # fmt: skip
    stack = stack_trials(
        [dataclasses.replace(trial, seed=seed) for seed in range(8)],
        world.shape,
        size=len(world),
        device="cuda",
    )
    index, noise = (
        torch.arange(2000, device="cuda").view(8, 250) % len(world),
        torch.zeros(8, 250, 5, device="cuda"),
    )
    torch.full((1 << 30,), torch.nan, device="cuda")
    step = make_step(stack, world)
    for _ in range(3):
        if captured:
            step(index, noise, None)
        else:
            update(stack, world.images(index.flatten()).unflatten(0, index.shape), noise, None)
    assert stack.alive.all()


def test_bf16_and_tf32_stay_near_full_precision():
    """They go the same way: apart by a small part of the way gone."""
    world = unseam.data.load("nonlinear", size=500)
    start = stack_trials([SMALL], world.shape, size=500, device="cuda").flat
    full, tf32, bf16 = (
        trained([dataclasses.replace(SMALL, precision=name)], world, "cuda").flat
        for name in ("float32", "tf32", "bf16")
    )
    gone = (full - start).norm()
    assert (tf32 - full).norm() / gone < 0.05
    assert 0 < (bf16 - full).norm() / gone < 0.05


def test_measurements_are_in_full_precision():
    ensemble = unseam.train(SMALL, world=unseam.data.load("nonlinear", size=500), device="cuda")
    assert torch.backends.cuda.matmul.fp32_precision != "tf32"
    x = torch.rand(64, 6)
    host = ensemble[0].cpu().double().encode(x.double()).mean
    torch.testing.assert_close(ensemble.encode(x).mean[0].cpu().double(), host, rtol=1e-5, atol=1e-6)
