"""The lasso for many problems at once, on their Gram matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from unseam.metrics._inputs import parts

__all__ = ["lasso"]

# Weights of standardised codes are of order one: beyond this they differ by rounding.
_TOLERANCE = 1e-10
_SWEEPS = 8
_MOST_ROUNDS = 1_000


def lasso(gram: Tensor, cross: Tensor, *, alpha: float, start: Tensor | None = None) -> Tensor:
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
    for part in parts(len(flat), 8 * features**2, gram.device):
        weight[part] = _solved(gram, member[part], flat[part], weight[part], alpha)
    return weight.view(len(gram), targets, features).mT


def _solved(gram: Tensor, member: Tensor, cross: Tensor, weight: Tensor, alpha: float) -> Tensor:
    """Weights (problem, feature) of problems with Gram matrices of their members."""
    weight = torch.where(gram.diagonal(dim1=-2, dim2=-1)[member] > 0, weight, 0.0)
    still = torch.arange(len(cross), device=cross.device)
    for _ in range(_MOST_ROUNDS):
        matrix = gram[member[still]]
        weight[still], done = _polished(matrix, cross[still], weight[still], alpha)
        still, matrix = still[~done], matrix[~done]
        if len(still) == 0:
            break
        weight[still], change = _descended(matrix, cross[still], weight[still], alpha)
        still = still[change > _TOLERANCE]
    return weight


def _descended(gram: Tensor, cross: Tensor, weight: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Weights after some sweeps of coordinate descent, and the largest change (problem,) in the last."""
    weight = weight.clone()
    explained = (gram @ weight[..., None])[..., 0]
    scale = gram.diagonal(dim1=-2, dim2=-1)
    live = scale > 0
    scale = torch.where(live, scale, 1.0)
    largest = torch.zeros_like(weight[:, 0])
    for _ in range(_SWEEPS):
        largest = torch.zeros_like(largest)
        for k in range(gram.shape[-1]):
            free = cross[:, k] - explained[:, k] + weight[:, k] * scale[:, k]
            new = torch.nn.functional.softshrink(free, alpha) / scale[:, k]
            change = torch.where(live[:, k], new - weight[:, k], 0.0)
            weight[:, k] += change
            explained += gram[:, :, k] * change[:, None]
            largest = torch.maximum(largest, change.abs())
    return weight, largest


def _polished(gram: Tensor, cross: Tensor, weight: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
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
