"""Which latents move, and points at which the others rest."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry import restrict
from unseam.geometry.checks import check_points

__all__ = ["Active", "Settled", "moving_latents", "settled"]

Active = Tensor | NDArray[Any] | list[int] | None
"""Mask or indices of the latents that may move; all where it is ``None``."""


class Settled(NamedTuple):
    """Points around a base, with the latents that do not move as they are there."""

    points: Tensor
    """(batch, latent)."""
    centre: Tensor
    """The base (latent,)."""
    moving: Tensor
    """Indices (moving,) of the latents that move."""


def moving_latents(active: Active, points: Tensor) -> Tensor:
    """Indices (moving,) of the latents of points (..., latent) that may move."""
    every = torch.arange(points.shape[-1], device=points.device)
    return every if active is None else restrict(every.diag().double(), active).diagonal().long()


def settled(z: Tensor | NDArray[Any], base: Tensor | NDArray[Any] | None, active: Active) -> Settled:
    """Points z (batch, latent) with passive latents as in the base (latent,), by default the origin."""
    points = check_points(z).detach()
    centre = torch.zeros_like(points[0]) if base is None else torch.as_tensor(base).detach().to(points)
    if centre.shape != points.shape[1:]:
        raise ValueError(f"base must have shape ({points.shape[1]},), got shape {tuple(centre.shape)}")
    moving = moving_latents(active, points)
    passive = torch.ones_like(centre, dtype=torch.bool)
    passive[moving] = False
    return Settled(torch.where(passive, centre, points), centre, moving)
