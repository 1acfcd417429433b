"""What a sweep's table says: measures over seeds, correlations with intervals, selection without labels, fronts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unseam.metrics.evaluate import METRICS
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LABEL_FREE",
    "Correlation",
    "Selection",
    "correlations",
    "describe_setting",
    "front",
    "score_columns",
    "selections",
    "settings_of",
    "varied",
]

LABEL_FREE: dict[str, int] = {
    "dto_active": -1,
    "cosine": -1,
    "hadamard_gap": -1,
    "coupling": -1,
    "precision_error": -1,
    "delta_kl": -1,
    "udr": 1,
    "replication": 1,
    "elbo": 1,
}
"""Measures that need no labels, with the direction that should be good."""
RESAMPLES, LEAST = 1000, 3
"""Resamples of an interval, and models that a group must have."""
Numbers = NDArray[np.float64]
Interval = tuple[float, float, float]
NONE: Interval = (float("nan"), float("nan"), float("nan"))


class Correlation(NamedTuple):
    """Rank correlation of a label-free measure with a score, and its 95 % interval; NaN where there are too few."""

    measure: str
    score: str
    within: float
    """Over models that differ in nothing but their seed, ranked in their group."""
    within_lower: float
    within_upper: float
    pooled: float
    """Over all models: that of settings and of seeds, mixed."""
    pooled_lower: float
    pooled_upper: float
    models: int
    groups: int
    """Settings with at least :data:`LEAST` seeds."""


class Selection(NamedTuple):
    """What choosing one seed of each setting by a criterion gains."""

    criterion: str
    score: str
    chosen: float
    """Mean score of the chosen models."""
    random: float
    """Mean score of all: that of a random choice."""
    best: float
    """Mean of the best scores: the choice by labels."""
    gain: float
    """``chosen − random`` with its 95 % interval over settings."""
    lower: float
    upper: float
    groups: int


def varied(table: pd.DataFrame) -> list[str]:
    """Fields of trials that differ in a table, but for the seed.

    >>> import pandas as pd
    >>> varied(pd.DataFrame({"beta": [1.0, 4.0], "seed": [0, 1], "latent": [2, 2]}))
    ['beta']
    """
    names = [name for name in Trial.__dataclass_fields__ if name in table and name != "seed"]
    return [name for name in names if table[name].nunique(dropna=False) > 1]


def settings_of(table: pd.DataFrame) -> NDArray[Any]:
    """The setting of each model, counted from 0: models of one setting differ in nothing but their seed.

    >>> import pandas as pd
    >>> settings_of(pd.DataFrame({"beta": [1.0, 4.0, 1.0], "seed": [0, 0, 1]})).tolist()
    [0, 1, 0]
    """
    names = varied(table)
    if not names:
        return np.zeros(len(table), dtype=np.int64)
    return table.groupby(names, dropna=False, sort=False).ngroup().to_numpy(dtype=np.int64)


def score_columns(table: pd.DataFrame) -> list[str]:
    """Columns that are scores against known factors; those that belong to another metric at the end.

    >>> import pandas as pd
    >>> score_columns(pd.DataFrame({"mig": [0.1], "dci_completeness": [0.2], "udr": [0.3], "dto": [1.0]}))
    ['mig', 'dci_completeness']
    """
    known = [metric.__name__ for metric in METRICS if metric.__name__ != "udr"]
    found = [
        str(name)
        for name in table
        if str(name).startswith(tuple(known))
        and table[name].dtype.kind in "fiu"
        and table[name].notna().any()
    ]
    return sorted(found, key=lambda name: name not in known)


def correlations(table: pd.DataFrame, *, seed: int = 0) -> list[Correlation]:
    """Spearman correlations of every label-free measure with every score.

    Pooled over settings they mostly say that β changes everything at once; within a setting, that a model with a
    more orthogonal decoder disentangles more than its twin of another seed. Intervals are bootstrapped: over the
    seeds of each setting, and over settings, with ranks taken once.

    Args:
        table: of a sweep.
        seed: of the resamples.

    >>> import pandas as pd
    >>> values = np.arange(10.0)
    >>> found = correlations(pd.DataFrame({"beta": [1, 2] * 5, "seed": values, "cosine": values, "mig": -values}))
    >>> found[0].measure, round(found[0].within, 6), round(found[0].pooled, 6)
    ('cosine', -1.0, -1.0)
    """
    generator = np.random.default_rng(seed)
    groups = settings_of(table)
    found = []
    for name in (name for name in LABEL_FREE if name in table):
        for score in score_columns(table):
            pair = table[[name, score]].to_numpy(dtype=np.float64)
            known = np.isfinite(pair).all(1)
            a, b, g = pair[known, 0], pair[known, 1], groups[known]
            sizes = np.bincount(g, minlength=1)
            large = sizes[g] >= LEAST
            inner = _within(a[large], b[large], g[large], generator)
            outer = _pooled(a, b, g, generator)
            found.append(Correlation(name, score, *inner, *outer, len(a), int((sizes >= LEAST).sum())))
    return found


def _within(a: Numbers, b: Numbers, g: NDArray[Any], generator: np.random.Generator) -> Interval:
    """Correlation of ranks within groups, and its interval over resampled members of each."""
    if not len(a):
        return NONE
    parts = _parts(g)
    starts = np.cumsum([0, *map(len, parts[:-1])])
    # in [0, 1], so that large groups do not outweigh small ones by their ranks
    a, b = (np.concatenate([_ranks(values[part]) / len(part) for part in parts]) for values in (a, b))
    drawn = [generator.multinomial(len(part), np.full(len(part), 1 / len(part)), RESAMPLES) for part in parts]
    weights = np.concatenate([np.ones((1, len(a))), np.concatenate(drawn, axis=1)])
    return _interval(_weighted(a, b, weights, starts))


def _pooled(a: Numbers, b: Numbers, g: NDArray[Any], generator: np.random.Generator) -> Interval:
    """Correlation of ranks over all, and its interval over resampled settings, or over models of one setting."""
    if len(a) < LEAST:
        return NONE
    clusters = np.unique(g, return_inverse=True)[1]
    if clusters.max() == 0:
        clusters = np.arange(len(a))
    count = int(clusters.max()) + 1
    drawn = generator.multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(float)
    weights = np.concatenate([np.ones((1, len(a))), drawn[:, clusters]])
    return _interval(_weighted(_ranks(a), _ranks(b), weights, np.array([0])))


def _parts(g: NDArray[Any]) -> list[NDArray[np.int64]]:
    """The places of each group."""
    order = np.argsort(g, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(g[order])) + 1)


def _weighted(a: Numbers, b: Numbers, weights: Numbers, starts: NDArray[Any]) -> Numbers:
    """Correlations (resample,) of values centred within groups, which begin at some places, with integer weights."""

    def sums(values: Numbers) -> Numbers:
        return np.asarray(np.add.reduceat(values, starts, axis=1))

    size = np.maximum(sums(weights), 1.0)

    def product(x: Numbers, y: Numbers) -> Numbers:
        return np.asarray(weights @ (x * y) - (sums(weights * x) * sums(weights * y) / size).sum(1))

    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.sqrt(np.maximum(product(a, a) * product(b, b), 0.0))
        return np.asarray(np.where(scale > 1e-9, product(a, b) / scale, np.nan))


def _interval(values: Numbers) -> Interval:
    """The first value, and the central 95 % of the others."""
    others = values[1:][np.isfinite(values[1:])]
    lower, upper = np.quantile(others, [0.025, 0.975]) if len(others) else (np.nan, np.nan)
    return float(values[0]), float(lower), float(upper)


def _ranks(values: Numbers) -> Numbers:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=np.float64)


def selections(table: pd.DataFrame, *, seed: int = 0) -> list[Selection]:
    """What is gained by choosing one seed of each setting by a label-free measure, against a random choice.

    Args:
        table: of a sweep.
        seed: of the resamples of settings.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"seed": range(4), "udr": [0.1, 0.4, 0.2, 0.3], "mig": [0.0, 0.4, 0.1, 0.3]})
    >>> [(one.criterion, one.chosen, round(one.random, 6), one.best) for one in selections(frame)]
    [('udr', 0.4, 0.2, 0.4)]
    """
    generator = np.random.default_rng(seed)
    groups, found = settings_of(table), []
    for name in (name for name in LABEL_FREE if name in table):
        for score in score_columns(table):
            pair = table[[name, score]].to_numpy(dtype=np.float64)
            known = np.isfinite(pair).all(1)
            parts = (np.flatnonzero(known)[part] for part in _parts(groups[known]))
            rows = [
                _choose(LABEL_FREE[name] * pair[part, 0], pair[part, 1])
                for part in parts
                if len(part) >= LEAST
            ]
            if not rows:
                continue
            chosen, random, best = np.array(rows).T
            drawn = generator.integers(len(rows), size=(RESAMPLES, len(rows)))
            gains = np.concatenate([[(chosen - random).mean()], (chosen - random)[drawn].mean(1)])
            interval = _interval(gains) if len(rows) > 1 else (float(gains[0]), float("nan"), float("nan"))
            means = [float(values.mean()) for values in (chosen, random, best)]
            found.append(Selection(name, score, means[0], means[1], means[2], *interval, len(rows)))
    return found


def _choose(criterion: Numbers, scores: Numbers) -> tuple[float, float, float]:
    """Score of the models with the best criterion, of all, and of the best; means where several share it."""
    return float(scores[criterion == criterion.max()].mean()), float(scores.mean()), float(scores.max())


def front(values: Numbers) -> NDArray[np.bool_]:
    """The Pareto front: which rows (model, quantity) no other row equals or exceeds in all, and exceeds in one.

    >>> front(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])).tolist()
    [True, True, False]
    """
    keep = np.asarray(np.isfinite(values).all(1))
    for place in np.flatnonzero(keep):
        above = (values >= values[place]).all(1) & (values > values[place]).any(1)
        keep[place] = not above.any()
    return keep


def describe_setting(row: Mapping[str, object], names: Sequence[str]) -> str:
    """The varied fields of a row, on one line.

    >>> describe_setting({"beta": 4.0, "encoder_widths": "[8]", "seed": 1}, ["beta", "encoder_widths"])
    'beta 4, encoder_widths [8]'
    """
    return ", ".join(
        f"{name} {value:g}" if isinstance(value := row[name], float) else f"{name} {value}" for name in names
    )
