"""The kinds of figure that artefacts have: curves, bands, columns, intervals, pictures; axes, and types of a plot."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from unseam.drawing import COLOURS, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = "matplotlib.figure.Figure"  # annotations need the name, not a third of a second of imports

__all__ = [
    "Figure",
    "Tables",
    "arrow",
    "band",
    "blank",
    "categories",
    "columns",
    "curve",
    "dots",
    "finish",
    "identity",
    "intervals",
    "legend_below",
    "lines",
    "logarithmic",
    "pictures",
    "reference",
    "where_measured",
]

Tables = Mapping[str, pd.DataFrame]


def where_measured(plot: Callable[[Tables], Figure]) -> Callable[[Tables], Figure]:
    """The figure of an artefact, or one that says that its data sets are missing."""

    @functools.wraps(plot)
    def plotted(tables: Tables) -> Figure:
        if not tables.keys() - {"missing"}:
            return panels(["the data sets are missing"], width=3.6, height=1.0)[0]
        return plot(tables)

    return plotted


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


def legend_below(
    figure: Figure, shown: Iterable[Any], ncols: int, where: str = "lower center", fontsize: float = 7
) -> None:
    """One legend for a figure, outside its panels, of all that some of them show.

    >>> from unseam.drawing import panels
    >>> figure, axes = panels(["KL", "DtO"])
    >>> for panel in axes:
    ...     dots(panel, 0, 1, COLOURS[0], "VAE")
    >>> legend_below(figure, axes, 2)
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['VAE']
    """
    found: dict[str, Any] = {}
    for panel in shown:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    look: dict[str, Any] = {"loc": f"outside {where}", "ncols": ncols, "fontsize": fontsize, "frameon": False}
    figure.legend(found.values(), found.keys(), **look)


def blank(panel: Any) -> None:
    """Draw a panel in equal units, without ticks.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> blank(panel)
    >>> panel.get_aspect(), list(panel.get_xticks())
    (1.0, [])
    """
    panel.set(aspect="equal", xticks=[], yticks=[])


def reference(panel: Any, *, x: Any = (), y: Any = (), **look: Any) -> None:
    """Dashed grey lines behind a panel, at some x and y.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> reference(panel, x=1, y=[0.5, 2])
    >>> len(panel.lines)
    3
    """
    look = {"color": "grey", "linewidth": 0.8, "linestyle": "--", "zorder": 0} | look
    for draw, values in ((panel.axvline, x), (panel.axhline, y)):
        for value in np.atleast_1d(values):
            draw(value, **look)


def identity(panel: Any, *values: Any) -> None:
    """The line on which both axes are equal, over the range of some values.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> identity(panel, [3.0, np.nan], [1.0])
    >>> panel.lines[0].get_xdata().tolist()
    [1.0, 3.0]
    """
    every = np.concatenate([np.asarray(part, dtype=float).ravel() for part in values])
    ends = np.array([np.nanmin(every), np.nanmax(every)])
    panel.plot(ends, ends, color="grey", linewidth=0.8, zorder=0)


def arrow(panel: Any, start: Any, end: Any, **look: Any) -> None:
    """An arrow between two points.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> arrow(panel, (0, 0), (1, 2))
    >>> panel.texts[0].xy
    (1, 2)
    """
    style = {"arrowstyle": "-|>", "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    panel.annotate("", end, start, arrowprops=style | look)


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


def lines(
    panel: Any,
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    by: str,
    style: str = "-",
    label: str | Mapping[Any, str] = "{}",
    colours: Sequence[str] | Mapping[Any, str] = COLOURS,
    **look: Any,
) -> None:
    """One line per value of a column, each in a colour of its own, in the order of the table.

    Args:
        panel: where to draw.
        table: its rows are points.
        x: column.
        y: column.
        by: the column whose values lines belong to.
        style: of matplotlib; ``.`` for points.
        label: its format, or labels by value; none where empty.
        colours: in order, or by value.
        **look: of matplotlib.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> table = pd.DataFrame({"β": [1, 4, 1, 4], "kl": [2.0, 1.0, 3.0, 2.0], "seed": [0, 0, 1, 1]})
    >>> lines(panel, table, "β", "kl", by="seed", label="seed {}")
    >>> panel.lines[1].get_label(), panel.lines[1].get_ydata().tolist()
    ('seed 1', [3.0, 2.0])
    """
    for place, (value, own) in enumerate(table.groupby(by, sort=False)):
        colour = colours[value] if isinstance(colours, Mapping) else colours[place % len(colours)]
        words = label[value] if isinstance(label, Mapping) else label.format(value)
        panel.plot(own[x], own[y], style, color=colour, label=words or None, **look)


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


def band(
    panel: Any,
    table: pd.DataFrame,
    x: str,
    y: str | tuple[str, str, str],
    colour: str,
    label: str | None = None,
    *,
    style: str = "o-",
    quartiles: bool = False,
) -> None:
    """Mean over runs of a column against another one, and their range or quartiles as a band.

    ``y`` may also name three columns of a table of summaries: lower end, centre and upper end.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> band(panel, pd.DataFrame({"β": [1, 1, 4], "kl": [2.0, 4.0, 1.0]}), "β", "kl", COLOURS[0])
    >>> panel.lines[0].get_ydata().tolist()
    [3.0, 1.0]
    """
    if isinstance(y, tuple):
        own = table.set_index(x)
        low, mean, high = (own[name] for name in y)
    else:
        runs = table.groupby(x)[y]
        ends = (runs.quantile(0.25), runs.quantile(0.75)) if quartiles else (runs.min(), runs.max())
        low, mean, high = ends[0], runs.mean(), ends[1]
    panel.fill_between(mean.index, low, high, color=colour, alpha=0.18, linewidth=0)
    panel.plot(mean.index, mean, style, color=colour, markersize=3, linewidth=1.3, label=label)


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
    _name_rows(panel, list(rows))


def columns(
    panel: Any,
    runs: Mapping[str, Sequence[Any]],
    *,
    published: Mapping[str, Any] | None = None,
    labels: Sequence[str] = (),
    colours: Sequence[str] = COLOURS,
    markers: str = "ooooooooo",
) -> None:
    """One column per name from left to right, one dot per run, and kinds of runs side by side.

    Args:
        panel: where to draw.
        runs: of each kind, by name.
        published: cells with ``mean`` and ``sd``, by name, drawn as black squares left of the runs.
        labels: of the kinds, for a legend.
        colours: of the kinds.
        markers: of the kinds.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["KL"])
    >>> columns(panel, {"VAE": [[0.1, 0.2]], "GAN": [[0.8]]}, labels=["runs"])
    >>> [text.get_text() for text in panel.get_xticklabels()], panel.lines[0].get_ydata().tolist()
    (['VAE', 'GAN'], [0.1, 0.2])
    """
    cells = published or {}
    for place, (name, kinds) in enumerate(runs.items()):
        slots = len(kinds) + bool(cells)
        width = 0.8 / slots
        for kind, values in enumerate(kinds):
            up = np.asarray(values, dtype=float)
            middle = place + width * (kind + bool(cells) - (slots - 1) / 2)
            # in five columns, so that equal runs do not hide each other
            across = middle + min(0.06, width / 6) * (np.arange(len(up)) % 5 - 2)
            look = {"color": colours[kind], "markersize": 3, "alpha": 0.7}
            label = labels[kind] if labels and place == 0 else None
            panel.plot(across, up, markers[kind], linestyle="", label=label, **look)
        if name in cells:
            left = place - width * (slots - 1) / 2
            look = {"fmt": "s", "color": "black", "markersize": 4, "capsize": 3}
            label = "published" if labels and place == 0 else None
            panel.errorbar(left, cells[name].mean, cells[name].sd, label=label, **look)
    panel.set_xticks(range(len(runs)), list(runs))
    panel.set_xlim(-0.6, len(runs) - 0.4)


def intervals(
    panel: Any, names: Sequence[str], kinds: Mapping[str, Any], *, colours: Sequence[str] = COLOURS
) -> None:
    """One row per name from top to bottom: estimates with their intervals, kinds of them side by side in colours.

    Args:
        panel: where to draw.
        names: of the rows.
        kinds: estimates, lower and upper ends (row,) of each kind, by its label.
        colours: of the kinds.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["ρ"])
    >>> intervals(panel, ["DtO", "cosine"], {"all": ([0.5, 0.1], [0.4, -0.1], [0.6, 0.3])})
    >>> panel.lines[0].get_xdata().tolist()
    [0.5, 0.1]
    """
    for kind, (label, (estimate, lower, upper)) in enumerate(kinds.items()):
        height = np.arange(len(estimate)) + 0.24 * (kind - (len(kinds) - 1) / 2)
        panel.hlines(height, lower, upper, color=colours[kind], linewidth=1.4)
        panel.plot(estimate, height, "o", color=colours[kind], markersize=4.5, label=label)
    _name_rows(panel, names)


def _name_rows(panel: Any, names: Sequence[str]) -> None:
    panel.set_yticks(range(len(names)), names, fontsize=7.5)
    panel.set_ylim(len(names) - 0.5, -0.5)


def pictures(
    panel: Any, images: Any, labels: Sequence[str] = (), *, cmap: str = "gray", most: float = 1
) -> None:
    """Pictures (row, column, height, width) as a grid with thin lines between them, and labels of its rows.

    >>> from unseam.drawing import panels
    >>> _, (panel,) = panels(["traversals"])
    >>> pictures(panel, np.zeros((2, 3, 4, 4)), ["z₁", "z₂"])
    >>> panel.images[0].get_array().shape
    (8, 12)
    """
    rows, count, height, width = images.shape
    grid = images.transpose(0, 2, 1, 3).reshape(rows * height, count * width)
    panel.imshow(grid, cmap=cmap, vmin=0, vmax=most)
    look = {"color": "grey", "linewidth": 0.4, "linestyle": "-", "zorder": 2}
    reference(panel, x=np.arange(1, count) * width - 0.5, y=np.arange(1, rows) * height - 0.5, **look)
    panel.set_xticks([])
    panel.set_yticks([height * (row + 0.5) for row in range(len(labels))], labels, fontsize=7.5)


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
