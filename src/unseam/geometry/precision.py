"""The posterior's precision against what the decoder's Jacobian asks for."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.geometry.activity import active_mask
from unseam.geometry.gaussians import gaussians, marginal
from unseam.inputs import Array, as_floating, check_number

__all__ = ["PrecisionError", "VarianceNormLaw", "precision_error", "variance_norm_law"]


class PrecisionError(NamedTuple):
    """How far Σ⁻¹ is from the optimum at each point.

    Attributes:
        relative: Frobenius norm of the whole difference over that of the optimum, (batch,).
        diagonal: norm of the difference's diagonal over that of the optimum's diagonal, (batch,).
        off_diagonal: norm of the difference off the diagonal over that of the whole optimum, (batch,).
        log_ratio: log of the posterior's precision over the optimal one for each latent, (batch, latent):
            positive where the posterior is too narrow; NaN where the optimum is not positive.
    """

    relative: Tensor
    diagonal: Tensor
    off_diagonal: Tensor
    log_ratio: Tensor


class VarianceNormLaw(NamedTuple):
    """The law σ_j² ∝ 1/‖c_j‖² as a line through (log ‖c_j‖², log σ_j²).

    Attributes:
        slope, correlation: across latents at each point, (batch,); both -1 when the law holds, NaN where
            fewer than two latents or only equal norms are left.
        spread: standard deviation of log(σ_j² ‖c_j‖²) across latents at each point, (batch,); 0 when the law
            holds, and informative also where norms are nearly equal.
        pooled_slope, pooled_correlation, pooled_spread: over all points and latents together, 0-d; -1, -1
            and 0 when the law holds with one constant for all points.
    """

    slope: Tensor
    correlation: Tensor
    spread: Tensor
    pooled_slope: Tensor
    pooled_correlation: Tensor
    pooled_spread: Tensor


@torch.no_grad()
def precision_error(variance: Array, pullback: Array, *, beta: float = 1.0) -> PrecisionError:
    r"""Posterior precision against its optimum for the decoder (allen2024 Eqs. 7 and 8).

    .. math:: \Sigma_x^{-1} \quad\text{against}\quad P = I + \tfrac1\beta D^\top A^2 D

    .. math:: \frac{\lVert \Sigma_x^{-1} - P \rVert_F}{\lVert P \rVert_F}, \quad
        \frac{\lVert \operatorname{diag}(\Sigma_x^{-1} - P) \rVert}{\lVert \operatorname{diag} P \rVert}, \quad
        \frac{\lVert \operatorname{off}(\Sigma_x^{-1} - P) \rVert_F}{\lVert P \rVert_F}

    A diagonal posterior has nothing off the diagonal, so the last one is then the share of P's norm that lies
    there: what no diagonal posterior can follow. Its own best is a diagonal error of zero (allen2024 Theorem
    5). With minus the posterior's mean Hessian for the pullback, P is the optimum of Opper and Archambeau.

    Args:
        variance: σ² (batch, latent), or Σ_x (batch, latent, latent).
        pullback: DᵀA²D at the means (batch, latent, latent), already weighted by the likelihood.
        beta: weight β of the KL term in training.

    >>> pullback = torch.tensor([[[3.0, 0.0], [0.0, 8.0]]])
    >>> precision_error(torch.tensor([[1 / 4, 1 / 9]]), pullback).relative
    tensor([0.])
    """
    variance, metric = _check(variance, pullback)
    check_number("beta", beta, above=0)
    eye = torch.eye(metric.shape[1], dtype=metric.dtype, device=metric.device)
    optimum = eye + metric / beta
    found = torch.diag_embed(1 / variance) if variance.ndim == 2 else torch.linalg.inv(variance)
    error, whole = found - optimum, _norm(optimum)
    diagonal, ideal = marginal(error), marginal(optimum)
    return PrecisionError(
        relative=_norm(error) / whole,
        diagonal=diagonal.norm(dim=1) / ideal.norm(dim=1),
        off_diagonal=_norm(error * (1 - eye)) / whole,
        log_ratio=marginal(found).log() - ideal.log(),
    )


@torch.no_grad()
def variance_norm_law(variance: Array, pullback: Array, *, active: Array | None = None) -> VarianceNormLaw:
    r"""How well :math:`\sigma_j^2 \propto 1 / \lVert c_j \rVert^2` holds (bhowal2024 Theorem 1 (c)).

    Least squares of :math:`\log \sigma_j^2` on :math:`\log \lVert c_j \rVert^2` over the active latents, at
    each point with its own constant, and over all points with one. allen2024 Eq. 7 gives the law with the
    constant β where :math:`\lVert c_j \rVert^2 \gg \beta`, and a slope between -1 and 0 elsewhere.

    Args:
        variance: σ² (batch, latent), or Σ (batch, latent, latent), of which the diagonal counts.
        pullback: Gram matrices of the columns c_j (batch, latent, latent); columns of zero length are left out.
        active: mask (latent,) bool of the latents to use; all by default.

    >>> pullback = torch.diag_embed(torch.tensor([[1.0, 4.0, 16.0]]))
    >>> variance_norm_law(torch.tensor([[0.8, 0.2, 0.05]]), pullback).pooled_slope
    tensor(-1.)
    """
    variance, metric = _check(variance, pullback)
    squares = marginal(metric)
    used = squares > 0
    if active is not None:
        used = used & active_mask(active, squares)
    across = torch.where(used, squares, 1.0).log()
    along = marginal(variance).log()
    each = _line(across, along, used)
    pooled = _line(across.reshape(1, -1), along.reshape(1, -1), used.reshape(1, -1))
    return VarianceNormLaw(*each, *(value[0] for value in pooled))


def _line(across: Tensor, along: Tensor, used: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Slope, correlation and spread of the sum over the used entries of each row; NaN where there is no line."""
    count = used.sum(1, keepdim=True)
    weight = used.to(across.dtype) / count

    def centred(values: Tensor) -> Tensor:
        return values - (weight * values).sum(1, keepdim=True)

    a, b = centred(across), centred(along)
    aa, ab, bb = ((weight * pair).sum(1) for pair in (a * a, a * b, b * b))
    rounding = 8 * torch.finfo(across.dtype).eps * (1 + across.abs().amax(1))
    defined = (count[:, 0] > 1) & (aa > rounding.square())
    spread = (weight * (a + b).square()).sum(1).sqrt()
    nan = torch.full_like(aa, torch.nan)
    return (
        torch.where(defined, ab / aa, nan),
        torch.where(defined, ab / (aa * bb).sqrt(), nan).clamp(-1, 1),
        torch.where(count[:, 0] > 1, spread, nan),
    )


def _norm(matrix: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(matrix)


def _check(variance: Array, pullback: Array) -> tuple[Tensor, Tensor]:
    metric = as_floating("pullback", pullback, "(batch, latent, latent)")
    means = torch.zeros_like(metric[:, 0])
    return gaussians(means, variance).variance, metric
