"""Gaussian likelihoods, with one variance for all pixels or one for each."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from unseam import choices
from unseam.models.likelihoods import AbstractLikelihood, check_range, check_shape, sum_data

__all__ = ["Gaussian", "PixelGaussian"]

GAUSSIAN = choices.Likelihood(
    "gaussian",
    "Gaussian",
    "unseam.models.gaussian:Gaussian",
    options=(choices.Option("likelihood_variance", "variance", argument="variance"),),
)
GAUSSIAN_LEARNED = choices.Likelihood(
    "gaussian_learned",
    "Gaussian of learned variance",
    "unseam.models.gaussian:Gaussian",
    fixed=(("learned", True),),
    options=(choices.Option("likelihood_variance", "initial variance", argument="variance"),),
)
GAUSSIAN_PIXEL = choices.Likelihood(
    "gaussian_pixel", "Gaussian of one variance per pixel", "unseam.models.gaussian:PixelGaussian"
)
_LOG_2PI = math.log(2 * math.pi)


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
        check_shape(x, output)
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
        check_range(x, "gaussian")

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
        check_shape(x, centre)
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
        check_range(x, "gaussian_pixel")

    def reset(self) -> None:
        """Nothing to put back."""


def _normal_log_prob(x: Tensor, centre: Tensor, log_variance: Tensor) -> Tensor:
    return sum_data(((x - centre).square() * (-log_variance).exp() + log_variance + _LOG_2PI) / -2)


def _halves(output: Tensor) -> tuple[Tensor, Tensor]:
    if output.ndim < 2 or output.shape[1] % 2:
        raise ValueError(f"output must have an even first data axis, got shape {tuple(output.shape)}")
    first, second = output.chunk(2, dim=1)
    return first, second
