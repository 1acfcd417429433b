"""Curves in latent space that follow one right singular vector of a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry import FisherWeighted
from unseam.geometry.checks import check_points
from unseam.geometry.jacobian import Decoder
from unseam.independence._fields import Array, Field
from unseam.independence._moving import Active
from unseam.independence._tracing import Nodes, Speed, System, nodes

__all__ = ["Submanifold", "submanifold"]

Ends = tuple[str, str]

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
    start: Tensor | NDArray[Any],
    component: int | Sequence[int] | Tensor | NDArray[Any],
    *,
    length: float = 3.0,
    steps: int = 32,
    speed: Speed = "latent",
    box: float | Tensor | NDArray[Any] = 5.0,
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
    if speed not in get_args(Speed):
        raise ValueError(f"speed must be 'latent' or 'data', got {speed!r}")
    field = Field(decoder, points, likelihood=likelihood, active=active, chunk_size=chunk_size)
    if not 0 <= int(places.min()) <= int(places.max()) < len(field.moving):
        raise ValueError(f"component must be from 0 to {len(field.moving) - 1}, got {places.tolist()}")
    origin = points.double().cpu().numpy()
    frames = field(origin)
    first = frames.vectors[np.arange(len(origin)), :, places.cpu().numpy()]
    system = System(field, _corners(box, points), speed, through, degeneracy, rtol, length / _FEWEST)
    traced = system.trace(np.concatenate([origin, origin]), np.concatenate([-first, first]), length)
    halves = nodes(field, traced, steps, degeneracy)
    return _assemble(field, halves, traced.reasons, single, speed, data)


def _assemble(
    field: Field, halves: Nodes, reasons: list[str], single: bool, speed: Speed, data: bool
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
    points, places = torch.as_tensor(start).detach(), torch.as_tensor(component)
    if points.ndim not in (1, 2):
        raise ValueError(
            f"start must have shape (latent,) or (batch, latent), got shape {tuple(points.shape)}"
        )
    if places.is_floating_point() or places.dtype == torch.bool or places.ndim > 1 or places.numel() == 0:
        raise ValueError(
            f"component must be an integer or one for each curve, got {places.dtype} of shape {tuple(places.shape)}"
        )
    single = points.ndim == 1 and places.ndim == 0
    points = check_points(points if points.ndim == 2 else points[None])
    count = max(len(points), places.numel())
    if len(points) not in (1, count) or places.numel() not in (1, count):
        raise ValueError(
            f"component must be one for each of {len(points)} starts, got {places.numel()} components"
        )
    return points.expand(count, -1), places.expand(count), single


def _corners(box: float | Tensor | NDArray[Any], points: Tensor) -> Array:
    """Lower and upper corner (2, latent) of a box that holds every start."""
    given = torch.as_tensor(box).double().cpu()
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
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if not degeneracy >= 0:
        raise ValueError(f"degeneracy must not be negative, got {degeneracy}")
