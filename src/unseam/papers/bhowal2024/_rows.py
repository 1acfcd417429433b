"""Rows and columns of the paper's tables, data sets and models: claims about them, and their figures."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from unseam.drawing import COLOURS, panels
from unseam.papers.bhowal2024._runs import cells_of, worlds
from unseam.papers.bhowal2024._setups import NAMES
from unseam.papers.claims import Cell, Claim, Order, Row

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

    Cases = Callable[[Tables], Iterable[Any]]

Published = Mapping[str, Mapping[str, Cell]]
"""Cells of a table by row and column."""
PRINTED = {
    "sprites": "dSprites",
    "dsprites": "dSprites",
    "faces3d": "3DFaces",
    "shapes": "3DShapes",
    "shapes3d": "3DShapes",
    "mpi3d": "MPI3D",
}
"""Names of the paper's rows."""
CONVERGED = 0.03
"""By how much a mean score may move in the last quarter of training."""


# Claims


def by_row(kind: type[Claim], says: str, cases: Cases, **options: Any) -> tuple[Claim, ...]:
    """One claim per data set, so that tests are corrected within a row of a table.

    Corrected over a whole table no paired test of six seeds could succeed: the smallest p that they attain is 1/64.
    """
    rows = dict.fromkeys(PRINTED.values())
    return tuple(kind(f"{says}, {row}", functools.partial(_of_row, cases, row), **options) for row in rows)


def _of_row(cases: Cases, row: str, tables: Tables) -> Iterable[Any]:
    return cases(
        {
            name: table[table["world"].map(PRINTED) == row] if "world" in table else table
            for name, table in tables.items()
        }
    )


def score_rows(name: str, words: str, published: Published, *, path: str | None = None) -> Cases:
    """Rows of a table of scores beside our models, with doubts about those that have not converged.

    Args:
        name: the column of the score.
        words: for it.
        published: its cells.
        path: the column whose convergence is asked for, where it is another.
    """

    def cases(tables: Tables) -> Iterator[Row]:
        moving = unconverged(tables["path"], path or name)
        for world, part in worlds(tables["members"]):
            runs = {one.family: own[name].to_numpy(dtype=float) for one, own in cells_of(part)}
            doubts = {family: moving[world, family] for family in runs if (world, family) in moving}
            yield Row(f"{NAMES[world]}: {words}", published[PRINTED[world]], runs, doubts=doubts)

    return cases


def score_orders(name: str, words: str, published: Published, *, path: str | None = None) -> Cases:
    """The orders of models that the published cells themselves tell apart, paired by seed (see :func:`score_rows`)."""

    def cases(tables: Tables) -> Iterator[Order]:
        moving = unconverged(tables["path"], path or name)
        for world, part in worlds(tables["members"]):
            said = published[PRINTED[world]]
            wide = part.pivot_table(index="seed", columns="family", values=name, dropna=False)
            for pair in itertools.combinations(said, 2):
                low, high = sorted(pair, key=lambda family: said[family].mean)
                if said[low].differs_from(said[high]):
                    quantity = f"{NAMES[world]}: {words}, {low} less {high}"
                    doubt = doubt_of(moving, world, (low, high))
                    yield Order(quantity, wide[low], wide[high], paired=True, doubt=doubt)

    return cases


def unconverged(path: pd.DataFrame, name: str, most: float = CONVERGED) -> dict[tuple[str, str], str]:
    """Data sets and families whose mean still moved by more than ``most`` in the last quarter, with words for it.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"world": "w", "family": "VAE", "beta": 1.0, "step": [5, 5, 10, 10], "a": [1, 2, 2, 3]})
    >>> unconverged(rows, "a")
    {('w', 'VAE'): 'not converged: VAE moved by 1 in the last quarter of training'}
    """
    found: dict[tuple[str, str], str] = {}
    for world, part in worlds(path):
        for one, own in cells_of(part):
            means = own.groupby("step")[name].mean().sort_index().to_numpy(dtype=float)
            moved = abs(means[-1] - means[-2]) if len(means) > 1 else 0.0
            if moved > most:
                words = f"not converged: {one.family} moved by {moved:.2g} in the last quarter of training"
                found[world, one.family] = words
    return found


def doubt_of(moving: Mapping[tuple[str, str], str], world: str, families: Iterable[str]) -> str:
    """Doubts about some families of a data set."""
    return "; ".join(moving[world, family] for family in families if (world, family) in moving)


def control_note(words: str, runs: ArrayLike, *, least: float = -math.inf, most: float = math.inf) -> str:
    """For a note: the median of a control, and on which side of the bounds it lies."""
    median = float(np.nanmedian(np.asarray(runs, dtype=float)))
    return f"control, {words}: {median:.2g}, {'inside' if least <= median <= most else 'outside'}"


def groups_of(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of a table by data set and steps, with both in words, in their order."""
    for world, part in worlds(table):
        for steps in dict.fromkeys(part["steps"]):
            yield f"{NAMES[world]}, {steps_in_words(int(steps))}", part[part["steps"] == steps]


def steps_in_words(steps: Any) -> str:
    """For titles and findings."""
    return "one step" if steps == 1 else f"{steps:,} steps".replace(",", " ")


# Figures


def where_measured(plot: Callable[[Tables], Figure]) -> Callable[[Tables], Figure]:
    """The figure of an artefact, or one that says that its data sets are missing."""

    @functools.wraps(plot)
    def plotted(tables: Tables) -> Figure:
        if not tables.keys() - {"missing"}:
            return panels(["the data sets are missing"], width=3.6, height=1.0)[0]
        return plot(tables)

    return plotted


def label(panel: Any, x: str = "", y: str = "") -> None:
    """Label the axes of a panel."""
    panel.set_xlabel(x, fontsize=8)
    panel.set_ylabel(y, fontsize=8)


def legend_below(figure: Figure, panel: Any, columns: int, where: str = "lower") -> None:
    """One legend for a figure, outside its panels, of what one of them shows."""
    look = {"fontsize": 7, "frameon": False, "ncols": columns, "loc": f"outside {where} center"}
    figure.legend(*panel.get_legend_handles_labels(), **look)


def draw_cells(
    members: pd.DataFrame,
    shown: Sequence[tuple[str, str, Published | None]],
    *,
    more: Sequence[str] = (),
) -> tuple[Figure, list[Any]]:
    """Models as dots beside published mean ± SD: one row of panels per score, one column per data set.

    Args:
        members: one row per model.
        shown: column, words and published cells of each score.
        more: titles of a last row of panels, which are returned empty.
    """
    parts = list(worlds(members))
    titles = [f"{words}\n{NAMES[world]}" for _, words, _ in shown for world, _ in parts]
    figure, axes = panels([*titles, *more], rows=len(shown) + bool(more), width=3.4, height=2.4)
    rest = iter(axes)
    for name, _, published in shown:
        for world, part in parts:
            panel = next(rest)
            for place, (one, own) in enumerate(cells_of(part)):
                dots(panel, place + 0.15, own[name])
                if published is not None:
                    published_cell(panel, place - 0.2, published[PRINTED[world]][one.family])
            names = [one.family for one, _ in cells_of(part)]
            panel.set_xticks(range(len(names)), names)
            panel.set_xlim(-0.6, len(names) - 0.4)
    dots(axes[0], 0.0, [], alpha=1.0, label="models")
    axes[0].errorbar([], [], [], fmt="s", color=COLOURS[1], markersize=4, label="published")
    axes[0].legend(fontsize=7, frameon=False)
    return figure, list(rest)


def dots(panel: Any, across: float, values: ArrayLike, *, apart: float = 0.06, **look: Any) -> None:
    """Models side by side, in five columns, so that equal ones do not hide each other."""
    up = np.asarray(values, dtype=float)
    spread = apart * (np.arange(len(up)) % 5 - 2)
    panel.plot(across + spread, up, "o", **{"color": COLOURS[0], "markersize": 3, "alpha": 0.7} | look)


def published_cell(panel: Any, across: float, cell: Cell, **look: Any) -> None:
    """A published mean ± SD."""
    look = {"color": COLOURS[1], "markersize": 4, "capsize": 3} | look
    panel.errorbar(across, cell.mean, cell.sd, fmt="s", **look)


def draw_path(panel: Any, part: pd.DataFrame, name: str) -> None:
    """A score along training: models as thin lines, means of families as thick ones."""
    for (one, own), colour in zip(cells_of(part), COLOURS, strict=False):
        for _, model in own.groupby("seed"):
            panel.plot(model["step"], model[name], color=colour, linewidth=0.5, alpha=0.4)
        means = own.groupby("step")[name].mean()
        panel.plot(means.index, means, "o-", color=colour, markersize=3, linewidth=1.5, label=one.family)
    panel.set_xticks(sorted(part["step"].unique()))
    panel.set_xlabel("steps", fontsize=8)
    panel.margins(y=0.25)
    panel.legend(fontsize=7, frameon=False, ncols=3, loc="upper left")
