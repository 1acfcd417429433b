"""Numbers of two models side by side, as an HTML table."""

from __future__ import annotations

from unseam.explore.measures import Measured

__all__ = ["pair_table"]


def pair_table(first: Measured, second: Measured) -> str:
    """Numbers of two models as the rows of an HTML table; what cannot be measured is left out.

    >>> pair_table(Measured(None, 3, 0.5, 0.1, None), Measured(None, 2, 0.25, 0.2, None)).count("<tr>")
    4
    """
    names = ("squared error", "live latents", "DtO / random", "mean |cos|", "MIG")
    forms = (".4f", ".0f", ".2f", ".2f", ".2f")
    rows = [
        f"<tr><th scope='row'>{name}</th><td>{format(one, form)}</td><td>{format(two, form)}</td></tr>"
        for name, form, one, two in zip(names, forms, first, second, strict=True)
        if one is not None and two is not None
    ]
    head = "<thead><tr><td></td><th scope='col'>this</th><th scope='col'>other</th></tr></thead>"
    return f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"
