"""Likelihoods: what the decoder's output means as a distribution over data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

import unseam.models.continuous_bernoulli as continuous

__all__ = [
    "AbstractLikelihood",
    "Bernoulli",
    "Binomial",
    "ContinuousBernoulli",
    "Gaussian",
    "PixelGaussian",
]

_LOG_2PI = math.log(2 * math.pi)


class AbstractLikelihood(nn.Module, ABC):
    """A family p(x|θ), independent over data dimensions, with θ the decoder's output.

    ``channels`` is the number of parameters for one data dimension: the first data axis of θ is that many times
    the first axis of x. ``reset`` gives back the values that the likelihood was made with.
    """

    channels: int = 1

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the decoder's output for one item of data of this shape."""
        return (self.channels * shape[0], *shape[1:])

    @abstractmethod
    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """log p(x|output) in nats with its normalising constant, summed over data dimensions: (batch,)."""

    @abstractmethod
    def mean(self, output: Tensor) -> Tensor:
        """E[x|output] (batch, *data)."""

    @abstractmethod
    def variance(self, output: Tensor) -> Tensor:
        """Var[x|output] (batch, *data)."""

    @abstractmethod
    def fisher_weight(self, output: Tensor) -> Tensor:
        """-E[∂² log p / ∂output²], the diagonal A² of allen2024 Eq. 6, in the shape of the output."""

    @abstractmethod
    def check(self, x: Tensor) -> None:
        """Raise a ValueError if ``x`` cannot come from this family; waits for the device, so call it once."""

    @abstractmethod
    def reset(self) -> None:
        """Put buffers and parameters back to the values given at construction."""


class Gaussian(AbstractLikelihood):
    r"""Gaussian around the decoder's output, with one variance for all pixels.

    .. math:: \log p(x|\theta) = -\tfrac12 \sum_i \left((x_i-\theta_i)^2/\sigma^2 + \log 2\pi\sigma^2\right)

    The decoder outputs means, so the Fisher weight is :math:`1/\sigma^2` (allen2024 A.4, Gaussian case).

    Args:
        variance: :math:`\sigma^2`.
        learned: whether ``log_variance`` is a parameter; otherwise it is a buffer of the same name.

    >>> Gaussian(variance=2.0).log_prob(torch.zeros(1, 3), torch.zeros(1, 3))
    tensor([-3.7965])
    """

    log_variance: Tensor

    def __init__(self, variance: float = 1.0, *, learned: bool = False) -> None:
        super().__init__()
        if not (0 < variance < math.inf):
            raise ValueError(f"variance must be positive and finite, got {variance}")
        self.initial_variance = float(variance)
        self.learned = learned
        value = torch.tensor(math.log(variance))
        if learned:
            self.log_variance = nn.Parameter(value)
        else:
            self.register_buffer("log_variance", value)

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Sum over data dimensions of the normal log-densities, in nats."""
        _same_shape(x, output)
        return _normal_log_prob(x, output, self.log_variance)

    def mean(self, output: Tensor) -> Tensor:
        """The output itself."""
        return output

    def variance(self, output: Tensor) -> Tensor:
        """σ² everywhere."""
        return self.log_variance.exp().expand_as(output)

    def fisher_weight(self, output: Tensor) -> Tensor:
        """1/σ² everywhere."""
        return (-self.log_variance).exp().expand_as(output)

    def check(self, x: Tensor) -> None:
        """Data must be finite."""
        _check_range(x, "gaussian")

    @torch.no_grad()
    def reset(self) -> None:
        """log_variance back to the given variance."""
        self.log_variance.fill_(math.log(self.initial_variance))


class PixelGaussian(AbstractLikelihood):
    r"""Gaussian with a variance for each pixel, from the decoder: the over-expressive case of allen2024.

    The output holds means, then log-variances, along its first data axis. Nothing bounds the variance from
    below: a pixel that is reconstructed exactly has unbounded likelihood.

    >>> PixelGaussian().mean(torch.tensor([[3.0, 0.0]]))
    tensor([[3.]])
    """

    channels = 2

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Sum over data dimensions of the normal log-densities, in nats."""
        centre, log_variance = _halves(output)
        _same_shape(x, centre)
        return _normal_log_prob(x, centre, log_variance)

    def mean(self, output: Tensor) -> Tensor:
        """First half of the output."""
        return _halves(output)[0]

    def variance(self, output: Tensor) -> Tensor:
        """Exponential of the second half of the output."""
        return _halves(output)[1].exp()

    def fisher_weight(self, output: Tensor) -> Tensor:
        """1/σᵢ² for means and ½ for log-variances; the two are uncorrelated."""
        weight = (-_halves(output)[1]).exp()
        return torch.cat([weight, torch.full_like(weight, 0.5)], dim=1)

    def check(self, x: Tensor) -> None:
        """Data must be finite."""
        _check_range(x, "gaussian_pixel")

    def reset(self) -> None:
        """Nothing to put back."""


class Bernoulli(AbstractLikelihood):
    r"""Bernoulli whose logits the decoder outputs.

    .. math:: \log p(x|\theta) = \sum_i x_i\theta_i - \log(1+e^{\theta_i})

    Fisher weight :math:`p(1-p)` (allen2024 A.4, with the missing :math:`(1-x)^\top\log(1-s)` restored). Grey
    values in [0, 1] are accepted, as everyone does; then it is a cross-entropy and not a normalised density.

    >>> Bernoulli().log_prob(torch.ones(1, 2), torch.zeros(1, 2))
    tensor([-1.3863])
    """

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Negative cross-entropy summed over data dimensions, in nats."""
        _same_shape(x, output)
        return _sum(x * output - functional.softplus(output))

    def mean(self, output: Tensor) -> Tensor:
        """p = sigmoid(output)."""
        return output.sigmoid()

    def variance(self, output: Tensor) -> Tensor:
        """p (1 - p)."""
        return _logistic_variance(output)

    def fisher_weight(self, output: Tensor) -> Tensor:
        """p (1 - p)."""
        return _logistic_variance(output)

    def check(self, x: Tensor) -> None:
        """Data must lie in [0, 1]."""
        _check_range(x, "bernoulli", 0.0, 1.0)

    def reset(self) -> None:
        """Nothing to put back."""


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

    def __init__(self, draws: float) -> None:
        super().__init__()
        if not (0 < draws < math.inf):
            raise ValueError(f"draws must be positive and finite, got {draws}")
        self.initial_draws = float(draws)
        self.register_buffer("draws", torch.tensor(self.initial_draws))

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Log-probability of the counts κx, summed over data dimensions, in nats."""
        _same_shape(x, output)
        kappa = self.draws
        successes = kappa * x
        choices = (kappa + 1).lgamma() - (successes + 1).lgamma() - (kappa - successes + 1).lgamma()
        return _sum(choices + kappa * (x * output - functional.softplus(output)))

    def mean(self, output: Tensor) -> Tensor:
        """Mean fraction p = sigmoid(output)."""
        return output.sigmoid()

    def variance(self, output: Tensor) -> Tensor:
        """Variance of the fraction, p (1 - p) / κ."""
        return _logistic_variance(output) / self.draws

    def fisher_weight(self, output: Tensor) -> Tensor:
        """κ p (1 - p)."""
        return _logistic_variance(output) * self.draws

    def check(self, x: Tensor) -> None:
        """Data must lie in [0, 1]."""
        _check_range(x, "binomial", 0.0, 1.0)

    @torch.no_grad()
    def reset(self) -> None:
        """draws back to the given number."""
        self.draws.fill_(self.initial_draws)


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
        _same_shape(x, output)
        return _sum(x * output - continuous.log_normaliser(output))

    def mean(self, output: Tensor) -> Tensor:
        """1/(1 - e^-θ) - 1/θ."""
        return continuous.mean(output)

    def variance(self, output: Tensor) -> Tensor:
        """1/θ² - 1/(4 sinh²(θ/2))."""
        return continuous.variance(output)

    def fisher_weight(self, output: Tensor) -> Tensor:
        """The variance: logits are the natural parameter."""
        return continuous.variance(output)

    def check(self, x: Tensor) -> None:
        """Data must lie in [0, 1]."""
        _check_range(x, "continuous_bernoulli", 0.0, 1.0)

    def reset(self) -> None:
        """Nothing to put back."""


def _sum(terms: Tensor) -> Tensor:
    return terms.sum(dim=tuple(range(1, terms.ndim)))


def _normal_log_prob(x: Tensor, centre: Tensor, log_variance: Tensor) -> Tensor:
    return _sum(((x - centre).square() * (-log_variance).exp() + log_variance + _LOG_2PI) / -2)


def _logistic_variance(output: Tensor) -> Tensor:
    # sigmoid(-θ) rather than 1 - sigmoid(θ), which rounds to zero at large logits
    return output.sigmoid() * (-output).sigmoid()


def _halves(output: Tensor) -> tuple[Tensor, Tensor]:
    if output.ndim < 2 or output.shape[1] % 2:
        raise ValueError(f"output must have an even first data axis, got shape {tuple(output.shape)}")
    first, second = output.chunk(2, dim=1)
    return first, second


def _same_shape(x: Tensor, output: Tensor) -> None:
    if x.shape != output.shape:
        raise ValueError(f"x must have the decoder's shape {tuple(output.shape)}, got {tuple(x.shape)}")


def _check_range(x: Tensor, name: str, low: float = -math.inf, high: float = math.inf) -> None:
    x = torch.as_tensor(x)
    if not x.numel():
        raise ValueError(f"x must hold at least one value, got shape {tuple(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ValueError(
            f"x must be finite for the {name} likelihood, got NaN or infinite values: clean the data first"
        )
    least, most = x.aminmax()
    if float(least) < low or float(most) > high:
        raise ValueError(
            f"x must lie in [{low:g}, {high:g}] for the {name} likelihood, got values from {float(least):g} to "
            f"{float(most):g}: rescale the data or choose a gaussian likelihood"
        )
