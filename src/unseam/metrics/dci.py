"""DCI: disentanglement, completeness and informativeness from how boosted trees use the codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from unseam.metrics._boosting import Boosted, boost_binned, boost_exact
from unseam.metrics._inputs import AbstractFitted, Checked, centre_distant, check_inputs, metric, ratio
from unseam.metrics._splits import (
    Halves,
    halves,
    leave_out_means,
    leave_out_unexplained,
    mean_over_varying,
    split_sizes,
    varying_factors,
)
from unseam.metrics.intervals import Interval, with_interval

__all__ = ["Dci", "DciSettings", "dci"]


@dataclass(frozen=True)
class DciSettings(AbstractFitted):
    """Parameters of :func:`dci`."""

    changes: ClassVar = {"fast": {"splits": "binned", "precision": "float32"}}
    """``dlib`` is scikit-learn's boosting with its defaults; ``fast`` searches splits in 128 bins per code."""
    splits: Literal["exact", "binned"] = "exact"
    """How splits are found: among all values (scikit-learn's boosting), or among bins first (ours)."""
    bins: Annotated[int, {"least": 2}] = 128
    """Bins of a code, of equal size, where splits are binned."""
    candidates: Annotated[int, {"least": 0}] = 32
    """Bins, over all codes, that are searched value by value for the split of a node; 0 for none."""
    precision: Literal["float32", "float64"] = "float64"
    """Of residuals where splits are binned. Codes are read in single precision by scikit-learn's trees, too."""
    rounds: int = 100
    """Trees per class."""
    depth: Annotated[int, {"most": 7}] = 3
    """Splits from root to leaf."""
    rate: Annotated[float, {"above": 0}] = 0.1
    """Learning rate."""


class Dci(NamedTuple):
    """Disentanglement, completeness and informativeness."""

    score: Tensor
    """Disentanglement, () or (member,), in [0, 1]: whether each code is used for one factor."""
    interval: Interval
    """Of the disentanglement."""
    completeness: Tensor
    """Completeness, () or (member,), in [0, 1]: whether each factor needs one code."""
    completeness_interval: Interval
    """Of the completeness."""
    informativeness: Tensor
    """Mean over the factors that vary of the held-out accuracy, or R² where continuous, () or (member,)."""
    informativeness_interval: Interval
    """Of the informativeness."""
    train_informativeness: Tensor
    """The same on the training points, () or (member,)."""
    importance: Tensor
    """R (..., latent, factor): share of each code in what the trees of a factor explain."""
    code_disentanglement: Tensor
    """Of each code (..., latent)."""
    factor_completeness: Tensor
    """Of each factor (..., factor)."""
    settings: DciSettings
    """As used: with as many points as there were."""


@metric(DciSettings, check_inputs)
def dci(given: Checked, settings: DciSettings, source: torch.Generator) -> Dci:
    r"""Disentanglement, completeness, informativeness by boosted trees (Eastwood & Williams 2018, §2).

    .. math:: D = \sum_c \rho_c \left( 1 - H_K(R_c) \right), \qquad C = \sum_k \rho'_k \left( 1 - H_L(R_k) \right)

    with R the importance of code c for factor k, its rows and columns normalised in the entropies, whose base is the
    number K of factors that vary or L of codes, and :math:`\rho, \rho'` the rows' and columns' shares of all
    importance. For each factor there is one gradient-boosted classifier, or regressor for a continuous factor; an
    importance is the summed decrease of squared error at the splits of a code, normalised for each factor.

    Boosting by scikit-learn takes minutes at 10 000 points and a hundred classes; factors are fitted in parallel on as
    many threads as there are processors. ``fast`` is the same algorithm on tensors, for all factors at once; it
    searches a split between bins of values first, then value by value in the bins where most could be gained. Bins
    alone (``candidates=0``) are not enough: trees of rare classes isolate single points, and noisy codes of 40 classes
    then give D lower by 0.08.

    Unchanged by order and monotone transformation of codes, up to splits that are equally good, among which one is
    drawn from a fixed seed, and to scikit-learn's limits: it sees codes in single precision and no differences below
    1e-7. Codes further from 0 than 64 times their range are centred before, in their own precision.

    A constant code has importance 0, and a constant factor none for any code; it is left out of K and of the
    informativeness, unless all are constant. Without any importance D = C = 0; with one factor D = 1, with one code
    C = 1. A class that no training point has is never predicted.

    Returns:
        The scores and their parts. The intervals of D and C leave out groups of training points when the decreases
        are summed, those of informativeness leave out groups of held-out points; neither grows new trees. The error
        of D and C so found is up to twice the spread over independent points: new trees would make up for some of it.

    >>> factors = torch.arange(240).view(240, 1) % torch.tensor([2, 3])
    >>> found = dci(factors.double(), factors, preset="fast")
    >>> round(found.score.item(), 3), round(found.completeness.item(), 3), found.informativeness.item()
    (1.0, 1.0, 1.0)
    """
    given = given.rescaled(small=settings.splits == "binned")
    train, test = split_sizes(settings.train, settings.test, given.codes.shape[1])
    split = halves(train, test, given, source)
    boosted = _boost(given, split, settings)
    importance = boosted.importance
    # A constant factor, which no code can be used for, must not raise the disentanglement of codes.
    by_code, by_factor = _purity(importance[..., varying_factors(given)]), _purity(importance.mT)
    score, whole = (
        ratio((purity * weight).sum(-1), weight.sum(-1))
        for purity, weight in ((by_code, importance.sum(-1)), (by_factor, importance.sum(-2)))
    )
    truth = given.factors[torch.cat([split.train, split.test])].double()
    held_out, fitted = (
        mean_over_varying(_accuracy(predicted, answer, given.discrete, group), given)
        for predicted, answer, group in (
            (boosted.predicted[:, train:], truth[train:], split.test_groups),
            (boosted.predicted[:, :train], truth[:train], split.train_groups),
        )
    )
    parts = (*with_interval(score), *with_interval(whole), *with_interval(held_out), fitted[0])
    settings = replace(settings, train=train, test=test)
    return Dci(*parts, importance[0], by_code[0], by_factor[0], settings)


def _boost(given: Checked, split: Halves, settings: DciSettings) -> Boosted:
    order = torch.cat([split.train, split.test])
    codes, targets = centre_distant(given.codes[:, order]), given.factors[order].double()
    options: dict[str, Any] = {"rounds": settings.rounds, "depth": settings.depth, "rate": settings.rate}
    if settings.splits == "exact":
        return boost_exact(codes, targets, given.discrete, split.train_groups, **options)
    bins = {"bins": settings.bins, "candidates": settings.candidates}
    codes = codes.to(getattr(torch, settings.precision))
    return boost_binned(codes, targets, given.discrete, split.train_groups, **bins, **options)


def _purity(importance: Tensor) -> Tensor:
    """1 − entropy of each row, in units of its largest; 0 for a row of zeros, 1 for rows of one number."""
    total = importance.sum(-1, keepdim=True)
    share = ratio(importance, total)
    entropy = -torch.xlogy(share, share).sum(-1)
    count = importance.shape[-1]
    purity = 1 - entropy / math.log(count) if count > 1 else torch.ones_like(entropy)
    return torch.where(total[..., 0] > 0, purity, 0.0)


def _accuracy(predicted: Tensor, truth: Tensor, discrete: Sequence[bool], group: Tensor) -> Tensor:
    """Accuracy or R² (1 + group, member, factor), with all points, then without each group."""
    found = []
    for factor, is_discrete in enumerate(discrete):
        guess, column = predicted[..., factor], truth[:, factor]
        found.append(
            leave_out_means(guess == column, group)
            if is_discrete
            else 1 - leave_out_unexplained(guess, column, group)
        )
    return torch.stack(found, -1)
