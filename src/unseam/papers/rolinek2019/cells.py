"""Cells of the paper's tables beside ours: mean ± standard deviation over runs, and the rules that compare them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unseam.papers.artefact import Finding
from unseam.papers.ranks import spearman

__all__ = [
    "CELL_RULE",
    "LEVEL",
    "ORDER_RULE",
    "Published",
    "cell",
    "correlated",
    "mean_interval",
    "order",
    "resampled",
]

CELL_RULE = (
    "A cell is reproduced where our mean lies within two published standard deviations of the published mean (of half "
    "a printed digit at least), with the standard error of our mean allowed for."
)
ORDER_RULE = "An order holds where a one-sided Mann–Whitney test over runs gives p < 0.05."
HALF_A_DIGIT = 0.005
LEVEL = 0.05
RESAMPLINGS = 2000


class Published(NamedTuple):
    """A published cell.

    >>> str(Published(0.33, 0.15))
    '0.33 ± 0.15'
    """

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std:.2f}"


def cell(quantity: str, published: Published, values: ArrayLike) -> Finding:
    """Our runs against a published cell, by :data:`CELL_RULE`.

    >>> cell("DtO", Published(0.76, 0.08), [0.7, 0.8]).verdict
    'reproduced'
    """
    runs = np.asarray(values, dtype=float)
    mean, std = float(runs.mean()), float(runs.std(ddof=1)) if len(runs) > 1 else 0.0
    theirs = max(published.std, HALF_A_DIGIT)
    apart, allowed = abs(mean - published.mean), 2 * math.hypot(theirs, std / math.sqrt(len(runs)))
    lower, upper = mean_interval(runs)
    close = ", only with our standard error allowed for" if 2 * theirs < apart <= allowed else ""
    return Finding(
        quantity,
        str(published),
        mean,
        lower,
        upper,
        "reproduced" if apart <= allowed else "not reproduced",
        f"± {std:.2f} over {len(runs)} runs{close}",
    )


def order(quantity: str, smaller: ArrayLike, larger: ArrayLike) -> Finding:
    """Whether runs of one kind lie below those of another, by :data:`ORDER_RULE`; measured is the mean difference.

    >>> order("DtO of β-VAE less AE's", [0.1, 0.2, 0.3, 0.2], [0.8, 0.9, 1.0, 0.7]).verdict
    'reproduced'
    """
    from scipy import stats

    low, high = np.asarray(smaller, dtype=float), np.asarray(larger, dtype=float)
    chance = float(stats.mannwhitneyu(low, high, alternative="less").pvalue)
    return Finding(
        quantity,
        "< 0",
        float(low.mean() - high.mean()),
        None,
        None,
        "reproduced" if chance < LEVEL else "not reproduced",
        f"p = {chance:.2g}",
    )


def correlated(
    quantity: str, one: ArrayLike, other: ArrayLike, *, of: str = "runs", groups: ArrayLike | None = None
) -> Finding:
    """Spearman's ρ with a bootstrap interval; the claim is that it is negative.

    Args:
        quantity: what is correlated.
        one, other: (value,) each.
        of: what a value is of.
        groups: (value,), equal for values that belong together and are drawn together, such as those of one run.

    >>> correlated("DtO and score", [0.1, 0.2, 0.3, 0.4, 0.5], [0.9, 0.8, 0.5, 0.4, 0.2]).verdict
    'reproduced'
    """
    values = np.stack([np.asarray(part, dtype=float) for part in (one, other)])
    rho = float(spearman(values[:, None])[0])
    lower, upper = np.nanquantile(
        [float(spearman(values[:, None, drawn])[0]) for drawn in resampled(values.shape[1], groups)],
        (0.025, 0.975),
    )
    return Finding(
        quantity,
        "clearly negative",
        rho,
        float(lower),
        float(upper),
        "reproduced" if upper < 0 else "not reproduced",
        f"{values.shape[1]} {of}",
    )


def resampled(count: int, groups: ArrayLike | None = None) -> list[NDArray[np.int64]]:
    """Places of bootstrap samples, the same at every call.

    >>> drawn = resampled(4, groups=[0, 0, 1, 1])
    >>> len(drawn), all((0 in one) == (1 in one) for one in drawn)
    (2000, True)
    """
    labels = np.arange(count) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    members = [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]
    draws = np.random.default_rng(0).integers(len(members), size=(RESAMPLINGS, len(members)))
    return [np.concatenate([members[label] for label in draw]) for draw in draws]


def mean_interval(runs: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """95 % interval of the mean over runs (Student's t), none of one run.

    >>> mean_interval(np.array([1.0, 1.0, 1.0]))
    (1.0, 1.0)
    """
    from scipy import stats

    if len(runs) < 2:
        return None, None
    reach = float(stats.t.ppf(0.975, len(runs) - 1) * runs.std(ddof=1) / math.sqrt(len(runs)))
    return float(runs.mean()) - reach, float(runs.mean()) + reach
