"""Codes against known factors, as a report shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unseam.metrics import binned_information
from unseam.report.study import Match
from unseam.run import evaluate_active

__all__ = ["SCORES", "match"]

SCORES = {"mig": "MIG", "dci": "DCI", "sap": "SAP", "factor_vae_score": "FactorVAE", "mcc": "MCC"}
"""Metrics that a report shows, with their usual names."""


def match(
    codes: Tensor,
    factors: Any,
    names: Sequence[str] | None = None,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Tensor | None = None,
    scores: Any = None,
    seed: int = 0,
) -> Match:
    """Codes of one or more seeds (seed, batch, latent) against factors (batch, factor).

    Args:
        codes: posterior means.
        factors: what made each item.
        names: of the factors.
        discrete: which factors are discrete.
        variance: of the posterior, in the shape of the codes: it says which latents are active.
        scores: rows of :func:`unseam.run.evaluate_active`, where they are made already.
        seed: of the metrics.

    >>> v = torch.cartesian_prod(torch.arange(8), torch.arange(8))
    >>> match(v.double()[None], v, ("x", "y")).information.round(2).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    found = binned_information(codes, factors, discrete=discrete)
    entropy = found.factor_entropy.clamp(min=torch.finfo(torch.float64).tiny)
    shares = (found.information / (entropy[:, None] if entropy.ndim > 1 else entropy)).cpu().numpy()
    table = scores
    if table is None:
        table = evaluate_active(
            codes,
            torch.as_tensor(factors),
            tuple(SCORES),
            variance=variance,
            seed=seed,
            discrete=discrete,
            preset="fast",
        )
    count = shares.shape[-1]
    named = tuple(name.replace("_", " ") for name in names or [f"factor {k}" for k in range(count)])
    return Match(named, shares, table, codes.shape[1])
