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
    "Contrast",
    "Correlation",
    "Link",
    "Selection",
    "chain",
    "contrasts",
    "correlations",
    "describe_setting",
    "front",
    "half_width",
    "kinds_of",
    "score_columns",
    "selections",
    "settings_of",
    "varied",
]

LABEL_FREE: dict[str, int] = {
    "dto_active": -1,
    "cosine": -1,
    "hadamard_gap": -1,
    "coupling_active": -1,
    "coupling": -1,
    "precision_error": -1,
    "delta_kl": -1,
    "udr": 1,
    "replication": 1,
    "elbo": 1,
}
"""Measures that need no labels, with the direction that should be good."""
UNSUPERVISED = ("total_correlation", "wasserstein_correlation", "mean_pairwise_information", "udr")
"""Metrics that look at no factors; one has the name of a term of FactorVAE's and β-TCVAE's objective."""
KINDS = ("world", "architecture", "objective", "posterior")
"""Fields whose values make kinds of models."""
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


class Contrast(NamedTuple):
    """How much better one label-free measure predicts a score than another, within settings."""

    first: str
    second: str
    score: str
    difference: float
    """Of the rank correlations, each with the sign that makes a good measure positive, of the same models."""
    lower: float
    upper: float
    models: int


class Link(NamedTuple):
    """One link of the chain among models of one kind: whether, from seed to seed, its end follows its beginning."""

    name: str
    kind: str
    cause: str
    effect: str
    expected: int
    """Sign of the correlation where the link holds."""
    within: float
    """Rank correlation within settings, and its 95 % interval."""
    lower: float
    upper: float
    models: int

    @property
    def verdict(self) -> str:
        """``holds`` or ``reversed`` where the interval excludes 0, else ``open``; ``undefined`` without an interval.

        >>> Link("a", "", "x", "y", -1, -0.5, -0.7, -0.3, 30).verdict
        'holds'
        """
        if not np.isfinite([self.lower, self.upper]).all():
            return "undefined"
        if self.lower <= 0 <= self.upper:
            return "open"
        return "holds" if self.within * self.expected > 0 else "reversed"


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
    fraction: float
    """``gain`` over that of the choice by labels, with its interval."""
    fraction_lower: float
    fraction_upper: float
    groups: int


def varied(table: pd.DataFrame) -> list[str]:
    """Fields of trials that differ in a table, but for the seed.

    >>> import pandas as pd
    >>> varied(pd.DataFrame({"beta": [1.0, 4.0], "seed": [0, 1], "latent": [2, 2]}))
    ['beta']
    """
    names = [name for name in Trial.__dataclass_fields__ if name in table and name != "seed"]
    return [name for name in names if table[name].nunique(dropna=False) > 1]


def settings_of(table: pd.DataFrame, equal: Sequence[str] = ()) -> NDArray[Any]:
    """The setting of each model, counted from 0: models of one setting differ in nothing but their seed.

    Args:
        table: of a sweep.
        equal: further columns in which models of one group agree.

    >>> import pandas as pd
    >>> settings_of(pd.DataFrame({"beta": [1.0, 4.0, 1.0], "seed": [0, 0, 1]})).tolist()
    [0, 1, 0]
    """
    names = [*varied(table), *equal]
    if not names:
        return np.zeros(len(table), dtype=np.int64)
    return table.groupby(names, dropna=False, sort=False).ngroup().to_numpy(dtype=np.int64)


def kinds_of(table: pd.DataFrame) -> pd.Series[str]:
    """The kind of each model: its objective, posterior, architecture and world, as far as these vary.

    >>> import pandas as pd
    >>> kinds_of(pd.DataFrame({"objective": ["a", "b"], "posterior": ["full"] * 2, "beta": [1, 2]})).tolist()
    ['a', 'b']
    """
    import pandas as pd

    names = [name for name in KINDS if name in varied(table)]
    return pd.Series(
        [", ".join(map(str, row)) for row in table[names].to_numpy()], index=table.index, dtype=str
    )


def score_columns(table: pd.DataFrame) -> list[str]:
    """Columns that are scores against known factors; those that belong to another metric at the end.

    >>> import pandas as pd
    >>> score_columns(pd.DataFrame({"mig": [0.1], "dci_completeness": [0.2], "udr": [0.3], "dto": [1.0]}))
    ['mig', 'dci_completeness']
    """
    known = [metric.__name__ for metric in METRICS if metric.__name__ not in UNSUPERVISED]
    found = [
        str(name)
        for name in table
        if str(name).startswith(tuple(known))
        and table[name].dtype.kind in "fiu"
        and table[name].notna().any()
    ]
    return sorted(found, key=lambda name: name not in known)


def correlations(table: pd.DataFrame, *, equal: Sequence[str] = (), seed: int = 0) -> list[Correlation]:
    """Spearman correlations of every label-free measure with every score.

    Pooled over settings they mostly say that β changes everything at once; within a setting, that a model with a
    more orthogonal decoder disentangles more than its twin of another seed. Intervals are bootstrapped: over the
    seeds of each setting, and over settings, with ranks taken once.

    Args:
        table: of a sweep.
        equal: further columns in which the models that are compared agree, such as ``active``: with more latents in use
            both a measure and a score may be another.
        seed: of the resamples.

    >>> import pandas as pd
    >>> values = np.arange(10.0)
    >>> found = correlations(pd.DataFrame({"beta": [1, 2] * 5, "seed": values, "cosine": values, "mig": -values}))
    >>> found[0].measure, round(found[0].within, 6), round(found[0].pooled, 6)
    ('cosine', -1.0, -1.0)
    """
    generator = np.random.default_rng(seed)
    groups = settings_of(table, equal)
    found = []
    for name in (name for name in LABEL_FREE if name in table):
        for score in score_columns(table):
            (a, b), g = _known(table, groups, name, score)
            sizes = np.bincount(g, minlength=1)
            (inner,) = _within([a], b, g, generator)
            outer = _pooled(a, b, g, generator)
            found.append(
                Correlation(name, score, *_interval(inner), *outer, len(a), int((sizes >= LEAST).sum()))
            )
    return found


def contrasts(
    table: pd.DataFrame,
    first: str = "replication",
    others: Sequence[str] = ("udr", "dto_active"),
    *,
    seed: int = 0,
) -> list[Contrast]:
    """Whether one label-free measure predicts scores better than others, on the same models and resamples.

    Args:
        table: of a sweep.
        first: the measure.
        others: what it is compared with.
        seed: of the resamples.

    >>> import pandas as pd
    >>> values = np.arange(10.0)
    >>> frame = pd.DataFrame({"seed": values, "replication": values, "udr": -values, "mig": values})
    >>> [(one.second, round(one.difference, 6)) for one in contrasts(frame)]
    [('udr', 2.0)]
    """
    generator = np.random.default_rng(seed)
    groups, found = settings_of(table), []
    for second in (name for name in others if first in table and name in table):
        for score in score_columns(table):
            (a, b, c), g = _known(table, groups, first, second, score)
            left, right = _within([LABEL_FREE[first] * a, LABEL_FREE[second] * b], c, g, generator)
            found.append(Contrast(first, second, score, *_interval(left - right), len(g)))
    return found


def chain(table: pd.DataFrame, *, equal: Sequence[str] = (), seed: int = 0) -> list[Link]:
    """Each link of the chain by kind of model: posterior to Jacobian, Jacobian to density, density to factors.

    A link is the rank correlation, among models that differ in nothing but their seed, of the measure that it begins
    with and the one that it ends with: the error of Equation 7, DtO, the coupling of the density's components (of
    active latents; else of all, or the Hadamard gap) and the first score.

    Args:
        table: of a sweep.
        equal: as in :func:`correlations`.
        seed: of the resamples.

    >>> import pandas as pd
    >>> values = np.arange(10.0)
    >>> frame = pd.DataFrame({"seed": values, "precision_error": values, "dto_active": values, "mig": -values})
    >>> [(one.name, round(one.within, 6), one.expected) for one in chain(frame)]
    [('posterior to Jacobian', 1.0, 1)]
    """
    measured = [
        name
        for name in ("coupling_active", "coupling", "hadamard_gap")
        if name in table and table[name].notna().any()
    ]
    density, scores = next(iter(measured), "hadamard_gap"), score_columns(table)
    links = [
        ("posterior to Jacobian", "precision_error", "dto_active", 1),
        ("Jacobian to density", "dto_active", density, 1),
        ("density to factors", density, next(iter(scores), ""), -1),
    ]
    generator = np.random.default_rng(seed)
    groups, kinds, found = settings_of(table, equal), kinds_of(table), []
    for name, cause, effect, expected in links:
        for kind in kinds.unique() if cause in table and effect in table else ():
            chosen = (kinds == kind).to_numpy()
            (a, b), g = _known(table[chosen], groups[chosen], cause, effect)
            (values,) = _within([a], b, g, generator)
            found.append(Link(name, kind, cause, effect, expected, *_interval(values), len(a)))
    return found


def _known(table: pd.DataFrame, groups: NDArray[Any], *names: str) -> tuple[Sequence[Numbers], NDArray[Any]]:
    """Columns and settings of the models where all of them are defined."""
    values = table[list(names)].to_numpy(dtype=np.float64)
    known = np.isfinite(values).all(1)
    return list(values[known].T), groups[known]


def _within(
    firsts: Sequence[Numbers], second: Numbers, g: NDArray[Any], generator: np.random.Generator
) -> list[Numbers]:
    """Correlations of ranks within groups, then those of resampled members of each, the same for all ``firsts``."""
    large = np.bincount(g, minlength=1)[g] >= LEAST
    if not large.any():
        return [np.full(1, np.nan) for _ in firsts]
    parts = [np.flatnonzero(large)[part] for part in _parts(g[large])]
    starts = np.cumsum([0, *map(len, parts[:-1])])

    # in [0, 1], so that large groups do not outweigh small ones by their ranks
    def ranked(values: Numbers) -> Numbers:
        return np.concatenate([_ranks(values[part]) / len(part) for part in parts])

    drawn = [generator.multinomial(len(part), np.full(len(part), 1 / len(part)), RESAMPLES) for part in parts]
    weights = np.concatenate([np.ones((1, large.sum())), np.concatenate(drawn, axis=1)])
    return [_weighted(ranked(first), ranked(second), weights, starts) for first in firsts]


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
        return np.asarray(np.where(scale > 1e-9, (product(a, b) / scale).clip(-1, 1), np.nan))


def _interval(values: Numbers) -> Interval:
    """The first value, and the central 95 % of the others."""
    others = values[1:][np.isfinite(values[1:])]
    lower, upper = np.quantile(others, [0.025, 0.975]) if len(others) else (np.nan, np.nan)
    return float(values[0]), float(lower), float(upper)


def _ranks(values: Numbers) -> Numbers:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=np.float64)


def selections(table: pd.DataFrame) -> list[Selection]:
    """What is gained by choosing one seed of each setting by a label-free measure, against a random choice.

    Intervals are Student's t over settings, of the fraction by its linearisation, and NaN for one setting.

    Args:
        table: of a sweep.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"seed": range(4), "udr": [0.1, 0.4, 0.2, 0.3], "mig": [0.0, 0.4, 0.1, 0.3]})
    >>> [(one.criterion, one.chosen, round(one.random, 6), one.best) for one in selections(frame)]
    [('udr', 0.4, 0.2, 0.4)]
    """
    groups, found = settings_of(table), []
    for name in (name for name in LABEL_FREE if name in table):
        for score in score_columns(table):
            (a, b), g = _known(table, groups, name, score)
            rows = [_choose(LABEL_FREE[name] * a[part], b[part]) for part in _parts(g) if len(part) >= LEAST]
            if not rows:
                continue
            chosen, random, best = np.array(rows).T
            gains, most = chosen - random, best - random
            fraction = gains.mean() / most.mean() if most.mean() > 0 else float("nan")
            half, around = half_width(gains), half_width(gains - fraction * most) / max(most.mean(), 1e-12)
            gain, mean = float(gains.mean()), [float(values.mean()) for values in (chosen, random, best)]
            found.append(
                Selection(
                    name, score, mean[0], mean[1], mean[2], gain, gain - half, gain + half,
                    float(fraction), float(fraction - around), float(fraction + around), len(rows),
                )
            )  # fmt: skip
    return found


def half_width(values: Numbers) -> float:
    """Half of the 95 % interval of a mean, by Student's t; NaN for fewer than two values.

    >>> round(half_width(np.array([1.0, 2.0, 3.0])), 3)
    2.484
    """
    from scipy.stats import t

    if len(values) < 2:
        return float("nan")
    return float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


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
