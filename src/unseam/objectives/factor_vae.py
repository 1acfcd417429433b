"""FactorVAE: total correlation by the density ratio of a discriminator that is trained alongside."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from unseam import choices
from unseam.models import MLP, VAE
from unseam.objectives._inputs import checked

__all__ = ["Discriminator", "FactorVAETerms", "factor_vae"]

FACTOR_VAE = choices.Objective(
    "factor_vae",
    "FactorVAE",
    "unseam.objectives.factor_vae:factor_vae",
    weighs_kl=True,
    needs=("discriminator", "keys"),
    discriminator="unseam.objectives.factor_vae:Discriminator",
    options=(
        choices.Option("beta", "weight of the KL term"),
        choices.Option("gamma", "weight of the total correlation"),
        choices.Option("discriminator_rate", "learning rate of the discriminator", argument=None),
        choices.Option(
            "discriminator_width",
            "units per hidden layer of the discriminator",
            1000,
            member=False,
            argument="discriminator.width",
        ),
    ),
)


class FactorVAETerms(NamedTuple):
    """Terms of :func:`factor_vae`: sums over data and latents, means over the batch, in nats.

    ``discriminator_loss`` is part of ``loss``, but reaches the discriminator only.

    NaN or infinite where the data or the noise are, or where a sum overflows.
    """

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor
    total_correlation: Tensor
    discriminator_loss: Tensor


class Discriminator(nn.Module):
    """Classifier of latent points: drawn from q(z) (class 0) or from the product of its marginals (class 1).

    ``depth`` hidden layers of ``width`` units with leaky ReLU of slope 0.2 (Kim & Mnih 2018, experimental
    details). Parameters are NaN until ``initialise`` fills them.

    >>> import torch
    >>> Discriminator(2, width=8, depth=1)(torch.zeros(5, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(self, latent: int, *, width: int = 1000, depth: int = 6) -> None:
        super().__init__()
        for name, value in {"width": width, "depth": depth}.items():
            if value < 1 or value != int(value):
                raise ValueError(
                    f"the discriminator's {name} must be a whole number of at least 1, got {value}"
                )
        self.network = MLP(latent, (int(width),) * int(depth), 2, activation="leaky_relu")

    def forward(self, z: Tensor) -> Tensor:
        """Logits (batch, 2) of latent points (batch, latent)."""
        logits: Tensor = self.network(z)
        return logits


@checked
def factor_vae(
    model: VAE,
    discriminator: nn.Module,
    x: Tensor,
    noise: Tensor,
    keys: Tensor,
    *,
    gamma: float | Tensor,
    beta: float | Tensor = 1.0,
) -> FactorVAETerms:
    r"""Negative β-ELBO plus total correlation, and the loss of the discriminator that estimates it.

    .. math:: -\log p(x \mid z) + \beta\, \mathrm{KL} + \gamma \log \frac{D(z)}{1 - D(z)}
        \;-\; \tfrac12 \bigl[\log D(\bar z) + \log (1 - D(\pi(\bar z)))\bigr]

    Kim & Mnih 2018 Eqs. 2, 3 and Algorithm 2: D(z) is the probability that z was drawn from q(z), π permutes
    each latent over the batch on its own, and :math:`\bar z` passes no gradient. In the γ-term the
    discriminator's parameters pass none either, so one backward pass of ``loss`` gives the model the gradient
    of the first three terms and the discriminator that of the last. As in the 12 600-model study, the
    permuted batch is the same one, while Algorithm 2 draws another.

    Args:
        model: the VAE.
        discriminator: module from z (batch, latent) to logits (batch, 2), class 0 for q(z); without random
            layers.
        x: data (batch, \*data).
        noise: standard normal noise (batch, latent) that makes z.
        keys: uniform noise (batch, latent); its order in each column is the permutation of that latent.
        gamma: weight γ of the total correlation.
        beta: weight β of the KL term.

    >>> import torch
    >>> from unseam.models import build, initialise
    >>> model = build((3,), latent=2, likelihood="gaussian")
    >>> initialise(model, generator=torch.Generator().manual_seed(0))
    >>> discriminator = Discriminator(2, width=8, depth=1)
    >>> initialise(discriminator, generator=torch.Generator().manual_seed(1))
    >>> x, noise, keys = torch.zeros(5, 3), torch.zeros(5, 2), torch.zeros(5, 2)
    >>> terms = factor_vae(model, discriminator, x, noise, keys, gamma=0.0)
    >>> terms.loss.allclose(terms.reconstruction + terms.kl + terms.discriminator_loss)
    True
    """
    result = model(x, noise)
    if keys.shape != result.z.shape:
        raise ValueError(
            f"keys must have the shape of z, {tuple(result.z.shape)}, got shape {tuple(keys.shape)}"
        )
    frozen = {name: value.detach() for name, value in discriminator.named_parameters()}
    total_correlation = _log_ratio(functional_call(discriminator, frozen, (result.z,))).mean()

    joint = result.z.detach()
    product = joint.gather(0, keys.argsort(0))
    joint_loss = functional.softplus(-_log_ratio(discriminator(joint))).mean()
    product_loss = functional.softplus(_log_ratio(discriminator(product))).mean()
    discriminator_loss = (joint_loss + product_loss) / 2

    reconstruction, kl = -result.log_prob.mean(), result.kl.mean()
    loss = reconstruction + beta * kl + gamma * total_correlation + discriminator_loss
    return FactorVAETerms(loss, reconstruction, kl, total_correlation, discriminator_loss)


def _log_ratio(logits: Tensor) -> Tensor:
    """Log of D/(1 - D) for class 0, the log density ratio of q(z) to the product of its marginals."""
    return logits[:, 0] - logits[:, 1]
