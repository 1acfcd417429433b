"""Random numbers, matrices and rotations of numerical checks, in double precision on the host; and cosines."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = [
    "Seeded",
    "cayley",
    "largest_cosine",
    "normal",
    "orthogonal",
    "orthonormal",
    "plane_rotations",
    "uniform",
]


@dataclass(frozen=True)
class Seeded:
    """Base of settings whose random numbers come from one seed."""

    seed: int = field(default=0, kw_only=True)

    def generator(self) -> torch.Generator:
        """The source of all random numbers, from its start."""
        return torch.Generator().manual_seed(self.seed)


def normal(*shape: int, generator: torch.Generator) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    """Uniform numbers from 0 to 1."""
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def orthonormal(*shape: int, generator: torch.Generator) -> Tensor:
    """Random orthonormal columns (..., rows, columns), with the signs that the library's QR decomposition has."""
    return torch.linalg.qr(normal(*shape, generator=generator)).Q


def orthogonal(*shape: int, generator: torch.Generator) -> Tensor:
    """Haar-random orthonormal columns (..., rows, columns)."""
    basis, triangle = torch.linalg.qr(normal(*shape, generator=generator))
    return basis * triangle.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def plane_rotations(angle: Tensor) -> Tensor:
    """Rotations (..., 2, 2) by angles (...) in radians."""
    rows = [angle.cos(), -angle.sin(), angle.sin(), angle.cos()]
    return torch.stack(rows, -1).unflatten(-1, (2, 2))


def cayley(angles: Tensor, latent: int) -> Tensor:
    """Rotations (..., latent, latent): Cayley's transform of the skew matrix with these entries (..., pair)."""
    identity = torch.eye(latent, dtype=angles.dtype, device=angles.device)
    rows, columns = torch.triu_indices(latent, latent, 1, device=angles.device)
    upper = identity[rows, :, None] * identity[columns, None, :]
    skew = torch.einsum("...p,pij->...ij", angles, upper - upper.mT)
    return torch.linalg.solve_ex(identity + skew, identity - skew).result


def largest_cosine(columns: Tensor) -> Tensor:
    """Largest absolute cosine (...) between two columns of matrices (..., data, latent)."""
    unit = torch.nn.functional.normalize(columns, dim=-2)
    return (unit.mT @ unit).abs().tril(-1).amax((-2, -1))
