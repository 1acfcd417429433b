"""The exactly solvable β-VAE: sources mixed linearly under noise, a linear encoder and decoder (sikka2019 §IV-B)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array, check_number
from unseam.theory._inputs import canonical, floating, positive

__all__ = ["LinearBetaVAE", "linear_beta_vae"]


class LinearBetaVAE(NamedTuple):
    """The optimum for each β and what the paper's figures show of it: means over the data, in nats."""

    decoder: Tensor
    """D (..., data, latent)."""
    encoder: Tensor
    """W^μ (..., latent, data)."""
    variance: Tensor
    """Posterior variances e^b (..., latent), the same at every point."""
    objective: Tensor
    """L* = reconstruction − β · kl (...)."""
    elbo: Tensor
    """reconstruction − kl (...)."""
    reconstruction: Tensor
    """E_q log p(x | z), with its normalising constant (...)."""
    kl: Tensor
    """D_KL(q(z | x) ‖ p(z)), the "conditional independence loss" (...)."""
    mie: Tensor
    """Model inference error, D_KL(q ‖ p_θ(z | x)) (...)."""
    tie: Tensor
    """True inference error, D_KL(q ‖ p_true(s | x)), latents in the order of their eigenvalues (...)."""
    tie_aligned: Tensor
    """The least true inference error over signs and orders of latents, which the model cannot know (...)."""
    log_likelihood: Tensor
    """E log p_θ(x), the data log-likelihood, which is ELBO + MIE (...)."""


def linear_beta_vae(
    mixing: Array, beta: Array | float, *, data_noise: float = 1.0, likelihood_variance: float = 1.0
) -> LinearBetaVAE:
    r"""Optimal linear β-VAE of data x = A s + η, for any number of β at once.

    .. math:: D = U_k (\Lambda_k - v)_+^{1/2}, \quad W^\mu = (D^\top D + v I)^{-1} D^\top, \quad
              e^{b_i} = \frac{v}{[D^\top D]_{ii} + v}, \quad W^\sigma = 0, \qquad v = \beta \sigma_y^2

    with the leading eigenpairs of :math:`\Sigma_x = A A^\top + \nu^2 I`: the stationary system of sikka2019
    Eq. 23 solved in closed form. A latent collapses exactly when v passes its eigenvalue. All terms follow from
    the singular values of A; nothing of size data × data is formed, and time and memory grow as
    β · data · latent.

    The model's covariance :math:`D D^\top + \sigma_y^2 I` has the eigenvalues :math:`\lambda_i - v + \sigma_y^2` for
    active latents and :math:`\sigma_y^2` elsewhere, so the data log-likelihood is largest at β = 1: it rises with β
    before and falls after.

    Aligned and raw true inference errors differ by the model's own symmetry. Since :math:`e^{b_i} +
    [W \Sigma_x W^\top]_{ii} = 1` for every latent, only the cross term depends on signs and order, so the
    best alignment is a linear assignment, exact for any number of latents.

    Args:
        mixing: A (data, source); the model has as many latents as sources.
        beta: weights β of the KL term (...), positive.
        data_noise: standard deviation ν of η.
        likelihood_variance: σ_y², variance of the decoder's Gaussian likelihood.

    Returns:
        Everything in float64, or in the type of ``mixing``, with the shape of ``beta`` in front.

    >>> mixing = (1 + torch.eye(128, 2, dtype=torch.float64)) / 2
    >>> found = linear_beta_vae(mixing, torch.tensor([1.0, 2.0]))
    >>> found.kl
    tensor([2.2083, 1.7501], dtype=torch.float64)
    >>> found.mie[0]
    tensor(0., dtype=torch.float64)
    >>> linear_beta_vae(mixing, torch.tensor([0.5, 1.0, 2.0])).log_likelihood.argmax()
    tensor(1)
    """
    given = floating("mixing", mixing, "(data, source)")
    if given.shape[1] > given.shape[0]:
        raise ValueError(
            f"mixing must have shape (data, source) with at most as many sources as data, got {tuple(given.shape)}"
        )
    weights = positive("beta", beta).double()
    noise = check_number("data_noise", data_noise, above=0) ** 2
    observed = check_number("likelihood_variance", likelihood_variance, above=0)
    left, scales, right = torch.linalg.svd(given.double(), full_matrices=False)
    axes = canonical(left)
    right = right * (left * axes).sum(0).sign()[:, None]
    eigenvalues = scales.square() + noise
    v = weights.unsqueeze(-1) * observed
    active = eigenvalues > v
    columns = (eigenvalues - v).clamp(min=0.0).sqrt()
    variance = torch.where(active, v / eigenvalues, 1.0)
    gains = torch.where(active, columns / eigenvalues, 0.0)
    data = given.shape[0]
    missed = torch.where(active, v, eigenvalues).sum(-1) + (data - len(scales)) * noise
    reconstruction = -(data * math.log(2 * math.pi * observed) + missed / observed) / 2
    kl = torch.where(active, (eigenvalues / v).log(), 0.0).sum(-1) / 2
    mie = _model_error(columns, gains, variance, eigenvalues, observed)
    cross, apart = _true_error(scales, right, gains, variance, eigenvalues, noise)
    result = LinearBetaVAE(
        axes * columns.unsqueeze(-2),
        gains.unsqueeze(-1) * axes.mT,
        variance,
        reconstruction - weights * kl,
        reconstruction - kl,
        reconstruction,
        kl,
        mie,
        apart - cross.diagonal(dim1=-2, dim2=-1).sum(-1),
        apart - _best(cross),
        _log_likelihood(columns, eigenvalues, data, noise, observed),
    )
    return LinearBetaVAE(*(part.to(given.dtype) for part in result))


def _model_error(
    columns: Tensor, gains: Tensor, variance: Tensor, eigenvalues: Tensor, observed: float
) -> Tensor:
    """D_KL(q ‖ model posterior), latent by latent since both are diagonal in the optimum."""
    metric = columns.square() + observed
    ratio = variance * metric / observed
    shift = (columns / metric - gains).square() * eigenvalues * metric / observed
    return (ratio - 1 - ratio.log() + shift).sum(-1) / 2


def _log_likelihood(columns: Tensor, eigenvalues: Tensor, data: int, noise: float, observed: float) -> Tensor:
    """E log N(x; 0, DDᵀ + σ_y²I) over x ~ N(0, Σ_x), direction by direction since both share their eigenvectors."""
    model = columns.square() + observed
    rest = (data - len(eigenvalues)) * (math.log(observed) + noise / observed)
    return -(data * math.log(2 * math.pi) + (model.log() + eigenvalues / model).sum(-1) + rest) / 2


def _true_error(
    scales: Tensor, right: Tensor, gains: Tensor, variance: Tensor, eigenvalues: Tensor, noise: float
) -> tuple[Tensor, Tensor]:
    """Cross term (..., source, latent) whose trace is subtracted, and all that no signed permutation changes.

    With A = U S V: E⁻¹F = Aᵀ/ν² = Vᵀ S Uᵀ/ν², so E⁻¹ F Σ_x Wᵀ = Vᵀ S Λ G / ν², and Fᵀ E⁻¹ F Σ_x has the trace
    of A E Aᵀ Σ_x / ν⁴ = Σ_i s_i² λ_i / (ν² (s_i² + ν²)) = Σ_i s_i² / ν².
    """
    cross = right.mT * (scales * eigenvalues * gains).unsqueeze(-2) / noise
    precision = (right.mT * (scales.square() / noise)) @ right + torch.eye(len(scales), dtype=scales.dtype)
    explained = (scales.square() / noise).sum()
    volume = -(eigenvalues / noise).log().sum() - variance.log().sum(-1)
    # e^b + [W Σ_x Wᵀ]_ii = 1 for every latent
    return cross, (precision.trace() + volume + explained - len(scales)) / 2


def _best(cross: Tensor) -> Tensor:
    """Largest trace of the cross term over signed permutations."""
    from scipy.optimize import linear_sum_assignment  # a fifth of a second to import

    flat = cross.abs().reshape(-1, *cross.shape[-2:])
    best = [float(one.numpy()[linear_sum_assignment(-one.numpy())].sum()) for one in flat.cpu()]
    return torch.tensor(best, dtype=cross.dtype).view(cross.shape[:-2])
