"""Axes of this paper's figures: labels, scales and legends in one size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unseam.drawing import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["finish", "plot_missing"]


def finish(axes: Any, x: str = "", y: str = "", *, legend: str = "", **options: Any) -> None:
    """Label axes; ``options`` are those of ``Axes.set``, and ``legend`` is where it stands, if anywhere."""
    axes.set(**options)
    if x:
        axes.set_xlabel(x, fontsize=8)
    if y:
        axes.set_ylabel(y, fontsize=8)
    if legend:
        axes.legend(fontsize=7, frameon=False, loc=legend)


def plot_missing() -> Figure:
    """The figure of an artefact whose data set is missing."""
    return panels(["the data set is missing"], width=3.6, height=1.0)[0]
