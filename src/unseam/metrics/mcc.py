"""Mean correlation coefficient of factors with the codes that match them best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import AbstractDrawn, Checked, check_inputs, metric, row_slices
from unseam.metrics._splits import sample_points
from unseam.metrics._tables import Grouping, correlation, covariance, grouping, leave_out_masks, ranks
from unseam.metrics.intervals import Interval, with_interval

__all__ = ["Mcc", "MccSettings", "mcc"]


@dataclass(frozen=True)
class MccSettings(AbstractDrawn):
    """How the mean correlation coefficient is computed."""

    correlation: Literal["pearson", "spearman"] = "pearson"
    """Which correlation the score is made of: ``"pearson"`` or ``"spearman"``."""


class Mcc(NamedTuple):
    """A mean correlation coefficient and what it is made of."""

    score: Tensor
    """The mean with the settings' correlation, () or (member,)."""
    interval: Interval
    """95 % interval of the score."""
    pearson: Tensor
    """The mean with Pearson's correlation, () or (member,)."""
    spearman: Tensor
    """The mean with Spearman's correlation, () or (member,)."""
    match: Tensor
    """Code ([member,] factor) matched to each factor for the score; −1 for none."""
    correlations: Tensor
    """Correlations ([member,] latent, factor) that the score is made of, with their signs."""
    settings: MccSettings
    """The parameters."""


@metric(MccSettings, check_inputs)
def mcc(given: Checked, settings: MccSettings, source: torch.Generator) -> Mcc:
    r"""Mean correlation coefficient after the best one-to-one matching of codes to factors.

    .. math:: \frac{1}{K} \max_{\pi} \sum_k |\operatorname{corr}(z_{\pi(k)}, v_k)|

    over matchings π that use no code twice (Hyvärinen & Morioka 2016), found exactly as a linear assignment.
    Pearson's correlation asks for codes linear in the factors, Spearman's for monotone ones; the result
    carries both. Further codes than factors may stay unmatched; with fewer codes the unmatched factors
    count 0. A constant factor is left out (the score is 0 if all are); a constant code correlates with
    nothing. A discrete factor counts by its values as numbers, so an unordered one such as shape has no
    meaningful correlation. Unchanged by order, sign and scale of codes. Two points correlate by ±1 whatever they are.

    Returns:
        The score in [0, 1]. Without a group, points are ranked and matched again.

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> mcc(-grid.double().flip(1), grid).match
    tensor([1, 0])
    """
    given, group = sample_points(given.rescaled(), settings.points, source)
    batch = given.codes.shape[1]
    grouped = grouping(group, batch, given.codes.device)
    varies = given.factors.amax(0) > given.factors.amin(0)
    spearman = settings.correlation == "spearman"
    pearson_found = _pearson(given, grouped if not spearman else grouping(None, batch, group.device))
    spearman_found = _spearman(given, group, left_out=spearman)
    used = spearman_found if spearman else pearson_found
    match = _match_codes(used)
    score = _mean(used, match, varies)
    pearson_mean, spearman_mean = (
        _mean(found[:1], _match_codes(found[:1]), varies)[0] for found in (pearson_found, spearman_found)
    )
    settings = replace(settings, points=batch)
    return Mcc(*with_interval(score), pearson_mean, spearman_mean, match[0], used[0], settings)


def _pearson(given: Checked, grouped: Grouping) -> Tensor:
    """Correlations (1 + group, member, latent, factor)."""
    latent, factors = given.codes.shape[2], given.factors[None]
    found = []
    for part in row_slices(len(given.codes), given.codes[0].numel() + factors.numel(), given.codes.device):
        codes = given.codes[part].double()
        both = torch.cat([codes, factors.expand(len(codes), -1, -1)], -1)
        found.append(correlation(covariance(both, grouped))[..., :latent, latent:])
    return torch.cat(found, 1)


def _spearman(given: Checked, group: Tensor, *, left_out: bool) -> Tensor:
    """Rank correlations (1 + group, member, latent, factor), without each group only where asked for."""
    keep = leave_out_masks(group) if left_out else leave_out_masks(group)[:1]
    factor_ranks = _unit(ranks(given.factors.T, keep), keep[:, None])
    found = []
    for part in row_slices(len(given.codes), given.codes[0].numel() * len(keep), given.codes.device):
        rows = given.codes[part].mT
        code_ranks = _unit(ranks(rows, keep), keep[:, None, None])
        found.append(code_ranks @ factor_ranks.mT[:, None])
    return torch.cat(found, 1).clamp(-1, 1)


def _unit(values: Tensor, keep: Tensor) -> Tensor:
    """Values (..., batch) about their mean over the subset, at unit length; zeros for what is constant."""
    count = keep.sum(-1, keepdim=True).clamp(min=1)
    away = torch.where(keep, values - (values * keep).sum(-1, keepdim=True) / count, 0.0)
    length = away.norm(dim=-1, keepdim=True)
    # Ranks are halves: what is not constant is at least as long as 1/2.
    return torch.where(length > 0.25, away / torch.where(length > 0.25, length, 1.0), 0.0)


def _match_codes(correlations: Tensor) -> Tensor:
    """Code (..., factor) of the best matching for correlations (..., latent, factor); −1 for none."""
    from scipy.optimize import linear_sum_assignment

    flat = correlations.abs().flatten(0, -3).cpu().numpy()
    match = torch.full((len(flat), flat.shape[2]), -1)
    for row, matrix in enumerate(flat):
        code, factor = linear_sum_assignment(matrix, maximize=True)
        match[row, torch.as_tensor(factor)] = torch.as_tensor(code)
    return match.view(*correlations.shape[:-2], -1).to(correlations.device)


def _mean(correlations: Tensor, match: Tensor, varies: Tensor) -> Tensor:
    """Mean (...) over the factors that vary of the absolute correlation with the code matched to each."""
    best = correlations.abs().gather(-2, match.clamp(min=0)[..., None, :])[..., 0, :]
    return torch.where((match >= 0) & varies, best, 0.0).sum(-1) / varies.sum().clamp(min=1)
