"""Jacobi rotations for many small matrices at once, accurate for columns of very different lengths."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

__all__ = ["one_sided", "two_sided"]

# The off-diagonal shrinks quadratically: about log2(latent) + 6 sweeps, of which the hardest matrix needs most.
_MOST_SWEEPS = 30
# Threads share no matrix, so small blocks spread few matrices over many multiprocessors.
_BLOCK = 32


def two_sided(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (batch, latent), in no order, and eigenvectors of positive semi-definite matrices.

    Every rotation is chosen from entries of the matrix and stops where the cosine of its pair is rounding, so
    the relative error of the smallest eigenvalue follows the condition of the columns at unit length, not
    that of the columns as they are (Demmel and Veselić 1992, Theorem 3.1).
    """
    latent = gram.shape[-1]
    table = _with_identity(gram)
    _sweep(table, latent, gram=True)
    return table[:latent].diagonal(), table[latent:].permute(2, 0, 1)


def one_sided(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values (batch, latent), in no order, and right singular vectors of (batch, data, latent).

    The columns themselves are rotated until they are orthogonal (Hestenes), so nothing is squared: the
    relative error follows the condition of the columns at unit length (Demmel and Veselić 1992, Theorem 4.1).
    """
    data = columns.shape[-2]
    table = _with_identity(columns)
    _sweep(table, data, gram=False)
    return torch.linalg.vector_norm(table[:data], dim=0).mT, table[data:].permute(2, 0, 1)


def _with_identity(matrix: Tensor) -> Tensor:
    """The matrix above the identity that collects the rotations, batch last: (data + latent, latent, batch)."""
    batch, _, latent = matrix.shape
    identity = torch.eye(latent, dtype=matrix.dtype, device=matrix.device).expand(batch, latent, latent)
    return torch.cat([matrix, identity], dim=1).permute(1, 2, 0).contiguous()


def _sweep(table: Tensor, data: int, *, gram: bool) -> None:
    """Rotate every pair of columns in turn, in place, until no pair needs it."""
    tolerance = table.shape[1] * torch.finfo(table.dtype).eps
    if _sweep_by_kernel(table, data, tolerance, gram=gram):
        return
    for _ in range(_MOST_SWEEPS):
        moved = torch.zeros((), dtype=torch.bool, device=table.device)
        for p, q in combinations(range(table.shape[1]), 2):
            if gram:
                first, second, product = table[p, p], table[q, q], table[p, q]
            else:
                left, right = table[:data, p], table[:data, q]
                first, second = left.square().sum(0), right.square().sum(0)
                product = (left * right).sum(0)
            converged = product.square() <= tolerance**2 * (first * second).abs()
            cos, sin = _rotation(first, second, product, converged)
            _rotate(table[:, p], table[:, q], cos, sin)
            if gram:
                _rotate(table[p], table[q], cos, sin)
            moved |= ~converged.all()
        if not moved:
            return


def _rotation(first: Tensor, second: Tensor, product: Tensor, converged: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the smaller angle that diagonalises [[first, product], [product, second]]."""
    cotangent = (second - first) / (2 * product)
    tangent = 1 / (cotangent.abs() + (1 + cotangent.square()).sqrt())
    tangent = torch.where(converged, 0.0, torch.where(cotangent < 0, -tangent, tangent))
    cos = (1 + tangent.square()).rsqrt()
    return cos, tangent * cos


def _rotate(left: Tensor, right: Tensor, cos: Tensor, sin: Tensor) -> None:
    rotated = cos * left - sin * right
    right.mul_(cos).add_(sin * left)
    left.copy_(rotated)


def _sweep_by_kernel(table: Tensor, data: int, tolerance: float, *, gram: bool) -> bool:
    """The same as one CUDA kernel, one thread per matrix; ``False`` where there is no compiler for that.

    Pair by pair, each as several calls of torch, a sweep costs latent² launches whatever the batch; here all
    sweeps are one launch.
    """
    kernel = _compile_kernel()
    rows, latent, batch = table.shape
    if kernel is None or not table.is_cuda or batch == 0:
        return False
    with torch.cuda.device(table.device):
        kernel[((batch + _BLOCK - 1) // _BLOCK,)](
            table, batch, tolerance**2, rows, data, latent, _MOST_SWEEPS, gram, _BLOCK, num_warps=1
        )
    return True


@cache
def _compile_kernel() -> Any:
    """The kernel, or ``None`` without Triton, which torch brings along where it brings CUDA on Linux."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    return _rotations(triton, tl)


def _rotations(triton: Any, tl: Any) -> Any:
    """The kernel: every thread sweeps over the pairs of columns of its own matrix."""

    @triton.jit(do_not_specialize=["batch"])  # type: ignore[untyped-decorator]
    def rotations(  # type: ignore[no-untyped-def]
        table,
        batch,
        bound,
        rows: tl.constexpr,
        data: tl.constexpr,
        latent: tl.constexpr,
        most_sweeps: tl.constexpr,
        gram: tl.constexpr,
        block: tl.constexpr,
    ):
        problem = tl.program_id(0) * block + tl.arange(0, block)
        mask = problem < batch
        here = table + problem
        across = batch.to(tl.int64)
        stride = latent * across
        sweep, moved = 0, 1
        while (sweep < most_sweeps) & (moved > 0):
            moved = 0
            for p in range(latent - 1):
                for q in range(p + 1, latent):
                    left, right = here + p * across, here + q * across
                    if gram:
                        first = tl.load(left + p * stride, mask, 0.0)
                        second = tl.load(right + q * stride, mask, 0.0)
                        product = tl.load(right + p * stride, mask, 0.0)
                    else:
                        first = tl.zeros([block], tl.float64)
                        second = tl.zeros([block], tl.float64)
                        product = tl.zeros([block], tl.float64)
                        for row in range(data):
                            one = tl.load(left + row * stride, mask, 0.0)
                            other = tl.load(right + row * stride, mask, 0.0)
                            first += one * one
                            second += other * other
                            product += one * other
                    converged = product * product <= bound * tl.abs(first * second)
                    cotangent = (second - first) / (2 * tl.where(converged, 1.0, product))
                    tangent = 1 / (tl.abs(cotangent) + tl.sqrt(1 + cotangent * cotangent))
                    tangent = tl.where(converged, 0.0, tl.where(cotangent < 0, -tangent, tangent))
                    cos = 1 / tl.sqrt(1 + tangent * tangent)
                    sin = tangent * cos
                    for row in range(rows):
                        one = tl.load(left + row * stride, mask, 0.0)
                        other = tl.load(right + row * stride, mask, 0.0)
                        tl.store(left + row * stride, cos * one - sin * other, mask)
                        tl.store(right + row * stride, cos * other + sin * one, mask)
                    if gram:
                        for column in range(latent):
                            above = here + p * stride + column * across
                            below = here + q * stride + column * across
                            one = tl.load(above, mask, 0.0)
                            other = tl.load(below, mask, 0.0)
                            tl.store(above, cos * one - sin * other, mask)
                            tl.store(below, cos * other + sin * one, mask)
                    moved = tl.maximum(moved, tl.max((~converged & mask).to(tl.int32), 0))
            sweep += 1

    return rotations
