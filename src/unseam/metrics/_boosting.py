"""Gradient-boosted trees on tensors, for all classes, factors and members at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.metrics._growing import Split, grow, sort
from unseam.metrics._members import per_chunk

__all__ = ["Boosted", "boost", "decreases"]


class Boosted(NamedTuple):
    """What boosted trees found, one model a factor."""

    importance: Tensor
    """Summed decrease of squared error (variant, member, latent, factor), a column's sum 1, or 0 where no
    tree splits; the first variant with all points, then without each group of training points, trees kept."""
    predicted: Tensor
    """Class or value (member, point, factor), float64."""


def boost(
    codes: Tensor,
    targets: Tensor,
    discrete: Sequence[bool],
    groups: Tensor,
    *,
    bins: int,
    candidates: int = 0,
    rounds: int = 100,
    depth: int = 3,
    rate: float = 0.1,
) -> Boosted:
    r"""Gradient boosting (Friedman 2001), splits searched in bins of each code first.

    The algorithm of scikit-learn's ``GradientBoostingClassifier`` and ``GradientBoostingRegressor``: in each
    round one tree a class (one in all for two classes or a continuous factor) is grown on the residuals
    :math:`r = y - p`, each node split where the squared error falls most, and a leaf adds

    .. math:: \text{rate} \cdot \frac{K - 1}{K} \frac{\sum r}{\sum |r| (1 - |r|)}

    (for two classes without :math:`(K - 1) / K`, for a continuous factor the mean residual). What differs is the
    search: splits between bins are all tried, those between neighbouring values only in the bins that promise most.
    With no more distinct values than bins, or all bins looked into, the trees are the same up to equally good splits.
    Among codes that can be split equally well one is drawn, as there, from a seed of its own.

    The residuals of all trees lie side by side, so that a code's histogram for all trees is a sum of rows by
    bin; a right child's histogram is its parent's less the left child's.

    Args:
        codes: (member, point, latent); the precision of the computation is theirs.
        targets: (point, factor), float64; the first points are for training, as many as ``groups`` has.
        discrete: which factors are classes.
        groups: group (train,) of every training point, from 0 without gaps.
        bins: bins of a code, at least 2.
        candidates: bins, over all codes, that are searched value by value for each node.
        rounds: trees a class.
        depth: splits from root to leaf.
        rate: learning rate.
    """
    train = len(groups)
    heads = _heads(targets[:train], discrete, codes.dtype)
    plan = _Plan(heads, groups, bins, candidates, rounds, depth, rate)
    trees = max(1, sum(head.trees for head in heads))
    # Residuals, curvatures, masks, transposed copies and 64-bit addresses: about 30 numbers a point and tree.
    found = per_chunk(codes, 30 * codes.shape[1] * trees, lambda part: _boost(part, plan))
    importances, predictions = zip(*found, strict=True)
    return Boosted(torch.cat(importances, 1), torch.cat(predictions))


@dataclass(frozen=True)
class _Head:
    """One factor's model: its trees are a slice of all trees."""

    classes: Tensor | None
    """Distinct values, or none for a continuous factor."""
    target: Tensor
    """What each tree is fitted to (tree, train)."""
    start: Tensor
    """Raw prediction before the first round (tree,)."""
    shrink: float
    """Factor of a leaf's value."""
    spread: float = 1.0
    """Unit of a continuous factor's raw predictions."""

    @property
    def trees(self) -> int:
        return len(self.start)

    def gradient(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Residual and curvature (member, tree, train) at raw predictions."""
        if self.classes is None:
            return self.target - raw, torch.ones_like(raw)
        probability = raw.softmax(1) if self.trees > 1 else raw.sigmoid()
        return self.target - probability, probability * (1 - probability)

    def predicted(self, raw: Tensor) -> Tensor:
        """Class or value (member, point)."""
        if self.classes is None:
            return raw[:, 0].double() * self.spread
        if self.trees == 0:
            return self.classes[0].expand(raw.shape[0], raw.shape[2])
        return self.classes[raw.argmax(1) if self.trees > 1 else (raw[:, 0] > 0).long()]


@dataclass(frozen=True)
class _Plan:
    """All that members share."""

    heads: Sequence[_Head]
    groups: Tensor
    bins: int
    candidates: int
    rounds: int
    depth: int
    rate: float

    @property
    def slices(self) -> list[slice]:
        """Each factor's trees among all trees."""
        ends = torch.tensor([0] + [head.trees for head in self.heads]).cumsum(0).tolist()
        return [slice(low, high) for low, high in pairwise(ends)]


def _heads(targets: Tensor, discrete: Sequence[bool], dtype: torch.dtype) -> list[_Head]:
    heads = []
    for column, is_discrete in zip(targets.T, discrete, strict=True):
        if not is_discrete:
            spread = float(column.std(correction=0)) or 1.0
            unit = (column / spread).to(dtype)[None]
            heads.append(_Head(None, unit, unit.mean(1), 1.0, spread))
            continue
        classes, which = torch.unique(column, return_inverse=True)
        count = len(classes)
        hot = torch.nn.functional.one_hot(which, count).T.to(dtype)
        share = hot.double().mean(1)
        if count == 1:
            heads.append(_Head(classes, hot[:0], share[:0].to(dtype), 1.0))
        elif count == 2:
            heads.append(_Head(classes, hot[1:], share[1:].logit().to(dtype), 1.0))
        else:
            heads.append(_Head(classes, hot, share.log().to(dtype), (count - 1) / count))
    return heads


def _boost(codes: Tensor, plan: _Plan) -> tuple[Tensor, Tensor]:
    """Importances (variant, member, latent, factor) and predictions (member, point, factor) of some members."""
    member, points, latent = codes.shape
    train = len(plan.groups)
    table = sort(codes, train, plan.bins)
    start = torch.cat([head.start for head in plan.heads])
    shrink = torch.cat([head.start.new_full((head.trees,), head.shrink) for head in plan.heads])
    raw = start[None, :, None].repeat(member, 1, points)
    groups = int(plan.groups.max()) + 1
    total = codes.new_zeros((groups + 1, member, len(start), latent), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for _ in range(plan.rounds if len(start) else 0):
        parts = [head.gradient(raw[:, s, :train]) for head, s in zip(plan.heads, plan.slices, strict=True)]
        residual, curvature = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        leaf, splits = grow(
            residual, table, depth=plan.depth, candidates=plan.candidates, generator=generator
        )
        leaf = leaf.long()
        cell = torch.add(plan.groups, leaf[..., :train], alpha=groups)
        sums = [
            _cells(value, cell, 2**plan.depth * groups).unflatten(2, (-1, groups))
            for value in (residual, curvature, torch.ones_like(residual))
        ]
        value = plan.rate * _ratio(sums[0].sum(3), sums[1].sum(3)) * shrink[:, None].double()
        raw += value.to(raw.dtype).gather(2, leaf)
        total += _credited(sums[0], sums[2], splits, latent)
    importance = torch.stack([total[:, :, s].sum(2) for s in plan.slices], -1)
    predicted = [head.predicted(raw[:, s]) for head, s in zip(plan.heads, plan.slices, strict=True)]
    return _ratio(importance, importance.sum(2, keepdim=True)), torch.stack(predicted, -1)


def _credited(sums: Tensor, counts: Tensor, splits: Sequence[Split], latent: int) -> Tensor:
    """Decrease of squared error (variant, member, tree, latent) that each code's splits bring."""
    found = decreases(sums, counts)
    credit = found[0].new_zeros((*sums.shape[:2], latent, sums.shape[3] + 1))
    for decrease, split in zip(found, splits, strict=True):
        index = split.code.mT[..., None].expand_as(decrease)
        credit.scatter_add_(2, index, decrease)
    return credit.permute(3, 0, 1, 2)


def decreases(sums: Tensor, counts: Tensor) -> list[Tensor]:
    """Decrease of squared error at the nodes of complete trees, level by level from the root.

    Args:
        sums: residuals (..., leaf, group), summed by leaf and group of points.
        counts: numbers of points, likewise.

    Returns:
        For each level (..., node, variant): with all points, then without each group.
    """
    total, number = (torch.cat([x.sum(-1, keepdim=True), _without(x)], -1) for x in (sums, counts))
    found: list[Tensor] = []
    while total.shape[-2] > 1:
        parts = _ratio(total.square(), number).unflatten(-2, (-1, 2)).sum(-2)
        total, number = (x.unflatten(-2, (-1, 2)).sum(-2) for x in (total, number))
        found.insert(0, (parts - _ratio(total.square(), number)).clamp(min=0))
    return found


def _without(parts: Tensor) -> Tensor:
    return parts.sum(-1, keepdim=True) - parts


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Quotient, 0 where nothing is below."""
    empty = below.abs() < 1e-150
    return torch.where(empty, 0.0, above / torch.where(empty, 1.0, below))


def _cells(value: Tensor, cell: Tensor, cells: int) -> Tensor:
    """Sums by cell (member, tree, cell), float64."""
    found = value.new_zeros((*value.shape[:2], cells))
    return found.scatter_add_(2, cell, value).double()
