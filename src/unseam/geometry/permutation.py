"""The closest signed permutation of a matrix, by exact assignment for a whole batch."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from math import comb
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry.checks import check_square

__all__ = ["signed_permutation"]

# Up to here the table over subsets is the fastest of three exact ways measured (table, all permutations as one
# product, augmenting paths); beyond it grows as 2^latent, the paths as latent^3. A CUDA device is fast at long
# tables and slow at many short steps.
_MOST_LATENTS_BY_SUBSETS = {"cpu": 6, "cuda": 12}

# Numbers of the table over subsets that are held at once: 64 MB on a processor, 512 MB on a CUDA device.
_AT_ONCE = {"cpu": 2**23, "cuda": 2**26}


def signed_permutation(matrix: Tensor | NDArray[Any]) -> Tensor:
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
    solve = _by_subsets if by_subsets else _by_augmenting_paths
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


def _by_augmenting_paths(weight: Tensor) -> Tensor:
    """Column of each row (batch, latent) by shortest augmenting paths (Jonker and Volgenant 1987).

    All problems take each step together; those whose path has ended wait. Column ``latent`` is where the
    path of the row to be placed begins, and row ``latent`` owns the columns that are still free.
    """
    batch, latent, _ = weight.shape
    problem = torch.arange(batch, device=weight.device)
    row_price, column_price = weight.new_zeros(2, batch, latent + 1)
    owner = torch.full((batch, latent + 1), latent, device=weight.device)
    for row in range(latent):
        owner[:, latent] = row
        column, came_from = _shortest_path(weight, problem, owner, row_price, column_price)
        while (moving := column < latent).any():
            previous = torch.where(moving, came_from[problem, column], latent)
            owner[problem, column] = torch.where(moving, owner[problem, previous], owner[problem, column])
            column = previous
    columns = torch.empty_like(owner)
    columns.scatter_(1, owner[:, :latent], torch.arange(latent, device=weight.device).expand(batch, latent))
    return columns[:, :latent]


def _shortest_path(
    weight: Tensor, problem: Tensor, owner: Tensor, row_price: Tensor, column_price: Tensor
) -> tuple[Tensor, Tensor]:
    """Free column at the end of each shortest path, and each column's predecessor; prices change in place."""
    batch, latent, _ = weight.shape
    column = torch.full_like(problem, latent)
    came_from = torch.full((batch, latent + 1), latent, device=weight.device)
    reach = weight.new_full((batch, latent + 1), torch.inf)
    visited = torch.zeros(batch, latent + 1, dtype=torch.bool, device=weight.device)
    visited[:, latent] = True
    row = owner[problem, column]
    while (searching := row < latent).any():
        at = row.clamp(max=latent - 1)
        reduced = -weight[problem, at] - row_price[problem, at, None] - column_price[:, :latent]
        reduced = torch.nn.functional.pad(reduced, (0, 1), value=torch.inf)
        closer = (reduced < reach) & ~visited & searching[:, None]
        reach = torch.where(closer, reduced, reach)
        came_from = torch.where(closer, column[:, None], came_from)
        step, nearest = torch.where(visited, torch.inf, reach).min(1)
        step = torch.where(searching, step, 0.0)[:, None]
        paid = torch.where(visited, step, 0.0)
        row_price.scatter_add_(1, owner, paid)
        column_price -= paid
        reach = torch.where(visited, reach, reach - step)
        column = torch.where(searching, nearest, column)
        row = owner[problem, column]
        visited[problem, column] |= row < latent
    return column, came_from
