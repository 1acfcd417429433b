"""Passes over a network's outputs as CUDA kernels that read and write each number once."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["add_bias", "bernoulli_rows", "can_fuse", "narrowed", "scale_rows", "sum_rows"]

_BLOCK = 1024
_ROWS, _COLUMNS = 32, 64


def can_fuse(x: Tensor) -> bool:
    """Whether kernels of our own can work on this: single or narrow floats on CUDA, and a compiler for kernels."""
    return x.is_cuda and x.dtype in (torch.float32, torch.bfloat16) and _compiled() is not None


def add_bias(y: Tensor, bias: Tensor) -> Tensor:
    """Add bias (member, column) to y (member, row, column), in place."""
    members, rows, columns = y.shape
    size = rows * columns
    with torch.cuda.device(y.device):
        _compiled().add[(_blocks(size), members)](y, bias, size, columns, bias.stride(0), _BLOCK)
    return y


def narrowed(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Values (member, …), contiguous but for the members' stride, in another type."""
    narrow = torch.empty(values.shape, dtype=dtype, device=values.device)
    size = narrow[0].numel()
    with torch.cuda.device(values.device):
        _compiled().copy[(_blocks(size), len(values))](values, narrow, size, values.stride(0), _BLOCK)
    return narrow


def bernoulli_rows(x: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Row sums of x·θ − log(1 + e^θ) and their derivative x − σ(θ), of rows (row, pixel).

    Returns:
        Sums (row,) in single precision, and derivatives in the type of ``logits``.
    """
    rows, pixels = logits.shape
    sums = torch.empty(rows, dtype=torch.float32, device=logits.device)
    slopes = torch.empty_like(logits)
    with torch.cuda.device(logits.device):
        _compiled().bernoulli[(rows,)](x, logits, sums, slopes, pixels, _BLOCK)
    return sums, slopes


def scale_rows(y: Tensor, by: Tensor) -> Tensor:
    """Rows (row, column) times numbers (row,), multiplied in single precision."""
    rows, columns = y.shape
    scaled = torch.empty_like(y)
    with torch.cuda.device(y.device):
        _compiled().scale[(rows, _blocks(columns))](y, by, scaled, columns, _BLOCK)
    return scaled


def sum_rows(y: Tensor) -> Tensor:
    """Sums over rows of y (member, row, column) in single precision, (member, column)."""
    members, rows, columns = y.shape
    sums = torch.empty(members, columns, dtype=torch.float32, device=y.device)
    grid = ((columns + _COLUMNS - 1) // _COLUMNS, members)
    with torch.cuda.device(y.device):
        _compiled().sum[grid](y, sums, rows, columns, _ROWS, _COLUMNS)
    return sums


def _blocks(size: int) -> int:
    return (size + _BLOCK - 1) // _BLOCK


class _Kernels(NamedTuple):
    add: Any
    copy: Any
    bernoulli: Any
    scale: Any
    sum: Any


@cache
def _compiled() -> Any:
    """The kernels, or ``None`` without Triton, which torch brings along where it brings CUDA on Linux."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None
    makers = (_add_kernel, _copy_kernel, _bernoulli_kernel, _scale_kernel, _sum_kernel)
    return _Kernels(*(make(triton, tl) for make in makers))


def _add_kernel(triton: Any, tl: Any) -> Any:
    @triton.jit  # type: ignore[untyped-decorator]
    def add(y, bias, size, columns, stride, block: tl.constexpr):  # type: ignore[no-untyped-def]
        member = tl.program_id(1).to(tl.int64)
        place = tl.program_id(0) * block + tl.arange(0, block)
        mask = place < size
        here = y + member * size + place
        more = tl.load(bias + member * stride + place % columns, mask, 0.0).to(tl.float32)
        tl.store(here, tl.load(here, mask, 0.0).to(tl.float32) + more, mask)

    return add


def _copy_kernel(triton: Any, tl: Any) -> Any:
    @triton.jit  # type: ignore[untyped-decorator]
    def copy(values, narrow, size, stride, block: tl.constexpr):  # type: ignore[no-untyped-def]
        member = tl.program_id(1).to(tl.int64)
        place = tl.program_id(0) * block + tl.arange(0, block)
        mask = place < size
        tl.store(narrow + member * size + place, tl.load(values + member * stride + place, mask, 0.0), mask)

    return copy


def _bernoulli_kernel(triton: Any, tl: Any) -> Any:
    @triton.jit  # type: ignore[untyped-decorator]
    def bernoulli(  # type: ignore[no-untyped-def]
        x, logits, sums, slopes, pixels: tl.constexpr, block: tl.constexpr
    ):
        row = tl.program_id(0).to(tl.int64)
        total = tl.zeros((block,), dtype=tl.float32)
        for start in range(0, pixels, block):
            pixel = start + tl.arange(0, block)
            mask = pixel < pixels
            place = row * pixels + pixel
            value = tl.load(x + place, mask, 0.0).to(tl.float32)
            logit = tl.load(logits + place, mask, 0.0).to(tl.float32)
            # e^{−|θ|} overflows nowhere: log(1 + e^θ) = max(θ, 0) + log(1 + e^{−|θ|})
            small = tl.exp(-tl.abs(logit))
            softplus = tl.maximum(logit, 0.0) + tl.log(1.0 + small)
            total += tl.where(mask, value * logit - softplus, 0.0)
            chance = tl.where(logit > 0, 1.0, small) / (1.0 + small)
            tl.store(slopes + place, value - chance, mask)
        tl.store(sums + row, tl.sum(total))

    return bernoulli


def _scale_kernel(triton: Any, tl: Any) -> Any:
    @triton.jit  # type: ignore[untyped-decorator]
    def scale(y, by, scaled, columns, block: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * block + tl.arange(0, block)
        mask = column < columns
        place = row * columns + column
        value = tl.load(y + place, mask, 0.0).to(tl.float32) * tl.load(by + row).to(tl.float32)
        tl.store(scaled + place, value, mask)

    return scale


def _sum_kernel(triton: Any, tl: Any) -> Any:
    @triton.jit  # type: ignore[untyped-decorator]
    def add_up(y, sums, rows, columns, high: tl.constexpr, wide: tl.constexpr):  # type: ignore[no-untyped-def]
        member = tl.program_id(1).to(tl.int64)
        row, column = tl.arange(0, high)[:, None], tl.program_id(0) * wide + tl.arange(0, wide)
        inside = column < columns
        total = tl.zeros((high, wide), dtype=tl.float32)
        turn = 0
        while turn < rows:
            mask = (turn + row < rows) & inside[None, :]
            place = (member * rows + turn + row) * columns + column[None, :]
            total += tl.load(y + place, mask, 0.0).to(tl.float32)
            turn += high
        tl.store(sums + member * columns + column, tl.sum(total, axis=0), inside)

    return add_up
