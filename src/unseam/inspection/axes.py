"""How orthogonal a decoder's axes are: numbers that are undefined where there is nothing to compare, and a grade."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from unseam import geometry

__all__ = ["Axes", "Orthogonality", "RandomAxes", "compare_axes", "grade_axes", "random_axes"]

# Deviation from orthogonality, as a fraction of chance, up to which axes are nearly, or partly, orthogonal.
NEARLY, PARTLY = 0.25, 0.75
# Chance counts as at least this |cos|: below a quarter of it axes are nearly orthogonal, whatever rotations have.
LEAST_CHANCE = 0.2
RANK = 1e-7  # of the largest singular value: what rounding may leave of one that is zero
ROTATIONS, FEWEST = 512, 16
WORK = 2**23  # of elimination steps: a fraction of a second


class Axes(NamedTuple):
    """How orthogonal the columns of a Jacobian are; what is undefined is ``None``.

    Attributes:
        cosine: mean ``|cos|`` over pairs and points.
        hadamard_gap: mean over points, in nats; undefined where singular values are zero at every point.
        dto: distance to orthogonality, mean over the points whose singular values are distinct.
        degenerate_fraction: points whose singular values are not: two differ by less than 5 %.
    """

    cosine: float | None = None
    hadamard_gap: float | None = None
    dto: float | None = None
    degenerate_fraction: float | None = None


class RandomAxes(NamedTuple):
    """Mean ``|cos|`` and Hadamard gap of a decoder whose latents are rotated at random."""

    cosine: float
    hadamard_gap: float | None


class Orthogonality(IntEnum):
    """How orthogonal axes are, best first.

    >>> str(max(Orthogonality.NEARLY, Orthogonality.PARTLY))
    'partly orthogonal'
    """

    NEARLY = 0
    PARTLY = 1
    NOT = 2

    def __str__(self) -> str:
        return f"{self.name.lower()} orthogonal"


def compare_axes(pullback: Tensor, basis: geometry.RightBasis | None = None) -> Axes:
    """How orthogonal the columns behind Gram matrices are: undefined where no two of them are non-zero.

    Args:
        pullback: JᵀWJ of active latents (latent, latent) or (points, latent, latent).
        basis: of the pullback, where it is known more precisely.

    >>> compare_axes(torch.tensor([[4.0, 3.0], [3.0, 9.0]])).cosine
    0.5
    >>> compare_axes(torch.zeros(2, 2)), compare_axes(torch.eye(2)).dto
    (Axes(cosine=None, hadamard_gap=None, dto=None, degenerate_fraction=None), None)
    """
    metric = pullback if pullback.ndim > 2 else pullback[None]
    paired = has_pair(metric)
    if not bool(paired.any()):
        return Axes()
    basis = geometry.right_basis(metric) if basis is None else basis
    vectors, values = (
        part.reshape(len(metric), *part.shape[-n:])[paired]
        for part, n in ((basis.right_vectors, 2), (basis.singular_values, 1))
    )
    # zeros are alike, whatever rounding makes of them
    nonzero = values > RANK * values.amax(-1, keepdim=True)
    full = nonzero.all(-1)
    degenerate = geometry.degenerate_points(values * nonzero)
    distances = geometry.distance_to_orthogonality(vectors[~degenerate])
    return Axes(
        _mean(geometry.column_cosine(metric[paired])),
        # unbounded where the output changes in fewer directions than there are axes
        _mean(geometry.hadamard_gap(metric[paired])) if bool(full.any()) else None,
        _mean(distances) if len(distances) else None,
        _mean(degenerate),
    )


def has_pair(pullback: Tensor) -> Tensor:
    """Where at least two columns are non-zero (points,): elsewhere there is no angle to measure."""
    squares = pullback.diagonal(dim1=-2, dim2=-1)
    return (squares > torch.finfo(pullback.dtype).eps ** 2 * squares.amax()).sum(-1) > 1


def random_axes(pullback: Tensor, *, generator: torch.Generator) -> RandomAxes:
    r"""Mean ``|cos|`` and Hadamard gap of RᵀGR, for uniformly random rotations R of the latents.

    .. math:: G = J^\top W J, \qquad R \sim \text{Haar}(O(d))

    what the same decoder has whose latents prefer no axes (rolinek2019 §4). As many draws as the size allows, at
    least 16, spread over the points.

    Args:
        pullback: G (points, latent, latent), each with two non-zero columns at least.
        generator: source of the rotations.

    >>> found = random_axes(torch.eye(3)[None], generator=torch.Generator().manual_seed(0))
    >>> found.cosine < 1e-6
    True
    """
    latent = pullback.shape[-1]
    draws = min(ROTATIONS, max(FEWEST, WORK // latent**3))
    normal = torch.randn(
        draws, latent, latent, generator=generator, dtype=torch.float64, device=generator.device
    )
    rotation = torch.linalg.qr(normal).Q.to(pullback.device)
    chosen = pullback[torch.linspace(0, len(pullback) - 1, draws, device=pullback.device).round().long()]
    values, vectors = torch.linalg.eigh(chosen.double())
    # columns first, products after: those of columns that nearly coincide would else be lost in rounding
    columns = values.clamp(min=0).sqrt()[..., None] * (vectors.mT @ rotation)
    rotated = columns.mT @ columns
    return RandomAxes(_mean(geometry.column_cosine(rotated)), _mean(geometry.hadamard_gap(rotated)))


def grade_axes(cosine: float, hadamard_gap: float, chance: RandomAxes, latent: int) -> Orthogonality:
    r"""How orthogonal axes are, from quantities that are continuous in the decoder, each beside its chance.

    .. math:: \max\left(\frac{|\cos|}{c}, \sqrt{\frac{\text{gap}}{g}}\right)

    with c and g what random rotations have, but at least 0.2 and what that ``|cos|`` makes of every pair. The
    Hadamard gap grows with the square of cosines, hence its root. Below 0.25 axes are nearly, below 0.75 partly
    orthogonal (rolinek2019 §4.2 for the gap).

    Args:
        cosine: mean ``|cos|``.
        hadamard_gap: in nats.
        chance: the same of random rotations.
        latent: number of axes.

    >>> str(grade_axes(0.02, 0.001, RandomAxes(0.4, 0.2), 2))
    'nearly orthogonal'
    """
    least = -latent * (latent - 1) / 4 * math.log1p(-(LEAST_CHANCE**2))
    angle = cosine / max(chance.cosine, LEAST_CHANCE)
    volume = math.sqrt(hadamard_gap / max(chance.hadamard_gap or 0.0, least))
    return Orthogonality(sum(max(angle, volume) >= limit for limit in (NEARLY, PARTLY)))


def _mean(values: Tensor) -> float:
    return float(values.double().mean())
