"""Whether each factor of a decoder's density depends on its own coordinate alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import jvp

from unseam.geometry import jacobian, pullback
from unseam.geometry.checks import check_decoder, check_finite, directional
from unseam.geometry.memory import points_at_once
from unseam.independence._basis import Decoder, turned
from unseam.independence._kinks import jumps, segments
from unseam.independence._metric import LAYERS

__all__ = ["Coupling", "NotSmoothError", "coupling"]

Way = Callable[[Decoder, Tensor], Tensor]


class NotSmoothError(ValueError):
    """Derivatives do not describe how a decoder changes; differences over a step do."""


class Coupling(NamedTuple):
    """Mean squared dependence of each factor on each coordinate."""

    matrix: Tensor
    """E[(∂ log‖∂x/∂z_i‖ / ∂z_j)²] (latent, latent), factor i in rows, coordinate j in columns."""
    off_diagonal: Tensor
    """Mean over pairs i ≠ j, then over points: zero where each factor depends on its own coordinate alone."""
    standard_error: Tensor
    """Of ``off_diagonal``, from the spread over points; NaN for one point."""
    per_point: Tensor | None
    """∂ log‖∂x/∂z_i‖ / ∂z_j at each point (batch, latent, latent), where asked for."""


@torch.no_grad()
def coupling(
    decoder: Decoder,
    z: Tensor | NDArray[Any],
    *,
    basis: Tensor | NDArray[Any] | None = None,
    step: float | None = None,
    per_point: bool = False,
    chunk_size: int | None = None,
) -> Coupling:
    r"""How much each factor of the push-forward density depends on coordinates that are not its own.

    .. math:: C_{ij} = E_z \left[ \left(
        \frac{\partial}{\partial z_j} \log \left\lVert \frac{\partial x}{\partial z_i} \right\rVert \right)^2 \right]

    The factor :math:`p(z_i) / \lVert \partial x / \partial z_i \rVert` of allen2024 Eq. 12 is a density in its own
    coordinate only if the norm depends on no other: the proof of Theorem 2 takes that from orthogonality, which
    does not give it (z ↦ e^z as a complex map is orthogonal everywhere, and both of its norms are
    :math:`e^{z_1}`). So this is the second condition, beside the :func:`~unseam.geometry.hadamard_gap`.

    Units are nats² per squared unit of z. The scale of the data and isometries of it change nothing; the unit
    of z is the prior's, whose own factors have :math:`E[(\partial \log p(z_i) / \partial z_i)^2] = 1`, so at
    :math:`C_{ij} = 1` a factor depends on a foreign coordinate as strongly as the prior on its own. A share of
    the matrix's sum would lack units too, but is 0/0 for linear decoders. The diagonal is no fault: it is what
    makes components other than Gaussian.

    Exact derivatives. There are latent² directional second derivatives to a point; reverse mode over forward
    mode gives those of one factor together, so the cost is that of a few passes for each latent. Forward over
    forward mode, whose cost grows as latent², is tried along one direction and taken where it proves right and
    reverse mode does not (decoders that switch gradients off inside); where neither does, that is an error.

    Decoders of ReLU layers, whatever comes after these, have norms that jump at kinks, and derivatives see
    nothing of it. Where all of them vanish though norms differ, or where on segments between a few of the points
    norms jump by a clear share of what they change, that is an error. Give ``step`` h, and symmetric differences
    over ``z_j ± h`` take the derivatives' place (2 · latent pullbacks). Their mean square is a slope at that
    scale: across jumps it has no limit for small h.

    At a point where a column is dead (shorter than the longest by the precision of the type) its factor does
    not exist: its row leaves the point out, and it forms no pair. What is dead everywhere has zeros; without a
    pair ``off_diagonal`` is 0.

    Args:
        decoder: map f from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: points (batch, latent) that the mean runs over, from the prior or the aggregate posterior.
        basis: V (latent, latent), orthonormal columns, to measure in coordinates u = Vᵀz (Eq. 10, Theorem 1).
        step: h, for differences instead of derivatives.
        per_point: whether to return the derivatives of every point.
        chunk_size: number of points differentiated at once; by default what free memory allows.

    Returns:
        Means over points; sums over data dimensions inside the norms. Not differentiable.

    >>> def exponential(z):  # of a complex number
    ...     return z[:, :1].exp() * torch.cat([z[:, 1:].cos(), z[:, 1:].sin()], 1)
    >>> coupling(exponential, torch.zeros(2, 2)).matrix
    tensor([[1., 0.],
            [1., 0.]])
    """
    if step is not None and not 0 < step < float("inf"):
        raise ValueError(f"step must be positive and finite, got {step}")
    with torch.inference_mode(False), torch.no_grad():
        inner, points = turned(decoder, z, basis)
        points = points.detach().clone()
        squares = _squares(inner, points, chunk_size)
        alive = squares > torch.finfo(squares.dtype).eps ** 2 * squares.amax(1, keepdim=True)
        if step is None:
            changes = _Changes(inner, points, chunk_size)
            slopes = changes(points) / (2 * torch.where(squares > 0, squares, 1.0))[:, :, None]
            _check_smooth(slopes, squares, alive)
        else:
            slopes = _differences(inner, points, step, chunk_size)
        slopes = torch.where(alive[:, :, None], slopes, 0.0)
        check_finite("decoder must have finite second derivatives", slopes)
        if step is None:
            _check_kinks(changes, points)
    return _summary(slopes, alive, per_point)


def _squares(decoder: Decoder, points: Tensor, chunk_size: int | None) -> Tensor:
    """‖∂x/∂z_i‖² (batch, latent), after all checks of decoder and points."""
    return pullback(decoder, points, chunk_size=chunk_size).diagonal(dim1=-2, dim2=-1)


class _Changes:
    """∂ ‖∂x/∂z_i‖² / ∂z_j (batch, latent, latent) of a decoder, by whichever way proves right, in chunks."""

    def __init__(self, decoder: Decoder, points: Tensor, chunk_size: int | None) -> None:
        glance = check_decoder(decoder, points, at_once=chunk_size or len(points))
        self.decoder, self.way = decoder, _way(decoder, glance.z)
        width = LAYERS if self.way is _reverse else 2 * points.shape[1]
        self.size = chunk_size or points_at_once(width, glance.widest, glance.output.dtype, points.device)

    def __call__(self, points: Tensor) -> Tensor:
        return torch.cat([self.way(self.decoder, part) for part in points.split(self.size)])

    def squares(self, points: Tensor) -> Tensor:
        """‖∂x/∂z_i‖² (batch, latent)."""
        directions = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
        return torch.cat(
            [
                torch.stack([self._square(part, direction) for direction in directions], 1)
                for part in points.split(self.size)
            ]
        )

    def _square(self, points: Tensor, direction: Tensor) -> Tensor:
        return directional(self.decoder, points, direction.expand_as(points))[1].flatten(1).square().sum(1)


def _reverse(decoder: Decoder, points: Tensor) -> Tensor:
    """∂ ‖∂x/∂z_i‖² / ∂z_j (batch, latent, latent), reverse mode over forward mode."""
    directions = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
    return torch.stack([_gradient(decoder, points, direction) for direction in directions], 1)


def _gradient(decoder: Decoder, points: Tensor, direction: Tensor) -> Tensor:
    """Gradient of ‖J v‖² (batch, latent) in the points, for one direction v (latent,)."""
    with torch.enable_grad():
        z = points.detach().requires_grad_()
        column = directional(decoder, z, direction.expand_as(z))[1]
        total = column.square().sum()
        if not total.requires_grad:  # a column that does not depend on z
            return torch.zeros_like(points)
        (gradient,) = torch.autograd.grad(total, z, allow_unused=True)
    return torch.zeros_like(points) if gradient is None else gradient


def _forward(decoder: Decoder, points: Tensor) -> Tensor:
    """∂ ‖∂x/∂z_i‖² / ∂z_j (batch, latent, latent), forward mode over forward mode."""
    directions = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)

    def squares(z: Tensor) -> Tensor:
        return jacobian(decoder, z).square().sum(1)

    changes = [jvp(squares, (points,), (direction.expand_as(points),))[1] for direction in directions]
    return torch.stack(changes, 2)


def _way(decoder: Decoder, z: Tensor) -> Way:
    """The faster way that finds the right second derivative along one direction at a few points.

    Reverse mode misses what runs without gradients; forward mode taken twice, in torch, what functions with a
    derivative of their own have saved. Where they differ, a difference of first derivatives decides.
    """
    direction = torch.linspace(1, 2, z.shape[1], dtype=z.dtype, device=z.device)

    def square(points: Tensor) -> Tensor:
        return directional(decoder, points, direction.expand_as(points))[1].flatten(1).square().sum(1)

    def agree(found: Tensor | None, expected: Tensor | None) -> bool:
        if found is None or expected is None:
            return False
        tolerance = torch.finfo(z.dtype).eps ** 0.25  # products may run in TF32
        close = (found - expected).abs() <= tolerance * torch.maximum(square(z), expected.abs())
        return bool((close | ~(found + expected).isfinite()).all())  # what is not finite is refused later

    reverse, forward = _reverse_along(decoder, z, direction), _forward_along(decoder, z, direction)
    if agree(reverse, forward):
        return _reverse
    step = torch.finfo(z.dtype).eps ** (1 / 3)
    difference = (square(z + step * direction) - square(z - step * direction)) / (2 * step)
    if agree(reverse, difference):
        return _reverse
    if agree(forward, difference):
        return _forward
    raise NotSmoothError(
        "decoder must have second derivatives that automatic differentiation finds, but they are not those of "
        "its first; give step to measure differences"
    )


def _reverse_along(decoder: Decoder, z: Tensor, direction: Tensor) -> Tensor | None:
    try:
        return _gradient(decoder, z, direction) @ direction
    except RuntimeError:
        return None


def _forward_along(decoder: Decoder, z: Tensor, direction: Tensor) -> Tensor | None:
    tangent = direction.expand_as(z)

    def square(points: Tensor) -> Tensor:
        return jvp(decoder, (points,), (tangent,))[1].flatten(1).square().sum(1)

    try:
        return jvp(square, (z,), (tangent,))[1]
    except RuntimeError:
        return None


def _differences(decoder: Decoder, points: Tensor, step: float, chunk_size: int | None) -> Tensor:
    """Symmetric differences of log‖∂x/∂z_i‖ over 2 · step of z_j (batch, latent, latent); 0 where one is dead."""
    columns = []
    for axis in torch.eye(points.shape[1], dtype=points.dtype, device=points.device):
        ahead, behind = (_squares(decoder, points + sign * step * axis, chunk_size) for sign in (1, -1))
        change = (ahead.log() - behind.log()) / (4 * step)
        columns.append(torch.where((ahead > 0) & (behind > 0), change, 0.0))
    return torch.stack(columns, 2)


def _check_smooth(slopes: Tensor, squares: Tensor, alive: Tensor) -> None:
    """Refuse norms that differ between points although every derivative is exactly zero."""
    lengths = squares.log() / 2
    longest = torch.where(alive, lengths, -torch.inf).amax(0)
    # Norms of a linear decoder differ between points by rounding only.
    spread = torch.where(alive, longest - lengths, 0.0).amax()
    if bool((slopes == 0).all()) and float(spread) > torch.finfo(squares.dtype).eps ** 0.5:
        raise NotSmoothError(
            "decoder must be smooth, but its column norms differ between points while all of their derivatives "
            "are zero, as in piece-wise linear decoders; give step to measure differences"
        )


def _check_kinks(changes: _Changes, points: Tensor) -> None:
    """Refuse norms that change on the way between points by what derivatives on the way do not see."""

    def measured(here: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        squares = changes.squares(here)
        dead = squares <= torch.finfo(squares.dtype).eps ** 2 * squares.amax(1, keepdim=True)
        squares = torch.where(dead, torch.nan, squares)
        rates = (changes(here) @ direction[:, :, None]).squeeze(2)
        return squares.log() / 2, rates / (2 * squares)

    floor = torch.finfo(points.dtype).eps ** 0.25  # products may run in TF32
    if jumps(measured, segments(points), floor):
        raise NotSmoothError(
            "decoder must be smooth, but its column norms change between points by more than their derivatives "
            "account for, as in decoders with ReLU layers; give step to measure differences"
        )


def _summary(slopes: Tensor, alive: Tensor, per_point: bool) -> Coupling:
    latent = slopes.shape[1]
    present = alive.to(slopes.dtype)
    matrix = slopes.square().sum(0) / present.sum(0).clamp(min=1)[:, None]
    apart = 1 - torch.eye(latent, dtype=slopes.dtype, device=slopes.device)
    pairs = present[:, :, None] * present[:, None, :] * apart
    count = pairs.sum((1, 2))
    means = ((slopes.square() * pairs).sum((1, 2)) / count.clamp(min=1))[count > 0]
    if len(means) == 0:
        means = means.new_zeros(len(slopes))
    error = means.std() / len(means) ** 0.5 if len(means) > 1 else means.new_tensor(torch.nan)
    return Coupling(matrix, means.mean(), error, slopes if per_point else None)
