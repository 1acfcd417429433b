"""The Gaussian posterior of any covariance."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from unseam import choices
from unseam.models.posteriors import (
    AbstractPosterior,
    Moments,
    check_noise,
    gaussian_kl,
    log_scale,
    split_features,
    whitened_log_prob,
)

__all__ = ["Full"]

FULL = choices.Posterior("full", "Gaussian of full covariance", "unseam.models.full:Full")


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
        mean, log_variance, below = split_features(features, self.latent, self.latent, off)
        log_diagonal = log_scale(log_variance / 2)
        factor = torch.diag_embed(log_diagonal.exp()) + _strict_lower(below, self.latent)
        return Moments(mean, factor, log_diagonal)

    def sample(self, moments: Moments, noise: Tensor) -> Tensor:
        """z = mean + L noise."""
        check_noise(moments, noise)
        return moments.mean + (moments.factor @ noise.unsqueeze(-1)).squeeze(-1)

    def kl(self, moments: Moments) -> Tensor:
        """½ (‖mean‖² + tr Σ - log det Σ - latent), in nats (rolinek2019 Eq. S77)."""
        return gaussian_kl(moments, moments.factor.square().sum(-1))

    def variance(self, moments: Moments) -> Tensor:
        """Covariance L Lᵀ (batch, latent, latent)."""
        return moments.factor @ moments.factor.mT

    def log_prob(self, moments: Moments, z: Tensor) -> Tensor:
        """Log-density in nats, by a triangular solve."""
        error = (z - moments.mean).unsqueeze(-1)
        whitened = torch.linalg.solve_triangular(moments.factor, error, upper=False).squeeze(-1)
        return whitened_log_prob(whitened, moments.log_diagonal)


def _strict_lower(entries: Tensor, latent: int) -> Tensor:
    """Entries (..., n(n+1)/2), n = latent - 1, placed below the diagonal of a zero (..., latent, latent).

    The entries after the n-th, then all of them reversed, fill an (n, n) square whose lower triangle holds each
    entry once: no index tensor has to be stored or stacked.
    """
    n = latent - 1
    square = torch.cat([entries[..., n:], entries.flip(-1)], dim=-1).unflatten(-1, (n, n))
    return functional.pad(square.tril(), (0, 1, 1, 0))
