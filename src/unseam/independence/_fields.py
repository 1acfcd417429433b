"""The right singular fields of a decoder along a path, matched by direction instead of by rank; moving latents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry import FisherWeighted, local_geometry, restrict, right_basis
from unseam.geometry.checks import check_points
from unseam.inputs import Array, Decoder, as_floating

__all__ = [
    "Active",
    "Floats",
    "Field",
    "Followed",
    "Frames",
    "MovingPoints",
    "follow",
    "hold_passive",
    "moving_latents",
]

Floats = NDArray[np.float64]
Active = Array | list[int] | None
"""Mask or indices of the latents that may move; all where it is ``None``."""


class Frames(NamedTuple):
    """Right singular bases of a decoder at some points."""

    singular_values: Floats
    """(point, field), descending."""
    vectors: Floats
    """(point, latent, field), zero in latents that do not move."""


class Followed(NamedTuple):
    """The vector of each basis that continues a direction."""

    direction: Floats
    """Unit vectors (point, latent)."""
    speed: Floats
    """Singular value along it (point,)."""
    order: NDArray[np.int64]
    """Its place in the descending spectrum (point,)."""
    confidence: Floats
    """Squared overlap with the direction before, less the next best one's (point,)."""
    degenerate: NDArray[np.bool_]
    """Whether its singular value is nearly repeated, so that it is one of many (point,)."""


class Field:
    """Right singular bases of one decoder wherever a solver asks for them, in double precision on the host.

    Args:
        decoder, likelihood, active, chunk_size: as for :func:`unseam.independence.submanifold`.
        like: a tensor in whose type and on whose device the decoder is called.
    """

    def __init__(
        self,
        decoder: Decoder,
        like: Tensor,
        *,
        likelihood: FisherWeighted | None = None,
        active: Active = None,
        chunk_size: int | None = None,
    ) -> None:
        self.decoder, self.likelihood, self.chunk_size = decoder, likelihood, chunk_size
        self.dtype, self.device = like.dtype, like.device
        self.latent = like.shape[-1]
        self.moving: NDArray[np.int64] = moving_latents(active, like).cpu().numpy()

    def __call__(self, points: Floats) -> Frames:
        """Bases at points (point, latent)."""
        metric, basis = local_geometry(
            self.decoder, self.tensor(points), likelihood=self.likelihood, chunk_size=self.chunk_size
        )
        if len(self.moving) < self.latent:
            basis = right_basis(restrict(metric, torch.from_numpy(self.moving).to(metric.device)))
        vectors = np.zeros((len(points), self.latent, len(self.moving)))
        vectors[:, self.moving] = basis.right_vectors.double().cpu().numpy()
        return Frames(basis.singular_values.double().cpu().numpy(), vectors)

    def tensor(self, points: Floats) -> Tensor:
        """Points of a solver as the decoder wants them."""
        return torch.from_numpy(np.ascontiguousarray(points)).to(self.device, self.dtype)


def follow(frames: Frames, reference: Floats, degeneracy: float) -> Followed:
    """The vector of each basis with the largest overlap with a reference direction, in its sense.

    Singular values closer than ``degeneracy``, relatively, leave their vectors arbitrary up to a rotation
    within their span: there the direction is the reference projected onto that span, which carries it
    straight on until the values part again.

    Args:
        frames: bases at the points.
        reference: directions (point, latent) before.
        degeneracy: relative gap below which neighbouring singular values count as equal.
    """
    values, vectors = frames
    overlap = np.einsum("nlf,nl->nf", vectors, reference)
    share = overlap**2
    larger, smaller = values[:, :-1], values[:, 1:]
    apart = (larger - smaller >= degeneracy * larger) & (larger > 0)
    cluster = np.concatenate([np.zeros((len(values), 1), bool), apart], 1).cumsum(1)
    together = cluster[:, :, None] == cluster[:, None, :]
    whole = (together * share[:, None, :]).sum(-1)
    best = whole.argmax(1)
    rows = np.arange(len(values))
    mine = together[rows, best]
    others = np.where(mine, 0.0, whole).max(1)
    coefficients = np.where(mine, overlap, 0.0)
    length = np.sqrt((coefficients**2).sum(1))
    coefficients /= np.where(length == 0, 1.0, length)[:, None]
    return Followed(
        np.einsum("nlf,nf->nl", vectors, coefficients),
        np.sqrt(((coefficients * values) ** 2).sum(1)),
        np.where(mine, share, -1.0).argmax(1),
        whole[rows, best] - others,
        mine.sum(1) > 1,
    )


class MovingPoints(NamedTuple):
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


def hold_passive(z: Array, base: Array | None, active: Active) -> MovingPoints:
    """Points z (batch, latent) with passive latents as in the base (latent,), by default the origin."""
    points = check_points(z).detach()
    centre = torch.zeros_like(points[0]) if base is None else as_floating("base", base).detach().to(points)
    if centre.shape != points.shape[1:]:
        raise ValueError(f"base must have shape ({points.shape[1]},), got shape {tuple(centre.shape)}")
    moving = moving_latents(active, points)
    passive = torch.ones_like(centre, dtype=torch.bool)
    passive[moving] = False
    return MovingPoints(torch.where(passive, centre, points), centre, moving)
