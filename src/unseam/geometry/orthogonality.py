"""How far the columns of a decoder's Jacobian are from orthogonal, without a decomposition of it."""

from __future__ import annotations

import torch
from torch import Tensor

from unseam.geometry.checks import check_square, measuring
from unseam.inputs import Array

__all__ = ["column_cosine", "cosine_matrix", "hadamard_gap"]


def hadamard_gap(pullback: Array) -> Tensor:
    r"""Log-ratio by which the Jacobian's columns miss Hadamard's bound: zero exactly if they are orthogonal.

    .. math:: \sum_j \log \lVert c_j \rVert - \tfrac12 \log \det J^\top W J \;\ge\; 0

    with c_j the columns of :math:`W^{1/2} J`; the product of column norms over the volume that rolinek2019 §4
    (Fig. 2) minimises. With W = I it is the local contrast of independent mechanism analysis, whose mean over
    latents is C_IMA (Gresele et al. 2021; Ghosh et al. 2023 for Jacobians with more rows than columns).
    Unchanged by permutation, sign and scale of the columns.

    A collapsed column, shorter than the longest by the precision of the type, adds nothing. A column that depends
    on those before it up to rounding would make the gap infinite: its squared sine counts as latent · ε, so
    the gap and its gradient stay finite.

    Args:
        pullback: Gram matrices of the columns (..., latent, latent), positive semi-definite.

    Returns:
        The gap (...) in nats, summed over latents, one for each point.

    >>> hadamard_gap(torch.tensor([[[4.0, 3.0], [3.0, 9.0]]]))  # -½ log(1 - cos²), cos = ½
    tensor([0.1438])
    """
    correlation, _ = _correlations(pullback)
    latent = correlation.shape[-1]
    floor = latent * torch.finfo(correlation.dtype).eps
    gap = torch.zeros_like(correlation[..., 0, 0])
    # Elimination by hand: each pivot is floored on its own, and nothing asks the host whether a matrix was
    # definite, which a captured CUDA graph could not answer.
    for j in range(latent):
        pivot = correlation[..., 0, 0]
        dependent = pivot <= floor
        pivot = torch.where(dependent, floor, pivot)
        gap = gap - pivot.log() / 2
        if j + 1 < latent:
            row = correlation[..., 0, 1:]
            step = torch.where(dependent, 0.0, 1 / pivot)[..., None] * row
            correlation = correlation[..., 1:, 1:] - step[..., :, None] * row[..., None, :]
    return gap.clamp(min=0.0)


def column_cosine(pullback: Array) -> Tensor:
    r"""Mean absolute cosine between distinct columns of the Jacobian.

    .. math:: \frac{2}{d(d-1)} \sum_{i<j} \frac{|G_{ij}|}{\sqrt{G_{ii} G_{jj}}}, \qquad G = J^\top W J

    the pairwise form of the column orthogonality of rolinek2019 Prop. 1. Unchanged by permutation, sign and
    scale of the columns. Collapsed columns (see :func:`hadamard_gap`) form no pair; without a pair the mean is 0.

    Args:
        pullback: Gram matrices G of the columns (..., latent, latent), positive semi-definite.

    Returns:
        The mean over pairs (...), in [0, 1], one for each point.

    >>> column_cosine(torch.tensor([[[4.0, 3.0], [3.0, 9.0]]]))
    tensor([0.5000])
    """
    correlation, active = _correlations(pullback)
    total = correlation.abs().sum((-2, -1)) - correlation.diagonal(dim1=-2, dim2=-1).sum(-1)
    count = active.sum(-1)
    return (total / (count * (count - 1)).clamp(min=1)).clamp(max=1.0)


def cosine_matrix(pullback: Array) -> Tensor:
    r"""Absolute cosines between all columns of the Jacobian.

    .. math:: |G_{ij}| / \sqrt{G_{ii} G_{jj}}, \qquad G = J^\top W J

    whose mean off the diagonal is :func:`column_cosine` (rolinek2019 Prop. 1).

    Args:
        pullback: Gram matrices G of the columns (..., latent, latent), positive semi-definite.

    Returns:
        (..., latent, latent), in [0, 1]: 1 on the diagonal, rows and columns of collapsed latents 0.

    >>> cosine_matrix(torch.tensor([[4.0, -3.0], [-3.0, 9.0]]))
    tensor([[1.0000, 0.5000],
            [0.5000, 1.0000]])
    """
    correlation, active = _correlations(pullback)
    return torch.where(active[..., None], correlation.abs().clamp(max=1.0), 0.0)


def _correlations(pullback: Array) -> tuple[Tensor, Tensor]:
    """Gram matrix of the columns at unit length, that of collapsed ones the identity, and the others (..., latent)."""
    gram = check_square("pullback", pullback, differentiable=True)
    squares = gram.diagonal(dim1=-2, dim2=-1)
    if measuring(gram):
        _check_gram(gram, squares)
    # Cosines are exact to rounding at any scale, so only what is lost beside the longest column has collapsed.
    collapsed = squares <= torch.finfo(gram.dtype).eps ** 2 * squares.amax(-1, keepdim=True)
    scale = torch.where(collapsed, 1.0, squares).rsqrt()
    either = collapsed[..., :, None] | collapsed[..., None, :]
    unit = torch.where(either, 0.0, gram * scale[..., :, None] * scale[..., None, :])
    eye = torch.eye(gram.shape[-1], dtype=torch.bool, device=gram.device)
    return torch.where(eye, 1.0, unit), ~collapsed


def _check_gram(gram: Tensor, squares: Tensor) -> None:
    """Refuse what cannot be products of columns with each other: not symmetric, or larger than lengths allow."""
    # Whatever the precision now, the products may have been computed in float32.
    rounding = torch.finfo(torch.float32).eps ** 0.5 * gram.abs().amax((-2, -1), keepdim=True)
    if bool(((gram - gram.mT).abs() > rounding).any()):
        raise ValueError("pullback must be symmetric, got matrices that differ from their transposes")
    lengths = squares.clamp(min=0.0).sqrt()
    bound = lengths[..., :, None] * lengths[..., None, :] + rounding
    if bool((gram.abs() > bound).any()):
        raise ValueError(
            "pullback must be positive semi-definite, got products larger than their columns' lengths"
        )
