"""Rows and columns of the paper's tables: data sets, models, and the rules that compare cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Finding, Outcome
from unseam.papers.bhowal2024.runs import at_cell
from unseam.papers.bhowal2024.setups import CELLS, NAMES, Cell
from unseam.papers.rolinek2019.cells import Published, cell, mean_interval, order

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["PAIRED_RULE", "PRINTED", "cells_of", "draw_cells", "empty", "paired", "score_findings", "worlds"]

PRINTED = {
    "sprites": "dSprites",
    "dsprites": "dSprites",
    "faces3d": "3DFaces",
    "shapes": "3DShapes",
    "shapes3d": "3DShapes",
    "mpi3d": "MPI3D",
}
"""Names of the paper's rows."""
PAIRED_RULE = (
    "A cell is reproduced where a one-sided Wilcoxon signed-rank test over models, paired by model, gives p < 0.05: "
    "each model's error is a mean over points and over noises that were not fitted, the same for both."
)
LEVEL = 0.05


def worlds(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of a table by data set, in the order they stand in.

    >>> import pandas as pd
    >>> [world for world, _ in worlds(pd.DataFrame({"world": ["sprites", "shapes", "sprites"]}))]
    ['sprites', 'shapes']
    """
    for world in dict.fromkeys(table["world"]):
        yield str(world), table[table["world"] == world]


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


def paired(quantity: str, published: str, better: ArrayLike, worse: ArrayLike, note: str = "") -> Finding:
    """By how many per cent of ``worse`` the paired ``better`` is smaller, by :data:`PAIRED_RULE`.

    >>> paired("error", "7.7 %", [0.9, 0.8, 0.9, 0.8, 0.85], [1.0, 1.0, 1.1, 1.0, 1.0]).verdict
    'reproduced'
    """
    from scipy import stats

    low, high = np.asarray(better, dtype=float), np.asarray(worse, dtype=float)
    saved = 100 * (1 - low / high)
    differs = bool((low != high).any())
    chance = float(stats.wilcoxon(low, high, alternative="less").pvalue) if differs else 1.0
    lower, upper = mean_interval(saved)
    words = f"{high.mean():.4f} → {low.mean():.4f} over {len(low)} models, p = {chance:.2g}"
    return Finding(
        quantity,
        published,
        float(saved.mean()),
        lower,
        upper,
        "reproduced" if chance < LEVEL else "not reproduced",
        f"{words}; {note}" if note else words,
    )


def score_findings(
    members: pd.DataFrame,
    name: str,
    words: str,
    published: Mapping[str, Mapping[str, Published]],
    *,
    larger_is_better: bool,
) -> Iterator[Finding]:
    """Cells of a table of scores, then the orders that its published means tell apart.

    VAE is worse than both others in all of the paper's rows; the other two are compared where their published means
    differ by more than their spreads together.

    >>> import pandas as pd
    >>> rows = pd.DataFrame([{"world": "w", "family": one.family, "beta": one.beta, "a": 0.5} for one in CELLS])
    >>> said = {"dSprites": dict.fromkeys(("β-TCVAE", "β-VAE", "VAE"), Published(0.5, 0.1))}
    >>> found = score_findings(rows.assign(world="sprites"), "a", "A", said, larger_is_better=True)
    >>> [one.verdict for one in found][2:4]
    ['reproduced', 'not reproduced']
    """
    for world, part in worlds(members):
        said = published[PRINTED[world]]
        runs: dict[str, Any] = {one.family: own[name].to_numpy(dtype=float) for one, own in cells_of(part)}
        for family, values in runs.items():
            yield cell(f"{NAMES[world]}, {family}: {words}", said[family], values)
        first, second = said["β-TCVAE"], said["β-VAE"]
        pairs = [("VAE", "β-VAE"), ("VAE", "β-TCVAE")]
        if abs(first.mean - second.mean) > float(np.hypot(first.std, second.std)):
            ahead = (first.mean > second.mean) == larger_is_better
            pairs.append(("β-VAE", "β-TCVAE") if ahead else ("β-TCVAE", "β-VAE"))
        for worse, better in pairs:
            low, high = (worse, better) if larger_is_better else (better, worse)
            yield order(f"{NAMES[world]}: {words} of {low} less that of {high}", runs[low], runs[high])


def draw_cells(
    outcome: Outcome, shown: Sequence[tuple[str, str, Mapping[str, Mapping[str, Published]] | None]]
) -> Figure:
    """Models as dots beside published mean ± standard deviation: a row of panels a score, a column a data set.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"world": ["sprites"], "family": ["VAE"], "beta": [1.0], "a": [0.5]})
    >>> len(draw_cells(Outcome((), {"members": rows}), [("a", "A", None)]).axes)
    1
    """
    if not outcome.tables:
        return empty()
    members = outcome.tables["members"]
    parts = list(worlds(members))
    titles = [f"{words}\n{NAMES[world]}" for _, words, _ in shown for world, _ in parts]
    figure, axes = panels(titles, rows=len(shown), width=3.4, height=2.4)
    turn = iter(axes)
    for name, _, published in shown:
        for world, part in parts:
            panel = next(turn)
            for place, (one, own) in enumerate(cells_of(part)):
                said = None if published is None else published[PRINTED[world]][one.family]
                _dots(panel, place, own[name].to_numpy(dtype=float), said)
            names = [one.family for one, _ in cells_of(part)]
            panel.set_xticks(range(len(names)), names)
            panel.set_xlim(-0.6, len(names) - 0.4)
    axes[0].plot([], [], "o", color=COLOURS[0], markersize=3, label="models")
    axes[0].errorbar([], [], [], fmt="s", color=COLOURS[1], markersize=4, label="published")
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def empty() -> Figure:
    """The figure of an artefact whose data are not here.

    >>> len(empty().axes)
    1
    """
    return panels(["the data sets are not here"], width=3.6, height=1.0)[0]


def _dots(panel: Any, place: int, values: Any, published: Published | None) -> None:
    spread = 0.15 + 0.06 * (np.arange(len(values)) % 5 - 2)
    panel.plot(place + spread, values, "o", color=COLOURS[0], markersize=3, alpha=0.7)
    if published is not None:
        panel.errorbar(
            place - 0.2, published.mean, published.std, fmt="s", color=COLOURS[1], markersize=4, capsize=3
        )
