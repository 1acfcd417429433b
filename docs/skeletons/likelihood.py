"""A likelihood of your own: Laplace around the decoder's output."""

import torch
from torch import Tensor

from unseam import choices
from unseam.models import AbstractLikelihood
from unseam.models.likelihoods import check_range, sum_data


class Laplace(AbstractLikelihood):
    """log p(x|θ) = -Σ |x - θ| / b + log 2b; b is a buffer, so that members of a stack may differ in it."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.initial = scale
        self.register_buffer("scale", torch.tensor(scale))

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        return -sum_data((x - output).abs() / self.scale + (2 * self.scale).log())

    def mean(self, output: Tensor) -> Tensor:
        return output

    def variance(self, output: Tensor) -> Tensor:
        return (2 * self.scale.square()).expand_as(output)

    def fisher_weight(self, output: Tensor) -> Tensor:
        return self.scale.square().reciprocal().expand_as(output)

    def check(self, x: Tensor) -> None:
        check_range(x, "laplace")

    def reset(self) -> None:
        self.scale.fill_(self.initial)


OPTION = choices.Option("scale", "scale b", default=1.0)
LAPLACE = choices.Likelihood("laplace", "Laplace", Laplace, options=(OPTION,))
