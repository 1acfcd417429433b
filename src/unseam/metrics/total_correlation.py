"""How dependent codes are on each other, without any factors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import (
    AbstractDrawn,
    Checked,
    check_codes,
    equal_width,
    metric,
    ratio,
    row_slices,
    scale_by_power,
)
from unseam.metrics._splits import sample_points
from unseam.metrics._tables import (
    Grouping,
    correlation,
    count_cells,
    covariance,
    entropy,
    grouping,
    has_several,
    xlogx,
)
from unseam.metrics.intervals import Interval, with_interval

__all__ = [
    "CodeDependence",
    "PairwiseInformation",
    "PairwiseInformationSettings",
    "TotalCorrelationSettings",
    "WassersteinCorrelation",
    "mean_pairwise_information",
    "total_correlation",
    "wasserstein_correlation",
]


@dataclass(frozen=True)
class TotalCorrelationSettings(AbstractDrawn):
    """How a dependence is estimated from the covariance."""


@dataclass(frozen=True)
class PairwiseInformationSettings(AbstractDrawn):
    """How the mutual information of codes with each other is estimated."""

    bins: int = 20
    """Bins of a code."""


class CodeDependence(NamedTuple):
    """How dependent codes are on each other."""

    score: Tensor
    """Total correlation in nats, () or (member,)."""
    interval: Interval
    """95 % interval of the score."""
    correlation: Tensor
    """Correlations ([member,] latent, latent) of the codes; those of a constant code are 0."""
    settings: TotalCorrelationSettings
    """The parameters."""


class WassersteinCorrelation(NamedTuple):
    """How far codes are from independent ones."""

    score: Tensor
    """Squared distance in the codes' units, () or (member,)."""
    interval: Interval
    """95 % interval of the score."""
    normalised: Tensor
    """Score divided by the codes' total variance, () or (member,)."""
    settings: TotalCorrelationSettings
    """The parameters."""


class PairwiseInformation(NamedTuple):
    """Mutual information of codes with each other."""

    score: Tensor
    """Mean over pairs of distinct codes in nats, () or (member,)."""
    interval: Interval
    """95 % interval of the score."""
    information: Tensor
    """Information ([member,] latent, latent) in nats; each code's entropy on the diagonal."""
    settings: PairwiseInformationSettings
    """The parameters."""


@metric(TotalCorrelationSettings, check_codes)
def total_correlation(
    given: Checked, settings: TotalCorrelationSettings, source: torch.Generator
) -> CodeDependence:
    r"""Total correlation of a Gaussian with the covariance of the codes.

    .. math:: \frac{1}{2} \Bigl( \sum_j \log \Sigma_{jj} - \log \det \Sigma \Bigr) \;\ge\; 0

    as in Locatello et al. 2019: zero exactly for uncorrelated codes, whatever else they share. A constant
    code adds nothing. Codes that depend on each other linearly would make it infinite: eigenvalues of the
    correlation matrix count as at least latent · ε, so it stays finite (about 17 nats for two equal codes).
    Unchanged by order, sign and scale of codes.

    Returns:
        The total correlation in nats.

    >>> codes = torch.tensor([[1.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]])  # correlation 1/√2
    >>> total_correlation(codes).score  # -½ log(1 − ½)
    tensor(0.3466, dtype=torch.float64)
    """
    given, grouped = _prepare(given.rescaled(), settings.points, source)
    found = correlation(_covariance(given, grouped))
    eye = torch.eye(found.shape[-1], dtype=torch.float64, device=found.device)
    # Ones for the codes without variance, which are uncorrelated with all.
    full = torch.where(eye > 0, 1.0, found)
    least = found.shape[-1] * torch.finfo(torch.float64).eps
    score = -torch.linalg.eigvalsh(full).clamp(min=least).log().sum(-1) / 2
    score = torch.where(score > 0, score, 0.0)
    settings = replace(settings, points=given.codes.shape[1])
    return CodeDependence(*with_interval(score), found[0], settings)


@metric(TotalCorrelationSettings, check_codes)
def wasserstein_correlation(
    given: Checked, settings: TotalCorrelationSettings, source: torch.Generator
) -> WassersteinCorrelation:
    r"""Squared 2-Wasserstein distance of a Gaussian with the codes' covariance from its independent version.

    .. math:: 2 \operatorname{tr} \Sigma - 2 \operatorname{tr} \bigl( D^{1/2} \Sigma D^{1/2} \bigr)^{1/2},
              \qquad D = \operatorname{diag} \Sigma

    as in Locatello et al. 2019, who also divide it by tr Σ (``normalised``). Finite where
    :func:`total_correlation` is not. Unchanged by order and sign of codes, quadratic in a common scale;
    constant codes add nothing, and if all are constant both forms are 0.

    Returns:
        The squared distance, from the covariance with n − 1 in its denominator.

    >>> line = torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    >>> wasserstein_correlation(line).score  # 4 − 2 √2
    tensor(1.1716, dtype=torch.float64)
    """
    given, exponent = given.rescale(common=True)
    given, grouped = _prepare(given, settings.points, source)
    sizes = grouped.sizes[:, None, None, None]
    found = _covariance(given, grouped) * (sizes / (sizes - 1).clamp(min=1))
    spread = found.diagonal(dim1=-2, dim2=-1)
    root = spread.clamp(min=0).sqrt()
    values = torch.linalg.eigvalsh(root[..., :, None] * found * root[..., None, :])
    trace = spread.sum(-1)
    score = (2 * trace - 2 * values.clamp(min=0).sqrt().sum(-1)).clamp(min=0)
    normalised = ratio(score[0], trace[0])
    # Once for each of two factors: their product may be no number where the distance is.
    score = scale_by_power(scale_by_power(score, -exponent[:, 0, 0]), -exponent[:, 0, 0])
    if not bool(score.isfinite().all()):
        raise ValueError("codes must be below 1e150 for a squared distance, got one that overflows")
    settings = replace(settings, points=given.codes.shape[1])
    return WassersteinCorrelation(*with_interval(score), normalised, settings)


@metric(PairwiseInformationSettings, check_codes)
def mean_pairwise_information(
    given: Checked, settings: PairwiseInformationSettings, source: torch.Generator
) -> PairwiseInformation:
    r"""Mean mutual information of pairs of codes, each in equal-width bins.

    .. math:: \frac{2}{d (d - 1)} \sum_{i < j} I(z_i; z_j)

    as in Locatello et al. 2019: sees dependence that covariance does not, and is biased upwards by about
    (bins − 1)² / (2 points) nats. A constant code has no information; of a single code it is 0.

    Returns:
        The mean in nats.

    >>> bit = torch.tensor([0.0, 1.0, 0.0, 1.0])
    >>> mean_pairwise_information(torch.stack([bit, 1 - bit], 1)).score  # log 2
    tensor(0.6931, dtype=torch.float64)
    """
    given, grouped = _prepare(given.rescaled(), settings.points, source)
    latent = given.codes.shape[2]
    left, right = torch.triu_indices(latent, latent, device=given.codes.device)
    found = _pairwise(given, grouped, settings.bins, left, right)
    distinct = left != right
    score = (found * distinct).sum(-1) / distinct.sum().clamp(min=1)
    matrix = found.new_empty(len(given.codes), latent, latent)
    matrix[:, left, right] = matrix[:, right, left] = found[0]
    settings = replace(settings, points=given.codes.shape[1])
    return PairwiseInformation(*with_interval(score), matrix, settings)


def _prepare(given: Checked, points: int | None, source: torch.Generator) -> tuple[Checked, Grouping]:
    """Codes as drawn, and their groups."""
    given, group = sample_points(given, points, source)
    return given, grouping(group, len(group), given.codes.device)


def _covariance(given: Checked, grouped: Grouping) -> Tensor:
    """Covariances (1 + group, member, latent, latent), as many members at once as memory allows."""
    size = given.codes[0].numel()
    slices = row_slices(len(given.codes), size, given.codes.device)
    return torch.cat([covariance(given.codes[part], grouped) for part in slices], 1)


def _pairwise(given: Checked, grouped: Grouping, bins: int, left: Tensor, right: Tensor) -> Tensor:
    """Information (1 + group, member, pair) of pairs of codes; of a code with itself its entropy."""
    members, batch, _ = given.codes.shape
    rows = given.codes.index_select(1, grouped.order).mT
    sizes, in_group = grouped.sizes, grouped.of * bins**2
    found = []
    for part in row_slices(members, len(left) * max(batch, len(sizes) * bins**2), rows.device):
        binned = equal_width(rows[part].double().contiguous(), bins)
        index = binned[:, left] * bins + binned[:, right] + in_group
        table = count_cells(index.flatten(0, 1), bins**2, grouped).unflatten(-1, (bins, bins))
        both = xlogx(table, batch).sum((-2, -1))
        sides = [table.sum(axis, dtype=torch.int32) for axis in (-1, -2)]
        vary = has_several(sides[0]) & has_several(sides[1])
        first, second = (entropy(xlogx(side, batch).sum(-1), sizes, vary) for side in sides)
        shared = (first + second - entropy(both, sizes, vary)).clamp(min=0)
        found.append(shared.unflatten(0, (-1, len(left))))
    return torch.cat(found).movedim(-1, 0)
