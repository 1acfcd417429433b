"""How figures of matplotlib look and are written: colours, panels, byte-reproducible SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseam.charts import COLOURS
from unseam.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "panels", "to_svg", "write_svg"]


def panels(
    titles: Sequence[str], *, rows: int = 1, width: float = 2.6, height: float = 2.2
) -> tuple[Figure, list[Any]]:
    """A figure with one or more rows of titled axes, without top and right spines.

    >>> figure, axes = panels(["ELBO", "KL"])
    >>> axes[1].get_title(loc="left")
    'KL'
    """
    from matplotlib.figure import Figure

    columns = -(-len(titles) // rows)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes, title in zip(grid, titles, strict=False):
        axes.set_title(title, fontsize=9, loc="left")
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[len(titles) :]:
        axes.set_visible(False)
    return figure, grid[: len(titles)]


def to_svg(figure: Figure) -> str:
    """A figure as an SVG element: no date, fixed identifiers, so the same figure gives the same bytes.

    >>> from matplotlib.figure import Figure
    >>> to_svg(Figure(figsize=(1, 1))).startswith("<svg")
    True
    """
    target = io.BytesIO()
    _save(figure, target, transparent=True)
    text = target.getvalue().decode()
    return text[text.index("<svg") :]


def write_svg(figure: Figure, path: Path) -> Path:
    """Write a figure as an SVG file on white, to a temporary name first."""
    write_atomically(path, lambda temporary: _save(figure, temporary))
    return path


def _save(figure: Figure, target: Any, **options: Any) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "unseam", "svg.fonttype": "path"}):
        figure.savefig(target, format="svg", metadata={"Date": None}, **options)
