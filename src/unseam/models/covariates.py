"""A likelihood of items whose last values are covariates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unseam.models.likelihoods import AbstractLikelihood

__all__ = ["WithCovariates"]


class WithCovariates(AbstractLikelihood):
    r"""A family whose parameter is shifted by covariates, which latents then need not explain.

    .. math:: p(x|z, c) = p(x \mid \theta(z) + W^T c)

    with W learned, one row per covariate, as in the linearly decoded model of Svensson et al. 2020. An item is
    (x, c), c last, centred over all items. The encoder sees both. ``mean``, ``variance`` and ``fisher_weight`` are
    those at the average covariates, c = 0, so that the decoder's geometry is one for all; a mean has that 0 in the
    place of c.

    Args:
        inner: the family.
        values: number of values of x.
        covariates: number of values of c.

    >>> from unseam.models import Gaussian
    >>> family = WithCovariates(Gaussian(), 2, 1)
    >>> family.log_prob(torch.zeros(1, 3), torch.zeros(1, 2)).detach(), family.mean(torch.ones(1, 2))
    (tensor([-1.8379]), tensor([[1., 1., 0.]]))
    """

    def __init__(self, inner: AbstractLikelihood, values: int, covariates: int) -> None:
        super().__init__()
        self.inner, self.channels = inner, inner.channels
        self.values, self.covariates = values, covariates
        self.shift = nn.Parameter(torch.zeros(covariates, values))

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """That of the family for x alone."""
        return self.inner.output_shape((self.values,))

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Sum over the values of x, in nats."""
        if x.ndim != 2 or x.shape[1] != self.values + self.covariates:
            raise ValueError(
                f"x must have {self.values} values and {self.covariates} covariates, got {tuple(x.shape)}"
            )
        values, covariates = x[:, : self.values], x[:, self.values :]
        shifted = output[:, : self.values] + covariates @ self.shift
        return self.inner.log_prob(values, torch.cat([shifted, output[:, self.values :]], 1))

    def mean(self, output: Tensor) -> Tensor:
        """That of the family at the average covariates, and these."""
        return self._with(self.inner.mean(output))

    def variance(self, output: Tensor) -> Tensor:
        """That of the family; 0 for covariates, which are given."""
        return self._with(self.inner.variance(output))

    def fisher_weight(self, output: Tensor) -> Tensor:
        """That of the family at the average covariates."""
        return self.inner.fisher_weight(output)

    def features(self, x: Tensor) -> Tensor:
        """What the family gives to the encoder, and the covariates."""
        return torch.cat([self.inner.features(x[:, : self.values]), x[:, self.values :]], 1)

    def check(self, x: Tensor) -> None:
        """Values of x must suit the family."""
        self.inner.check(x[:, : self.values])

    @torch.no_grad()
    def reset(self) -> None:
        """No shift; the family resets itself."""
        self.shift.zero_()

    def _with(self, values: Tensor) -> Tensor:
        return torch.cat([values, values.new_zeros(len(values), self.covariates)], 1)
