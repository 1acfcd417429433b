"""Separated attribute predictability: how much better a factor's best code predicts it than its second best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.metrics import _svm
from unseam.metrics._inputs import Checked, Table, at_least_one, checked, chosen, default_generator, unstacked
from unseam.metrics._members import per_chunk
from unseam.metrics._splits import Halves, fewer, gap, halves, over_varying, share_without
from unseam.metrics.intervals import GROUPS, Interval, jackknife

__all__ = ["Sap", "SapSettings", "sap"]

# Of a code or factor whose variance is below this the squared correlation counts as 0, as in the study.
_NO_VARIANCE = 1e-12


@dataclass(frozen=True)
class SapSettings:
    """Parameters of :func:`sap`."""

    train: int = 10_000
    """Points that the classifiers are fitted to, and that the correlations are taken over."""
    test: int = 5_000
    """Points that the classifiers are scored on."""
    penalty: float = 0.01
    """Cost C of a margin violation."""

    def __post_init__(self) -> None:
        """Settings that make no sense are refused where they are made."""
        at_least_one(train=self.train, test=self.test)
        if self.penalty <= 0:
            raise ValueError(f"penalty must be positive, got {self.penalty}")


SAP_PRESETS = {"dlib": SapSettings(), "fast": SapSettings(train=2_000, test=1_000)}
"""``dlib``: the numbers of points of the study of 12 600 models (Locatello et al. 2019); ``fast``: a fifth."""


class Sap(NamedTuple):
    """Separated attribute predictability, and what it is made of."""

    score: Tensor
    """Mean gap over the factors that vary, () or (member,), in [0, 1]."""
    interval: Interval
    """Of the score."""
    predictability: Tensor
    """Accuracy or squared correlation (..., latent, factor)."""
    gaps: Tensor
    """Best code's predictability less the second best's (..., factor)."""
    settings: SapSettings
    """As used: with as many points as there were."""


def sap(
    codes: Tensor | NDArray[Any],
    factors: Table,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Tensor | NDArray[Any] | None = None,
    preset: str | SapSettings = "dlib",
    generator: torch.Generator | None = None,
) -> Sap:
    r"""How much better the best code predicts each factor than the second best (Kumar et al. 2018).

    .. math:: \frac{1}{K} \sum_k \left( S_{j_1(k), k} - S_{j_2(k), k} \right)

    with :math:`j_1, j_2` the codes of largest :math:`S_{jk}`: for a discrete factor the held-out accuracy of a
    linear support vector machine on code j alone (one-vs-rest, balanced classes, C = 0.01), for a continuous
    factor the squared correlation on the training points. The machines are those of scikit-learn's
    ``LinearSVC``, whose optimum is found exactly here, where ``LinearSVC`` stops within its tolerance.

    Unchanged by order and sign of codes. Not by their scale: the penalty sees it, above all for small codes. Nor by a
    shift: ``LinearSVC`` penalises the intercept as it does the weight, so a code far from 0 in units of its spread
    (10 000 times, say) cannot be cut at all and predicts one class. Centre such codes first; posterior means are
    centred nearly enough.

    A constant code predicts one class always, of three or more the most frequent, and has squared correlation 0.
    Constant factors are left out of the mean, which is 0 if all are. A class that no training point has is never
    predicted. With one code the second best counts as 0.

    Args:
        codes: (batch, latent), or (member, batch, latent).
        factors: (batch, factor).
        discrete: which factors are discrete; by default those of an integer type.
        variance: posterior variance, not used.
        preset: ``"dlib"``, ``"fast"`` or settings.
        generator: draws the points; by default one with seed 0.

    Returns:
        The score and its parts; the interval leaves out groups of the points scored on, without refitting.

    >>> factors = torch.cartesian_prod(torch.arange(2), torch.arange(2)).repeat(100, 1)
    >>> sap(factors.double(), factors).predictability.round(decimals=1)
    tensor([[1.0000, 0.5000],
            [0.5000, 1.0000]], dtype=torch.float64)
    """
    given = checked(codes, factors, discrete=discrete, variance=variance).levelled(small=False)
    settings = chosen(preset, SAP_PRESETS)
    train, test = fewer(settings.train, settings.test, given.codes.shape[1])
    split = halves(train, test, given, default_generator(generator))
    scores = _predictabilities(given, split, settings.penalty)
    gaps = gap(scores.mT)
    means = over_varying(gaps, given)
    found = Sap(
        means[0],
        jackknife(means[0], means[1:]),
        scores[0],
        gaps[0],
        replace(settings, train=train, test=test),
    )
    return unstacked(found, given.stacked)


def _predictabilities(given: Checked, split: Halves, penalty: float) -> Tensor:
    """Accuracy or squared correlation (1 + group, member, latent, factor), with all points, then without each group."""
    chosen = [factor for factor, is_discrete in enumerate(given.discrete) if is_discrete]
    accuracies = iter(_accuracies(given, chosen, split, penalty).unbind(-1) if chosen else ())
    columns = [
        next(accuracies) if is_discrete else _squared_correlation(given, factor, split)
        for factor, is_discrete in enumerate(given.discrete)
    ]
    # Few points make fewer groups, and there may be fewer to test on than to train on.
    variants = min(len(column) for column in columns)
    return torch.stack([column[:variants] for column in columns], -1)


def _accuracies(given: Checked, chosen: Sequence[int], split: Halves, penalty: float) -> Tensor:
    """Held-out accuracy (1 + group, member, latent, factor) with all test points, then without each group."""
    columns = [given.factors[split.train, factor] for factor in chosen]
    found = [torch.unique(column, return_inverse=True) for column in columns]
    varied = [labels for values, labels in found if len(values) > 1]
    most = sum(len(values) for values, _ in found)

    def measure(codes: Tensor) -> Tensor:
        train, test = codes[:, split.train].double(), codes[:, split.test].double()
        lines = iter(_svm.fit(train, varied, penalty=penalty) if varied else ())
        shares = []
        for factor, (values, _) in zip(chosen, found, strict=True):
            guess = values[_svm.predict(next(lines), test)] if len(values) > 1 else values[:, None, None]
            right = (guess == given.factors[split.test, factor]).expand(len(codes), codes.shape[2], -1)
            shares.append(share_without(right, split.test_groups))
        return torch.stack(shares, -1)

    numbers = given.codes.shape[2] * (
        4 * len(split.train) * (1 + len(chosen)) + 6 * len(split.test) + most**2
    )
    return torch.cat(per_chunk(given.codes, numbers, measure), 1)


def _squared_correlation(given: Checked, factor: int, split: Halves) -> Tensor:
    """Squared correlation (1 + group, member, latent) of the training points, then without each group."""
    x = given.codes[:, split.train].double()
    y = given.factors[split.train, factor]
    x, y = x - x.mean(1, keepdim=True), y - y.mean()
    count = min(GROUPS, len(y))
    hot = torch.nn.functional.one_hot(split.train_groups, count).double()
    powers = torch.stack([torch.ones_like(x), x, x.square(), x * y[:, None]])
    parts = torch.einsum("smbl,bg->gsml", powers, hot)
    own = torch.einsum("sb,bg->gs", torch.stack([y, y.square()]), hot)[:, :, None, None]
    sums, sum_y = (torch.cat([part.sum(0, keepdim=True), part.sum(0) - part]) for part in (parts, own))
    number, total_x, total_xx, total_xy = sums.unbind(1)
    total_y, total_yy = sum_y.unbind(1)
    number = number.clamp(min=1)
    cross = total_xy - total_x * total_y / number
    spread_x, spread_y = total_xx - total_x**2 / number, total_yy - total_y**2 / number
    least = _NO_VARIANCE * number
    flat = (spread_x <= least) | (spread_y <= least)
    return torch.where(flat, 0.0, cross**2 / torch.where(flat, 1.0, spread_x * spread_y))
