"""The negative-binomial likelihood of counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unseam import choices
from unseam.models.likelihoods import AbstractLikelihood, check_range, check_shape, sum_data

__all__ = ["NegativeBinomial", "check_counts", "log_means", "negative_binomial_terms"]

NEGATIVE_BINOMIAL = choices.Likelihood(
    "negative_binomial",
    "negative binomial",
    "unseam.models.negative_binomial:NegativeBinomial",
    options=(
        choices.Option(
            "library", "library size that outputs refer to; 0: means as they are", 0.0, member=False
        ),
    ),
    shaped=True,
)


class NegativeBinomial(AbstractLikelihood):
    r"""Counts whose log-means the decoder outputs, with a learned inverse dispersion r per value.

    .. math:: p(x|\theta) = \frac{\Gamma(x+r)}{\Gamma(r)\,x!}\Big(\frac{r}{r+\mu}\Big)^r\Big(\frac{\mu}{r+\mu}\Big)^x

    with :math:`\mu = e^\theta` and variance :math:`\mu+\mu^2/r`, the parametrisation of Lopez et al. 2018. The Fisher
    weight in θ is :math:`\mu r/(r+\mu)`, as the score is :math:`r(x-\mu)/(r+\mu)`.

    Library size: with ``library`` 0 the total of an item is one of the things that latents have to explain. With
    L > 0 the means of an item with total :math:`\ell=\sum_i x_i` are :math:`(\ell/L)\,e^{\theta}`: outputs are
    log-means per L counts, and ``mean``, ``variance`` and ``fisher_weight`` are those of an item of that total.

    Missing values (NaN) have no part in the likelihood. The encoder sees log(1 + x).

    Args:
        shape: of one item.
        library: L, or 0.

    >>> NegativeBinomial((2,)).log_prob(torch.zeros(1, 2), torch.zeros(1, 2)).detach()
    tensor([-1.3863])
    """

    log_dispersion: Tensor

    def __init__(self, shape: Sequence[int], *, library: float = 0.0) -> None:
        super().__init__()
        if not 0 <= library < math.inf:
            raise ValueError(f"library must be a number of counts, at least 0, got {library}")
        self.library = float(library)
        self.log_dispersion = nn.Parameter(torch.zeros(tuple(shape)))

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Sum over data dimensions of the log-probabilities, in nats."""
        check_shape(x, output)
        observed, counts = ~x.isnan(), x.nan_to_num(0.0)
        terms = negative_binomial_terms(counts, log_means(counts, output, self.library), self.log_dispersion)
        return sum_data(terms * observed)

    def mean(self, output: Tensor) -> Tensor:
        """μ = exp(output)."""
        return output.exp()

    def variance(self, output: Tensor) -> Tensor:
        """μ + μ²/r."""
        return output.exp() * (1 + (output - self.log_dispersion).exp())

    def fisher_weight(self, output: Tensor) -> Tensor:
        """μ r / (r + μ)."""
        return output.exp() / (1 + (output - self.log_dispersion).exp())

    def features(self, x: Tensor) -> Tensor:
        """log(1 + x), missing values as 0."""
        return x.nan_to_num(0.0).log1p()

    def check(self, x: Tensor) -> None:
        """Data must be whole numbers of at least 0."""
        check_counts(x, "negative_binomial", self.library)

    @torch.no_grad()
    def reset(self) -> None:
        """Inverse dispersion back to 1."""
        self.log_dispersion.zero_()


def negative_binomial_terms(x: Tensor, log_mean: Tensor, log_dispersion: Tensor) -> Tensor:
    """Log-probabilities of counts one by one.

    >>> negative_binomial_terms(torch.tensor([1.0]), torch.zeros(1), torch.zeros(1)).exp()
    tensor([0.2500])
    """
    r = log_dispersion.exp()
    # log(r + μ) from logarithms, which do not overflow
    log_sum = torch.logaddexp(log_dispersion, log_mean)
    constant = torch.lgamma(x + r) - torch.lgamma(r) - torch.lgamma(x + 1)
    return constant + r * (log_dispersion - log_sum) + x * (log_mean - log_sum)


def log_means(x: Tensor, output: Tensor, library: float) -> Tensor:
    """Log-means of items: the output, shifted by log(total / library) where a library size is given."""
    if not library:
        return output
    total = x.flatten(1).sum(1).clamp(min=1.0).view(-1, *[1] * (x.ndim - 1))
    return output + (total / library).log()


def check_counts(x: Tensor, name: str, library: float) -> None:
    """Refuse what are no counts, and items of no counts where a library size divides by their total."""
    check_range(x, name, 0.0)
    if not bool((x == x.round()).all()):
        raise ValueError(f"x must hold whole numbers for the {name} likelihood, got fractions")
    if library and x.ndim > 1 and (empty := int((x.flatten(1).sum(1) == 0).sum())):
        raise ValueError(
            f"x must have a count in each item where library is given, got {empty} items of none"
        )
