"""AdaGrad on a stack: one row of parameters per member."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unseam import choices
from unseam.models._fused import ADAGRAD, Update

__all__ = ["AdaGrad"]

ADAGRAD_OPTIMISER = choices.Optimiser(
    "adagrad",
    "AdaGrad",
    "unseam.training.adagrad:AdaGrad",
    options=(
        choices.Option(
            "accumulator", "sum of squares before the first update (TensorFlow's is 0.1)", member=False
        ),
        choices.Option("epsilon", "ε, by default 1e-10", member=False),
    ),
)


@dataclass(frozen=True)
class AdaGrad:
    """AdaGrad (Duchi et al. 2011), as ``torch.optim.Adagrad`` computes it.

    Attributes:
        epsilon: added to the root of the sum of squares.
        accumulator: the sum of squares before the first update; TensorFlow's is 0.1.

    >>> flat, grad = torch.zeros(1, 2), torch.tensor([[3.0, -0.5]])
    >>> AdaGrad()(flat, grad, AdaGrad().state(flat), torch.tensor([[0.1]]), torch.tensor(1.0).double())
    >>> flat
    tensor([[-0.1000,  0.1000]])
    """

    epsilon: float = 1e-10
    accumulator: float = 0.0

    def state(self, flat: Tensor) -> dict[str, Tensor]:
        """Sums of squares before the first update, for parameters (member, parameter)."""
        return {"square": torch.full_like(flat, self.accumulator)}

    def __call__(
        self, flat: Tensor, grad: Tensor, state: dict[str, Tensor], rate: Tensor, clock: Tensor
    ) -> None:
        """Update the parameters once."""
        state["square"].addcmul_(grad, grad)
        flat.sub_(rate * grad / state["square"].sqrt().add_(self.epsilon))

    def fused(self) -> Update:
        """The same update as constants of the CUDA kernel."""
        return Update(ADAGRAD, 0.0, 0.0, self.epsilon)
