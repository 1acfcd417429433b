"""Votes on which factor is shared: drawn by index, and the share of right ones with its interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseam.metrics._inputs import NUMBERS_AT_ONCE, Checked, equal_width
from unseam.metrics._splits import leave_out_means, varying_factors
from unseam.metrics.intervals import GROUPS, Interval, interval_around, jackknife

__all__ = [
    "Votes",
    "draw_votes",
    "group_masks",
    "vote_slices",
    "partners",
    "accuracy_interval",
    "rows_by_value",
]


class Votes(NamedTuple):
    """Rows that share the value of a factor."""

    factor: Tensor
    """Which one (vote,)."""
    first: Tensor
    """Rows (vote, 1) or (vote, batch), drawn uniformly."""
    second: Tensor
    """Rows (vote, batch) that share the first ones' value, drawn uniformly and with replacement."""


def draw_votes(
    given: Checked, count: int, first: int, batch: int, bins: int, generator: torch.Generator
) -> Votes:
    """So many votes of a batch each, with one first row per vote or one for each of the batch.

    Factors that do not vary are not drawn, unless none does; continuous ones are cut into bins of equal width.
    """
    device, source = given.codes.device, generator.device
    choice = torch.tensor(varying_factors(given), device=device)
    factor = torch.randint(len(choice), (count, 1), generator=generator, device=source).to(device)
    row = torch.randint(given.codes.shape[1], (count, first), generator=generator, device=source).to(device)
    draws = torch.rand((count, batch), generator=generator, dtype=torch.float64, device=source).to(device)
    second = partners(rows_by_value(given, bins), choice[factor], row, draws)
    return Votes(choice[factor[:, 0]], row, second)


def group_masks(group: Tensor, rows: Tensor) -> Tensor:
    """Whether rows (vote, row) are in each group (vote, group, row) of all rows (batch,)."""
    number = torch.arange(min(GROUPS, len(group)), device=group.device)
    return group[rows][:, None] == number[:, None]


def accuracy_interval(right: Tensor, change: Tensor, group: Tensor) -> tuple[Tensor, Interval]:
    """Share of right votes (member,), with an interval that covers the draw of votes and that of points.

    Args:
        right: whether each vote is right (member, vote).
        change: how right votes, these or others, become without each group of points (member, vote, group): −1, 0, 1.
        group: group of each vote (vote,).
    """
    shares = leave_out_means(right, group)
    of_votes = jackknife(shares[0], shares[1:]).error
    return shares[0], interval_around(
        shares[0], torch.hypot(of_votes, _points_error(change)), change.shape[-1]
    )


def _points_error(change: Tensor) -> Tensor:
    """Standard error (member,) by the points, from the change (member, vote, group) of each vote without a group.

    A jackknife of the mean change. Batches that lose rows change votes at random too, which is no matter of the points
    but of the votes, and the votes' own error has it: what it adds to the squares is taken off.
    """
    _, votes, count = change.shape
    mean = change.mean(1)
    between = (mean - mean.mean(-1, keepdim=True)).square().sum(-1)
    random = change.var(1, correction=0).sum(-1) / max(votes - 1, 1) * (count - 1) / count
    return ((between - random).clamp(min=0) * (count - 1) / count).sqrt()


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


def rows_by_value(given: Checked, bins: int) -> Shared:
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


def vote_slices(votes: int, numbers: int, device: torch.device) -> Iterator[slice]:
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
