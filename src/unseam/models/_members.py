"""Functions of all members at once, called from inside ``vmap`` over members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["over_members"]


def over_members(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """What a function of stacked tensors gives for the members that ``vmap`` runs over.

    Args:
        function: takes tensors with members as their first axis, returns such a one; differentiable in reverse mode.
        given: a member's tensors, as they are inside ``vmap``.

    >>> torch.vmap(lambda x: over_members(lambda stacked: stacked.cumsum(0), x))(torch.ones(3))
    tensor([1., 2., 3.])
    """
    y: Tensor = _Members.apply(function, *given)
    return y


class _Members(torch.autograd.Function):
    """Gives ``vmap`` its rule; there is nothing to compute for a member alone."""

    @staticmethod
    def forward(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
        raise NotImplementedError(
            "a stacked layer works under vmap over members only; use the plain layer for one member"
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], function: Callable[..., Tensor], *given: Tensor
    ) -> tuple[Tensor, int]:
        stacked = (
            value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
            for value, dim in zip(given, in_dims[1:], strict=True)
        )
        return function(*stacked), 0
