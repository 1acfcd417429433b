"""Covariances, correlations and ranks, of all points and without each group of them."""

from __future__ import annotations

import torch
from torch import Tensor

from unseam.metrics._tables import Grouping

__all__ = ["correlation", "covariance", "ranks"]


def covariance(values: Tensor, grouped: Grouping) -> Tensor:
    """Population covariances (1 + group, member, column, column) of values (member, batch, column), float64.

    One pass: products are summed group by group, and what is left without a group is the total less its own.
    A column that is constant, or is so up to rounding without a group, has covariance 0 with all.
    """
    given = values.index_select(1, grouped.order).double()
    constant = given.amax(1, keepdim=True) == given.amin(1, keepdim=True)
    # About the mean of all, so that the differences of sums below cancel nothing.
    given = torch.where(constant, 0.0, given - given.mean(1, keepdim=True))
    counts = torch.bincount(grouped.of, minlength=max(grouped.groups, 1)).tolist()
    sums, products = [], []
    for part in given.split(counts, 1):
        sums.append(part.sum(1))
        products.append(part.mT @ part)
    total, square = _less_each(torch.stack(sums), grouped), _less_each(torch.stack(products), grouped)
    count = grouped.sizes.clamp(min=1)[:, None, None]
    mean = total / count
    found = square / count[..., None] - mean[..., :, None] * mean[..., None, :]
    spread = found.diagonal(dim1=-2, dim2=-1)
    live = spread > spread[:1] * given.shape[1] * torch.finfo(found.dtype).eps
    return torch.where(live[..., :, None] & live[..., None, :], found, 0.0)


def correlation(given: Tensor) -> Tensor:
    """Correlations of covariances (..., column, column); 0 with a column that has no variance, itself too."""
    spread = given.diagonal(dim1=-2, dim2=-1).clamp(min=0)
    scale = torch.where(spread > 0, spread, 1.0).rsqrt()
    return (given * scale[..., :, None] * scale[..., None, :]).clamp(-1, 1)


def ranks(values: Tensor, keep: Tensor) -> Tensor:
    """Ranks (subset, ..., batch) of values (..., batch) among each subset (subset, batch); ties share the mean.

    Points outside a subset rank as they would inside it; sorted once for all subsets.
    """
    ordered, order = values.sort(-1)
    place = torch.arange(values.shape[-1], device=values.device).expand_as(order)
    rises = torch.ones_like(ordered, dtype=torch.bool)
    rises[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    first = torch.where(rises, place, 0).cummax(-1).values
    falls = rises.roll(-1, -1)
    falls[..., -1] = True
    last = torch.where(falls, place, values.shape[-1]).flip(-1).cummin(-1).values.flip(-1) + 1
    found = []
    for stays in keep:
        below = torch.nn.functional.pad(stays[order].long().cumsum(-1), (1, 0))
        rank = (below.gather(-1, first) + below.gather(-1, last) + 1).double() / 2
        found.append(torch.empty_like(rank).scatter_(-1, order, rank))
    return torch.stack(found)


def _less_each(parts: Tensor, grouped: Grouping) -> Tensor:
    """Total, then total less each part."""
    total = parts.sum(0, keepdim=True)
    return total if grouped.groups == 0 else torch.cat([total, total - parts])
