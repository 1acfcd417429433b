"""The likelihood's Hessian in the latents, its Gauss-Newton part, and the term that is usually dropped."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

from unseam.geometry.checks import check_decoder, check_likelihood, check_points, check_square
from unseam.geometry.gaussians import gaussians, of_batch, pairs
from unseam.geometry.jacobian import pullback
from unseam.geometry.memory import points_at_once
from unseam.inputs import Array, Decoder

__all__ = [
    "Hessian",
    "LogLikelihood",
    "PosteriorHessian",
    "diagonal_share",
    "likelihood_hessian",
    "posterior_hessian",
]

# Reverse mode keeps what every layer gave, not only the widest: room for about so many.
_LAYERS = 8


class LogLikelihood(Protocol):
    """What is asked of a likelihood here: a log-density of data in the decoder's output, and its information."""

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """log p(x|output) in nats, summed over data dimensions: (batch,)."""
        ...

    def fisher_weight(self, output: Tensor) -> Tensor:
        """The diagonal A² of the Fisher information in the decoder's output, in the shape of ``output``."""
        ...


class Hessian(NamedTuple):
    """Second derivatives of log p(x|z) in z, each (batch, latent, latent).

    Attributes:
        exact: H.
        gauss_newton: -DᵀA²D, the part that the Jacobian gives.
        residual: the rest, what allen2024 Eq. 6 argues away.
    """

    exact: Tensor
    gauss_newton: Tensor
    residual: Tensor


class PosteriorHessian(NamedTuple):
    """Means over the posterior of the second derivatives of log p(x|z), each (batch, latent, latent).

    Attributes:
        exact, gauss_newton, residual: as in :class:`Hessian`.
        standard_error: of ``exact``, from the spread over samples.
    """

    exact: Tensor
    gauss_newton: Tensor
    residual: Tensor
    standard_error: Tensor


@torch.no_grad()
def likelihood_hessian(
    decoder: Decoder, likelihood: LogLikelihood, x: Array, z: Array, *, chunk_size: int | None = None
) -> Hessian:
    r"""Hessian of the log-likelihood in z, whole and in its two parts (allen2024 Eq. 6).

    .. math:: H_z(x) = \nabla_z^2 \log p(x \mid d(z))
        = -D^\top A^2 D + \textstyle\sum_i (x_i - \hat x_i) \nabla^2 d_i(z)

    The exact Hessian by forward over reverse mode, for all points of a chunk at once; the residual is its
    difference from the Gauss-Newton part. For a decoder that outputs natural parameters it is the sum above;
    for other outputs the error is weighted accordingly, and for a variance per pixel it also holds the
    difference of observed and expected information.

    Args:
        decoder: map d from (batch, latent) to the likelihood's parameter (batch, \*data).
        likelihood: gives ``log_prob(x, output)`` and ``fisher_weight(output)``.
        x: data (batch, \*data).
        z: latent points (batch, latent).
        chunk_size: points differentiated at once; by default what free memory allows.

    Returns:
        Sums over data dimensions, in nats per squared latent unit.

    >>> from unseam.models import Gaussian
    >>> found = likelihood_hessian(lambda z: z**2, Gaussian(), torch.tensor([[3.0]]), torch.ones(1, 1))
    >>> found.exact.item(), found.gauss_newton.item(), found.residual.item()
    (0.0, -4.0, 4.0)
    """
    check_likelihood(likelihood, "log_prob", "fisher_weight")
    points = check_points(z)
    data = of_batch("x", x, len(points))
    gauss_newton = -pullback(decoder, points, likelihood=likelihood, chunk_size=chunk_size)
    if chunk_size is None:
        widest, latent = check_decoder(decoder, points).widest, points.shape[1]
        chunk_size = points_at_once(_LAYERS * (latent + 1), widest, points.dtype, points.device)
    chunks = zip(data.split(chunk_size), points.split(chunk_size), strict=True)
    exact = torch.cat([_second_derivatives(decoder, likelihood, *chunk) for chunk in chunks])
    if not bool(exact.isfinite().all()):
        raise ValueError(
            "decoder and likelihood must have finite second derivatives, got NaN or infinite values"
        )
    return Hessian(exact, gauss_newton, exact - gauss_newton)


@torch.no_grad()
def posterior_hessian(
    decoder: Decoder,
    likelihood: LogLikelihood,
    x: Array,
    mean: Array,
    variance: Array,
    *,
    noise: Array,
    chunk_size: int | None = None,
) -> PosteriorHessian:
    r"""Hessian of the log-likelihood averaged over the posterior.

    .. math:: E_{q(z|x)}\, \nabla_z^2 \log p(x \mid d(z))

    The posterior of allen2024's post that is optimal without any expansion (Opper and Archambeau 2009) has
    :math:`\Sigma_x^{-1} = I - E_q[H]/\beta`, so ``precision_error(variance, -hessian.exact, beta=beta)``
    measures the distance to it. (The post's Eq. 1 lacks the inverse.)

    Args:
        decoder, likelihood, x, chunk_size: as for :func:`likelihood_hessian`.
        mean: posterior means (batch, latent).
        variance: σ² (batch, latent), or Σ (batch, latent, latent).
        noise: standard normal draws (sample, batch, latent), each used with both signs.

    Returns:
        Means over samples; the standard error is over pairs of opposite samples.

    >>> from unseam.models import Gaussian
    >>> noise = torch.randn(8, 1, 1, generator=torch.Generator().manual_seed(0))
    >>> zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    >>> posterior_hessian(lambda z: 3 * z, Gaussian(), zero, zero, one, noise=noise).exact
    tensor([[[-9.]]])
    """
    posterior = gaussians(mean, variance)
    draws = []
    for shift in pairs(posterior, noise):
        found = [
            likelihood_hessian(decoder, likelihood, x, z, chunk_size=chunk_size)
            for z in (posterior.mean + shift, posterior.mean - shift)
        ]
        draws.append([(plus + minus) / 2 for plus, minus in zip(*found, strict=True)])
    exact, gauss_newton, residual = (torch.stack(part) for part in zip(*draws, strict=True))
    error = exact.std(0) / len(exact) ** 0.5
    return PosteriorHessian(exact.mean(0), gauss_newton.mean(0), residual.mean(0), error)


def diagonal_share(matrix: Array) -> Tensor:
    r"""Share of a matrix's squared entries that lie on its diagonal.

    .. math:: \sum_i H_{ii}^2 / \lVert H \rVert_F^2

    one exactly for the diagonal Hessian that allen2024 Theorems 4 and 5 call optimal, and for a zero matrix.

    Args:
        matrix: (..., latent, latent).

    Returns:
        The share (...), in [0, 1]; unchanged by scale and by permutation of the latents.

    >>> diagonal_share(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor(0.3600)
    """
    matrix = check_square("matrix", matrix, differentiable=True)
    # Entries are taken relative to the largest, lest their squares leave the range of the type.
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    squares = (matrix / torch.where(largest == 0, 1.0, largest)).square()
    whole = squares.sum((-2, -1))
    return torch.where(whole == 0, 1.0, squares.diagonal(dim1=-2, dim2=-1).sum(-1) / whole)


def _second_derivatives(decoder: Decoder, likelihood: LogLikelihood, x: Tensor, z: Tensor) -> Tensor:
    def total(points: Tensor) -> Tensor:
        return likelihood.log_prob(x, decoder(points)).sum()

    def column(tangent: Tensor) -> Tensor:
        _, found, *_ = jvp(grad(total), (z,), (tangent.expand_as(z),))
        return found

    basis = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    try:
        columns = vmap(column, out_dims=-1)(basis)
    except RuntimeError:  # the pullback has warned of a decoder that vmap refuses
        columns = torch.stack([column(tangent) for tangent in basis], dim=-1)
    return (columns + columns.mT) / 2
