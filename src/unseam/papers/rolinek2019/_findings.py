"""Findings of exact checks and of missing data sets, and tables of what was measured on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from unseam.data import MissingFileError
from unseam.drawing import panels
from unseam.papers.artefact import Finding, Verdict
from unseam.papers.rolinek2019.setups import NAMES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["checked", "draw_missing", "missing_findings", "missing_table", "share", "table_of"]


def checked(quantity: str, published: str, value: float, holds: bool, note: str = "") -> Finding:
    """A number without chance in it."""
    return Finding(quantity, published, float(value), None, None, _said(holds), note)


def share(quantity: str, published: str, count: int, total: int, holds: bool, note: str = "") -> Finding:
    """A share of random cases, with Clopper and Pearson's interval."""
    from scipy.stats import binomtest

    reach = binomtest(count, total).proportion_ci()
    words = f"{count} of {total}" + (f"; {note}" if note else "")
    return Finding(
        quantity, published, count / total, float(reach.low), float(reach.high), _said(holds), words
    )


def missing_table(errors: Mapping[str, MissingFileError]) -> pd.DataFrame:
    """One row per data set whose file is missing: its name and how to get the file."""
    import pandas as pd

    return pd.DataFrame([{"world": world, "need": error.need} for world, error in errors.items()])


def missing_findings(tables: Mapping[str, pd.DataFrame]) -> tuple[Finding, ...]:
    """One finding per data set in the table ``missing``, if there is one."""
    if "missing" not in tables:
        return ()
    rows = tables["missing"][["world", "need"]].itertuples(index=False)
    return tuple(
        Finding(NAMES[str(world)], "", None, None, None, "cannot be run here", str(need))
        for world, need in rows
    )


def draw_missing() -> Figure:
    """The figure of an artefact whose data set is missing."""
    return panels(["the data set is not here"], width=3.6, height=1.0)[0]


def table_of(columns: Mapping[str, Tensor]) -> pd.DataFrame:
    """Tensors (row,) of any device as columns."""
    import pandas as pd

    return pd.DataFrame({name: column.cpu().numpy() for name, column in columns.items()})


def _said(holds: bool) -> Verdict:
    return "reproduced" if holds else "not reproduced"
