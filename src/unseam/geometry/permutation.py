"""The closest signed permutation of a matrix, by exact assignment for a whole batch."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from math import comb

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unseam.geometry.checks import check_square
from unseam.inputs import Array

__all__ = ["signed_permutation"]

# Up to here the table over subsets of columns, for all matrices at once, is fastest; beyond, it grows as 2^latent, and
# a processor is faster with SciPy's assignment matrix by matrix than with bids and paths for all of them at once.
_MOST_LATENTS_BY_SUBSETS = {"cpu": 6, "cuda": 12}

# Numbers of the table over subsets that are held at once: 64 MB on a processor, 512 MB on a CUDA device.
_AT_ONCE = {"cpu": 2**23, "cuda": 2**26}


def signed_permutation(matrix: Array) -> Tensor:
    r"""Closest signed permutation of each matrix, found exactly.

    .. math:: P(V) = \arg\min_P \sum_{ij} |V_{ij} - P_{ij}|

    over matrices with one entry of ±1 in every row and column (rolinek2019 Eqs. S72–S75). Choosing entry
    (i, j) with the sign of V_ij costs :math:`1 - 2 \min(|V_{ij}|, 1)` more than leaving it out, so the mixed
    integer programme is a linear assignment: P maximises :math:`\sum \min(|V_{ij}|, 1)` over permutations.
    For an orthogonal V it is also the closest in the Frobenius norm. A chosen entry that is zero counts as
    positive; among equally close permutations one is returned, the same for the same matrix.

    Args:
        matrix: V (..., latent, latent), usually right singular vectors in columns.

    Returns:
        P (..., latent, latent), entries -1, 0 and 1, in the type of ``matrix``.

    >>> signed_permutation(torch.tensor([[0.6, -0.8], [0.8, 0.6]]))
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    given = check_square("matrix", matrix)
    latent = given.shape[-1]
    weight = given.abs().clamp(max=1.0).reshape(-1, latent, latent).double()
    by_subsets = latent <= _MOST_LATENTS_BY_SUBSETS.get(weight.device.type, 6)
    solve = _by_subsets if by_subsets else _by_bids if weight.is_cuda else _by_scipy
    # half of the columns are taken in the widest row of the table, by any of them last
    numbers = comb(latent, latent // 2) * ((latent + 1) // 2) if by_subsets else latent**2
    parts = weight.split(max(1, _AT_ONCE.get(weight.device.type, 2**23) // numbers))
    columns = torch.cat([solve(part) for part in parts]).view(given.shape[:-1])
    signs = torch.where(given < 0, -1.0, 1.0).to(given.dtype)
    chosen = columns.unsqueeze(-1)
    return torch.zeros_like(given).scatter(-1, chosen, signs.gather(-1, chosen))


def _by_subsets(weight: Tensor) -> Tensor:
    """Column of each row (batch, latent) by Bellman's recursion over the sets of columns that k rows take."""
    batch, latent, _ = weight.shape
    rows = weight.permute(1, 2, 0).contiguous()
    layers = _subsets(latent, weight.device)
    best, choices = weight.new_zeros(1, batch), []
    for row, (before, item) in zip(rows, layers, strict=True):
        best, choice = (best[before] + row[item]).max(1)
        choices.append(choice)
    problem = torch.arange(batch, device=weight.device)
    subset = torch.zeros_like(problem)
    columns = []
    for (before, item), choice in zip(reversed(layers), reversed(choices), strict=True):
        last = choice[subset, problem]
        columns.append(item[subset, last])
        subset = before[subset, last]
    return torch.stack(columns[::-1], dim=1)


@cache
def _subsets(latent: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """For k = 1, ..., latent: members of each subset of size k, and where the subset without each stands."""
    layers: list[tuple[Tensor, Tensor]] = []
    place: dict[tuple[int, ...], int] = {(): 0}
    for size in range(1, latent + 1):
        subsets = list(combinations(range(latent), size))
        before = [[place[subset[:k] + subset[k + 1 :]] for k in range(size)] for subset in subsets]
        layers.append((torch.tensor(before, device=device), torch.tensor(subsets, device=device)))
        place = {subset: index for index, subset in enumerate(subsets)}
    return layers


def _by_scipy(weight: Tensor) -> Tensor:
    """Column of each row (batch, latent), one matrix after the other on the host."""
    from scipy.optimize import linear_sum_assignment  # a fifth of a second to import

    found = [linear_sum_assignment(one, maximize=True)[1] for one in weight.cpu().numpy()]
    return torch.from_numpy(np.array(found, dtype=np.int64)).to(weight.device)


def _by_bids(weight: Tensor) -> Tensor:
    """Column of each row (batch, latent), all matrices at once: an auction, then shortest augmenting paths.

    A row without a column bids for the one where weight less price is largest, up to what makes its second choice as
    good; the highest bid takes the column. Every row that holds a column thus holds one that is best at the current
    prices, so that augmenting paths complete the assignment exactly (Jonker and Volgenant 1987, with bids in parallel).
    The index ``latent`` stands for no row and for no column.
    """
    batch, latent, _ = weight.shape
    rows = torch.arange(latent, device=weight.device).expand(batch, latent)
    price = torch.zeros_like(weight[:, 0])
    owner, held = torch.full_like(rows, latent), torch.full_like(F.pad(rows, (0, 1)), latent)
    for _ in range(latent):
        free = held[:, :-1] == latent
        best, wanted = (weight - price[:, None]).max(2)
        second = (weight - price[:, None]).scatter(2, wanted[..., None], -torch.inf).amax(2)
        bid = torch.where(free, price.gather(1, wanted) + best - second, -torch.inf)
        highest = torch.full_like(price, -torch.inf).scatter_reduce(1, wanted, bid, "amax")
        winner = torch.where(free & (bid == highest.gather(1, wanted)), rows, latent)
        taker = torch.full_like(owner, latent).scatter_reduce(1, wanted, winner, "amin")
        price = torch.where(taker < latent, highest, price)
        owner = torch.where(taker < latent, taker, owner)
        held = torch.full_like(held, latent).scatter(1, owner, rows)
    found, owner = held, F.pad(owner, (0, 1), value=latent)
    while len(left := (found == latent)[:, :-1].any(1).nonzero().squeeze(1)):
        found[left], owner[left], price[left] = _augment(weight[left], found[left], owner[left], price[left])
    return found[:, :-1]


def _augment(weight: Tensor, held: Tensor, owner: Tensor, price: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One more row and column assigned in each matrix, along a shortest path from any row without a column."""
    latent = weight.shape[1]
    profit = weight - price[:, None]
    slack = profit.amax(2, keepdim=True) - profit
    distance, before = torch.where((held[:, :-1] == latent)[..., None], slack, torch.inf).min(1)
    reached = torch.zeros_like(distance, dtype=torch.bool)
    while True:
        nearest, column = torch.where(reached, torch.inf, distance).min(1, keepdim=True)
        row = owner.gather(1, column)
        going = row < latent
        if not going.any():
            break
        reached |= going & (torch.arange(latent, device=column.device) == column)
        own = profit.gather(1, row.clamp(max=latent - 1)[..., None].expand(-1, 1, latent)).squeeze(1)
        through = nearest + own.gather(1, column) - own
        closer = going & ~reached & (through < distance)
        distance, before = torch.where(closer, through, distance), torch.where(closer, row, before)
    price = price + torch.where(reached, nearest - distance, 0.0)
    before = F.pad(before, (0, 1), value=latent)
    while bool((column < latent).any()):
        row = before.gather(1, column)
        following = held.gather(1, row)
        owner, held = owner.scatter(1, column, row), held.scatter(1, row, column)
        owner[:, latent], held[:, latent] = latent, latent
        column = following
    return held, owner, price
