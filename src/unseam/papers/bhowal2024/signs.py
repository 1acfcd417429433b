"""Scores by the definition of fits under the released penalty's signs: one decoder, and models in other roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from unseam.papers.bhowal2024.released import SIGNS
from unseam.papers.bhowal2024.setups import CELLS, FAMILIES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ADDED", "compared", "roles"]

ADDED = tuple(sign for sign in SIGNS if sign)
"""The three factors of the released penalty."""
ROLES: Mapping[str, Mapping[str, float]] = {
    "signs of the published order": dict(zip(FAMILIES, ADDED, strict=True)),
    "signs exchanged": dict(zip(FAMILIES, reversed(ADDED), strict=True)),
    "no penalty": dict.fromkeys(FAMILIES, 0.0),
}
"""Which model is measured under which factor."""


def compared(signs: pd.DataFrame) -> pd.DataFrame:
    """Scores of each decoder's three fits, as if they were three models.

    >>> import pandas as pd
    >>> one = {"world": "w", "family": "VAE", "beta": 1.0, "seed": 0, "loss": "sum", "point": 0, "invariant": 0.0}
    >>> rows = pd.DataFrame([one | {"sign": sign, "turned": 1 - sign, "stretched": 1.0} for sign in ADDED])
    >>> compared(rows)["score"].round(2).tolist()
    [0.33, 0.81, 1.0]
    """
    among = ("world", "loss", "family", "beta", "seed")
    return _defined(signs[signs["sign"] != 0], among, ("sign",))


def roles(signs: pd.DataFrame) -> pd.DataFrame:
    """Scores of the three models with the published order's signs, with the opposite ones, and with none.

    >>> import pandas as pd
    >>> one = {"world": "w", "seed": 0, "loss": "sum", "point": 0, "invariant": 0.0, "stretched": 0.0}
    >>> rows = pd.DataFrame([
    ...     one | {"family": cell.family, "beta": cell.beta, "sign": sign, "turned": 2 - sign}
    ...     for cell in CELLS for sign in SIGNS
    ... ])
    >>> found = roles(rows).set_index(["roles", "family"])["score"]
    >>> [round(float(found[role, "VAE"]), 2) for role in ("signs of the published order", "signs exchanged")]
    [0.67, 0.2]
    """
    import pandas as pd

    judged = signs[[(one, beta) in _JUDGED for one, beta in zip(signs["family"], signs["beta"], strict=True)]]
    parts = []
    for words, given in ROLES.items():
        chosen = judged[judged["sign"] == judged["family"].map(given)]
        parts.append(_defined(chosen, ("world", "loss", "seed"), ("family",)).assign(roles=words))
    return pd.concat(parts, ignore_index=True)


_JUDGED = {(cell.family, cell.beta) for cell in CELLS}


def _defined(rows: pd.DataFrame, among: Sequence[str], models: Sequence[str]) -> pd.DataFrame:
    """The score of §4.4 of rows that are compared within ``among`` and told apart by ``models``."""
    parts = []
    for kind in ("turned", "stretched"):
        largest = rows.groupby([*among, "point"])[kind].transform("max")
        parts.append(rows[kind] / largest.where(largest > 0, 1.0))
    scored = rows.assign(score=(2 * parts[0] + parts[1]) / 3)
    return scored.groupby([*among, *models], as_index=False, sort=False)[["score", "invariant"]].mean()
