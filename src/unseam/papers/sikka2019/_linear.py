"""The exactly solvable model of §IV-B: its mixing matrix, and its terms at any parameters."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["LinearTerms", "example_mixing", "linear_terms"]


class LinearTerms(NamedTuple):
    """Expectations over the data distribution, in nats (...)."""

    reconstruction: Tensor
    """E_q log p(x|z), with its normalising constant."""
    kl: Tensor
    """D_KL(q(z|x) ‖ p(z))."""
    mie: Tensor
    """D_KL(q(z|x) ‖ p_θ(z|x)), the model inference error."""


def example_mixing(data: int = 128, sources: int = 2) -> Tensor:
    """A_ij = ½(1 + δ_ij) of sikka2019 §IV-B (data, source)."""
    return (1 + torch.eye(data, sources, dtype=torch.float64)) / 2


def linear_terms(
    mixing: Tensor,
    decoder: Tensor,
    encoder: Tensor,
    variance: Tensor,
    *,
    log_variance: Tensor | None = None,
    shift: Tensor | None = None,
    offset: Tensor | None = None,
) -> LinearTerms:
    """Terms of linear β-VAEs with a likelihood of unit variance on x = As + η (Eqs. 21 and 25).

    Args:
        mixing: A (data, source).
        decoder: D (..., data, latent).
        encoder: W^μ (..., latent, data).
        variance: E_x of the posterior variances (..., latent).
        log_variance: E_x of their logarithms b^σ (..., latent); that of ``variance`` where it is the same for all x.
        shift: b^μ (..., latent), zero by default.
        offset: b^D (..., data), zero by default.
    """
    data, latent = decoder.shape[-2:]
    log_variance = variance.log() if log_variance is None else log_variance
    shift = decoder.new_zeros(latent) if shift is None else shift
    offset = decoder.new_zeros(data) if offset is None else offset
    covariance = mixing @ mixing.mT + torch.eye(data, dtype=mixing.dtype)
    coded = encoder @ covariance @ encoder.mT
    gram = decoder.mT @ decoder
    error = (
        covariance.trace()
        - 2 * _trace(encoder @ covariance @ decoder)
        + _trace(gram @ coded)
        + ((decoder @ shift[..., None])[..., 0] + offset).square().sum(-1)
        + (gram.diagonal(dim1=-2, dim2=-1) * variance).sum(-1)
    )
    kl = (_trace(coded) + shift.square().sum(-1) + (variance - log_variance - 1).sum(-1)) / 2
    precision = gram + torch.eye(latent, dtype=gram.dtype)
    posterior = torch.linalg.solve(precision, decoder.mT)
    residual = posterior - encoder
    centre = (posterior @ -offset[..., None])[..., 0] - shift
    distance = _trace(precision @ residual @ covariance @ residual.mT)
    distance = distance + (centre * (precision @ centre[..., None])[..., 0]).sum(-1)
    trace = (precision.diagonal(dim1=-2, dim2=-1) * variance).sum(-1)
    mie = (distance + trace - torch.logdet(precision) - log_variance.sum(-1) - latent) / 2
    return LinearTerms(-(data * math.log(2 * math.pi) + error) / 2, kl, mie)


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
