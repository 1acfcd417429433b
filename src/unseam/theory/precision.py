"""The posterior that a decoder asks for: optimal precision, local PCA, and the budget of precision shared out."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array, check_number
from unseam.theory._inputs import floating

__all__ = ["PrecisionOptimum", "local_posterior", "optimal_precision", "precision_optimum"]


class PrecisionOptimum(NamedTuple):
    """The least value of rolinek2019's problem (18, 19) and one of the points that reach it."""

    loss: float
    """Σ_i log E‖J_i ε‖² at its least."""
    loss_as_given: float
    """The least value over variances alone, axes left as they are: larger by (2/d) Σ_i Hadamard gap of J_i."""
    right_vectors: Tensor
    """V_i (batch, latent, latent): J_i V_i has orthogonal columns."""
    variance: Tensor
    """σ² (batch, latent) that goes with them, every point with the same loss."""


def optimal_precision(pullback: Array, *, beta: float = 1.0) -> Tensor:
    r"""Inverse covariance of the posterior that maximises the deterministic ELBO for a given decoder.

    .. math:: \Sigma_x^{-1} = I + \frac{1}{\beta} D^\top A^2 D

    allen2024 Eq. 7. A diagonal posterior is best at the inverse of this matrix's *diagonal*, not at the
    diagonal of its inverse.

    Args:
        pullback: DᵀA²D (..., latent, latent), already weighted by the likelihood's Fisher information.
        beta: weight of the KL term.

    Returns:
        The precision (..., latent, latent).

    >>> optimal_precision(torch.tensor([[4.0, 1.0], [1.0, 2.0]]), beta=2.0)
    tensor([[3.0000, 0.5000],
            [0.5000, 2.0000]])
    """
    gram = floating("pullback", pullback, "(..., latent, latent)")
    weight = check_number("beta", beta, above=0)
    return torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device) + gram / weight


def local_posterior(
    weights: Array, *, noise: float = 1.0, beta: float = 1.0, diagonal: bool = False
) -> Tensor:
    r"""Posterior covariance of local PCA: that of probabilistic PCA with the decoder's Jacobian as weights.

    .. math:: \Sigma_x = \bigl(I + \tfrac{1}{\beta\sigma^2} D^\top D\bigr)^{-1}

    allen2024 Eq. 8.

    Args:
        weights: Jacobians D (..., data, latent) of a decoder of Gaussian means.
        noise: variance σ² of the likelihood.
        beta: weight of the KL term.
        diagonal: whether to give the best diagonal covariance instead.

    Returns:
        The covariance (..., latent, latent).

    >>> local_posterior(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2000]])
    """
    jacobian = floating("weights", weights, "(..., data, latent)")
    pullback = jacobian.mT @ jacobian
    if not pullback.isfinite().all():
        raise ValueError(f"weights must have squares within {jacobian.dtype}, got ones that overflow")
    precision = optimal_precision(pullback / check_number("noise", noise, above=0), beta=beta)
    if diagonal:
        return torch.diag_embed(1 / precision.diagonal(dim1=-2, dim2=-1))
    return torch.linalg.inv(precision)


def precision_optimum(jacobians: Array, budget: float) -> PrecisionOptimum:
    r"""Global minimum of rolinek2019's problem (18, 19) for given Jacobians.

    .. math:: \min_{V_i, \sigma} \sum_i \log \mathbb{E}\lVert J_i \varepsilon_i \rVert^2
              \;\text{ s. t. }\; -\sum_{ij} \log \sigma_{ij}^2 = C
              \qquad = \; n \log d + \tfrac{1}{d} \Bigl(\sum_{ij} \log s_{ij}^2 - C\Bigr)

    (Theorem 2, Eq. S41): the arithmetic–geometric mean over latents at each point, then Hadamard's
    inequality. It is reached exactly where every :math:`J_i V_i` has orthogonal columns c_ij and
    :math:`\sigma_{ij}^2 \lVert c_{ij} \rVert^2` is the same for all latents of a point; how the budget is
    shared between points does not matter, and here each point gets the same loss.

    Args:
        jacobians: J_i (batch, data, latent) of full column rank.
        budget: C, the sum of −log σ² over points and latents, in nats.

    Returns:
        The least loss, the least loss without rotating the axes, and a minimiser.

    >>> found = precision_optimum(torch.tensor([[[4.0, 1.0], [-3.0, 1.0], [5.0, -1.0]]]), 0.0)
    >>> round(math.exp(found.loss_as_given), 2), round(math.exp(found.loss), 2)
    (24.49, 23.15)
    """
    given = floating("jacobians", jacobians, "(batch, data, latent)")
    check_number("budget", budget)
    if given.shape[2] > given.shape[1]:
        raise ValueError(
            f"jacobians must have shape (batch, data, latent), data at least latent, got {tuple(given.shape)}"
        )
    points, _, latent = given.shape
    _, scales, right = torch.linalg.svd(given.double(), full_matrices=False)
    if not (scales[:, -1] > torch.finfo(given.dtype).eps * latent * scales[:, 0]).all():
        raise ValueError("jacobians must have full column rank: leave passive latents out")
    squares = scales.square()
    columns = given.double().square().sum(1)
    share = (squares.log().sum() - budget) / (points * latent)
    return PrecisionOptimum(
        points * math.log(latent) + float(squares.log().sum() - budget) / latent,
        points * math.log(latent) + float(columns.log().sum() - budget) / latent,
        right.mT.to(given.dtype),
        (share.exp() / squares).to(given.dtype),
    )
