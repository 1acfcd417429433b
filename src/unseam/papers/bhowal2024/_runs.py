"""Trainings of a setup, measured along the way and at their end; each is done once for all artefacts that need it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from unseam.data import MissingFileError, place
from unseam.papers.artefact import Workplace, missing_table
from unseam.papers.bhowal2024._measures import COLUMNS, SCORES, Rows, measured, scores
from unseam.papers.bhowal2024._setups import CELLS, NAMES, Cell, Setup
from unseam.papers.bhowal2024.released import ROWS as SIGN_COLUMNS
from unseam.papers.trainings import follow
from unseam.training import Ensemble

if TYPE_CHECKING:
    import pandas as pd

    from unseam.papers.artefact import Tables

__all__ = ["at_cell", "cells_of", "select", "train_cell", "train_setups", "worlds"]

RECORDS = 20
"""Of a training; scores are taken at some of them."""
KEYS = ("world", "family", "beta", "seed")


def train_cell(setup: Setup, cell: Cell, where: Workplace) -> dict[str, pd.DataFrame]:
    """Train all seeds of a cell in one stack and measure them; rows are named by ``family``, ``beta`` and ``seed``.

    Returns:
        ``path``, one row per model and mark: ``step`` and the keys of
        :func:`~unseam.papers.bhowal2024._measures.scores`; where decoders are measured the tables of
        :class:`~unseam.papers.bhowal2024._measures.Measured`; and ``trainings``.

    >>> import torch
    >>> from unseam.papers.bhowal2024._setups import SPRITES, smoke
    >>> len(train_cell(smoke(SPRITES, seeds=1, steps=1), CELLS[2], Workplace(torch.device("cpu")))["members"])
    1
    """
    import pandas as pd

    world = functools.cache(lambda: place(setup.load(), where.device))
    steps = setup.base.steps
    every = max(1, steps // RECORDS)
    marks = {every * max(1, round(mark * steps / every)) for mark in setup.marks} - {steps}

    def table(rows: Rows, columns: tuple[str, ...] = ()) -> pd.DataFrame:
        named = {"family": cell.family, "beta": cell.beta}
        return pd.DataFrame([named | row for row in rows], columns=[*named, *columns] if columns else None)

    def observe(ensemble: Ensemble, step: int) -> Tables:
        if ensemble.stopped:
            raise RuntimeError(
                f"models of {cell.family} on {setup.base.world} diverged, by seed and step: {ensemble.stopped}; "
                "models are compared seed by seed, so train all of them again, with a lower learning rate"
            )
        return {"path": table(scores(ensemble, world(), setup))} if step in marks else {}

    def finish(ensemble: Ensemble) -> Tables:
        found: dict[str, pd.DataFrame] = {}
        if setup.decoders:
            rows = measured(ensemble, world(), setup, audited=cell in CELLS)
            last = [{name: row[name] for name in SCORES} for row in rows.members]
            columns = {"signs": SIGN_COLUMNS, "columns": COLUMNS}
            found = {name: table(part, columns.get(name, ())) for name, part in rows._asdict().items()}
        else:
            last = scores(ensemble, world(), setup)
        before = [ensemble.observed["path"]] if "path" in ensemble.observed else []
        return found | {"path": pd.concat([*before, table(last).assign(step=steps)], ignore_index=True)}

    return follow(
        setup.trials(cell),
        where,
        world=world,
        measured=setup.measured(cell),
        finish=finish,
        observe=observe,
        every=every,
    )


def train_setups(setups: Sequence[Setup], where: Workplace) -> dict[str, pd.DataFrame]:
    """Tables of all cells of all setups whose data files exist, with a column ``world``.

    Models and points also have ``steps``, those of the training. Data sets whose files are missing are in the table
    ``missing``.

    >>> import torch
    >>> from unseam.papers.bhowal2024._setups import FACES, smoke
    >>> list(train_setups((smoke(FACES),), Workplace(torch.device("cpu"))))
    ['missing']
    """
    import pandas as pd

    parts: dict[str, list[pd.DataFrame]] = {}
    missing: dict[str, MissingFileError] = {}
    for setup in setups:
        try:
            setup.load()
        except MissingFileError as error:
            missing[NAMES[setup.base.world]] = error
            continue
        for cell in setup.cells:
            for name, table in train_cell(setup, cell, where).items():
                named: dict[str, Any] = {"world": setup.base.world}
                if name in ("members", "points"):
                    named["steps"] = setup.base.steps
                parts.setdefault(name, []).append(table.assign(**named))
    tables = {name: pd.concat(part, ignore_index=True) for name, part in parts.items()}
    return tables | missing_table(missing)


def select(tables: Tables, **columns: Sequence[str]) -> dict[str, pd.DataFrame]:
    """These columns of some tables, after those that name a row, with ``trainings`` and ``missing``."""
    found = {
        name: tables[name][[key for key in KEYS if key in tables[name]] + list(chosen)]
        for name, chosen in columns.items()
        if name in tables
    }
    return found | {name: tables[name] for name in ("trainings", "missing") if name in tables}


def worlds(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of a table by data set, in their order."""
    for world in dict.fromkeys(table["world"]):
        yield str(world), table[table["world"] == world]


def at_cell(table: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """The rows of a cell."""
    return table[(table["family"] == cell.family) & (table["beta"] == cell.beta)]


def cells_of(table: pd.DataFrame, cells: Sequence[Cell] = CELLS) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """Rows of a table by cell, without cells that have none."""
    for one in cells:
        own = at_cell(table, one)
        if len(own):
            yield one, own
