"""Convolutions of stacked members as batched matrix products, members first and channels last."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from unseam.models._convolutions import Shape, can_convolve, convolve
from unseam.models._members import over_members
from unseam.models.affine import StackedLinear
from unseam.models.bernoulli import Bernoulli, StackedBernoulli

__all__ = [
    "Geometry",
    "StackedConvolution",
    "rectified_gradient",
    "stacked",
    "stacked_convolution",
    "stacked_transposed_convolution",
]


class Geometry(NamedTuple):
    """Kernel side k, stride s and padding p of a square convolution; s must divide k."""

    kernel: int
    stride: int
    padding: int

    @property
    def reach(self) -> int:
        """How many input positions a block of s × s outputs of the transposed convolution sees along a side, k/s."""
        return self.kernel // self.stride


def stacked(module: nn.Module, *, kernels: bool = False) -> nn.Module:
    """A copy of a module that computes the same under ``vmap`` over members, faster on a GPU.

    Vectorised convolutions become grouped ones, which GPU libraries run group by group when groups are narrow. In the
    copy a convolution gathers windows for one batched matrix product, or is one kernel for all members; gradients of
    affine layers are laid out as parameters, and a Bernoulli likelihood passes over pixels once. It has the same
    parameter names, and works under ``vmap`` over members and reverse-mode differentiation only.

    Args:
        module: to copy.
        kernels: convolve by kernels that copy no windows, with a ReLU that follows in a sequence inside them, where
            Triton is installed (CUDA, single precision or bfloat16, convolutions of side stride + 2 · padding);
            elsewhere, and without, windows are copied.

    >>> type(stacked(nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1)))[0]).__name__
    'StackedConvolution'
    """
    twin = copy.deepcopy(module)
    for name, child in list(twin.named_modules()):
        layer = _stacked_layer(child, kernels)
        if layer is not None:
            parent, _, attribute = name.rpartition(".")
            setattr(twin.get_submodule(parent), attribute, layer)
    for chain in twin.modules():
        if kernels and type(chain) is nn.Sequential:
            _rectify(chain)
    return twin


def _rectify(chain: nn.Sequential) -> None:
    """Move every ReLU after a convolution into it, and its derivative into a convolution that follows."""
    for place in range(len(chain) - 1):
        layer, after = chain[place], chain[place + 2] if place + 2 < len(chain) else None
        if isinstance(layer, StackedConvolution) and type(chain[place + 1]) is nn.ReLU:
            layer.rectified = True
            chain[place + 1] = nn.Identity()
            if isinstance(after, StackedConvolution):
                layer.handed = after.masked = True


def _stacked_layer(layer: nn.Module, kernels: bool) -> nn.Module | None:
    if isinstance(layer, nn.Linear):
        return StackedLinear(layer)
    if isinstance(layer, Bernoulli):
        return StackedBernoulli()
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and StackedConvolution.suits(layer):
        return StackedConvolution(layer, kernels=kernels)
    return None


class StackedConvolution(nn.Module):
    """A square convolution, transposed or not, of every member at once.

    >>> layer = StackedConvolution(nn.Conv2d(1, 8, 4, 2, 1))
    >>> members = {name: torch.stack([value] * 3) for name, value in layer.named_parameters()}
    >>> one = lambda member, x: torch.func.functional_call(layer, member, (x,))
    >>> torch.vmap(one)(members, torch.zeros(3, 5, 1, 8, 8)).shape
    torch.Size([3, 5, 8, 4, 4])
    """

    def __init__(self, layer: nn.Conv2d | nn.ConvTranspose2d, *, kernels: bool = False) -> None:
        super().__init__()
        if not self.suits(layer):
            raise ValueError(
                f"layer must be square, ungrouped, with a stride that divides its kernel, got {layer}"
            )
        self.weight, self.bias = layer.weight, layer.bias
        self.transposed = isinstance(layer, nn.ConvTranspose2d)
        self.geometry = Geometry(layer.kernel_size[0], layer.stride[0], int(layer.padding[0]))
        self.kernels = kernels
        # whether a ReLU follows; whether the next layer takes its derivative; whether this one does so for the last
        self.rectified = self.handed = self.masked = False

    @staticmethod
    def suits(layer: nn.Conv2d | nn.ConvTranspose2d) -> bool:
        """Whether a layer is of the kind that is treated here."""
        kernel, stride = layer.kernel_size, layer.stride
        plain = layer.groups == 1 and set(layer.dilation) == {1} and layer.padding_mode == "zeros"
        square = len(set(kernel)) == len(set(stride)) == len(set(layer.padding)) == 1
        output_padding = set(getattr(layer, "output_padding", (0,)))
        fits = (
            kernel[0] % stride[0] == 0 and (kernel[0] - 2 * int(layer.padding[0])) % stride[0] == 0
            if square
            else False
        )
        return plain and fits and output_padding == {0}

    def forward(self, x: Tensor) -> Tensor:
        """Convolve pictures (batch, channel, height, width)."""
        bias = self.bias if self.bias is not None else self.weight.new_zeros(())
        return over_members(self._members, x, self.weight, bias)

    def _members(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Convolve (member, batch, channel, height, width), in the type that automatic casting asks for."""
        narrow = x.dtype
        if torch.is_autocast_enabled(x.device.type):
            narrow = torch.get_autocast_dtype(x.device.type)
        stride = 1 if self.transposed else self.geometry.stride
        height, width = x.shape[3] // stride, x.shape[4] // stride
        shape = Shape(*self.geometry, weight.shape[2], weight.shape[1], height, width)
        fits = (height * stride, width * stride) == tuple(x.shape[3:])
        if not (self.kernels and fits and self.geometry.kernel > 1 and can_convolve(x, shape)):
            x = rectified_gradient(x) if self.masked else x
            y = _convolve(x, weight, bias, transposed=self.transposed, geometry=self.geometry)
            return y.relu() if self.rectified else y
        y = convolve(
            x.permute(0, 1, 3, 4, 2),
            weight,
            bias if bias.ndim == 2 else None,
            shape,
            transposed=self.transposed,
            rectified=self.rectified,
            masked=self.masked,
            dtype=narrow,
        ).permute(0, 1, 4, 2, 3)
        return rectified_gradient(y) if self.rectified and not self.handed else y


def stacked_convolution(x: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    """Convolution of every member: one gather of windows and one batched matrix product.

    Args:
        x: (member, batch, height, width, channel).
        weight: (member, output channel, channel, k, k).
        bias: (member, output channel).
        geometry: kernel, stride and padding.

    Returns:
        (member, batch, height', width', output channel).

    >>> stacked_convolution(torch.ones(2, 1, 4, 4, 3), torch.ones(2, 5, 3, 4, 4), torch.zeros(2, 5),
    ...                     Geometry(4, 2, 1)).shape
    torch.Size([2, 1, 2, 2, 5])
    """
    y: Tensor = _Convolution.apply(x, weight, bias, geometry)
    return y


def stacked_transposed_convolution(x: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    """Transposed convolution of every member; ``weight`` is (member, channel, output channel, k, k).

    >>> stacked_transposed_convolution(torch.ones(2, 1, 4, 4, 3), torch.ones(2, 3, 5, 4, 4), torch.zeros(2, 5),
    ...                                Geometry(4, 2, 1)).shape
    torch.Size([2, 1, 8, 8, 5])
    """
    y: Tensor = _Transposed.apply(x, weight, bias, geometry)
    return y


def _convolve(x: Tensor, weight: Tensor, bias: Tensor, *, transposed: bool, geometry: Geometry) -> Tensor:
    """Of pictures (member, batch, channel, height, width), in the type that automatic casting asks for."""
    if torch.is_autocast_enabled(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(kind), weight.to(kind)
    bias = bias if bias.ndim == 2 else bias[:, None]
    over = [(side + 2 * geometry.padding - geometry.kernel) % geometry.stride for side in x.shape[-2:]]
    if not transposed and any(over):
        raise ValueError(
            f"a stacked convolution must cover its pictures exactly, got {tuple(x.shape[-2:])} for kernel "
            f"{geometry.kernel}, stride {geometry.stride}, padding {geometry.padding}; train with products=False"
        )
    convolve = stacked_transposed_convolution if transposed else stacked_convolution
    return convolve(x.permute(0, 1, 3, 4, 2), weight, bias, geometry).permute(0, 1, 4, 2, 3)


def rectified_gradient(y: Tensor) -> Tensor:
    """What comes out of a ReLU, with the derivative of that ReLU.

    >>> y = torch.tensor([0.0, 2.0], requires_grad=True)
    >>> rectified_gradient(y).sum().backward()
    >>> y.grad
    tensor([0., 1.])
    """
    same: Tensor = _Rectified.apply(y)
    return same


class _Rectified(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradients[0], y, 0.0)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
        windows = _windows(_pad(x, geometry.padding), geometry.kernel, geometry.stride)
        height, width = (_side(side, geometry) for side in x.shape[2:4])
        product = torch.bmm(windows, weight.permute(0, 3, 4, 2, 1).flatten(1, 3))
        ctx.save_for_backward(windows, weight)
        ctx.geometry, ctx.bias_dtype = geometry, bias.dtype
        y = product.add_(bias[:, None].to(product.dtype))
        return y.unflatten(1, (x.shape[1], height, width))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0].contiguous()
        windows, weight = ctx.saved_tensors
        kernel = ctx.geometry.kernel
        rows = gradient.flatten(1, 3)
        by_weight = torch.bmm(windows.transpose(1, 2), rows).unflatten(1, (kernel, kernel, -1))
        by_x = _transposed(gradient, weight, ctx.geometry) if ctx.needs_input_grad[0] else None
        by_bias = rows.sum(dim=1, dtype=ctx.bias_dtype)
        return by_x, by_weight.permute(0, 4, 3, 1, 2), by_bias, None


class _Transposed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.geometry, ctx.bias_dtype = geometry, bias.dtype
        return _transposed(x, weight, geometry).add_(bias[:, None, None, None].to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0].contiguous()
        x, weight = ctx.saved_tensors
        kernel, stride, padding = ctx.geometry
        windows = _windows(_pad(gradient, padding), kernel, stride)
        by_x = torch.bmm(windows, weight.permute(0, 3, 4, 2, 1).flatten(1, 3)).view(x.shape)
        by_weight = torch.bmm(x.flatten(1, 3).transpose(1, 2), windows).unflatten(2, (kernel, kernel, -1))
        by_bias = gradient.sum(dim=(1, 2, 3), dtype=ctx.bias_dtype)
        return by_x, by_weight.permute(0, 1, 4, 2, 3), by_bias, None


def _transposed(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Transposed convolution without bias, by whichever of two ways moves less memory.

    Output pixel y = s·m + r of a side is full[s·i + a] with a = (r + p) mod s and i = m + (r + p) div s, where
    full[s·i + a] = Σ_u x[i − u] w[s·u + a], u < k/s.
    """
    if geometry.kernel**2 * weight.shape[2] < geometry.reach**2 * weight.shape[1]:
        return _fold(x, weight, geometry)
    stride, reach, outputs = geometry.stride, geometry.reach, weight.shape[2]
    blocks = weight.unflatten(4, (reach, stride)).unflatten(3, (reach, stride)).flip(3, 5)
    # (member, channel, output, u, a, v, b) -> (member, u, v, channel, a, b, output)
    matrix = blocks.permute(0, 3, 5, 1, 4, 6, 2).flatten(1, 3).flatten(2)
    side = (x.shape[2] + reach - 1, x.shape[3] + reach - 1)
    product = torch.bmm(_windows(_pad(x, reach - 1), reach, 1), matrix)
    full = product.view(len(x), x.shape[1], *side, stride, stride, outputs)
    y = _canvas(x, outputs, geometry)
    for (row, up, i), (column, left, j) in _residues(stride, geometry.padding):
        part = full[:, :, i : i + y.shape[2], j : j + y.shape[4], up, left]
        _wide(y[:, :, :, row, :, column]).copy_(_wide(part))
    return y.flatten(4, 5).flatten(2, 3)


def _fold(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The product first, then the sum of overlapping windows: for few output channels."""
    stride, reach, outputs = geometry.stride, geometry.reach, weight.shape[2]
    product = torch.bmm(x.flatten(1, 3), weight.permute(0, 1, 3, 4, 2).flatten(2))
    spread = product.view(*x.shape[:4], reach, stride, reach, stride, outputs)
    padded = _pad(spread, reach - 1)
    y = _canvas(x, outputs, geometry)
    for (row, up, i), (column, left, j) in _residues(stride, geometry.padding):
        seen = [
            padded[:, :, top : top + y.shape[2], side : side + y.shape[4], u, up, v, left]
            for u, top in ((u, i + reach - 1 - u) for u in range(reach))
            for v, side in ((v, j + reach - 1 - v) for v in range(reach))
        ]
        y[:, :, :, row, :, column] = sum(seen[1:], seen[0])
    return y.flatten(4, 5).flatten(2, 3)


def _canvas(x: Tensor, outputs: int, geometry: Geometry) -> Tensor:
    """Empty output (member, batch, height/s, s, width/s, s, output channel)."""
    kernel, stride, padding = geometry
    height, width = (stride * (side - 1) + kernel - 2 * padding for side in x.shape[2:4])
    return x.new_empty(len(x), x.shape[1], height // stride, stride, width // stride, stride, outputs)


def _residues(stride: int, padding: int) -> list[tuple[tuple[int, int, int], tuple[int, int, int]]]:
    """Pairs of (r, a, i − m) for rows and columns."""
    side = [(r, (r + padding) % stride, (r + padding) // stride) for r in range(stride)]
    return [(row, column) for row in side for column in side]


def _windows(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Windows of every picture as rows (member, batch · height' · width', k · k · channel), copied."""
    members, batch, height, width, channels = x.shape
    rows, columns = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    if kernel == 1 and stride == 1:
        return x.flatten(1, 3)
    lines = _widest(x.flatten(3), (stride * channels, kernel * channels, width * channels))
    line = lines.shape[3]
    unit = width * channels // line
    step, reach = stride * channels // unit, kernel * channels // unit
    strides = (batch * height * line, height * line, stride * line, step, line, 1)
    gathered = lines.as_strided((members, batch, rows, columns, kernel, reach), strides).contiguous()
    return gathered.view(x.dtype).view(members, batch * rows * columns, kernel * kernel * channels)


def _widest(x: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """``x`` as the widest words into which all ``lengths`` of values divide: wide words are copied faster."""
    for kind in (torch.complex128, torch.int64, torch.int32):
        if all(length * x.element_size() % kind.itemsize == 0 for length in lengths):
            # sides of length 1 may have any stride, which a view as wider words does not accept
            plain = x.flatten().view(x.shape) if x.is_contiguous() else x
            return plain.view(kind)
    return x


def _wide(x: Tensor) -> Tensor:
    return _widest(x, (x.shape[-1],)) if x.stride(-1) == 1 and x.shape[-1] % 8 == 0 else x


def _pad(x: Tensor, by: int) -> Tensor:
    """Zeros around axes 2 and 3, contiguous."""
    if not by:
        return x.contiguous()
    padded = x.new_zeros(*x.shape[:2], x.shape[2] + 2 * by, x.shape[3] + 2 * by, *x.shape[4:])
    inside, given = padded[:, :, by:-by, by:-by], x if x.is_contiguous() else x.contiguous()
    _wide(inside).copy_(_wide(given))
    return padded


def _side(side: int, geometry: Geometry) -> int:
    return (side + 2 * geometry.padding - geometry.kernel) // geometry.stride + 1
