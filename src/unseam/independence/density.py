"""The density that a decoder pushes onto its manifold, its factors, and the density along one component."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.geometry import hadamard_gap, pullback
from unseam.geometry.checks import check_decoder, check_points
from unseam.independence._basis import turned
from unseam.inputs import Array, Decoder, as_tensor, check_count, check_number

__all__ = ["AxisDensity", "LogDensity", "axis_density", "log_density", "standard_normal"]

Prior = Callable[[Tensor], Tensor]


class LogDensity(NamedTuple):
    """Push-forward log-density of a decoder at the images of some points, in nats."""

    log_density: Tensor
    """log p(f(z)) (batch,), per unit of volume on the manifold; infinite where J loses rank."""
    factors: Tensor
    """log p(z_i) - log‖∂x/∂z_i‖ (batch, latent), per unit of length; infinite where the column is zero."""
    gap: Tensor
    """log_density less the sum of the factors (batch,): the Hadamard gap of the Jacobian, no other evidence."""


class AxisDensity(NamedTuple):
    """Density of one component along the curves through some points, by arc length."""

    coordinate: Tensor
    """Values of the latent that varies (node,)."""
    arc_length: Tensor
    """Length along the curve (batch, node) from where the latent is 0, negative below, in units of the data."""
    log_density: Tensor
    """Log-density per unit of arc length (batch, node), in nats; infinite where the curve stands still."""
    integral: Tensor
    """Integral of the density over arc length (batch,): 1 for a density, less the mass of ends that stand still."""
    error: Tensor
    """Estimated error of that integral (batch,)."""


def standard_normal(z: Array) -> Tensor:
    r"""Log-density of each coordinate under the prior that allen2024 assumes (A#1).

    .. math:: \log p(z_i) = -\frac{1}{2} (z_i^2 + \log 2\pi)

    Args:
        z: latent points (..., latent).

    Returns:
        The log-densities (..., latent), in nats; minus infinity where z² exceeds the type of z.

    >>> standard_normal(torch.zeros(1))
    tensor([-0.9189])
    """
    return -(as_tensor("z", z).square() + math.log(2 * math.pi)) / 2


def log_density(
    decoder: Decoder,
    z: Array,
    *,
    prior: Prior = standard_normal,
    basis: Array | None = None,
    chunk_size: int | None = None,
) -> LogDensity:
    r"""Log-density that a decoder pushes onto its manifold, and the factors it has along the latent axes.

    .. math::
        \log p^\#(f(z)) = \log p(z) - \frac{1}{2} \log \det J^\top J, \qquad
        \log p(z_i) - \log \lVert \partial x / \partial z_i \rVert

    allen2024 Eqs. 9 to 13. The factors multiply to the density exactly where the columns of J are orthogonal:
    what is missing *is* their :func:`~unseam.geometry.hadamard_gap`, and it is computed by that function. So the
    gap says of independence what orthogonality says and no more; whether each factor depends on its own
    coordinate alone is for :func:`~unseam.independence.coupling` to say.

    A linear decoder :math:`W = U S V^\top` has orthogonal columns in the coordinates :math:`u = V^\top z` (Eq. 10,
    Theorem 1): with ``basis=V`` the factors are those of u. The density itself is the same in every basis.

    Where J loses rank, so that no density exists, ``log_density`` is infinite. That is judged by the columns at
    unit length, whose smallest squared singular value is lost in rounding below latent · ε; a short column
    loses nothing. ``factors`` are infinite only where a column is zero, and ``gap`` is finite always.

    For the distribution of the mean parameter (the x̂ = μ(d(z)) of §3.2) pass the decoder followed by its
    likelihood's mean. Where several z have one image the density counts only this one. Differentiable in ``z``
    and in what ``decoder`` closes over, as the pullback is.

    Args:
        decoder: map f from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: latent points (batch, latent), floating.
        prior: log p(z_i) of all coordinates, from (batch, latent) to (batch, latent).
        basis: V (latent, latent), orthonormal columns; only the standard normal prior factorises in one.
        chunk_size: points differentiated at once, as in :func:`~unseam.geometry.pullback`.

    Returns:
        Log-densities in nats, summed over latents, one for each point.

    >>> found = log_density(lambda z: z * torch.tensor([2.0, 3.0]), torch.zeros(1, 2))
    >>> found.log_density, found.factors.sum(1), found.gap
    (tensor([-3.6296]), tensor([-3.6296]), tensor([0.]))
    """
    if basis is not None and prior is not standard_normal:
        raise ValueError(
            "prior must be the standard normal where a basis is given: no other factorises in it"
        )
    inner, points = turned(decoder, z, basis)
    metric = pullback(inner, points, chunk_size=chunk_size)
    factors = _log_prior(prior, points) - metric.diagonal(dim1=-2, dim2=-1).log() / 2
    gap = hadamard_gap(metric)
    total = torch.where(loses_rank(metric.detach()), torch.inf, factors.sum(1) + gap)
    return LogDensity(total, factors, gap)


@torch.no_grad()
def axis_density(
    decoder: Decoder,
    z: Array,
    latent: int,
    *,
    prior: Prior = standard_normal,
    reach: float = 8.0,
    nodes: int = 401,
    chunk_size: int | None = None,
) -> AxisDensity:
    r"""Density of one component along the curve through each point on which no other latent moves.

    .. math:: p^{\#(i)}(x) = p(z_i) \, / \, \lVert \partial x / \partial z_i \rVert

    over the sub-manifold :math:`\{f(z_1, \ldots, z_i, \ldots, z_d) : z_i \in \mathbb R\}` (allen2024 §3.2.2), which for
    a decoder with coupled factors is another density on each curve.

    The density comes from derivatives, the arc length from the decoder's outputs alone: lengths of chords at two
    spacings, extrapolated. That the one integrates to 1 over the other (Simpson's rule on the uneven nodes) is
    therefore a check of both, up to the prior's mass beyond ``reach``. The error estimate is the change against
    half as many nodes. Where the curve stands still the density and its integral are infinite, but for ends beyond
    which outputs change no more in their precision, as those of a saturated decoder: there the density is
    infinite too, and the integral leaves them out and lacks their mass.

    Args:
        decoder: map f from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: the points (batch, latent) that the curves pass through.
        latent: i, the latent that varies.
        prior: log p(z_i) of coordinates, from (batch, 1) to (batch, 1).
        reach: the latent varies from -reach to reach, in units of the prior.
        nodes: values of the latent, 4 k + 1 for some k so that two coarser grids end at the same points.
        chunk_size: points differentiated at once, as in :func:`~unseam.geometry.pullback`.

    Returns:
        Nodes, arc lengths, log-densities, and the integral with its error. Not differentiable.

    >>> found = axis_density(lambda z: 3 * z, torch.zeros(1, 2), 0)
    >>> found.arc_length[0, -1], found.integral
    (tensor(24.), tensor([1.]))
    """
    points = check_points(z)
    check_count("latent", latent, 0, points.shape[1] - 1)
    if check_count("nodes", nodes, 5) % 4 != 1:
        raise ValueError(f"nodes must be 4 k + 1, got {nodes}")
    check_number("reach", reach, above=0)
    if chunk_size is not None:
        check_count("chunk_size", chunk_size, 1)
    check_decoder(decoder, points)
    steps = torch.arange(1 - nodes, nodes, dtype=points.dtype, device=points.device)
    fine = steps * (reach / (nodes - 1))  # exactly symmetric, with 0 in the middle
    coordinate = fine[::2]
    found = [
        _along(_curve(decoder, point, latent), fine, _log_prior(prior, coordinate[:, None]), chunk_size)
        for point in points
    ]
    return AxisDensity(coordinate, *(torch.stack(part) for part in zip(*found, strict=True)))


def _log_prior(prior: Prior, points: Tensor) -> Tensor:
    found = prior(points)
    if not isinstance(found, Tensor) or found.shape != points.shape:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"prior must give log p(z_i) in the shape of z {tuple(points.shape)}, got {got}")
    return found.to(points.dtype)


def loses_rank(metric: Tensor) -> Tensor:
    """Where (batch,) the columns, at unit length, are linearly dependent up to rounding."""
    latent = metric.shape[-1]
    lengths = metric.diagonal(dim1=-2, dim2=-1).sqrt()
    inverse = torch.where(lengths > 0, 1 / lengths, 0.0)
    unit = metric * inverse[..., :, None] * inverse[..., None, :]
    lost = latent * torch.finfo(metric.dtype).eps
    # on the host: cuSOLVER's batched solver stops with an internal error at some 10⁵ matrices
    return (torch.linalg.eigvalsh(unit.nan_to_num().cpu())[..., 0] <= lost).to(metric.device)


def _curve(decoder: Decoder, point: Tensor, latent: int) -> Decoder:
    """The decoder as a function of one latent (batch, 1), the others fixed."""
    axis = torch.zeros_like(point)
    axis[latent] = 1
    origin = torch.where(axis == 1, 0.0, point)
    weight = axis[:, None]
    return lambda t: decoder(torch.nn.functional.linear(t, weight, origin))


def _along(
    curve: Decoder, fine: Tensor, log_prior: Tensor, chunk_size: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Arc length and log-density at every second node of one curve, their integral and its error."""
    x = torch.cat([curve(part).flatten(1) for part in fine[:, None].split(chunk_size or len(fine))])
    squares = pullback(curve, fine[::2, None], chunk_size=chunk_size)
    log_density = log_prior[:, 0] - squares[:, 0, 0].log() / 2
    arc_length = _arc_length(x.double())
    moving = torch.where(_has_ended(x) & log_density.isposinf(), -torch.inf, log_density)
    if bool(moving.isposinf().any()):
        integral = error = torch.full_like(arc_length[0], torch.inf)
    else:
        integral = _integral(arc_length, moving)
        error = (integral - _integral(_arc_length(x[::2].double()), moving[::2])).abs()
    return arc_length.to(fine), log_density, integral.to(fine), error.to(fine)


def _has_ended(x: Tensor) -> Tensor:
    """Every second point of a curve (node, data) from which it grows no longer on one side; none of a single point."""
    still = (x[1:] - x[:-1]).norm(dim=1) <= torch.finfo(x.dtype).eps * x[1:].norm(dim=1)
    before = still.cumprod(0).bool()
    after = still.flip(0).cumprod(0).flip(0).bool()
    ended = torch.cat([before[:1], before]) | torch.cat([after, after[-1:]])
    return ended[::2] & ~still.all()


def _arc_length(x: Tensor) -> Tensor:
    """Length along a curve at every second of its points (node, data), signed from the middle one."""
    short = (x[1:] - x[:-1]).norm(dim=1).unflatten(0, (-1, 2)).sum(1)
    long = (x[2::2] - x[:-2:2]).norm(dim=1)
    # A chord misses its arc by the cube of the spacing, so two spacings give the arc to the fifth power.
    total = torch.cat([short.new_zeros(1), ((4 * short - long) / 3).cumsum(0)])
    return total - total[len(total) // 2]


def _integral(arc_length: Tensor, log_density: Tensor) -> Tensor:
    from scipy.integrate import simpson

    found = simpson(log_density.double().exp().cpu().numpy(), x=arc_length.cpu().numpy())
    return torch.as_tensor(found, device=arc_length.device)
