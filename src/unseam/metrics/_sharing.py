"""Rows that share a factor's value, looked up by index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseam.metrics._inputs import Checked, equal_width
from unseam.metrics._members import NUMBERS_AT_ONCE

__all__ = ["Shared", "in_parts", "partners", "shared"]


class Shared(NamedTuple):
    """Rows grouped by each factor's value."""

    order: Tensor
    """Rows (factor, batch), value after value."""
    key: Tensor
    """Which value each row has (factor, batch)."""
    start: Tensor
    """Where each value begins in the order (factor, value)."""
    number: Tensor
    """How many rows have each value (factor, value)."""


def shared(given: Checked, bins: int) -> Shared:
    """Rows by value of each factor; continuous factors in bins of equal width between their extremes."""
    keys = [
        _keys(column) if is_discrete else equal_width(column, bins).int()
        for column, is_discrete in zip(given.factors.T, given.discrete, strict=True)
    ]
    order = torch.stack([_stable_order(key) for key in keys])
    key = torch.stack([key.int() for key in keys])
    values = int(key.max()) + 1
    count = torch.stack([torch.bincount(column, minlength=values) for column in key])
    return Shared(order, key, count.cumsum(1) - count, count)


def partners(table: Shared, factor: Tensor, row: Tensor, draws: Tensor) -> Tensor:
    """Rows (vote, draw) that share a factor's value with a row, uniformly and with replacement.

    Args:
        table: rows by value.
        factor: (vote, 1).
        row: (vote, 1) or (vote, draw).
        draws: uniform numbers in [0, 1), float64 (vote, draw).
    """
    key = table.key[factor, row].long()
    place = table.start[factor, key] + (draws * table.number[factor, key]).long()
    return table.order[factor, place]


def in_parts(votes: int, numbers: int, device: torch.device) -> Iterator[slice]:
    """Slices of votes, each so short that votes of so many numbers fit what a step may hold."""
    size = max(1, NUMBERS_AT_ONCE.get(device.type, 2**24) // 8 // max(1, numbers))
    return (slice(low, min(low + size, votes)) for low in range(0, votes, size))


def _keys(column: Tensor) -> Tensor:
    """Numbers from 0 that are equal exactly where values are; 16 bits where that is enough."""
    # Differences of 8-bit integers do not fit 8 bits.
    column = column.long() if column.dtype in (torch.int8, torch.uint8, torch.int16) else column
    low, high = column.aminmax()
    whole = not column.is_floating_point() or bool((column == column.round()).all())
    if whole and int(high) - int(low) < 2**15:
        return (column - low).to(torch.int16)
    return torch.unique(column, return_inverse=True)[1].int()


def _stable_order(keys: Tensor) -> Tensor:
    if keys.device.type == "cpu":
        # NumPy sorts 16-bit integers by counting, an order of magnitude faster.
        return torch.from_numpy(np.argsort(keys.numpy(), kind="stable"))
    return torch.argsort(keys, stable=True)
