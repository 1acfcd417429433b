"""Whether factors of a decoder's density depend on their own coordinate alone, and whether it is a product at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import jvp

from unseam.geometry import jacobian, pullback
from unseam.geometry.checks import check_decoder, check_points_finite, directional
from unseam.geometry.memory import points_at_once
from unseam.independence._basis import turned
from unseam.independence._kinks import jumps, segments
from unseam.independence._metric import LAYERS
from unseam.independence.density import loses_rank
from unseam.inputs import Array, Decoder, check_number

__all__ = ["Coupling", "MixedDerivative", "NotSmoothError", "coupling", "mixed_derivative"]

Way = TypeVar("Way", bound=Callable[..., Any])


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


class MixedDerivative(NamedTuple):
    """Mean squared second derivatives of a decoder's log-volume."""

    matrix: Tensor
    """E[(∂² log √det JᵀJ / ∂z_i ∂z_j)²] (latent, latent), symmetric; NaN where no point has a density."""
    off_diagonal: Tensor
    """Mean over pairs i ≠ j, then over points: zero exactly where the density is a product over latents."""
    standard_error: Tensor
    """Of ``off_diagonal``, from the spread over points; NaN for one point."""
    singular: Tensor
    """Points (batch,) that were left out: J loses rank there, so that no density exists."""
    per_point: Tensor | None
    """∂² log √det JᵀJ / ∂z_i ∂z_j at each point (batch, latent, latent), where asked for; 0 where singular."""


@torch.no_grad()
def coupling(
    decoder: Decoder,
    z: Array,
    *,
    basis: Array | None = None,
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

    At a point where a column is zero (shorter than the longest by the precision of the type) its factor does
    not exist: its row leaves the point out, and it forms no pair. What is zero everywhere has zeros; without a
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
    with torch.inference_mode(False), torch.no_grad():
        inner, points = _prepared(decoder, z, basis, step)
        squares = _squares(inner, points, chunk_size)
        present = squares > torch.finfo(squares.dtype).eps ** 2 * squares.amax(1, keepdim=True)
        if step is None:
            changes = _Changes(inner, points, chunk_size)
            slopes = changes(points) / (2 * torch.where(squares > 0, squares, 1.0))[:, :, None]
            _check_norms(slopes, squares, present)
        else:
            slopes = _norm_differences(inner, points, step, chunk_size)
        slopes = torch.where(present[:, :, None], slopes, 0.0)
        check_points_finite("decoder must have finite second derivatives", slopes)
        if step is None and jumps(changes.measured, segments(points), _rounding(points)):
            raise NotSmoothError(
                "decoder must be smooth, but its column norms change between points by more than their derivatives "
                "account for, as in decoders with ReLU layers; give step to measure differences"
            )
    present = present.to(slopes.dtype)
    matrix = slopes.square().sum(0) / present.sum(0).clamp(min=1)[:, None]
    apart = 1 - torch.eye(slopes.shape[1], dtype=slopes.dtype, device=slopes.device)
    pairs = present[:, :, None] * present[:, None, :] * apart
    count = pairs.sum((1, 2))
    means = ((slopes.square() * pairs).sum((1, 2)) / count.clamp(min=1))[count > 0]
    if len(means) == 0:
        means = means.new_zeros(len(slopes))
    return Coupling(matrix, means.mean(), _standard_error(means), slopes if per_point else None)


@torch.no_grad()
def mixed_derivative(
    decoder: Decoder,
    z: Array,
    *,
    basis: Array | None = None,
    step: float | None = None,
    per_point: bool = False,
    chunk_size: int | None = None,
) -> MixedDerivative:
    r"""How far the push-forward density is from any product of functions of single latents.

    .. math:: M_{ij} = E_z \left[ \left(
        \frac{\partial^2}{\partial z_i \, \partial z_j} \log \sqrt{\det J^\top J} \right)^2 \right], \qquad i \ne j

    Under a factorised prior the density :math:`p^\#(f(z)) = p(z) / \sqrt{\det J^\top J}` of allen2024 Eq. 12 equals
    :math:`\prod_i g_i(z_i)` for some functions :math:`g_i` exactly where all :math:`M_{ij}`, i ≠ j, vanish. This is
    the weakest form of the factorisation that Theorem 2 claims: it does not ask the factors to be
    :math:`p(z_i) / \lVert \partial x / \partial z_i \rVert`, as :func:`coupling` does, and it does not need
    orthogonal columns. If the Hadamard gap and the coupling vanish everywhere, so does this; the complex
    exponential is a product (its volume is :math:`e^{2 z_1}`) and coupled. For the log-density of a random vector,
    the same statistic is the Hessian score of Baptista et al. 2021, zero exactly where two variables are
    conditionally independent.

    Units are nats² per unit of :math:`z_i^2 z_j^2`. Neither the scale of the data nor isometries of them nor the
    factors of the prior change anything. Another unit of a latent, :math:`z_i = \varphi_i(u_i)`, multiplies the
    derivative at a point by :math:`\varphi_i' \varphi_j'`: the zeros are the same, the size is not.

    Exact third derivatives of the decoder: reverse mode twice over the forward mode of the pullback, which is one
    pass and one per latent. Forward mode throughout is used where reverse mode is wrong (decoders that switch
    gradients off inside); where neither is right, that is an error. Give points in double precision where columns
    may be nearly dependent.

    The volume of decoders with ReLU layers jumps at kinks, and that of ELU layers has a gradient that jumps:
    derivatives miss both. Where that is seen on segments between a few of the points, it is an error. Given
    ``step`` h, symmetric differences over ``z_i ± h`` and ``z_j ± h`` replace the derivatives; across jumps their
    mean square has no limit for small h.

    A zero column (shorter than the longest by the precision of the type) is left out of the volume, so that its
    latent contributes zeros. Points where the others are linearly dependent are left out of the means.

    Args:
        decoder: map f from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: points (batch, latent) that the mean runs over, from the prior or the aggregate posterior.
        basis: V (latent, latent), orthonormal columns, to measure in coordinates u = Vᵀz.
        step: h, for differences instead of derivatives.
        per_point: whether to return the derivatives of every point.
        chunk_size: number of points differentiated at once; by default what free memory allows.

    Returns:
        Means over points, of a log-volume summed over latents. Not differentiable.

    >>> def stereographic(z):  # onto the sphere
    ...     square = z.square().sum(1, keepdim=True)
    ...     return torch.cat([2 * z, square - 1], 1) / (1 + square)
    >>> mixed_derivative(stereographic, torch.ones(1, 2), per_point=True).per_point
    tensor([[[-0.4444,  0.8889],
             [ 0.8889, -0.4444]]])
    """
    with torch.inference_mode(False), torch.no_grad():
        inner, points = _prepared(decoder, z, basis, step)
        metric = pullback(inner, points, chunk_size=chunk_size)  # checks decoder and points
        volume, singular = _log_volume(metric), loses_rank(_without_zero_columns(metric))
        if step is None:
            curvature = _Curvature(inner, points, chunk_size)
            slopes, curvatures = curvature(points)
            _check_volumes(volume, slopes, curvatures, singular)
        else:
            curvatures = _volume_differences(inner, points, step, chunk_size)
            singular |= ~curvatures.isfinite().flatten(1).all(1)  # a neighbour has no volume
        curvatures = torch.where(singular[:, None, None], 0.0, curvatures)
        check_points_finite("decoder must have finite third derivatives", curvatures)
        if step is None and jumps(curvature.measured, segments(points), _rounding(points)):
            raise NotSmoothError(
                "decoder must be smooth, but its volume or the gradient of it changes between points by more than "
                "derivatives account for, as in decoders with ReLU or ELU layers; give step to measure differences"
            )
    latent, squares = curvatures.shape[1], curvatures[~singular].square()
    pairs = ~torch.eye(latent, dtype=torch.bool, device=squares.device)
    means = squares[:, pairs].mean(1) if latent > 1 else squares.new_zeros(len(squares))
    each = curvatures if per_point else None
    return MixedDerivative(squares.mean(0), means.mean(), _standard_error(means), singular, each)


# Shared by both


def _prepared(decoder: Decoder, z: Array, basis: Array | None, step: float | None) -> tuple[Decoder, Tensor]:
    """The decoder and its points in a basis, outside inference mode."""
    if step is not None:
        check_number("step", step, above=0)
    inner, points = turned(decoder, z, basis)
    return inner, points.detach().clone()


def _rounding(points: Tensor) -> float:
    """Of quantities and their derivatives, where products may run in TF32."""
    return float(torch.finfo(points.dtype).eps ** 0.25)


def _standard_error(means: Tensor) -> Tensor:
    return means.std() / len(means) ** 0.5 if len(means) > 1 else means.new_tensor(torch.nan)


def _axes(points: Tensor) -> Tensor:
    return torch.eye(points.shape[1], dtype=points.dtype, device=points.device)


def _gradient(total: Tensor, z: Tensor, *, create_graph: bool = False) -> Tensor:
    """Gradient of a sum over points, zero where it does not depend on them."""
    if not total.requires_grad:
        return torch.zeros_like(z)
    (found,) = torch.autograd.grad(total, z, create_graph=create_graph, retain_graph=True, allow_unused=True)
    return torch.zeros_like(z) if found is None else found


def _proven(
    found: Mapping[Way, Tensor | None],
    difference: Callable[[Way], Tensor | None],
    agree: Callable[[Tensor, Tensor], bool],
    order: str,
) -> Way:
    """The faster of two ways, reverse mode and then forward mode, that finds the right derivatives at a few points.

    Reverse mode misses what runs without gradients; forward mode nested in itself is missing, or wrong, for some
    functions with a derivative of their own. Where they do not agree, differences decide.
    """

    def same(one: Tensor | None, other: Tensor | None) -> bool:
        return one is not None and other is not None and agree(one, other)

    if same(*found.values()):
        return next(iter(found))
    for way, here in found.items():
        if same(here, difference(way)):
            return way
    raise NotSmoothError(
        f"decoder must have {order} derivatives that automatic differentiation finds, but they are not those of "
        "its first; give step to measure differences"
    )


# Norms of columns


def _squares(decoder: Decoder, points: Tensor, chunk_size: int | None) -> Tensor:
    """‖∂x/∂z_i‖² (batch, latent), after all checks of decoder and points."""
    return pullback(decoder, points, chunk_size=chunk_size).diagonal(dim1=-2, dim2=-1)


class _Changes:
    """∂ ‖∂x/∂z_i‖² / ∂z_j (batch, latent, latent) of a decoder, by whichever way proves right, in chunks."""

    def __init__(self, decoder: Decoder, points: Tensor, chunk_size: int | None) -> None:
        glance = check_decoder(decoder, points, at_once=chunk_size or len(points))
        self.decoder, self.way = decoder, _norm_way(decoder, glance.z)
        width = LAYERS if self.way is _norm_reverse else 2 * points.shape[1]
        self.size = chunk_size or points_at_once(width, glance.widest, glance.output.dtype, points.device)

    def __call__(self, points: Tensor) -> Tensor:
        return torch.cat([self.way(self.decoder, part) for part in points.split(self.size)])

    def measured(self, points: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the norms of nonzero columns, and their derivatives along directions."""
        squares = torch.cat(
            [
                torch.stack([_square(self.decoder, part, axis) for axis in _axes(points)], 1)
                for part in points.split(self.size)
            ]
        )
        zero = squares <= torch.finfo(squares.dtype).eps ** 2 * squares.amax(1, keepdim=True)
        squares = torch.where(zero, torch.nan, squares)
        rates = (self(points) @ direction[:, :, None]).squeeze(2)
        return squares.log() / 2, rates / (2 * squares)


def _square(decoder: Decoder, points: Tensor, direction: Tensor) -> Tensor:
    """‖J v‖² (batch,) for one direction v (latent,)."""
    return directional(decoder, points, direction.expand_as(points))[1].flatten(1).square().sum(1)


def _norm_reverse(decoder: Decoder, points: Tensor) -> Tensor:
    """∂ ‖∂x/∂z_i‖² / ∂z_j (batch, latent, latent), reverse mode over forward mode."""
    return torch.stack([_square_gradient(decoder, points, axis) for axis in _axes(points)], 1)


def _square_gradient(decoder: Decoder, points: Tensor, direction: Tensor) -> Tensor:
    """Gradient of ‖J v‖² (batch, latent) in the points, for one direction v (latent,)."""
    with torch.enable_grad():
        z = points.detach().requires_grad_()
        return _gradient(directional(decoder, z, direction.expand_as(z))[1].square().sum(), z)


def _norm_forward(decoder: Decoder, points: Tensor) -> Tensor:
    """∂ ‖∂x/∂z_i‖² / ∂z_j (batch, latent, latent), forward mode over forward mode."""

    def squares(z: Tensor) -> Tensor:
        return jacobian(decoder, z).square().sum(1)

    changes = [jvp(squares, (points,), (axis.expand_as(points),))[1] for axis in _axes(points)]
    return torch.stack(changes, 2)


def _norm_way(decoder: Decoder, z: Tensor) -> Callable[[Decoder, Tensor], Tensor]:
    """The way that finds the derivative of ‖J v‖² along one direction v."""
    direction = torch.linspace(1, 2, z.shape[1], dtype=z.dtype, device=z.device)
    tangent = direction.expand_as(z)

    def square(points: Tensor) -> Tensor:
        return jvp(decoder, (points,), (tangent,))[1].flatten(1).square().sum(1)

    def found(derivative: Callable[[], Tensor]) -> Tensor | None:
        try:
            return derivative()
        except RuntimeError:
            return None

    def difference(way: Callable[[Decoder, Tensor], Tensor]) -> Tensor:
        step = torch.finfo(z.dtype).eps ** (1 / 3)
        ahead, behind = (_square(decoder, z + sign * step * direction, direction) for sign in (1, -1))
        return (ahead - behind) / (2 * step)

    def agree(found: Tensor, expected: Tensor) -> bool:
        size = torch.maximum(_square(decoder, z, direction), expected.abs())
        close = (found - expected).abs() <= _rounding(z) * size
        return bool((close | ~(found + expected).isfinite()).all())  # what is not finite is refused later

    ways = {
        _norm_reverse: found(lambda: _square_gradient(decoder, z, direction) @ direction),
        _norm_forward: found(lambda: jvp(square, (z,), (tangent,))[1]),
    }
    return _proven(ways, difference, agree, "second")


def _norm_differences(decoder: Decoder, points: Tensor, step: float, chunk_size: int | None) -> Tensor:
    """Symmetric differences of log‖∂x/∂z_i‖ over 2 · step of z_j (batch, latent, latent); 0 where one is zero."""
    columns = []
    for axis in _axes(points):
        ahead, behind = (_squares(decoder, points + sign * step * axis, chunk_size) for sign in (1, -1))
        change = (ahead.log() - behind.log()) / (4 * step)
        columns.append(torch.where((ahead > 0) & (behind > 0), change, 0.0))
    return torch.stack(columns, 2)


def _check_norms(slopes: Tensor, squares: Tensor, present: Tensor) -> None:
    """Refuse norms that differ between points although every derivative is exactly zero."""
    lengths = squares.log() / 2
    longest = torch.where(present, lengths, -torch.inf).amax(0)
    # Norms of a linear decoder differ between points by rounding only.
    spread = torch.where(present, longest - lengths, 0.0).amax()
    if bool((slopes == 0).all()) and float(spread) > torch.finfo(squares.dtype).eps ** 0.5:
        raise NotSmoothError(
            "decoder must be smooth, but its column norms differ between points while all of their derivatives "
            "are zero, as in piece-wise linear decoders; give step to measure differences"
        )


# Volumes


def _log_volume(metric: Tensor) -> Tensor:
    """log √det G (batch,) of the nonzero columns.

    Elimination by hand: forward mode nested in itself is wrong for ``torch.linalg.slogdet``.
    """
    remaining = _without_zero_columns(metric)
    volume = torch.zeros_like(metric[..., 0, 0])
    for _ in range(metric.shape[-1]):
        pivot, row = remaining[..., 0, 0], remaining[..., 0, 1:]
        volume = volume + pivot.log() / 2
        remaining = remaining[..., 1:, 1:] - row[..., :, None] * (row / pivot[..., None])[..., None, :]
    return volume


def _without_zero_columns(metric: Tensor) -> Tensor:
    """G with the rows and columns of zero columns replaced by those of the identity."""
    squares = metric.detach().diagonal(dim1=-2, dim2=-1)
    zero = squares <= torch.finfo(metric.dtype).eps ** 2 * squares.amax(-1, keepdim=True)
    eye = torch.eye(metric.shape[-1], dtype=metric.dtype, device=metric.device)
    return torch.where(zero[..., :, None] | zero[..., None, :], eye, metric)


class _Curvature:
    """Gradient (batch, latent) and Hessian (batch, latent, latent) of a decoder's log-volume, in chunks."""

    def __init__(self, decoder: Decoder, points: Tensor, chunk_size: int | None) -> None:
        glance = check_decoder(decoder, points, at_once=chunk_size or len(points))
        self.decoder, self.way = decoder, _volume_way(decoder, glance.z)
        latent = points.shape[1]
        # Reverse mode twice holds the tangents of every layer twice over.
        width = (latent + 1) * (2 * LAYERS if self.way is _volume_reverse else latent + 1)
        self.size = chunk_size or points_at_once(width, glance.widest, glance.output.dtype, points.device)

    def __call__(self, points: Tensor) -> tuple[Tensor, Tensor]:
        parts = [self.way(self.decoder, part, _axes(points)) for part in points.split(self.size)]
        slopes, curvatures = (torch.cat(part) for part in zip(*parts, strict=True))
        return slopes, (curvatures + curvatures.mT) / 2

    def measured(self, points: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        """The log-volume and its gradient where there is one, and their derivatives along directions."""
        metric = pullback(self.decoder, points, chunk_size=self.size)
        slopes, curvatures = self(points)
        values = torch.cat([_log_volume(metric)[:, None], slopes], 1)
        rates = (torch.cat([slopes[:, None], curvatures], 1) @ direction[:, :, None]).squeeze(2)
        singular = loses_rank(_without_zero_columns(metric))[:, None]
        return torch.where(singular, torch.nan, values), torch.where(singular, torch.nan, rates)


def _volume_reverse(decoder: Decoder, points: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """First (batch, direction) and second derivatives (batch, direction, direction) along given directions."""
    with torch.enable_grad():
        z = points.detach().requires_grad_()
        total = _log_volume(pullback(decoder, z)).sum()
        slopes = _gradient(total, z, create_graph=True) @ directions.mT
        rows = [_gradient(slope.sum(), z) @ directions.mT for slope in slopes.unbind(1)]
    return slopes.detach(), torch.stack(rows, 1)


def _volume_forward(decoder: Decoder, points: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """The same by forward mode alone."""

    def volume(z: Tensor) -> Tensor:
        return _log_volume(pullback(decoder, z))

    def slopes(z: Tensor) -> Tensor:
        along = [jvp(volume, (z,), (direction.expand_as(z),))[1] for direction in directions]
        return torch.stack(along, 1)

    found = [jvp(slopes, (points,), (direction.expand_as(points),)) for direction in directions]
    return found[0][0], torch.stack([change for _, change, *_ in found], 2)


def _volume_way(decoder: Decoder, z: Tensor) -> Callable[[Decoder, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The way that finds slope and curvature of the log-volume along one direction."""
    direction = torch.linspace(1, 2, z.shape[1], dtype=z.dtype, device=z.device)
    direction = direction / direction.norm()
    step = torch.finfo(z.dtype).eps ** (1 / 3)  # balances rounding and truncation of a symmetric difference
    ends = (z + step * direction, z - step * direction)

    def along(way: Callable[..., Any], points: Tensor) -> Tensor | None:
        """Slope and curvature (derivative, point)."""
        try:
            slopes, curvatures = way(decoder, points, direction[None])
        except (
            RuntimeError,
            ValueError,
            AssertionError,
        ):  # the last from functions with derivatives of their own
            return None
        return torch.stack([slopes[:, 0], curvatures[:, 0, 0]])

    def difference(way: Callable[..., Any]) -> Tensor | None:
        """Of the log-volume for its slope, and of the slope for its own change."""
        ahead, behind = (along(way, points) for points in ends)
        if ahead is None or behind is None:
            return None
        volumes = [_log_volume(pullback(decoder, points)) for points in ends]
        return torch.stack([volumes[0] - volumes[1], ahead[0] - behind[0]]) / (2 * step)

    def agree(found: Tensor, expected: Tensor) -> bool:
        close = (found - expected).abs() <= _rounding(z) * expected.abs().clamp(min=1)
        # What is not finite is refused later. Nearly dependent columns leave few digits at some of the points.
        sound = (close | ~(found + expected).isfinite()).all(0)
        return 2 * int(sound.sum()) >= len(sound)

    ways = {way: along(way, z) for way in (_volume_reverse, _volume_forward)}
    return _proven(ways, difference, agree, "third")


def _volume_differences(decoder: Decoder, points: Tensor, step: float, chunk_size: int | None) -> Tensor:
    """Symmetric mixed differences of the log-volume over 2 · step of z_i and of z_j (batch, latent, latent)."""
    latent = points.shape[1]
    axes = step * torch.eye(latent, dtype=points.dtype, device=points.device)

    def volume(shift: Tensor) -> Tensor:
        return _log_volume(pullback(decoder, points + shift, chunk_size=chunk_size))

    found = torch.zeros(*points.shape, latent, dtype=points.dtype, device=points.device)
    for i in range(latent):
        for j in range(i + 1):
            change = volume(axes[i] + axes[j]) - volume(axes[i] - axes[j])
            change = change - volume(axes[j] - axes[i]) + volume(-axes[i] - axes[j])
            found[:, i, j] = found[:, j, i] = change / (4 * step**2)
    return found


def _check_volumes(volume: Tensor, slopes: Tensor, curvatures: Tensor, singular: Tensor) -> None:
    """Refuse volumes that differ between points although every derivative is exactly zero."""
    kept = volume[~singular]
    still = bool((slopes[~singular] == 0).all()) and bool((curvatures[~singular] == 0).all())
    # Volumes of a linear decoder differ between points by rounding only.
    if still and len(kept) and float(kept.max() - kept.min()) > torch.finfo(volume.dtype).eps ** 0.5:
        raise NotSmoothError(
            "decoder must be smooth, but its volume differs between points while all of its derivatives are zero, "
            "as in piece-wise linear decoders; give step to measure differences"
        )
