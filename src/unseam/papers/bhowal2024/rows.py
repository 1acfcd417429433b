"""Rows and columns of the paper's tables: data sets and models, and their figures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Finding, Judgement
from unseam.papers.bhowal2024.runs import at_cell
from unseam.papers.bhowal2024.setups import CELLS, NAMES, Cell
from unseam.papers.rolinek2019.cells import Published

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = [
    "PRINTED",
    "cells_of",
    "dots",
    "draw_cells",
    "groups_of",
    "judgement",
    "published_cell",
    "steps_in_words",
    "where_measured",
    "worlds",
]

PRINTED = {
    "sprites": "dSprites",
    "dsprites": "dSprites",
    "faces3d": "3DFaces",
    "shapes": "3DShapes",
    "shapes3d": "3DShapes",
    "mpi3d": "MPI3D",
}
"""Names of the paper's rows."""


def worlds(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of a table by data set, in the order they stand in.

    >>> import pandas as pd
    >>> [world for world, _ in worlds(pd.DataFrame({"world": ["sprites", "shapes", "sprites"]}))]
    ['sprites', 'shapes']
    """
    for world in dict.fromkeys(table["world"]):
        yield str(world), table[table["world"] == world]


def groups_of(table: pd.DataFrame) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    """Rows of a table by data set and steps, with both in words, in the order they stand in.

    >>> import pandas as pd
    >>> [words for words, _ in groups_of(pd.DataFrame({"world": ["sprites"], "steps": [120_000]}))]
    [('sprites (a twin of dSprites)', '120 000 steps')]
    """
    for world, part in worlds(table):
        for steps in dict.fromkeys(part["steps"]):
            yield (NAMES[world], steps_in_words(int(steps))), part[part["steps"] == steps]


def cells_of(table: pd.DataFrame, cells: Sequence[Cell] = CELLS) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """Rows of a table by cell, those without rows left out.

    >>> import pandas as pd
    >>> [str(one) for one, _ in cells_of(pd.DataFrame({"family": ["VAE"], "beta": [1.0]}))]
    ['VAE']
    """
    for one in cells:
        own = at_cell(table, one)
        if len(own):
            yield one, own


def judgement(tables: Tables, findings: Callable[[Tables], Iterable[Finding]], note: str) -> Judgement:
    """Findings from the measured tables, then one for each data set whose file is missing.

    >>> import pandas as pd
    >>> absent = pd.DataFrame({"world": ["mpi3d"], "need": ["its file"]})
    >>> judgement({"missing": absent}, lambda tables: [], "").findings[0].verdict
    'cannot be run here'
    """
    missing = [
        Finding(NAMES[str(row["world"])], "", None, None, None, "cannot be run here", str(row["need"]))
        for row in (tables["missing"].to_dict("records") if "missing" in tables else ())
    ]
    if not _measured(tables):
        return Judgement(tuple(missing))
    return Judgement((*findings(tables), *missing), note)


def where_measured(draw: Callable[[Tables], Figure]) -> Callable[[Tables], Figure]:
    """The figure of an artefact, or one that says that its data sets are missing.

    >>> len(where_measured(lambda tables: None)({}).axes)
    1
    """

    @functools.wraps(draw)
    def drawn(tables: Tables) -> Figure:
        if not _measured(tables):
            return panels(["the data sets are not here"], width=3.6, height=1.0)[0]
        return draw(tables)

    return drawn


def _measured(tables: Tables) -> bool:
    return bool(tables.keys() - {"missing"})


def draw_cells(
    members: pd.DataFrame,
    shown: Sequence[tuple[str, str, Mapping[str, Mapping[str, Published]] | None]],
    *,
    more: Sequence[str] = (),
) -> tuple[Figure, list[Any]]:
    """Models as dots beside published mean ± standard deviation: a row of panels per score, a column per data set.

    Args:
        members: one row per model.
        shown: column, words and published cells of each score.
        more: titles of a last row of panels, which are returned empty.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"world": ["sprites"], "family": ["VAE"], "beta": [1.0], "a": [0.5]})
    >>> len(draw_cells(rows, [("a", "A", None)])[0].axes)
    1
    """
    parts = list(worlds(members))
    titles = [f"{words}\n{NAMES[world]}" for _, words, _ in shown for world, _ in parts]
    rows = len(shown) + bool(more)
    figure, axes = panels([*titles, *more], rows=rows, width=3.4, height=2.4)
    turn = iter(axes)
    for name, _, published in shown:
        for world, part in parts:
            panel = next(turn)
            for place, (one, own) in enumerate(cells_of(part)):
                said = None if published is None else published[PRINTED[world]][one.family]
                dots(panel, place + 0.15, own[name])
                if said is not None:
                    published_cell(panel, place - 0.2, said)
            names = [one.family for one, _ in cells_of(part)]
            panel.set_xticks(range(len(names)), names)
            panel.set_xlim(-0.6, len(names) - 0.4)
    dots(axes[0], 0.0, [], alpha=1.0, label="models")
    axes[0].errorbar([], [], [], fmt="s", color=COLOURS[1], markersize=4, label="published")
    axes[0].legend(fontsize=7, frameon=False)
    return figure, list(turn)


def dots(panel: Any, across: float, values: ArrayLike, *, apart: float = 0.06, **look: Any) -> None:
    """Models side by side, in five columns that stand ``apart``, so that equal ones are seen.

    >>> dots(panels(["a"])[1][0], 0.0, [0.1, 0.2], label="models")
    """
    up = np.asarray(values, dtype=float)
    spread = apart * (np.arange(len(up)) % 5 - 2)
    panel.plot(across + spread, up, "o", **{"color": COLOURS[0], "markersize": 3, "alpha": 0.7} | look)


def published_cell(panel: Any, across: float, cell: Published, **look: Any) -> None:
    """A published mean ± standard deviation.

    >>> published_cell(panels(["a"])[1][0], 0.0, Published(0.5, 0.1))
    """
    look = {"color": COLOURS[1], "markersize": 4, "capsize": 3} | look
    panel.errorbar(across, cell.mean, cell.std, fmt="s", **look)


def steps_in_words(steps: Any) -> str:
    """For titles and findings.

    >>> steps_in_words(120_000)
    '120 000 steps'
    """
    return "one step" if steps == 1 else f"{steps:,} steps".replace(",", " ")
