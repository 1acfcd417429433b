"""A decoder in rotated latent coordinates."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.geometry.checks import check_decoder, check_points, measuring
from unseam.inputs import Array, Decoder, as_floating

__all__ = ["Turned", "turned"]


class Turned(NamedTuple):
    """A decoder as a function of u = Vᵀz, and the points u (batch, latent)."""

    decoder: Decoder
    points: Tensor


def turned(decoder: Decoder, z: Array, basis: Array | None) -> Turned:
    """The decoder and its points in the basis V (latent, latent), columns orthonormal; as they are without one."""
    points = check_points(z)
    if basis is None:
        return Turned(decoder, points)
    latent = points.shape[1]
    vectors = as_floating("basis", basis).detach().to(points)
    if vectors.shape != (latent, latent):
        raise ValueError(f"basis must have shape ({latent}, {latent}), got shape {tuple(vectors.shape)}")
    # eigenvectors are orthonormal to rounding; half of the digits tell them from what is not meant to be
    off = (vectors.mT @ vectors - torch.eye(latent).to(points)).abs().amax().item()
    if not off <= torch.finfo(points.dtype).eps ** 0.5:
        raise ValueError(f"basis must have orthonormal columns, got products off by {off:.3g}")
    if measuring(points):
        check_decoder(decoder, points)  # names a module in training mode, which the new decoder would hide

    def along(u: Tensor) -> Tensor:
        return decoder(torch.nn.functional.linear(u, vectors))

    return Turned(along, points @ vectors)
