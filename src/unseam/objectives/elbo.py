"""The evidence lower bound with a weight on its KL term."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from unseam import choices
from unseam.models import VAE
from unseam.objectives._inputs import checked

__all__ = ["ElboTerms", "beta_elbo"]

BETA_ELBO = choices.Objective(
    "beta_elbo",
    "β-VAE",
    "unseam.objectives.elbo:beta_elbo",
    weighs_kl=True,
    variance=None,
    options=(choices.Option("beta", "weight of the KL term"),),
)


class ElboTerms(NamedTuple):
    """Terms of a lower bound: sums over data and latents, means over the batch, in nats.

    NaN or infinite where the data or the noise are, or where a sum overflows.
    """

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor


@checked
def beta_elbo(model: VAE, x: Tensor, noise: Tensor, *, beta: float | Tensor = 1.0) -> ElboTerms:
    r"""Negative β-ELBO, one posterior sample for each item.

    .. math:: -\log p(x \mid z) + \beta\, \mathrm{KL}(q(z \mid x) \,\Vert\, p(z)), \qquad z \sim q(z \mid x)

    Higgins et al. 2017 Eq. 4; allen2024 Eq. 1 at β = 1.

    Args:
        model: the VAE.
        x: data (batch, \*data).
        noise: standard normal noise (batch, latent) that makes z.
        beta: weight β of the KL term.

    >>> import torch
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
