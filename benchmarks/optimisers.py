"""One Adam update of a stack with its check for divergence: plain torch, compiled by torch, and fused kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import seconds_per_call
from unseam.models._fused import can_fuse, fused_update
from unseam.training import Adam
from unseam.training.step import bias_corrections

__all__ = ["optimisers"]

# (members, parameters of each): the MLP of rolinek2019 Table 2, and the convolutional β-VAE of the 12 600-model study
BANDWIDTH = 4.8e12  # bytes per second of an H200's memory, from its data sheet
SIZES = ((100, 1_200_000), (64, 560_000), (512, 70_000))


def optimisers(device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per size and way of updating."""
    if device.type != "cuda":
        return
    for members, width in SIZES:
        results = {}
        for way, make in (("plain torch", plain), ("torch.compile", compiled), ("fused kernels", fused)):
            torch.manual_seed(0)
            flat = torch.randn(members, width, device=device)
            gradient = torch.randn(members, width, device=device)
            gradient[1, 5] = float("nan")  # a member that diverges
            state = Adam().state(flat)
            update = captured(make(flat, gradient, state))
            update()
            results[way] = flat.clone()
            difference = (results[way] - results["plain torch"]).abs().max().item()
            seconds = seconds_per_call(update, device=device, calls=100)
            yield {
                "members": members,
                "parameters": width,
                "way": way,
                "microseconds": seconds * 1e6,
                "passes over memory": seconds * BANDWIDTH / (4 * flat.numel()),
                "difference from plain": difference,
            }


def _checked(
    flat: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, rate: Tensor, clock: Tensor
) -> None:
    """Adam in plain operations; a member that would not stay finite is left as it is."""
    first, second = Adam().betas
    sound = gradient.abs().amax(1, keepdim=True).isfinite()
    new_mean = torch.lerp(mean, gradient, 1 - first)
    new_square = square * second + (1 - second) * gradient * gradient
    root = (new_square / (1 - second**clock)).sqrt() + Adam().epsilon
    new = flat - new_mean * (rate / (1 - first**clock)) / root
    for value in (new, new_mean, new_square):
        sound = sound & value.abs().amax(1, keepdim=True).isfinite()
    flat.copy_(torch.where(sound, new, flat))
    mean.copy_(torch.where(sound, new_mean, mean))
    square.copy_(torch.where(sound, new_square, square))


def plain(flat: Tensor, gradient: Tensor, state: dict[str, Tensor]) -> Callable[[], None]:
    """The update in plain operations."""
    rate = torch.full((len(flat), 1), 1e-3, device=flat.device)
    clock = torch.ones((), device=flat.device, dtype=torch.float64)
    return lambda: _checked(flat, gradient, state["mean"], state["square"], rate, clock.float())


def compiled(flat: Tensor, gradient: Tensor, state: dict[str, Tensor]) -> Callable[[], None]:
    """The same, compiled."""
    update = torch.compile(_checked)
    rate = torch.full((len(flat), 1), 1e-3, device=flat.device)
    clock = torch.ones((), device=flat.device)
    return lambda: update(flat, gradient, state["mean"], state["square"], rate, clock)


def fused(flat: Tensor, gradient: Tensor, state: dict[str, Tensor]) -> Callable[[], None]:
    """The kernels of the trainer: look whether every member stays finite, then write."""
    assert can_fuse(flat)
    optimiser = Adam()
    rate = torch.full((len(flat), 1), 1e-3, device=flat.device)
    clock = torch.ones((), device=flat.device, dtype=torch.float64)
    seen = torch.ones(len(flat), dtype=torch.int32, device=flat.device)
    calm = torch.zeros(len(flat), dtype=torch.int32, device=flat.device)

    def update() -> None:
        still = seen.clone()
        corrections = bias_corrections(optimiser, clock)
        for write in (False, True):
            if write:
                calm.fill_(1)
            flags = (still if write else seen, still, calm)
            fused_update(optimiser.fused(), flat, gradient, state, rate, corrections, *flags, write=write)

    return update


def captured(update: Callable[[], None]) -> Callable[[], None]:
    """The update as a CUDA graph, as the trainer replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            update()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update()
    return graph.replay
