"""Approximate posteriors: what the encoder's outputs mean as a distribution over latents."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["AbstractPosterior", "Moments", "gaussian_kl", "log_scale", "split_features", "whitened_log_prob"]

_LOG_2PI = math.log(2 * math.pi)


class Moments(NamedTuple):
    """A Gaussian posterior for each item of a batch.

    Attributes:
        mean: (batch, latent).
        factor: covariance = factor factorᵀ; standard deviations (batch, latent), or a lower Cholesky factor
            (batch, latent, latent).
        log_diagonal: logarithm of the factor's diagonal (batch, latent); zero for a point.
    """

    mean: Tensor
    factor: Tensor
    log_diagonal: Tensor


class AbstractPosterior(nn.Module, ABC):
    """A family q(z|x) = N(mean, factor factorᵀ), and how many encoder outputs describe one member of it."""

    latent: int

    def __init__(self, latent: int) -> None:
        super().__init__()
        if latent < 1:
            raise ValueError(f"latent must be at least 1, got {latent}")
        self.latent = latent

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of encoder outputs for one item."""

    @abstractmethod
    def moments(self, features: Tensor) -> Moments:
        """Read encoder outputs (batch, width) as posteriors."""

    @abstractmethod
    def sample(self, moments: Moments, noise: Tensor) -> Tensor:
        """z = mean + factor noise, for standard normal ``noise`` (batch, latent)."""

    @abstractmethod
    def kl(self, moments: Moments) -> Tensor:
        """KL(q(z|x) ‖ N(0, I)) in nats, summed over latents: (batch,)."""

    @abstractmethod
    def variance(self, moments: Moments) -> Tensor:
        """Variances (batch, latent), or covariance matrices (batch, latent, latent)."""

    @abstractmethod
    def log_prob(self, moments: Moments, z: Tensor) -> Tensor:
        """Log q(z|x) in nats, summed over latents: (batch,); leading axes of both arguments broadcast."""


def log_scale(raw: Tensor) -> Tensor:
    r"""Log of a positive scale: the identity up to 0 and :math:`\log(1 + r)` beyond, continuous in its slope.

    The scale itself is :math:`e^r` below 1 and :math:`1 + r` above, so that one large optimiser step cannot
    make it overflow. At an optimum no posterior is wider than the prior (allen2024 Eq. 7), and there this is
    the identity.

    >>> log_scale(torch.tensor([-2.0, 0.0, 1.0]))
    tensor([-2.0000,  0.0000,  0.6931])
    """
    return torch.where(raw > 0, torch.log1p(raw.clamp(min=0)), raw)


def split_features(features: Tensor, *sizes: int) -> tuple[Tensor, ...]:
    """Features (batch, width) cut along their last axis, after checking how many there are."""
    if features.shape[-1] != sum(sizes):
        raise ValueError(
            f"features must have {sum(sizes)} entries in their last axis, got shape {tuple(features.shape)}"
        )
    return features.split(sizes, dim=-1)


def check_noise(moments: Moments, noise: Tensor) -> None:
    """Refuse noise of another shape than that of the means."""
    if noise.shape != moments.mean.shape:
        raise ValueError(
            f"noise must have the shape {tuple(moments.mean.shape)} of the means, got {tuple(noise.shape)}"
        )


def gaussian_kl(moments: Moments, diagonal: Tensor) -> Tensor:
    """KL to N(0, I) in nats (batch,) of Gaussians with the covariance's ``diagonal`` (batch, latent)."""
    return (moments.mean.square() + diagonal - 1).sum(-1) / 2 - moments.log_diagonal.sum(-1)


def whitened_log_prob(whitened: Tensor, log_diagonal: Tensor) -> Tensor:
    """Log-density in nats (batch,) at factor⁻¹ (z - mean), from the logarithm of the factor's diagonal."""
    return -((whitened.square() + _LOG_2PI) / 2 + log_diagonal).sum(-1)
