"""The optimum of a linear VAE: principal axes under a diagonal posterior, any rotation of them under a full one."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array, check_count, check_number
from unseam.theory._inputs import covariance_matrix, floating, spectrum

__all__ = ["LinearVAE", "linear_vae", "rotated"]


class LinearVAE(NamedTuple):
    """A linear VAE at its optimum: decoder, encoder, posterior and the terms of the objective for one point."""

    weights: Tensor
    """Decoder W (data, latent)."""
    encoder: Tensor
    """Posterior mean as a matrix (latent, data)."""
    covariance: Tensor
    """Posterior covariance (latent, latent), the same at every point."""
    reconstruction: float
    """Expected log-likelihood, in nats, with its normalising constant."""
    kl: float
    """KL divergence from the posterior to the prior, in nats."""
    objective: float
    """reconstruction − β · kl."""
    elbo: float
    """reconstruction − kl."""


def linear_vae(covariance: Array, latent: int, *, noise: float, beta: float = 1.0) -> LinearVAE:
    r"""Closed-form optimum of a linear VAE with diagonal posterior and Gaussian likelihood of variance σ².

    .. math:: W = U (\Lambda - \beta\sigma^2 I)_+^{1/2}, \qquad
              \Sigma = \bigl(I + \tfrac{1}{\beta\sigma^2} W^\top W\bigr)^{-1}

    allen2024 Eqs. 4 (which should end in an inverse) and 7, Cor. 1.1; Lucas et al. 2019. Unique up to signs
    and order of latents where the leading eigenvalues differ. β acts as a factor of σ² (Theorem 3).

    Args:
        covariance: C (data, data) of centred data.
        latent: number of latents d.
        noise: variance σ² of the likelihood.
        beta: weight of the KL term.

    Returns:
        The optimum; latents in the order of their eigenvalues, collapsed ones with a zero column and unit variance.

    >>> found = linear_vae(torch.diag(torch.tensor([5.0, 2.0, 0.5])), 2, noise=1.0)
    >>> found.weights
    tensor([[2., 0.],
            [0., 1.],
            [0., 0.]])
    """
    given = covariance_matrix("covariance", covariance)
    check_count("latent", latent, 1, len(given))
    scale = check_number("noise", noise, above=0) * check_number("beta", beta, above=0)
    eigenvalues, vectors = spectrum("covariance", given)
    weights = vectors[:, :latent] * (eigenvalues[:latent] - scale).clamp(min=0.0).sqrt()
    metric = weights.square().sum(0) + scale
    return _solution(given, weights, weights.mT / metric[:, None], torch.diag(scale / metric), noise, beta)


def rotated(
    solution: LinearVAE, rotation: Array, covariance: Array, *, noise: float, beta: float = 1.0
) -> LinearVAE:
    r"""The same model seen from other axes, which a full posterior allows at no cost.

    .. math:: W R, \qquad R^\top E, \qquad R^\top \Sigma R

    for any orthogonal R: the objective is that of ``solution`` (allen2024 Eq. 3, rolinek2019 Prop. 3). Where
    RᵀΣR is not diagonal, a diagonal posterior cannot follow, and that breaks the symmetry.

    Args:
        solution: an optimum of :func:`linear_vae`.
        rotation: R (latent, latent), orthogonal.
        covariance: C (data, data) of the data, as it was given there.
        noise: variance σ² of the likelihood, as there.
        beta: weight of the KL term, as there.

    Returns:
        The rotated model with its own terms.

    >>> data = torch.diag(torch.tensor([5.0, 2.0, 0.5], dtype=torch.float64))
    >>> straight = linear_vae(data, 2, noise=1.0)
    >>> other = rotated(straight, torch.tensor([[0.6, -0.8], [0.8, 0.6]]), data, noise=1.0)
    >>> abs(other.elbo - straight.elbo) < 1e-6
    True
    """
    if not isinstance(solution, LinearVAE):
        raise ValueError(f"solution must be a LinearVAE, got {type(solution).__name__}")
    given = covariance_matrix("covariance", covariance)
    check_number("noise", noise, above=0)
    check_number("beta", beta, above=0)
    orthogonal = floating("rotation", rotation, "(latent, latent)").double()
    latent = solution.weights.shape[1]
    if orthogonal.shape != (latent, latent):
        raise ValueError(
            f"rotation must have shape ({latent}, {latent}), got shape {tuple(orthogonal.shape)}"
        )
    if float((orthogonal.mT @ orthogonal - torch.eye(latent, dtype=torch.float64)).abs().max()) > 1e-6:
        raise ValueError("rotation must be orthogonal")
    weights, encoder, posterior = (
        part.double() for part in (solution.weights, solution.encoder, solution.covariance)
    )
    return _solution(
        given,
        weights @ orthogonal,
        orthogonal.mT @ encoder,
        orthogonal.mT @ posterior @ orthogonal,
        noise,
        beta,
    )


def _solution(
    given: Tensor, weights: Tensor, encoder: Tensor, posterior: Tensor, noise: float, beta: float
) -> LinearVAE:
    data, latent = weights.shape
    exact = given.double()
    coded = encoder @ exact
    # ‖x − W E x‖² in expectation, without a matrix of the size of the data beside the covariance
    gram = weights.mT @ weights
    error = exact.trace() - 2 * (coded @ weights).trace() + (gram @ coded @ encoder.mT).trace()
    error = error + (gram @ posterior).trace()
    reconstruction = -(data * math.log(2 * math.pi * noise) + float(error) / noise) / 2
    spread = (coded @ encoder.mT).trace() + posterior.trace() - latent - torch.logdet(posterior)
    kl = float(spread) / 2
    kind = given.dtype
    return LinearVAE(
        weights.to(kind),
        encoder.to(kind),
        posterior.to(kind),
        reconstruction,
        kl,
        reconstruction - beta * kl,
        reconstruction - kl,
    )
