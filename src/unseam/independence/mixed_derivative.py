"""Whether a decoder's push-forward density is a product of functions of single latents at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import jvp

from unseam.geometry import pullback
from unseam.geometry.checks import check_decoder, check_finite
from unseam.geometry.memory import points_at_once
from unseam.independence._basis import Decoder, turned
from unseam.independence._kinks import jumps, segments
from unseam.independence._metric import LAYERS

__all__ = ["MixedDerivative", "mixed_derivative"]

Way = Callable[[Decoder, Tensor, Tensor], tuple[Tensor, Tensor]]


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
def mixed_derivative(
    decoder: Decoder,
    z: Tensor | NDArray[Any],
    *,
    basis: Tensor | NDArray[Any] | None = None,
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

    A dead column (shorter than the longest by the precision of the type) is left out of the volume, so that its
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
    if step is not None and not 0 < step < float("inf"):
        raise ValueError(f"step must be positive and finite, got {step}")
    with torch.inference_mode(False), torch.no_grad():
        inner, points = turned(decoder, z, basis)
        points = points.detach().clone()
        metric = pullback(inner, points, chunk_size=chunk_size)  # checks decoder and points
        volume, singular = _log_volume(metric), _is_singular(metric)
        if step is None:
            curvature = _Curvature(inner, points, chunk_size)
            slopes, curvatures = curvature(points)
            _check_smooth(volume, slopes, curvatures, singular)
        else:
            curvatures = _differences(inner, points, step, chunk_size)
            singular |= ~curvatures.isfinite().flatten(1).all(1)  # a neighbour has no volume
        curvatures = torch.where(singular[:, None, None], 0.0, curvatures)
        check_finite("decoder must have finite third derivatives", curvatures)
        if step is None:
            _check_kinks(curvature, points)
    return _summary(curvatures, singular, per_point)


def _log_volume(metric: Tensor) -> Tensor:
    """log √det G (batch,) of the columns that are not dead.

    Elimination by hand: forward mode nested in itself is wrong for ``torch.linalg.slogdet``.
    """
    remaining = _without_dead(metric)
    volume = torch.zeros_like(metric[..., 0, 0])
    for _ in range(metric.shape[-1]):
        pivot, row = remaining[..., 0, 0], remaining[..., 0, 1:]
        volume = volume + pivot.log() / 2
        remaining = remaining[..., 1:, 1:] - row[..., :, None] * (row / pivot[..., None])[..., None, :]
    return volume


def _without_dead(metric: Tensor) -> Tensor:
    """G with the rows and columns of dead latents replaced by those of the identity."""
    squares = metric.detach().diagonal(dim1=-2, dim2=-1)
    dead = squares <= torch.finfo(metric.dtype).eps ** 2 * squares.amax(-1, keepdim=True)
    eye = torch.eye(metric.shape[-1], dtype=metric.dtype, device=metric.device)
    return torch.where(dead[..., :, None] | dead[..., None, :], eye, metric)


def _is_singular(metric: Tensor) -> Tensor:
    """Where (batch,) columns that are not dead, at unit length, are linearly dependent up to rounding."""
    live = _without_dead(metric)
    lengths = live.diagonal(dim1=-2, dim2=-1).sqrt()
    unit = live / (lengths[..., :, None] * lengths[..., None, :])
    return torch.linalg.eigvalsh(unit)[..., 0] <= metric.shape[-1] * torch.finfo(metric.dtype).eps


class _Curvature:
    """Gradient (batch, latent) and Hessian (batch, latent, latent) of a decoder's log-volume, in chunks."""

    def __init__(self, decoder: Decoder, points: Tensor, chunk_size: int | None) -> None:
        glance = check_decoder(decoder, points, at_once=chunk_size or len(points))
        self.decoder, self.way = decoder, _way(decoder, glance.z)
        latent = points.shape[1]
        # Reverse mode twice holds the tangents of every layer twice over.
        width = (latent + 1) * (2 * LAYERS if self.way is _reverse else latent + 1)
        self.size = chunk_size or points_at_once(width, glance.widest, glance.output.dtype, points.device)

    def __call__(self, points: Tensor) -> tuple[Tensor, Tensor]:
        directions = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
        parts = [self.way(self.decoder, part, directions) for part in points.split(self.size)]
        slopes, curvatures = (torch.cat(part) for part in zip(*parts, strict=True))
        return slopes, (curvatures + curvatures.mT) / 2


def _reverse(decoder: Decoder, points: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """First (batch, direction) and second derivatives (batch, direction, direction) along given directions."""
    with torch.enable_grad():
        z = points.detach().requires_grad_()
        total = _log_volume(pullback(decoder, z)).sum()
        slopes = _gradient(total, z, create_graph=True) @ directions.mT
        rows = [_gradient(slope.sum(), z) @ directions.mT for slope in slopes.unbind(1)]
    return slopes.detach(), torch.stack(rows, 1)


def _gradient(total: Tensor, z: Tensor, *, create_graph: bool = False) -> Tensor:
    """Gradient of a sum over points, zero where it does not depend on them."""
    if not total.requires_grad:
        return torch.zeros_like(z)
    (found,) = torch.autograd.grad(total, z, create_graph=create_graph, retain_graph=True, allow_unused=True)
    return torch.zeros_like(z) if found is None else found


def _forward(decoder: Decoder, points: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """The same by forward mode alone."""

    def volume(z: Tensor) -> Tensor:
        return _log_volume(pullback(decoder, z))

    def slopes(z: Tensor) -> Tensor:
        along = [jvp(volume, (z,), (direction.expand_as(z),))[1] for direction in directions]
        return torch.stack(along, 1)

    found = [jvp(slopes, (points,), (direction.expand_as(points),)) for direction in directions]
    return found[0][0], torch.stack([change for _, change, *_ in found], 2)


def _way(decoder: Decoder, z: Tensor) -> Way:
    """The faster way that finds the right derivatives of the log-volume along one direction at a few points.

    Reverse mode misses what runs without gradients; forward mode nested in itself is missing for some functions. Where
    they do not agree, differences decide: of the log-volume for its slope, and of the slope for its own change.
    """
    direction = torch.linspace(1, 2, z.shape[1], dtype=z.dtype, device=z.device)
    direction = direction / direction.norm()
    precision = torch.finfo(z.dtype).eps

    def along(way: Way, points: Tensor) -> Tensor | None:
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

    def agree(found: Tensor, expected: Tensor) -> bool:
        tolerance = precision**0.25  # products may run in TF32
        close = (found - expected).abs() <= tolerance * expected.abs().clamp(min=1)
        # What is not finite is refused later. Nearly dependent columns leave few digits at some of the points.
        sound = (close | ~(found + expected).isfinite()).all(0)
        return 2 * int(sound.sum()) >= len(sound)

    found = {way: along(way, z) for way in (_reverse, _forward)}
    reverse, forward = found.values()
    if reverse is not None and forward is not None and agree(reverse, forward):
        return _reverse
    step = precision ** (1 / 3)  # balances rounding and truncation of a symmetric difference
    ahead, behind = z + step * direction, z - step * direction
    volumes = [_log_volume(pullback(decoder, points)) for points in (ahead, behind)]
    for way, here in found.items():
        ends = [along(way, points) for points in (ahead, behind)]
        if here is None or ends[0] is None or ends[1] is None:
            continue
        changes = torch.stack([volumes[0] - volumes[1], ends[0][0] - ends[1][0]]) / (2 * step)
        if agree(here, changes):
            return way
    raise ValueError(
        "decoder must have third derivatives that automatic differentiation finds, but they are not those of "
        "its first; give step to measure differences"
    )


def _differences(decoder: Decoder, points: Tensor, step: float, chunk_size: int | None) -> Tensor:
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


def _check_smooth(volume: Tensor, slopes: Tensor, curvatures: Tensor, singular: Tensor) -> None:
    """Refuse volumes that differ between points although every derivative is exactly zero."""
    kept = volume[~singular]
    still = bool((slopes[~singular] == 0).all()) and bool((curvatures[~singular] == 0).all())
    # Volumes of a linear decoder differ between points by rounding only.
    if still and len(kept) and float(kept.max() - kept.min()) > torch.finfo(volume.dtype).eps ** 0.5:
        raise ValueError(
            "decoder must be smooth, but its volume differs between points while all of its derivatives are zero, "
            "as in piece-wise linear decoders; give step to measure differences"
        )


def _check_kinks(curvature: _Curvature, points: Tensor) -> None:
    """Refuse volumes, or gradients of them, that change between points by what their derivatives do not see."""

    def measured(here: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        metric = pullback(curvature.decoder, here, chunk_size=curvature.size)
        slopes, curvatures = curvature(here)
        values = torch.cat([_log_volume(metric)[:, None], slopes], 1)
        rates = (torch.cat([slopes[:, None], curvatures], 1) @ direction[:, :, None]).squeeze(2)
        singular = _is_singular(metric)[:, None]
        return torch.where(singular, torch.nan, values), torch.where(singular, torch.nan, rates)

    floor = torch.finfo(points.dtype).eps ** 0.25  # products may run in TF32
    if jumps(measured, segments(points), floor):
        raise ValueError(
            "decoder must be smooth, but its volume or the gradient of it changes between points by more than "
            "derivatives account for, as in decoders with ReLU or ELU layers; give step to measure differences"
        )


def _summary(curvatures: Tensor, singular: Tensor, per_point: bool) -> MixedDerivative:
    latent = curvatures.shape[1]
    squares = curvatures[~singular].square()
    pairs = ~torch.eye(latent, dtype=torch.bool, device=squares.device)
    means = squares[:, pairs].mean(1) if latent > 1 else squares.new_zeros(len(squares))
    error = means.std() / len(means) ** 0.5 if len(means) > 1 else means.new_tensor(torch.nan)
    return MixedDerivative(squares.mean(0), means.mean(), error, singular, curvatures if per_point else None)
