"""A likelihood of the observed values alone."""

from __future__ import annotations

from torch import Tensor

from unseam.models.likelihoods import AbstractLikelihood, sum_data

__all__ = ["Masked"]


class Masked(AbstractLikelihood):
    r"""A family whose missing values (NaN) have no part in the likelihood.

    .. math:: \log p(x|\theta) = \sum_{i\ \mathrm{observed}} \log p(x_i|\theta_i)

    exact for values missing at random, as data dimensions are independent given θ. The encoder sees 0 in their place.

    Args:
        inner: the family; its parameters belong to no single data dimension.

    >>> import torch
    >>> from unseam.models import Gaussian
    >>> Masked(Gaussian()).log_prob(torch.tensor([[0.0, float("nan")]]), torch.zeros(1, 2))
    tensor([-0.9189])
    """

    def __init__(self, inner: AbstractLikelihood) -> None:
        super().__init__()
        self.inner, self.channels = inner, inner.channels

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Sum over observed data dimensions, in nats."""
        # every value as an item of its own, with its parameters
        values = x.nan_to_num(0.0).reshape(-1, 1)
        parameters = output.unflatten(1, (self.channels, -1)).movedim(1, -1).reshape(-1, self.channels)
        terms = self.inner.log_prob(values, parameters).view(x.shape)
        return sum_data(terms * ~x.isnan())

    def mean(self, output: Tensor) -> Tensor:
        """That of the family."""
        return self.inner.mean(output)

    def variance(self, output: Tensor) -> Tensor:
        """That of the family."""
        return self.inner.variance(output)

    def fisher_weight(self, output: Tensor) -> Tensor:
        """That of the family, as if every value were observed."""
        return self.inner.fisher_weight(output)

    def features(self, x: Tensor) -> Tensor:
        """x with 0 in the place of missing values."""
        return self.inner.features(x.nan_to_num(0.0))

    def check(self, x: Tensor) -> None:
        """Observed values must suit the family."""
        self.inner.check(x[~x.isnan()])

    def reset(self) -> None:
        """The family back to its initial values."""
        self.inner.reset()
