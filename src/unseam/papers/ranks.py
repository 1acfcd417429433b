"""Rank correlations of many samples at once, as bootstrap intervals need them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "centred_ranks", "correlation", "spearman"]

Floats = NDArray[np.float64]


def spearman(samples: Floats) -> Floats:
    """Rank correlation (sample,) of samples (2, sample, value); ties get their mean rank, no variation gives NaN.

    >>> spearman(np.array([[[1.0, 2.0, 3.0]], [[1.0, 4.0, 9.0]]])).round(6).tolist()
    [1.0]
    """
    return correlation(centred_ranks(samples))


def centred_ranks(values: Floats) -> Floats:
    """Ranks along the last axis, less their mean.

    >>> centred_ranks(np.array([5.0, 1.0, 9.0])).tolist()
    [0.0, -1.0, 1.0]
    """
    from scipy import stats

    ranks = stats.rankdata(values, axis=-1)
    return np.asarray(ranks - ranks.mean(-1, keepdims=True))


def correlation(centred: Floats) -> Floats:
    """Correlation (...) of two rows (2, ..., value) whose means are zero.

    >>> correlation(np.array([[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]])).round(6).tolist()
    -1.0
    """
    size = np.sqrt((centred**2).sum(-1))
    with np.errstate(invalid="ignore"):
        return np.asarray((centred[0] * centred[1]).sum(-1) / (size[0] * size[1]))
