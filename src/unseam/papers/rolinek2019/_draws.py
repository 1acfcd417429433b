"""What the numerical checks draw on: normal numbers, orthogonal matrices, a grid for expectations."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["normal", "normal_grid", "orthogonal", "plane_turns"]


def normal(*shape: int, generator: torch.Generator) -> Tensor:
    """Standard normal numbers, float64."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def orthogonal(*shape: int, generator: torch.Generator) -> Tensor:
    """Orthonormal columns (..., rows, columns) in uniformly random directions (Haar), float64."""
    basis, triangle = torch.linalg.qr(normal(*shape, generator=generator))
    return basis * triangle.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def normal_grid(step: float, reach: float = 8.0, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Points (node, 2) and weights (node,) for expectations under a normal plane, by the trapezoidal rule.

    For integrands that are analytic around the real axis the error falls exponentially in 1 / step; that beyond the
    reach is exp(−reach² / 2).
    """
    count = round(reach / step)
    place = step * torch.arange(-count, count + 1, dtype=like.dtype, device=like.device)
    weight = torch.softmax(-place.square() / 2, 0)
    return torch.cartesian_prod(place, place), torch.outer(weight, weight).flatten()


def plane_turns(angle: Tensor) -> Tensor:
    """Rotations (..., 2, 2) by angles (...) in radians."""
    rows = [angle.cos(), -angle.sin(), angle.sin(), angle.cos()]
    return torch.stack(rows, -1).unflatten(-1, (2, 2))
