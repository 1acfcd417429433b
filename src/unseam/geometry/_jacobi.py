"""Jacobi rotations for many small matrices at once, accurate for columns of very different lengths."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from unseam.geometry._jacobi_cuda import sweep_until_rest

__all__ = ["one_sided", "two_sided"]

# The off-diagonal shrinks quadratically: about log2(latent) + 6 sweeps, of which the hardest matrix needs most.
_MOST_SWEEPS = 30


def two_sided(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (batch, latent), in no order, and eigenvectors of positive semi-definite matrices.

    Every rotation is chosen from entries of the matrix and stops where the cosine of its pair is rounding, so
    the relative error of the smallest eigenvalue follows the condition of the columns at unit length, not
    that of the columns as they are (Demmel and Veselić 1992, Theorem 3.1).
    """
    latent = gram.shape[-1]
    table = _with_identity(gram)
    _sweep_until_rest(table, latent, gram=True)
    return table[:latent].diagonal(), table[latent:].permute(2, 0, 1)


def one_sided(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values (batch, latent), in no order, and right singular vectors of (batch, data, latent).

    The columns themselves are rotated until they are orthogonal (Hestenes), so nothing is squared: the
    relative error follows the condition of the columns at unit length (Demmel and Veselić 1992, Theorem 4.1).
    """
    data = columns.shape[-2]
    table = _with_identity(columns)
    _sweep_until_rest(table, data, gram=False)
    return torch.linalg.vector_norm(table[:data], dim=0).mT, table[data:].permute(2, 0, 1)


def _with_identity(matrix: Tensor) -> Tensor:
    """The matrix above the identity that collects the rotations, batch last: (data + latent, latent, batch)."""
    batch, _, latent = matrix.shape
    identity = torch.eye(latent, dtype=matrix.dtype, device=matrix.device).expand(batch, latent, latent)
    return torch.cat([matrix, identity], dim=1).permute(1, 2, 0).contiguous()


def _sweep_until_rest(table: Tensor, data: int, *, gram: bool) -> None:
    """Rotate every pair of columns in turn, in place, until no pair needs it."""
    tolerance = table.shape[1] * torch.finfo(table.dtype).eps
    if sweep_until_rest(table, data, tolerance, _MOST_SWEEPS, gram=gram):
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
            resting = product.square() <= tolerance**2 * (first * second).abs()
            cos, sin = _rotation(first, second, product, resting)
            _rotate(table[:, p], table[:, q], cos, sin)
            if gram:
                _rotate(table[p], table[q], cos, sin)
            moved |= ~resting.all()
        if not moved:
            return


def _rotation(first: Tensor, second: Tensor, product: Tensor, resting: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the smaller angle that diagonalises [[first, product], [product, second]]."""
    cotangent = (second - first) / (2 * product)
    tangent = 1 / (cotangent.abs() + (1 + cotangent.square()).sqrt())
    tangent = torch.where(resting, 0.0, torch.where(cotangent < 0, -tangent, tangent))
    cos = (1 + tangent.square()).rsqrt()
    return cos, tangent * cos


def _rotate(left: Tensor, right: Tensor, cos: Tensor, sin: Tensor) -> None:
    turned = cos * left - sin * right
    right.mul_(cos).add_(sin * left)
    left.copy_(turned)
