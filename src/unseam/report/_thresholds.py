"""The β at which each latent of a linear decoder would collapse, from the data that a report has at hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unseam.advice import Advice, advise
from unseam.models import Bernoulli, Gaussian
from unseam.report.study import Missing
from unseam.theory import collapse_thresholds

__all__ = ["thresholds"]

PART = "Which β keeps how many latents"
# Wider data are seen through the Gram matrix of some items: it has the same eigenvalues.
WIDEST = 2048
ITEMS = 2048


def thresholds(x: Any, likelihood: Any) -> tuple[Advice | None, tuple[Missing, ...]]:
    """Collapse thresholds of data under a likelihood, or why there are none."""
    if x is None:
        return None, (
            Missing(PART, "The thresholds come from the data's covariance, and no data were given."),
        )
    data = torch.as_tensor(x)
    if likelihood is not None and not isinstance(likelihood, Gaussian | Bernoulli):
        kind = type(likelihood).__name__
        return None, (
            Missing(PART, f"Thresholds are known for Gaussian and Bernoulli likelihoods, not for {kind}."),
        )
    kind = "bernoulli" if isinstance(likelihood, Bernoulli) else "gaussian"
    noise = float(likelihood.log_variance.exp()) if isinstance(likelihood, Gaussian) else None
    wide = data[0].numel() > WIDEST
    return _wide(data, kind, noise or 1.0) if wide else advise(data, likelihood=kind, noise=noise), ()


def _wide(data: Tensor, kind: str, noise: float) -> Advice:
    rows = data[:ITEMS].flatten(1).double()
    mean = rows.mean(0)
    spread = mean * (1 - mean) if kind == "bernoulli" else torch.full_like(mean, noise)
    constant = (rows.var(0, correction=0) <= 1e-14) | (spread <= 1e-14)
    scaled = ((rows - mean) / spread.sqrt())[:, ~constant]
    found = collapse_thresholds(scaled @ scaled.mT / len(rows))
    return Advice("data", kind, noise, len(rows), int(constant.sum()), found)
