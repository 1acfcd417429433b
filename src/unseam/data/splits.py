"""Disjoint parts of a data set, as a function of its size and a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

__all__ = ["split"]


def split(n: int, fractions: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int = 0) -> tuple[Tensor, ...]:
    """Cut a seeded permutation of ``n`` items into parts of the given fractions.

    Part i holds the permuted items from round(n Σ_{j<i} f_j) to round(n Σ_{j≤i} f_j), so sizes add up to n
    exactly. The default is rolinek2019 Suppl. 8: 80 / 10 / 10.

    Args:
        n: number of items.
        fractions: fraction of each part f, non-negative, adding up to 1.
        seed: seed of the permutation; nothing else enters it.

    Returns:
        One int64 index tensor per fraction, on the host.

    >>> [len(part) for part in split(1001)]
    [801, 100, 100]
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    if not fractions or min(fractions) < 0 or not math.isclose(sum(fractions), 1.0, abs_tol=1e-9):
        raise ValueError(f"fractions must be non-negative and add up to 1, got {tuple(fractions)}")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    bounds = [0, *(round(n * sum(fractions[: i + 1])) for i in range(len(fractions) - 1)), n]
    return tuple(order[start:stop] for start, stop in pairwise(bounds))
