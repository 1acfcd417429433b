"""Explicitness: how well a logistic regression on all codes separates each value of a factor from the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from unseam.metrics._inputs import AbstractFitted, Checked, check_inputs, classes, map_members, metric
from unseam.metrics._logistic import one_vs_rest
from unseam.metrics._splits import Halves, halves, mean_over_varying, split_sizes
from unseam.metrics.intervals import GROUPS, Interval, with_interval

__all__ = ["Explicitness", "ExplicitnessSettings", "explicitness"]


@dataclass(frozen=True)
class ExplicitnessSettings(AbstractFitted):
    """Parameters of :func:`explicitness`."""

    penalty: Annotated[float, {"above": 0}] = 1.0
    """Inverse strength C of the L2 penalty on the weights."""
    bins: int = 20
    """Bins of equal width of a continuous factor."""


class Explicitness(NamedTuple):
    """Explicitness, and what it is made of."""

    score: Tensor
    """Mean area over the factors that vary, () or (member,): 1 for exact, ½ for chance."""
    interval: Interval
    """Of the score."""
    areas: Tensor
    """Mean area under the curve over the values of each factor (..., factor)."""
    settings: ExplicitnessSettings
    """As used: with as many points as there were."""


@metric(ExplicitnessSettings, check_inputs)
def explicitness(given: Checked, settings: ExplicitnessSettings, source: torch.Generator) -> Explicitness:
    r"""Area under the ROC curve of logistic regressions one-vs-rest (Ridgeway & Mozer 2018, §3).

    .. math:: \frac{1}{K} \sum_k \frac{1}{|V_k|} \sum_{v \in V_k}
        P\left( w_v^\top z_+ > w_v^\top z_- \right), \qquad v_k(z_+) = v \neq v_k(z_-)

    with one regression for each value v of factor k, on all codes, with an L2 penalty (C = 1) and a free intercept:
    scikit-learn's ``LogisticRegression`` on "is v" or "is not". The area is taken over held-out points, ties
    count half. The study takes it from probabilities that are first normalised over the values at each point, which
    changes the order of points; Ridgeway and Mozer do not.

    Continuous factors are cut into bins of equal width. Unchanged by order, sign and shift of codes, and by scale
    up to the penalty. A value that all or none of the training or held-out points have is left out of the mean; a
    factor without any other has area ½, and so have constant codes. Constant factors are left out, unless all are.

    Returns:
        The score and its parts; the interval leaves out groups of the held-out points, without refitting.

    >>> factors = torch.arange(240).view(240, 1) % torch.tensor([2, 3])
    >>> explicitness(factors.double(), factors).areas.round(decimals=1)
    tensor([1.0000, 0.8000], dtype=torch.float64)
    """
    # Large codes each on its own, small ones together: to the penalty their proportions matter.
    given = given.rescaled(small=False).rescaled(common=True)
    train, test = split_sizes(settings.train, settings.test, given.codes.shape[1])
    labels = classes(given, settings.bins)
    split = halves(train, test, given, source)
    areas = torch.stack([_areas(given.codes, column, split, settings.penalty) for column in labels.T], -1)
    means = mean_over_varying(areas, given)
    settings = replace(settings, train=train, test=test)
    return Explicitness(*with_interval(means), areas[0], settings)


def _areas(codes: Tensor, labels: Tensor, split: Halves, penalty: float) -> Tensor:
    """Mean area over values (1 + group, member) with all held-out points, then without each group."""
    values, inside = torch.unique(labels[split.train], return_inverse=True)
    count = len(values) if len(values) > 1 else 0
    variants = min(GROUPS, len(split.test)) + 1
    positive = (labels[split.test] == values[:count, None]).contiguous()

    def measure(part: Tensor) -> Tensor:
        train, test = part[:, split.train].double(), part[:, split.test].double()
        middle = train.mean(1, keepdim=True)
        weights = one_vs_rest(train - middle, one_hot(inside, count).double(), penalty)
        scores = weights[..., :-1] @ (test - middle).mT
        areas, valid = _area_without(scores, positive, split.test_groups)
        return torch.where(valid.any(-1), (areas * valid).sum(-1) / valid.sum(-1).clamp(min=1), 0.5)

    if count == 0:
        return codes.new_full((variants, len(codes)), 0.5, dtype=torch.float64)
    latent = codes.shape[2]
    numbers = len(split.train) * (6 * count + latent * latent) + 20 * len(split.test) * count
    return torch.cat(map_members(codes, numbers, measure), 1)


def _area_without(scores: Tensor, positive: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Areas (1 + group, member, value), and whether there are points on both sides.

    Without a group the pairs with one or both points in it are missing: those of its positives with all negatives,
    of its negatives with all positives, less those counted twice.

    Args:
        scores: (member, value, test).
        positive: (value, test).
        group: (test,).
    """
    positive = positive.expand_as(scores)
    hot = one_hot(group, min(GROUPS, len(group))).double()
    won = torch.where(
        positive, _count_exceeded(scores, ~positive, None), _count_exceeded(-scores, positive, None)
    )
    within = torch.where(positive, _count_exceeded(scores, ~positive, group), 0.0)
    total = torch.where(positive, won, 0.0).sum(-1, keepdim=True)
    pairs = torch.cat([total, total - (won - within) @ hot], -1)
    counts = torch.stack([positive.double(), (~positive).double()]) @ hot
    numbers = torch.cat([counts.sum(-1, keepdim=True), counts.sum(-1, keepdim=True) - counts], -1).prod(0)
    valid = numbers > 0
    areas = torch.where(valid, pairs / numbers.clamp(min=1), 0.5)
    return areas.movedim(-1, 0), valid.movedim(-1, 0)


def _count_exceeded(scores: Tensor, rivals: Tensor, group: Tensor | None) -> Tensor:
    """How many rivals each point exceeds (..., point), ties half, of its own group only where groups are given."""
    order = scores.argsort(dim=-1, stable=True)
    if group is not None:
        order = order.gather(-1, group[order].argsort(dim=-1, stable=True))
    ordered = scores.gather(-1, order)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[..., 1:] = ordered.diff(dim=-1) != 0
    block = torch.zeros_like(first)
    block[..., 0] = True
    if group is not None:
        block[..., 1:] = group[order].diff(dim=-1) != 0
        first |= block
    last = torch.nn.functional.pad(first[..., 1:], (0, 1), value=True)
    inside = rivals.gather(-1, order).double()
    through = inside.cumsum(-1)
    before = through - inside
    least = torch.where(first, before, 0.0).cummax(-1).values
    most = torch.where(last, through, torch.inf).flip(-1).cummin(-1).values.flip(-1)
    found = (least + most) / 2 - torch.where(block, before, 0.0).cummax(-1).values
    return torch.empty_like(found).scatter_(-1, order, found)
