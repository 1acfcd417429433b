"""Gradient-boosted trees, one model per factor: scikit-learn's, and the same algorithm on tensors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import accumulate, pairwise
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from unseam.metrics._inputs import map_members

__all__ = ["Boosted", "boost_binned", "boost_exact"]

Array = NDArray[Any]


class Boosted(NamedTuple):
    """Importances and predictions of boosted trees, one model per factor."""

    importance: Tensor
    """Summed decrease of squared error (variant, member, latent, factor), columns of sum 1, or 0 where no
    tree splits; first with all points, then without each group of training points, the trees unchanged."""
    predicted: Tensor
    """Class or value (member, point, factor), float64."""


def boost_exact(
    codes: Tensor,
    targets: Tensor,
    discrete: Sequence[bool],
    groups: Tensor,
    *,
    rounds: int = 100,
    depth: int = 3,
    rate: float = 0.1,
    workers: int | None = None,
) -> Boosted:
    """scikit-learn's boosting, with the arguments and results of :func:`boost_binned`.

    Factors are fitted in parallel by as many threads as there are processors. Threads, not processes: trees are grown
    without the interpreter's lock, codes are not copied, and nothing is left behind after an interrupt.
    """
    options = {"n_estimators": rounds, "max_depth": depth, "learning_rate": rate, "random_state": 0}
    tasks = [
        _Task(table, column, is_discrete, groups.cpu().numpy(), options)
        for table in codes.cpu().numpy()
        for column, is_discrete in zip(targets.cpu().numpy().T, discrete, strict=True)
    ]
    found = _fit_all(tasks, workers or _processors())
    shape = (len(codes), len(discrete))
    importance = torch.stack([torch.from_numpy(part) for part, _ in found]).unflatten(0, shape)
    predicted = torch.stack([torch.from_numpy(part) for _, part in found]).unflatten(0, shape)
    return Boosted(importance.permute(2, 0, 3, 1).to(codes.device), predicted.mT.to(codes.device))


def boost_binned(
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
    round one tree per class (a single one for two classes or a continuous factor) is grown on the residuals
    :math:`r = y - p`, each node split where the squared error falls most, and a leaf adds

    .. math:: \text{rate} \cdot \frac{K - 1}{K} \frac{\sum r}{\sum |r| (1 - |r|)}

    (for two classes without :math:`(K - 1) / K`, for a continuous factor the mean residual). What differs is the
    search: splits between bins are all tried, those between neighbouring values only in the bins that promise most.
    With no more distinct values than bins, or all bins searched, the trees are the same up to equally good splits.
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
        rounds: trees per class.
        depth: splits from root to leaf.
        rate: learning rate.
    """
    train, count = len(groups), int(groups.max()) + 1
    heads = _heads(targets[:train], discrete, codes.dtype)
    start = torch.cat([head.start for head in heads])
    shrink = torch.cat([head.start.new_full((head.trees,), head.shrink) for head in heads])
    ends = [0, *accumulate(head.trees for head in heads)]
    # Each factor's trees among all trees.
    slices = [slice(low, high) for low, high in pairwise(ends)]

    def boost(codes: Tensor) -> tuple[Tensor, Tensor]:
        """Importances (variant, member, latent, factor) and predictions (member, point, factor) of some members."""
        member, points, latent = codes.shape
        table = _sort(codes, train, bins)
        raw = start[None, :, None].repeat(member, 1, points)
        total = codes.new_zeros((count + 1, member, len(start), latent), dtype=torch.float64)
        generator = torch.Generator().manual_seed(0)
        for _ in range(rounds if len(start) else 0):
            parts = [head.gradient(raw[:, s, :train]) for head, s in zip(heads, slices, strict=True)]
            residual, curvature = (torch.cat(part, 1) for part in zip(*parts, strict=True))
            leaf, splits = _grow(residual, table, depth=depth, candidates=candidates, generator=generator)
            leaf = leaf.long()
            cell = torch.add(groups, leaf[..., :train], alpha=count)
            empty = residual.new_zeros((*residual.shape[:2], 2**depth * count))
            sums, curvatures, numbers = (
                empty.scatter_add(2, cell, value).double().unflatten(2, (-1, count))
                for value in (residual, curvature, torch.ones_like(residual))
            )
            value = rate * _ratio(sums.sum(3), curvatures.sum(3)) * shrink[:, None].double()
            raw += value.to(raw.dtype).gather(2, leaf)
            total += _credit_codes(sums, numbers, splits, latent)
        importance = torch.stack([total[:, :, s].sum(2) for s in slices], -1)
        predicted = [head.predict(raw[:, s]) for head, s in zip(heads, slices, strict=True)]
        return _ratio(importance, importance.sum(2, keepdim=True)), torch.stack(predicted, -1)

    # Residuals, curvatures, masks, transposed copies and 64-bit addresses: about 30 numbers per point and tree.
    found = map_members(codes, 30 * codes.shape[1] * max(1, len(start)), boost)
    importances, predictions = zip(*found, strict=True)
    return Boosted(torch.cat(importances, 1), torch.cat(predictions))


class _Task(NamedTuple):
    """One factor of one member, and the options of its model."""

    codes: Array
    target: Array
    discrete: bool
    groups: Array
    options: dict[str, Any]

    @property
    def trees(self) -> int:
        """Trees per round, at most."""
        return len(np.unique(self.target)) if self.discrete else 1


def _processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _fit_all(tasks: Sequence[_Task], workers: int) -> list[tuple[Array, Array]]:
    """Results of :func:`_fit` for every task, by so many threads."""
    if workers == 1:
        return [_fit(task) for task in tasks]
    stop = Event()

    def unless_stopped(*_: object) -> None:
        if stop.is_set():
            raise CancelledError

    with ThreadPoolExecutor(workers) as pool:
        # The tasks with most trees per round first, so that threads finish at about the same time.
        order = sorted(range(len(tasks)), key=lambda place: -tasks[place].trees)
        found = {place: pool.submit(_fit, tasks[place], unless_stopped) for place in order}
        try:
            for one in as_completed(found.values()):
                one.result()
            return [found[place].result() for place in range(len(tasks))]
        finally:
            # After a failure or an interrupt the other models stop at the end of their round.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _fit(task: _Task, monitor: Callable[..., None] | None = None) -> tuple[Array, Array]:
    """Importances (variant, latent) and predictions (point,) of one factor."""
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    train = len(task.groups)
    x, y = task.codes[:train], task.target[:train]
    if (y == y[0]).all():
        return np.zeros((int(task.groups.max()) + 2, x.shape[1])), np.full(len(task.codes), y[0])
    model: Any = GradientBoostingClassifier if task.discrete else GradientBoostingRegressor
    model = model(**task.options).fit(x, y, monitor=monitor)
    importance = _importances(model, x, y, task)
    # Splits that gain nothing come out a rounding error below 0; the study takes absolute values too.
    importance[0] = np.abs(model.feature_importances_)
    return importance, model.predict(task.codes).astype(np.float64)


def _importances(model: Any, x: Array, y: Array, task: _Task) -> Array:
    """Importances (variant, latent): with all points, then without each group of them, the trees unchanged."""
    rows = np.ascontiguousarray(x, dtype=np.float32)
    groups = int(task.groups.max()) + 1
    total = np.zeros((groups + 1, x.shape[1]))
    # The residuals after the last round are no tree's.
    for trees, residual in zip(model.estimators_, _residuals(model, x, y, task.discrete), strict=False):
        for column, tree in zip(residual.T, trees, strict=True):
            _credit(total, tree.tree_, tree.tree_.apply(rows), column, task.groups, groups)
    sums = total.sum(1, keepdims=True)
    return np.divide(total, sums, out=np.zeros_like(total), where=sums > 0)


def _residuals(model: Any, x: Array, y: Array, discrete: bool) -> Iterator[Array]:
    """What each round's trees were fitted to (train, tree)."""
    from scipy.special import expit, log_softmax

    if not discrete:
        yield (y - y.mean())[:, None]
        for raw in model.staged_predict(x):
            yield (y - raw)[:, None]
        return
    hot = (y[:, None] == model.classes_).astype(np.float64)
    share = hot.mean(0)
    if len(share) == 2:
        yield hot[:, 1:] - share[1]
        for raw in model.staged_decision_function(x):
            yield hot[:, 1:] - expit(raw).reshape(-1, 1)
        return
    yield hot - share
    for raw in model.staged_decision_function(x):
        yield hot - np.exp(log_softmax(raw, axis=1))


def _credit(total: Array, tree: Any, leaf: Array, residual: Array, group: Array, groups: int) -> None:
    """Add to each code's importance what its splits in one tree lower the squared error."""
    cell, shape = leaf * groups + group, (tree.node_count, groups)
    sums = np.bincount(cell, residual, minlength=shape[0] * groups).reshape(shape)
    counts = np.bincount(cell, minlength=shape[0] * groups).reshape(shape).astype(np.float64)
    left, right = tree.children_left, tree.children_right
    split = np.flatnonzero(left >= 0)
    for node in split[::-1]:  # children come after their parents
        sums[node] = sums[left[node]] + sums[right[node]]
        counts[node] = counts[left[node]] + counts[right[node]]
    sums, counts = (np.c_[part.sum(1), part.sum(1, keepdims=True) - part] for part in (sums, counts))
    # Squared sums over numbers: a node's squared error is the sum of squares less this.
    explained = sums**2 / np.maximum(counts, 1)
    decrease = explained[left[split]] + explained[right[split]] - explained[split]
    np.add.at(total.T, tree.feature[split], np.maximum(decrease, 0))


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

    def predict(self, raw: Tensor) -> Tensor:
        """Class or value (member, point)."""
        if self.classes is None:
            return raw[:, 0].double() * self.spread
        if self.trees == 0:
            return self.classes[0].expand(raw.shape[0], raw.shape[2])
        return self.classes[raw.argmax(1) if self.trees > 1 else (raw[:, 0] > 0).long()]


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


def _credit_codes(sums: Tensor, counts: Tensor, splits: Sequence[_Split], latent: int) -> Tensor:
    """Decrease of squared error (variant, member, tree, latent) that each code's splits bring."""
    found = _decreases(sums, counts)
    credit = found[0].new_zeros((*sums.shape[:2], latent, sums.shape[3] + 1))
    for decrease, split in zip(found, splits, strict=True):
        index = split.code.mT[..., None].expand_as(decrease)
        credit.scatter_add_(2, index, decrease)
    return credit.permute(3, 0, 1, 2)


def _decreases(sums: Tensor, counts: Tensor) -> list[Tensor]:
    """Decrease of squared error at the nodes of complete trees, level by level from the root.

    Args:
        sums: residuals (..., leaf, group), summed by leaf and group of points.
        counts: numbers of points, likewise.

    Returns:
        For each level (..., node, variant): with all points, then without each group.
    """
    total, number = (
        torch.cat([x.sum(-1, keepdim=True), x.sum(-1, keepdim=True) - x], -1) for x in (sums, counts)
    )
    found: list[Tensor] = []
    while total.shape[-2] > 1:
        parts = _ratio(total.square(), number).unflatten(-2, (-1, 2)).sum(-2)
        total, number = (x.unflatten(-2, (-1, 2)).sum(-2) for x in (total, number))
        found.insert(0, (parts - _ratio(total.square(), number)).clamp(min=0))
    return found


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Quotient, 0 where nothing is below."""
    empty = below.abs() < 1e-150
    return torch.where(empty, 0.0, above / torch.where(empty, 1.0, below))


class _Split(NamedTuple):
    """Where nodes are split, each (member, node, tree)."""

    code: Tensor
    rank: Tensor
    """Largest rank that goes left."""


class _Codes(NamedTuple):
    """The values of each code in order, cut into bins."""

    ranks: Tensor
    """How many splits between neighbouring training values lie below each value (member, latent, point)."""
    packed: Tensor
    """Training points by value, times 2, plus 1 if the next value is larger (member, latent, train)."""
    starts: Tensor
    """Where each bin begins among the sorted values, and where the last one ends (member, latent, bin + 1)."""
    bags: Tensor
    """Rows (member · latent · train) of a table (member · train, ...), bin after bin."""
    offsets: Tensor
    """Where each bin begins in them (member · latent · bin)."""
    mixed: Tensor
    """Whether a bin has values to split between (member, latent, bin)."""
    width: int
    """Most points in a bin that is searched."""


def _sort(codes: Tensor, train: int, bins: int) -> _Codes:
    """Codes (member, point, latent), the first points to train on, sorted and cut into bins."""
    columns = codes.mT.contiguous()
    ordered, order = columns[..., :train].sort(dim=-1, stable=True)
    low, high = ordered[..., :-1], ordered[..., 1:]
    middle = low + (high - low) / 2
    ranks = torch.searchsorted(torch.where(middle >= high, low, middle), columns)
    starts = _starts(ordered, bins)
    new = ordered.diff(dim=-1) > 0
    ends = torch.nn.functional.pad(new, (0, 1))
    distinct = torch.nn.functional.pad(new.cumsum(-1), (1, 0))
    sizes = starts.diff(dim=-1)
    last = (starts[..., 1:] - 1).clamp(min=0)
    # Bins of one value need no search, and oversized ones would slow down all others.
    mixed = distinct.gather(-1, last) > distinct.gather(-1, starts[..., :-1].clamp(max=train - 1))
    mixed &= (sizes > 1) & (sizes <= 4 * (train // bins + 1))
    width = int(torch.where(mixed, sizes, 0).max())
    member, latent = columns.shape[:2]
    row = train * torch.arange(member * latent, device=codes.device).view(member, latent, 1)
    table = train * torch.arange(member, device=codes.device).view(member, 1, 1)
    return _Codes(
        ranks.to(torch.int16 if train < 2**15 else torch.int32),
        2 * order + ends,
        starts,
        (order + table).flatten().int(),
        (starts[..., :-1] + row).flatten().int(),
        mixed,
        width,
    )


def _starts(ordered: Tensor, bins: int) -> Tensor:
    """Where bins begin among sorted values, and where the last one ends (member, latent, bins + 1).

    A bin for each distinct value where there are no more than bins, else bins of equal size as far as equal values
    stay together; empty bins at the end where there are fewer.
    """
    train = ordered.shape[-1]
    place = torch.arange(train, device=ordered.device)
    new = torch.zeros_like(ordered, dtype=torch.bool)
    new[..., 1:] = ordered.diff(dim=-1) > 0
    begins = torch.where(new, place, train)
    following = begins.flip(-1).cummin(-1).values.flip(-1)
    quantile = (torch.arange(1, bins, device=ordered.device) * train / bins).round().long()
    at_quantiles = following[..., quantile.clamp(max=train - 1)]
    at_values = begins.sort(-1).values[..., : bins - 1]
    at_values = torch.nn.functional.pad(at_values, (0, bins - 1 - at_values.shape[-1]), value=train)
    inner = torch.where(new.sum(-1, keepdim=True) < bins, at_values, at_quantiles)
    ends = torch.nn.functional.pad(inner, (0, 1), value=train)
    return torch.nn.functional.pad(ends, (1, 0), value=0)


def _grow(
    residual: Tensor, codes: _Codes, *, depth: int, candidates: int, generator: torch.Generator
) -> tuple[Tensor, list[_Split]]:
    """Trees grown on residuals, each node split where the squared error falls most.

    Args:
        residual: (member, tree, train).
        codes: the sorted values.
        depth: splits from root to leaf.
        candidates: bins, over all codes, that are searched value by value for each node.
        generator: draws among codes whose splits are equally good, the same for all members.

    Returns:
        The leaf of every point in every tree (member, tree, point), and the splits level by level.
    """
    member, latent, points = codes.ranks.shape
    trees, train = residual.shape[1:]
    leaf = torch.zeros((member, trees, points), dtype=torch.uint8, device=residual.device)
    offset = latent * torch.arange(member, device=residual.device)[:, None]
    rows = residual.mT.contiguous()
    inside, splits = [torch.ones_like(leaf)], []
    tables = _tables(rows, None, codes)
    for level in range(depth):
        split = _best(tables, residual, inside, codes, candidates, _favour(tables.sums, generator))
        splits.append(split)
        leaf *= 2
        # Small integers throughout, and written in place: what a processor compares and sums fastest.
        children = []
        for node, left in enumerate(inside):
            chosen = (split.code[:, node] + offset).flatten()
            found = codes.ranks.flatten(0, 1).index_select(0, chosen).view(leaf.shape)
            torch.gt(found, split.rank[:, node, :, None], out=found)
            right = found.to(torch.uint8)
            right &= left
            left ^= right
            leaf += right
            children += [left, right]
        inside = children
        if level + 1 < depth:
            below = [_tables(rows, left[..., :train], codes) for left in inside[::2]]
            lower = _Tables(*(torch.cat(part, 1) for part in zip(*below, strict=True)))
            tables = _Tables(
                *(
                    torch.stack([part, all_ - part], 2).flatten(1, 2)
                    for part, all_ in zip(lower, tables, strict=True)
                )
            )
    return leaf, splits


class _Tables(NamedTuple):
    """Histograms of nodes, each (member, node, latent, bin, tree)."""

    sums: Tensor
    counts: Tensor
    peaks: Tensor
    """Sums of the positive residuals alone."""


def _tables(rows: Tensor, inside: Tensor | None, codes: _Codes) -> _Tables:
    """Histograms of residuals (member, train, tree), those inside a node only."""
    shape = (*codes.mixed.shape, -1)

    def by_bin(table: Tensor) -> Tensor:
        return embedding_bag(codes.bags, table.flatten(0, 1), codes.offsets, mode="sum").view(shape)[:, None]

    if inside is None:
        sums, counts = by_bin(rows), by_bin(torch.ones_like(rows[..., :1]))
        return _Tables(sums, counts.expand_as(sums), by_bin(rows.clamp(min=0)))
    mask = torch.empty_like(rows).copy_(inside.mT)
    counts = by_bin(mask)
    sums = by_bin(mask.mul_(rows))
    return _Tables(sums, counts, by_bin(mask.clamp_(min=0)))


def _gain(moved: Tensor, few: Tensor, number: Tensor) -> Tensor:
    r"""Decrease of squared error by a split, over the number N of points in the node.

    .. math:: \frac{(s - n_l \bar r)^2}{n_l (N - n_l)}, \qquad s = \sum_{i \in \text{left}} r_i

    Args:
        moved: :math:`s - n_l \bar r`, 0 where all or nothing is on the left.
        few: number :math:`n_l` on the left.
        number: N.
    """
    return moved.square().div_((number - few).mul_(few).clamp_(min=0.5))


def _favour(sums: Tensor, generator: torch.Generator) -> Tensor:
    """Factors (1, node, latent, 1, tree) a few roundings above 1, that decide between gains which are equal."""
    _, node, latent, _, tree = sums.shape
    drawn = torch.rand(node, latent, 1, tree, generator=generator, device=generator.device, dtype=sums.dtype)
    return (1 + 32 * torch.finfo(sums.dtype).eps * drawn)[None].to(sums.device)


def _best(
    tables: _Tables,
    residual: Tensor,
    inside: Sequence[Tensor],
    codes: _Codes,
    candidates: int,
    favour: Tensor,
) -> _Split:
    """The split of each node that lowers the squared error most; where none does, it does no harm.

    First between bins, then value by value inside the bins in which most could be gained: if all that is
    positive came before all that is not, or after it.
    """
    sums, counts, peaks = tables
    number = counts[:, :, :1].sum(3, keepdim=True)
    mean = sums[:, :, :1].sum(3, keepdim=True) / number.clamp(min=1)
    few = counts.cumsum(3)
    moved = torch.addcmul(sums, counts, mean, value=-1)
    after = moved.cumsum(3)
    bins = sums.shape[3]
    most, place = _gain(after, few, number).mul_(favour).flatten(2, 3).max(2)
    code, bin_ = place // bins, place % bins
    edge = (code * (bins + 1) + bin_ + 1).flatten(1)
    rank = codes.starts.flatten(1).gather(1, edge).view_as(code) - 1
    candidates = min(candidates, int(codes.mixed.shape[1]) * bins)
    if candidates > 0 and codes.width > 0:
        high = torch.minimum(peaks, counts)
        rise = torch.addcmul(peaks, high, mean, value=-1)
        before, fewer = after - moved, few - counts
        bound = torch.maximum(
            _gain(before + rise, fewer + high, number), _gain(after - rise, few - high, number)
        )
        bound.masked_fill_(~codes.mixed[:, None, :, :, None], -1.0)
        cells = bound.flatten(2, 3).mT.topk(candidates, sorted=False).indices
        starts = [part.flatten(2, 3).mT.gather(3, cells) for part in (before, fewer)]
        wholes = [part[:, :, 0, 0, :, None, None] for part in (mean, number)]
        found = [
            _search_bins(
                cells[:, node],
                [part[:, node] for part in starts],
                [part[:, node] for part in wholes],
                favour[0, node, :, 0],
                residual,
                mask,
                codes,
            )
            for node, mask in enumerate(inside)
        ]
        finer, its_code, its_rank = (torch.stack(part, 1) for part in zip(*found, strict=True))
        better = finer > most
        code, rank = torch.where(better, its_code, code), torch.where(better, its_rank, rank)
    return _Split(code, rank.to(codes.ranks.dtype))


def _search_bins(
    cells: Tensor,
    starts: Sequence[Tensor],
    wholes: Sequence[Tensor],
    favour: Tensor,
    residual: Tensor,
    inside: Tensor,
    codes: _Codes,
) -> tuple[Tensor, Tensor, Tensor]:
    """Best split of one node value by value inside some bins: its gain, code and rank (member, tree).

    Args:
        cells: bins (member, tree, candidate) to search, latent · bin.
        starts: what is moved, and the number of points (member, tree, candidate), before each.
        wholes: mean and number (member, tree, 1, 1) of the node.
        favour: factor (latent, tree) of a code's gains.
        residual: (member, tree, train).
        inside: whether a point lies in the node (member, tree, point).
        codes: the sorted values.
    """
    code = cells // codes.mixed.shape[2]
    edge = (cells + code).flatten(1)  # a row of starts has one more than there are bins
    first, end = (codes.starts.flatten(1).gather(1, edge + more).view_as(cells) for more in (0, 1))
    place = first[..., None] + torch.arange(codes.width, device=cells.device)
    valid = (place < end[..., None]).to(residual.dtype)
    # Beyond the bin nothing is added, and the split stays at its end.
    place = torch.minimum(place, end[..., None] - 1).clamp_(min=0)
    address = place + (code * residual.shape[2])[..., None]
    packed = codes.packed.flatten(1).gather(1, address.flatten(1))
    point = (packed >> 1).view(*residual.shape[:2], -1)
    here = inside.gather(2, point).view_as(place).to(residual.dtype).mul_(valid)
    values = residual.gather(2, point).view_as(place).sub_(wholes[0]).mul_(here)
    few = here.cumsum(-1).add_(starts[1][..., None])
    gain = _gain(values.cumsum(-1).add_(starts[0][..., None]), few, wholes[1])
    # Only before a larger value can a split stand.
    stands = packed.bitwise_and_(1).to(residual.dtype).view_as(place)
    factor = favour.T.expand(len(code), -1, -1).gather(2, code)
    most, best = gain.mul_(stands).mul_(factor[..., None]).flatten(2).max(2)
    its_code = code.gather(2, best[..., None] // codes.width)[..., 0]
    its_rank = place.flatten(2).gather(2, best[..., None])[..., 0]
    return most, its_code, its_rank
