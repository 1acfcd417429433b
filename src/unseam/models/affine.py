"""Affine layers of stacked members as batched matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from unseam.models._fused import add_bias, can_fuse, narrowed, sum_rows
from unseam.models._members import over_members

__all__ = ["StackedLinear", "stacked_linear"]


class StackedLinear(nn.Module):
    """An affine layer of every member at once.

    >>> layer = StackedLinear(nn.Linear(4, 2))
    >>> members = {name: torch.stack([value] * 3) for name, value in layer.named_parameters()}
    >>> one = lambda member, x: torch.func.functional_call(layer, member, (x,))
    >>> torch.vmap(one)(members, torch.zeros(3, 5, 4)).shape
    torch.Size([3, 5, 2])
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors (batch, input)."""
        bias = self.bias if self.bias is not None else self.weight.new_zeros(())
        return over_members(_linear, x, self.weight, bias)


def stacked_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b of every member, with gradients of weights laid out as weights are.

    Differentiated by the framework, W's gradient comes out transposed and, with narrow types, in theirs: two more
    passes over all parameters.

    Args:
        x: (member, batch, input).
        weight: (member, output, input); multiplied in the type of ``x``.
        bias: (member, output).

    Returns:
        (member, batch, output).

    >>> stacked_linear(torch.ones(2, 5, 4), torch.ones(2, 3, 4), torch.zeros(2, 3)).shape
    torch.Size([2, 5, 3])
    """
    y: Tensor = _Linear.apply(x, weight, bias)
    return y


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Of vectors (member, …, input), in the type that automatic casting asks for."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    bias = bias if bias.ndim == 2 else bias[:, None]
    rows = x.reshape(len(x), -1, x.shape[-1])
    return stacked_linear(rows, weight, bias).view(*x.shape[:-1], -1)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        narrow = _narrow(weight, x.dtype)
        ctx.save_for_backward(x, narrow)
        ctx.weight_dtype, ctx.bias_dtype = weight.dtype, bias.dtype
        y = torch.bmm(x, narrow.mT)
        fused = can_fuse(y) and bias.shape[1] == y.shape[2]
        return add_bias(y, bias) if fused else y.add_(bias[:, None].to(y.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0].contiguous()
        x, weight = ctx.saved_tensors
        by_x = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        by_weight = _product(gradient.mT, x, ctx.weight_dtype)
        by_bias = None
        if ctx.needs_input_grad[2]:
            fused = can_fuse(gradient) and ctx.bias_dtype == torch.float32
            by_bias = sum_rows(gradient) if fused else gradient.sum(dim=1, dtype=ctx.bias_dtype)
        return by_x, by_weight, by_bias


def _narrow(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights (member, output, input) in the type that products take."""
    if weight.dtype == dtype:
        return weight
    plain = weight.stride(2) == 1 and weight.stride(1) == weight.shape[2]
    return narrowed(weight, dtype) if plain and can_fuse(weight) else weight.to(dtype)


def _product(one: Tensor, other: Tensor, dtype: torch.dtype) -> Tensor:
    """Batched product as ``dtype``, which GPUs write without another pass."""
    if one.is_cuda and one.dtype != dtype:
        return torch.bmm(one, other, out_dtype=dtype)
    return torch.bmm(one, other).to(dtype)
