"""Wall-clock time of repeated work on any device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

__all__ = ["peak_rate", "seconds_per_call"]


def seconds_per_call(
    work: Callable[[], object], *, device: torch.device, calls: int, repeats: int = 3, warm_up: int = 1
) -> float:
    """Median over ``repeats`` of the time of one call, each measured over ``calls`` calls after a warm-up."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        for _ in range(calls):
            work()
        _wait(device)
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def peak_rate(device: torch.device, dtype: torch.dtype, side: int) -> float:
    """Floating-point operations a second of one large matrix product: what the chip reaches at best, here."""
    generator = torch.Generator(device=device).manual_seed(0)
    a, b = (torch.randn(side, side, device=device, generator=generator).to(dtype) for _ in range(2))
    seconds = seconds_per_call(lambda: a @ b, device=device, calls=10, warm_up=3)
    return 2 * side**3 / seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
