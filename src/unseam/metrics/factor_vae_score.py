"""FactorVAE score: whether the code that varies least identifies the factor that was held fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import AbstractFitted, Checked, check_inputs, draw_distinct, metric
from unseam.metrics._splits import check_points
from unseam.metrics._votes import accuracy_interval, draw_votes, group_masks, vote_slices
from unseam.metrics.intervals import GROUPS, Interval, groups

__all__ = ["FactorVaeScore", "FactorVaeSettings", "factor_vae_score"]


@dataclass(frozen=True)
class FactorVaeSettings(AbstractFitted):
    """Parameters of :func:`factor_vae_score`."""

    batch: Annotated[int, {"least": 2}] = 64
    """Points per vote."""
    points: Annotated[int, {"least": 2}] = 10_000
    """Points that the global variances are taken over."""
    prune: float = 0.05
    """Codes with a smaller standard deviation have no vote."""
    bins: int = 20
    """Bins of equal width of a continuous factor."""


class FactorVaeScore(NamedTuple):
    """FactorVAE score, and what it is made of."""

    score: Tensor
    """Held-out accuracy of the majority vote, () or (member,), in [0, 1]."""
    interval: Interval
    """Of the score."""
    train_score: Tensor
    """Accuracy on the votes that the majority was taken over, () or (member,)."""
    votes: Tensor
    """Training votes (..., latent, factor): how often each code varied least while each factor was fixed."""
    active: Tensor
    """Codes that may be voted for (..., latent), boolean."""
    settings: FactorVaeSettings
    """As used: with as many points as there were."""


@metric(FactorVaeSettings, check_inputs)
def factor_vae_score(given: Checked, settings: FactorVaeSettings, source: torch.Generator) -> FactorVaeScore:
    r"""Accuracy of predicting a fixed factor from the code that varies least (Kim & Mnih 2018, §4).

    A vote fixes a factor k at a value, draws a batch of points that have it, and names

    .. math:: j = \arg\min_j \; \text{Var}_{\text{batch}}[z_j] / \text{Var}[z_j]

    among codes that vary at all. The classifier maps each j to the factor it was voted for most often; the score
    is its accuracy on new votes. Factor and value are drawn as in a uniformly drawn row, and the batch, with
    replacement, from the rows at hand that share the value: grids may be incomplete, and nothing is encoded twice.
    Continuous factors are cut into bins of equal width.

    Unchanged by order (up to ties), sign and shift of codes, and by scale as long as none is pruned. All codes
    pruned: score 0. Where codes vary equally little, as in a batch of one row repeated, the first is voted for; a
    code without a training vote stands for the first factor. Constant factors are not drawn, unless all are constant.
    With one factor the score is 1 unless all codes are pruned.

    Returns:
        The score and its parts. The interval covers the draw of test votes, of which groups are left out, and that
        of points: groups of rows are left out of the global variances and of the test batches. It does not cover
        the draw of training votes; the majority stays.

    >>> factors = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> factor_vae_score(factors.double(), factors, preset="fast").score
    tensor(1., dtype=torch.float64)
    """
    given = given.rescaled(small=False)
    batch = given.codes.shape[1]
    check_points(batch, "for a variance")
    points = draw_distinct(batch, min(settings.points, batch), source).to(given.codes.device)
    spread = given.codes[:, points].var(1)
    active = spread.sqrt() >= settings.prune
    count, train = settings.train + settings.test, settings.train
    factor, _, index = draw_votes(given, count, 1, settings.batch, settings.bins, source)
    of_rows, of_votes = (groups(size, source).to(given.codes.device) for size in (batch, settings.test))
    scale = _scale(spread, active)
    seen = _least(given, index[:train], scale)
    scales = _scale(_variance_without(given, points, of_rows), active[:, None])
    tested, without = _leave_out_votes(given, index[train:], scale, scales, of_rows)
    table = _table(factor[:train], seen, given.codes.shape[2], given.factors.shape[1])
    majority, any_active = table.argmax(-1), active.any(-1, keepdim=True)
    right = (majority.gather(1, torch.cat([seen, tested], 1)) == factor) & any_active
    right_without = majority.gather(1, without.flatten(1)).view_as(without) == factor[train:, None]
    change = (right_without & any_active[..., None]).double() - right[:, train:, None].double()
    score, interval = accuracy_interval(right[:, train:], change, of_votes)
    settings = replace(settings, points=len(points))
    return FactorVaeScore(score, interval, right[:, :train].double().mean(1), table, active, settings)


def _scale(spread: Tensor, active: Tensor) -> Tensor:
    """What a batch's variance is multiplied by: infinite for a code that has no vote."""
    return torch.where(active, 1 / torch.where(active, spread, 1.0), torch.inf)


def _variance_without(given: Checked, points: Tensor, group: Tensor) -> Tensor:
    """Variance (member, group, latent) over the points without each group; of all where fewer than two stay."""
    rows = given.codes[:, points]
    moved = rows - rows.mean(1, keepdim=True)
    stays = (~group_masks(group, points[None])[0]).to(rows.dtype)
    count = stays.sum(-1, keepdim=True)
    first, second = stays @ moved, stays @ moved.square()
    found = (second - first.square() / count.clamp(min=1)) / (count - 1).clamp(min=1)
    enough = (count > 1) & (found > 0)
    return torch.where(enough, found, rows.var(1)[:, None])


def _shift_to_first(given: Checked, index: Tensor) -> Tensor:
    """Codes (member, vote, batch, latent) from the first point of the batch: exactly 0 where none varies."""
    rows = given.codes[:, index.flatten()].unflatten(1, index.shape)
    return rows - rows[:, :, :1]


def _lowest(spread: Tensor, scale: Tensor) -> Tensor:
    return torch.where(scale < torch.inf, spread * scale, torch.inf).argmin(-1)


def _least(given: Checked, index: Tensor, scale: Tensor) -> Tensor:
    """Code (member, vote) that varies least in batches of rows (vote, batch)."""
    found = []
    for part in vote_slices(
        len(index), len(given.codes) * index.shape[1] * given.codes.shape[2], index.device
    ):
        moved = _shift_to_first(given, index[part])
        spread = moved.square().sum(2) - moved.sum(2).square() / index.shape[1]
        found.append(_lowest(spread, scale[:, None]))
    return torch.cat(found, 1)


def _leave_out_votes(
    given: Checked, index: Tensor, scale: Tensor, scales: Tensor, group: Tensor
) -> tuple[Tensor, Tensor]:
    """Code (member, vote) that varies least, and that (member, vote, group) without each group of rows.

    The variances without a group, of batches as of all points, are those of the rows that stay; a batch of which fewer
    than two stay votes as before.
    """
    members, _, latent = given.codes.shape
    size, eps = index.shape[1], torch.finfo(given.codes.dtype).eps
    whole, without = [], []
    for part in vote_slices(len(index), members * latent * (2 * size + 4 * GROUPS), index.device):
        moved = _shift_to_first(given, index[part])
        first, second = moved.sum(2), moved.square().sum(2)
        code = _lowest(second - first.square() / size, scale[:, None])
        inside = group_masks(group, index[part]).to(moved.dtype)
        stay = (size - inside.sum(-1))[..., None]
        both = torch.stack([moved, moved.square()]).movedim(2, 0).movedim(3, 1).flatten(2)
        gone = (inside @ both).unflatten(2, (2, members, latent)).movedim((2, 3), (0, 1))
        second, first = second[:, :, None], first[:, :, None]
        spread = second - gone[1] - (first - gone[0]).square() / stay.clamp(min=1)
        # What rounding leaves of rows that are all the same.
        spread = torch.where(spread > 4 * size * eps * second, spread, 0.0)
        fewer = _lowest(spread, scales[:, None])
        whole.append(code)
        without.append(torch.where(stay[..., 0] > 1, fewer, code[..., None]))
    return torch.cat(whole, 1), torch.cat(without, 1)


def _table(factor: Tensor, code: Tensor, latent: int, factors: int) -> Tensor:
    """How often (member, latent, factor) each code was voted for while each factor was fixed."""
    found = code.new_zeros((len(code), latent * factors))
    cell = code * factors + factor
    return found.scatter_add_(1, cell, torch.ones_like(cell)).unflatten(1, (latent, factors))
