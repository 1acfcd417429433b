"""The posterior of a plain autoencoder, a point."""

from __future__ import annotations

import torch
from torch import Tensor

from unseam import choices
from unseam.models.posteriors import AbstractPosterior, Moments, split_features

__all__ = ["Point"]

POINT = choices.Posterior("point", "point", "unseam.models.point:Point", variance=False)


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
        (mean,) = split_features(features, self.latent)
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
