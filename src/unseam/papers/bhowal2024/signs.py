"""Scores of fits under the released penalty's signs: one decoder under three of them, and models in other roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unseam.papers.artefact import Finding
from unseam.papers.bhowal2024.released import SIGNS
from unseam.papers.bhowal2024.setups import FAMILIES
from unseam.papers.rolinek2019.cells import mean_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ADDED", "compared", "followed_factors", "one_score", "relative", "roles"]

ADDED = tuple(sign for sign in SIGNS if sign)
"""The three factors of the released penalty, in the order of the paper's columns."""
SAME = 1e-6
ROLES: Mapping[str, Mapping[str, float]] = {
    "factors as released": dict(zip(FAMILIES, ADDED, strict=True)),
    "factors exchanged": dict(zip(FAMILIES, reversed(ADDED), strict=True)),
    "no penalty": dict.fromkeys(FAMILIES, 0.0),
}
"""Which model is measured under which factor."""


def one_score(words: str, scores: NDArray[np.float64], cases: str) -> Finding:
    """Whether a decoder has one score under three factors; the note says how they are ordered.

    Args:
        words: what is scored, and how.
        scores: (case, factor), relative to the largest.
        cases: what they are.

    >>> one_score("a decoder", np.array([[0.3, 0.7, 1.0], [0.2, 0.9, 1.0]]), "starts").note
    '+1: 0.250, -0.7: 0.800, -1.4: 1.000; ordered by the factor for 100 % of 2 starts (17 % by chance)'
    """
    apart = scores.max(1) - scores.min(1)
    means = ", ".join(f"{sign:+g}: {value:.3f}" for sign, value in zip(ADDED, scores.mean(0), strict=True))
    follows = float((np.diff(scores, axis=1) > 0).all(1).mean())
    return Finding(
        f"{words}: one decoder under three factors, largest less smallest",
        "0: one decoder, one score",
        float(apart.mean()),
        *mean_interval(apart),
        "reproduced" if apart.max() < SAME else "not reproduced",
        f"{means}; ordered by the factor for {100 * follows:.0f} % of {len(apart)} {cases} (17 % by chance)",
    )


def compared(signs: pd.DataFrame) -> pd.DataFrame:
    """Scores of each decoder's three fits, as if they were three models.

    >>> import pandas as pd
    >>> one = {"world": "w", "family": "VAE", "beta": 1.0, "seed": 0, "passes": 1, "point": 0, "released": 2.0}
    >>> rows = pd.DataFrame([one | {"sign": sign, "turned": 1 - sign, "stretched": 1.0} for sign in ADDED])
    >>> compared(rows)[["defined", "released"]].round(2).to_numpy().tolist()
    [[0.33, 1.0], [0.81, 1.0], [1.0, 1.0]]
    """
    among = ("world", "passes", "family", "beta", "seed")
    return _scored(signs[signs["sign"] != 0], among, ("sign",))


def roles(signs: pd.DataFrame) -> pd.DataFrame:
    """Scores of the three models with the factors they were given, with the opposite ones, and with none.

    >>> import pandas as pd
    >>> from unseam.papers.bhowal2024.setups import CELLS
    >>> one = {"world": "w", "seed": 0, "passes": 1, "point": 0, "stretched": 0.0}
    >>> rows = pd.DataFrame([
    ...     one | {"family": cell.family, "beta": cell.beta, "sign": sign, "turned": 2 - sign, "released": 2 - sign}
    ...     for cell in CELLS for sign in SIGNS
    ... ])
    >>> found = roles(rows).set_index(["roles", "family"])["released"]
    >>> [round(float(found[role, "VAE"]), 2) for role in ("factors as released", "factors exchanged")]
    [1.0, 0.29]
    """
    import pandas as pd

    parts = []
    for words, given in ROLES.items():
        chosen = signs[signs["sign"] == signs["family"].map(given)]
        parts.append(_scored(chosen, ("world", "passes", "seed"), ("family",)).assign(roles=words))
    return pd.concat(parts, ignore_index=True)


def followed_factors(signs: pd.DataFrame) -> pd.DataFrame:
    """How far fits follow the factor and leave their random start: one row per data set and number of passes.

    ``ordered`` is the share of points of all models whose released scores are ordered by the factor; ``started`` the
    cosine of M_D, fitted without penalty, and its start, as a mean over models with its 95 % interval ``lower`` to
    ``upper``; ``started_least`` and ``started_most`` are the extremes of models' means under the three factors.

    >>> import pandas as pd
    >>> one = {"world": "w", "family": "VAE", "beta": 1.0, "passes": 1, "point": 0}
    >>> rows = [one | {"seed": seed, "sign": sign, "released": 2 - sign} for seed in range(2) for sign in SIGNS]
    >>> followed_factors(pd.DataFrame(rows).assign(started=0.5))[["ordered", "started", "upper"]].to_numpy().tolist()
    [[1.0, 0.5, 0.5]]
    """
    import pandas as pd

    rows, added = [], list(ADDED)
    for (world, passes), part in signs.groupby(["world", "passes"], sort=False):
        scores = part.pivot_table(
            index=["family", "beta", "seed", "point"], columns="sign", values="released"
        )
        means = part.groupby(["family", "beta", "seed", "sign"])["started"].mean().unstack("sign")
        free = means[0.0].to_numpy(dtype=float)
        found = (float((np.diff(scores[added], axis=1) > 0).all(1).mean()), float(free.mean()))
        moved = means[added].to_numpy(dtype=float)
        rows.append((world, passes, *found, *mean_interval(free), float(moved.min()), float(moved.max())))
    names = ("world", "passes", "ordered", "started", "lower", "upper", "started_least", "started_most")
    return pd.DataFrame(rows, columns=names)


def relative(rows: pd.DataFrame, kind: str, among: Sequence[str]) -> pd.Series[float]:
    """A distance over its maximum at the point among the rows compared; 0 where none has any (§4.4).

    >>> import pandas as pd
    >>> relative(pd.DataFrame({"point": [0, 0, 1], "far": [1.0, 4.0, 0.0]}), "far", ()).tolist()
    [0.25, 1.0, 0.0]
    """
    largest = rows.groupby([*among, "point"])[kind].transform("max")
    found: pd.Series[float] = (rows[kind] / largest.where(largest > 0, 1.0)).where(largest > 0, 0.0)
    return found


def _scored(rows: pd.DataFrame, among: Sequence[str], models: Sequence[str]) -> pd.DataFrame:
    """Means over points of rows that are compared within ``among`` and told apart by ``models``.

    ``defined`` is the score of §4.4, ``released`` that of the released code, over its maximum too.
    """
    turned, stretched, released = (
        relative(rows, kind, among) for kind in ("turned", "stretched", "released")
    )
    scored = rows.assign(defined=(2 * turned + stretched) / 3, released=released)
    return scored.groupby([*among, *models], as_index=False, sort=False)[["defined", "released"]].mean()
