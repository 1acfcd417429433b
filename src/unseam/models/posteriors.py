"""Approximate posteriors: what the encoder's outputs mean as a distribution over latents."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from unseam import choices

__all__ = ["AbstractPosterior", "Diagonal", "Full", "Moments", "Point", "log_scale"]

DIAGONAL = choices.Posterior("diagonal", "diagonal Gaussian", "unseam.models.posteriors:Diagonal")
FULL = choices.Posterior("full", "Gaussian of full covariance", "unseam.models.posteriors:Full")
POINT = choices.Posterior("point", "point", "unseam.models.posteriors:Point", variance=False)
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


class Diagonal(AbstractPosterior):
    r"""Independent latents: :math:`q(z|x) = N(\mu, \mathrm{diag}(\sigma^2))` (rolinek2019 Eqs. 3 and 4).

    Encoder outputs are means and log-variances; ``log_scale`` keeps a runaway log-variance from overflowing.

    >>> posterior = Diagonal(2)
    >>> posterior.kl(posterior.moments(torch.tensor([[3.0, 4.0, 0.0, 0.0]])))
    tensor([12.5000])
    """

    @property
    def width(self) -> int:
        """Means and log-variances."""
        return 2 * self.latent

    def moments(self, features: Tensor) -> Moments:
        """Features (batch, 2 latent) are means, then log-variances."""
        mean, log_variance = _split_features(features, self.latent, self.latent)
        log_diagonal = log_scale(log_variance / 2)
        return Moments(mean, log_diagonal.exp(), log_diagonal)

    def sample(self, moments: Moments, noise: Tensor) -> Tensor:
        """z = mean + std ⊙ noise."""
        _check_noise(moments, noise)
        return moments.mean + moments.factor * noise

    def kl(self, moments: Moments) -> Tensor:
        """½ Σ (mean² + std² - log std² - 1), in nats."""
        return _gaussian_kl(moments, moments.factor.square())

    def variance(self, moments: Moments) -> Tensor:
        """std² (batch, latent)."""
        return moments.factor.square()

    def log_prob(self, moments: Moments, z: Tensor) -> Tensor:
        """Sum of the latents' log-densities, in nats."""
        return _whitened_log_prob((z - moments.mean) / moments.factor, moments.log_diagonal)


class Full(AbstractPosterior):
    r"""Any covariance: :math:`q(z|x) = N(\mu, LL^\top)` with L lower triangular (rolinek2019 Eqs. S76 to S78).

    Encoder outputs are means, twice the log-diagonal of L before ``log_scale``, and the entries below the
    diagonal; with these zero it is ``Diagonal`` on the same features.

    >>> posterior = Full(2)
    >>> posterior.moments(torch.tensor([[0.0, 0.0, 0.0, 0.0, 3.0]])).factor
    tensor([[[1., 0.],
             [3., 1.]]])
    """

    @property
    def width(self) -> int:
        """Means, diagonal and strict lower triangle of L."""
        return 2 * self.latent + self.latent * (self.latent - 1) // 2

    def moments(self, features: Tensor) -> Moments:
        """Features (batch, width) are means, twice the log-diagonal, and the strict lower triangle."""
        off = self.latent * (self.latent - 1) // 2
        mean, log_variance, below = _split_features(features, self.latent, self.latent, off)
        log_diagonal = log_scale(log_variance / 2)
        factor = torch.diag_embed(log_diagonal.exp()) + _strict_lower(below, self.latent)
        return Moments(mean, factor, log_diagonal)

    def sample(self, moments: Moments, noise: Tensor) -> Tensor:
        """z = mean + L noise."""
        _check_noise(moments, noise)
        return moments.mean + (moments.factor @ noise.unsqueeze(-1)).squeeze(-1)

    def kl(self, moments: Moments) -> Tensor:
        """½ (‖mean‖² + tr Σ - log det Σ - latent), in nats (rolinek2019 Eq. S77)."""
        return _gaussian_kl(moments, moments.factor.square().sum(-1))

    def variance(self, moments: Moments) -> Tensor:
        """Covariance L Lᵀ (batch, latent, latent)."""
        return moments.factor @ moments.factor.mT

    def log_prob(self, moments: Moments, z: Tensor) -> Tensor:
        """Log-density in nats, by a triangular solve."""
        error = (z - moments.mean).unsqueeze(-1)
        whitened = torch.linalg.solve_triangular(moments.factor, error, upper=False).squeeze(-1)
        return _whitened_log_prob(whitened, moments.log_diagonal)


class Point(AbstractPosterior):
    """One point per item: the code of a plain autoencoder, whose variance and KL term are zero.

    >>> posterior = Point(2)
    >>> posterior.sample(posterior.moments(torch.ones(1, 2)), torch.full((1, 2), 9.0))
    tensor([[1., 1.]])
    """

    @property
    def width(self) -> int:
        """Means only."""
        return self.latent

    def moments(self, features: Tensor) -> Moments:
        """Features (batch, latent) are the points."""
        (mean,) = _split_features(features, self.latent)
        return Moments(mean, torch.zeros_like(mean), torch.zeros_like(mean))

    def sample(self, moments: Moments, noise: Tensor) -> Tensor:
        """z = mean, whatever the noise."""
        return moments.mean

    def kl(self, moments: Moments) -> Tensor:
        """Zero: an autoencoder has no such term."""
        return moments.log_diagonal.sum(-1)

    def variance(self, moments: Moments) -> Tensor:
        """Zeros (batch, latent)."""
        return moments.factor

    def log_prob(self, moments: Moments, z: Tensor) -> Tensor:
        """A point has no density."""
        raise ValueError("posterior must have a density, got a point: use a diagonal or full posterior here")


def log_scale(raw: Tensor) -> Tensor:
    r"""Log of a positive scale: the identity up to 0 and :math:`\log(1 + r)` beyond, continuous in its slope.

    The scale itself is :math:`e^r` below 1 and :math:`1 + r` above, so that one large optimiser step cannot
    make it overflow. At an optimum no posterior is wider than the prior (allen2024 Eq. 7), and there this is
    the identity.

    >>> log_scale(torch.tensor([-2.0, 0.0, 1.0]))
    tensor([-2.0000,  0.0000,  0.6931])
    """
    return torch.where(raw > 0, torch.log1p(raw.clamp(min=0)), raw)


def _split_features(features: Tensor, *sizes: int) -> tuple[Tensor, ...]:
    """Features (batch, width) cut along their last axis, after checking how many there are."""
    if features.shape[-1] != sum(sizes):
        raise ValueError(
            f"features must have {sum(sizes)} entries in their last axis, got shape {tuple(features.shape)}"
        )
    return features.split(sizes, dim=-1)


def _check_noise(moments: Moments, noise: Tensor) -> None:
    """Refuse noise of another shape than that of the means."""
    if noise.shape != moments.mean.shape:
        raise ValueError(
            f"noise must have the shape {tuple(moments.mean.shape)} of the means, got {tuple(noise.shape)}"
        )


def _gaussian_kl(moments: Moments, diagonal: Tensor) -> Tensor:
    """KL to N(0, I) in nats (batch,) of Gaussians with the covariance's ``diagonal`` (batch, latent)."""
    return (moments.mean.square() + diagonal - 1).sum(-1) / 2 - moments.log_diagonal.sum(-1)


def _whitened_log_prob(whitened: Tensor, log_diagonal: Tensor) -> Tensor:
    """Log-density in nats (batch,) at factor⁻¹ (z - mean), from the logarithm of the factor's diagonal."""
    return -((whitened.square() + _LOG_2PI) / 2 + log_diagonal).sum(-1)


def _strict_lower(entries: Tensor, latent: int) -> Tensor:
    """Entries (..., n(n+1)/2), n = latent - 1, placed below the diagonal of a zero (..., latent, latent).

    The entries after the n-th, then all of them reversed, fill an (n, n) square whose lower triangle holds each
    entry once: no index tensor has to be stored or stacked.
    """
    n = latent - 1
    square = torch.cat([entries[..., n:], entries.flip(-1)], dim=-1).unflatten(-1, (n, n))
    return functional.pad(square.tril(), (0, 1, 1, 0))
