"""Mutual information gap in its entropy form: codes sampled from the posterior, densities from all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import (
    AbstractSettings,
    Checked,
    check_inputs,
    classes,
    draw_distinct,
    draw_points,
    metric,
    row_slices,
)
from unseam.metrics._splits import check_points, gap
from unseam.metrics._tables import Grouping, grouping
from unseam.metrics.intervals import Interval, groups, with_interval

__all__ = ["MigEntropy", "MigEntropySettings", "mig_entropy"]


@dataclass(frozen=True)
class MigEntropySettings(AbstractSettings):
    """How the entropy form of the mutual information gap is estimated."""

    changes: ClassVar = {"fast": {"samples": 1_000, "mixture": 5_000}}
    samples: int | None = 10_000
    """Points whose posteriors are sampled once each, none for all; in a result, how many there were."""
    mixture: int | None = None
    """Points whose posteriors make up the densities, none for all; in a result, how many there were."""
    bins: int = 20
    """Bins of a continuous factor."""
    excluded: tuple[int, ...] = ()
    """Factors that do not count; the original leaves out dSprites' shape, (0,)."""


class MigEntropy(NamedTuple):
    """A mutual information gap in its entropy form and what it is made of."""

    score: Tensor
    """Mean gap over the factors that count and vary, () or (member,)."""
    interval: Interval
    """95 % interval of the score, over the samples."""
    gaps: Tensor
    """Gap ([member,] factor) of each factor; 0 for one that does not count."""
    information: Tensor
    """H(z_j) − H(z_j|v_k) ([member,] latent, factor) in nats, not below 0."""
    code_entropy: Tensor
    """Differential entropy H(z_j) ([member,] latent) of the aggregate posterior in nats."""
    settings: MigEntropySettings
    """The parameters."""


@metric(MigEntropySettings, check_inputs)
def mig_entropy(given: Checked, settings: MigEntropySettings, source: torch.Generator) -> MigEntropy:
    r"""Mutual information gap of codes drawn from their posteriors, as its authors defined it.

    .. math:: \frac{1}{K} \sum_k \frac{I_{j_k k} - \max_{j \ne j_k} I_{jk}}{\log |V_k|}, \qquad
              I_{jk} = H(z_j) - H(z_j | v_k), \qquad
              H(z_j) = -\mathbb{E}\, \log \frac{1}{N} \sum_{n} q(z_j | x_n)

    of Chen et al. 2018 (Eqs. 5 and 6 and appendix): every density is a mixture over the data, over the
    points that share the factor's value for H(z_j|v_k), by log-sum-exp. Nothing is binned but continuous
    factors. Costs samples · mixture · latent exponentials; memory stays bounded.

    A factor of a single value is left out, a single code's gap is its whole information, and where no
    factor counts the score is 0. Unchanged by scale of codes and their deviations; by order and sign of codes
    only in distribution, since the noise that samples a code belongs to its place.

    Returns:
        The score, in [0, 1] for factors that are uniform. The interval leaves out groups of samples; the
        mixture stays.

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> found = mig_entropy(grid.double(), grid, variance=torch.full((20, 2), 1e-4).double())
    >>> round(found.score.item(), 6)
    1.0
    """
    if given.variance is None:
        raise ValueError("variance must hold the posterior's variances for the entropy form, got none")
    given = draw_points(given, settings.mixture, source)
    counts = _counted_factors(given, settings)
    members, batch, latent = given.codes.shape
    check_points(batch)
    samples = batch if settings.samples is None else min(batch, settings.samples)
    sampled = draw_distinct(batch, samples, source).to(given.codes.device)
    noise = torch.randn(samples, latent, generator=source, dtype=torch.float64, device=source.device)
    grouped = grouping(groups(samples, source), samples, given.codes.device)
    label = classes(given, settings.bins)
    terms, code_entropy = _terms(given, sampled, noise.to(given.codes.device), label)
    information = _without(terms, grouped).unflatten(1, (members, latent)).clamp(min=0)
    values = label.amax(0) + 1
    counts &= values > 1
    normalised = torch.where(counts, information / values.double().clamp(min=2).log(), 0.0)
    gaps = gap(normalised.mT)
    score = gaps.sum(-1) / counts.sum().clamp(min=1)
    settings = replace(settings, samples=samples, mixture=batch)
    code_entropy = code_entropy.view(members, latent)
    return MigEntropy(*with_interval(score), gaps[0], information[0], code_entropy, settings)


def _counted_factors(given: Checked, settings: MigEntropySettings) -> Tensor:
    """Which factors count (factor,)."""
    if given.variance is not None and not bool((given.variance > 0).all()):
        raise ValueError("variance must be positive for the entropy form, got zeros")
    counts = torch.ones(given.factors.shape[1], dtype=torch.bool, device=given.codes.device)
    for factor in settings.excluded:
        if not 0 <= factor < len(counts):
            raise ValueError(f"excluded must name factors below {len(counts)}, got {factor}")
        counts[factor] = False
    return counts


def _terms(given: Checked, sampled: Tensor, noise: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """log q(z_j|v_k) − log q(z_j) (row, sample, factor) of every sample, and H(z_j) (row,)."""
    assert given.variance is not None
    members, batch, latent = given.codes.shape
    mean = given.codes.double().mT.reshape(members * latent, batch)
    deviation = given.variance.double().sqrt().mT.reshape(members * latent, batch)
    z = mean[:, sampled] + deviation[:, sampled] * noise.T.repeat(members, 1)
    marginal = _log_mixture(z, mean, deviation)
    terms = []
    for column in label.T:
        conditional = torch.empty_like(z)
        for value in range(int(column.max()) + 1):
            own, here = (column == value).nonzero()[:, 0], (column[sampled] == value).nonzero()[:, 0]
            conditional[:, here] = _log_mixture(z[:, here], mean[:, own], deviation[:, own])
        terms.append(conditional - marginal)
    return torch.stack(terms, -1), -marginal.mean(1)


def _log_mixture(z: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Log-density (row, sample) of equal mixtures of Gaussians (row, batch) at z (row, sample)."""
    count = mean.shape[1]
    constant = -deviation.log() - math.log(count) - math.log(2 * math.pi) / 2
    found = torch.empty_like(z)
    for row in row_slices(len(z), count, z.device):
        for sample in row_slices(z.shape[1], count * len(z[row]), z.device):
            away = (z[row, sample, None] - mean[row, None]).div_(deviation[row, None])
            found[row, sample] = away.square_().div_(-2).add_(constant[row, None]).logsumexp(-1)
    return found


def _without(terms: Tensor, grouped: Grouping) -> Tensor:
    """Means (1 + group, row, factor) of terms (row, sample, factor): over all samples, then without each group."""
    total = terms.sum(1)
    sums = total.new_zeros(grouped.groups, *total.shape)
    sums.index_add_(0, grouped.of, terms[:, grouped.order].transpose(0, 1))
    left = torch.cat([total[None], total - sums])
    return left / grouped.sizes.clamp(min=1)[:, None, None]
