"""Disentanglement score of rolinek2019: how much better the best code predicts a factor than the second best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.metrics._inputs import Checked, Table, checked, chosen, default_generator, drawn, unstacked
from unseam.metrics._members import per_chunk
from unseam.metrics._neighbours import most_common, nearest
from unseam.metrics._splits import (
    Halves,
    gap,
    halves,
    over_varying,
    parted,
    share_without,
    unexplained_without,
)
from unseam.metrics.intervals import Interval, jackknife

__all__ = [
    "DisentanglementScore",
    "DisentanglementSettings",
    "disentanglement_score",
]


@dataclass(frozen=True)
class DisentanglementSettings:
    """Parameters of :func:`disentanglement_score`."""

    points: int | None = None
    """Points used, at random; ``None`` for all."""
    train_share: float = 0.8
    """Share of them that is fitted to; the rest is scored on."""
    neighbours: int = 5
    """Neighbours k that a prediction is made from."""
    form: Literal["normalised", "printed"] = "normalised"
    """Which of the two scales of sensitivity."""

    def __post_init__(self) -> None:
        """Settings that make no sense are refused where they are made."""
        if self.points is not None and self.points < 2:
            raise ValueError(f"points must be at least 2, got {self.points}")
        if not 0 < self.train_share < 1:
            raise ValueError(f"train_share must lie between 0 and 1, got {self.train_share}")
        if self.neighbours < 1:
            raise ValueError(f"neighbours must be at least 1, got {self.neighbours}")
        if self.form not in ("normalised", "printed"):
            raise ValueError(f"form must be normalised or printed, got {self.form!r}")


DISENTANGLEMENT_PRESETS = {
    "dlib": DisentanglementSettings(),
    "fast": DisentanglementSettings(points=5_000),
    "printed": DisentanglementSettings(form="printed"),
}
"""``dlib``: all points given (the study does not have this metric); ``fast``: 5 000; ``printed``: as in S70, S71."""


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


def disentanglement_score(
    codes: Tensor | NDArray[Any],
    factors: Table,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Tensor | NDArray[Any] | None = None,
    preset: str | DisentanglementSettings = "dlib",
    generator: torch.Generator | None = None,
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

    Args:
        codes: (batch, latent), or (member, batch, latent).
        factors: (batch, factor).
        discrete: which factors are classified, the others are regressed; by default those of an integer type.
        variance: posterior variance, not used.
        preset: ``"dlib"``, ``"fast"``, ``"printed"`` or settings.
        generator: draws the points and their split; by default one with seed 0.

    Returns:
        The score and its parts; the interval leaves out groups of the held-out points, without refitting.

    >>> factors = torch.arange(240).view(240, 1) % torch.tensor([2, 3])
    >>> disentanglement_score(factors.double(), factors).score
    tensor(1., dtype=torch.float64)
    >>> disentanglement_score(factors.double(), factors, preset="printed").gaps
    tensor([1.0000, 1.7368], dtype=torch.float64)
    """
    given = checked(codes, factors, discrete=discrete, variance=variance).levelled()
    settings = chosen(preset, DISENTANGLEMENT_PRESETS)
    source = default_generator(generator)
    given = drawn(given, settings.points, source)
    batch = given.codes.shape[1]
    train, test = parted(batch, settings.train_share)
    used = replace(settings, points=batch, neighbours=min(settings.neighbours, train))
    split = halves(train, test, given, source)
    numbers = given.codes.shape[2] * (4 * train + test * used.neighbours * (4 + used.neighbours))
    parts = per_chunk(
        given.codes, numbers, lambda part: _sensitivities(given._replace(codes=part), split, used)
    )
    scores = torch.cat(parts, 1)
    gaps = gap(scores.mT)
    means = over_varying(gaps, given)
    found = DisentanglementScore(
        means[0],
        jackknife(means[0], means[1:]),
        scores[0],
        gaps[0],
        used,
    )
    return unstacked(found, given.stacked)


def _sensitivities(given: Checked, split: Halves, settings: DisentanglementSettings) -> Tensor:
    """Sensitivity (1 + group, member, latent, factor) with all held-out points, then without each group."""
    train, test = given.codes[:, split.train].mT, given.codes[:, split.test].mT
    near = nearest(train, test, settings.neighbours)
    columns = []
    for column, is_discrete in zip(given.factors.T, given.discrete, strict=True):
        if is_discrete:
            column = torch.unique(column, return_inverse=True)[1]
            found = most_common(column[split.train][near])
            columns.append(_classified(found, column[split.test], split.test_groups, settings.form))
        else:
            found = column[split.train][near].mean(-1)
            columns.append(_regressed(found, column[split.test], split.test_groups, settings.form))
    return torch.stack(columns, -1)


def _classified(found: Tensor, truth: Tensor, group: Tensor, form: str) -> Tensor:
    accuracy = share_without(found == truth, group)
    hot = torch.nn.functional.one_hot(truth).T
    constant = share_without(hot, group).amax(1)[:, None, None]
    if form == "printed":
        return accuracy / constant
    perfect = constant == 1
    return torch.where(perfect, 0.0, (accuracy - constant) / torch.where(perfect, 1.0, 1 - constant)).clamp(
        min=0
    )


def _regressed(found: Tensor, truth: Tensor, group: Tensor, form: str) -> Tensor:
    score = 1 - unexplained_without(found, truth, group).sqrt()
    return score if form == "printed" else score.clamp(min=0)
