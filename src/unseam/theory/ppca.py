"""Probabilistic principal component analysis: maximum likelihood, posterior, and EM with a diagonal posterior."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array, check_count, check_flag, check_number
from unseam.theory._inputs import covariance_matrix, spectrum

__all__ = ["PPCA", "PPCAPath", "ppca", "ppca_em"]


class PPCA(NamedTuple):
    """A linear Gaussian model x = W z + ε and the posterior of its latents."""

    weights: Tensor
    """W (data, latent)."""
    noise: float
    """Variance σ² of ε."""
    eigenvalues: Tensor
    """Eigenvalues of the data covariance (data,), descending."""
    encoder: Tensor
    """Posterior mean as a matrix, M⁻¹Wᵀ (latent, data)."""
    covariance: Tensor
    """Posterior covariance σ²M⁻¹ (latent, latent), the same at every point."""
    log_likelihood: float
    """Expected log-likelihood of one centred point, in nats."""


class PPCAPath(NamedTuple):
    """Where expectation–maximisation went."""

    solution: PPCA
    """The last model, with its exact posterior."""
    bounds: Tensor
    """Evidence lower bound of one point before each step (step,), in nats."""


def ppca(covariance: Array, latent: int, *, noise: float | None = None) -> PPCA:
    r"""Maximum-likelihood probabilistic PCA, from the data's covariance.

    .. math:: W = U (\Lambda - \sigma^2 I)_+^{1/2}, \qquad
              p(z \mid x) = N\bigl(M^{-1} W^\top x,\; \sigma^2 M^{-1}\bigr), \quad M = W^\top W + \sigma^2 I

    (Tipping and Bishop 1999; allen2024 Eqs. 2 and 3). Any W R with R orthogonal is as likely; this one has
    R = I. A component whose eigenvalue is below σ² has a zero column.

    Args:
        covariance: C (data, data) of centred data.
        latent: number of latents d.
        noise: σ²; by default its maximum-likelihood value, the mean of the eigenvalues that are left out.

    Returns:
        The model, its posterior and its log-likelihood.

    >>> found = ppca(torch.diag(torch.tensor([5.0, 2.0, 1.0])), 1)
    >>> found.noise, found.weights.squeeze(1)
    (1.5, tensor([1.8708, 0.0000, 0.0000]))
    """
    given = covariance_matrix("covariance", covariance)
    check_count("latent", latent, 1, len(given))
    eigenvalues, vectors = spectrum("covariance", given)
    if noise is None:
        if latent == len(given):
            raise ValueError("noise must be given where every direction of the data has its latent")
        noise = float(eigenvalues[latent:].mean())
    if not noise > 0:
        raise ValueError(f"noise must be positive, got {noise:g}; a covariance of lower rank needs it given")
    weights = vectors[:, :latent] * (eigenvalues[:latent] - noise).clamp(min=0.0).sqrt()
    return _model(given, weights, noise, eigenvalues)


def ppca_em(
    covariance: Array, latent: int, *, noise: float, diagonal: bool, steps: int, generator: torch.Generator
) -> PPCAPath:
    r"""Expectation–maximisation of probabilistic PCA, its posterior exact or restricted to be diagonal.

    .. math:: E = M^{-1} W^\top, \qquad \Sigma = \sigma^2 M^{-1} \;\text{ or }\;
              \Sigma_{jj} = \sigma^2 / (M_{jj}), \qquad W \leftarrow C E^\top (E C E^\top + \Sigma)^{-1}

    allen2024 §2. The exact posterior stops at whatever rotation of the principal axes it began with; the
    diagonal one, whose optimum given W keeps the exact mean, ends at the axes themselves (Eq. 4 with its
    inverse, Cor. 1.1).

    Args:
        covariance: C (data, data) of centred data.
        latent: number of latents d.
        noise: σ², fixed.
        diagonal: whether the posterior covariance is restricted to be diagonal.
        steps: number of E and M steps.
        generator: source of the first weights.

    Returns:
        The last model and the bound along the way, which never falls.

    >>> path = ppca_em(torch.diag(torch.tensor([5.0, 2.0, 1.0])), 2, noise=0.5, diagonal=True, steps=500,
    ...                generator=torch.Generator().manual_seed(0))
    >>> (path.solution.weights.T @ path.solution.weights).diagonal().sort().values
    tensor([1.5000, 4.5000])
    """
    given = covariance_matrix("covariance", covariance)
    check_count("latent", latent, 1, len(given))
    check_count("steps", steps, 1)
    check_flag("diagonal", diagonal)
    variance = check_number("noise", noise, above=0)
    exact = given.double()
    weights = torch.randn(len(given), latent, generator=generator, dtype=torch.float64)
    bounds = []
    for _ in range(steps):
        metric = weights.mT @ weights + variance * torch.eye(latent, dtype=torch.float64)
        encoder = torch.linalg.solve(metric, weights.mT)
        posterior = (
            torch.diag(variance / metric.diagonal()) if diagonal else variance * torch.linalg.inv(metric)
        )
        bounds.append(_bound(exact, weights, encoder, posterior, variance))
        second = encoder @ exact @ encoder.mT + posterior
        weights = torch.linalg.solve(second, encoder @ exact).mT
    eigenvalues, _ = spectrum("covariance", given)
    return PPCAPath(_model(given, weights, variance, eigenvalues), torch.stack(bounds).to(given.dtype))


def _model(given: Tensor, weights: Tensor, noise: float, eigenvalues: Tensor) -> PPCA:
    data, latent = weights.shape
    metric = weights.mT @ weights + noise * torch.eye(latent, dtype=weights.dtype)
    inverse = torch.linalg.inv(metric)
    encoder = inverse @ weights.mT
    # Woodbury and the determinant lemma: nothing of the size of the data is decomposed.
    trace = (given.double().trace() - (encoder @ given.double() @ weights).trace()) / noise
    log_determinant = torch.logdet(metric) + (data - latent) * math.log(noise)
    log_likelihood = -(data * math.log(2 * math.pi) + float(log_determinant + trace)) / 2
    kind = given.dtype
    return PPCA(
        weights.to(kind),
        noise,
        eigenvalues.to(kind),
        encoder.to(kind),
        (noise * inverse).to(kind),
        log_likelihood,
    )


def _bound(given: Tensor, weights: Tensor, encoder: Tensor, posterior: Tensor, noise: float) -> Tensor:
    """Evidence lower bound of one point."""
    data, latent = weights.shape
    rest = torch.eye(data, dtype=torch.float64) - weights @ encoder
    error = (rest @ given @ rest.mT).trace() + (weights @ posterior @ weights.mT).trace()
    likelihood = -(data * math.log(2 * math.pi * noise) + error / noise) / 2
    spread = (encoder @ given @ encoder.mT).trace() + posterior.trace() - latent - torch.logdet(posterior)
    return likelihood - spread / 2
