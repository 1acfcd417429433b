"""Lie brackets of the eigenvector fields of a metric."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry import right_basis

__all__ = ["LieBrackets", "lie_brackets"]


class LieBrackets(NamedTuple):
    """How a frame of right singular vectors turns from point to point, and whether its curves close."""

    brackets: Tensor
    """⟨v_k, [v_i, v_j]⟩ (..., i, j, k); NaN where two singular values repeat."""
    rotation: Tensor
    """⟨v_k, ∇_{v_i} v_j⟩ (..., i, j, k), antisymmetric in j and k; NaN likewise."""


def lie_brackets(pullback: Tensor | NDArray[Any], derivative: Tensor | NDArray[Any]) -> LieBrackets:
    r"""Brackets of the eigenvector fields of any metric, from its derivative at a point.

    .. math:: \langle v_k, \nabla_{v_i} v_j \rangle = \frac{v_k^\top (\partial_{v_i} G)\, v_j}
        {\lambda_j - \lambda_k}, \qquad
        [v_i, v_j] = \nabla_{v_i} v_j - \nabla_{v_j} v_i

    first-order perturbation theory of a symmetric matrix. Fields in descending order of eigenvalues, signs as
    in :func:`~unseam.geometry.right_basis`; a bracket changes sign with each of its three fields.

    Args:
        pullback: G (..., latent, latent).
        derivative: :math:`\partial G / \partial z_a` (..., a, latent, latent).

    Returns:
        Brackets and rotation (..., latent, latent, latent), per unit of length in latent space.

    >>> metric = torch.diag(torch.tensor([9.0, 4.0, 1.0]))
    >>> turning = torch.zeros(3, 3, 3)
    >>> turning[2, 0, 1] = turning[2, 1, 0] = 5.0  # v_1 and v_2 turn at unit rate along z_3
    >>> lie_brackets(metric, turning).brackets[2, 0, 1]
    tensor(1.)
    """
    gram, changes = torch.as_tensor(pullback), torch.as_tensor(derivative)
    if changes.shape != (*gram.shape[:-1], gram.shape[-1], gram.shape[-1]):
        raise ValueError(
            f"derivative must have shape (..., latent, latent, latent) for a pullback of shape "
            f"{tuple(gram.shape)}, got {tuple(changes.shape)}"
        )
    basis = right_basis(gram)
    equal = repeated(basis.singular_values)
    return frame_brackets(basis.singular_values.square(), basis.right_vectors, changes, equal)


def repeated(singular_values: Tensor) -> Tensor:
    """Where two neighbours are the same number."""
    return (singular_values.diff(dim=-1) == 0).any(-1)


def frame_brackets(squares: Tensor, vectors: Tensor, changes: Tensor, degenerate: Tensor) -> LieBrackets:
    """Brackets and rotation from eigenvalues, eigenvectors and ∂G (..., direction, latent, latent)."""
    turned = torch.einsum("...abc,...ai,...bj,...ck->...ijk", changes, vectors, vectors, vectors)
    gap = squares[..., :, None] - squares[..., None, :]
    same = torch.eye(squares.shape[-1], dtype=torch.bool, device=squares.device)
    rotation = torch.where(same, 0.0, turned / torch.where(same, 1.0, gap)[..., None, :, :])
    rotation = torch.where(degenerate[..., None, None, None], torch.nan, rotation)
    return LieBrackets(rotation - rotation.transpose(-3, -2), rotation)
