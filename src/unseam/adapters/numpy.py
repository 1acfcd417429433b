"""Functions that torch cannot differentiate, such as those of NumPy: by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unseam.adapters.parts import Encode
from unseam.subject import Subject

__all__ = ["Differences", "numpy"]

_Function = Callable[[np.ndarray], Any]


def numpy(
    function: _Function,
    *,
    latent: int | Sequence[int],
    encoder: Callable[[np.ndarray], Any] | None = None,
    step: float | None = None,
) -> Subject:
    """A decoder of NumPy arrays, differentiated by central differences.

    Args:
        function: z (batch, *latent) -> (batch, *data).
        latent: number of latents, or their shape.
        encoder: x -> (mean, variance) of NumPy arrays.
        step: distance of the differences; by default the cube root of the precision of what the function returns, which
            balances rounding against curvature.

    >>> subject = numpy(lambda z: np.stack([z[:, 0] ** 2, 3 * z[:, 1]], 1), latent=2)
    >>> subject.inspect(generator=torch.Generator().manual_seed(0)).cosine
    0.0
    """
    shape = tuple(latent) if isinstance(latent, Sequence) else (latent,)
    decoder = Differences(function, shape, step=step)
    read = None if encoder is None else Encode(encoder, arrays=True)
    return Subject("function", decoder, int(np.prod(shape)), encoder=read)


class Differences(nn.Module):
    r"""A function of NumPy arrays as a decoder whose derivatives are central differences.

    .. math:: J t \approx \frac{\lVert t \rVert}{2h} (f(z + h t / \lVert t \rVert) - f(z - h t / \lVert t \rVert))

    Second derivatives are differences of those.

    Args:
        function: z (batch, *latent) -> (batch, *data).
        shape: of the latents.
        dtype: of the numbers that it takes.
        step: h; by default the cube root of the precision of what the function returns.

    >>> decoder = Differences(np.sin, (1,))
    >>> torch.func.jvp(decoder, (torch.zeros(1, 1).double(),), (torch.ones(1, 1).double(),))[1]
    tensor([[1.0000]], dtype=torch.float64)
    """

    at: Tensor

    def __init__(
        self,
        function: _Function,
        shape: Sequence[int],
        *,
        dtype: torch.dtype = torch.float64,
        step: float | None = None,
    ) -> None:
        super().__init__()
        self.function, self.shape = function, tuple(shape)
        # a parameter, so that points are given in this type
        self.at = nn.Parameter(torch.zeros(self.shape, dtype=dtype), requires_grad=False)
        found = np.asarray(function(self.at[None].numpy()))
        if not np.issubdtype(found.dtype, np.floating) or found.ndim < 2 or len(found) != 1:
            raise ValueError(
                f"decoder must map (batch, {', '.join(map(str, shape))}) to floating (batch, *data), got {found.dtype} "
                f"of shape {found.shape} for one point"
            )
        self.step = float(np.cbrt(np.finfo(found.dtype).eps)) if step is None else step
        self.eval()

    def forward(self, z: Tensor) -> Tensor:
        """Outputs (batch, *data) in the type of ``z``."""
        found: Tensor = _Central.apply(z, self._evaluate, self.step)
        return found

    def _evaluate(self, z: Tensor) -> Tensor:
        rows = z.detach().cpu().to(self.at.dtype).reshape(-1, *self.shape).numpy()
        return torch.as_tensor(np.ascontiguousarray(self.function(rows))).to(z)


class _Central(torch.autograd.Function):
    @staticmethod
    def forward(z: Tensor, function: Callable[[Tensor], Tensor], step: float) -> Tensor:
        return function(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        z, ctx.function, ctx.step = inputs
        ctx.save_for_backward(z)
        ctx.save_for_forward(z)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        (z,) = ctx.saved_tensors
        return _along(z, tangent, ctx.function, ctx.step)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (z,), gradient = ctx.saved_tensors, gradients[0]
        latent = z.shape[1]
        directions = torch.eye(latent, dtype=z.dtype, device=z.device).repeat_interleave(len(z), 0)
        rows = _along(z.repeat(latent, 1), directions, ctx.function, ctx.step)
        rows = rows.reshape(latent, len(z), -1)
        return (rows * gradient.reshape(1, len(z), -1)).sum(2).mT, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, z: Tensor, function: Any, step: float) -> Any:
        stacked = z.movedim(in_dims[0], 0)
        return _Central.apply(stacked.flatten(0, 1), function, step).unflatten(0, stacked.shape[:2]), 0


def _along(z: Tensor, tangent: Tensor, function: Any, step: float) -> Tensor:
    length = tangent.norm(dim=1, keepdim=True)
    move = step * tangent / torch.where(length > 0, length, 1.0)
    change = (_Central.apply(z + move, function, step) - _Central.apply(z - move, function, step)) / (
        2 * step
    )
    return change * length.reshape(-1, *(1 for _ in change.shape[1:]))
