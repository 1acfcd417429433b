"""Trainings of a setup, measured at their end; each is made once for all artefacts that need it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unseam.data import MissingFileError, World, place
from unseam.papers.artefact import Workplace
from unseam.papers.bhowal2024.measures import COLUMNS, SCORES, measured, scores
from unseam.papers.bhowal2024.released import ROWS as SIGN_COLUMNS
from unseam.papers.bhowal2024.setups import CELLS, Cell, Group, Setup
from unseam.papers.kept import digest, kept
from unseam.training import Ensemble, provenance, stack_trials, training_index, training_steps
from unseam.training.progress import choose

if TYPE_CHECKING:
    import pandas as pd

    from unseam.papers.artefact import Tables

__all__ = [
    "CodesScored",
    "Followed",
    "at_cell",
    "codes_scored",
    "followed",
    "select",
    "trained",
    "trained_groups",
]

RECORDS = 20
"""Of a training; scores are taken at some of them."""


class Followed(NamedTuple):
    """A cell of a setup, trained and measured; every table names its rows by ``family``, ``beta`` and ``seed``."""

    members: pd.DataFrame
    """A row a model: the keys of :func:`~unseam.papers.bhowal2024.measures.measured`."""
    path: pd.DataFrame
    """A row a model and mark: ``step`` and the keys of :func:`~unseam.papers.bhowal2024.measures.scores` there."""
    points: pd.DataFrame
    """A row a model and point: squared distances from orthogonal columns, for scores that compare models."""
    fits: pd.DataFrame
    """A row a model and number of steps of the local fit: held-out errors."""
    signs: pd.DataFrame
    """A row a model, point and sign of the released penalty; none for models beyond the paper's three."""
    columns: pd.DataFrame
    """Variances and column lengths of one model's active latents at a few points."""
    trainings: pd.DataFrame
    """One row: how many members were trained, for how long and where."""


class CodesScored(NamedTuple):
    """A cell of a setup whose codes alone are of interest."""

    path: pd.DataFrame
    """As in :class:`Followed`; rows of the last step are the scores at the end."""
    trainings: pd.DataFrame


def followed(setup: Setup, cell: Cell, where: Workplace) -> Followed:
    """Train all seeds of a cell together and measure them.

    What was measured is kept in the workplace's shared folder, where other artefacts with the same trainings find it. A
    cell is what an interrupted run loses at most.

    >>> import torch
    >>> from unseam.papers.bhowal2024.setups import SPRITES, smoke
    >>> tiny = smoke(SPRITES, seeds=1, steps=1)
    >>> len(followed(tiny, CELLS[2], Workplace(torch.device("cpu"))).members)
    1
    """
    return kept(where.shared, _name(setup, cell), Followed, lambda: _follow(setup, cell, where))


def codes_scored(setup: Setup, cell: Cell, where: Workplace) -> CodesScored:
    """Train all seeds of a cell together and score their codes.

    Cells of the printed loss and networks are those of the paper's tables: :func:`followed` measures them in full, so
    that they are not trained twice.

    >>> import torch
    >>> from unseam.papers.bhowal2024.setups import SPRITES, smoke
    >>> tiny = smoke(SPRITES, seeds=1, steps=1, likelihood="bernoulli")
    >>> len(codes_scored(tiny, CELLS[2], Workplace(torch.device("cpu"))).path)
    1
    """
    if setup.likelihood == "gaussian" and not setup.released:
        found = followed(setup, cell, where)
        return CodesScored(found.path, found.trainings)
    return kept(where.shared, _name(setup, cell), CodesScored, lambda: _score(setup, cell, where))


def _name(setup: Setup, cell: Cell) -> str:
    return f"{setup.world}-{digest([dataclasses.asdict(setup), dataclasses.astuple(cell)])}"


def trained(
    setups: Sequence[Setup],
    where: Workplace,
    *,
    cells: Sequence[Cell] = CELLS,
    follow: Callable[[Setup, Cell, Workplace], Any] = followed,
) -> dict[str, pd.DataFrame]:
    """Tables of all cells of all setups whose data files exist, with a column ``world``; ``follow`` names its tables.

    A table ``missing`` has a row per data set whose file is missing: its ``world``, and what it takes to get it
    (``need``).

    >>> import torch
    >>> from unseam.papers.bhowal2024.setups import FACES, smoke
    >>> list(trained((smoke(FACES),), Workplace(torch.device("cpu"))))
    ['missing']
    """
    parts: list[Tables] = []
    for setup in setups:
        try:
            setup.load()
        except MissingFileError as error:
            parts.append(_missing(setup.world, error))
            continue
        for cell in cells:
            found = follow(setup, cell, where)._asdict()
            parts.append({name: table.assign(world=setup.world) for name, table in found.items()})
    return _joined(parts)


def trained_groups(groups: Sequence[Group], where: Workplace) -> list[dict[str, pd.DataFrame]]:
    """:func:`trained` for each group; members have a column ``steps``."""
    found = [trained((group.setup,), where, cells=group.cells) for group in groups]
    for tables, group in zip(found, groups, strict=True):
        if "members" in tables:
            tables["members"] = tables["members"].assign(steps=group.setup.steps)
    return found


def select(parts: Sequence[Tables], *names: str) -> dict[str, pd.DataFrame]:
    """These tables of several groups, one below the other, with ``trainings`` and ``missing`` where there are any.

    >>> import pandas as pd
    >>> absent = {"missing": pd.DataFrame({"world": ["mpi3d"], "need": ["its file"]})}
    >>> len(select([absent, absent], "members")["missing"])
    1
    """
    shown = (*names, "trainings", "missing")
    return _joined([{name: tables[name] for name in shown if name in tables} for tables in parts])


def _missing(world: str, error: MissingFileError) -> dict[str, pd.DataFrame]:
    import pandas as pd

    return {"missing": pd.DataFrame({"world": [world], "need": [error.need]})}


def _joined(parts: Sequence[Tables]) -> dict[str, pd.DataFrame]:
    import pandas as pd

    names = dict.fromkeys(name for tables in parts for name in tables)
    joined = {
        name: pd.concat([tables[name] for tables in parts if name in tables], ignore_index=True)
        for name in names
    }
    if "missing" in joined:
        joined["missing"] = joined.pop("missing").drop_duplicates(ignore_index=True)
    return joined


def at_cell(table: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """The rows of a cell.

    >>> import pandas as pd
    >>> len(at_cell(pd.DataFrame({"family": ["VAE", "β-VAE"], "beta": [1.0, 6.0]}), Cell("VAE", 1.0)))
    1
    """
    return table[(table["family"] == cell.family) & (table["beta"] == cell.beta)]


def _follow(setup: Setup, cell: Cell, where: Workplace) -> Followed:
    import pandas as pd

    world = place(setup.load(), where.device)
    began = time.monotonic()
    ensemble, path = _train(setup, cell, world, where)
    seconds = time.monotonic() - began
    found = measured(ensemble, world, setup, audited=cell in CELLS)
    last = [{"step": setup.steps} | {name: row[name] for name in SCORES} for row in found.members]
    about = {
        **_about(setup, ensemble),
        "seconds": round(seconds, 1),
        "measuring": round(time.monotonic() - began - seconds, 1),
    }
    named = {"family": cell.family, "beta": cell.beta}

    def table(rows: list[dict[str, Any]], columns: tuple[str, ...] = ()) -> pd.DataFrame:
        return pd.DataFrame([named | row for row in rows], columns=[*named, *columns] if columns else None)

    return Followed(
        table(found.members),
        table([*path, *last]),
        table(found.points),
        table(found.fits),
        table(found.signs, SIGN_COLUMNS),
        table(found.columns, COLUMNS),
        table([about]),
    )


def _score(setup: Setup, cell: Cell, where: Workplace) -> CodesScored:
    import pandas as pd

    world = place(setup.load(), where.device)
    began = time.monotonic()
    ensemble, path = _train(setup, cell, world, where)
    about = _about(setup, ensemble) | {"seconds": round(time.monotonic() - began, 1)}
    path += [{"step": setup.steps} | row for row in _on_the_way(ensemble, world, setup)]
    named = {"family": cell.family, "beta": cell.beta}
    return CodesScored(pd.DataFrame([named | row for row in path]), pd.DataFrame([named | about]))


def _train(setup: Setup, cell: Cell, world: World, where: Workplace) -> tuple[Ensemble, list[dict[str, Any]]]:
    """The members at the end, and their scores at the marks."""
    import pandas as pd

    trials = setup.trials(cell)
    part = training_index(trials[0], len(world))
    size = len(world) if part is None else len(part)
    stack = stack_trials(trials, world.shape, size=size, device=where.device)
    everyone = (tuple(range(len(stack))),)
    about = provenance(stack.device)
    ensemble = Ensemble(stack.trials, world.shape, (stack,), everyone, pd.DataFrame(), about)
    every = max(1, setup.steps // RECORDS)
    marks = {every * max(1, round(share * setup.steps / every)) for share in setup.marks}
    path: list[dict[str, Any]] = []
    with choose(where.progress) as telling:
        for record in training_steps(stack, world, every=every):
            telling.record(stack, record, record.step, setup.steps)
            if ensemble.stopped:
                raise RuntimeError(
                    f"models of {cell.family} on {setup.world} diverged, by seed and step: {ensemble.stopped}; "
                    "models are compared seed by seed, so train all of them again, with a lower learning rate"
                )
            if record.step in marks and record.step < setup.steps:
                path += [{"step": record.step} | row for row in _on_the_way(ensemble, world, setup)]
    return ensemble, path


def _on_the_way(ensemble: Ensemble, world: World, setup: Setup) -> list[dict[str, Any]]:
    """Scores with batch normalisation as it is used, in the middle of a training that goes on."""
    (stack,) = ensemble.stacks
    stack.template.eval()
    found = scores(ensemble, world, setup)
    stack.template.train()
    stack.runner.train()
    return found


def _about(setup: Setup, ensemble: Ensemble) -> dict[str, Any]:
    hardware, versions = ensemble.about["hardware"], ensemble.about["versions"]
    return {
        "members": len(ensemble),
        "steps": setup.steps,
        "batch": setup.batch_size,
        "latents": setup.latent,
        "precision": setup.precision,
        "hardware": hardware.get("accelerator", hardware["processor"]),
        "torch": versions["torch"],
        "unseam": versions["unseam"],
    }
