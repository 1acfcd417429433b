"""Interventional robustness: whether a code stays the same while all factors but one change."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import (
    AbstractDrawn,
    Checked,
    check_inputs,
    classes,
    metric,
    ratio,
    row_slices,
    scale_by_power,
)
from unseam.metrics._splits import sample_points
from unseam.metrics.intervals import GROUPS, Interval, with_interval

__all__ = ["Irs", "IrsSettings", "irs"]


@dataclass(frozen=True)
class IrsSettings(AbstractDrawn):
    """How interventional robustness is estimated."""

    bins: int | None = 20
    """Equal-width bins of every factor, discrete or not, as in the study; none for the values as they are."""
    quantile: Annotated[float, {"least": 0, "most": 1}] = 0.99
    """Quantile of the deviations that stands for the largest."""


class Irs(NamedTuple):
    """Interventional robustness and what it is made of."""

    score: Tensor
    """Mean over codes by their largest deviation, () or (member,)."""
    interval: Interval
    """95 % interval of the score."""
    per_code: Tensor
    """Robustness ([member,] latent) of each code for its best factor; 0 for a constant one."""
    robustness: Tensor
    """Robustness ([member,] latent, factor) of each code while a factor is held."""
    deviation: Tensor
    """Largest deviation ([member,] latent) of each code from its mean, its weight in the score."""
    settings: IrsSettings
    """The parameters."""


@metric(IrsSettings, check_inputs)
def irs(given: Checked, settings: IrsSettings, source: torch.Generator) -> Irs:
    r"""Interventional robustness score: how little a code moves while one factor is held and others change.

    .. math:: \text{IRS} = \frac{\sum_j D_j \max_k R_{jk}}{\sum_j D_j}, \qquad
              R_{jk} = 1 - \frac{1}{D_j\, |V_k|} \sum_{v \in V_k}
              Q_{0.99}\bigl[\, |z_j - \mathbb{E}[z_j | v]| \mid v_k = v \bigr], \qquad
              D_j = \max |z_j - \mathbb{E} z_j|

    of Suter et al. 2019 as the 12 600-model study computes it (Locatello et al. 2019): the 99th percentile
    for the maximum, interpolated linearly, and every factor in 20 equal-width bins, which merges values of
    factors with more. A value of a single point deviates by nothing, so many rare values raise the score.
    Constant codes weigh nothing; if all are constant the score is 0. A constant factor is held by holding
    nothing, and counts like any other. Unchanged by order and sign of codes and by a common scale.

    Returns:
        The score in [0, 1], and below 0 where classes deviate by more than the whole.

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> irs(grid.double(), grid).score
    tensor(1., dtype=torch.float64)
    """
    given, exponent = given.rescale(common=True)
    given, group = sample_points(given, settings.points, source)
    members, batch, latent = given.codes.shape
    rows = given.codes.mT.reshape(members * latent, batch).double()
    rows = rows - rows.mean(1, keepdim=True)
    rows = torch.where(rows.amax(1, keepdim=True) > rows.amin(1, keepdim=True), rows, 0.0)
    deviation = _largest(rows, group)
    binned = given if settings.bins is None else given._replace(discrete=(False,) * len(given.discrete))
    columns = classes(binned, settings.bins or 20).T
    held = [_mean_deviation(rows, column, group, settings.quantile) for column in columns]
    robustness = torch.where(deviation > 0, 1 - ratio(torch.stack(held), deviation), 0.0)
    robustness = robustness.movedim(0, -1).unflatten(0, (members, latent)).movedim(2, 0)
    weight = deviation.T.unflatten(1, (members, latent))
    per_code = robustness.amax(-1)
    score = ratio((weight * per_code).sum(-1), weight.sum(-1))
    deviation = scale_by_power(weight[0], -exponent[:, 0])
    settings = replace(settings, points=batch)
    return Irs(*with_interval(score), per_code[0], robustness[0], deviation, settings)


def _largest(rows: Tensor, group: Tensor) -> Tensor:
    """Largest deviation from the mean (row, 1 + group) of all points, then without each group."""
    subsets = _subsets(group)
    found = torch.empty(len(rows), len(subsets), dtype=rows.dtype, device=rows.device)
    for part in row_slices(len(rows), rows.shape[1], rows.device):
        found[part] = _quantiles(rows[part], group, subsets, 1.0)
    return found


def _mean_deviation(rows: Tensor, column: Tensor, group: Tensor, quantile: float) -> Tensor:
    """Mean over a factor's values of the deviations' quantile (row, 1 + group), all points and without each."""
    subsets = _subsets(group)
    total = rows.new_zeros(len(rows), len(subsets))
    present = rows.new_zeros(len(subsets))
    for value in range(int(column.max()) + 1):
        own = (column == value).nonzero()[:, 0]
        within = group[own]
        for part in row_slices(len(rows), 8 * len(own), rows.device):
            total[part] += _quantiles(rows[part].index_select(1, own), within, subsets, quantile)
        present += (within[:, None] != subsets).any(0)
    return total / present.clamp(min=1)


def _quantiles(values: Tensor, group: Tensor, subsets: Tensor, quantile: float) -> Tensor:
    """Quantile of the distance from the mean (row, subset) of values (row, point) without a group each.

    Only the outermost values can be that far out: as many at each end as lie above the quantile, after those
    that a subset lacks.
    """
    stays = (group[:, None] != subsets).double()
    count = stays.sum(0)
    middle = values @ stays / count.clamp(min=1)
    above = math.ceil((1 - quantile) * (values.shape[1] - 1)) + 2
    outermost, of = _outermost(values, group, subsets, above)
    away = (outermost[:, None] - middle[..., None]).abs_()
    away = away.masked_fill_(of[:, None] == subsets[:, None], -1.0)
    furthest = away.topk(min(above, away.shape[-1]), -1).values
    place = (1 - quantile) * (count - 1).clamp(min=0)
    before = place.floor().long()
    index = torch.stack([before, before + 1], -1).clamp(max=furthest.shape[-1] - 1)
    pair = furthest.gather(-1, index.expand(*furthest.shape[:2], 2)).clamp(min=0)
    return pair[..., 0] + (place - before) * (pair[..., 1] - pair[..., 0])


def _outermost(values: Tensor, group: Tensor, subsets: Tensor, above: int) -> tuple[Tensor, Tensor]:
    """Values at both ends of each row and their groups (row, outer), with so many of each subset at each end."""
    points, outer = values.shape[1], 2 * above + 8
    while 2 * outer < points:
        ends = [values.topk(outer, 1, largest=largest) for largest in (True, False)]
        of = [group[end.indices] for end in ends]
        lacks = [(one[:, None] == subsets[1:, None]).sum(-1).amax() for one in of]
        if outer - int(torch.stack(lacks).max()) >= above:
            return torch.cat([end.values for end in ends], 1), torch.cat(of, 1)
        outer *= 2
    return values, group.expand_as(values)


def _subsets(group: Tensor) -> Tensor:
    """The group that each subset (1 + group,) of the points lacks; −1 for none."""
    return torch.arange(-1, min(GROUPS, len(group)), device=group.device)
