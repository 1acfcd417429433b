"""DIP-VAE: the aggregate posterior's covariance held at the identity."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from unseam import choices
from unseam.inputs import check_choice
from unseam.models import VAE
from unseam.objectives._inputs import checked

__all__ = ["DIPTerms", "dip_vae"]

DIP_VAE_I = choices.Objective(
    "dip_vae_i",
    "DIP-VAE-I",
    "unseam.objectives.dip_vae:dip_vae",
    fixed=(("form", "i"),),
    weighs_kl=True,
    options=(
        choices.Option("beta", "weight of the KL term"),
        choices.Option("lambda_od", "weight of the off-diagonal covariances"),
        choices.Option("lambda_d", "weight of the variances' distance to 1"),
    ),
)
DIP_VAE_II = choices.Objective(
    "dip_vae_ii",
    "DIP-VAE-II",
    "unseam.objectives.dip_vae:dip_vae",
    fixed=(("form", "ii"),),
    weighs_kl=True,
    options=(
        choices.Option("beta", "weight of the KL term"),
        choices.Option("lambda_od", "weight of the off-diagonal covariances"),
        choices.Option("lambda_d", "weight of the variances' distance to 1"),
    ),
)


class DIPTerms(NamedTuple):
    """Terms of :func:`dip_vae`; the last two are the penalties before their weights.

    NaN or infinite where the data or the noise are, or where a sum overflows.
    """

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor
    off_diagonal: Tensor
    diagonal: Tensor


@checked
def dip_vae(
    model: VAE,
    x: Tensor,
    noise: Tensor,
    *,
    beta: float | Tensor = 1.0,
    lambda_od: float | Tensor,
    lambda_d: float | Tensor,
    form: Literal["i", "ii"] = "i",
) -> DIPTerms:
    r"""Negative β-ELBO plus the squared distance of a covariance of the codes from the identity.

    .. math:: -\log p(x \mid z) + \beta\, \mathrm{KL} + \lambda_{od} \sum_{i \ne j} C_{ij}^2
        + \lambda_d \sum_i (C_{ii} - 1)^2

    Kumar et al. 2018 Eqs. 6, 7: form I takes C = Cov_x[mean(x)], form II the covariance of z, C = E_x[Σ(x)] +
    Cov_x[mean(x)] (their Eq. 5, the law of total covariance). Their Cov[a] = E[a aᵀ] - E[a] E[a]ᵀ is the
    batch's own covariance, divided by batch and not by batch - 1, so that Eq. 5 holds exactly on the batch.

    Args:
        model: the VAE; a full posterior brings all of Σ into form II.
        x: data (batch, \*data).
        noise: standard normal noise (batch, latent) that makes z.
        beta: weight β of the KL term.
        lambda_od: weight of the off-diagonal penalty; each pair counts twice.
        lambda_d: weight of the diagonal penalty.
        form: ``"i"`` or ``"ii"``.

    Returns:
        Sums over data dimensions and latents, means over the batch, in nats; the penalties are sums over
        entries.

    >>> from unseam.models import build, initialise
    >>> model = build((3,), latent=2, likelihood="gaussian")
    >>> initialise(model, generator=torch.Generator().manual_seed(0))
    >>> terms = dip_vae(model, torch.zeros(5, 3), torch.zeros(5, 2), lambda_od=10.0, lambda_d=5.0)
    >>> terms.diagonal.item()  # the codes do not vary, so both variances miss 1 by 1
    2.0
    """
    check_choice("form", form, ("i", "ii"))
    result = model(x, noise)
    centred = result.moments.mean - result.moments.mean.mean(0)
    covariance = centred.mT @ centred / len(x)
    if form == "ii":
        expected = model.posterior.variance(result.moments).mean(0)
        covariance = covariance + (torch.diag_embed(expected) if expected.ndim == 1 else expected)
    variances = covariance.diagonal()
    off_diagonal = (covariance - torch.diag_embed(variances)).square().sum()
    diagonal = (variances - 1).square().sum()

    reconstruction, kl = -result.log_prob.mean(), result.kl.mean()
    loss = reconstruction + beta * kl + lambda_od * off_diagonal + lambda_d * diagonal
    return DIPTerms(loss, reconstruction, kl, off_diagonal, diagonal)
