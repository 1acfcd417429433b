"""Nearest neighbours in one dimension, by sorting."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["most_common", "nearest"]


def nearest(train: Tensor, test: Tensor, count: int) -> Tensor:
    """The training values nearest to each test value, for many lists of values at once.

    In sorted values the neighbours are a window, found by bisection: no distance matrix is built. Of values
    equally far away the smaller one is nearer, of equal values the earlier one.

    Args:
        train: (..., train).
        test: (..., test).
        count: number k of neighbours, at most as many as training values.

    Returns:
        Places (..., test, k) in the list of training values.
    """
    ordered, order = train.contiguous().sort(dim=-1, stable=True)
    place = torch.searchsorted(ordered, test.contiguous())
    last = train.shape[-1] - count
    low, high = (place - count).clamp(0, last), place.clamp(0, last)
    for _ in range(count.bit_length()):
        middle = (low + high) // 2
        below = test - ordered.gather(-1, middle)
        above = ordered.gather(-1, (middle + count).clamp(max=train.shape[-1] - 1)) - test
        right = (below > above) & (low < high)
        low, high = torch.where(right, middle + 1, low), torch.where(right, high, middle)
    window = low[..., None] + torch.arange(count, device=train.device)
    return order.gather(-1, window.flatten(-2)).unflatten(-1, (-1, count))


def most_common(labels: Tensor) -> Tensor:
    """The most frequent of the labels (..., k), not negative, the smallest of those equally frequent."""
    ordered = labels.sort(-1).values
    alike = (ordered[..., :, None] == ordered[..., None, :]).sum(-1)
    # The first of the largest: labels are sorted.
    return ordered.gather(-1, alike.argmax(-1, keepdim=True))[..., 0]
