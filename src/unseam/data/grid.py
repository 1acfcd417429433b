"""Positions on a grid of factors and the running index of its points."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from unseam.data.world import check_index

__all__ = ["grid_factors", "grid_index"]


def grid_factors(index: Tensor, sizes: Sequence[int]) -> Tensor:
    """Factor positions of the grid points with the given running index, the last factor fastest.

    ``factors[:, k] = (index // strides[k]) % sizes[k]`` with ``strides[k] = sizes[k+1] * ... * sizes[-1]``.

    Args:
        index: integers (batch,) in [0, product of sizes).
        sizes: number of values of each factor.

    Returns:
        int64 (batch, factor) on the device of ``index``.

    >>> grid_factors(torch.tensor([0, 1, 5]), (2, 3))
    tensor([[0, 0],
            [0, 1],
            [1, 2]])
    """
    index = check_index(index, prod(_check_sizes(sizes)))
    strides = _strides(sizes)
    if not strides:
        return index.new_empty(len(index), 0)
    # Python scalars, not a stride tensor, so that nothing is copied to an accelerator on the way.
    return torch.stack([index // stride % size for stride, size in zip(strides, sizes, strict=True)], dim=-1)


def grid_index(factors: Tensor, sizes: Sequence[int]) -> Tensor:
    """Running index of the grid points at the given factor positions, the last factor fastest.

    ``index = sum_k factors[:, k] * strides[k]``, the inverse of :func:`grid_factors`.

    Args:
        factors: integers (batch, factor), column k in [0, sizes[k]).
        sizes: number of values of each factor.

    Returns:
        int64 (batch,) on the device of ``factors``.

    >>> grid_index(torch.tensor([[0, 0], [0, 1], [1, 2]]), (2, 3))
    tensor([0, 1, 5])
    """
    factors = _check_factors(torch.as_tensor(factors), _check_sizes(sizes))
    index = torch.zeros(len(factors), dtype=torch.int64, device=factors.device)
    for column, stride in zip(factors.unbind(-1), _strides(sizes), strict=True):
        index = index + column * stride
    return index


def _strides(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(sizes[k + 1 :]) for k in range(len(sizes)))


def _check_sizes(sizes: Sequence[int]) -> Sequence[int]:
    if any(size < 1 for size in sizes):
        raise ValueError(f"sizes must all be at least 1, got {tuple(sizes)}")
    return sizes


def _check_factors(factors: Tensor, sizes: Sequence[int]) -> Tensor:
    if factors.dtype.is_floating_point or factors.dtype.is_complex or factors.dtype == torch.bool:
        raise ValueError(f"factors must hold integers, got {factors.dtype}")
    if factors.ndim != 2 or factors.shape[1] != len(sizes):
        raise ValueError(f"factors must have shape (batch, {len(sizes)}), got {tuple(factors.shape)}")
    # As with an index, the range is checked on the host only.
    if factors.device.type == "cpu" and factors.numel():
        low, high = factors.amin(0).tolist(), factors.amax(0).tolist()
        if min(low) < 0 or any(h >= size for h, size in zip(high, sizes, strict=True)):
            raise ValueError(
                f"factors must lie on the grid of sizes {tuple(sizes)}, got columns from {low} to {high}"
            )
    return factors.long()
