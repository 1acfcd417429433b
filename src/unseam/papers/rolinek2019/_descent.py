"""Many small problems minimised at once from many starts, each downhill on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Loss = Callable[[Tensor], Tensor]
Move = Callable[[Tensor, Tensor], Tensor]

# Parts of a quasi-Newton step that are tried, and what they must gain of what the slope promises (Armijo).
_STEPS = (1.0, 0.5, 0.1, 0.01)
_GAIN = 1e-4


class Descent(NamedTuple):
    """Where each member ended, and the way there."""

    place: Tensor
    """Coordinates (member, ...)."""
    value: Tensor
    """Loss there (member,)."""
    slope: Tensor
    """Norm of its gradient there (member,)."""
    path: Tensor
    """Loss before the first step and after each (iteration + 1, member)."""


def descend(
    loss: Loss, start: Tensor, *, iterations: int, move: Move = torch.add, dimension: int | None = None
) -> Descent:
    """Minimise by BFGS with a backtracking line search, every member with its own matrix and its own step.

    No step climbs by more than rounding, so a member that begins in the basin of a local minimum stays in it. Nothing
    asks the host and nobody waits for the slowest member, so a GPU is kept busy.

    Args:
        loss: from coordinates (member, ...) to losses (member,); a member's loss depends on its row alone.
        start: where to begin (member, ...), float64.
        iterations: steps of each member.
        move: the place that a step (member, dimension) from a place leads to; on a curved space its retraction, so
            that every step has a chart of its own around where it begins.
        dimension: numbers in a step; those of a place if none is given.
    """
    place = start.clone()
    zero = start.new_zeros(len(start), dimension or start.shape[1])
    value, gradient = _slope(loss, move, place, zero)
    identity = torch.eye(zero.shape[1], dtype=start.dtype, device=start.device)
    inverse = _first(identity, gradient)
    path = [value]
    for _ in range(iterations):
        way = -torch.einsum("mij,mj->mi", inverse, gradient)
        step = _search(loss, move, place, way, value, (way * gradient).sum(1))
        place = move(place, step)
        value, fresh = _slope(loss, move, place, zero)
        inverse = _updated(inverse, step, fresh - gradient)
        # a direction that leads nowhere has outlived its matrix
        stuck = (step == 0).all(1)[:, None, None]
        inverse = torch.where(stuck, _first(identity, fresh), inverse)
        gradient = fresh
        path.append(value)
    return Descent(place, value, gradient.norm(dim=1), torch.stack(path))


def _slope(loss: Loss, move: Move, place: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        step = zero.clone().requires_grad_()
        value = loss(move(place, step))
        (gradient,) = torch.autograd.grad(value.sum(), step)
    return value.detach(), gradient


def _first(identity: Tensor, gradient: Tensor) -> Tensor:
    """The identity, shrunk so that the first step is no longer than 1."""
    return identity / gradient.norm(dim=1).clamp(min=1.0)[:, None, None]


@torch.no_grad()
def _search(loss: Loss, move: Move, place: Tensor, way: Tensor, value: Tensor, promised: Tensor) -> Tensor:
    """The longest step that gains enough (member, dimension), or zero."""
    rounding = 8 * torch.finfo(value.dtype).eps * value.abs().clamp(min=1.0)
    part, open_ = torch.zeros_like(value), promised < 0
    for step in _STEPS:
        enough = open_ & (loss(move(place, step * way)) <= value + _GAIN * step * promised + rounding)
        part = torch.where(enough, step, part)
        open_ = open_ & ~enough
    return part[:, None] * way


def _updated(inverse: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """The BFGS update of the inverse Hessian, left out where curvature along the step is not positive."""
    curvature = (step * change).sum(1)
    usable = curvature > 1e-10 * step.norm(dim=1) * change.norm(dim=1)
    scale = torch.where(usable, 1 / torch.where(usable, curvature, 1.0), 0.0)[:, None]
    bent = torch.einsum("mij,mj->mi", inverse, change)
    stretch = 1 + scale * (change * bent).sum(1, keepdim=True)
    left = torch.stack([step, bent], 2)
    right = torch.stack([scale * (stretch * step - bent), -scale * step], 1)
    return torch.baddbmm(inverse, left, right)
