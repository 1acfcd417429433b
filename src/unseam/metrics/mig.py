"""Mutual information gaps: per factor (MIG, binned or by neighbours) and per code (MIG-sup)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import AbstractDrawn, Checked, check_inputs, metric, ratio
from unseam.metrics._splits import gap, sample_points
from unseam.metrics.intervals import Interval, with_interval
from unseam.metrics.mutual_information import binned_estimates, factor_entropies, neighbour_estimates

__all__ = ["Mig", "MigSettings", "MigSup", "MigSupSettings", "mig", "mig_sup"]


@dataclass(frozen=True)
class MigSettings(AbstractDrawn):
    """How a mutual information gap is estimated."""

    bins: int = 20
    """Bins of a code, and of a continuous factor that is binned."""
    information: Literal["binned", "knn"] = "binned"
    """``"binned"``, or ``"knn"`` for nearest neighbours."""
    neighbours: int = 3
    """Neighbours of the k-NN estimate."""


@dataclass(frozen=True)
class MigSupSettings(AbstractDrawn):
    """How a gap per code is estimated."""

    bins: int = 20
    """Bins of a code and of a continuous factor."""
    normalisation: Literal["factor", "code"] = "factor"
    """Entropy that information is divided by: the ``"factor"``'s, or the binned ``"code"``'s."""
    active_variance: Annotated[float, {}] = 0.01
    """A code is active where its variance over the data is larger."""


class Mig(NamedTuple):
    """A mutual information gap and what it is made of."""

    score: Tensor
    """Mean gap over the factors that vary, () or (member,)."""
    interval: Interval
    """95 % interval of the score."""
    gaps: Tensor
    """Gap ([member,] factor) of each factor; 0 for a constant one."""
    information: Tensor
    """Mutual information ([member,] latent, factor) in nats."""
    normalised: Tensor
    """Information ([member,] latent, factor) on the scale whose gaps are taken."""
    estimators: tuple[str, ...]
    """For each factor how its information was estimated: binned, knn-discrete or knn-continuous."""
    settings: MigSettings
    """The parameters."""


class MigSup(NamedTuple):
    """A mutual information gap per code and what it is made of."""

    score: Tensor
    """Mean gap over active codes, () or (member,)."""
    interval: Interval
    """95 % interval of the score."""
    gaps: Tensor
    """Gap ([member,] latent) of each code."""
    active: Tensor
    """Which codes are active ([member,] latent)."""
    information: Tensor
    """Mutual information ([member,] latent, factor) in nats."""
    normalised: Tensor
    """Information ([member,] latent, factor) divided by the entropy of the settings."""
    settings: MigSupSettings
    """The parameters."""


@metric(MigSettings, check_inputs)
def mig(given: Checked, settings: MigSettings, source: torch.Generator) -> Mig:
    r"""Mutual information gap: how much more information the best code has about a factor than the second best.

    .. math:: \text{MIG} = \frac{1}{K} \sum_k \frac{1}{H(v_k)}
              \bigl( I(z_{j_k}; v_k) - \max_{j \ne j_k} I(z_j; v_k) \bigr), \qquad
              j_k = \arg\max_j I(z_j; v_k)

    of Chen et al. 2018 Eq. 6, in the binned form of Locatello et al. 2019 (preset ``"dlib"``: 10 000 points,
    20 bins, no code left out). The original's form with q(z|x) sampled is
    :func:`~unseam.metrics.mig_entropy`. A widely used implementation reshapes a table that it should
    transpose, so that codes and factors mix: its numbers differ from these.

    With ``information="knn"`` nothing is binned. A discrete factor's information is still divided by H(v);
    a continuous one's, which has no entropy to be divided by, is put on the scale of a squared correlation,
    :math:`1 - e^{-2 I}` (Linfoot 1957), ρ² for Gaussian pairs. Binned, a continuous factor counts as its
    equal-width bins.

    A constant factor is left out of the mean (0 if all are); a constant code has no information; a single code's
    gap is its whole information. Unchanged by order, sign and scale of codes (bins are computed again from the
    other end under a change of sign: values that lie on an edge change sides).

    Returns:
        The score in [0, 1], for binned codes with an upward bias of order bins · values / points.

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> mig(grid.double(), grid).score
    tensor(1., dtype=torch.float64)
    """
    given, group = sample_points(given.rescaled(), settings.points, source)
    information, normalised, varies = _normalise(given, settings, group)
    gaps = gap(normalised.mT) * varies[:, None]
    score = gaps.sum(-1) / varies.sum(-1, keepdim=True).clamp(min=1)
    settings = replace(settings, points=given.codes.shape[1])
    knn = ("knn-discrete" if flag else "knn-continuous" for flag in given.discrete)
    estimators = ("binned",) * len(given.discrete) if settings.information == "binned" else tuple(knn)
    return Mig(*with_interval(score), gaps[0], information[0], normalised[0], estimators, settings)


@metric(MigSupSettings, check_inputs)
def mig_sup(given: Checked, settings: MigSupSettings, source: torch.Generator) -> MigSup:
    r"""Gap per code: how much more information a code has about its best factor than about its second best.

    .. math:: \text{MIG-sup} = \frac{1}{|A|} \sum_{j \in A} \Bigl( \tilde I(z_j; v_{k_j}) -
              \max_{k \ne k_j} \tilde I(z_j; v_k) \Bigr), \qquad k_j = \arg\max_k \tilde I(z_j; v_k)

    of Li et al. 2020, which bhowal2024 reports with MIG: it penalises a code that mixes factors where MIG
    penalises a factor spread over codes. :math:`\tilde I` is binned information divided by H(v_k)
    (``normalisation="factor"``, the default) or by the binned code's entropy (``"code"``); published numbers
    use either. A are the active codes, those with Var[z_j] > 0.01 over the data.

    Without an active code the score is 0; a constant factor has no information; with a single factor the gap is
    the whole normalised information. Changes with the scale of codes only through A.

    Returns:
        The score in [0, 1].

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> mig_sup(grid.double(), grid).score
    tensor(1., dtype=torch.float64)
    """
    given, group = sample_points(given.rescaled(small=False), settings.points, source)
    found = binned_estimates(given, settings.bins, group)
    entropy = (
        found.factor_entropy[:, None, None]
        if settings.normalisation == "factor"
        else found.code_entropy[..., None]
    )
    normalised = ratio(found.information, entropy)
    active = given.codes.double().var(1, correction=0) > settings.active_variance
    gaps = gap(normalised)
    score = (gaps * active).sum(-1) / active.sum(-1).clamp(min=1)
    settings = replace(settings, points=given.codes.shape[1])
    return MigSup(*with_interval(score), gaps[0], active, found.information[0], normalised[0], settings)


def _normalise(given: Checked, settings: MigSettings, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Information, the same normalised (1 + group, member, latent, factor), and which factors vary."""
    if settings.information == "binned":
        found = binned_estimates(given, settings.bins, group)
        entropy = found.factor_entropy
        return found.information, ratio(found.information, entropy[:, None, None]), entropy > 0
    information = neighbour_estimates(given, settings.neighbours, group)
    # A continuous factor's bins only show whether it varies; its scale needs none of them.
    entropy = factor_entropies(given, settings.bins, group)
    discrete = torch.tensor(given.discrete, device=information.device)
    squared = -torch.expm1(-2 * information)
    share = ratio(information, entropy[:, None, None]).clamp(max=1)
    return information, torch.where(discrete, share, squared), entropy > 0
