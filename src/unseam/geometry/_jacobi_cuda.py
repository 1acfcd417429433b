"""The rotations of :mod:`unseam.geometry._jacobi` as one CUDA kernel, a thread a matrix."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["sweep_until_rest"]

# Threads share no matrix, so small blocks spread few matrices over many multiprocessors.
_BLOCK = 32


def sweep_until_rest(table: Tensor, data: int, tolerance: float, most_sweeps: int, *, gram: bool) -> bool:
    """Rotate pairs of columns in place until none needs it; ``False`` where there is no compiler for that.

    Pair by pair, each as several calls of torch, a sweep costs latent² launches whatever the batch; here all
    sweeps are one launch.
    """
    kernel = _compiled()
    rows, latent, batch = table.shape
    if kernel is None or not table.is_cuda or batch == 0:
        return False
    with torch.cuda.device(table.device):
        kernel[((batch + _BLOCK - 1) // _BLOCK,)](
            table, batch, tolerance**2, rows, data, latent, most_sweeps, gram, _BLOCK, num_warps=1
        )
    return True


@cache
def _compiled() -> Any:
    """The kernel, or ``None`` without Triton, which torch brings along where it brings CUDA on Linux."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    return _rotations(triton, tl)


def _rotations(triton: Any, tl: Any) -> Any:
    """The kernel: every thread sweeps over the pairs of columns of its own matrix."""

    @triton.jit(do_not_specialize=["batch"])  # type: ignore[untyped-decorator]
    def rotations(  # type: ignore[no-untyped-def]
        table,
        batch,
        bound,
        rows: tl.constexpr,
        data: tl.constexpr,
        latent: tl.constexpr,
        most_sweeps: tl.constexpr,
        gram: tl.constexpr,
        block: tl.constexpr,
    ):
        problem = tl.program_id(0) * block + tl.arange(0, block)
        mask = problem < batch
        here = table + problem
        across = batch.to(tl.int64)
        stride = latent * across
        sweep, moved = 0, 1
        while (sweep < most_sweeps) & (moved > 0):
            moved = 0
            for p in range(latent - 1):
                for q in range(p + 1, latent):
                    left, right = here + p * across, here + q * across
                    if gram:
                        first = tl.load(left + p * stride, mask, 0.0)
                        second = tl.load(right + q * stride, mask, 0.0)
                        product = tl.load(right + p * stride, mask, 0.0)
                    else:
                        first = tl.zeros([block], tl.float64)
                        second = tl.zeros([block], tl.float64)
                        product = tl.zeros([block], tl.float64)
                        for row in range(data):
                            one = tl.load(left + row * stride, mask, 0.0)
                            other = tl.load(right + row * stride, mask, 0.0)
                            first += one * one
                            second += other * other
                            product += one * other
                    resting = product * product <= bound * tl.abs(first * second)
                    cotangent = (second - first) / (2 * tl.where(resting, 1.0, product))
                    tangent = 1 / (tl.abs(cotangent) + tl.sqrt(1 + cotangent * cotangent))
                    tangent = tl.where(resting, 0.0, tl.where(cotangent < 0, -tangent, tangent))
                    cos = 1 / tl.sqrt(1 + tangent * tangent)
                    sin = tangent * cos
                    for row in range(rows):
                        one = tl.load(left + row * stride, mask, 0.0)
                        other = tl.load(right + row * stride, mask, 0.0)
                        tl.store(left + row * stride, cos * one - sin * other, mask)
                        tl.store(right + row * stride, cos * other + sin * one, mask)
                    if gram:
                        for column in range(latent):
                            above = here + p * stride + column * across
                            below = here + q * stride + column * across
                            one = tl.load(above, mask, 0.0)
                            other = tl.load(below, mask, 0.0)
                            tl.store(above, cos * one - sin * other, mask)
                            tl.store(below, cos * other + sin * one, mask)
                    moved = tl.maximum(moved, tl.max((~resting & mask).to(tl.int32), 0))
            sweep += 1

    return rotations
