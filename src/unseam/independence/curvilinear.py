"""Coordinates along the curves of a decoder's components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry import FisherWeighted
from unseam.geometry.jacobian import Decoder
from unseam.independence._fields import Array, Field, follow
from unseam.independence._moving import Active, settled
from unseam.independence._surfaces import ReferenceCurve, meet_curves
from unseam.independence.submanifold import Submanifold, submanifold

__all__ = ["Curvilinear", "ReferenceCurves", "curvilinear"]

# Nodes on the straight line from the base to a point, on which fields are told apart.
_RAY = 16


@dataclass(frozen=True)
class ReferenceCurves:
    """The curves of the components through one point, along which coordinates are counted.

    Attributes:
        base: the point (latent,) that they start from, with all singular values apart; by default the origin.
        length: arc length to either side; points beyond are not reached. Half of its length for a curve that closes.
        steps: nodes to either side; cubic splines with their tangents join them.
        box: box that they must not leave, as for :func:`submanifold`.
        through: whether they go on where singular values are nearly repeated.

    >>> ReferenceCurves(length=5.0).steps
    48
    """

    base: Tensor | NDArray[Any] | None = None
    length: float = 6.0
    steps: int = 48
    box: float | Tensor | NDArray[Any] = 8.0
    through: bool = True


class Curvilinear(NamedTuple):
    """Curvilinear coordinates of points, each along one curve of the components through the base."""

    coordinates: Tensor
    """u (batch, component): arc length in latent space along reference curve i; NaN where not reached."""
    reached: Tensor
    """Whether the point's surface of constant u_i was followed to reference curve i (batch, component)."""
    confidence: Tensor
    """How clear it was on the way which field is which (batch, component), from 0 to 1."""
    curves: Submanifold
    """The reference curves through the base, (component, step, ...)."""


@torch.no_grad()
def curvilinear(
    decoder: Decoder,
    z: Tensor | NDArray[Any],
    *,
    reference: ReferenceCurves | None = None,
    degeneracy: float = 0.05,
    likelihood: FisherWeighted | None = None,
    active: Active = None,
    rtol: float = 1e-5,
    chunk_size: int | None = None,
) -> Curvilinear:
    r"""Coordinates u_i of latent points, whose lines are the curves of the components (allen2024 §3.2.3).

    .. math:: \nabla u_i \parallel v_i, \qquad u_i(C_i(t)) = t

    with :math:`C_i` the curve of component i through the base, in units of arc length in latent space. Where
    components exist, u_i is constant on a surface that all the other v_j span. A point's coordinate is found by
    moving on that surface towards the closest point c of :math:`C_i`,

    .. math:: \dot z \parallel (I - v_i v_i^\top)(c - z)

    until it is reached; t there is u_i. For two latents this follows the curve of the other component. Each
    u_i is one of many labels: any monotone function of it has the same lines, and no dependence between
    components is made or lost by it. Which field is component i at a point is told by following it from the
    base on a straight line, by direction (see :func:`submanifold`).

    Where no components exist (:func:`integrability`) the numbers depend on the way taken and mean nothing.

    Args:
        decoder: map from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: latent points (batch, latent).
        reference: where the reference curves start and how far they go.
        degeneracy: relative gap below which neighbouring singular values count as repeated.
        likelihood: weights the metric by ``fisher_weight(output)``; ``None`` for the identity.
        active: mask or indices of the latents that have components; the others are set to those of the base.
        rtol: tolerance of the solver for each point. A curve counts as reached at the root of it: surfaces are
            orthogonal to the curve, so the error of u_i is of second order in that distance.
        chunk_size: number of points differentiated at once.

    Returns:
        The coordinates, in the order of singular values at the base.

    >>> turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    >>> found = curvilinear(lambda z: z @ turn * torch.tensor([3.0, 1.0]), torch.tensor([[0.6, 0.8]]))
    >>> found.coordinates.abs().round(decimals=3)
    tensor([[1., 0.]])
    """
    reference = reference or ReferenceCurves()
    points, centre, moving = settled(z, reference.base, active)
    components = len(moving)
    curves = submanifold(
        decoder,
        centre,
        list(range(components)),
        length=reference.length,
        steps=reference.steps,
        box=reference.box,
        through=reference.through,
        degeneracy=degeneracy,
        likelihood=likelihood,
        active=moving,
        rtol=rtol,
        chunk_size=chunk_size,
    )
    field = Field(decoder, points, likelihood=likelihood, active=moving, chunk_size=chunk_size)
    where, origin = points.double().cpu().numpy(), centre.double().cpu().numpy()
    directions, confidence = _told_apart(field, origin, where, degeneracy)
    curve = [ReferenceCurve(curves, place) for place in range(components)]
    met = meet_curves(field, curve, where, directions, degeneracy, rtol)
    reached = met.distance <= rtol**0.5
    return Curvilinear(
        torch.from_numpy(np.where(reached, met.length, np.nan)).to(points),
        torch.from_numpy(reached).to(points.device),
        torch.from_numpy(np.minimum(confidence, met.confidence)).to(points),
        curves,
    )


def _told_apart(field: Field, origin: Array, points: Array, degeneracy: float) -> tuple[Array, Array]:
    """Directions (point, field, latent) of all fields at the points, followed from the origin on straight lines."""
    start = field(origin[None]).vectors[0]
    reference = np.broadcast_to(start.T, (len(points), *start.T.shape)).copy()  # (point, field, latent)
    confidence = np.ones(reference.shape[:2])
    for share in np.linspace(0, 1, _RAY + 1)[1:]:
        frames = field(origin + share * (points - origin))
        for place in range(reference.shape[1]):
            met = follow(frames, reference[:, place], degeneracy)
            reference[:, place] = met.direction
            confidence[:, place] = np.minimum(confidence[:, place], met.confidence)
    return reference, confidence
