"""Unsupervised disentanglement ranking: models that disentangle agree with each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array, as_floating
from unseam.metrics._inputs import (
    AbstractSettings,
    check_codes,
    default_generator,
    ratio,
    row_slices,
)
from unseam.metrics._splits import sample_points
from unseam.metrics._tables import correlation, covariance, grouping, leave_out_masks, ranks
from unseam.metrics.intervals import Interval, with_interval

__all__ = ["Udr", "UdrSettings", "udr"]

# Weights of standardised codes are of order one: beyond this they differ by rounding.
_TOLERANCE = 1e-10
_SWEEPS = 8
_MOST_ROUNDS = 1_000


@dataclass(frozen=True)
class UdrSettings(AbstractSettings):
    """How members are compared."""

    changes: ClassVar = {"fast": {"points": 500}}
    points: int | None = 1_000
    """Number of points, none for all; in a result, how many there were."""
    similarity: Literal["lasso", "spearman"] = "lasso"
    """``"lasso"``, or ``"spearman"`` for absolute rank correlations."""
    alpha: Annotated[float, {"above": 0}] = 0.1
    """Penalty of the lasso on standardised codes."""
    informative_kl: Annotated[float, {}] = 0.01
    """A code counts where its mean KL divergence from the prior, in nats, is larger."""
    average: Literal["sides", "codes"] = "sides"
    """``"sides"``, the mean of both members' means (the study), or ``"codes"``, over all codes (the paper)."""


class Udr(NamedTuple):
    """How much each member agrees with the others."""

    score: Tensor
    """Median (member,) of a member's agreement with the others."""
    interval: Interval
    """95 % interval of each score over the points, the members being given."""
    agreement: Tensor
    """Agreement (member, member): of the member in the row, as a target, with the one in the column; 0 with itself."""
    similarity: Tensor
    """Similarity (member, member, latent, latent) of codes: rows of the first member explain the second's."""
    informative: Tensor
    """Which codes count (member, latent)."""
    settings: UdrSettings
    """The parameters."""


def udr(
    codes: Array, kl: Array, *, preset: str | UdrSettings = "dlib", generator: torch.Generator | None = None
) -> Udr:
    r"""Unsupervised disentanglement ranking: the median agreement of a model with others of its kind.

    .. math:: \text{UDR}_i = \operatorname{med}_{j} U_{ij}, \qquad
              U_{ij} = \frac{1}{d_a + d_b} \Bigl[ \sum_b \frac{r_b^2}{\sum_a R_{ab}}
              + \sum_a \frac{r_a^2}{\sum_b R_{ab}} \Bigr], \qquad r_b = \max_a R_{ab}

    of Duan et al. 2020 (Eqs. 4 and 5), over the informative codes a, b of both members, those with a mean KL
    above 0.01. R are absolute weights of a lasso (α = 0.1) that explains each standardised code of member i
    by those of member j, or absolute Spearman correlations. The formula averages over the codes of both
    members alike (``average="codes"``); the authors' code takes the mean of each side's mean, which is the
    same where both have equally many informative codes and is the default, for comparable numbers.

    Relations that are all zero count 0, as do members without an informative code. Unchanged by order, sign
    and scale of each member's codes.

    Args:
        codes: z (member, batch, latent), of the same points, two members or more.
        kl: mean KL divergence of each code's posterior from the prior (member, latent), in nats.
        preset: ``"dlib"`` (1 000 points), ``"fast"`` (500) or settings.
        generator: source of the points that are drawn and of the interval's groups; by default seed 0.

    Returns:
        A score per member, in [0, 1].

    >>> z = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> udr(torch.stack([z, -z.flip(1), 2 * z]), torch.ones(3, 2)).score  # 1 − α, the lasso's shrinkage
    tensor([0.9000, 0.9000, 0.9000], dtype=torch.float64)
    """
    settings = UdrSettings.resolve(preset)
    given, group = sample_points(check_codes(codes).rescaled(), settings.points, default_generator(generator))
    informative = _informative(given.codes, kl, settings)
    members, batch, latent = given.codes.shape
    columns = (given.codes * informative[:, None]).movedim(0, 1).reshape(1, batch, members * latent)
    if settings.similarity == "lasso":
        found = _lasso_weights(columns, group, members, settings.alpha)
    else:
        found = _rank_correlations(columns[0].T, group, members)
    agreement = _agreement(found, informative, settings.average)
    score = _median_of_others(agreement)
    settings = replace(settings, points=batch)
    others = ~torch.eye(members, dtype=torch.bool, device=score.device)
    return Udr(*with_interval(score), agreement[0].mT * others, found[0], informative, settings)


def _informative(codes: Tensor, kl: Array, settings: UdrSettings) -> Tensor:
    """Which codes count (member, latent), once codes and divergences fit each other."""
    members, _, latent = codes.shape
    if members < 2:
        raise ValueError("codes must come from two members or more, as (member, batch, latent), got one")
    given = as_floating("kl", kl)
    if given.shape != (members, latent):
        raise ValueError(
            f"kl must hold a divergence for each of {members} members' {latent} codes, got shape {tuple(given.shape)}"
        )
    return given.to(codes.device) > settings.informative_kl


def _lasso_weights(columns: Tensor, group: Tensor, members: int, alpha: float) -> Tensor:
    """Absolute weights (1 + group, source, target, latent, latent) between members' standardised codes."""
    batch = columns.shape[1]
    found = correlation(covariance(columns, grouping(group, batch, columns.device)))[:, 0]
    latent = found.shape[-1] // members
    weights: list[Tensor] = []
    for matrix in found:
        blocks = matrix.view(members, latent, members, latent)
        gram = torch.einsum("iaib->iab", blocks).contiguous()
        # Without a group of points the weights move little from those of all.
        start = weights[0] if weights else None
        weights.append(_lasso(gram, matrix.view(members, latent, -1), alpha=alpha, start=start))
    stacked = torch.stack(weights).abs().view(-1, members, latent, members, latent)
    return stacked.transpose(2, 3)


def _rank_correlations(rows: Tensor, group: Tensor, members: int) -> Tensor:
    """Absolute Spearman correlations (1 + group, source, target, latent, latent)."""
    found = []
    for stays in leave_out_masks(group):
        inside = rows[:, stays]
        ranked = ranks(inside, torch.ones_like(inside[0], dtype=torch.bool)[None])[0]
        whole = grouping(None, inside.shape[1], rows.device)
        found.append(correlation(covariance(ranked.T[None], whole))[0, 0])
    stacked = torch.stack(found).abs().unflatten(-1, (members, -1)).unflatten(1, (members, -1))
    return stacked.transpose(2, 3)


def _agreement(similarity: Tensor, informative: Tensor, average: str) -> Tensor:
    """U (1 + group, source, target) from similarities of their codes."""
    counts = informative[:, None, :, None] & informative[None, :, None, :]
    relation = torch.where(counts, similarity, 0.0)
    number = informative.sum(-1)
    sides = [ratio(relation.amax(axis).square(), relation.sum(axis)).sum(-1) for axis in (-2, -1)]
    targets, sources = number[None, :], number[:, None]
    if average == "codes":
        return (sides[0] + sides[1]) / (targets + sources).clamp(min=1)
    return (sides[0] / targets.clamp(min=1) + sides[1] / sources.clamp(min=1)) / 2


def _median_of_others(agreement: Tensor) -> Tensor:
    """Median (1 + group, target) over sources (1 + group, source, target) other than itself."""
    members = agreement.shape[-1]
    apart = ~torch.eye(members, dtype=torch.bool, device=agreement.device)
    others = agreement.mT[:, apart].view(len(agreement), members, members - 1)
    return others.quantile(0.5, dim=-1)


def _lasso(gram: Tensor, cross: Tensor, *, alpha: float, start: Tensor | None = None) -> Tensor:
    r"""Weights that minimise :math:`\frac{1}{2n} \lVert y - X w \rVert^2 + \alpha \lVert w \rVert_1`.

    Coordinate descent finds which weights are not zero, and steps between its sweeps solve for these: as soon
    as signs hold and the rest stays below α, the solution is exact and its problem is done. So features that
    correlate strongly, where the descent alone takes thousands of sweeps, cost little more than others.

    Args:
        gram: XᵀX/n (member, feature, feature) of centred features; one without variance gets no weight.
        cross: Xᵀy/n (member, feature, target).
        alpha: α.
        start: weights to begin at, in the shape of ``cross``.

    Returns:
        w (member, feature, target).
    """
    targets, features = cross.shape[2], cross.shape[1]
    member = torch.arange(len(gram), device=gram.device).repeat_interleave(targets)
    flat = cross.mT.reshape(-1, features)
    weight = torch.zeros_like(flat) if start is None else start.mT.reshape(-1, features).clone()
    for part in row_slices(len(flat), 8 * features**2, gram.device):
        weight[part] = _solve(gram, member[part], flat[part], weight[part], alpha)
    return weight.view(len(gram), targets, features).mT


def _solve(gram: Tensor, member: Tensor, cross: Tensor, weight: Tensor, alpha: float) -> Tensor:
    """Weights (problem, feature) of problems with Gram matrices of their members."""
    weight = torch.where(gram.diagonal(dim1=-2, dim2=-1)[member] > 0, weight, 0.0)
    still = torch.arange(len(cross), device=cross.device)
    for _ in range(_MOST_ROUNDS):
        matrix = gram[member[still]]
        weight[still], done = _polish(matrix, cross[still], weight[still], alpha)
        still, matrix = still[~done], matrix[~done]
        if len(still) == 0:
            break
        weight[still], change = _descend(matrix, cross[still], weight[still], alpha)
        still = still[change > _TOLERANCE]
    return weight


def _descend(gram: Tensor, cross: Tensor, weight: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Weights after some sweeps of coordinate descent, and the largest change (problem,) in the last."""
    weight = weight.clone()
    explained = (gram @ weight[..., None])[..., 0]
    scale = gram.diagonal(dim1=-2, dim2=-1)
    varies = scale > 0
    scale = torch.where(varies, scale, 1.0)
    largest = torch.zeros_like(weight[:, 0])
    for _ in range(_SWEEPS):
        largest = torch.zeros_like(largest)
        for k in range(gram.shape[-1]):
            free = cross[:, k] - explained[:, k] + weight[:, k] * scale[:, k]
            new = torch.nn.functional.softshrink(free, alpha) / scale[:, k]
            change = torch.where(varies[:, k], new - weight[:, k], 0.0)
            weight[:, k] += change
            explained += gram[:, :, k] * change[:, None]
            largest = torch.maximum(largest, change.abs())
    return weight, largest


def _polish(gram: Tensor, cross: Tensor, weight: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Weights moved to the exact ones for their signs, and for which problems (problem,) these are optimal.

    Where a weight would change its sign on the way, all stop there (Lee et al. 2007): the loss has only fallen.
    """
    sign = weight.sign()
    used = sign != 0
    inside = used[:, :, None] & used[:, None, :]
    matrix = torch.where(inside, gram, 0.0) + torch.diag_embed((~used).to(gram.dtype))
    exact = torch.linalg.solve_ex(matrix, torch.where(used, cross - alpha * sign, 0.0)).result
    rest = (cross - (gram @ exact[..., None])[..., 0]).abs()
    bound = torch.where(used, (rest - alpha).abs(), rest - alpha)
    crossing = used & (exact.sign() != sign)
    done = ((bound <= alpha * _TOLERANCE) & ~crossing).all(1)
    way = torch.where(crossing, weight / torch.where(crossing, weight - exact, 1.0), 1.0)
    step = way.amin(1, keepdim=True)
    moved = torch.where(crossing & (way == step), 0.0, weight + step * (exact - weight))
    # Features that depend on each other may have no exact weights, or only what rounding makes of them.
    return torch.where(exact.isfinite().all(1, keepdim=True), moved, weight), done
