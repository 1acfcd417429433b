"""Disentanglement score of rolinek2019: how much better the best code predicts a factor than the second best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import (
    AbstractSettings,
    Checked,
    check_inputs,
    draw_points,
    map_members,
    metric,
    ratio,
)
from unseam.metrics._splits import (
    Halves,
    gap,
    halves,
    leave_out_means,
    leave_out_unexplained,
    mean_over_varying,
    split_by_share,
)
from unseam.metrics.intervals import Interval, with_interval

__all__ = ["DisentanglementScore", "DisentanglementSettings", "disentanglement_score"]


@dataclass(frozen=True)
class DisentanglementSettings(AbstractSettings):
    """Parameters of :func:`disentanglement_score`."""

    changes: ClassVar = {"fast": {"points": 5_000}, "printed": {"form": "printed"}}
    """``dlib`` takes all points given; ``printed`` is as in S70, S71."""
    points: Annotated[int | None, {"least": 2}] = None
    """Points used, at random; ``None`` for all."""
    train_share: Annotated[float, {"above": 0, "below": 1}] = 0.8
    """Share of them that is fitted to; the rest is scored on."""
    neighbours: int = 5
    """Neighbours k that a prediction is made from."""
    form: Literal["normalised", "printed"] = "normalised"
    """Which of the two scales of sensitivity."""


class DisentanglementScore(NamedTuple):
    """Disentanglement score, and what it is made of."""

    score: Tensor
    """Mean gap over the factors that vary, () or (member,)."""
    interval: Interval
    """Of the score."""
    sensitivity: Tensor
    """How well each code alone predicts each factor (..., latent, factor), in the form of the settings."""
    gaps: Tensor
    """Best code's sensitivity less the second best's (..., factor)."""
    settings: DisentanglementSettings
    """As used: with as many points and neighbours as there were."""


@metric(DisentanglementSettings, check_inputs)
def disentanglement_score(
    given: Checked, settings: DisentanglementSettings, source: torch.Generator
) -> DisentanglementScore:
    r"""How much better the best code predicts each factor than the second best (rolinek2019 Suppl. 8.1, S65–S71).

    .. math:: \frac{1}{N} \sum_i \left( S_{i, m(i)} - S_{i, s(i)} \right)

    with m(i), s(i) the codes of largest sensitivity :math:`S_{ij}`, measured by a k-nearest-neighbour regressor or
    classifier of factor i on code j alone, on held-out points. As printed (S70, S71):

    .. math:: S = \frac{\sqrt{\text{var}} - \sqrt{\text{mse}}}{\sqrt{\text{var}}} \quad \text{or} \quad
        S = \frac{\text{accuracy}}{\text{accuracy of the best constant}}

    for continuous and discrete factors. The second exceeds 1: three equally frequent shapes can give a gap of
    2. The default, ``form="normalised"``, has both in [0, 1], 0 for no better than the best constant, 1 for exact:

    .. math:: S = \max\left(0, 1 - \sqrt{\text{mse} / \text{var}}\right) \quad \text{or} \quad
        S = \max\left(0, \frac{\text{accuracy} - \text{constant}}{1 - \text{constant}}\right)

    The best constants, and var, are those of the held-out points. Unchanged by order, sign (up to ties) and scale
    of codes. Of training points equally near, the smaller code is taken, of equal codes the point drawn earlier;
    of classes equally frequent among the neighbours the smallest. A constant code predicts from the same k points
    always. Constant factors are left out of the mean, which is 0 if all are. With one code the second best counts as 0.

    Returns:
        The score and its parts; the interval leaves out groups of the held-out points, without refitting.

    >>> factors = torch.arange(240).view(240, 1) % torch.tensor([2, 3])
    >>> disentanglement_score(factors.double(), factors).score
    tensor(1., dtype=torch.float64)
    >>> disentanglement_score(factors.double(), factors, preset="printed").gaps
    tensor([1.0000, 1.7368], dtype=torch.float64)
    """
    given = draw_points(given.rescaled(), settings.points, source)
    batch = given.codes.shape[1]
    train, test = split_by_share(batch, settings.train_share)
    used = replace(settings, points=batch, neighbours=min(settings.neighbours, train))
    split = halves(train, test, given, source)
    numbers = given.codes.shape[2] * (4 * train + test * used.neighbours * (4 + used.neighbours))
    parts = map_members(
        given.codes, numbers, lambda part: _sensitivities(given._replace(codes=part), split, used)
    )
    scores = torch.cat(parts, 1)
    gaps = gap(scores.mT)
    means = mean_over_varying(gaps, given)
    return DisentanglementScore(*with_interval(means), scores[0], gaps[0], used)


def _sensitivities(given: Checked, split: Halves, settings: DisentanglementSettings) -> Tensor:
    """Sensitivity (1 + group, member, latent, factor) with all held-out points, then without each group."""
    train, test = given.codes[:, split.train].mT, given.codes[:, split.test].mT
    near = _nearest(train, test, settings.neighbours)
    columns = []
    for column, is_discrete in zip(given.factors.T, given.discrete, strict=True):
        if is_discrete:
            column = torch.unique(column, return_inverse=True)[1]
            found = _most_common(column[split.train][near])
            columns.append(_accuracy_gain(found, column[split.test], split.test_groups, settings.form))
        else:
            found = column[split.train][near].mean(-1)
            error = leave_out_unexplained(found, column[split.test], split.test_groups)
            columns.append(
                1 - error.sqrt() if settings.form == "printed" else (1 - error.sqrt()).clamp(min=0)
            )
    return torch.stack(columns, -1)


def _accuracy_gain(found: Tensor, truth: Tensor, group: Tensor, form: str) -> Tensor:
    accuracy = leave_out_means(found == truth, group)
    hot = torch.nn.functional.one_hot(truth).T
    constant = leave_out_means(hot, group).amax(1)[:, None, None]
    if form == "printed":
        return accuracy / constant
    return ratio(accuracy - constant, 1 - constant).clamp(min=0)


def _nearest(train: Tensor, test: Tensor, count: int) -> Tensor:
    """The training values nearest to each test value, for many lists of values at once.

    In sorted values the neighbours are a window, found by bisection: no distance matrix is built. Of values
    equally far away the smaller one is nearer, of equal values the earlier one.

    Args:
        train: (..., train).
        test: (..., test).
        count: number k of neighbours, at most as many as training values.

    Returns:
        Places (..., test, k) in the list of training values.
    """
    ordered, order = train.contiguous().sort(dim=-1, stable=True)
    place = torch.searchsorted(ordered, test.contiguous())
    last = train.shape[-1] - count
    low, high = (place - count).clamp(0, last), place.clamp(0, last)
    for _ in range(count.bit_length()):
        middle = (low + high) // 2
        below = test - ordered.gather(-1, middle)
        above = ordered.gather(-1, (middle + count).clamp(max=train.shape[-1] - 1)) - test
        right = (below > above) & (low < high)
        low, high = torch.where(right, middle + 1, low), torch.where(right, high, middle)
    window = low[..., None] + torch.arange(count, device=train.device)
    return order.gather(-1, window.flatten(-2)).unflatten(-1, (-1, count))


def _most_common(labels: Tensor) -> Tensor:
    """The most frequent of the labels (..., k), not negative, the smallest of those equally frequent."""
    ordered = labels.sort(-1).values
    alike = (ordered[..., :, None] == ordered[..., None, :]).sum(-1)
    # The first of the largest: labels are sorted.
    return ordered.gather(-1, alike.argmax(-1, keepdim=True))[..., 0]
