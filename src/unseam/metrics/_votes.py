"""Votes on which factor is shared: drawn by index, and the share of right ones with its interval."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import Checked
from unseam.metrics._sharing import partners, shared
from unseam.metrics._splits import share_without, varying
from unseam.metrics.intervals import GROUPS, Interval, around, jackknife

__all__ = ["Votes", "drawn_votes", "in_groups", "share_of_right"]


class Votes(NamedTuple):
    """Rows that share the value of a factor."""

    factor: Tensor
    """Which one (vote,)."""
    first: Tensor
    """Rows (vote, 1) or (vote, batch), drawn uniformly."""
    second: Tensor
    """Rows (vote, batch) that share the first ones' value, drawn uniformly and with replacement."""


def drawn_votes(
    given: Checked, count: int, first: int, batch: int, bins: int, generator: torch.Generator
) -> Votes:
    """So many votes of a batch each, with one first row a vote or one for each of the batch.

    Factors that do not vary are not drawn, unless none does; continuous ones are cut into bins of equal width.
    """
    device, source = given.codes.device, generator.device
    choice = torch.tensor(varying(given), device=device)
    factor = torch.randint(len(choice), (count, 1), generator=generator, device=source).to(device)
    row = torch.randint(given.codes.shape[1], (count, first), generator=generator, device=source).to(device)
    draws = torch.rand((count, batch), generator=generator, dtype=torch.float64, device=source).to(device)
    second = partners(shared(given, bins), choice[factor], row, draws)
    return Votes(choice[factor[:, 0]], row, second)


def in_groups(group: Tensor, rows: Tensor) -> Tensor:
    """Whether rows (vote, row) are in each group (vote, group, row) of all rows (batch,)."""
    number = torch.arange(min(GROUPS, len(group)), device=group.device)
    return group[rows][:, None] == number[:, None]


def share_of_right(right: Tensor, change: Tensor, group: Tensor) -> tuple[Tensor, Interval]:
    """Share of right votes (member,), with an interval that covers the draw of votes and that of points.

    Args:
        right: whether each vote is right (member, vote).
        change: how right votes, these or others, become without each group of points (member, vote, group): −1, 0, 1.
        group: group of each vote (vote,).
    """
    shares = share_without(right, group)
    of_votes = jackknife(shares[0], shares[1:]).error
    return shares[0], around(shares[0], torch.hypot(of_votes, _points_error(change)), change.shape[-1])


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
