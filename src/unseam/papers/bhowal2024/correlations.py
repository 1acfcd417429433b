"""Rank correlations over models, with intervals: over all, within families and cells, and between cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from unseam.papers.artefact import Finding
from unseam.papers.ranks import Floats, centred_ranks, correlation

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCOPES", "Correlation", "Scope", "differences", "judged", "rank_correlation"]

Scope = Literal["all", "families", "cells", "between"]
SCOPES: tuple[Scope, ...] = ("all", "families", "cells", "between")
"""Over all models; among models of one family, and of one cell (family and β), pooled; over the cells' means."""
RESAMPLINGS = 2000
FEWEST = 5
"""Models below which there is no interval."""


class Correlation(NamedTuple):
    """Spearman's ρ, its 95 % interval, and the number of models; NaN where there is none."""

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
    nothing = float("nan")
    if known.empty:
        return Correlation(nothing, nothing, nothing, 0)
    rho, spread = _resampled(known, measure, score, scope)
    return Correlation(rho, *_interval(spread, len(known)), len(known))


def differences(
    members: pd.DataFrame, measures: Sequence[str], score: str, *, scope: Scope = "all"
) -> Iterator[tuple[str, str, Correlation]]:
    """By how much ρ of a measure exceeds that of another, for every pair of them, over the same resampled models.

    Models that lack one of the measures are left out of all pairs.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"family": "VAE", "beta": 1.0, "a": range(8), "b": range(8), "c": [0, 2, 1, 4, 3, 6, 5, 7]})
    >>> [(one, other, round(found.rho, 2)) for one, other, found in differences(rows, ("a", "c"), "b")]
    [('a', 'c', 0.07)]
    """
    known = members.dropna(subset=[*measures, score])
    if known.empty:
        return
    drawn = {name: _resampled(known, name, score, scope) for name in measures}
    for one, other in itertools.combinations(measures, 2):
        (rho, spread), (less, others) = drawn[one], drawn[other]
        yield one, other, Correlation(rho - less, *_interval(spread - others, len(known)), len(known))


def _resampled(known: pd.DataFrame, measure: str, score: str, scope: Scope) -> tuple[float, Floats]:
    """ρ, and ρ of models drawn anew from each cell: the same ones for any measure and score."""
    keys = [name for name in ("world", "family", "beta") if name in known]
    cells = [
        (key[:-1], own[[measure, score]].to_numpy(dtype=float).T)
        for key, own in known.groupby(keys, sort=False)
    ]
    families = [key for key, _ in cells]
    draw = np.random.default_rng(0)
    drawn = [own[:, draw.integers(own.shape[1], size=(RESAMPLINGS, own.shape[1]))] for _, own in cells]
    rho = _correlation([own[:, None] for _, own in cells], families, scope)[0]
    return float(rho), _correlation(drawn, families, scope)


def _interval(spread: Floats, models: int) -> tuple[float, float]:
    spread = spread[np.isfinite(spread)]
    if models < FEWEST or not len(spread):
        return float("nan"), float("nan")
    lower, upper = np.quantile(spread, (0.025, 0.975))
    return float(lower), float(upper)


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
