"""A variational autoencoder composed of its four parts."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from unseam.models.likelihoods import AbstractLikelihood
from unseam.models.posteriors import AbstractPosterior, Moments

__all__ = ["VAE", "Encoding", "Pass"]


class Encoding(NamedTuple):
    """Posterior mean (batch, latent) and variance (batch, latent), or covariance (batch, latent, latent)."""

    mean: Tensor
    variance: Tensor


class Pass(NamedTuple):
    """One pass through a VAE: moments, z (batch, latent), output, log_prob (batch,) and kl (batch,), in nats."""

    moments: Moments
    z: Tensor
    output: Tensor
    log_prob: Tensor
    kl: Tensor


class VAE(nn.Module):
    r"""Encoder, posterior, decoder and likelihood as one module.

    .. math:: \log p(x) \ge E_{q(z|x)}[\log p(x|z)] - KL(q(z|x) \| N(0, I))

    ``forward`` gives the two terms for each item (rolinek2019 Eq. 2; allen2024 Eq. 1): sums over data
    dimensions and latents, in nats.

    Args:
        encoder: x (batch, *data) to features (batch, posterior.width).
        posterior: what features mean.
        decoder: z (batch, latent) to the likelihood's parameter (batch, *likelihood.output_shape(data)).
        likelihood: what outputs mean.

    >>> import torch
    >>> from unseam.models import MLP, Bernoulli, Diagonal, initialise
    >>> model = VAE(MLP(8, (), 4), Diagonal(2), MLP(2, (), 8), Bernoulli())
    >>> initialise(model, generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(5, 8), torch.zeros(5, 2)).kl.shape
    torch.Size([5])
    """

    def __init__(
        self,
        encoder: nn.Module,
        posterior: AbstractPosterior,
        decoder: nn.Module,
        likelihood: AbstractLikelihood,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.posterior = posterior
        self.decoder = decoder
        self.likelihood = likelihood

    def forward(self, x: Tensor, noise: Tensor) -> Pass:
        """Encode ``x`` (batch, *data), sample with ``noise`` (batch, latent) of N(0, I), decode and compare."""
        moments = self.moments(x)
        z = self.posterior.sample(moments, noise)
        output = self.decode(z)
        return Pass(moments, z, output, self.likelihood.log_prob(x, output), self.posterior.kl(moments))

    def moments(self, x: Tensor) -> Moments:
        """The posterior of each item."""
        return self.posterior.moments(self.encoder(self.likelihood.features(x)))

    def encode(self, x: Tensor) -> Encoding:
        """Posterior mean and variance (or covariance) of each item."""
        moments = self.moments(x)
        return Encoding(moments.mean, self.posterior.variance(moments))

    def decode(self, z: Tensor) -> Tensor:
        """The likelihood's parameter at ``z`` (batch, latent): means or logits."""
        output: Tensor = self.decoder(z)
        return output

    def generate(self, z: Tensor) -> Tensor:
        """E[x|z] (batch, *data) at ``z`` (batch, latent)."""
        return self.likelihood.mean(self.decode(z))

    def reconstruct(self, x: Tensor) -> Tensor:
        """E[x|z] at the posterior mean of each item."""
        return self.generate(self.moments(x).mean)
