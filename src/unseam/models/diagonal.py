"""The diagonal Gaussian posterior."""

from __future__ import annotations

from torch import Tensor

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

__all__ = ["Diagonal"]

DIAGONAL = choices.Posterior("diagonal", "diagonal Gaussian", "unseam.models.diagonal:Diagonal")


class Diagonal(AbstractPosterior):
    r"""Independent latents: :math:`q(z|x) = N(\mu, \mathrm{diag}(\sigma^2))` (rolinek2019 Eqs. 3 and 4).

    Encoder outputs are means and log-variances; ``log_scale`` keeps a runaway log-variance from overflowing.

    >>> import torch
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
        mean, log_variance = split_features(features, self.latent, self.latent)
        log_diagonal = log_scale(log_variance / 2)
        return Moments(mean, log_diagonal.exp(), log_diagonal)

    def sample(self, moments: Moments, noise: Tensor) -> Tensor:
        """z = mean + std ⊙ noise."""
        check_noise(moments, noise)
        return moments.mean + moments.factor * noise

    def kl(self, moments: Moments) -> Tensor:
        """½ Σ (mean² + std² - log std² - 1), in nats."""
        return gaussian_kl(moments, moments.factor.square())

    def variance(self, moments: Moments) -> Tensor:
        """std² (batch, latent)."""
        return moments.factor.square()

    def log_prob(self, moments: Moments, z: Tensor) -> Tensor:
        """Sum of the latents' log-densities, in nats."""
        return whitened_log_prob((z - moments.mean) / moments.factor, moments.log_diagonal)
