"""Points that are drawn, those to train and to test on, and scores without a group of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import Checked, draw_distinct, draw_points
from unseam.metrics.intervals import GROUPS, groups

__all__ = [
    "Halves",
    "check_points",
    "split_sizes",
    "gap",
    "halves",
    "mean_over_varying",
    "split_by_share",
    "sample_points",
    "leave_out_means",
    "leave_out_unexplained",
    "varying_factors",
]


class Halves(NamedTuple):
    """Points to fit on and points to score on, without one in common."""

    train: Tensor
    """Index (train,) of points."""
    test: Tensor
    """Index (test,) of points."""
    train_groups: Tensor
    """Group (train,) of every training point."""
    test_groups: Tensor
    """Group (test,) of every test point."""


def sample_points(given: Checked, points: int | None, source: torch.Generator) -> tuple[Checked, Tensor]:
    """At most so many points at random, and the group (batch,) of each."""
    given = draw_points(given, points, source)
    batch = given.codes.shape[1]
    check_points(batch)
    return given, groups(batch, source).to(given.codes.device)


def check_points(batch: int, purpose: str = "for a score") -> None:
    """Refuses a single point, over which nothing varies."""
    if batch < 2:
        raise ValueError(f"codes must have at least 2 points {purpose}, got {batch}")


def split_sizes(train: int, test: int, batch: int) -> tuple[int, int]:
    """So many points to train and to test on, or all there are in the same proportion."""
    if batch >= train + test:
        return train, test
    return split_by_share(batch, train / (train + test))


def split_by_share(batch: int, share: float) -> tuple[int, int]:
    """All points parted into a share to train and the rest to test on, at least one each."""
    check_points(batch, "to train and to test on")
    train = min(max(1, round(batch * share)), batch - 1)
    return train, batch - train


def halves(train: int, test: int, given: Checked, source: torch.Generator) -> Halves:
    """So many points to train and to test on, drawn without replacement, the same for all members."""
    order = draw_distinct(given.codes.shape[1], train + test, source)
    parts = (order[:train], order[train:], groups(train, source), groups(test, source))
    return Halves(*(part.to(given.codes.device) for part in parts))


def varying_factors(given: Checked) -> list[int]:
    """Which factors have more than one value; all where none has, for a score must be over something."""
    low, high = given.factors.aminmax(dim=0)
    found = (low < high).nonzero()[:, 0].tolist()
    return found or list(range(given.factors.shape[1]))


def mean_over_varying(scores: Tensor, given: Checked) -> Tensor:
    """Mean of scores (..., factor) over the factors that vary."""
    return scores[..., varying_factors(given)].mean(-1)


def gap(scores: Tensor) -> Tensor:
    """Best less second best over the last dimension, which counts as 0 where there is only one."""
    best = torch.nn.functional.pad(scores, (0, max(0, 2 - scores.shape[-1]))).topk(2, -1).values
    return best[..., 0] - best[..., 1]


def leave_out_means(right: Tensor, group: Tensor) -> Tensor:
    """Share of right answers with all points, then without each group of them.

    Args:
        right: (..., point).
        group: (point,).

    Returns:
        (1 + group, ...), float64. Where one group is all there is, the share without it counts as the whole's.
    """
    count = min(GROUPS, len(group))
    hot = torch.nn.functional.one_hot(group, count).double()
    parts, numbers = right.double() @ hot, hot.sum(0)
    total, number = parts.sum(-1, keepdim=True), numbers.sum()
    left = (total - parts) / (number - numbers) if count > 1 else total / number
    return torch.cat([total / number, left], -1).movedim(-1, 0)


def leave_out_unexplained(guess: Tensor, truth: Tensor, group: Tensor) -> Tensor:
    """Mean squared error over variance with all points, then without each group; 1 where nothing varies.

    Args:
        guess: (..., point).
        truth: (point,).
        group: (point,).

    Returns:
        (1 + group, ...), float64.
    """
    moved = truth - truth.mean()
    error = leave_out_means((guess - truth).square(), group).clamp(min=0)
    spread = leave_out_means(moved.square(), group) - leave_out_means(moved, group).square()
    spread = spread.view(-1, *[1] * (error.ndim - 1))
    flat = spread <= 1e-12 * spread[:1]
    return torch.where(flat, 1.0, error / torch.where(flat, 1.0, spread))
