"""What the posterior's noise does to the reconstruction and to the ELBO, and the least it can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from unseam.geometry.checks import check_likelihood, check_square, decode_samples
from unseam.geometry.gaussians import Gaussians, gaussians, kl, of_batch, pairs
from unseam.geometry.hessian import LogLikelihood
from unseam.geometry.jacobian import pullback
from unseam.inputs import Array, Decoder, check_choice, check_number

__all__ = ["Gap", "Split", "StochasticMinimum", "elbo_gap", "reconstruction_split", "stochastic_minimum"]


class Split(NamedTuple):
    """Parts of the expected squared error at each point, summed over data dimensions: each (batch,).

    Attributes:
        total: E‖d(μ + ε) - x‖² (rolinek2019 Eq. 11).
        deterministic: ‖d(μ) - x‖² (Eq. 13).
        stochastic: E‖d(μ + ε) - d(μ)‖² (Eq. 14).
        cross: 2 E⟨d(μ + ε) - d(μ), d(μ) - x⟩ = total - deterministic - stochastic, zero where d(μ + ε) is
            unbiased around d(μ) (Prop. 4).
        cross_error: standard error of ``cross``, from the spread over samples.
        linearised: E‖Jε‖² = Σ_j ‖c_j‖² σ_j², the stochastic part of a linear decoder (Eqs. 17 and S48).
    """

    total: Tensor
    deterministic: Tensor
    stochastic: Tensor
    cross: Tensor
    cross_error: Tensor
    linearised: Tensor


class Gap(NamedTuple):
    """Deterministic against sampled β-ELBO at each point, in nats: each (batch,).

    Attributes:
        deterministic: with the log-likelihood expanded to second order (allen2024 Eq. 5).
        sampled: with its expectation estimated from samples.
        gap: deterministic - sampled.
        standard_error: of ``gap``, and of ``sampled``.
    """

    deterministic: Tensor
    sampled: Tensor
    gap: Tensor
    standard_error: Tensor


class StochasticMinimum(NamedTuple):
    """The least stochastic loss of a linear decoder under a budget of precision, and where it is reached."""

    loss: Tensor
    """Σ_j ‖c_j‖² σ_j² at its least (...)."""
    variance: Tensor
    """The variances σ_j² there (..., latent), each inverse to the squared length of its column."""


@torch.no_grad()
def reconstruction_split(
    decoder: Decoder, x: Array, mean: Array, variance: Array, noise: Array, *, chunk_size: int | None = None
) -> Split:
    r"""Deterministic and stochastic part of the squared reconstruction error (rolinek2019 Eqs. 11 to 15).

    .. math:: E\lVert d(\mu + \varepsilon) - x \rVert^2 = \lVert d(\mu) - x \rVert^2
        + E\lVert d(\mu + \varepsilon) - d(\mu) \rVert^2 + \text{cross}

    Prop. 4 takes the last term to be zero; here it is measured. Every noise is used with both signs, so that
    it is zero to rounding for an affine decoder.

    Args:
        decoder: map d from (batch, latent) to reconstructions (batch, \*data); of a Bernoulli model, the means.
        x: data (batch, \*data).
        mean: posterior means μ (batch, latent).
        variance: σ² (batch, latent), or Σ (batch, latent, latent).
        noise: standard normal draws (sample, batch, latent).
        chunk_size: points differentiated at once for the linearised part.

    >>> noise = torch.randn(4, 1, 1, generator=torch.Generator().manual_seed(0))
    >>> x, mean, variance = torch.full((1, 1), 2.0), torch.zeros(1, 1), torch.ones(1, 1)
    >>> split = reconstruction_split(lambda z: 3 * z, x, mean, variance, noise)
    >>> split.deterministic.item(), abs(split.cross.item()), split.linearised.item()
    (4.0, 0.0, 9.0)
    """
    posterior, data, shifts = _check(x, mean, variance, noise)
    metric = pullback(decoder, posterior.mean, chunk_size=chunk_size)
    centre = decode_samples(decoder, posterior.mean)
    if centre.shape != data.shape:
        raise ValueError(f"x must have the decoder's shape {tuple(centre.shape)}, got {tuple(data.shape)}")
    missed = centre - data

    stochastic, cross = [], []
    for plus, minus in _opposites(decoder, posterior.mean, shifts):
        plus, minus = plus - centre, minus - centre
        stochastic.append((_sum(plus.square()) + _sum(minus.square())) / 2)
        cross.append(_sum((plus + minus) * missed))
    deterministic = _sum(missed.square())
    spread, crossed = torch.stack(stochastic).mean(0), torch.stack(cross)
    return Split(
        total=deterministic + spread + crossed.mean(0),
        deterministic=deterministic,
        stochastic=spread,
        cross=crossed.mean(0),
        cross_error=crossed.std(0) / len(crossed) ** 0.5,
        linearised=_quadratic_mean(metric, posterior),
    )


@torch.no_grad()
def elbo_gap(
    decoder: Decoder,
    likelihood: LogLikelihood,
    x: Array,
    mean: Array,
    variance: Array,
    *,
    noise: Array,
    beta: float = 1.0,
    chunk_size: int | None = None,
) -> Gap:
    r"""Deterministic β-ELBO and its gap to the sampled one (allen2024 Eq. 5, corrected, and A.4).

    .. math:: \log p(x \mid d(\mu)) - \tfrac12 \langle D^\top A^2 D, \Sigma \rangle - \beta\, \mathrm{KL}
        \quad\text{against}\quad E_q \log p(x \mid d(\mu + \varepsilon)) - \beta\, \mathrm{KL}

    with the Hessian reduced to its Gauss-Newton part. The gap is estimated as the mean of
    :math:`\log p(x|d(\mu)) - \tfrac12 \varepsilon^\top D^\top A^2 D \varepsilon - \log p(x|d(\mu+\varepsilon))`
    with every ε used with both signs: unbiased, and free of the noise in the terms that both ELBOs share, so
    zero to rounding for an affine decoder with Gaussian likelihood. ``sampled`` is deterministic - gap: the
    ELBO's mean over samples, with its quadratic term's mean taken exactly.

    Args:
        decoder: map d from (batch, latent) to the likelihood's parameter (batch, \*data).
        likelihood: gives ``log_prob(x, output)`` and ``fisher_weight(output)``.
        x: data (batch, \*data).
        mean: posterior means μ (batch, latent).
        variance: σ² (batch, latent), or Σ (batch, latent, latent).
        noise: standard normal draws (sample, batch, latent).
        beta: weight β of the KL term.
        chunk_size: points differentiated at once.

    Returns:
        Sums over data dimensions and latents, one for each point, in nats: ELBOs, to be maximised.

    >>> from unseam.models import Gaussian
    >>> noise = torch.randn(4, 1, 1, generator=torch.Generator().manual_seed(0))
    >>> zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    >>> found = elbo_gap(lambda z: 3 * z, Gaussian(), zero, zero, one, noise=noise)
    >>> f"{found.deterministic.item():.2f} {found.gap.abs().item():.4f}"
    '-5.42 0.0000'
    """
    posterior, data, shifts = _check(x, mean, variance, noise)
    check_number("beta", beta, least=0)
    check_likelihood(likelihood, "log_prob", "fisher_weight")
    metric = pullback(decoder, posterior.mean, likelihood=likelihood, chunk_size=chunk_size)
    at_mean = likelihood.log_prob(data, decode_samples(decoder, posterior.mean))
    deterministic = at_mean - _quadratic_mean(metric, posterior) / 2 - beta * kl(posterior)

    draws = []
    for shift, (plus, minus) in zip(shifts, _opposites(decoder, posterior.mean, shifts), strict=True):
        sampled = (likelihood.log_prob(data, plus) + likelihood.log_prob(data, minus)) / 2
        draws.append(at_mean - torch.einsum("bi,bij,bj->b", shift, metric, shift) / 2 - sampled)
    gaps = torch.stack(draws)
    gap = gaps.mean(0)
    return Gap(deterministic, deterministic - gap, gap, gaps.std(0) / len(gaps) ** 0.5)


def stochastic_minimum(
    pullback: Array, precision: float, *, reading: Literal["deviation", "variance"] = "variance"
) -> StochasticMinimum:
    r"""Least expected squared deviation of a linear decoder, given how precise its latents may be in all.

    .. math:: \min_\sigma \mathbb{E}\lVert J \varepsilon \rVert^2 = \min_\sigma \sum_j \lVert c_j \rVert^2
              \sigma_j^2 = d \, \Big(\prod_j \lVert c_j \rVert^2\Big)^{1/d} \, \Big(\prod_j \sigma_j^2\Big)^{1/d}

    for ε ~ N(0, diag σ²) and a fixed product of variances (rolinek2019 Eqs. 22–26, Prop. S5), reached where
    :math:`\lVert c_j \rVert^2 \sigma_j^2` is the same for all latents (bhowal2024 Theorem 1 c). The product
    of the column lengths is least where they are orthogonal; above that the loss is larger by the factor
    exp(2/d · :func:`~unseam.geometry.hadamard_gap`).

    The paper's constraint has two readings. Eq. 23 as printed, −Σ log σ_j² = C, gives the exponent −C/d, for
    two latents −C/2; the −C of Eqs. 25 and 26 belongs to −Σ log σ_j = C.

    Args:
        pullback: Gram matrices of the columns c_j (..., latent, latent), none of them zero.
        precision: the budget C in nats.
        reading: ``"variance"`` for −Σ log σ_j² = C, ``"deviation"`` for −Σ log σ_j = C.

    Returns:
        The loss, summed over data dimensions and latents, and the variances that reach it.

    >>> found = stochastic_minimum(torch.tensor([[50.0, -4.0], [-4.0, 3.0]]), 0.0)
    >>> found.loss
    tensor(24.4949)
    """
    columns = check_square("pullback", pullback).diagonal(dim1=-2, dim2=-1)
    if not (columns > 0).all():
        raise ValueError("pullback must have columns of positive length only: restrict it to active latents")
    check_choice("reading", reading, ("deviation", "variance"))
    check_number("precision", precision)
    log_volume = -precision if reading == "variance" else -2 * precision
    share = torch.exp(columns.log().mean(-1) + log_volume / columns.shape[-1])
    return StochasticMinimum(columns.shape[-1] * share, share.unsqueeze(-1) / columns)


def _check(x: Array, mean: Array, variance: Array, noise: Array) -> tuple[Gaussians, Tensor, Tensor]:
    """Posteriors, data of as many points, and displacements to be used with both signs."""
    posterior = gaussians(mean, variance)
    return posterior, of_batch("x", x, len(posterior.mean)), pairs(posterior, noise)


def _opposites(decoder: Decoder, mean: Tensor, shifts: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Decoder's outputs at mean + ε and mean - ε, one sample at a time."""
    for shift in shifts:
        yield decode_samples(decoder, mean + shift), decode_samples(decoder, mean - shift)


def _quadratic_mean(metric: Tensor, posterior: Gaussians) -> Tensor:
    """⟨G, Σ⟩ = E εᵀGε, (batch,)."""
    if posterior.variance.ndim == 2:
        return (metric.diagonal(dim1=-2, dim2=-1) * posterior.variance).sum(1)
    return (metric * posterior.variance).sum((1, 2))


def _sum(terms: Tensor) -> Tensor:
    return terms.flatten(1).sum(1)
