"""The evidence lower bound with a growing capacity for its KL term."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam import choices
from unseam.models import VAE
from unseam.objectives._inputs import checked

__all__ = ["CapacityTerms", "annealed_capacity"]

ANNEALED_CAPACITY = choices.Objective(
    "annealed_capacity",
    "annealed VAE",
    "unseam.objectives.capacity:annealed_capacity",
    needs=("step",),
    options=(
        choices.Option("gamma", "weight of |KL − C|"),
        choices.Option("capacity", "final capacity C in nats"),
        choices.Option("capacity_steps", "steps until C is reached"),
    ),
)


class CapacityTerms(NamedTuple):
    """Terms of :func:`annealed_capacity`; ``capacity`` is the KL aimed at in this step.

    NaN or infinite where the data or the noise are, or where a sum overflows.
    """

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor
    capacity: Tensor


@checked
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
