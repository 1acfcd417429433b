"""Coordinates along the curves of a decoder's components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry import FisherWeighted
from unseam.independence._fields import Active, Field, Floats, Followed, follow, hold_passive
from unseam.independence.submanifold import Submanifold, submanifold
from unseam.inputs import Array, Decoder

__all__ = ["Curvilinear", "ReferenceCurves", "curvilinear"]

# Nodes on the straight line from the base to a point, on which fields are matched.
_RAY = 16
# Points move on their surface at the speed of their distance to the curve, though it lie across the surface;
# less where less than this share of the way lies along it, lest they rush to and fro where no way leads on.
_LEAST = 0.1
# In a unit of time the distance falls by a factor of e^(1/1.1): by 1e-8 in all spans together. Points that come
# no closer by one part in a hundred in a span, where it falls to a sixth if a way leads on, are given up.
_SPAN, _SPANS, _STALLED = 2.0, 10, 0.99


@dataclass(frozen=True)
class ReferenceCurves:
    """The curves of the components through one point, along which coordinates are counted.

    Attributes:
        base: the point (latent,) that they start from, with all singular values apart; by default the origin.
        length: arc length to either side; points beyond are not reached. Half of its length for a curve that closes.
        steps: nodes to either side; cubic splines with their tangents join them.
        box: box that they must not leave, as for :func:`submanifold`.
        through: whether they go on where singular values are nearly repeated.

    >>> points, curves = torch.tensor([[3.0, 0.0]]), ReferenceCurves(base=torch.tensor([1.0, 0.0]))
    >>> curvilinear(lambda z: z * torch.tensor([2.0, 1.0]), points, reference=curves).coordinates.abs()
    tensor([[2., 0.]])
    """

    base: Array | None = None
    length: float = 6.0
    steps: int = 48
    box: float | Array = 8.0
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
    z: Array,
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
    components is made or lost by it. Which field is component i at a point is found by following it from the
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

    >>> rotation = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    >>> found = curvilinear(lambda z: z @ rotation * torch.tensor([3.0, 1.0]), torch.tensor([[0.6, 0.8]]))
    >>> found.coordinates.abs().round(decimals=3)
    tensor([[1., 0.]])
    """
    reference = reference or ReferenceCurves()
    points, centre, moving = hold_passive(z, reference.base, active)
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
    directions, confidence = _match_fields(field, origin, where, degeneracy)
    curve = [_Curve(curves, place) for place in range(components)]
    met = _meet_curves(field, curve, where, directions, degeneracy, rtol)
    reached = met.distance <= rtol**0.5
    return Curvilinear(
        torch.from_numpy(np.where(reached, met.length, np.nan)).to(points),
        torch.from_numpy(reached).to(points.device),
        torch.from_numpy(np.minimum(confidence, met.confidence)).to(points),
        curves,
    )


def _match_fields(field: Field, origin: Floats, points: Floats, degeneracy: float) -> tuple[Floats, Floats]:
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


class _Curve:
    """A reference curve as a cubic spline of arc length, and its closest points."""

    def __init__(self, curves: Submanifold, place: int) -> None:
        from scipy.interpolate import CubicHermiteSpline

        times, points, tangents = (
            part[place].double().cpu().numpy()
            for part in (curves.latent_length, curves.points, curves.directions)
        )
        fresh = np.concatenate([[True], np.diff(times) > 0])  # a half that ended at its start has no length
        self.times, self.points = times[fresh], points[fresh]
        if len(self.times) < 2:
            raise ValueError(
                f"base must have singular values that differ, so that curves can leave it; curve {place} ended "
                f"at once: {curves.ended[place]}"
            )
        self.spline = CubicHermiteSpline(self.times, self.points, tangents[fresh])
        self.first, self.second = self.spline.derivative(), self.spline.derivative(2)

    def closest(self, points: Floats) -> Floats:
        """Arc length (point,) of the closest point: the closest node, then Newton's steps."""
        distances = ((points[:, None] - self.points) ** 2).sum(-1)
        nearest = distances.argmin(1)
        lower = self.times[np.maximum(nearest - 1, 0)]
        upper = self.times[np.minimum(nearest + 1, len(self.times) - 1)]
        found = self.times[nearest]
        for _ in range(4):
            away, tangent = self.spline(found) - points, self.first(found)
            slope = (away * tangent).sum(1)
            bend = (tangent**2).sum(1) + (away * self.second(found)).sum(1)
            found = np.clip(found - slope / np.where(bend > 0, bend, np.inf), lower, upper)
        return found


class _Met(NamedTuple):
    """Where every point's surfaces meet the curves, (point, curve) each."""

    length: Floats
    """Arc length of the curve there."""
    distance: Floats
    """Distance to the curve that was left."""
    confidence: Floats
    """How clear it was on the way which field is which."""


def _meet_curves(
    field: Field,
    curves: list[_Curve],
    points: Floats,
    references: Floats,
    degeneracy: float,
    rtol: float,
) -> _Met:
    """Move points (point, latent) on each of their surfaces to its curve.

    Args:
        field: the right singular bases.
        curves: one curve per field.
        points: where the points start.
        references: directions (point, field, latent) of the fields there.
        degeneracy, rtol: as for :func:`unseam.independence.curvilinear`.
    """
    count, latent = points.shape
    state = np.tile(points, (len(curves), 1))  # curve by curve
    which = np.repeat(np.arange(len(curves)), count)
    reference = references.transpose(1, 0, 2).reshape(-1, latent).copy()
    confidence = np.ones(len(state))
    times, towards = _closest(curves, which, state)
    distance = np.linalg.norm(towards, axis=1)
    active = np.flatnonzero(distance > rtol**0.5)
    stride: float | None = None
    for _ in range(_SPANS):
        if len(active) == 0:
            break
        moved = _span(
            field, curves, which[active], state[active], reference[active], degeneracy, rtol, stride
        )
        stride = moved.stride
        state[active], reference[active] = moved.points, moved.reference
        confidence[active] = np.minimum(confidence[active], moved.confidence)
        times[active], towards = _closest(curves, which[active], state[active])
        before, distance[active] = distance[active], np.linalg.norm(towards, axis=1)
        active = active[(distance[active] > rtol**0.5) & (distance[active] < _STALLED * before)]
    shape = (len(curves), count)
    return _Met(*(part.reshape(shape).T for part in (times, distance, confidence)))


class _Span(NamedTuple):
    points: Floats
    reference: Floats
    confidence: Floats
    stride: float | None


def _span(
    field: Field,
    curves: list[_Curve],
    which: NDArray[np.int64],
    points: Floats,
    reference: Floats,
    degeneracy: float,
    rtol: float,
    stride: float | None,
) -> _Span:
    """Move points on their surfaces for one span of time."""
    from scipy.integrate import RK45

    met: list[Followed] = []
    confidence = np.ones(len(points))

    def velocity(_: float, flat: Floats) -> Floats:
        here = flat.reshape(points.shape)
        met[:] = [follow(field(here), reference, degeneracy)]
        direction = met[0].direction
        towards = _closest(curves, which, here)[1]
        along = towards - direction * (towards * direction).sum(1, keepdims=True)
        whole, part = (np.linalg.norm(each, axis=1, keepdims=True) for each in (towards, along))
        return (along * whole / np.maximum(part + _LEAST * whole, np.finfo(float).tiny)).ravel()

    tolerance = rtol / len(points) ** 0.5
    solver = RK45(velocity, 0.0, points.ravel(), _SPAN, rtol=tolerance, atol=tolerance, first_step=stride)
    longest = 0.0
    while solver.status == "running":
        solver.step()
        if solver.status != "failed":
            longest = max(longest, solver.step_size)
            reference[:] = met[0].direction
            np.minimum(confidence, met[0].confidence, out=confidence)
    return _Span(solver.y.reshape(points.shape), reference, confidence, longest or stride)


def _closest(curves: list[_Curve], which: NDArray[np.int64], points: Floats) -> tuple[Floats, Floats]:
    """Arc length (point,) of the closest point on each point's own curve, and the way there (point, latent)."""
    times, towards = np.empty(len(points)), np.empty_like(points)
    for place, curve in enumerate(curves):
        mine = which == place
        if mine.any():
            times[mine] = curve.closest(points[mine])
            towards[mine] = curve.spline(times[mine]) - points[mine]
    return times, towards
