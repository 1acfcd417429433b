"""The updates of :mod:`unseam.training.optimisers` as two CUDA kernels that read and write each number once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from unseam.training.optimisers import AdaGrad, Adam, Optimiser, Sgd

__all__ = ["bias_corrections", "can_fuse", "fused_update"]

_BLOCK = 1024
_ADAM, _ADAGRAD, _SGD = range(3)
# Roots and quotients stay far from overflow while gradients and means lie below 1e15, squares and parameters below
# 1e30, rates below 1e10, and ε is at least this.
_TINY = 1e-12


def can_fuse(flat: Tensor) -> bool:
    """Whether these parameters can be updated so: float32 on CUDA, and a compiler for kernels."""
    return flat.is_cuda and flat.dtype == torch.float32 and _compiled() is not None


def fused_update(
    optimiser: Optimiser,
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
    """One update of rows (member, parameter): look whether it stays finite, or carry it out.

    Operation by operation in torch an update with its checks passes about twenty times over tensors of the size of the
    parameters; each of these two passes reads parameters, gradient and state once, and the first of them the gradient
    alone where all numbers were far from overflow after the last update.

    Args:
        optimiser: which.
        flat: parameters, a slice of columns or all.
        gradient: of the same shape.
        state: the optimiser's, of the same shape each.
        rate: (member, 1).
        corrections: of this update, see :func:`bias_corrections`.
        sound: (member,) int32, 1 for members to look at or update.
        verdict: (member,) int32, which becomes 0 without ``write`` where anything would not be finite, when nothing
            else changes. Not the same memory as ``sound``, which all of a member's programs read.
        calm: (member,) int32, 1 for members whose parameters and state are so small that a moderate gradient cannot
            make them overflow. To be filled with 1 before an update is carried out, which puts 0 where they are not.
        write: carry it out.
    """
    names = {Adam: ("mean", "square"), AdaGrad: ("square", "square"), Sgd: ("velocity", "velocity")}
    first, second = (state[name] for name in names[type(optimiser)])
    kind, decay, other, epsilon = _constants(optimiser)
    members, width = flat.shape
    with torch.cuda.device(flat.device):
        _compiled()[((width + _BLOCK - 1) // _BLOCK, members)](
            flat, gradient, first, second, rate, corrections, sound, verdict, calm, width,
            flat.stride(0), gradient.stride(0), first.stride(0),
            decay, other, epsilon, kind, write, kind != _SGD and epsilon < _TINY, _BLOCK,
        )  # fmt: skip


def bias_corrections(optimiser: Optimiser, clock: Tensor) -> Tensor:
    """Adam's two, 1 − βⁿ at the n-th update, on the device; of no account to the others.

    >>> bias_corrections(Adam(betas=(0.5, 0.9)), torch.tensor(1.0, dtype=torch.float64))
    tensor([0.5000, 0.1000])
    """
    if not isinstance(optimiser, Adam):
        return clock
    return torch.stack([1 - decay**clock for decay in optimiser.betas]).float()


def _constants(optimiser: Optimiser) -> tuple[int, float, float, float]:
    """Kind, two decay rates and ε."""
    if isinstance(optimiser, Adam):
        return _ADAM, 1 - optimiser.betas[0], optimiser.betas[1], optimiser.epsilon
    if isinstance(optimiser, AdaGrad):
        return _ADAGRAD, 0.0, 0.0, optimiser.epsilon
    return _SGD, optimiser.momentum, 0.0, 0.0


@cache
def _compiled() -> Any:
    """The kernel, or ``None`` without Triton, which torch brings along where it brings CUDA on Linux."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    return _kernel(triton, tl)


def _kernel(triton: Any, tl: Any) -> Any:
    """The kernel: a program updates one block of one member's parameters."""

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
