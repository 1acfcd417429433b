"""The Bernoulli likelihood, and that of stacked members in one pass over pixels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from unseam import choices
from unseam.models._fused import bernoulli_rows, can_fuse, scale_rows
from unseam.models._members import over_members
from unseam.models.likelihoods import (
    AbstractLikelihood,
    check_range,
    check_shape,
    logistic_variance,
    sum_data,
)

__all__ = ["Bernoulli", "StackedBernoulli"]

BERNOULLI = choices.Likelihood("bernoulli", "Bernoulli", "unseam.models.bernoulli:Bernoulli")


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
        check_shape(x, output)
        return sum_data(x * output - functional.softplus(output))

    def mean(self, output: Tensor) -> Tensor:
        """p = sigmoid(output)."""
        return output.sigmoid()

    def variance(self, output: Tensor) -> Tensor:
        """p (1 - p)."""
        return logistic_variance(output)

    def fisher_weight(self, output: Tensor) -> Tensor:
        """p (1 - p)."""
        return logistic_variance(output)

    def check(self, x: Tensor) -> None:
        """Data must lie in [0, 1]."""
        check_range(x, "bernoulli", 0.0, 1.0)

    def reset(self) -> None:
        """Nothing to put back."""


class StackedBernoulli(Bernoulli):
    """Bernoulli whose logits the decoder outputs, of every member at once.

    Operation by operation, the sum over pixels and its gradient are a dozen passes over outputs; on a GPU here it is
    one, which stores the derivative instead of both terms.

    >>> torch.vmap(StackedBernoulli().log_prob)(torch.ones(3, 5, 2), torch.zeros(3, 5, 2)).shape
    torch.Size([3, 5])
    """

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Negative cross-entropy summed over data dimensions, in nats."""
        plain = super().log_prob
        if output.shape != x.shape or not can_fuse(output):
            return plain(x, output)
        return over_members(_log_prob, x, output)


def _log_prob(x: Tensor, logits: Tensor) -> Tensor:
    """Of items (member, batch, …): (member, batch)."""
    y: Tensor = _Rows.apply(x.flatten(2).flatten(0, 1), logits.flatten(2).flatten(0, 1))
    return y.unflatten(0, x.shape[:2])


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, logits: Tensor) -> Tensor:
        sums, slopes = bernoulli_rows(x.contiguous(), logits.contiguous())
        ctx.save_for_backward(slopes)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        (slopes,) = ctx.saved_tensors
        return None, scale_rows(slopes, gradients[0].contiguous())
