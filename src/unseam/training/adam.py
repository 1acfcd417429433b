"""Adam on a stack: one row of parameters per member."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unseam import choices
from unseam.models._fused import ADAM, Update

__all__ = ["Adam"]

ADAM_OPTIMISER = choices.Optimiser(
    "adam",
    "Adam",
    "unseam.training.adam:Adam",
    options=(
        choices.Option("adam_betas", "decay rates", argument="betas", member=False),
        choices.Option("epsilon", "ε, by default 1e-8", member=False),
    ),
)


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015, Algorithm 1), as ``torch.optim.Adam`` computes it.

    Attributes:
        betas: decay rates (β₁, β₂) of the first and second moment.
        epsilon: added to the root of the second moment.

    >>> flat, grad = torch.zeros(1, 2), torch.tensor([[3.0, -0.5]])
    >>> Adam()(flat, grad, Adam().state(flat), torch.tensor([[0.1]]), torch.tensor(1.0).double())
    >>> flat
    tensor([[-0.1000,  0.1000]])
    """

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def state(self, flat: Tensor) -> dict[str, Tensor]:
        """State before the first update, for parameters (member, parameter)."""
        return {"mean": torch.zeros_like(flat), "square": torch.zeros_like(flat)}

    def __call__(
        self, flat: Tensor, grad: Tensor, state: dict[str, Tensor], rate: Tensor, clock: Tensor
    ) -> None:
        """Update the parameters once."""
        first, second = self.betas
        state["mean"].lerp_(grad, 1 - first)
        state["square"].mul_(second).addcmul_(grad, grad, value=1 - second)
        root = (state["square"] / (1 - second**clock)).sqrt_().add_(self.epsilon)
        flat.addcdiv_(state["mean"] * (rate / (1 - first**clock)), root, value=-1)

    def fused(self) -> Update:
        """The same update as constants of the CUDA kernel."""
        return Update(ADAM, 1 - self.betas[0], self.betas[1], self.epsilon)
