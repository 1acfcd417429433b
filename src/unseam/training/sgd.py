"""Stochastic gradient descent on a stack: one row of parameters per member."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unseam import choices
from unseam.models._fused import SGD, Update

__all__ = ["Sgd"]

SGD_OPTIMISER = choices.Optimiser(
    "sgd", "SGD", "unseam.training.sgd:Sgd", options=(choices.Option("momentum", "momentum", member=False),)
)


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with heavy-ball momentum, as ``torch.optim.SGD`` computes it.

    >>> flat, grad = torch.zeros(1, 2), torch.tensor([[3.0, -0.5]])
    >>> Sgd()(flat, grad, Sgd().state(flat), torch.tensor([[0.1]]), torch.tensor(1.0).double())
    >>> flat
    tensor([[-0.3000,  0.0500]])
    """

    momentum: float = 0.0

    def state(self, flat: Tensor) -> dict[str, Tensor]:
        """State before the first update, for parameters (member, parameter)."""
        return {"velocity": torch.zeros_like(flat)}

    def __call__(
        self, flat: Tensor, grad: Tensor, state: dict[str, Tensor], rate: Tensor, clock: Tensor
    ) -> None:
        """Update the parameters once."""
        state["velocity"].mul_(self.momentum).add_(grad)
        flat.sub_(rate * state["velocity"])

    def fused(self) -> Update:
        """The same update as constants of the CUDA kernel."""
        return Update(SGD, self.momentum, 0.0, 0.0)
