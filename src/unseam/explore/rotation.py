"""A latent space rotated in the plane of two latents: the same pictures, other axes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Rotation", "rotated_pullback", "rotation_matrix"]


class Rotation(NamedTuple):
    """A rotation by an angle in the plane of two latents, from the first axis towards the second."""

    first: int
    second: int
    degrees: float


def rotation_matrix(latent: int, rotation: Rotation | None) -> Tensor:
    r"""Matrix U of a rotation, in double precision; the identity for none.

    .. math:: z' = U z, \qquad \text{Dec}'(z') = \text{Dec}(U^\top z')

    equally good at reconstruction, and "individual latents entirely lost their meaning" (rolinek2019 Eq. 5;
    Props. 2 and 3: neither the likelihood nor the ELBO, with its posterior rotated alike, changes).

    Args:
        latent: number of latents d.
        rotation: the plane and the angle.

    Returns:
        U (latent, latent), orthogonal.

    >>> rotation_matrix(3, Rotation(0, 2, 90.0)).round().int()
    tensor([[ 0,  0, -1],
            [ 0,  1,  0],
            [ 1,  0,  0]], dtype=torch.int32)
    """
    matrix = torch.eye(latent, dtype=torch.float64)
    if rotation is None or latent < 2:
        return matrix
    first, second, degrees = rotation
    if not (0 <= first < latent and 0 <= second < latent) or first == second:
        raise ValueError(f"rotation must name two different latents below {latent}, got {first} and {second}")
    cosine, sine = (math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))
    matrix[first, first] = matrix[second, second] = cosine
    matrix[first, second], matrix[second, first] = -sine, sine
    return matrix


def rotated_pullback(pullback: Tensor, matrix: Tensor) -> Tensor:
    r"""Pullback of the rotated decoder at the rotated point.

    .. math:: G' = U\,G\,U^\top

    Args:
        pullback: G (..., latent, latent).
        matrix: U (latent, latent).

    >>> rotated_pullback(torch.diag(torch.tensor([4.0, 1.0])), rotation_matrix(2, Rotation(0, 1, 90.0))).diagonal()
    tensor([1., 4.])
    """
    rotation = matrix.to(pullback)
    return rotation @ pullback @ rotation.mT
