"""Why a diagonal Hessian is best: allen2024's Theorems 4 and 5 with both sides of their inequalities."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array, check_number
from unseam.theory._inputs import floating, positive

__all__ = ["Inequality", "diagonal_hessian", "diagonal_hessian_optimal", "plateau_term"]


class Inequality(NamedTuple):
    """Both sides of an inequality, value ≤ bound, and what the text prints as the bound."""

    value: Tensor
    """The left side (...)."""
    bound: Tensor
    """The right side (...), which the best eigenvectors reach."""
    printed: Tensor
    """The bound as printed (...)."""


def diagonal_hessian(hessian: Array, variance: Array) -> Inequality:
    r"""Theorem 4: the trace of Hessian and diagonal covariance, and the most that rotating the Hessian gives.

    .. math:: \langle H, \Sigma \rangle = \text{tr}(V T V^\top \Sigma) \;\le\; \sum_i t_{(i)} \sigma_{(i)}^2

    both in the same order: the rearrangement (von Neumann's trace) inequality. The text bounds by
    Cauchy–Schwarz and takes the bound for ⟨T, Σ⟩, which it is not: with T = diag(−1, −10) and Σ =
    diag(0.1, 1), V = I gives −10.1 and a swap of the axes −2. What holds is that a *signed permutation* is
    best, the one that pairs the largest variance with the least curvature.

    Args:
        hessian: H (..., latent, latent) of the log-likelihood, symmetric.
        variance: diagonal of Σ (..., latent), positive.

    Returns:
        ⟨H, Σ⟩, the rearrangement bound, and what Cauchy–Schwarz gives, ‖T‖‖Σ‖; infinite beyond the range of the type.

    >>> found = diagonal_hessian(torch.diag(torch.tensor([-1.0, -10.0])), torch.tensor([0.1, 1.0]))
    >>> found.value, found.bound
    (tensor(-10.1000), tensor(-2.))
    """
    curvature, spread = _symmetric(hessian), positive("variance", variance, "(..., latent)")
    if spread.shape[-1] != curvature.shape[-1] or 0 in spread.shape:
        raise ValueError(
            f"variance must have one entry per latent ({curvature.shape[-1]}), got {tuple(spread.shape)}"
        )
    eigenvalues = torch.linalg.eigvalsh(curvature)
    value = (curvature.diagonal(dim1=-2, dim2=-1) * spread).sum(-1)
    bound = (eigenvalues * spread.sort(-1).values).sum(-1)
    return Inequality(value, bound, eigenvalues.norm(dim=-1) * spread.norm(dim=-1))


def diagonal_hessian_optimal(hessian: Array, *, beta: float = 1.0) -> Inequality:
    r"""Theorem 5: the part of the deterministic ELBO that depends on the Hessian's axes, with the best Σ for each.

    .. math:: -\tfrac{\beta}{2} \sum_i \log\bigl(1 - \tfrac{1}{\beta} H_{ii}\bigr) \;\le\;
              -\tfrac{\beta}{2} \log \det\bigl(I - \tfrac{1}{\beta} H\bigr)

    Hadamard's inequality, with equality exactly where H is diagonal; Σ is the best diagonal covariance
    diag(I − H/β)⁻¹ (A#4, Eq. 7). "Iff V = I" means up to signed permutations and rotations within repeated
    eigenvalues, none of which change H's being diagonal.

    Args:
        hessian: H (..., latent, latent) of the log-likelihood, symmetric, I − H/β positive definite.
        beta: weight of the KL term.

    Returns:
        Both sides; here the printed bound is the right one.

    >>> found = diagonal_hessian_optimal(torch.tensor([[-2.0, 1.0], [1.0, -2.0]]))
    >>> found.value, found.bound
    (tensor(-1.0986), tensor(-1.0397))
    """
    curvature, weight = _symmetric(hessian), check_number("beta", beta, above=0)
    matrix = (
        torch.eye(curvature.shape[-1], dtype=curvature.dtype, device=curvature.device) - curvature / weight
    )
    sign, volume = torch.linalg.slogdet(matrix)
    if not ((sign > 0) & (torch.linalg.eigvalsh(matrix)[..., 0] > 0)).all():
        raise ValueError("hessian must be such that I − H/beta is positive definite")
    bound = -weight / 2 * volume
    return Inequality(-weight / 2 * matrix.diagonal(dim1=-2, dim2=-1).log().sum(-1), bound, bound)


def plateau_term(singular_values: Array, *, beta: float = 1.0, noise: float = 1.0) -> Tensor:
    r"""What the deterministic ELBO pays for the decoder's singular values, posterior at its optimum.

    .. math:: -\tfrac{\beta}{2} \sum_i \log\Bigl(1 + \frac{s_i^2}{\beta\sigma^2}\Bigr)

    allen2024 Eq. 14 with the terms that it drops although they depend on S: trace, log-determinant and
    regularisation of Eq. 5 at :math:`\Sigma = (I + S^2/(\beta\sigma^2))^{-1}` sum to this. It falls with every
    singular value and is convex for :math:`s > \sqrt\beta\sigma`, so between few data points a decoder gains by
    flat plateaus and steep jumps.

    Args:
        singular_values: s (..., latent) of the decoder's Jacobian.
        beta: weight of the KL term.
        noise: variance σ² of the likelihood.

    Returns:
        The term (...), in nats, summed over latents; minus infinity where s² / (βσ²) exceeds the type of s.

    >>> plateau_term(torch.tensor([0.0, 1.0]))
    tensor(-0.3466)
    """
    scales = floating("singular_values", singular_values, "(..., latent)")
    weight, variance = check_number("beta", beta, above=0), check_number("noise", noise, above=0)
    return -weight / 2 * torch.log1p(scales.square() / (weight * variance)).sum(-1)


def _symmetric(hessian: Array) -> Tensor:
    given = floating("hessian", hessian, "(..., latent, latent)")
    if given.numel() == 0:
        raise ValueError(f"hessian must hold at least one matrix, got shape {tuple(given.shape)}")
    if float((given - given.mT).abs().max()) > torch.finfo(given.dtype).eps ** 0.5 * float(given.abs().max()):
        raise ValueError("hessian must be symmetric, got matrices that differ from their transposes")
    return given
