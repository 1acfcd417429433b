"""Counts, covariances and ranks of all points and without each group of them, in one pass over the data."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Grouping",
    "correlation",
    "count_cells",
    "covariance",
    "entropy",
    "grouping",
    "leave_out_masks",
    "ranks",
    "has_several",
    "xlogx",
]


class Grouping(NamedTuple):
    """Points in the order of their groups, so that a group's table stays in the processor's caches."""

    order: Tensor
    """Points (batch,), group after group."""
    of: Tensor
    """Group (batch,) of each point in that order."""
    groups: int
    """Number of groups that are left out in turn, 0 where none are."""
    sizes: Tensor
    """Number of points (1 + group,): of all, then without each group; float64."""


def grouping(group: Tensor | None, batch: int, device: torch.device) -> Grouping:
    """Order and sizes of groups (batch,) numbered from 0 on; without any, all points are one that stays."""
    if group is None:
        index = torch.arange(batch, device=device)
        size = torch.full((1,), float(batch), dtype=torch.float64, device=device)
        return Grouping(index, torch.zeros_like(index), 0, size)
    given = torch.as_tensor(group)
    if given.shape != (batch,) or given.is_floating_point() or bool((given < 0).any()):
        raise ValueError(
            f"group must be a number from 0 on for each of {batch} points, "
            f"got {given.dtype} of shape {tuple(given.shape)}"
        )
    of, order = given.to(device).long().sort(stable=True)
    members = torch.bincount(of).double()
    sizes = torch.cat([members.sum()[None], members.sum() - members])
    return Grouping(order, of, len(members), sizes)


def leave_out_masks(group: Tensor) -> Tensor:
    """Which points (1 + group, batch) there are: all, then those outside each group (batch,)."""
    left_out = torch.arange(-1, int(group.max()) + 1, device=group.device)
    return group != left_out[:, None]


def count_cells(index: Tensor, size: int, grouped: Grouping) -> Tensor:
    """Counts (row, 1 + group, size) of cells: of all points, then without each group.

    Args:
        index: ``group * size + cell`` of every event (row, ...), cells below ``size``.
        size: number of cells.
        grouped: the groups.
    """
    tables = max(grouped.groups, 1)
    flat = index.reshape(len(index), -1)
    one = torch.ones((), dtype=torch.int32, device=index.device)
    table = one.new_zeros(len(index), tables * size).scatter_add_(1, flat, one.expand(flat.shape))
    table = table.view(len(index), tables, size)
    total = table.sum(1, keepdim=True, dtype=torch.int32)
    return total if grouped.groups == 0 else torch.cat([total, total - table], dim=1)


def xlogx(counts: Tensor, most: int) -> Tensor:
    """Count times its logarithm, looked up, for integer counts up to the most."""
    steps = torch.arange(most + 1, dtype=torch.float64, device=counts.device)
    return torch.xlogy(steps, steps).index_select(0, counts.reshape(-1)).view(counts.shape)


def entropy(sums: Tensor, sizes: Tensor, varies: Tensor) -> Tensor:
    """Entropy in nats from sums of count · log count, counts adding up to sizes that broadcast.

    Exactly 0 where nothing varies, which rounding would miss: log n − (n log n) / n is 1e-16 for some n.
    """
    total = sizes.clamp(min=1)
    return torch.where(varies, (total.log() - sums / total).clamp(min=0), 0.0)


def has_several(counts: Tensor) -> Tensor:
    """Whether more than one cell of the last axis has points."""
    return (counts > 0).sum(-1) > 1


def covariance(values: Tensor, grouped: Grouping) -> Tensor:
    """Population covariances (1 + group, member, column, column) of values (member, batch, column), float64.

    One pass: products are summed group by group, and what is left without a group is the total less its own.
    A column that is constant, or is so up to rounding without a group, has covariance 0 with all.
    """
    given = values.index_select(1, grouped.order).double()
    constant = given.amax(1, keepdim=True) == given.amin(1, keepdim=True)
    # About the mean of all, so that the differences of sums below cancel nothing.
    given = torch.where(constant, 0.0, given - given.mean(1, keepdim=True))
    counts = torch.bincount(grouped.of, minlength=max(grouped.groups, 1)).tolist()
    sums, products = [], []
    for part in given.split(counts, 1):
        sums.append(part.sum(1))
        products.append(part.mT @ part)
    total, square = _less_each(torch.stack(sums), grouped), _less_each(torch.stack(products), grouped)
    count = grouped.sizes.clamp(min=1)[:, None, None]
    mean = total / count
    found = square / count[..., None] - mean[..., :, None] * mean[..., None, :]
    spread = found.diagonal(dim1=-2, dim2=-1)
    varies = spread > spread[:1] * given.shape[1] * torch.finfo(found.dtype).eps
    return torch.where(varies[..., :, None] & varies[..., None, :], found, 0.0)


def correlation(given: Tensor) -> Tensor:
    """Correlations of covariances (..., column, column); 0 with a column that has no variance, itself too."""
    spread = given.diagonal(dim1=-2, dim2=-1).clamp(min=0)
    scale = torch.where(spread > 0, spread, 1.0).rsqrt()
    return (given * scale[..., :, None] * scale[..., None, :]).clamp(-1, 1)


def ranks(values: Tensor, keep: Tensor) -> Tensor:
    """Ranks (subset, ..., batch) of values (..., batch) among each subset (subset, batch); ties share the mean.

    Points outside a subset rank as they would inside it; sorted once for all subsets.
    """
    ordered, order = values.sort(-1)
    place = torch.arange(values.shape[-1], device=values.device).expand_as(order)
    rises = torch.ones_like(ordered, dtype=torch.bool)
    rises[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    first = torch.where(rises, place, 0).cummax(-1).values
    falls = rises.roll(-1, -1)
    falls[..., -1] = True
    last = torch.where(falls, place, values.shape[-1]).flip(-1).cummin(-1).values.flip(-1) + 1
    found = []
    for stays in keep:
        below = torch.nn.functional.pad(stays[order].long().cumsum(-1), (1, 0))
        rank = (below.gather(-1, first) + below.gather(-1, last) + 1).double() / 2
        found.append(torch.empty_like(rank).scatter_(-1, order, rank))
    return torch.stack(found)


def _less_each(parts: Tensor, grouped: Grouping) -> Tensor:
    """Total, then total less each part."""
    total = parts.sum(0, keepdim=True)
    return total if grouped.groups == 0 else torch.cat([total, total - parts])
