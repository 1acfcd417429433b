"""CUDA kernels of stacked convolutions, transposed or not: implicit matrix products that copy no window."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unseam.models import _fused

__all__ = ["Shape", "Tile", "can_convolve", "convolve", "gather", "scatter", "weigh"]

# A convolution reads a fine picture and writes a coarse one; a transposed convolution goes the other way, and so does
# the gradient of either by its input. Three kernels are all that is needed:
#
#     gather   coarse[m, n, g] = Σ_{t, f} fine[m, n@t, f] w[m, t, f, g]
#     scatter  fine[m, n, f] = Σ_{t, g} coarse[m, n@t, g] w[m, t, f, g]
#     weigh    dw[m, t, f, g] = Σ_n fine[m, n@t, f] coarse[m, n, g]
#
# for members m, pixels n of all pictures, kernel positions t, and n@t the pixel that n meets at t. With channels last
# a row of a window is contiguous, so the sum over t and channels reads a few long pieces. Fine pixels at the same
# place between coarse ones (s² parities at stride s) meet the same positions t. With many channels each parity is a
# product of its own; with few, one product with a sparse matrix gives all fine pixels of a block of coarse ones,
# whose overlapping windows are read once per block.

# Programs that keep an H200's 132 multiprocessors busy.
BUSY = 264
# Columns from which every parity is a product of its own.
PARTED = 16
WIDEST = 1 << 31


class Shape(NamedTuple):
    """Side k of the kernel, stride s and padding p; channels of fine and of coarse pictures; the latter's sides.

    With k = s + 2p, sides of fine pictures are s times those of coarse ones.
    """

    kernel: int
    stride: int
    padding: int
    fine: int
    coarse: int
    height: int
    width: int


class Tile(NamedTuple):
    """Pixels, summands and columns of one program's product, its warps, and the depth of its pipeline.

    In ``weigh`` pixels are summed over, and ``inner`` are rows of its product.
    """

    pixels: int
    inner: int
    columns: int
    warps: int
    stages: int
    unit: int = 0
    """Side of the block of coarse pixels whose fine pixels one product of ``scatter`` gives; 0: parity by parity."""


def can_convolve(x: Tensor, shape: Shape) -> bool:
    """Whether the kernels suit x (member, …) and the layer."""
    plain = shape.kernel % shape.stride == 0 and shape.kernel == shape.stride + 2 * shape.padding
    largest = x[0].numel() * shape.stride**2 * max(shape.fine, shape.coarse)
    return plain and _fused.can_fuse(x) and largest < WIDEST


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    shape: Shape,
    *,
    transposed: bool,
    rectified: bool = False,
    masked: bool = False,
    dtype: torch.dtype,
) -> Tensor:
    """Convolution of every member, with its ReLU, differentiable once in reverse mode.

    Args:
        x: (member, batch, height, width, channel).
        weight: (member, coarse channel, fine channel, k, k), which both kinds of layers have.
        bias: (member, output channel).
        shape: of the layer.
        transposed: from coarse to fine.
        rectified: apply ReLU. Its derivative is left to what ``masked`` says of the next layer.
        masked: x comes from a ReLU that left its derivative to this layer.
        dtype: in which numbers are multiplied; sums are in single precision.

    Returns:
        (member, batch, height', width', output channel) in ``dtype``.
    """
    y: Tensor = _Convolve.apply(x, weight, bias, shape, transposed, rectified, masked, dtype)
    return y


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        shape: Shape,
        transposed: bool,
        rectified: bool,
        masked: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        x = x.contiguous()
        lines = weight.permute(0, 3, 4, 2, 1)
        packed = torch.empty(lines.shape, dtype=dtype, device=x.device).copy_(lines)
        ctx.save_for_backward(x, packed)
        ctx.shape, ctx.transposed, ctx.masked = shape, transposed, masked
        return (scatter if transposed else gather)(x, packed, shape, bias=bias, rectified=rectified)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, packed = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        by_x = None
        if ctx.needs_input_grad[0]:
            back = gather if ctx.transposed else scatter
            by_x = back(gradient, packed, ctx.shape, mask=x if ctx.masked else None).to(x.dtype)
        fine, coarse = (gradient, x) if ctx.transposed else (x, gradient)
        side = ("fine" if ctx.transposed else "coarse") if ctx.needs_input_grad[2] else None
        by_weight, by_bias = weigh(fine, coarse, ctx.shape, packed.dtype, bias=side)
        return by_x, by_weight, by_bias, None, None, None, None, None


def gather(
    fine: Tensor,
    packed: Tensor,
    shape: Shape,
    *,
    bias: Tensor | None = None,
    rectified: bool = False,
    mask: Tensor | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """Coarse pictures (member, batch, height, width, g) from fine ones and weights (member, k, k, f, g)."""
    kernel, stride, _, channels, columns, height, width = shape
    y = packed.new_empty(*fine.shape[:2], height, width, columns)
    tile = tile or _tile("gather", shape, fine, packed.dtype)
    window = (height * stride, width * stride, channels, kernel, stride)
    _correlate(fine, packed, y, shape, window, 0, bias, rectified, mask, tile)
    return y


def scatter(
    coarse: Tensor,
    packed: Tensor,
    shape: Shape,
    *,
    bias: Tensor | None = None,
    rectified: bool = False,
    mask: Tensor | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """Fine pictures (member, batch, height · s, width · s, f) from coarse ones and weights (member, k, k, f, g)."""
    kernel, stride, padding, columns, channels, height, width = shape
    y = packed.new_empty(*coarse.shape[:2], height * stride, width * stride, columns)
    tile = tile or _tile("scatter", shape, coarse, packed.dtype)
    # i = m + (r + p) div s − u for parity r and u < k/s; r runs over the block's fine pixels
    side = kernel // stride
    if tile.unit:
        side += (stride * tile.unit - 1 + padding) // stride - padding // stride
    window = (height, width, channels, side, max(1, tile.unit))
    _correlate(coarse, packed, y, shape, window, 2 if tile.unit else 1, bias, rectified, mask, tile)
    return y


def _correlate(
    x: Tensor,
    packed: Tensor,
    y: Tensor,
    shape: Shape,
    window: tuple[int, int, int, int, int],
    kind: int,
    bias: Tensor | None,
    rectified: bool,
    mask: Tensor | None,
    tile: Tile,
) -> None:
    unit = tile.unit if kind == 2 else 1
    columns = (shape.coarse, shape.fine, shape.fine * (shape.stride * unit) ** 2)[kind]
    parities = shape.stride**2 if kind == 1 else 1
    shape = shape._replace(height=shape.height // unit, width=shape.width // unit)
    members, rows = len(x), x.shape[1] * shape.height * shape.width
    grid = (-(-rows // tile.pixels) * -(-columns // tile.columns) * parities, members)
    with _fused._device(x):
        _compiled().correlate[grid](
            x, packed, bias if bias is not None else packed, mask if mask is not None else packed, y, rows,
            0 if bias is None else bias.stride(0), *shape, *window, columns, math.gcd(window[2], tile.inner),
            kind, bias is not None, rectified, mask is not None,
            _multiplication(packed.dtype), tile.pixels, tile.inner, tile.columns,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip


def weigh(
    fine: Tensor,
    coarse: Tensor,
    shape: Shape,
    dtype: torch.dtype,
    *,
    bias: str | None = None,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of weights, (member, g, f, k, k), and of biases, sums over the ``fine`` or the ``coarse`` pictures."""
    kernel, stride, padding, channels, columns, height, width = shape
    members, rows, inner = len(fine), fine.shape[1] * height * width, kernel**2 * channels
    tile = tile or _tile("weigh", shape, coarse, dtype)
    blocks = -(-inner // tile.inner) * -(-columns // tile.columns)
    splits = max(1, min(BUSY // (members * blocks), rows // (4 * tile.pixels)))
    each = math.ceil(rows / splits / tile.pixels) * tile.pixels
    product = torch.empty(members, splits, columns * inner, dtype=torch.float32, device=fine.device)
    sums = product.new_empty(members, splits, {"fine": inner, "coarse": columns, None: 0}[bias])
    with _fused._device(fine):
        _compiled().weigh[(blocks, splits, members)](
            fine, coarse, product, sums, rows, splits, each, *shape,
            math.gcd(channels, tile.inner), (None, "coarse", "fine").index(bias),
            _narrow(dtype), _multiplication(dtype), tile.pixels, tile.inner, tile.columns,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    product, sums = (value.sum(1) if splits > 1 else value[:, 0] for value in (product, sums))
    by_weight = product.view(members, columns, channels, kernel, kernel)
    if bias == "fine":
        # windows at the s² positions after the padding meet every fine pixel once
        inside = slice(padding, padding + stride)
        sums = sums.view(members, kernel, kernel, channels)[:, inside, inside].sum((1, 2))
    return by_weight, None if bias is None else sums


def _tile(kind: str, shape: Shape, x: Tensor, dtype: torch.dtype) -> Tile:
    """Sizes for a kernel of a layer, x its input or the coarse picture (member, batch, …)."""
    tile = _rule(kind, shape, dtype.itemsize)
    if kind == "weigh":
        return tile
    columns = shape.coarse if kind == "gather" else shape.fine
    parts = len(x) * -(-columns // tile.columns)
    parts *= shape.stride**2 if kind == "scatter" and not tile.unit else 1
    rows, pixels = x.shape[1] * shape.height * shape.width // max(1, tile.unit) ** 2, tile.pixels
    while pixels > 16 and parts * -(-rows // pixels) < BUSY:
        pixels //= 2
    return tile._replace(pixels=pixels)


def _rule(kind: str, shape: Shape, size: int) -> Tile:
    """The fastest of the sizes tried on an H200, for numbers of so many bytes and members that keep it busy."""
    kernel, stride, _, fine, coarse, height, width = shape
    narrow = size == 2
    if kind == "weigh":
        block, rows = min(64, _power(coarse)), _power(kernel**2 * fine)
        if rows <= 64:
            return Tile(256 if narrow else 128, rows, block, 2, 3)
        inner = 64 if kernel == stride else min(128, _power(kernel * fine))
        return Tile(128 if kernel == stride and narrow else 64, inner, block, 4, 4 if narrow else 1)
    if kind == "gather":
        summands = _power(kernel**2 * fine)
        warps = 2 if narrow and summands <= 16 else 4
        return Tile(128, min(32, summands), min(64, _power(coarse)), warps, 4 if narrow else 3)
    if stride > 1 and fine < PARTED:
        # as large a block of coarse pixels as gives at most 64 columns
        unit = next(
            u
            for u in (4, 2, 1)
            if u == 1 or (height % u == width % u == 0 and fine * (u * stride) ** 2 <= 64)
        )
        return Tile(128, 64 if narrow else 32, min(64, _power(fine * (unit * stride) ** 2)), 4, 3, unit)
    inner = 64 if narrow and kernel == stride else 32
    return Tile(128 if narrow else 64, min(inner, _power(coarse)), min(64, _power(fine)), 4, 3)


def _power(size: int) -> int:
    """The next power of two from 16 on, the least side of a product."""
    return max(16, 1 << (size - 1).bit_length())


def _multiplication(dtype: torch.dtype) -> str:
    """How single precision is multiplied: as torch's products are."""
    tf32 = dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32"
    return "tf32" if tf32 else "ieee"


class _Kernels(NamedTuple):
    correlate: Any
    weigh: Any


def _narrow(dtype: torch.dtype) -> Any:
    import triton.language as tl

    return tl.bfloat16 if dtype == torch.bfloat16 else tl.float32


@cache
def _compiled() -> Any:
    import triton
    import triton.language as tl

    return _Kernels(_correlate_kernel(triton, tl), _weigh_kernel(triton, tl))


def _correlate_kernel(triton: Any, tl: Any) -> Any:
    """A program computes some columns of some pixels of one member, of one parity where these are apart."""

    @triton.jit  # type: ignore[untyped-decorator]
    def correlate(  # type: ignore[no-untyped-def]
        x, packed, bias, mask, y, rows, bias_stride, kernel: tl.constexpr, stride: tl.constexpr,
        padding: tl.constexpr, fine: tl.constexpr, coarse: tl.constexpr, height: tl.constexpr,
        width: tl.constexpr, high: tl.constexpr, wide: tl.constexpr, channels: tl.constexpr,
        side: tl.constexpr, step: tl.constexpr, columns: tl.constexpr, even: tl.constexpr, kind: tl.constexpr,
        biased: tl.constexpr, rectified: tl.constexpr, masked: tl.constexpr, multiplication: tl.constexpr,
        pixels: tl.constexpr, inner: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        line: tl.constexpr = side * channels
        summands: tl.constexpr = side * line
        reach: tl.constexpr = kernel // stride
        parities: tl.constexpr = stride * stride if kind == 1 else 1
        blocks: tl.constexpr = (columns + block - 1) // block
        lowest: tl.constexpr = -padding if kind == 0 else padding // stride - (reach - 1)
        member = tl.program_id(1).to(tl.int64)
        place = tl.program_id(0)
        parity = place % parities
        o = (place // parities) % blocks * block + tl.arange(0, block)
        n = place // (parities * blocks) * pixels + tl.arange(0, pixels)
        row_mask, column_mask = n < rows, o < columns
        picture, q = n // (height * width), n % (height * width)
        qy, qx = q // width, q % width
        ry, rx = parity // stride, parity % stride
        top, left = lowest, lowest
        if kind == 1:
            top, left = (ry + padding) // stride - (reach - 1), (rx + padding) // stride - (reach - 1)
        iy, ix = qy * step + top, qx * step + left
        x += member * rows * (step * step * channels)
        packed += member * (kernel * kernel * fine * coarse)
        start = ((picture * high + iy) * wide + ix) * channels
        # side of the fine pixels that one row of the product gives
        span: tl.constexpr = stride * step if kind == 2 else stride
        if kind == 2:
            f, oy, ox = o % fine, o // fine // span, o // fine % span
        else:
            f, oy, ox = o, ry, rx
        acc = tl.zeros((pixels, block), dtype=tl.float32)
        for first in range(0, summands, inner):
            j = first + tl.arange(0, inner)
            # equal over channels: a mask that the compiler knows to be so leaves loads wide
            ky = tl.max_constancy(j // line, even)
            kx = tl.max_constancy(j % line // channels, even)
            c = tl.max_contiguous(j % channels, even)
            row, column = iy[:, None] + ky[None, :], ix[:, None] + kx[None, :]
            window_mask = row_mask[:, None] & (row >= 0) & (row < high) & (column >= 0) & (column < wide)
            if summands % inner != 0:
                window_mask = window_mask & (j < summands)[None, :]
            offset = (ky * wide + kx) * channels + c
            a = tl.load(x + start[:, None] + offset[None, :], window_mask, 0.0)
            weight_mask = column_mask[None, :] & (j < summands)[:, None]
            if kind == 0:
                w = tl.load(packed + j[:, None] * coarse + o[None, :], weight_mask, 0.0)
            else:
                uy, ux = ky[:, None], kx[:, None]
                if kind == 1:
                    ty = (ry + padding) % stride + stride * (reach - 1 - uy)
                    tx = (rx + padding) % stride + stride * (reach - 1 - ux)
                else:
                    # u of window position i is m + (r + p) div s − i
                    vy = ((oy + padding) // stride - top)[None, :] - uy
                    vx = ((ox + padding) // stride - left)[None, :] - ux
                    ty = ((oy + padding) % stride)[None, :] + stride * vy
                    tx = ((ox + padding) % stride)[None, :] + stride * vx
                    weight_mask = weight_mask & (vy >= 0) & (vy < reach) & (vx >= 0) & (vx < reach)
                t = ty * kernel + tx
                w = tl.load(packed + (t * fine + f[None, :]) * coarse + c[:, None], weight_mask, 0.0)
            a = a.to(w.dtype)
            if multiplication == "tf32":
                # to nearest, since tensor cores drop the bits that TF32 has no room for: every product would shrink
                left_bits, right_bits = (
                    a.to(tl.int32, bitcast=True) + 0x1000,
                    w.to(tl.int32, bitcast=True) + 0x1000,
                )
                a = tl.where(a == a, (left_bits & -0x2000).to(tl.float32, bitcast=True), a)
                w = tl.where(w == w, (right_bits & -0x2000).to(tl.float32, bitcast=True), w)
            acc = tl.dot(a, w, acc, input_precision=multiplication)
        if kind == 0:
            target = n[:, None] * coarse + o[None, :]
        else:
            if kind == 1:
                pixel = ((picture * height + qy) * stride + ry) * (width * stride) + qx * stride + rx
                target = pixel[:, None] * fine + o[None, :]
            else:
                pixel = (picture * height + qy) * (span * width * span) + qx * span
                target = (pixel[:, None] + (oy * (width * span) + ox)[None, :]) * fine + f[None, :]
        area: tl.constexpr = coarse if kind == 0 else span * span * fine
        target += member * rows * area
        target_mask = row_mask[:, None] & column_mask[None, :]
        if biased:
            acc += tl.load(bias + member * bias_stride + f, column_mask, 0.0).to(tl.float32)[None, :]
        if rectified:
            acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
        if masked:
            acc = tl.where(tl.load(mask + target, target_mask, 0.0) > 0, acc, 0.0)
        tl.store(y + target, acc, target_mask)

    return correlate


def _weigh_kernel(triton: Any, tl: Any) -> Any:
    """A program sums some pixels' products of some positions and fine channels with some coarse channels."""

    @triton.jit  # type: ignore[untyped-decorator]
    def weigh(  # type: ignore[no-untyped-def]
        fine_pictures, coarse_pictures, product, sums, rows, splits, each: tl.constexpr,
        kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, fine: tl.constexpr,
        coarse: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
        even: tl.constexpr, bias: tl.constexpr, narrow: tl.constexpr, multiplication: tl.constexpr,
        pixels: tl.constexpr, inner: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        line: tl.constexpr = kernel * fine
        summands: tl.constexpr = kernel * line
        row_blocks: tl.constexpr = (summands + inner - 1) // inner
        high: tl.constexpr = height * stride
        wide: tl.constexpr = width * stride
        member, split = tl.program_id(2).to(tl.int64), tl.program_id(1)
        row_block, column_block = tl.program_id(0) % row_blocks, tl.program_id(0) // row_blocks
        j, g = row_block * inner + tl.arange(0, inner), column_block * block + tl.arange(0, block)
        ky, kx = tl.max_constancy(j // line, even), tl.max_constancy(j % line // fine, even)
        offset = (ky * wide + kx) * fine + tl.max_contiguous(j % fine, even)
        row_mask, column_mask = j < summands, g < coarse
        fine_pictures += member * rows * (stride * stride * fine)
        coarse_pictures += member * rows * coarse
        acc = tl.zeros((inner, block), dtype=tl.float32)
        fine_sums = tl.zeros((inner, 16), dtype=tl.float32)
        coarse_sums = tl.zeros((16, block), dtype=tl.float32)
        for begin in range(0, each, pixels):
            n = split * each + begin + tl.arange(0, pixels)
            pixel_mask = n < rows
            picture, q = n // (height * width), n % (height * width)
            iy, ix = q // width * stride - padding, q % width * stride - padding
            start = ((picture * high + iy) * wide + ix) * fine
            row, column = iy[:, None] + ky[None, :], ix[:, None] + kx[None, :]
            window_mask = (
                (pixel_mask[:, None] & row_mask[None, :])
                & (row >= 0)
                & (row < high)
                & (column >= 0)
                & (column < wide)
            )
            a = tl.load(fine_pictures + start[:, None] + offset[None, :], window_mask, 0.0).to(narrow)
            coarse_mask = pixel_mask[:, None] & column_mask[None, :]
            c = tl.load(coarse_pictures + n[:, None] * coarse + g[None, :], coarse_mask, 0.0).to(narrow)
            if multiplication == "tf32":
                left_bits, right_bits = (
                    a.to(tl.int32, bitcast=True) + 0x1000,
                    c.to(tl.int32, bitcast=True) + 0x1000,
                )
                a = tl.where(a == a, (left_bits & -0x2000).to(tl.float32, bitcast=True), a)
                c = tl.where(c == c, (right_bits & -0x2000).to(tl.float32, bitcast=True), c)
            acc = tl.dot(tl.trans(a), c, acc, input_precision=multiplication)
            # sums over pixels as products with ones
            if bias == 1:
                one = tl.full((16, pixels), 1.0, dtype=narrow)
                coarse_sums = tl.dot(one, c, coarse_sums, input_precision=multiplication)
            if bias == 2:
                one = tl.full((pixels, 16), 1.0, dtype=narrow)
                fine_sums = tl.dot(tl.trans(a), one, fine_sums, input_precision=multiplication)
        part = member * splits + split
        weight_row = j % fine * (kernel * kernel) + j // fine
        target = part * (coarse * summands) + g[None, :] * summands + weight_row[:, None]
        tl.store(product + target, acc, row_mask[:, None] & column_mask[None, :])
        if bias == 1 and row_block == 0:
            tl.store(sums + part * coarse + g, tl.max(coarse_sums, axis=0), column_mask)
        if bias == 2 and column_block == 0:
            tl.store(sums + part * summands + j, tl.max(fine_sums, axis=1), row_mask)

    return weigh
