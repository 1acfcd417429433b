"""The convolutional β-VAE of the 12 600-model study, as an ensemble: models per hour."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.ensembles import eager_seconds
from benchmarks.timing import peak_rate, seconds_per_call
from unseam import data
from unseam.data import World
from unseam.training import Trial, learner, stack_trials, training_steps

__all__ = ["convolution"]

STUDY = Trial(
    world="sprites", architecture="study", likelihood="bernoulli", latent=10, beta=4.0, batch_size=64
)
STUDY_STEPS = 300_000
# Locatello et al. 2019: 12 600 models took about 2.52 GPU-years on P100s.
PUBLISHED_MODELS_AN_HOUR = 12_600 / (2.52 * 365.25 * 24)

# (members, precision, whether convolutions run as batched products)
CASES: dict[str, tuple[tuple[int, str, bool], ...]] = {
    "cpu": ((1, "float32", False), (8, "float32", False), (8, "float32", True)),
    "cuda": (
        (64, "tf32", False),
        (64, "bf16", False),
        (1, "bf16", True),
        (32, "bf16", True),
        (64, "tf32", True),
        (64, "bf16", True),
        (128, "bf16", True),
        (256, "bf16", True),
    ),
}
EVERY = {"cpu": 2, "cuda": 50}


def convolution(device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per way of training: an eager loop, grouped convolutions, batched products."""
    world = data.place(data.load("sprites"), device, budget=None if device.type == "cuda" else 0)
    work = _operations()
    peak = peak_rate(device, *((torch.bfloat16, 8192) if device.type == "cuda" else (torch.float32, 2048)))
    seconds = eager_seconds(STUDY, world, device, calls=50 if device.type == "cuda" else 3)
    yield _row("one after another, eager", 1, "float32", seconds, work, peak)
    for members, precision, products in CASES[device.type]:
        seconds = _stacked(world, device, members, precision, products)
        way = "stacked, batched products" if products else "stacked, grouped convolutions"
        yield _row(way, members, precision, seconds, work, peak)


def _stacked(world: World, device: torch.device, members: int, precision: str, products: bool) -> float:
    """Seconds per step of the visible loop."""
    trials = [dataclasses.replace(STUDY, seed=seed, precision=precision) for seed in range(members)]
    stack = stack_trials(trials, world.shape, size=len(world), device=device, products=products)
    every = EVERY[device.type]
    records = training_steps(stack, world, every=every)
    return seconds_per_call(lambda: next(records), device=device, calls=1, warm_up=1) / every


def _row(way: str, members: int, precision: str, seconds: float, work: float, peak: float) -> dict[str, Any]:
    models = 3600 * members / (seconds * STUDY_STEPS)
    return {
        "way": way,
        "members": members,
        "precision": precision,
        "ms/step": 1000 * seconds,
        "models/hour": models,
        "times the published": models / PUBLISHED_MODELS_AN_HOUR,
        "TFLOP/s": members * work / seconds / 1e12,
        "% of measured peak": 100 * members * work / seconds / peak,
    }


def _operations() -> float:
    """Floating-point operations of one member's step, forward and backward."""
    member = learner(STUDY, (1, 64, 64), size=1000)
    x, noise = torch.zeros(STUDY.batch_size, 1, 64, 64), torch.zeros(STUDY.batch_size, STUDY.latent)
    with FlopCounterMode(display=False) as counter:
        member(x, noise, None, torch.tensor(0.0), {"beta": 4.0}).loss.backward()
    return float(counter.get_total_flops())
