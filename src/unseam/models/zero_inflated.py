"""The zero-inflated negative-binomial likelihood of counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from unseam import choices
from unseam.models.likelihoods import AbstractLikelihood, check_shape, sum_data
from unseam.models.negative_binomial import check_counts, log_means, negative_binomial_terms

__all__ = ["ZeroInflatedNegativeBinomial"]

ZINB = choices.Likelihood(
    "zinb",
    "zero-inflated negative binomial",
    "unseam.models.zero_inflated:ZeroInflatedNegativeBinomial",
    options=(
        choices.Option(
            "library", "library size that outputs refer to; 0: means as they are", 0.0, member=False
        ),
    ),
    shaped=True,
)


class ZeroInflatedNegativeBinomial(AbstractLikelihood):
    r"""A negative binomial whose counts are lost, and read as 0, with a learned probability π per value.

    .. math:: p(x|\theta) = \pi\,[x=0] + (1-\pi)\,\mathrm{NB}(x; e^\theta, r)

    π and r belong to values (genes), not to items, so the decoder's output is θ alone and its Fisher information is
    diagonal (Lopez et al. 2018 let the decoder output π as well). With :math:`p_0=(r/(r+\mu))^r`, the score
    :math:`s_0=-\mu r/(r+\mu)` of a zero and the probability :math:`w=(1-\pi)p_0/(\pi+(1-\pi)p_0)` that a zero was
    not lost, the Fisher weight is :math:`(1-\pi)\left(\mu r/(r+\mu) - (1-w)\,p_0 s_0^2\right)`.

    Library size, missing values and what the encoder sees are as in
    :class:`~unseam.models.negative_binomial.NegativeBinomial`.

    Args:
        shape: of one item.
        library: library size that outputs refer to, or 0.

    >>> ZeroInflatedNegativeBinomial((1,)).log_prob(torch.zeros(1, 1), torch.zeros(1, 1)).exp().detach()
    tensor([0.5596])
    """

    log_dispersion: Tensor
    dropout_logit: Tensor

    def __init__(self, shape: Sequence[int], *, library: float = 0.0) -> None:
        super().__init__()
        self.library = float(library)
        self.log_dispersion = nn.Parameter(torch.zeros(tuple(shape)))
        self.dropout_logit = nn.Parameter(torch.zeros(tuple(shape)))
        self.reset()

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        """Sum over data dimensions of the log-probabilities, in nats."""
        check_shape(x, output)
        observed, counts = ~x.isnan(), x.nan_to_num(0.0)
        terms = negative_binomial_terms(counts, log_means(counts, output, self.library), self.log_dispersion)
        held = terms + functional.logsigmoid(-self.dropout_logit)
        lost = functional.logsigmoid(self.dropout_logit).expand_as(held)
        return sum_data(torch.where(counts == 0, torch.logaddexp(held, lost), held) * observed)

    def mean(self, output: Tensor) -> Tensor:
        """(1 − π) μ."""
        return (-self.dropout_logit).sigmoid() * output.exp()

    def variance(self, output: Tensor) -> Tensor:
        """(1 − π) μ (1 + μ/r + π μ)."""
        mu, pi = output.exp(), self.dropout_logit.sigmoid()
        return (1 - pi) * mu * (1 + mu * ((-self.log_dispersion).exp() + pi))

    def fisher_weight(self, output: Tensor) -> Tensor:
        """(1 − π) (μ r/(r + μ) − (1 − w) p₀ s₀²)."""
        r, pi = self.log_dispersion.exp(), self.dropout_logit.sigmoid()
        plain = output.exp() / (1 + (output - self.log_dispersion).exp())
        zero = (r * (self.log_dispersion - torch.logaddexp(self.log_dispersion, output))).exp()
        lost = pi / (pi + (1 - pi) * zero)
        return (1 - pi) * (plain - lost * zero * plain.square())

    def features(self, x: Tensor) -> Tensor:
        """log(1 + x), missing values as 0."""
        return x.nan_to_num(0.0).log1p()

    def check(self, x: Tensor) -> None:
        """Data must be whole numbers of at least 0."""
        check_counts(x, "zinb", self.library)

    @torch.no_grad()
    def reset(self) -> None:
        """Inverse dispersion back to 1, probability of a lost count back to 0.12."""
        self.log_dispersion.zero_()
        self.dropout_logit.fill_(-2.0)
