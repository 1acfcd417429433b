"""Tracing curves along a right singular vector: the differential equation, and its solution at even nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import RK45

from unseam.independence._fields import Array, Field, Followed, follow

__all__ = ["Nodes", "Speed", "System", "Traced", "nodes"]

Speed = Literal["latent", "data"]


class _Step(NamedTuple):
    """One accepted step of the solver for the curves that were still under way."""

    begin: float
    end: float
    state: Any
    rows: NDArray[np.int64]
    reference: Array
    met: Followed


class Traced(NamedTuple):
    """Half curves as the solver left them."""

    steps: list[_Step]
    ends: Array
    """Length of each half curve (curve,)."""
    reasons: list[str]
    """Why each ended."""
    first: Followed
    """What each started along."""


class System:
    """Curves as one system of ordinary differential equations, each with the other arc length as last entry."""

    def __init__(
        self,
        field: Field,
        corners: Array,
        speed: Speed,
        through: bool,
        degeneracy: float,
        rtol: float,
        max_step: float,
    ) -> None:
        self.field, self.corners, self.speed, self.through = field, corners, speed, through
        self.degeneracy, self.rtol, self.max_step = degeneracy, rtol, max_step

    def trace(self, start: Array, direction: Array, length: float) -> Traced:
        """Follow every curve until it ends."""
        state = np.concatenate([start, np.zeros((len(start), 1))], 1)
        reference, ends = direction.copy(), np.full(len(start), length)
        reasons = ["length"] * len(start)
        first = follow(self.field(start), direction, self.degeneracy)
        order, live = first.order.copy(), np.arange(len(start))
        taken: list[_Step] = []
        time = 0.0
        while len(live) and time < length:
            for step in self._march(time, length, state[live], reference[live], order[live], live):
                taken.append(step)
                time = step.end
                state[live] = _entries(step.state(time), len(live))
                reference[live], order[live] = step.met.direction, step.met.order
                why = self._reasons(state[live, :-1], step.met)
                if any(why):
                    break
            else:
                if time < length:
                    for row in live:
                        reasons[row], ends[row] = "solver", time
                break
            for place, (row, reason) in enumerate(zip(live, why, strict=True)):
                if reason:
                    reasons[row] = reason
                    ends[row] = self._exit(step, place) if reason == "box" else step.begin
            live = live[[not reason for reason in why]]
        return Traced(taken, ends, reasons, first)

    def _march(
        self,
        time: float,
        length: float,
        state: Array,
        reference: Array,
        order: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> Iterator[_Step]:
        """Accepted steps of the solver, one by one; the reference moves on with each of them."""
        met: list[Followed] = []
        near = np.zeros(len(rows), bool)

        def velocity(_: float, flat: Array) -> Array:
            points = _entries(flat, len(rows))[:, :-1]
            met[:] = [follow(self.field(points), reference, self.degeneracy)]
            near[:] |= met[0].degenerate
            return self._velocity(met[0]).ravel()

        # The solver's norm is a mean over the system: this keeps the error of each curve below the tolerance.
        tolerance = self.rtol / len(rows) ** 0.5
        solver = RK45(
            velocity, time, state.ravel(), length, max_step=self.max_step, rtol=tolerance, atol=tolerance
        )
        before = order
        while solver.status == "running":
            solver.step()
            if solver.status == "failed":
                return
            # The last point where the solver asks for a velocity is the end of an accepted step. Two singular
            # values that changed places have been equal on the way.
            end = met[0]._replace(degenerate=near | (met[0].order != before))
            yield _Step(solver.t_old, solver.t, solver.dense_output(), rows, reference.copy(), end)
            before, near[:] = end.order, met[0].degenerate
            reference[:] = end.direction

    def _velocity(self, met: Followed) -> Array:
        if self.speed == "latent":
            return np.concatenate([met.direction, met.speed[:, None]], 1)
        slowness = 1 / np.where(met.speed > 0, met.speed, np.inf)
        return np.concatenate([met.direction, np.ones_like(slowness)[:, None]], 1) * slowness[:, None]

    def _reasons(self, points: Array, met: Followed) -> list[str]:
        lower, upper = self.corners
        left = ((points < lower) | (points > upper)).any(1)
        stopped = met.degenerate & (not self.through)
        dead = (met.speed == 0) & (self.speed == "data")
        return [
            "rank" if row[2] else "degenerate" if row[1] else "box" if row[0] else ""
            for row in zip(left, stopped, dead, strict=True)
        ]

    def _exit(self, step: _Step, place: int) -> float:
        """When a curve left the box, by bisection to the resolution of the numbers."""
        lower, upper = self.corners
        inside, outside = step.begin, step.end
        for _ in range(52):
            middle = (inside + outside) / 2
            point = _entries(step.state(middle), len(step.rows))[place, :-1]
            within = bool(((point >= lower) & (point <= upper)).all())
            inside, outside = (middle, outside) if within else (inside, middle)
        return inside


class Nodes(NamedTuple):
    """Half curves (curve, step, ...) at their nodes."""

    times: Array
    state: Array
    met: Followed
    spectrum: Array


def nodes(field: Field, traced: Traced, steps: int, degeneracy: float) -> Nodes:
    """Every half curve at evenly spaced nodes from its start to its end."""
    ends = traced.ends
    times = ends[:, None] * np.linspace(0, 1, steps + 1)
    latent = field.latent
    state = np.zeros((len(ends), steps + 1, latent + 1))
    reference = np.repeat(traced.first.direction[:, None], steps + 1, 1)
    worst = np.ones((len(ends), steps + 1))
    touched = np.repeat(traced.first.degenerate[:, None], steps + 1, 1) & (np.arange(steps + 1) == 0)
    for step in traced.steps:
        mine = times[step.rows]
        place, node = np.nonzero((mine >= step.begin) & (mine <= step.end))
        if len(place):
            values = step.state(mine[place, node]).reshape(len(step.rows), latent + 1, -1)
            row = step.rows[place]
            state[row, node] = values[place, :, np.arange(len(place))]
            reference[row, node] = step.reference[place]
        spacing = np.where(ends[step.rows] > 0, ends[step.rows] / steps, 1.0)
        after = np.clip(np.ceil(step.end / spacing - 1e-9), 1, steps).astype(int)
        np.minimum.at(worst, (step.rows, after), step.met.confidence)
        np.logical_or.at(touched, (step.rows, after), step.met.degenerate)
    points = state[..., :-1].reshape(-1, latent)
    frames = field(points)
    met = follow(frames, reference.reshape(-1, latent), degeneracy)
    shape = times.shape
    confidence = np.minimum(met.confidence.reshape(shape), worst)
    shaped = Followed(
        direction=met.direction.reshape(*shape, latent),
        speed=met.speed.reshape(shape),
        order=met.order.reshape(shape),
        confidence=confidence,
        degenerate=met.degenerate.reshape(shape) | touched,
    )
    return Nodes(times, state, shaped, frames.singular_values.reshape(*shape, -1))


def _entries(flat: Array, curves: int) -> Array:
    return np.asarray(flat).reshape(curves, -1)
