"""Moving points on the surfaces that all fields but one span, until they meet the curve of that one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import RK45
from scipy.interpolate import CubicHermiteSpline

from unseam.independence._fields import Array, Field, Followed, follow
from unseam.independence.submanifold import Submanifold

__all__ = ["Met", "ReferenceCurve", "meet_curves"]

# Points move on their surface at the speed of their distance to the curve, though it lie across the surface;
# less where less than this share of the way lies along it, lest they rush to and fro where no way leads on.
_LEAST = 0.1
# In a unit of time the distance falls by a factor of e^(1/1.1): by 1e-8 in all spans together. Points that come
# no closer by one part in a hundred in a span, where it falls to a sixth if a way leads on, are given up.
_SPAN, _SPANS, _STALLED = 2.0, 10, 0.99


class ReferenceCurve:
    """A reference curve as a cubic spline of arc length, and its closest points."""

    def __init__(self, curves: Submanifold, place: int) -> None:
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

    def closest(self, points: Array) -> Array:
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


class Met(NamedTuple):
    """Where every point's surfaces meet the curves, (point, curve) each."""

    length: Array
    """Arc length of the curve there."""
    distance: Array
    """Distance to the curve that was left."""
    confidence: Array
    """How clear it was on the way which field is which."""


def meet_curves(
    field: Field,
    curves: list[ReferenceCurve],
    points: Array,
    references: Array,
    degeneracy: float,
    rtol: float,
) -> Met:
    """Move points (point, latent) on each of their surfaces to its curve.

    Args:
        field: the right singular bases.
        curves: one curve a field.
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
    live = np.flatnonzero(distance > rtol**0.5)
    stride: float | None = None
    for _ in range(_SPANS):
        if len(live) == 0:
            break
        moved = _span(field, curves, which[live], state[live], reference[live], degeneracy, rtol, stride)
        stride = moved.stride
        state[live], reference[live] = moved.points, moved.reference
        confidence[live] = np.minimum(confidence[live], moved.confidence)
        times[live], towards = _closest(curves, which[live], state[live])
        before, distance[live] = distance[live], np.linalg.norm(towards, axis=1)
        live = live[(distance[live] > rtol**0.5) & (distance[live] < _STALLED * before)]
    shape = (len(curves), count)
    return Met(*(part.reshape(shape).T for part in (times, distance, confidence)))


class _Span(NamedTuple):
    points: Array
    reference: Array
    confidence: Array
    stride: float | None


def _span(
    field: Field,
    curves: list[ReferenceCurve],
    which: NDArray[np.int64],
    points: Array,
    reference: Array,
    degeneracy: float,
    rtol: float,
    stride: float | None,
) -> _Span:
    """Move points on their surfaces for one span of time."""
    met: list[Followed] = []
    confidence = np.ones(len(points))

    def velocity(_: float, flat: Array) -> Array:
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


def _closest(curves: list[ReferenceCurve], which: NDArray[np.int64], points: Array) -> tuple[Array, Array]:
    """Arc length (point,) of the closest point on each point's own curve, and the way there (point, latent)."""
    times, towards = np.empty(len(points)), np.empty_like(points)
    for place, curve in enumerate(curves):
        mine = which == place
        if mine.any():
            times[mine] = curve.closest(points[mine])
            towards[mine] = curve.spline(times[mine]) - points[mine]
    return times, towards
