"""Theorem 2: how close neighbours in data space are in latent space, and who the neighbours there are."""

from __future__ import annotations

import torch
from torch import Tensor

from unseam.models import Encoding

__all__ = ["NEIGHBOURS", "closeness", "nearest"]

NEIGHBOURS = 10
"""k of Theorem 2, which the paper leaves open."""


def nearest(x: Tensor, *, count: int = NEIGHBOURS) -> Tensor:
    """The ``count`` nearest (item, count) of items (item, *data) among themselves, by distance, itself left out.

    >>> nearest(torch.tensor([[0.0], [1.0], [1.5], [5.0]]), count=2)[0].tolist()
    [1, 2]
    """
    flat = x.flatten(1).double()
    return _closest(flat, count)


def closeness(code: Encoding, near: Tensor) -> dict[str, float]:
    r"""How close posteriors of neighbouring items lie, with and without their own width.

    ``near`` is the printed :math:`E \lVert z^{(i)} - z^{(k)} \rVert^2` a neighbour, over samples of both posteriors:
    :math:`\lVert \mu_i - \mu_k \rVert^2 + \operatorname{tr} \Sigma_i + \operatorname{tr} \Sigma_k`, which ends at twice
    the number of latents as the KL vanishes; ``near_means`` its first term; ``far`` and ``far_means`` the same for
    random pairs; ``overlap``, mean Bhattacharyya coefficient of neighbours' posteriors; ``shared``, the share of the k
    posteriors of largest overlap that belong to the k nearest items, and ``shared_chance``, what chance would give.

    Args:
        code: means and variances (item, latent).
        near: neighbours (item, k) of the same items.

    >>> apart = Encoding(torch.tensor([[0.0], [1.0], [5.0]]), torch.full((3, 1), 0.5))
    >>> closeness(apart, nearest(torch.tensor([[0.0], [1.0], [5.0]]), count=1))["near"]
    7.0
    """
    mean, variance = code.mean.double(), code.variance.double()
    count = len(mean)
    width = variance.sum(1)
    between = (mean[:, None] - mean[near]).square().sum(-1)
    others = torch.arange(count, device=mean.device).roll(count // 2)
    apart = (mean - mean[others]).square().sum(-1)
    coefficient = _overlap(mean[:, None], variance[:, None], mean[near], variance[near])
    shared = (_most_overlapping(mean, variance, near.shape[1])[:, :, None] == near[:, None, :]).any(-1)
    return {
        "near": float((between + width[:, None] + width[near]).mean()),
        "near_means": float(between.mean()),
        "far": float((apart + width + width[others]).mean()),
        "far_means": float(apart.mean()),
        "overlap": float(coefficient.mean()),
        "shared": float(shared.double().mean()),
        "shared_chance": near.shape[1] / (count - 1),
    }


def _closest(points: Tensor, count: int) -> Tensor:
    rows = []
    for start in range(0, len(points), 512):
        part = torch.cdist(points[start : start + 512], points)
        part.diagonal(start).fill_(torch.inf)
        rows.append(part.topk(count, largest=False).indices)
    return torch.cat(rows)


def _overlap(mean: Tensor, variance: Tensor, other_mean: Tensor, other_variance: Tensor) -> Tensor:
    """Bhattacharyya coefficient of Gaussians with diagonal covariances."""
    middle = (variance + other_variance) / 2
    distance = (mean - other_mean).square() / middle / 8
    distance = distance + (middle.log() - (variance.log() + other_variance.log()) / 2) / 2
    return torch.exp(-distance.sum(-1))


def _most_overlapping(mean: Tensor, variance: Tensor, count: int) -> Tensor:
    """The posteriors (item, k) of largest overlap with each, itself left out."""
    rows = []
    for start in range(0, len(mean), 64):
        own = slice(start, start + 64)
        part = _overlap(mean[own, None], variance[own, None], mean, variance)
        part.diagonal(start).fill_(-1.0)
        rows.append(part.topk(count).indices)
    return torch.cat(rows)
