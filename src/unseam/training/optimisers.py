"""What an optimiser of a stack is."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from unseam.models._fused import Update

__all__ = ["Optimiser"]


class Optimiser(Protocol):
    """An update of rows of parameters, one per member, each with its own learning rate.

    Calling it with parameters (member, parameter), gradient, state, learning rate (member, 1) and the number of this
    update from 1 as a float64 scalar changes the parameters and the state in place.
    """

    def state(self, flat: Tensor) -> dict[str, Tensor]:
        """State before the first update, each tensor of the parameters' shape."""

    def __call__(
        self, flat: Tensor, grad: Tensor, state: dict[str, Tensor], rate: Tensor, clock: Tensor
    ) -> None:
        """Update the parameters once."""

    def fused(self) -> Update | None:
        """The same update as constants of the CUDA kernel; ``None`` where the kernel does not know it."""
