"""Regression trees on residuals, grown for many targets at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

__all__ = ["Codes", "Split", "grow", "sort"]


class Split(NamedTuple):
    """Where nodes are split, each (member, node, tree)."""

    code: Tensor
    rank: Tensor
    """Largest rank that goes left."""


class Codes(NamedTuple):
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
    """Most points in a bin that is looked into."""


def sort(codes: Tensor, train: int, bins: int) -> Codes:
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
    # Bins of ever the same value need no look inside, and oversized ones would make all others slow.
    mixed = distinct.gather(-1, last) > distinct.gather(-1, starts[..., :-1].clamp(max=train - 1))
    mixed &= (sizes > 1) & (sizes <= 4 * (train // bins + 1))
    width = int(torch.where(mixed, sizes, 0).max())
    member, latent = columns.shape[:2]
    row = train * torch.arange(member * latent, device=codes.device).view(member, latent, 1)
    table = train * torch.arange(member, device=codes.device).view(member, 1, 1)
    return Codes(
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


def grow(
    residual: Tensor, codes: Codes, *, depth: int, candidates: int, generator: torch.Generator
) -> tuple[Tensor, list[Split]]:
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


def _tables(rows: Tensor, inside: Tensor | None, codes: Codes) -> _Tables:
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
    codes: Codes,
    candidates: int,
    favour: Tensor,
) -> Split:
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
            _inside(
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
    return Split(code, rank.to(codes.ranks.dtype))


def _inside(
    cells: Tensor,
    starts: Sequence[Tensor],
    wholes: Sequence[Tensor],
    favour: Tensor,
    residual: Tensor,
    inside: Tensor,
    codes: Codes,
) -> tuple[Tensor, Tensor, Tensor]:
    """Best split of one node value by value inside some bins: its gain, code and rank (member, tree).

    Args:
        cells: bins (member, tree, candidate) to look into, latent · bin.
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
