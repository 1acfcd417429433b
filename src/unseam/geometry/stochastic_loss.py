"""The least stochastic loss that a budget of precision buys: why orthogonal columns are worth having."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry._inputs import square

__all__ = ["StochasticMinimum", "stochastic_minimum"]


class StochasticMinimum(NamedTuple):
    """The least stochastic loss of a linear decoder under a budget of precision, and where it is reached."""

    loss: Tensor
    """Σ_j ‖c_j‖² σ_j² at its least (...)."""
    variance: Tensor
    """The variances σ_j² there (..., latent), each inverse to the squared length of its column."""


def stochastic_minimum(
    pullback: Tensor | NDArray[Any],
    precision: float,
    *,
    reading: Literal["deviation", "variance"] = "variance",
) -> StochasticMinimum:
    r"""Least expected squared deviation of a linear decoder, given how precise its latents may be in all.

    .. math:: \min_\sigma \mathbb{E}\lVert J \varepsilon \rVert^2 = \min_\sigma \sum_j \lVert c_j \rVert^2
              \sigma_j^2 = d \, \Big(\prod_j \lVert c_j \rVert^2\Big)^{1/d} \, \Big(\prod_j \sigma_j^2\Big)^{1/d}

    for ε ~ N(0, diag σ²) and a fixed product of variances (rolinek2019 Eqs. 22–26, Prop. S5), reached where
    :math:`\lVert c_j \rVert^2 \sigma_j^2` is the same for all latents (bhowal2024 Theorem 1 c). The product
    of the column lengths is least where they are orthogonal; above that the loss is larger by the factor
    exp(2/d · :func:`~unseam.geometry.hadamard_gap`).

    The paper's constraint has two readings. Eq. 23 as printed, −Σ log σ_j² = C, gives the exponent −C/d, for
    two latents −C/2; the −C of Eqs. 25 and 26 belongs to −Σ log σ_j = C.

    Args:
        pullback: Gram matrices of the columns c_j (..., latent, latent), none of them zero.
        precision: the budget C in nats.
        reading: ``"variance"`` for −Σ log σ_j² = C, ``"deviation"`` for −Σ log σ_j = C.

    Returns:
        The loss, summed over data dimensions and latents, and the variances that reach it.

    >>> found = stochastic_minimum(torch.tensor([[50.0, -4.0], [-4.0, 3.0]]), 0.0)
    >>> found.loss
    tensor(24.4949)
    """
    columns = square("pullback", pullback).diagonal(dim1=-2, dim2=-1)
    if not (columns > 0).all():
        raise ValueError("pullback must have columns of positive length only: restrict it to active latents")
    if reading not in ("deviation", "variance"):
        raise ValueError(f"reading must be 'deviation' or 'variance', got {reading!r}")
    log_volume = -precision if reading == "variance" else -2 * precision
    share = torch.exp(columns.log().mean(-1) + log_volume / columns.shape[-1])
    return StochasticMinimum(columns.shape[-1] * share, share.unsqueeze(-1) / columns)
