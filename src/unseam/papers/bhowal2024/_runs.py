"""Trainings of a setup, each done once for all artefacts that need it, and their rows by data set and model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from unseam.data import place
from unseam.papers.artefact import Workplace
from unseam.papers.bhowal2024._measures import COLUMNS, SCORES, Rows, measured, scores
from unseam.papers.bhowal2024._setups import CELLS, NAMES, Cell, Setup
from unseam.papers.bhowal2024.released import ROWS as SIGN_COLUMNS
from unseam.papers.claims import Claim
from unseam.papers.plots import Tables
from unseam.papers.tables import concatenate
from unseam.papers.trainings import follow, measure_present
from unseam.training import Ensemble

Cases = Callable[[Tables], Iterable[Any]]

RECORDS = 20
"""Of a training; scores are taken at some of them."""
KEYS = ("world", "family", "beta", "seed")
PRINTED = {
    "sprites": "dSprites",
    "dsprites": "dSprites",
    "faces3d": "3DFaces",
    "shapes": "3DShapes",
    "shapes3d": "3DShapes",
    "mpi3d": "MPI3D",
}
"""Names of the paper's rows."""


def train_cell(setup: Setup, cell: Cell, where: Workplace) -> dict[str, pd.DataFrame]:
    """Train all seeds of a cell in one stack and measure them; rows are named by ``family``, ``beta`` and ``seed``.

    Tables: ``path``, one row per model and mark, with its ``step`` and the keys of
    :func:`~unseam.papers.bhowal2024._measures.scores`; where decoders are measured those of
    :class:`~unseam.papers.bhowal2024._measures.Measured`; and ``trainings``.
    """
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
    """

    def trained(setup: Setup) -> Tables:
        setup.load()
        tables = concatenate(train_cell(setup, cell, where) for cell in setup.cells)
        found = {name: table.assign(world=setup.base.world) for name, table in tables.items()}
        for name in found.keys() & {"members", "points"}:
            found[name]["steps"] = setup.base.steps
        return found

    return measure_present((NAMES[setup.base.world], functools.partial(trained, setup)) for setup in setups)


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


def families(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of a table by family, of the paper's three models alone."""
    for one in CELLS:
        own = table[(table["family"] == one.family) & (table["beta"] == one.beta)]
        if len(own):
            yield one.family, own


def by_row(kind: type[Claim], says: str, cases: Cases, **options: Any) -> tuple[Claim, ...]:
    """One claim per data set, so that tests are corrected within a row of a table.

    Corrected over a whole table no paired test of six seeds could succeed: the smallest p that they attain is 1/64.
    """

    def of_row(row: str, tables: Tables) -> Iterable[Any]:
        own = {
            name: table[table["world"].map(PRINTED) == row]
            for name, table in tables.items()
            if "world" in table
        }
        return cases({**tables, **own})

    rows = dict.fromkeys(PRINTED.values())
    return tuple(kind(f"{says}, {row}", functools.partial(of_row, row), **options) for row in rows)


def groups_of(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of a table by data set and steps, with both in words, in their order."""
    for world, part in worlds(table):
        for steps in dict.fromkeys(part["steps"]):
            yield f"{NAMES[world]}, {steps_in_words(int(steps))}", part[part["steps"] == steps]


def cells_of(table: pd.DataFrame) -> pd.Series[str]:
    """The family and β of each row, which drive what is measured of a model."""
    found: pd.Series[str] = table["family"] + table["beta"].astype(str)
    return found


def by_model(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of a table by data set and family, with both in words."""
    for world, part in worlds(table):
        for family, own in families(part):
            yield f"{NAMES[world]}, {family}", own


def steps_in_words(steps: Any) -> str:
    """For titles and findings."""
    return "one step" if steps == 1 else f"{steps:,} steps".replace(",", " ")
