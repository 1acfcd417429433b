"""Findings of exact checks, and tables of what was measured on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from unseam.papers.artefact import Finding, Verdict

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["checked", "share", "table_of"]


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


def table_of(columns: Mapping[str, Tensor]) -> pd.DataFrame:
    """Tensors (row,) of any device as columns."""
    import pandas as pd

    return pd.DataFrame({name: column.cpu().numpy() for name, column in columns.items()})


def _said(holds: bool) -> Verdict:
    return "reproduced" if holds else "not reproduced"
