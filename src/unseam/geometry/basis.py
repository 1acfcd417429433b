"""The right singular basis of a decoder's Jacobian, canonical and accurate for ill-conditioned decoders."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unseam.geometry._jacobi import one_sided, two_sided
from unseam.geometry.checks import check_chunk_size, check_points, check_square
from unseam.geometry.jacobian import FisherWeighted, jacobian, pullback
from unseam.inputs import Array, Decoder, as_floating, as_mask, check_number

__all__ = [
    "LocalGeometry",
    "RightBasis",
    "right_basis",
    "jacobian_basis",
    "local_basis",
    "local_geometry",
    "restricted_basis",
    "restrict",
    "degenerate_points",
]

# Rotations cost latent^4 a matrix in memory traffic; above this LAPACK's latent^3 is the only practical way.
_MOST_LATENTS_BY_ROTATION = 32

# Points whose Jacobians are held at once when no chunk size is given.
_REDONE_AT_ONCE = 256


class RightBasis(NamedTuple):
    """Singular values and right singular vectors of a Jacobian at each point."""

    singular_values: Tensor
    """s (..., latent), descending."""
    right_vectors: Tensor
    """V (..., latent, latent), the singular vectors in columns."""


class LocalGeometry(NamedTuple):
    """Pullback (batch, latent, latent) and right singular basis of a decoder at each point."""

    pullback: Tensor
    basis: RightBasis


def right_basis(pullback: Array) -> RightBasis:
    r"""Right singular basis of the Jacobian, from the metric that it pulls back.

    .. math:: J^\top W J = V S^2 V^\top, \qquad W^{1/2} J = U S V^\top

    the V of rolinek2019 Prop. 1 and Eq. 29. Canonical: singular values descend, and in each column of V the
    entry of largest magnitude is positive (the first of those that are as large up to the root of the
    precision). Where singular values repeat, V is one of many bases; columns that are orthogonal up to
    rounding are left as they are, so they give a signed permutation even then, equal ones in their own order.

    Worked in double precision. The relative error of a singular value is about :math:`\varepsilon \kappa^2`
    or 1e-8, whichever is larger, with κ the condition number of the columns *at unit length* and ε the
    precision of ``pullback``: columns of passive latents may be as short as they like (above 32 latents κ
    counts the lengths too).

    Args:
        pullback: Gram matrices G (..., latent, latent), symmetric, positive semi-definite up to rounding.

    Returns:
        The basis, in the type of ``pullback``; singular values are of :math:`W^{1/2} J`, not normalised.

    >>> right_basis(torch.tensor([[4.0, 0.0], [0.0, 9.0]]))
    RightBasis(singular_values=tensor([3., 2.]), right_vectors=tensor([[0., 1.],
            [1., 0.]]))
    """
    given = check_square("pullback", pullback)
    gram = _symmetric(given).reshape(-1, *given.shape[-2:])
    eigenvalues, vectors = _eigenvectors(gram)
    lowest, highest = eigenvalues.amin(-1), eigenvalues.amax(-1)
    if (lowest < -(torch.finfo(given.dtype).eps ** 0.5) * highest.abs()).any():
        raise ValueError(
            f"pullback must be positive semi-definite, got an eigenvalue of {float(lowest.min()):.3g}"
        )
    return _canonical(eigenvalues.clamp(min=0.0).sqrt(), vectors, given.shape[:-2], given.dtype)


def jacobian_basis(jacobian: Array) -> RightBasis:
    r"""Right singular basis of Jacobians that are at hand, without squaring them.

    .. math:: J = U S V^\top

    canonical as in :func:`right_basis` (rolinek2019 Prop. 1, Eq. 29). A QR decomposition and the singular
    vectors of its triangle, in double precision: the relative error of a singular value is about
    :math:`\varepsilon \kappa` or 1e-8, whichever is larger, with κ the condition number of the columns at unit
    length (above 32 latents, as they are).

    Args:
        jacobian: J (..., data, latent), weighted by the caller where a weight is meant.

    Returns:
        The basis, in the type of ``jacobian``; beyond ``data`` the singular values are zero.

    >>> jacobian_basis(torch.tensor([[0.0, 3.0], [2.0, 0.0], [0.0, 4.0]])).singular_values
    tensor([5., 2.])
    """
    given = as_floating("jacobian", jacobian, "(..., data, latent)").detach()
    columns = given.reshape(-1, *given.shape[-2:]).double()
    exponent = _even_exponent(columns.abs().amax((-2, -1)))
    triangle = torch.linalg.qr(torch.ldexp(columns, -exponent[:, None, None]), mode="r").R
    singular_values, vectors = _singular_vectors(triangle)
    singular_values = torch.ldexp(singular_values, exponent[:, None])
    return _canonical(singular_values, vectors, given.shape[:-2], given.dtype)


def local_basis(
    decoder: Decoder, z: Array, *, likelihood: FisherWeighted | None = None, chunk_size: int | None = None
) -> RightBasis:
    r"""Right singular basis of a decoder at each point, accurate for ill-conditioned decoders.

    .. math:: W^{1/2} J(z) = U S V^\top

    By :func:`right_basis` of the pullback; where squaring lost more than half of the digits, which is where
    the trace of the inverse correlation matrix of the columns (at least the square of their condition number
    at unit length, over the number of latents) passes :math:`\varepsilon^{-1/2}`, by :func:`jacobian_basis`.
    The relative error of singular values is thus about :math:`\sqrt\varepsilon` or better up to
    :math:`\kappa = \varepsilon^{-1/2}`. Not differentiable.

    Args:
        decoder: map d from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: latent points (batch, latent), floating.
        likelihood: gives W by ``fisher_weight(output)``; ``None`` for the identity.
        chunk_size: number of points differentiated at once, as in :func:`~unseam.geometry.pullback`.

    Returns:
        The basis of every point: singular values (batch, latent), right vectors (batch, latent, latent).

    >>> local_basis(lambda z: z * torch.tensor([1.0, 1e-4]), torch.zeros(1, 2)).singular_values
    tensor([[1.0000e+00, 1.0000e-04]])
    """
    return local_geometry(decoder, z, likelihood=likelihood, chunk_size=chunk_size).basis


def local_geometry(
    decoder: Decoder, z: Array, *, likelihood: FisherWeighted | None = None, chunk_size: int | None = None
) -> LocalGeometry:
    r"""The pullback and the right singular basis of a decoder at each point, from one pass over it.

    .. math:: G(z) = J^\top W J, \qquad W^{1/2} J = U S V^\top

    Arguments and accuracy are those of :func:`local_basis` (rolinek2019 §3.3, allen2024 Eq. 6).

    >>> local_geometry(lambda z: 3 * z, torch.zeros(1, 1)).basis.singular_values
    tensor([[3.]])
    """
    points = check_points(z).detach()
    with torch.no_grad():
        metric = pullback(decoder, points, likelihood=likelihood, chunk_size=chunk_size)
        used = torch.arange(metric.shape[-1], device=metric.device)
        return LocalGeometry(metric, _recover_basis(metric, decoder, points, used, likelihood, chunk_size))


@torch.no_grad()
def restricted_basis(
    pullback: Array,
    active: Array | list[int],
    decoder: Decoder,
    z: Array,
    *,
    likelihood: FisherWeighted | None = None,
    chunk_size: int | None = None,
) -> RightBasis:
    r"""Right singular basis of some latents' columns alone, as accurate as :func:`local_basis`.

    .. math:: W^{1/2} J_A(z) = U S V^\top

    with the other columns dropped before the decomposition (rolinek2019 Suppl. 7.1). By :func:`right_basis` of
    :func:`restrict`; where squaring these columns lost more than half of the digits, by the decoder's Jacobian.

    Args:
        pullback: Gram matrices G (batch, latent, latent) of ``decoder`` at ``z`` under ``likelihood``.
        active: A, a mask (latent,) or the indices of the latents that are used.
        decoder, z, likelihood, chunk_size: as in :func:`local_basis`.

    Returns:
        The basis: singular values (batch, used), right vectors (batch, used, used).

    >>> z, scale = torch.zeros(1, 3), torch.tensor([2.0, 0.0, 3.0])
    >>> restricted_basis(torch.diag(scale**2)[None], [0, 2], lambda z: z * scale, z).singular_values
    tensor([[3., 2.]])
    """
    given, points = check_square("pullback", pullback), check_points(z).detach()
    check_chunk_size(chunk_size)
    metric = restrict(given, active)
    if metric.ndim != 3 or len(metric) != len(points):
        raise ValueError(
            f"pullback must hold a matrix for each of {len(points)} points, got shape {tuple(given.shape)}"
        )
    used = as_mask("active", active).to(metric.device)
    return _recover_basis(metric, decoder, points, used, likelihood, chunk_size)


def restrict(pullback: Array, active: Array | list[int]) -> Tensor:
    r"""Pullback of some latents alone: the Gram matrix of the Jacobian with its other columns dropped.

    .. math:: G_{AA} = J_A^\top W J_A

    rolinek2019 Suppl. 7.1 leaves passive latents out in this way. The basis, DtO, cosine and Hadamard gap of
    the result are those over active latents.

    Args:
        pullback: Gram matrices G (..., latent, latent).
        active: A, a mask (latent,) or the indices of the latents that are used.

    Returns:
        The Gram matrices (..., used, used).

    >>> restrict(torch.tensor([[4.0, 1.0, 0.0], [1.0, 9.0, 0.0], [0.0, 0.0, 0.0]]), [0, 1])
    tensor([[4., 1.],
            [1., 9.]])
    """
    given = check_square("pullback", pullback)
    latent = given.shape[-1]
    used = as_mask("active", active).to(given.device)
    if used.dtype == torch.bool and used.shape == (latent,):
        used = used.nonzero().squeeze(1)
    if used.numel() == 0:
        raise ValueError("active must keep at least one latent, got none")
    if used.ndim != 1 or used.is_floating_point() or used.dtype == torch.bool:
        raise ValueError(
            f"active must be a mask of shape ({latent},) or a list of indices, got {used.dtype} of shape "
            f"{tuple(used.shape)}"
        )
    if used.min() < 0 or used.max() >= latent or len(used.unique()) < len(used):
        raise ValueError(
            f"active must name each latent at most once, from 0 to {latent - 1}, got {used.tolist()}"
        )
    return given[..., used[:, None], used]


def degenerate_points(singular_values: Array, *, tolerance: float = 0.05) -> Tensor:
    r"""Points where two neighbouring singular values are so close that the right basis is nearly arbitrary.

    .. math:: s_j - s_{j+1} < \text{tolerance} \cdot s_j \quad \text{for some } j

    the distinct singular values that rolinek2019 Prop. 1 asks for and Table S4 and Fig. S5 vary. Two that are
    both zero count as equal. Unchanged by the scale and order of the values.

    Args:
        singular_values: s (..., latent), in any order.
        tolerance: the least relative gap, of the larger value, that tells two directions apart.

    Returns:
        Whether each point is degenerate (...), boolean.

    >>> degenerate_points(torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.9, 1.0]]))
    tensor([False,  True])
    """
    values = as_floating("singular_values", singular_values, "(..., latent)")
    check_number("tolerance", tolerance, least=0)
    if not (values >= 0).all():
        raise ValueError(f"singular_values must not be negative, got {float(values.min()):g}")
    ordered = values.sort(-1, descending=True).values
    larger, smaller = ordered[..., :-1], ordered[..., 1:]
    return ((larger - smaller < tolerance * larger) | (larger == 0)).any(-1)


def _symmetric(given: Tensor) -> Tensor:
    """The matrices in double precision, symmetric to the bit, without the products that are rounding."""
    precision = torch.finfo(given.dtype).eps
    gram = given.double()
    lengths = gram.diagonal(dim1=-2, dim2=-1).clamp(min=0.0).sqrt()
    bound = lengths[..., :, None] * lengths[..., None, :]
    if ((gram - gram.mT).abs() > precision**0.5 * bound.amax((-2, -1), keepdim=True)).any():
        raise ValueError("pullback must be symmetric, got matrices that differ from their transposes")
    gram = (gram + gram.mT) / 2
    diagonal = torch.eye(given.shape[-1], dtype=torch.bool, device=given.device)
    rounding = gram.abs() <= given.shape[-1] * precision * bound
    return torch.where(rounding & ~diagonal, 0.0, gram)


def _eigenvectors(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (batch, latent) and vectors of double-precision matrices.

    LAPACK is the fastest on a processor, but its error is relative to the largest eigenvalue: where the
    smallest would keep less than half of its digits, rotations take over. A CUDA device runs them on all
    matrices at once, where its own solver takes small matrices in turns.
    """
    rotated = gram.shape[-1] <= _MOST_LATENTS_BY_ROTATION
    if rotated and gram.is_cuda:
        return _scaled_rotations(gram)
    eigenvalues, vectors = torch.linalg.eigh(gram)
    graded = _graded_matrices(eigenvalues)
    if rotated and len(graded):
        eigenvalues[graded], vectors[graded] = _scaled_rotations(gram[graded])
    return eigenvalues, vectors


def _singular_vectors(triangle: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values (batch, latent) and right vectors of triangles, in the way of :func:`_eigenvectors`."""
    latent = triangle.shape[-1]
    rotated = latent <= _MOST_LATENTS_BY_ROTATION
    if rotated and triangle.is_cuda:
        return one_sided(triangle)
    _, singular_values, transposed = torch.linalg.svd(triangle)
    singular_values = F.pad(singular_values, (0, latent - singular_values.shape[-1]))
    vectors = transposed.mT.contiguous()
    graded = _graded_matrices(singular_values)
    if rotated and len(graded):
        singular_values[graded], vectors[graded] = one_sided(triangle[graded])
    return singular_values, vectors


def _graded_matrices(values: Tensor) -> Tensor:
    """Indices of matrices whose smallest value, known up to rounding of the largest, has lost half its digits."""
    smallest, largest = values.amin(-1), values.amax(-1)
    return (smallest < torch.finfo(values.dtype).eps ** 0.5 * largest).nonzero().squeeze(1)


def _scaled_rotations(gram: Tensor) -> tuple[Tensor, Tensor]:
    exponent = _even_exponent(gram.abs().amax((-2, -1)))
    eigenvalues, vectors = two_sided(torch.ldexp(gram, -exponent[:, None, None]))
    return torch.ldexp(eigenvalues, exponent[:, None]), vectors


def _even_exponent(size: Tensor) -> Tensor:
    """Even powers of two near each size, so that scaling by them, or by their roots, rounds nothing."""
    exponent = torch.frexp(size).exponent.clamp(-1020, 1020)
    return (exponent - exponent % 2).double()


def _recover_basis(
    metric: Tensor,
    decoder: Decoder,
    points: Tensor,
    used: Tensor,
    likelihood: FisherWeighted | None,
    chunk_size: int | None,
) -> RightBasis:
    """Basis of the used columns from their Gram matrices, and from the columns where the square lost it."""
    basis = right_basis(metric)
    lost = _inflation(metric.double(), basis) > torch.finfo(metric.dtype).eps ** -0.5
    for part in lost.nonzero().squeeze(1).split(chunk_size or _REDONE_AT_ONCE):
        if len(part):
            redone = jacobian_basis(_weighted_jacobian(decoder, points[part], likelihood)[..., used])
            basis.singular_values[part] = redone.singular_values
            basis.right_vectors[part] = redone.right_vectors
    return basis


def _weighted_jacobian(decoder: Decoder, z: Tensor, likelihood: FisherWeighted | None) -> Tensor:
    r"""W^½ J (batch, data, latent)."""
    columns = jacobian(decoder, z)
    if likelihood is None:
        return columns
    return likelihood.fisher_weight(decoder(z)).flatten(1).sqrt().unsqueeze(-1) * columns


def _inflation(metric: Tensor, basis: RightBasis) -> Tensor:
    r"""Trace of the inverse correlation matrix of the columns: Σ_ij G_ii V_ij² / s_j², collapsed columns apart."""
    squares = metric.diagonal(dim1=-2, dim2=-1)
    parts = squares.unsqueeze(-1) * basis.right_vectors.double().square()
    values = basis.singular_values.double().square().unsqueeze(-2)
    return torch.where(parts > 0, parts / values, 0.0).sum((-2, -1))


def _canonical(values: Tensor, vectors: Tensor, shape: torch.Size, dtype: torch.dtype) -> RightBasis:
    """Sorted, signs fixed, in the caller's shape and type."""
    ordered, order = values.sort(dim=-1, descending=True, stable=True)
    vectors = vectors.gather(-1, order.unsqueeze(-2).expand_as(vectors))
    size = vectors.abs()
    largest = size >= (1 - torch.finfo(dtype).eps ** 0.5) * size.amax(-2, keepdim=True)
    leading = vectors.gather(-2, largest.int().argmax(-2, keepdim=True))
    vectors = torch.where(leading < 0, -vectors, vectors)
    latent = values.shape[-1]
    return RightBasis(ordered.to(dtype).view(*shape, latent), vectors.to(dtype).view(*shape, latent, latent))
