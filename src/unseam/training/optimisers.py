"""Adam, AdaGrad and SGD on a stack: one row of parameters a member, each with its own learning rate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["AdaGrad", "Adam", "Optimiser", "Sgd", "optimiser_state"]


def optimiser_state(name: str, flat: Tensor, *, accumulator: float = 0.0) -> dict[str, Tensor]:
    """State of an optimiser for parameters ``flat`` (member, parameter), zero but for AdaGrad's ``accumulator``.

    >>> sorted(optimiser_state("adam", torch.zeros(2, 3)))
    ['mean', 'square']
    >>> optimiser_state("adagrad", torch.zeros(1, 2), accumulator=0.1)
    {'square': tensor([[0.1000, 0.1000]])}
    """
    names = {"adam": ("mean", "square"), "adagrad": ("square",), "sgd": ("velocity",)}[name]
    return {key: torch.full_like(flat, accumulator if name == "adagrad" else 0.0) for key in names}


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015, Algorithm 1), as ``torch.optim.Adam`` computes it.

    Called with parameters (member, parameter), gradient, state, learning rate (member, 1) and the number of this
    update from 1 as a float64 scalar, it changes the first and third in place, as the other optimisers do.

    Attributes:
        betas: decay rates (β₁, β₂) of the first and second moment.
        epsilon: added to the root of the second moment.

    >>> flat, grad = torch.zeros(1, 2), torch.tensor([[3.0, -0.5]])
    >>> Adam()(flat, grad, optimiser_state("adam", flat), torch.tensor([[0.1]]), torch.tensor(1.0).double())
    >>> flat
    tensor([[-0.1000,  0.1000]])
    """

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __call__(
        self, flat: Tensor, grad: Tensor, state: dict[str, Tensor], rate: Tensor, clock: Tensor
    ) -> None:
        """Update the parameters once."""
        first, second = self.betas
        state["mean"].lerp_(grad, 1 - first)
        state["square"].mul_(second).addcmul_(grad, grad, value=1 - second)
        root = (state["square"] / (1 - second**clock)).sqrt_().add_(self.epsilon)
        flat.sub_(state["mean"] * (rate / (1 - first**clock)) / root)


@dataclass(frozen=True)
class AdaGrad:
    """AdaGrad (Duchi et al. 2011), as ``torch.optim.Adagrad`` computes it.

    >>> flat, grad = torch.zeros(1, 2), torch.tensor([[3.0, -0.5]])
    >>> AdaGrad()(flat, grad, optimiser_state("adagrad", flat), torch.tensor([[0.1]]), torch.tensor(1.0).double())
    >>> flat
    tensor([[-0.1000,  0.1000]])
    """

    epsilon: float = 1e-10

    def __call__(
        self, flat: Tensor, grad: Tensor, state: dict[str, Tensor], rate: Tensor, clock: Tensor
    ) -> None:
        """Update the parameters once."""
        state["square"].addcmul_(grad, grad)
        flat.sub_(rate * grad / state["square"].sqrt().add_(self.epsilon))


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with heavy-ball momentum, as ``torch.optim.SGD`` computes it.

    >>> flat, grad = torch.zeros(1, 2), torch.tensor([[3.0, -0.5]])
    >>> Sgd()(flat, grad, optimiser_state("sgd", flat), torch.tensor([[0.1]]), torch.tensor(1.0).double())
    >>> flat
    tensor([[-0.3000,  0.0500]])
    """

    momentum: float = 0.0

    def __call__(
        self, flat: Tensor, grad: Tensor, state: dict[str, Tensor], rate: Tensor, clock: Tensor
    ) -> None:
        """Update the parameters once."""
        state["velocity"].mul_(self.momentum).add_(grad)
        flat.sub_(rate * state["velocity"])


Optimiser = Adam | AdaGrad | Sgd
