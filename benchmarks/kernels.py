"""Kernels of stacked convolutions against windows and batched products: models per hour, losses, and rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from benchmarks.convolution import STUDY, STUDY_STEPS
from benchmarks.timing import seconds_per_call
from unseam import data
from unseam.models._convolutions import Shape, convolve
from unseam.training import stack_trials, training_steps
from unseam.training.step import precision

__all__ = ["kernels", "rounding"]

# (architecture, members, precision)
CASES = (
    ("study", 1, "bf16"),
    ("study", 64, "bf16"),
    ("study", 128, "bf16"),
    ("study", 256, "bf16"),
    ("study", 64, "tf32"),
    ("bhowal_shapes", 64, "bf16"),
    ("bhowal_faces", 64, "bf16"),
)
EVERY = 40
# of the study's encoder and decoder, of the other published architectures, and of pictures of other sides
LAYERS = (
    (Shape(4, 2, 1, 1, 32, 32, 32), False),
    (Shape(4, 2, 1, 32, 32, 16, 16), False),
    (Shape(2, 2, 0, 32, 64, 8, 8), False),
    (Shape(2, 2, 0, 64, 64, 4, 4), False),
    (Shape(4, 2, 1, 64, 64, 4, 4), True),
    (Shape(4, 2, 1, 32, 64, 8, 8), True),
    (Shape(4, 2, 1, 32, 32, 16, 16), True),
    (Shape(4, 2, 1, 1, 32, 32, 32), True),
    (Shape(4, 2, 1, 3, 32, 32, 32), False),
    (Shape(4, 2, 1, 3, 32, 32, 32), True),
    (Shape(4, 2, 1, 32, 64, 8, 8), False),
    (Shape(4, 2, 1, 64, 64, 4, 4), False),
    (Shape(4, 2, 1, 3, 5, 5, 7), True),
    (Shape(3, 1, 1, 8, 24, 6, 5), False),
)


def kernels(device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per stack: both ways of the trainer's visible loop, and the mean loss of the last ``EVERY`` steps."""
    if device.type != "cuda":
        return
    world = data.place(data.load("sprites"), device)
    for architecture, members, name in CASES:
        row: dict[str, Any] = {"architecture": architecture, "members": members, "precision": name}
        trial = dataclasses.replace(STUDY, precision=name, architecture=architecture)
        trials = [dataclasses.replace(trial, seed=seed) for seed in range(members)]
        for way, used in (("windows", False), ("kernels", True)):
            stack = stack_trials(trials, world.shape, size=len(world), device=device, kernels=used)
            records = training_steps(stack, world, every=EVERY)
            last = []
            seconds = seconds_per_call(lambda: last.append(next(records)), device=device, calls=1) / EVERY  # noqa: B023
            row[f"models/hour, {way}"] = 3600 * members / (seconds * STUDY_STEPS)
            row[f"loss, {way}"] = last[-1].terms["loss"].mean().item()
        yield row


def rounding(device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per layer and precision: relative errors of outputs and gradients against float64."""
    if device.type != "cuda":
        return
    for name, dtype in (("bf16", torch.bfloat16), ("tf32", torch.float32)):
        for shape, transposed in LAYERS:
            found = _errors(shape, transposed, name, dtype)
            kind = "transposed" if transposed else "plain"
            yield {"layer": f"{kind} {tuple(shape)}", "precision": name} | found


def _errors(
    shape: Shape, transposed: bool, name: str, dtype: torch.dtype, members: int = 7, batch: int = 64
) -> dict[str, float]:
    kernel, stride, padding, fine, coarse, height, width = shape
    generator = torch.Generator("cuda").manual_seed(0)
    sides = (height, width, coarse) if transposed else (height * stride, width * stride, fine)
    sizes = (
        (members, batch, *sides),
        (members, coarse, fine, kernel, kernel),
        (members, fine if transposed else coarse),
    )
    drawn = [torch.randn(size, device="cuda", generator=generator) for size in sizes]
    # what is rounded before the product is no error of the kernels
    x, weight, bias = drawn[0].to(dtype), drawn[1].to(dtype).float(), drawn[2]
    narrow = [value.requires_grad_() for value in (x, weight, bias)]
    exact = [value.detach().double().requires_grad_() for value in narrow]
    with precision(name):
        ours = convolve(*narrow, shape, transposed=transposed, dtype=dtype)
        slope = torch.randn(ours.shape, device="cuda", generator=generator).to(dtype)
        gradients = torch.autograd.grad(ours, narrow, slope)
    way = functional.conv_transpose2d if transposed else functional.conv2d
    theirs = torch.stack([
        way(one.movedim(3, 1), w, b, stride, padding).movedim(1, 3) for one, w, b in zip(*exact, strict=True)
    ])  # fmt: skip
    known = torch.autograd.grad(theirs, exact, slope.double())
    pairs = zip(("y", "dx", "dw", "db"), (ours, *gradients), (theirs, *known), strict=True)
    return {key: ((one.double() - other).norm() / other.norm()).item() for key, one, other in pairs}
