"""The orthogonal deviation score of local decoders: as published, and in a form for one model."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from unseam.geometry.basis import jacobian_basis
from unseam.geometry.orthogonality import hadamard_gap
from unseam.inputs import Array, as_floating, check_choice

__all__ = ["OdDistances", "od_distances", "od_score"]


class OdDistances(NamedTuple):
    """Squared distances of a matrix's singular value decomposition from that of orthogonal columns."""

    left: Tensor
    """‖U − Û‖² (...)."""
    scale: Tensor
    """‖Σ − Σ̂‖² (...)."""
    right: Tensor
    """‖V − V̂‖² (...)."""


def od_score(matrices: Array, *, form: Literal["paper", "invariant"] = "paper") -> Tensor:
    r"""Orthogonal deviation score: how far local decoders are from orthogonal columns, lower is closer.

    ``"paper"`` (bhowal2024 §4.4, Lemma 4, Prop. 7) compares models with each other at every point:

    .. math:: \tfrac13 \Big( \frac{\lVert U - \hat U \rVert^2}{\max_\phi \lVert U_\phi - \hat U_\phi \rVert^2}
              + \frac{\lVert \Sigma - \hat\Sigma \rVert^2}{\max_\phi \lVert \Sigma_\phi - \hat\Sigma_\phi
              \rVert^2} + \frac{\lVert V - I \rVert^2}{\max_\phi \lVert V_\phi - I \rVert^2} \Big)

    with the distances of :func:`od_distances` and φ over the models; a distance that no model has counts as
    zero. It depends on which models are compared, and on their scale.

    ``"invariant"`` needs one model. It is the share of the stochastic loss that orthogonal columns would save
    (:func:`~unseam.geometry.stochastic_minimum` before and after the best rotation of the latents):

    .. math:: 1 - \Big( \frac{\det M^\top M}{\prod_j \lVert c_j \rVert^2} \Big)^{1/d} = 1 - e^{-2\,\text{gap}/d}

    with the Hadamard gap, over the d columns that are not zero. In [0, 1], zero exactly for orthogonal columns,
    unchanged by sign, order and scale of the columns and by rotations of the data.

    Args:
        matrices: M_D, (model, point, data, latent) with two models or more for ``"paper"``, (..., data,
            latent) for ``"invariant"``.
        form: which of the two.

    Returns:
        A score for each matrix, (model, point) or (...); the paper reports its mean over points.

    >>> orthogonal, sheared = torch.eye(3, 2), torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    >>> od_score(torch.stack([orthogonal, sheared]).unsqueeze(1))
    tensor([[0.],
            [1.]])
    >>> od_score(torch.stack([orthogonal, sheared]), form="invariant")
    tensor([0.0000, 0.2929])
    """
    check_choice("form", form, ("paper", "invariant"))
    if form == "invariant":
        given = as_floating("matrices", matrices, "(..., data, latent)").detach()
        return _saved_share(given.double()).to(given.dtype)
    given = as_floating("matrices", matrices, "(model, point, data, latent)").detach()
    if len(given) < 2:
        raise ValueError(
            "matrices must hold at least two models for form='paper', which compares them: got one; "
            "form='invariant' needs no other"
        )
    distances = torch.stack(od_distances(given))
    largest = distances.amax(1, keepdim=True)
    return torch.where(largest > 0, distances / largest, 0.0).mean(0)


def od_distances(matrices: Array) -> OdDistances:
    r"""Squared Frobenius distances of U, Σ and V from what orthogonal columns would have.

    .. math:: \hat U = M (M^\top M)^{-1/2} = U V^\top, \qquad \hat\Sigma = \text{diag} \lVert c_j \rVert,
              \qquad \hat V = I

    (bhowal2024 Lemma 4 and Prop. 7, whose exponent should read −1/2), for the thin decomposition M = UΣVᵀ.
    Lemma 4's V = I presumes an order and signs: columns are taken in the order of their lengths, singular
    values descend, and each singular vector points along its own axis (V_jj ≥ 0). In this convention the
    distances do not change with order and sign of the columns, and since :math:`\lVert U - U V^\top \rVert =
    \lVert I - V \rVert` the left one equals the right one: the left basis holds nothing that the right does not.

    What is rounding, below max(data, latent) · ε of what is compared, counts as zero.

    Args:
        matrices: M_D (..., data, latent).

    Returns:
        The three squared distances (...); the middle one has the squared unit of M, none is normalised. In the type of
        M, in which the middle one is infinite where that square exceeds it.

    >>> od_distances(torch.tensor([[0.0, 3.0], [2.0, 0.0], [0.0, 0.0]]))
    OdDistances(left=tensor(0.), scale=tensor(0.), right=tensor(0.))
    """
    given = as_floating("matrices", matrices, "(..., data, latent)").detach()
    columns, latent = given.double(), given.shape[-1]
    lengths, order = torch.linalg.vector_norm(columns, dim=-2).sort(dim=-1, descending=True, stable=True)
    basis = jacobian_basis(columns.gather(-1, order.unsqueeze(-2).expand_as(columns)))
    # ‖V − I‖² with every V_jj made positive; the difference itself, as 2d − 2ΣV_jj would lose a small one.
    signs = torch.where(basis.right_vectors.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).unsqueeze(-2)
    identity = torch.eye(latent, dtype=columns.dtype, device=columns.device)
    rotated = (signs * basis.right_vectors - identity).square().sum((-2, -1))
    stretched = (basis.singular_values - lengths).square().sum(-1)
    rounding = (max(given.shape[-2:]) * torch.finfo(given.dtype).eps) ** 2
    rotated = torch.where(rotated <= rounding * latent, 0.0, rotated).to(given.dtype)
    stretched = torch.where(stretched <= rounding * lengths.square().sum(-1), 0.0, stretched).to(given.dtype)
    return OdDistances(rotated, stretched, rotated.clone())


def _saved_share(columns: Tensor) -> Tensor:
    """1 − (det of the columns' correlations)^(1/d) over the d columns that are not zero."""
    peak = columns.abs().amax(-2, keepdim=True)
    nonzero = peak > 0
    unit = columns / torch.where(nonzero, peak, 1.0)
    unit = unit / torch.where(nonzero, torch.linalg.vector_norm(unit, dim=-2, keepdim=True), 1.0)
    count = nonzero.sum((-2, -1)).clamp(min=1)
    return -torch.expm1(-2 * hadamard_gap(unit.mT @ unit) / count)
