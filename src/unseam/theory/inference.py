"""How far a model's posteriors are from the true ones, as they are and at their best alignment."""

from __future__ import annotations

from itertools import permutations, product
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array
from unseam.theory._inputs import floating, positive

__all__ = ["InferenceError", "inference_error"]

# Up to here all signed permutations are tried: 2^5 · 5! = 3840.
_MOST_ENUMERATED = 5


class InferenceError(NamedTuple):
    """Divergence of posteriors from the true ones, averaged over points, in nats."""

    raw: Tensor
    """With latents as they are (...)."""
    aligned: Tensor
    """With the signs and order of latents that suit the sources best (...)."""


def inference_error(mean: Array, variance: Array, true_mean: Array, true_covariance: Array) -> InferenceError:
    r"""Expected divergence of diagonal Gaussian posteriors from given ones, over a sample of points.

    .. math:: \mathbb{E}_x D_{KL}\bigl(N(P \mu_z, P\,\text{diag}\,\sigma^2 P^\top) \,\Vert\, N(m, E)\bigr)

    sikka2019 Eqs. 2, 3 and 61 for any encoder; with the true posterior of the sources it is the true inference
    error. Raw has P = I. A model cannot know signs and order of the sources, so the aligned one takes the
    signed permutation P of least divergence: all are tried up to five latents, beyond that the one of
    largest cross term (a linear assignment, exact where second moments of codes are alike). Everything
    follows from latent × latent moments: one pass over the points.

    Args:
        mean: μ_z (..., batch, latent).
        variance: σ² (..., batch, latent), positive.
        true_mean: m (batch, latent).
        true_covariance: E (latent, latent), the same at every point.

    Returns:
        Both means over points (...), in nats; infinite beyond the range of the type of ``mean``.

    >>> inference_error(torch.zeros(4, 2), torch.ones(4, 2), torch.ones(4, 2), torch.eye(2)).raw
    tensor(1.)
    >>> codes = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    >>> inference_error(-codes, torch.ones(4, 2), codes, torch.eye(2)).aligned
    tensor(0.)
    """
    codes, spread = floating("mean", mean), positive("variance", variance)
    target, covariance = floating("true_mean", true_mean), floating("true_covariance", true_covariance)
    if codes.ndim < 2 or codes.shape != spread.shape or codes.shape[-2:] != target.shape:
        raise ValueError(
            f"mean and variance must have shape (..., batch, latent) with the batch and latents of true_mean "
            f"{tuple(target.shape)}, got {tuple(codes.shape)} and {tuple(spread.shape)}"
        )
    points, latent = target.shape
    if covariance.shape != (latent, latent):
        raise ValueError(
            f"true_covariance must have shape ({latent}, {latent}), got {tuple(covariance.shape)}"
        )
    exact, target = codes.double(), target.double().to(codes.device)
    failed = torch.linalg.cholesky_ex(covariance.double()).info
    if bool(failed) or float((covariance - covariance.mT).abs().max()) > 1e-4 * float(covariance.abs().max()):
        raise ValueError("true_covariance must be symmetric and positive definite, got a matrix that is not")
    precision = torch.linalg.inv(covariance.double().to(codes.device))
    second = exact.mT @ exact / points + torch.diag_embed(spread.double().mean(-2))
    cross = precision @ (target.mT @ exact) / points
    fixed = (precision * (target.mT @ target / points)).sum() - torch.logdet(precision) - latent
    fixed = fixed - spread.double().log().sum(-1).mean(-1)

    def divergence(alignment: Tensor) -> Tensor:
        aligned = alignment @ second @ alignment.mT
        return ((precision * aligned).sum((-2, -1)) - 2 * (cross * alignment).sum((-2, -1)) + fixed) / 2

    raw = divergence(torch.eye(latent, dtype=torch.float64, device=codes.device))
    if latent <= _MOST_ENUMERATED:
        every = [divergence(one) for one in _signed_permutations(latent, codes.device)]
        aligned = torch.stack(every).amin(0)
    else:
        aligned = torch.minimum(raw, divergence(_best_assignment(cross)))
    return InferenceError(raw.to(codes.dtype), aligned.to(codes.dtype))


def _signed_permutations(latent: int, device: torch.device) -> list[Tensor]:
    return [
        torch.diag(torch.tensor(signs, dtype=torch.float64))[list(order)].to(device)
        for order in permutations(range(latent))
        for signs in product((1.0, -1.0), repeat=latent)
    ]


def _best_assignment(cross: Tensor) -> Tensor:
    """The signed permutation of largest cross term for each member."""
    from scipy.optimize import linear_sum_assignment  # a fifth of a second to import

    found = torch.zeros_like(cross).reshape(-1, *cross.shape[-2:])
    for alignment, one in zip(found, cross.reshape(found.shape), strict=True):
        rows, columns = linear_sum_assignment(-one.abs().cpu().numpy())
        alignment[rows, columns] = torch.where(one[rows, columns] < 0, -1.0, 1.0).to(found.dtype)
    return found.view(cross.shape)
