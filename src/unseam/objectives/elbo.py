"""The evidence lower bound with a weight on its KL term, with a capacity for it, and without it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.models import VAE

__all__ = ["CapacityTerms", "ElboTerms", "annealed_capacity", "autoencoder", "beta_elbo"]


class ElboTerms(NamedTuple):
    """Terms of a lower bound: sums over data and latents, means over the batch, in nats.

    >>> ElboTerms(torch.tensor(5.0), torch.tensor(3.0), torch.tensor(1.0)).kl
    tensor(1.)
    """

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor


class CapacityTerms(NamedTuple):
    """Terms of :func:`annealed_capacity`; ``capacity`` is the KL aimed at in this step.

    >>> CapacityTerms(*torch.arange(4.0)).capacity
    tensor(3.)
    """

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor
    capacity: Tensor


def beta_elbo(model: VAE, x: Tensor, noise: Tensor, *, beta: float | Tensor = 1.0) -> ElboTerms:
    r"""Negative β-ELBO, one posterior sample for each item.

    .. math:: -\log p(x \mid z) + \beta\, \mathrm{KL}(q(z \mid x) \,\Vert\, p(z)), \qquad z \sim q(z \mid x)

    Higgins et al. 2017 Eq. 4; allen2024 Eq. 1 at β = 1.

    Args:
        model: the VAE.
        x: data (batch, \*data).
        noise: standard normal noise (batch, latent) that makes z.
        beta: weight β of the KL term.

    Returns:
        Sums over data dimensions and latents, means over the batch, in nats.

    >>> from unseam.models import build, initialise
    >>> model = build((3,), latent=1, likelihood="gaussian")
    >>> initialise(model, generator=torch.Generator().manual_seed(0))
    >>> terms = beta_elbo(model, torch.zeros(5, 3), torch.zeros(5, 1), beta=2.0)
    >>> torch.equal(terms.loss, terms.reconstruction + 2 * terms.kl)
    True
    """
    result = model(x, noise)
    reconstruction, kl = -result.log_prob.mean(), result.kl.mean()
    return ElboTerms(reconstruction + beta * kl, reconstruction, kl)


def annealed_capacity(
    model: VAE,
    x: Tensor,
    noise: Tensor,
    *,
    gamma: float | Tensor,
    capacity: float | Tensor,
    capacity_steps: float | Tensor,
    step: float | Tensor,
) -> CapacityTerms:
    r"""Negative ELBO whose KL is held at a capacity that grows linearly and then stays.

    .. math:: -\log p(x \mid z) + \gamma\, \lvert \mathrm{KL} - C \rvert, \qquad
        C = C_{\max} \min(\text{step} / \text{steps}, 1)

    Burgess et al. 2018 Eq. 8, with the KL's mean over the batch inside the absolute value.

    Args:
        model: the VAE.
        x: data (batch, \*data).
        noise: standard normal noise (batch, latent) that makes z.
        gamma: weight γ of the distance from the capacity.
        capacity: final capacity C_max in nats.
        capacity_steps: number of steps in which the capacity is reached.
        step: steps done so far.

    Returns:
        Sums over data dimensions and latents, means over the batch, in nats.

    >>> from unseam.models import build, initialise
    >>> model = build((3,), latent=1, likelihood="gaussian")
    >>> initialise(model, generator=torch.Generator().manual_seed(0))
    >>> x, noise = torch.zeros(5, 3), torch.zeros(5, 1)
    >>> terms = annealed_capacity(model, x, noise, gamma=10.0, capacity=8.0, capacity_steps=100, step=50)
    >>> terms.capacity.item()
    4.0
    """
    if not isinstance(capacity_steps, Tensor) and capacity_steps <= 0:
        raise ValueError(f"capacity_steps must be positive, got {capacity_steps}")
    result = model(x, noise)
    reconstruction, kl = -result.log_prob.mean(), result.kl.mean()
    # Multiplied into a tensor of ones, so that numbers and tensors, on any device, take the same path.
    ones = torch.ones_like(kl)
    target = ((step * ones / capacity_steps).clamp(max=1.0) * capacity).to(kl.dtype)
    return CapacityTerms(reconstruction + gamma * (kl - target).abs(), reconstruction, kl, target)


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
