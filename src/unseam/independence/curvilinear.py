"""Coordinates along the curves of a decoder's components, and whether they are independent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import RK45
from scipy.interpolate import CubicHermiteSpline
from torch import Tensor

from unseam.geometry import FisherWeighted, restrict
from unseam.geometry.checks import check_points
from unseam.geometry.jacobian import Decoder
from unseam.independence._fields import Array, Field, Followed, follow
from unseam.independence.integrability import Integrability, integrability
from unseam.independence.submanifold import Submanifold, submanifold
from unseam.independence.testing import IndependenceTest, Statistic, independence_test

__all__ = ["ComponentCase", "Curvilinear", "component_case", "curvilinear"]

# Nodes on the straight line from the base to a point, on which fields are told apart.
_RAY = 16
# Points move on their surface at the speed of their distance to the curve, though it lie across the surface;
# less where less than this share of the way lies along it, lest they rush to and fro where no way leads on.
_LEAST = 0.1
# In a unit of time the distance falls by a factor of e^(1/1.1): by 1e-8 in all spans together. Points that come
# no closer by one part in a hundred in a span, where it falls to a sixth if a way leads on, are given up.
_SPAN, _SPANS, _STALLED = 2.0, 10, 0.99
# Points whose brackets are measured before coordinates are computed.
_JUDGED = 128


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


class ComponentCase(NamedTuple):
    """Which case of allen2024 §3.2.3 a decoder is."""

    case: int | None
    """1: components exist and depend on each other; 2: no dependence was found; ``None``: no components, or
    undecided."""
    verdict: str
    """The same in words, with the numbers."""
    test: IndependenceTest | None
    """The test of independence on the coordinates, where there are any."""
    integrability: Integrability
    """Whether components exist, from at most 128 of the points."""
    coordinates: Curvilinear | None
    """Coordinates of every point, where components exist."""
    used: int
    """Points that the test used: reached by every coordinate, with every field told apart."""


@torch.no_grad()
def curvilinear(
    decoder: Decoder,
    z: Tensor | NDArray[Any],
    *,
    base: Tensor | NDArray[Any] | None = None,
    length: float = 6.0,
    steps: int = 48,
    box: float | Tensor | NDArray[Any] = 8.0,
    through: bool = True,
    degeneracy: float = 0.05,
    likelihood: FisherWeighted | None = None,
    active: Tensor | NDArray[Any] | list[int] | None = None,
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
        base: point (latent,) that the reference curves start from, with all singular values apart; by default
            the origin.
        length: arc length of the reference curves to either side; points beyond are not reached. Half of its
            length for a curve that closes.
        steps: nodes of the reference curves to either side; cubic splines with their tangents join them.
        box: box that the reference curves must not leave, as for :func:`submanifold`.
        through: whether the reference curves go on where singular values are nearly repeated.
        degeneracy: relative gap below which neighbouring singular values count as repeated.
        likelihood: weights the metric by ``fisher_weight(output)``; ``None`` for the identity.
        active: mask or indices of the latents that have components; the others are set to those of ``base``.
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
    points, centre, moving = _settled(z, base, active)
    components = len(moving)
    curves = submanifold(
        decoder,
        centre,
        list(range(components)),
        length=length,
        steps=steps,
        box=box,
        through=through,
        degeneracy=degeneracy,
        likelihood=likelihood,
        active=moving,
        rtol=rtol,
        chunk_size=chunk_size,
    )
    field = Field(decoder, points, likelihood=likelihood, active=moving, chunk_size=chunk_size)
    where, origin = points.double().cpu().numpy(), centre.double().cpu().numpy()
    references, confidence = _told_apart(field, origin, where, degeneracy)
    curve = [_Curve(curves, place) for place in range(components)]
    coordinates, distance, surely = _moved(field, curve, where, references, degeneracy, rtol)
    reached = distance <= rtol**0.5
    coordinates = np.where(reached, coordinates, np.nan)
    return Curvilinear(
        torch.from_numpy(coordinates).to(points),
        torch.from_numpy(reached).to(points.device),
        torch.from_numpy(np.minimum(confidence, surely)).to(points),
        curves,
    )


def component_case(
    decoder: Decoder,
    z: Tensor | NDArray[Any],
    *,
    generator: torch.Generator,
    level: float = 0.05,
    method: str | Statistic = "hsic",
    permutations: int = 199,
    base: Tensor | NDArray[Any] | None = None,
    length: float = 6.0,
    steps: int = 48,
    box: float | Tensor | NDArray[Any] = 8.0,
    through: bool = True,
    degeneracy: float = 0.05,
    likelihood: FisherWeighted | None = None,
    active: Tensor | NDArray[Any] | list[int] | None = None,
    step: float | None = None,
    chunk_size: int | None = None,
) -> ComponentCase:
    r"""Whether the components of a decoder are independent: case (1) or case (2) of allen2024 §3.2.3.

    .. math:: p(u) = \prod_i p(u_i) \;?

    First whether there are components at all (:func:`integrability`), then their coordinates u
    (:func:`curvilinear`) at draws of the prior, then a permutation test of their independence
    (:func:`independence_test`). In case (1) the decoder entangles the latents: what it generates need not be a
    product of independent components. In case (2) it is one, though the components may be curves that no
    rotation of the latents straightens, and that data cannot tell from others. As with any test, case (2) says
    that no dependence was found with so many points.

    A decoder with orthogonal columns has its latents for coordinates, so it is always case (2), coupled or
    not (:func:`coupling`).

    Args:
        decoder: map from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: independent draws of the prior (batch, latent).
        generator: source of the permutations.
        level: p-value below which components count as dependent.
        method, permutations: as for :func:`independence_test`.
        base, length, steps, box, through, degeneracy, likelihood, active, chunk_size: as for
            :func:`curvilinear`; latents that are dead must be left out of ``active``.
        step: as for :func:`integrability`, for decoders with kinks (ReLU) and three latents or more.

    Returns:
        The case, and everything it rests on. It is undecided where fewer than half of the points have all
        coordinates, or fewer than 20.

    >>> draws = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    >>> matrix = torch.tensor([[3.0, 1.0], [0.0, 1.0]])
    >>> component_case(lambda z: z @ matrix, draws, generator=torch.Generator().manual_seed(0)).case
    2
    """
    points, _, moving = _settled(z, base, active)
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if len(moving) < 2:
        raise ValueError(
            "z must have at least two latents, active where given, for components to depend on each other, got 1"
        )
    exist = integrability(
        decoder,
        points[:_JUDGED],
        likelihood=likelihood,
        active=moving,
        degeneracy=degeneracy,
        step=step,
        chunk_size=chunk_size,
    )
    if not exist.exist:
        return ComponentCase(None, exist.verdict, None, exist, None, 0)
    found = curvilinear(
        decoder,
        points,
        base=base,
        length=length,
        steps=steps,
        box=box,
        through=through,
        degeneracy=degeneracy,
        likelihood=likelihood,
        active=moving,
        chunk_size=chunk_size,
    )
    sure = (found.reached & (found.confidence >= 0.5)).all(1)
    used = int(sure.sum())
    if used < max(20, len(points) / 2):
        verdict = (
            f"undecided: only {used} of {len(points)} points have all coordinates; try another base, longer "
            f"curves or a wider box"
        )
        return ComponentCase(None, verdict, None, exist, found, used)
    test = independence_test(
        found.coordinates[sure], method=method, generator=generator, permutations=permutations
    )
    case = 1 if test.p_value.item() < level else 2
    return ComponentCase(case, _verdict(case, test, used, len(points)), test, exist, found, used)


class _Settled(NamedTuple):
    points: Tensor
    centre: Tensor
    moving: Tensor


def _settled(
    z: Tensor | NDArray[Any],
    base: Tensor | NDArray[Any] | None,
    active: Tensor | NDArray[Any] | list[int] | None,
) -> _Settled:
    """Points (batch, latent) with passive latents as in the base (latent,), and indices of those that move."""
    points = check_points(z).detach()
    centre = torch.zeros_like(points[0]) if base is None else torch.as_tensor(base).detach().to(points)
    if centre.shape != points.shape[1:]:
        raise ValueError(f"base must have shape ({points.shape[1]},), got shape {tuple(centre.shape)}")
    every = torch.arange(points.shape[1], device=points.device)
    if active is None:
        return _Settled(points, centre, every)
    moving = restrict(every.diag().to(points), active).diagonal().long()
    passive = torch.ones_like(centre, dtype=torch.bool)
    passive[moving] = False
    return _Settled(torch.where(passive, centre, points), centre, moving)


def _verdict(case: int, test: IndependenceTest, used: int, given: int) -> str:
    chance = f"p = {test.p_value.item():.2g} with {used} of {given} points"
    if case == 1:
        return (
            f"case 1: components exist but depend on each other ({chance}): the decoder entangles its latents"
        )
    return f"case 2: components exist and no dependence between them was found ({chance})"


class _Curve:
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


def _moved(
    field: Field, curves: list[_Curve], points: Array, references: Array, degeneracy: float, rtol: float
) -> tuple[Array, Array, Array]:
    """Arc length where every point's surfaces meet the curves (point, curve), distance left, and confidence."""
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
    return times.reshape(shape).T, distance.reshape(shape).T, confidence.reshape(shape).T


class _Span(NamedTuple):
    points: Array
    reference: Array
    confidence: Array
    stride: float | None


def _span(
    field: Field,
    curves: list[_Curve],
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


def _closest(curves: list[_Curve], which: NDArray[np.int64], points: Array) -> tuple[Array, Array]:
    """Arc length (point,) of the closest point on each point's own curve, and the way there (point, latent)."""
    times, towards = np.empty(len(points)), np.empty_like(points)
    for place, curve in enumerate(curves):
        mine = which == place
        if mine.any():
            times[mine] = curve.closest(points[mine])
            towards[mine] = curve.spline(times[mine]) - points[mine]
    return times, towards
