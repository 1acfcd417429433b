"""Curves in latent space that follow one right singular vector of a decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry import FisherWeighted
from unseam.geometry.checks import check_points
from unseam.independence._fields import Active, Field, Floats, Followed, follow
from unseam.inputs import Array, Decoder, as_floating, as_mask, check_choice, check_count, check_number

__all__ = ["Submanifold", "submanifold"]

Ends = tuple[str, str]
Speed = Literal["latent", "data"]

# Steps of the solver to either side at least, so that it does not leap over a place where fields cross.
_FEWEST = 8


class Submanifold(NamedTuple):
    """A curve along one right singular vector, at nodes evenly spaced to either side of its start.

    For several curves a first axis ``batch`` comes before ``step``. The start is the middle node.
    """

    points: Tensor
    """z (step, latent)."""
    latent_length: Tensor
    """Arc length in latent space (step,), from the start, negative before it."""
    data_length: Tensor
    """Arc length in data space (step,), likewise; in the metric that the likelihood weights, where given."""
    directions: Tensor
    """Unit tangents (step, latent) in the sense of growing length."""
    singular_values: Tensor
    """‖W^½ J v‖ along the curve (step,)."""
    spectrum: Tensor
    """All singular values (step, field), descending."""
    order: Tensor
    """Place of the followed vector in the spectrum (step,); 0 is the largest."""
    confidence: Tensor
    """How clear it was which vector continues the curve (step,), from 0 to 1; the worst since the node before."""
    degenerate: Tensor
    """Nodes (step,) since whose neighbour singular values were nearly repeated: the direction is one of many."""
    ambiguous: Tensor
    """Nodes (step,) where confidence fell below one half: another vector was as good a continuation."""
    crossings: Tensor
    """Nodes (step,) where the place in the spectrum differs from the node before."""
    ended: Ends | tuple[Ends, ...]
    """Why the curve ended, before its start and after it: ``length``, ``box``, ``degenerate``, ``rank`` (no data
    move along it, so it has no data length), or ``solver``."""
    data: Tensor | None
    """Decoder outputs (step, *data), where asked for."""


@torch.no_grad()
def submanifold(
    decoder: Decoder,
    start: Array,
    component: int | Sequence[int] | Array,
    *,
    length: float = 3.0,
    steps: int = 32,
    speed: Speed = "latent",
    box: float | Array = 5.0,
    through: bool = True,
    degeneracy: float = 0.05,
    likelihood: FisherWeighted | None = None,
    active: Active = None,
    data: bool = False,
    rtol: float = 1e-5,
    chunk_size: int | None = None,
) -> Submanifold:
    r"""Curve through a point that follows one right singular vector of the Jacobian.

    .. math:: \dot z = \pm v_i(z) \quad \text{or} \quad \dot z = \pm v_i(z) / s_i(z), \qquad
        W^{1/2} J = U S V^\top

    the sub-manifold :math:`\mathcal V^{(i)}` of allen2024 §3.2.3; its image in data space has tangent
    :math:`u_i`. Both ways from the start, by SciPy's Dormand–Prince solver with all curves as one system. The
    place i is that at the start. From there the vector with the largest overlap with the direction before is
    followed, in its sense, whatever its place. Where singular values come closer than ``degeneracy`` their
    vectors are arbitrary: the curve goes on straight within their span until they part (or ends, with
    ``through=False``). A curve alone is a component only where :func:`integrability` says so.

    Args:
        decoder: map from (batch, latent) to (batch, \*data) that treats each point on its own.
        start: a point (latent,), or several (batch, latent).
        component: place i of the singular vector at the start, from 0 for the largest singular value; or
            one for each curve (batch,), all through the same start if that is a single point.
        length: greatest arc length to either side, in the unit of ``speed``.
        steps: nodes to either side.
        speed: ``latent`` for nodes evenly spaced in latent space, ``data`` for evenly spaced in data space.
        box: half the side of the box around the origin that the curve must not leave, or its corners
            (2, latent).
        through: whether to go on where singular values are nearly repeated.
        degeneracy: relative gap below which neighbouring singular values count as repeated.
        likelihood: weights the metric by ``fisher_weight(output)``; ``None`` for the identity.
        active: mask or indices of the latents that may move.
        data: whether to return the decoder's outputs at the nodes.
        rtol: relative tolerance of the solver for each curve; the absolute one is the same.
        chunk_size: number of points differentiated at once.

    Returns:
        The curve and what was met on the way.

    >>> curve = submanifold(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(2), 0, length=1.0, steps=1)
    >>> curve.points
    tensor([[-1., 0.],
            [ 0., 0.],
            [ 1., 0.]])
    >>> curve.data_length, curve.ended
    (tensor([-3., 0., 3.]), ('length', 'length'))
    """
    points, places, single = _curves(start, component)
    _check(length=length, rtol=rtol, steps=steps, degeneracy=degeneracy)
    check_choice("speed", speed, get_args(Speed))
    field = Field(decoder, points, likelihood=likelihood, active=active, chunk_size=chunk_size)
    if not 0 <= int(places.min()) <= int(places.max()) < len(field.moving):
        raise ValueError(f"component must be from 0 to {len(field.moving) - 1}, got {places.tolist()}")
    origin = points.double().cpu().numpy()
    frames = field(origin)
    first = frames.vectors[np.arange(len(origin)), :, places.cpu().numpy()]
    system = _System(field, _corners(box, points), speed, through, degeneracy, rtol, length / _FEWEST)
    traced = system.trace(np.concatenate([origin, origin]), np.concatenate([-first, first]), length)
    halves = _nodes(field, traced, steps, degeneracy)
    return _assemble(field, halves, traced.reasons, single, speed, data)


def _assemble(
    field: Field, halves: _Nodes, reasons: list[str], single: bool, speed: Speed, data: bool
) -> Submanifold:
    """Whole curves from their halves, in the type and on the device of the start."""
    count = len(reasons) // 2

    def joined(part: NDArray[Any], sign: float | None = None) -> Tensor:
        before = part[:count, :0:-1] if sign is None else sign * part[:count, :0:-1]
        whole = np.concatenate([before, part[count:]], 1)
        found = torch.from_numpy(whole[0] if single else whole).to(field.device)
        return found.to(field.dtype) if found.is_floating_point() else found

    own, other = joined(halves.times, -1.0), joined(halves.state[..., -1], -1.0)
    points, order = joined(halves.state[..., :-1]), joined(halves.met.order)
    confidence = joined(halves.met.confidence)
    crossings = torch.nn.functional.pad(order.diff(dim=-1) != 0, (1, 0))
    outputs = field.decoder(points.reshape(-1, field.latent)) if data else None
    ended = tuple(zip(reasons[:count], reasons[count:], strict=True))
    return Submanifold(
        points=points,
        latent_length=own if speed == "latent" else other,
        data_length=other if speed == "latent" else own,
        directions=joined(halves.met.direction, -1.0),
        singular_values=joined(halves.met.speed),
        spectrum=joined(halves.spectrum),
        order=order,
        confidence=confidence,
        degenerate=joined(halves.met.degenerate),
        ambiguous=confidence < 0.5,
        crossings=crossings,
        ended=ended[0] if single else ended,
        data=None if outputs is None else outputs.reshape(*points.shape[:-1], *outputs.shape[1:]),
    )


def _curves(start: Any, component: Any) -> tuple[Tensor, Tensor, bool]:
    """Start (batch, latent) and place (batch,) of every curve, and whether there is but one, given as such."""
    points = check_points(start, "start", "(latent,) or (batch, latent)").detach()
    places = as_mask("component", component)
    if places.dtype == torch.bool or places.ndim > 1 or places.numel() == 0:
        raise ValueError(
            f"component must be an integer or one for each curve, got {places.dtype} of shape {tuple(places.shape)}"
        )
    single = points.ndim == 1 and places.ndim == 0
    points = points if points.ndim == 2 else points[None]
    count = max(len(points), places.numel())
    if len(points) not in (1, count) or places.numel() not in (1, count):
        raise ValueError(
            f"component must be one for each of {len(points)} starts, got {places.numel()} components"
        )
    return points.expand(count, -1), places.expand(count), single


def _corners(box: float | Array, points: Tensor) -> Floats:
    """Lower and upper corner (2, latent) of a box that holds every start."""
    given = as_floating("box", box).double().cpu()
    corners = torch.stack([-given, given])[:, None] if given.ndim == 0 else given
    if corners.shape not in ((2, 1), (2, points.shape[1])) or not bool((corners[0] < corners[1]).all()):
        raise ValueError(
            f"box must be a positive number or a lower and an upper corner (2, {points.shape[1]}), got {box}"
        )
    inside = points.double().cpu()
    if bool(((inside < corners[0]) | (inside > corners[1])).any()):
        raise ValueError(f"start must lie in the box, got a point outside {corners.tolist()}")
    return corners.numpy()


def _check(*, steps: int, degeneracy: float, **positive: float) -> None:
    for name, value in positive.items():
        check_number(name, value, above=0)
    check_count("steps", steps)
    check_number("degeneracy", degeneracy, least=0)


class _Step(NamedTuple):
    """One accepted step of the solver for the curves that were still under way."""

    begin: float
    end: float
    state: Any
    rows: NDArray[np.int64]
    reference: Floats
    met: Followed


class _Traced(NamedTuple):
    """Half curves as the solver left them."""

    steps: list[_Step]
    ends: Floats
    """Length of each half curve (curve,)."""
    reasons: list[str]
    """Why each ended."""
    first: Followed
    """What each started along."""


class _System:
    """Curves as one system of ordinary differential equations, each with the other arc length as last entry."""

    def __init__(
        self,
        field: Field,
        corners: Floats,
        speed: Speed,
        through: bool,
        degeneracy: float,
        rtol: float,
        max_step: float,
    ) -> None:
        self.field, self.corners, self.speed, self.through = field, corners, speed, through
        self.degeneracy, self.rtol, self.max_step = degeneracy, rtol, max_step

    def trace(self, start: Floats, direction: Floats, length: float) -> _Traced:
        """Follow every curve until it ends."""
        state = np.concatenate([start, np.zeros((len(start), 1))], 1)
        reference, ends = direction.copy(), np.full(len(start), length)
        reasons = ["length"] * len(start)
        first = follow(self.field(start), direction, self.degeneracy)
        order, running = first.order.copy(), np.arange(len(start))
        taken: list[_Step] = []
        time = 0.0
        while len(running) and time < length:
            for step in self._march(
                time, length, state[running], reference[running], order[running], running
            ):
                taken.append(step)
                time = step.end
                state[running] = _entries(step.state(time), len(running))
                reference[running], order[running] = step.met.direction, step.met.order
                why = self._reasons(state[running, :-1], step.met)
                if any(why):
                    break
            else:
                if time < length:
                    for row in running:
                        reasons[row], ends[row] = "solver", time
                break
            for place, (row, reason) in enumerate(zip(running, why, strict=True)):
                if reason:
                    reasons[row] = reason
                    ends[row] = self._exit(step, place) if reason == "box" else step.begin
            running = running[[not reason for reason in why]]
        return _Traced(taken, ends, reasons, first)

    def _march(
        self,
        time: float,
        length: float,
        state: Floats,
        reference: Floats,
        order: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> Iterator[_Step]:
        """Accepted steps of the solver, one by one; the reference moves on with each of them."""
        from scipy.integrate import RK45

        met: list[Followed] = []
        near = np.zeros(len(rows), bool)

        def velocity(_: float, flat: Floats) -> Floats:
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

    def _velocity(self, met: Followed) -> Floats:
        if self.speed == "latent":
            return np.concatenate([met.direction, met.speed[:, None]], 1)
        slowness = 1 / np.where(met.speed > 0, met.speed, np.inf)
        return np.concatenate([met.direction, np.ones_like(slowness)[:, None]], 1) * slowness[:, None]

    def _reasons(self, points: Floats, met: Followed) -> list[str]:
        lower, upper = self.corners
        left = ((points < lower) | (points > upper)).any(1)
        stopped = met.degenerate & (not self.through)
        still = (met.speed == 0) & (self.speed == "data")
        return [
            "rank" if row[2] else "degenerate" if row[1] else "box" if row[0] else ""
            for row in zip(left, stopped, still, strict=True)
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


class _Nodes(NamedTuple):
    """Half curves (curve, step, ...) at their nodes."""

    times: Floats
    state: Floats
    met: Followed
    spectrum: Floats


def _nodes(field: Field, traced: _Traced, steps: int, degeneracy: float) -> _Nodes:
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
    return _Nodes(times, state, shaped, frames.singular_values.reshape(*shape, -1))


def _entries(flat: Floats, curves: int) -> Floats:
    return np.asarray(flat).reshape(curves, -1)
