"""Cells of the paper's tables beside ours: mean ± standard deviation over runs, and the rules that compare them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unseam.papers.artefact import Finding

__all__ = ["CELL_RULE", "ORDER_RULE", "Published", "cell", "correlated", "mean_interval", "order"]

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
    apart = math.hypot(max(published.std, HALF_A_DIGIT), std / math.sqrt(len(runs)))
    lower, upper = mean_interval(runs)
    return Finding(
        quantity,
        str(published),
        mean,
        lower,
        upper,
        "reproduced" if abs(mean - published.mean) <= 2 * apart else "not reproduced",
        f"± {std:.2f} over {len(runs)} runs",
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


def correlated(quantity: str, one: ArrayLike, other: ArrayLike, *, of: str = "runs") -> Finding:
    """Spearman's ρ with a bootstrap interval; the claim is that it is negative.

    >>> correlated("DtO and score", [0.1, 0.2, 0.3, 0.4, 0.5], [0.9, 0.8, 0.5, 0.4, 0.2]).verdict
    'reproduced'
    """
    runs = np.stack([np.asarray(values, dtype=float) for values in (one, other)])
    rho = _spearman(runs[:, None])[0]
    drawn = np.random.default_rng(0).integers(runs.shape[1], size=(RESAMPLINGS, runs.shape[1]))
    lower, upper = np.nanquantile(_spearman(runs[:, drawn]), (0.025, 0.975))
    return Finding(
        quantity,
        "clearly negative",
        float(rho),
        float(lower),
        float(upper),
        "reproduced" if upper < 0 else "not reproduced",
        f"{runs.shape[1]} {of}",
    )


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


def _spearman(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank correlation (sample,) of samples (2, sample, run); ties get their mean rank, no variation gives nan."""
    from scipy import stats

    ranks = stats.rankdata(samples, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    size = np.sqrt((centred**2).sum(-1))
    with np.errstate(invalid="ignore"):
        return np.asarray((centred[0] * centred[1]).sum(-1) / (size[0] * size[1]))
