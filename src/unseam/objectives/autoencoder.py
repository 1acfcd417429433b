"""The log-likelihood alone: a plain autoencoder."""

from __future__ import annotations

import torch
from torch import Tensor

from unseam import choices
from unseam.models import VAE
from unseam.objectives._inputs import checked
from unseam.objectives.elbo import ElboTerms

__all__ = ["autoencoder"]

AUTOENCODER = choices.Objective(
    "autoencoder", "autoencoder", "unseam.objectives.autoencoder:autoencoder", variance=False
)


@checked
def autoencoder(model: VAE, x: Tensor, noise: Tensor) -> ElboTerms:
    r"""Negative log-likelihood of the data given the posterior mean, without a prior.

    .. math:: -\log p(x \mid z = e(x))

    the plain autoencoder of rolinek2019 §5.1, and the AE term of allen2024 Eq. 5.

    Args:
        model: the VAE, usually with a point posterior.
        x: data (batch, \*data).
        noise: ignored; the posterior mean e(x) is decoded.

    Returns:
        Sum over data dimensions, mean over the batch, in nats; ``kl`` is 0.

    >>> from unseam.models import build, initialise
    >>> model = build((3,), latent=1, likelihood="gaussian", posterior="point")
    >>> initialise(model, generator=torch.Generator().manual_seed(0))
    >>> autoencoder(model, torch.zeros(5, 3), torch.zeros(5, 1)).kl.item()
    0.0
    """
    output = model.decode(model.moments(x).mean)
    reconstruction = -model.likelihood.log_prob(x, output).mean()
    return ElboTerms(reconstruction, reconstruction, torch.zeros_like(reconstruction))
