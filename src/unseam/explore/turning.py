"""A latent space turned in the plane of two latents: the same pictures, other axes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Turn", "rotation", "turned_pullback"]


class Turn(NamedTuple):
    """A rotation by an angle in the plane of two latents."""

    first: int
    second: int
    degrees: float


def rotation(latent: int, turn: Turn) -> Tensor:
    r"""Matrix U of a turn, in double precision.

    .. math:: z' = U z, \qquad \text{Dec}'(z') = \text{Dec}(U^\top z')

    equally good at reconstruction, and "individual latents entirely lost their meaning" (rolinek2019 Eq. 5;
    Props. 2 and 3: the likelihood and the ELBO with its posterior turned along do not change either).

    Args:
        latent: number of latents d.
        turn: the plane and the angle; from the first axis towards the second.

    Returns:
        U (latent, latent), orthogonal.

    >>> rotation(3, Turn(0, 2, 90.0)).round().int()
    tensor([[ 0,  0, -1],
            [ 0,  1,  0],
            [ 1,  0,  0]], dtype=torch.int32)
    """
    if not (0 <= turn.first < latent and 0 <= turn.second < latent) or turn.first == turn.second:
        raise ValueError(
            f"turn must name two different latents below {latent}, got {turn.first} and {turn.second}"
        )
    angle = math.radians(turn.degrees)
    matrix = torch.eye(latent, dtype=torch.float64)
    matrix[turn.first, turn.first] = matrix[turn.second, turn.second] = math.cos(angle)
    matrix[turn.first, turn.second] = -math.sin(angle)
    matrix[turn.second, turn.first] = math.sin(angle)
    return matrix


def turned_pullback(pullback: Tensor, matrix: Tensor) -> Tensor:
    r"""Pullback of the turned decoder at the turned point.

    .. math:: G' = U\,G\,U^\top

    Args:
        pullback: G (..., latent, latent).
        matrix: U (latent, latent).

    >>> turned_pullback(torch.diag(torch.tensor([4.0, 1.0])), rotation(2, Turn(0, 1, 90.0))).round().diagonal()
    tensor([1., 4.])
    """
    turning = matrix.to(pullback)
    return turning @ pullback @ turning.mT
