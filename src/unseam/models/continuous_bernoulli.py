"""The continuous Bernoulli likelihood: its normaliser, mean and variance, accurate through logit zero."""

from __future__ import annotations

import torch
from torch import Tensor

from unseam import choices
from unseam.models.likelihoods import AbstractLikelihood, check_range, check_shape, sum_data

__all__ = ["ContinuousBernoulli", "log_normaliser", "mean", "variance"]

CONTINUOUS_BERNOULLI = choices.Likelihood(
    "continuous_bernoulli", "continuous Bernoulli", "unseam.models.continuous_bernoulli:ContinuousBernoulli"
)

_SWITCH = 1.0


class ContinuousBernoulli(AbstractLikelihood):
    r"""Density on [0, 1] whose logits the decoder outputs.

    .. math:: \log p(x|\theta) = \sum_i x_i\theta_i - \log\frac{e^{\theta_i}-1}{\theta_i}

    The normalised form of the cross-entropy on grey values (Loaiza-Ganem and Cunningham 2019, Section 3). Logits
    are its natural parameter, so the Fisher weight is the variance.

    >>> ContinuousBernoulli().log_prob(torch.tensor([[0.2, 0.9]]), torch.zeros(1, 2))
    tensor([0.])
    """

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Log-density summed over data dimensions, in nats."""
        check_shape(x, output)
        return sum_data(x * output - log_normaliser(output))

    def mean(self, output: Tensor) -> Tensor:
        """1/(1 - e^-θ) - 1/θ."""
        return mean(output)

    def variance(self, output: Tensor) -> Tensor:
        """1/θ² - 1/(4 sinh²(θ/2))."""
        return variance(output)

    def fisher_weight(self, output: Tensor) -> Tensor:
        """The variance: logits are the natural parameter."""
        return variance(output)

    def check(self, x: Tensor) -> None:
        """Data must lie in [0, 1]."""
        check_range(x, "continuous_bernoulli", 0.0, 1.0)

    def reset(self) -> None:
        """Nothing to put back."""


def log_normaliser(logits: Tensor) -> Tensor:
    r"""Log of the integral of :math:`e^{\theta x}` over [0, 1], elementwise.

    :math:`\log((e^\theta - 1)/\theta)`, which is 0 at :math:`\theta = 0` (Loaiza-Ganem and Cunningham 2019,
    Section 3, in the natural parameter).

    Args:
        logits: :math:`\theta`, any shape.

    >>> log_normaliser(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5413])
    """
    near, small, large = _branches(logits)
    far = large.clamp(min=0) + torch.log1p(-torch.exp(-large.abs())) - large.abs().log()
    half = small / 2
    return torch.where(near, half + half.square() * _series(half, _INTEGRAL), far)


def mean(logits: Tensor) -> Tensor:
    r"""Mean :math:`1/(1-e^{-\theta}) - 1/\theta`, elementwise; one half at zero.

    Args:
        logits: :math:`\theta`, any shape.

    >>> mean(torch.tensor([0.0, 1.0]))
    tensor([0.5000, 0.5820])
    """
    near, small, large = _branches(logits)
    half = small / 2
    return torch.where(near, (1 + half * _series(half, _LANGEVIN)) / 2, -1 / torch.expm1(-large) - 1 / large)


def variance(logits: Tensor) -> Tensor:
    r"""Variance :math:`1/\theta^2 - 1/(4\sinh^2(\theta/2))`, elementwise; one twelfth at zero.

    Args:
        logits: :math:`\theta`, any shape.

    >>> variance(torch.tensor([0.0, 1.0]))
    tensor([0.0833, 0.0793])
    """
    near, small, large = _branches(logits)
    decay = torch.exp(-large.abs())
    far = large.square().reciprocal() - decay / (1 - decay).square()
    return torch.where(near, _series(small / 2, _SLOPE) / 4, far)


def _branches(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the series holds, and arguments for each branch that stay in its range, so no gradient is NaN."""
    near = logits.abs() < _SWITCH
    return near, logits.masked_fill(~near, 0.0), logits.masked_fill(near, _SWITCH)


def _series(half: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Σ cₖ half²ᵏ by Horner's rule."""
    square = half.square()
    total = torch.full_like(half, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * square + coefficient
    return total


def _langevin_coefficients(terms: int) -> tuple[float, ...]:
    """Taylor coefficients of L(h) = coth h - 1/h at h, h³, …, from its equation L' = 1 - L² - 2L/h."""
    found = [1 / 3]
    for k in range(2, terms + 1):
        found.append(-sum(a * b for a, b in zip(found, reversed(found), strict=True)) / (2 * k + 1))
    return tuple(found)


# |half| <= 1/2 and the radius of convergence is pi, so the thirteenth term is below 1e-20 of the first
_LANGEVIN = _langevin_coefficients(12)
_INTEGRAL = tuple(c / (2 * k) for k, c in enumerate(_LANGEVIN, 1))
_SLOPE = tuple(c * (2 * k - 1) for k, c in enumerate(_LANGEVIN, 1))
