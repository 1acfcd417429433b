"""Adam, AdaGrad and SGD on a stack: one row of parameters a member, each with its own learning rate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

__all__ = ["Update", "adagrad", "adam", "optimiser_state", "sgd"]

# (parameters (member, parameter), gradient, state, learning rate (member, 1), number of this update from 1 as a
# float64 scalar): changes the first and third in place.
Update = Callable[[Tensor, Tensor, dict[str, Tensor], Tensor, Tensor], None]


def optimiser_state(name: str, flat: Tensor) -> dict[str, Tensor]:
    """Zeroed state of an optimiser for parameters ``flat`` (member, parameter).

    >>> sorted(optimiser_state("adam", torch.zeros(2, 3)))
    ['mean', 'square']
    """
    names = {"adam": ("mean", "square"), "adagrad": ("square",), "sgd": ("velocity",)}[name]
    return {key: torch.zeros_like(flat) for key in names}


def adam(*, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8) -> Update:
    """Adam (Kingma & Ba 2015, Algorithm 1), as ``torch.optim.Adam`` computes it.

    Args:
        betas: decay rates (β₁, β₂) of the first and second moment.
        epsilon: added to the root of the second moment.

    >>> flat, grad = torch.zeros(1, 2), torch.tensor([[3.0, -0.5]])
    >>> adam()(flat, grad, optimiser_state("adam", flat), torch.tensor([[0.1]]), torch.tensor(1.0).double())
    >>> flat
    tensor([[-0.1000,  0.1000]])
    """
    return partial(_adam, betas=betas, epsilon=epsilon)


def adagrad(*, epsilon: float = 1e-10) -> Update:
    """AdaGrad (Duchi et al. 2011), as ``torch.optim.Adagrad`` computes it, accumulator starting at zero.

    >>> flat, grad = torch.zeros(1, 2), torch.tensor([[3.0, -0.5]])
    >>> adagrad()(flat, grad, optimiser_state("adagrad", flat), torch.tensor([[0.1]]), torch.tensor(1.0).double())
    >>> flat
    tensor([[-0.1000,  0.1000]])
    """
    return partial(_adagrad, epsilon=epsilon)


def sgd(*, momentum: float = 0.0) -> Update:
    """Stochastic gradient descent with heavy-ball momentum, as ``torch.optim.SGD`` computes it.

    >>> flat, grad = torch.zeros(1, 2), torch.tensor([[3.0, -0.5]])
    >>> sgd()(flat, grad, optimiser_state("sgd", flat), torch.tensor([[0.1]]), torch.tensor(1.0).double())
    >>> flat
    tensor([[-0.3000,  0.0500]])
    """
    return partial(_sgd, momentum=momentum)


def _adam(
    flat: Tensor,
    grad: Tensor,
    state: dict[str, Tensor],
    rate: Tensor,
    clock: Tensor,
    *,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    first, second = betas
    state["mean"].lerp_(grad, 1 - first)
    state["square"].mul_(second).addcmul_(grad, grad, value=1 - second)
    root = (state["square"] / (1 - second**clock)).sqrt_().add_(epsilon)
    flat.sub_(state["mean"] * (rate / (1 - first**clock)) / root)


def _adagrad(
    flat: Tensor, grad: Tensor, state: dict[str, Tensor], rate: Tensor, clock: Tensor, *, epsilon: float
) -> None:
    state["square"].addcmul_(grad, grad)
    flat.sub_(rate * grad / state["square"].sqrt().add_(epsilon))


def _sgd(
    flat: Tensor, grad: Tensor, state: dict[str, Tensor], rate: Tensor, clock: Tensor, *, momentum: float
) -> None:
    state["velocity"].mul_(momentum).add_(grad)
    flat.sub_(rate * state["velocity"])
