"""The binomial likelihood."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from unseam import choices
from unseam.models.likelihoods import (
    AbstractLikelihood,
    check_range,
    check_shape,
    logistic_variance,
    sum_data,
)

__all__ = ["Binomial"]

BINOMIAL = choices.Likelihood(
    "binomial",
    "binomial",
    "unseam.models.binomial:Binomial",
    options=(choices.Option("likelihood_draws", "draws per pixel", member=False, argument="draws"),),
)


class Binomial(AbstractLikelihood):
    r"""Fraction of successes in κ draws, whose logits the decoder outputs.

    .. math:: \log p(x|\theta) = \sum_i \log\binom{\kappa}{\kappa x_i} + \kappa\,(x_i\theta_i - \log(1+e^{\theta_i}))

    It gives allen2024's Theorem 3 a Bernoulli form: a VAE with κ draws is a β-VAE with one draw and β = 1/κ.

    Args:
        draws: κ, held as a 0-d buffer; need not be whole.

    >>> Binomial(2).log_prob(torch.tensor([[0.5]]), torch.zeros(1, 1)).exp()
    tensor([0.5000])
    """

    draws: Tensor

    def __init__(self, draws: float = 1.0) -> None:
        super().__init__()
        if not (0 < draws < math.inf):
            raise ValueError(f"draws must be positive and finite, got {draws}")
        self.initial_draws = float(draws)
        self.register_buffer("draws", torch.tensor(self.initial_draws))

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Log-probability of the counts κx, summed over data dimensions, in nats."""
        check_shape(x, output)
        kappa = self.draws
        successes = kappa * x
        choices = (kappa + 1).lgamma() - (successes + 1).lgamma() - (kappa - successes + 1).lgamma()
        return sum_data(choices + kappa * (x * output - functional.softplus(output)))

    def mean(self, output: Tensor) -> Tensor:
        """Mean fraction p = sigmoid(output)."""
        return output.sigmoid()

    def variance(self, output: Tensor) -> Tensor:
        """Variance of the fraction, p (1 - p) / κ."""
        return logistic_variance(output) / self.draws

    def fisher_weight(self, output: Tensor) -> Tensor:
        """κ p (1 - p)."""
        return logistic_variance(output) * self.draws

    def check(self, x: Tensor) -> None:
        """Data must lie in [0, 1]."""
        check_range(x, "binomial", 0.0, 1.0)

    @torch.no_grad()
    def reset(self) -> None:
        """draws back to the given number."""
        self.draws.fill_(self.initial_draws)
