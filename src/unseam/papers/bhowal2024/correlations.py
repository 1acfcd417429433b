"""Rank correlations over models, with intervals: over all, within families and cells, and between cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from unseam.papers.artefact import Finding
from unseam.papers.ranks import Floats, centred_ranks, correlation

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCOPES", "Correlation", "Scope", "judged", "rank_correlation"]

Scope = Literal["all", "families", "cells", "between"]
SCOPES: tuple[Scope, ...] = ("all", "families", "cells", "between")
"""Over all models; among models of one family, and of one cell (family and β), pooled; over the cells' means."""
RESAMPLINGS = 2000
FEWEST = 5
"""Models below which there is no interval."""


class Correlation(NamedTuple):
    """Spearman's ρ, its 95 % interval, and the number of models; NaN where there is none.

    >>> Correlation(0.5, 0.1, 0.8, 12).models
    12
    """

    rho: float
    lower: float
    upper: float
    models: int


def judged(quantity: str, found: Correlation, *, sign: int = -1) -> Finding:
    """The claim is that the correlation has this sign, by its interval.

    >>> judged("", Correlation(-0.5, -0.8, 0.1, 12)).verdict
    'not reproduced'
    """
    rho, lower, upper = (value if math.isfinite(value) else None for value in found[:3])
    holds = found.upper < 0 if sign < 0 else found.lower > 0
    return Finding(
        quantity,
        "negative" if sign < 0 else "positive",
        rho,
        lower,
        upper,
        "reproduced" if holds else "not reproduced",
        f"{found.models} models",
    )


def rank_correlation(members: pd.DataFrame, measure: str, score: str, *, scope: Scope = "all") -> Correlation:
    """Spearman's ρ with a bootstrap interval over models, resampled within cells, so that each keeps its size.

    ``cells`` correlates ranks among the models of one cell (family and β), less their mean, over all cells: what chance
    between restarts tells, with nothing of what the objective does; ``families`` the same among the models of a family,
    where β differs. ``between`` correlates means of cells; its interval tells how well these are known, and nothing of
    cells that might have been chosen instead.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"family": "VAE", "beta": [1.0] * 5 + [2.0] * 5, "a": range(10)})
    >>> rows = rows.assign(b=[4, 3, 2, 1, 0, 9, 8, 7, 6, 5])
    >>> [round(rank_correlation(rows, "a", "b", scope=scope)[0], 2) for scope in SCOPES]
    [0.52, 0.52, -1.0, 1.0]
    """
    known = members[members[measure].notna() & members[score].notna()]
    keys = [name for name in ("world", "family", "beta") if name in known]
    cells = [
        (key[:-1], own[[measure, score]].to_numpy(dtype=float).T)
        for key, own in known.groupby(keys, sort=False)
    ]
    nothing = float("nan")
    if not cells:
        return Correlation(nothing, nothing, nothing, 0)
    families = [key for key, _ in cells]
    draw = np.random.default_rng(0)
    rho = _correlation([own[:, None] for _, own in cells], families, scope)[0]
    drawn = [own[:, draw.integers(own.shape[1], size=(RESAMPLINGS, own.shape[1]))] for _, own in cells]
    spread = _correlation(drawn, families, scope)
    spread = spread[np.isfinite(spread)]
    enough = len(known) >= FEWEST and len(spread) > 0
    lower, upper = np.quantile(spread, (0.025, 0.975)) if enough else (nothing, nothing)
    return Correlation(float(rho), float(lower), float(upper), len(known))


def _correlation(cells: list[Floats], families: list[tuple[Any, ...]], scope: Scope) -> Floats:
    """ρ (sample,) of cells (2, sample, model), of which some are of one family."""
    if scope == "between":
        return correlation(centred_ranks(np.stack([own.mean(-1) for own in cells], axis=-1)))
    if scope == "cells":
        groups = cells
    elif scope == "families":
        groups = [
            np.concatenate([own for own, other in zip(cells, families, strict=True) if other == one], axis=-1)
            for one in dict.fromkeys(families)
        ]
    else:
        groups = [np.concatenate(cells, axis=-1)]
    return correlation(np.concatenate([centred_ranks(own) for own in groups], axis=-1))
