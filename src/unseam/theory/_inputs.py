"""Checks and decompositions that the closed forms share."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["at_least", "canonical", "covariance_matrix", "floating", "positive", "spectrum", "square"]


def floating(name: str, value: Tensor | NDArray[Any] | float) -> Tensor:
    """A finite floating tensor, detached; plain numbers and integers become float64."""
    exact = torch.float64 if isinstance(value, float) else None
    given = torch.as_tensor(value, dtype=exact).detach()
    if not given.is_floating_point():
        if given.is_complex() or given.dtype == torch.bool:
            raise ValueError(f"{name} must be real numbers, got {given.dtype}")
        given = given.double()
    if not given.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinite values")
    return given


def square(name: str, value: Tensor | NDArray[Any]) -> Tensor:
    """Square matrices (..., latent, latent)."""
    given = floating(name, value)
    if given.ndim < 2 or given.shape[-1] != given.shape[-2] or given.shape[-1] == 0:
        raise ValueError(f"{name} must have shape (..., latent, latent), got shape {tuple(given.shape)}")
    return given


def covariance_matrix(name: str, value: Tensor | NDArray[Any]) -> Tensor:
    """A symmetric positive semi-definite matrix (data, data)."""
    given = floating(name, value)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.shape[0] == 0:
        raise ValueError(f"{name} must have shape (data, data), got shape {tuple(given.shape)}")
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


def positive(name: str, value: Tensor | NDArray[Any] | float) -> Tensor:
    """Finite numbers above zero."""
    given = floating(name, value)
    if not (given > 0).all():
        raise ValueError(f"{name} must be positive, got {float(given.min()):g}")
    return given


def at_least(name: str, value: int, least: int, most: int | None = None) -> int:
    """A whole number in a range."""
    if value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {wanted}, got {value}")
    return value
