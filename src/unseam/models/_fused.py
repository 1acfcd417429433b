"""CUDA kernels that read and write each number once: of layers, of the Bernoulli likelihood, and of optimisers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = [
    "ADAGRAD",
    "ADAM",
    "SGD",
    "Update",
    "add_bias",
    "bernoulli_rows",
    "can_fuse",
    "fused_update",
    "narrowed",
    "scale_rows",
    "sum_rows",
]

ADAM, ADAGRAD, SGD = range(3)
_BLOCK = 1024
_ROWS, _COLUMNS = 32, 64
# Roots and quotients stay far from overflow while gradients and means lie below 1e15, squares and parameters below
# 1e30, rates below 1e10, and ε is at least this.
_TINY = 1e-12


def can_fuse(x: Tensor) -> bool:
    """Whether the kernels can work on this: single or narrow floats on CUDA, and a compiler for kernels."""
    return x.is_cuda and x.dtype in (torch.float32, torch.bfloat16) and _compiled() is not None


def add_bias(y: Tensor, bias: Tensor) -> Tensor:
    """Add bias (member, column) to y (member, row, column), in place."""
    members, rows, columns = y.shape
    size = rows * columns
    with _device(y):
        _compiled().add[(_blocks(size), members)](y, bias, size, columns, bias.stride(0), _BLOCK)
    return y


def narrowed(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Values (member, …), contiguous but for the members' stride, in another type."""
    narrow = torch.empty(values.shape, dtype=dtype, device=values.device)
    size = narrow[0].numel()
    with _device(values):
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
    with _device(logits):
        _compiled().bernoulli[(rows,)](x, logits, sums, slopes, pixels, _BLOCK)
    return sums, slopes


def scale_rows(y: Tensor, by: Tensor) -> Tensor:
    """Rows (row, column) times numbers (row,), multiplied in single precision."""
    rows, columns = y.shape
    scaled = torch.empty_like(y)
    with _device(y):
        _compiled().scale[(rows, _blocks(columns))](y, by, scaled, columns, _BLOCK)
    return scaled


def sum_rows(y: Tensor) -> Tensor:
    """Sums over rows of y (member, row, column) in single precision, (member, column)."""
    members, rows, columns = y.shape
    sums = torch.empty(members, columns, dtype=torch.float32, device=y.device)
    grid = ((columns + _COLUMNS - 1) // _COLUMNS, members)
    with _device(y):
        _compiled().sum[grid](y, sums, rows, columns, _ROWS, _COLUMNS)
    return sums


class Update(NamedTuple):
    """Which optimiser, two decay rates and ε."""

    kind: int
    decay: float
    other: float
    epsilon: float


def fused_update(
    constants: Update,
    flat: Tensor,
    gradient: Tensor,
    state: Mapping[str, Tensor],
    rate: Tensor,
    corrections: Tensor,
    sound: Tensor,
    verdict: Tensor,
    calm: Tensor,
    *,
    write: bool,
) -> None:
    """One update of rows (member, parameter): check whether it stays finite, or carry it out.

    Operation by operation in torch an update with its checks passes about twenty times over tensors of the size of the
    parameters; each of these two passes reads parameters, gradient and state once, and the first of them the gradient
    alone where all numbers were far from overflow after the last update.

    Args:
        constants: of the optimiser.
        flat: parameters, a slice of columns or all.
        gradient: of the same shape.
        state: the optimiser's, of the same shape each.
        rate: (member, 1).
        corrections: of this update, Adam's 1 − βⁿ for both β at the n-th update; unused by AdaGrad and SGD.
        sound: (member,) int32, 1 for members to check or update.
        verdict: (member,) int32, which becomes 0 without ``write`` where anything would not be finite, when nothing
            else changes. Not the same memory as ``sound``, which all of a member's programs read.
        calm: (member,) int32, 1 for members whose parameters and state are so small that a moderate gradient cannot
            make them overflow. To be filled with 1 before an update is carried out, which puts 0 where they are not.
        write: carry it out.
    """
    states = tuple(state.values())
    first, second = states[0], states[-1]
    kind, decay, other, epsilon = constants
    members, width = flat.shape
    with _device(flat):
        _compiled().advance[(_blocks(width), members)](
            flat, gradient, first, second, rate, corrections, sound, verdict, calm, width,
            flat.stride(0), gradient.stride(0), first.stride(0),
            decay, other, epsilon, kind, write, kind != SGD and epsilon < _TINY, _BLOCK,
        )  # fmt: skip


def _device(x: Tensor) -> AbstractContextManager[None]:
    """Where kernels are launched; on the host, Triton's interpreter runs them (``TRITON_INTERPRET=1``)."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def _blocks(size: int) -> int:
    return (size + _BLOCK - 1) // _BLOCK


class _Kernels(NamedTuple):
    add: Any
    copy: Any
    bernoulli: Any
    scale: Any
    sum: Any
    advance: Any


@cache
def _compiled() -> Any:
    """The kernels, or ``None`` without Triton, which torch brings along where it brings CUDA on Linux."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None
    makers = (_add_kernel, _copy_kernel, _bernoulli_kernel, _scale_kernel, _sum_kernel, _advance_kernel)
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
        start = 0
        while start < rows:
            mask = (start + row < rows) & inside[None, :]
            place = (member * rows + start + row) * columns + column[None, :]
            total += tl.load(y + place, mask, 0.0).to(tl.float32)
            start += high
        tl.store(sums + member * columns + column, tl.sum(total, axis=0), inside)

    return add_up


def _advance_kernel(triton: Any, tl: Any) -> Any:
    """A program updates one block of one member's parameters."""

    @triton.jit  # type: ignore[untyped-decorator]
    def advance(  # type: ignore[no-untyped-def]
        flat, gradient, first, second, rate, corrections, sound, verdict, calm, width, flat_stride,
        gradient_stride, state_stride, decay, other, epsilon, kind: tl.constexpr, write: tl.constexpr,
        exact: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        member = tl.program_id(1).to(tl.int64)
        if tl.load(sound + member) != 0:
            column = tl.program_id(0) * block + tl.arange(0, block)
            mask = column < width
            slope = tl.load(gradient + member * gradient_stride + column, mask, 0.0)
            step = tl.load(rate + member)
            needed = True
            if not write and not exact:
                needed = (tl.load(calm + member) == 0) | (tl.sum((tl.abs(slope) < 1e15).to(tl.int32)) < block)
            if needed:
                here = flat + member * flat_stride + column
                one = first + member * state_stride + column
                two = second + member * state_stride + column
                value = tl.load(here, mask, 0.0)
                moved = tl.load(one, mask, 0.0)
                square = moved
                if kind == 0:
                    moved = moved + decay * (slope - moved)
                    square = tl.load(two, mask, 0.0) * other + (1 - other) * slope * slope
                    root = tl.sqrt_rn(tl.div_rn(square, tl.load(corrections + 1))) + epsilon
                    value = value - tl.div_rn(moved * tl.div_rn(step, tl.load(corrections)), root)
                elif kind == 1:
                    moved = moved + slope * slope
                    square = moved
                    value = value - tl.div_rn(step * slope, tl.sqrt_rn(moved) + epsilon)
                else:
                    moved = decay * moved + slope
                    value = value - step * moved
                if write:
                    tl.store(here, value, mask)
                    tl.store(one, moved, mask)
                    if kind == 0:
                        tl.store(two, square, mask)
                    means = moved if kind != 1 else slope
                    squares = square if kind != 2 else slope
                    small = (tl.abs(value) < 1e30) & (tl.abs(means) < 1e15) & (tl.abs(squares) < 1e30)
                    if (step >= 1e10) | (tl.sum((small | ~mask).to(tl.int32)) < block):
                        tl.store(calm + member, 0)
                else:
                    # 0 · x is 0 for every finite x alone
                    rest = tl.where(mask, 0.0 * value + 0.0 * moved + 0.0 * square, 0.0)
                    if tl.sum(rest) != 0.0:
                        tl.store(verdict + member, 0)

    return advance
