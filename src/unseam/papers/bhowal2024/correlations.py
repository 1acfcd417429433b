"""Rank correlations over models, with intervals: over all, within cells, and between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from unseam.papers.artefact import Finding

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCOPES", "Scope", "correlated", "rank_correlation"]

Scope = Literal["all", "within", "between"]
SCOPES: tuple[Scope, ...] = ("all", "within", "between")
"""Over all models; over models of one cell, pooled over cells; over the cells' means."""
RESAMPLINGS = 2000
FEWEST = 5
"""Models below which there is no interval."""
Floats = NDArray[np.float64]


def correlated(
    quantity: str, members: pd.DataFrame, measure: str, score: str, *, scope: Scope = "all", sign: int = -1
) -> Finding:
    """Spearman's ρ with a bootstrap interval; the claim is that it has this sign.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"family": "VAE", "beta": 1.0, "a": range(12), "b": range(12)})
    >>> correlated("", rows, "a", "b").verdict
    'not reproduced'
    """
    rho, lower, upper, models = rank_correlation(members, measure, score, scope=scope)
    holds = upper < 0 if sign < 0 else lower > 0
    return Finding(
        quantity,
        "negative" if sign < 0 else "positive",
        rho,
        lower,
        upper,
        "reproduced" if holds else "not reproduced",
        f"{models} models",
    )


def rank_correlation(
    members: pd.DataFrame, measure: str, score: str, *, scope: Scope = "all"
) -> tuple[float, float, float, int]:
    """Spearman's ρ, its 95 % interval, and the number of models; resampled within cells, so that each keeps its size.

    ``within`` correlates ranks among the models of one cell (family and β), less their mean, over all cells: what
    chance between restarts tells, with nothing of what the objective does. ``between`` correlates means of cells.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"family": "VAE", "beta": [1.0] * 5 + [2.0] * 5, "a": range(10)})
    >>> rows = rows.assign(b=[4, 3, 2, 1, 0, 9, 8, 7, 6, 5])
    >>> [round(rank_correlation(rows, "a", "b", scope=scope)[0], 2) for scope in SCOPES]
    [0.52, -1.0, 1.0]
    """
    known = members[members[measure].notna() & members[score].notna()]
    groups = [
        own[[measure, score]].to_numpy(dtype=float).T
        for _, own in known.groupby(
            [name for name in ("world", "family", "beta") if name in known], sort=False
        )
    ]
    nothing = float("nan")
    if not groups:
        return nothing, nothing, nothing, 0
    draw = np.random.default_rng(0)
    rho = _correlation([own[:, None] for own in groups], scope)[0]
    drawn = [own[:, draw.integers(own.shape[1], size=(RESAMPLINGS, own.shape[1]))] for own in groups]
    spread = _correlation(drawn, scope)
    spread = spread[np.isfinite(spread)]
    enough = len(known) >= FEWEST and len(spread) > 0
    lower, upper = np.quantile(spread, (0.025, 0.975)) if enough else (nothing, nothing)
    return float(rho), float(lower), float(upper), len(known)


def _correlation(groups: list[Floats], scope: Scope) -> Floats:
    """ρ (sample,) of groups (2, sample, model)."""
    if scope == "within":
        return _pearson(np.concatenate([_centred_ranks(own) for own in groups], axis=-1))
    if scope == "between":
        return _pearson(_centred_ranks(np.stack([own.mean(-1) for own in groups], axis=-1)))
    return _pearson(_centred_ranks(np.concatenate(groups, axis=-1)))


def _centred_ranks(values: Floats) -> Floats:
    from scipy import stats

    ranks = stats.rankdata(values, axis=-1)
    return np.asarray(ranks - ranks.mean(-1, keepdims=True))


def _pearson(centred: Floats) -> Floats:
    size = np.sqrt((centred**2).sum(-1))
    with np.errstate(invalid="ignore"):
        return np.asarray((centred[0] * centred[1]).sum(-1) / (size[0] * size[1]))
