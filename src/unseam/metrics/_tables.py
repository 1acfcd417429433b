"""Counts of joint events, of all points and without each group of them, in one pass over the data."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Grouping", "counted", "entropy", "grouping", "kept", "several", "xlogx"]


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


def kept(group: Tensor) -> Tensor:
    """Which points (1 + group, batch) there are: all, then those outside each group (batch,)."""
    left_out = torch.arange(-1, int(group.max()) + 1, device=group.device)
    return group != left_out[:, None]


def counted(index: Tensor, size: int, grouped: Grouping) -> Tensor:
    """Counts (row, 1 + group, size) of cells: of all points, then without each group.

    Args:
        index: ``group * size + cell`` of every event (row, ...), cells below ``size``.
        size: number of cells.
        grouped: the groups.
    """
    kept = max(grouped.groups, 1)
    flat = index.reshape(len(index), -1)
    one = torch.ones((), dtype=torch.int32, device=index.device)
    table = one.new_zeros(len(index), kept * size).scatter_add_(1, flat, one.expand(flat.shape))
    table = table.view(len(index), kept, size)
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


def several(counts: Tensor) -> Tensor:
    """Whether more than one cell of the last axis has points."""
    return (counts > 0).sum(-1) > 1
