"""Checks and decompositions that the closed forms share."""

from __future__ import annotations

import torch
from torch import Tensor

from unseam.inputs import Array, as_floating

__all__ = ["canonical", "covariance_matrix", "floating", "positive", "spectrum"]


def floating(name: str, value: Array | float, shape: str = "") -> Tensor:
    """A finite floating tensor, detached; see :func:`~unseam.inputs.as_floating`."""
    return as_floating(name, value, shape).detach()


def covariance_matrix(name: str, value: Array) -> Tensor:
    """A symmetric positive semi-definite matrix (data, data)."""
    given = floating(name, value, "(data, data)")
    size = float(given.abs().max())
    if float((given - given.mT).abs().max()) > torch.finfo(given.dtype).eps ** 0.5 * size:
        raise ValueError(f"{name} must be symmetric, got a matrix that differs from its transpose")
    return (given + given.mT) / 2


def spectrum(name: str, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, descending, and eigenvectors in columns, each with its largest entry positive."""
    eigenvalues, vectors = torch.linalg.eigh(covariance.double())
    largest = max(float(eigenvalues[-1]), 0.0)
    if float(eigenvalues[0]) < -len(covariance) * torch.finfo(covariance.dtype).eps ** 0.5 * largest:
        raise ValueError(
            f"{name} must be positive semi-definite, got an eigenvalue of {float(eigenvalues[0]):.3g}"
        )
    return eigenvalues.flip(0).clamp(min=0.0), canonical(vectors.flip(1))


def canonical(vectors: Tensor) -> Tensor:
    """Columns with the entry of largest magnitude positive, the first of those that are as large."""
    size = vectors.abs()
    largest = size >= (1 - 1e-9) * size.amax(-2, keepdim=True)
    leading = vectors.gather(-2, largest.int().argmax(-2, keepdim=True))
    return torch.where(leading < 0, -vectors, vectors)


def positive(name: str, value: Array | float, shape: str = "") -> Tensor:
    """Finite numbers above zero."""
    given = floating(name, value, shape)
    if not (given > 0).all():
        raise ValueError(f"{name} must be positive, got {float(given.min()):g}")
    return given
