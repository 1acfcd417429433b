"""What figures of artefacts share: curves with a dot per run, categories, axes, and the types of a plot function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from unseam.drawing import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = "matplotlib.figure.Figure"  # annotations need the name, not a third of a second of imports

__all__ = ["Figure", "Tables", "blank", "categories", "curve", "dots", "finish", "logarithmic"]

Tables = Mapping[str, pd.DataFrame]


def finish(panel: Any, x: str = "", y: str = "", *, legend: str = "", **properties: Any) -> None:
    """Label the axes of a panel, set properties of it, and add a legend at a place (``best``).

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> finish(panel, "β", xscale="log")
    >>> panel.get_xscale()
    'log'
    """
    panel.set(**properties)
    for write, text in ((panel.set_xlabel, x), (panel.set_ylabel, y)):
        if text:
            write(text, fontsize=8)
    if legend:
        panel.legend(fontsize=7, frameon=False, loc=legend)


def blank(panel: Any) -> None:
    """Draw a panel in equal units, without ticks.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> blank(panel)
    >>> panel.get_aspect(), list(panel.get_xticks())
    (1.0, [])
    """
    panel.set(aspect="equal", xticks=[], yticks=[])


def dots(panel: Any, x: Any, y: Any, colour: str, label: str | None = None) -> None:
    """One dot per model in a panel; a number for x or y holds for all of them.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> dots(panel, [0.1, 0.2], 3, COLOURS[0])
    >>> panel.lines[0].get_ydata().tolist()
    [3.0, 3.0]
    """
    x, y = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    panel.plot(x, y, "o", color=colour, markersize=3.5, alpha=0.6, label=label)


def curve(
    panel: Any, table: pd.DataFrame, x: str, y: str, colour: str, label: str | None = None, style: str = ".-"
) -> None:
    """Mean over runs of a column against another one, and a dot per run behind it.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> curve(panel, pd.DataFrame({"β": [1, 1, 4], "kl": [2.0, 4.0, 1.0]}), "β", "kl", COLOURS[0])
    >>> panel.lines[1].get_ydata().tolist()
    [3.0, 1.0]
    """
    mean = table.groupby(x)[y].mean()
    panel.plot(table[x], table[y], ".", color=colour, markersize=3.5, alpha=0.5)
    panel.plot(mean.index, mean, style, color=colour, linewidth=1.2, markersize=4, label=label or y)


def categories(
    panel: Any,
    rows: Mapping[str, Sequence[Any]],
    labels: Sequence[str] = (),
    colours: Sequence[str] = COLOURS,
) -> None:
    """One row per name from top to bottom, one dot per run, and kinds of runs side by side in colours.

    Args:
        panel: where to draw.
        rows: runs of each kind, by name.
        labels: of the kinds, for a legend.
        colours: of the kinds.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> categories(panel, {"VAE": [[0.1, 0.2]], "GAN": [[0.8]]})
    >>> [text.get_text() for text in panel.get_yticklabels()]
    ['VAE', 'GAN']
    """
    for place, kinds in enumerate(rows.values()):
        for kind, runs in enumerate(kinds):
            height = place + 0.17 * (kind - (len(kinds) - 1) / 2)
            dots(panel, runs, height, colours[kind], labels[kind] if labels and place == 0 else None)
    panel.set_yticks(range(len(rows)), list(rows), fontsize=7.5)
    panel.set_ylim(len(rows) - 0.5, -0.5)


def logarithmic(axis: Any, ticks: Sequence[float] | None = None) -> None:
    """Put an axis of a panel on a logarithmic scale, labelled at these values, or at powers of ten alone.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> logarithmic(panel.xaxis, [1, 4])
    >>> panel.get_xscale(), panel.get_xticks().tolist()
    ('log', [1, 4])
    """
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    if ticks is None:
        axis.set_minor_formatter(NullFormatter())
        return
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())
