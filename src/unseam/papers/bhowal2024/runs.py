"""Trainings of a setup, measured at their end; each is made once for all artefacts that need it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from unseam.data import MissingFileError, place
from unseam.papers.artefact import Finding, Workplace
from unseam.papers.bhowal2024.measures import COLUMNS, measured
from unseam.papers.bhowal2024.setups import CELLS, NAMES, Cell, Setup
from unseam.papers.kept import digest, kept
from unseam.training import train

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Followed", "Trained", "at_cell", "followed", "trained"]

CHECKPOINT_SECONDS = 120.0


class Followed(NamedTuple):
    """A cell of a setup, trained and measured; every table names its rows by ``family``, ``beta`` and ``seed``.

    >>> Followed._fields
    ('members', 'points', 'fits', 'signs', 'columns', 'trainings')
    """

    members: pd.DataFrame
    """A row a model: the keys of :func:`~unseam.papers.bhowal2024.measures.measured`."""
    points: pd.DataFrame
    """A row a model and point: squared distances from orthogonal columns, for scores that compare models."""
    fits: pd.DataFrame
    """A row a model and number of steps of the local fit: held-out errors."""
    signs: pd.DataFrame
    """A row a model, point and sign of the released penalty: distances from orthogonal columns."""
    columns: pd.DataFrame
    """Variances and column lengths of one model's active latents at a few points."""
    trainings: pd.DataFrame
    """One row: how many members were trained, for how long and where."""


class Trained(NamedTuple):
    """Rows of an artefact: what was measured, and what could not be.

    >>> Trained._fields
    ('tables', 'missing')
    """

    tables: dict[str, pd.DataFrame]
    """The tables of :class:`Followed` over all data sets that are there, with a column ``world``; none if none is."""
    missing: tuple[Finding, ...]
    """A finding for each data set whose file is not there."""


def trained(setups: Sequence[Setup], where: Workplace, *, cells: Sequence[Cell] = CELLS) -> Trained:
    """All cells of all setups whose data are there.

    >>> import torch
    >>> from unseam.papers.bhowal2024.setups import FACES, smoke
    >>> trained((smoke(FACES),), Workplace(torch.device("cpu"))).missing[0].verdict
    'cannot be run here'
    """
    import pandas as pd

    parts: list[dict[str, pd.DataFrame]] = []
    missing = []
    for setup in setups:
        try:
            setup.load()
        except MissingFileError as error:
            name = NAMES[setup.world]
            missing.append(Finding(name, "", None, None, None, "cannot be run here", str(error)))
            continue
        for cell in cells:
            found = followed(setup, cell, where)._asdict()
            parts.append({name: table.assign(world=setup.world) for name, table in found.items()})
    tables = {
        name: pd.concat([part[name] for part in parts], ignore_index=True)
        for name in (Followed._fields if parts else ())
    }
    return Trained(tables, tuple(missing))


def followed(setup: Setup, cell: Cell, where: Workplace) -> Followed:
    """Train all seeds of a cell together and measure them.

    What was measured is kept in the workplace's shared folder, where other artefacts with the same trainings find it;
    while it trains, checkpoints are kept in the workplace's own.

    >>> import torch
    >>> from unseam.papers.bhowal2024.setups import SPRITES, smoke
    >>> tiny = smoke(SPRITES, seeds=1, steps=1)
    >>> len(followed(tiny, CELLS[2], Workplace(torch.device("cpu"))).members)
    1
    """
    name = f"{setup.world}-{digest([dataclasses.asdict(setup), dataclasses.astuple(cell)])}"
    return kept(where.shared, name, Followed, lambda: _follow(setup, cell, where, name))


def at_cell(table: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """The rows of a cell.

    >>> import pandas as pd
    >>> len(at_cell(pd.DataFrame({"family": ["VAE", "β-VAE"], "beta": [1.0, 6.0]}), Cell("VAE", 1.0)))
    1
    """
    return table[(table["family"] == cell.family) & (table["beta"] == cell.beta)]


def _follow(setup: Setup, cell: Cell, where: Workplace, name: str) -> Followed:
    import pandas as pd

    world = place(setup.load(), where.device)
    began = time.monotonic()
    ensemble = train(
        setup.trials(cell),
        world=world,
        device=where.device,
        out=None if where.folder is None else where.folder / name,
        resume=where.folder is not None,
        every=500,
        checkpoint_seconds=CHECKPOINT_SECONDS,
        progress=where.progress,
    )
    seconds = time.monotonic() - began
    found = measured(ensemble, world, setup)
    hardware, versions = ensemble.about["hardware"], ensemble.about["versions"]
    about = {
        "members": len(ensemble),
        "steps": setup.steps,
        "batch": setup.batch_size,
        "latents": setup.latent,
        "stopped": len(ensemble.stopped),
        "seconds": round(seconds, 1),
        "measuring": round(time.monotonic() - began - seconds, 1),
        "hardware": hardware.get("accelerator", hardware["processor"]),
        "torch": versions["torch"],
        "unseam": versions["unseam"],
    }
    named = {"family": cell.family, "beta": cell.beta}
    members, points, fits, signs, shown = ([named | row for row in rows] for rows in found)
    columns = pd.DataFrame(shown, columns=[*named, *COLUMNS])
    return Followed(
        pd.DataFrame(members),
        pd.DataFrame(points),
        pd.DataFrame(fits),
        pd.DataFrame(signs),
        columns.astype(dict.fromkeys(("beta", *COLUMNS), float)),
        pd.DataFrame([named | about]),
    )
