"""Likelihoods: what the decoder's output means as a distribution over data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["AbstractLikelihood", "check_range", "logistic_variance", "sum_data"]


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

    def features(self, x: Tensor) -> Tensor:
        """Data (batch, *data) as the encoder takes them."""
        return x

    @abstractmethod
    def check(self, x: Tensor) -> None:
        """Raise a ValueError if ``x`` cannot come from this family; waits for the device, so call it once."""

    @abstractmethod
    def reset(self) -> None:
        """Put buffers and parameters back to the values given at construction."""


def sum_data(terms: Tensor) -> Tensor:
    """Sums (batch,) over data dimensions of terms (batch, *data)."""
    return terms.sum(dim=tuple(range(1, terms.ndim)))


def logistic_variance(output: Tensor) -> Tensor:
    """Variance p (1 - p) at logits."""
    # sigmoid(-θ) rather than 1 - sigmoid(θ), which rounds to zero at large logits
    return output.sigmoid() * (-output).sigmoid()


def check_shape(x: Tensor, output: Tensor) -> None:
    """Refuse data of another shape than the decoder's output."""
    if x.shape != output.shape:
        raise ValueError(f"x must have the decoder's shape {tuple(output.shape)}, got {tuple(x.shape)}")


def check_range(x: Tensor, name: str, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse data that are empty, not finite, or outside of [low, high]."""
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
