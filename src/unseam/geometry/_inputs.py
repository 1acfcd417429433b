"""Checks that the measurements on batches of matrices share."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["matrices", "square"]


def matrices(name: str, value: Tensor | NDArray[Any], shape: str) -> Tensor:
    """A finite floating tensor with at least two axes, detached; ``shape`` says what was expected."""
    given = torch.as_tensor(value).detach()
    if given.ndim < 2 or 0 in given.shape[-2:]:
        raise ValueError(f"{name} must have shape {shape}, got shape {tuple(given.shape)}")
    if not given.is_floating_point():
        raise ValueError(f"{name} must be floating, got {given.dtype}")
    finite = given.isfinite()
    if not finite.all():
        raise ValueError(
            f"{name} must be finite, got {int((~finite).sum())} entries that are NaN or infinite"
        )
    return given


def square(name: str, value: Tensor | NDArray[Any]) -> Tensor:
    """Finite floating square matrices (..., latent, latent)."""
    given = matrices(name, value, "(..., latent, latent)")
    if given.shape[-1] != given.shape[-2]:
        raise ValueError(f"{name} must have shape (..., latent, latent), got shape {tuple(given.shape)}")
    return given
