"""Tables 4 and 5 of bhowal2024: MIG and MIG-sup of the three models."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024.rows import (
    Published,
    by_row,
    draw_cells,
    draw_path,
    score_orders,
    score_rows,
    where_measured,
)
from unseam.papers.bhowal2024.runs import select, train_setups, worlds
from unseam.papers.bhowal2024.setups import FAMILIES, NAMES, PRESETS, SHAPES, SMOKE, Settings, smoke
from unseam.papers.claims import Cell, Orders, Values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["MIG", "MIG_SUP", "PATH", "TABLE4", "TABLE5", "TABLES", "printed_cells"]


def printed_cells(digit: float = 0.01, **rows: tuple[tuple[float, float], ...]) -> Published:
    """A table of means and SDs; columns are β-TCVAE, β-VAE and VAE, and the number of runs is not stated."""
    names = {"dsprites": "dSprites", "faces": "3DFaces", "shapes": "3DShapes", "mpi3d": "MPI3D"}
    return {
        names[row]: {family: Cell(*pair, digit=digit) for family, pair in zip(FAMILIES, pairs, strict=True)}
        for row, pairs in rows.items()
    }


MIG = printed_cells(
    dsprites=((0.52, 0.1), (0.25, 0.1), (0.16, 0.05)),
    faces=((0.58, 0.02), (0.44, 0.05), (0.19, 0.02)),
    shapes=((0.40, 0.1), (0.46, 0.14), (0.20, 0.08)),
    mpi3d=((0.32, 0.1), (0.24, 0.08), (0.14, 0.06)),
)
MIG_SUP = printed_cells(
    dsprites=((0.52, 0.08), (0.17, 0.1), (0.14, 0.02)),
    faces=((0.60, 0.08), (0.46, 0.04), (0.20, 0.03)),
    shapes=((0.50, 0.1), (0.60, 0.05), (0.14, 0.04)),
    mpi3d=((0.60, 0.15), (0.46, 0.15), (0.10, 0.06)),
)
TABLES = (("mig", "MIG", MIG), ("mig_sup", "MIG-sup", MIG_SUP))
"""Columns of Tables 4 and 5, their words and published cells."""
PATH = ("step", "mig", "mig_sup", "gap", "cosine")
"""What tables hold of the way."""
OTHER = {
    "mig": ("mig_binned", "MIG, binned"),
    "mig_sup": ("mig_sup_code", "MIG-sup, binned, over the code's entropy"),
}


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """MIG and MIG-sup of every model, in two forms, at the end of training and before."""
    columns = [name for kind, (other, _) in OTHER.items() for name in (kind, other)]
    return select(train_setups(settings.setups, place), members=columns, path=PATH)


NOTE = (
    "Scores are in the entropy form that the paper cites, of samples of the posteriors, without dSprites' shape and "
    "the faces' identity, as in the released code; those of binned means and all factors are in the table. Epochs, "
    "batch size, number of latents and of runs are not published."
)


def _plot(tables: Tables, *, of: int) -> Figure:
    name, words, published = TABLES[of]
    path = list(worlds(tables["path"]))
    titles = [f"{words} along training\n{NAMES[world]}" for world, _ in path]
    shown: list[Any] = [(name, words, published), (*OTHER[name], published)]
    figure, rest = draw_cells(tables["members"], shown, more=titles)
    for panel, (_, part) in zip(rest, path, strict=True):
        draw_path(panel, part, name)
    return figure


def _artefact(key: str, of: int, smoke_scale: Settings) -> Artefact:
    name, words, published = TABLES[of]
    given = {"name": name, "words": words, "published": published}
    orders = by_row(
        Orders,
        f"Table {4 + of}: models in the order of their {words}",
        functools.partial(score_orders, **given),
    )
    cells = Values(f"Table {4 + of}: {words} of models by data set", functools.partial(score_rows, **given))
    return Artefact(
        key=f"bhowal2024.{key}",
        title=f"Table {4 + of}: {words} of VAE, β-VAE and β-TCVAE",
        claims=(cells, *orders),
        presets=PRESETS | {"smoke": smoke_scale},
        measure=measure,
        plot=where_measured(functools.partial(_plot, of=of)),
        note=NOTE,
    )


TABLE4 = _artefact("table4", 0, Settings((*SMOKE, smoke(SHAPES))))
TABLE5 = _artefact("table5", 1, Settings(SMOKE))
