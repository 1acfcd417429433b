"""Gaussian posteriors as a mean with variances or a covariance: checks, displacements and KL terms."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array, as_floating, as_tensor

__all__ = ["Gaussians", "displacement", "gaussian_kl", "gaussians", "kl", "marginal", "pairs"]


class Gaussians(NamedTuple):
    """A Gaussian for each point of a batch.

    Attributes:
        mean: (batch, latent).
        variance: variances (batch, latent) or covariances (batch, latent, latent).
        factor: standard deviations, or the lower Cholesky factors, in the shape of ``variance``.
    """

    mean: Tensor
    variance: Tensor
    factor: Tensor


def gaussians(mean: Array, variance: Array) -> Gaussians:
    """Posteriors from what an encoder returns, refused with a reason where they are none.

    Args:
        mean: means μ (batch, latent), floating and finite.
        variance: variances σ² (batch, latent), or covariances Σ (batch, latent, latent), positive.

    >>> gaussians(torch.zeros(1, 2), torch.tensor([[4.0, 9.0]])).factor
    tensor([[2., 3.]])
    """
    mean, variance = as_floating("mean", mean, "(batch, latent)"), as_floating("variance", variance)
    if variance.shape not in (mean.shape, (*mean.shape, mean.shape[1])):
        raise ValueError(
            f"variance must have shape (batch, latent) or (batch, latent, latent) beside a mean of shape "
            f"{tuple(mean.shape)}, got shape {tuple(variance.shape)}"
        )
    if (variance.dtype, variance.device) != (mean.dtype, mean.device):
        raise ValueError(
            f"variance must have the type and device of mean, {mean.dtype} on {mean.device}, "
            f"got {variance.dtype} on {variance.device}"
        )
    return Gaussians(mean, variance, _factor(variance))


def displacement(posterior: Gaussians, noise: Tensor) -> Tensor:
    """ε = factor · noise, in the shape of the noise (..., batch, latent).

    >>> displacement(gaussians(torch.zeros(1, 2), torch.tensor([[4.0, 9.0]])), torch.ones(1, 2))
    tensor([[2., 3.]])
    """
    factor = posterior.factor
    return factor * noise if factor.ndim == 2 else (factor @ noise.unsqueeze(-1)).squeeze(-1)


def pairs(posterior: Gaussians, noise: Array) -> Tensor:
    """Displacements ε (sample, batch, latent) from standard normal noise, to be used with both signs.

    Used as ±ε, a draw loses every term of odd order in ε, whose mean is zero, and its noise with it.

    >>> pairs(gaussians(torch.zeros(1, 1), torch.full((1, 1), 4.0)), torch.ones(2, 1, 1)).flatten()
    tensor([2., 2.])
    """
    noise = as_floating("noise", noise)
    if noise.ndim != 3 or noise.shape[1:] != posterior.mean.shape or len(noise) < 2:
        raise ValueError(
            f"noise must have shape (sample, batch, latent) with at least 2 samples beside a mean of shape "
            f"{tuple(posterior.mean.shape)}, got shape {tuple(noise.shape)}"
        )
    return displacement(posterior, noise.to(posterior.mean))


def marginal(variance: Tensor) -> Tensor:
    """Variance of each latent on its own, (batch, latent): the diagonal of a covariance.

    >>> marginal(torch.tensor([[[4.0, 1.0], [1.0, 9.0]]]))
    tensor([[4., 9.]])
    """
    return variance.diagonal(dim1=-2, dim2=-1) if variance.ndim == 3 else variance


def gaussian_kl(mean: Array, variance: Array) -> Tensor:
    r"""KL divergence of N(μ_j, σ_j²) from N(0, 1) for each latent, in nats.

    .. math:: \tfrac12 (\mu_j^2 + \sigma_j^2 - \log \sigma_j^2 - 1)

    the terms of rolinek2019 Eq. 4, whose sum is the KL of a diagonal posterior. Of the marginals of a full
    covariance they leave out what the correlations cost. Differentiable; values are not looked at, so that a variance
    of 0 gives infinity and one below NaN.

    Args:
        mean: μ (..., latent).
        variance: σ² (..., latent), positive.

    Returns:
        (..., latent), one term per latent.

    >>> gaussian_kl(torch.tensor([2.0, 0.0]), torch.ones(2))  # ½ · 2²
    tensor([2., 0.])
    """
    mean, variance = as_tensor("mean", mean), as_tensor("variance", variance)
    pairs = zip(mean.shape[::-1], variance.shape[::-1], strict=False)
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        raise ValueError(f"variance must fit mean {tuple(mean.shape)}, got shape {tuple(variance.shape)}")
    return (mean.square() + variance - variance.log() - 1) / 2


def kl(posterior: Gaussians) -> Tensor:
    r"""KL divergence from N(0, I) in nats, summed over latents: (batch,).

    .. math:: \tfrac12 (\lVert \mu \rVert^2 + \operatorname{tr} \Sigma - \log |\Sigma| - d)

    rolinek2019 Eq. 4, and Eq. S77 for a full covariance.

    >>> kl(gaussians(torch.tensor([[2.0, 0.0]]), torch.ones(1, 2)))
    tensor([2.])
    """
    mean, variance, factor = posterior
    if variance.ndim == 2:
        return gaussian_kl(mean, variance).sum(1)
    trace = marginal(variance).sum(1)
    return (mean.square().sum(1) + trace - mean.shape[1]) / 2 - marginal(factor).log().sum(1)


def of_batch(name: str, value: Array, batch: int) -> Tensor:
    """A floating, finite tensor with one entry for each point, or a ValueError that names it."""
    tensor = as_floating(name, value, "(batch, *data)")
    if len(tensor) != batch:
        raise ValueError(f"{name} must hold data for {batch} points, got shape {tuple(tensor.shape)}")
    return tensor


def _factor(variance: Tensor) -> Tensor:
    if variance.ndim == 2:
        if not bool((variance > 0).all()):
            raise ValueError(
                f"variance must be positive, got {float(variance.min()):g}: a point has no posterior to measure"
            )
        return variance.sqrt()
    scale = marginal(variance).abs().amax()
    if bool(((variance - variance.mT).abs().amax() > torch.finfo(variance.dtype).eps ** 0.5 * scale).any()):
        raise ValueError("variance must hold symmetric covariances, got one that is not")
    factor, info = torch.linalg.cholesky_ex(variance)
    if bool(info.any()):
        raise ValueError(
            f"variance must hold positive definite covariances, got {int((info != 0).sum())} of "
            f"{len(info)} that are not"
        )
    return factor
