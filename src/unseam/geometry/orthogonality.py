"""How far the columns of a decoder's Jacobian are from orthogonal, without a decomposition of it."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["column_cosine", "hadamard_gap"]


def hadamard_gap(pullback: Tensor | NDArray[Any]) -> Tensor:
    r"""Log-ratio by which the Jacobian's columns miss Hadamard's bound: zero exactly if they are orthogonal.

    .. math:: \sum_j \log \lVert c_j \rVert - \tfrac12 \log \det J^\top W J \;\ge\; 0

    with c_j the columns of :math:`W^{1/2} J`; the product of column norms over the volume that rolinek2019 §4
    (Fig. 2) minimises. With W = I it is the local contrast of independent mechanism analysis, whose mean over
    latents is C_IMA (Gresele et al. 2021; Ghosh et al. 2023 for Jacobians with more rows than columns).
    Unchanged by permutation, sign and scale of the columns.

    A dead column, shorter than the longest by the precision of the type, adds nothing. A column that depends
    on those before it up to rounding would make the gap infinite: its squared sine counts as latent · ε, so
    the gap and its gradient stay finite.

    Args:
        pullback: Gram matrices of the columns (..., latent, latent), positive semi-definite.

    Returns:
        The gap (...) in nats, summed over latents, one for each point.

    >>> hadamard_gap(torch.tensor([[[4.0, 0.0], [0.0, 9.0]]]))
    tensor([0.])
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


def column_cosine(pullback: Tensor | NDArray[Any]) -> Tensor:
    r"""Mean absolute cosine between distinct columns of the Jacobian.

    .. math:: \frac{2}{d(d-1)} \sum_{i<j} \frac{|G_{ij}|}{\sqrt{G_{ii} G_{jj}}}, \qquad G = J^\top W J

    the pairwise form of the column orthogonality of rolinek2019 Prop. 1. Unchanged by permutation, sign and
    scale of the columns. Dead columns (see :func:`hadamard_gap`) form no pair; without a pair the mean is 0.

    Args:
        pullback: Gram matrices G of the columns (..., latent, latent), positive semi-definite.

    Returns:
        The mean over pairs (...), in [0, 1], one for each point.

    >>> column_cosine(torch.tensor([[[4.0, 3.0], [3.0, 9.0]]]))
    tensor([0.5000])
    """
    correlation, live = _correlations(pullback)
    total = correlation.abs().sum((-2, -1)) - correlation.diagonal(dim1=-2, dim2=-1).sum(-1)
    count = live.sum(-1)
    return total / (count * (count - 1)).clamp(min=1)


def _correlations(pullback: Tensor | NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Gram matrix of the columns at unit length, dead ones set apart, and which are live (..., latent)."""
    gram = torch.as_tensor(pullback)
    if gram.ndim < 2 or gram.shape[-1] != gram.shape[-2] or gram.shape[-1] == 0:
        raise ValueError(f"pullback must have shape (..., latent, latent), got shape {tuple(gram.shape)}")
    if not gram.is_floating_point():
        raise ValueError(f"pullback must be floating, got {gram.dtype}")
    squares = gram.diagonal(dim1=-2, dim2=-1)
    # Cosines are exact to rounding at any scale, so only what is lost beside the longest column is dead.
    dead = squares <= torch.finfo(gram.dtype).eps ** 2 * squares.amax(-1, keepdim=True)
    scale = torch.where(dead, 1.0, squares).rsqrt()
    apart = dead[..., :, None] | dead[..., None, :]
    unit = torch.where(apart, 0.0, gram * scale[..., :, None] * scale[..., None, :])
    eye = torch.eye(gram.shape[-1], dtype=torch.bool, device=gram.device)
    return torch.where(eye, 1.0, unit), ~dead
