"""Trainings of artefacts: done once, measured along the way and at the end, stored as small tables."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pandas as pd

from unseam.data import MissingFileError, World, identify_data, load
from unseam.files import remove_folder, write_json
from unseam.papers.artefact import Workplace, missing_table
from unseam.papers.plots import Tables
from unseam.papers.results import MissingTableError, read_tables, write_tables
from unseam.papers.tables import concatenate
from unseam.training import Ensemble, train
from unseam.trial import Trial

__all__ = [
    "TrialGrid",
    "combinations",
    "follow",
    "measure_present",
    "train_or_resume",
    "training_name",
    "vae_trial",
]

CHECKPOINT_SECONDS = 60.0
COPIED = ("steps", "batch_size", "learning_rate")


@dataclass(frozen=True)
class TrialGrid:
    """Base of settings for one data set: trials that differ in some fields from one, and how they are measured."""

    base: Trial

    def load(self) -> World:
        """The data set."""
        options: dict[str, Any] = dict(self.base.world_options)
        return load(self.base.world, **options)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values of its own fields or of its base's.

        >>> TrialGrid(Trial(latent=2)).replace(latent=10).base.latent
        10
        """
        own = {field.name for field in dataclasses.fields(self)}
        base = {name: changes.pop(name) for name in set(changes) - own}
        return dataclasses.replace(self, base=dataclasses.replace(self.base, **base), **changes)


def vae_trial(world: str, settings: Any, widths: tuple[int, ...] = (), **changes: Any) -> Trial:
    """A Gaussian VAE with these hidden layers on both sides; steps, batch size and learning rate are the settings'.

    >>> vae_trial("linear", Trial(steps=7), latent=2, batch_size=50).steps
    7
    """
    copied = {name: getattr(settings, name) for name in COPIED if name not in changes}
    fields = {"likelihood": "gaussian", "encoder_widths": widths, "decoder_widths": widths}
    return Trial(**{"world": world, "precision": "float32"} | fields | copied | changes)


def combinations(first: Trial, **values: Iterable[Any]) -> list[Trial]:
    """A trial with every combination of values of some fields, the last one varying fastest.

    >>> [(trial.beta, trial.seed) for trial in combinations(Trial(), beta=[1.0, 4.0], seed=range(2))]
    [(1.0, 0), (1.0, 1), (4.0, 0), (4.0, 1)]
    """
    chosen = itertools.product(*values.values())
    return [dataclasses.replace(first, **dict(zip(values, each, strict=True))) for each in chosen]


def train_or_resume(
    trials: Sequence[Trial], place: Workplace, name: str, *, world: World | None = None, **options: Any
) -> Ensemble:
    """Train all trials together, resuming what a folder of that name holds; ``options`` are :func:`unseam.train`'s.

    >>> trials = [Trial(world="linear", world_options=(("size", 20),), likelihood="gaussian", steps=2, batch_size=4)]
    >>> import torch
    >>> len(train_or_resume(trials, Workplace(torch.device("cpu")), "models"))
    1
    """
    folder = None if place.folder is None else place.folder / name
    options |= {"device": place.device, "progress": place.progress}
    return train(trials, world=world, out=folder, resume=folder is not None, **options)


def follow(
    trials: Sequence[Trial],
    place: Workplace,
    *,
    world: World | Callable[[], World],
    measured: Any,
    finish: Callable[[Ensemble], Tables],
    observe: Callable[[Ensemble, int], Tables] | None = None,
    every: int = 100,
) -> dict[str, pd.DataFrame]:
    """Tables of a training: those stored before, or of the training done now through :func:`unseam.train`.

    A stored table that is missing or has changed is measured again, with the others of its training. The training keeps
    checkpoints beside the stored tables, with what was observed so far, so that a process killed at any time loses less
    than a minute of it. Tables come back as they are stored, with six digits.

    Args:
        trials: one stack.
        place: its shared folder holds the tables, where other artefacts with the same trainings find them.
        world: the data, on any device; or a function that loads them, called only where a training is to be done.
        measured: JSON values that the measurements depend on; with the trials they name the training.
        finish: measures the trained ensemble, with ``ensemble.observed`` at hand.
        observe: measures along the way (see :func:`unseam.train`).
        every: steps between observations.

    Returns:
        The tables of ``finish``, and ``trainings``: one row on where the training came from.

    >>> import pandas as pd
    >>> from unseam.data import load
    >>> trials = [Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)]
    >>> import torch
    >>> place, world = Workplace(torch.device("cpu")), load("linear", size=20)
    >>> finish = lambda ensemble: {"members": pd.DataFrame({"seed": [0]})}
    >>> sorted(follow(trials, place, world=world, measured=None, finish=finish))
    ['members', 'trainings']
    """
    name = training_name(trials, measured)
    folder = place.shared
    if folder is not None and (folder / f"{name}.json").exists():
        with contextlib.suppress(MissingTableError):
            return read_tables(folder / f"{name}.json")
    data = world if isinstance(world, World) else world()
    work = place.folder / name if folder is None and place.folder is not None else None
    work = folder / f".{name}.work" if folder is not None else work
    ensemble = train(
        trials,
        world=data,
        device=place.device,
        out=work,
        resume=work is not None,
        every=every,
        checkpoint_seconds=CHECKPOINT_SECONDS,
        progress=place.progress,
        observe=observe,
    )
    found = dict(finish(ensemble)) | {"trainings": _provenance(ensemble, data)}
    if folder is None:
        return found
    record = {"trials": _grid(trials), "measured": measured, "about": ensemble.about}
    stored = write_tables(folder / f"{name}.json", found)
    write_json(folder / f"{name}.json", json.loads(json.dumps(record | {"tables": stored}, default=list)))
    if work is not None:
        remove_folder(work)
    return read_tables(folder / f"{name}.json")


def measure_present(parts: Iterable[tuple[str, Callable[[], Tables]]]) -> dict[str, pd.DataFrame]:
    """Tables of all data sets whose files are there, one below the other, with ``missing`` for the others.

    Args:
        parts: name of a data set, and the measurement on it.

    >>> from unseam.data import MissingFileError
    >>> def absent():
    ...     raise MissingFileError("not in /here", "fetch it first")
    >>> found = measure_present([("MPI3D", absent), ("circles", lambda: {"members": pd.DataFrame({"seed": [0]})})])
    >>> sorted(found)
    ['members', 'missing']
    """
    found: list[Tables] = []
    missing: dict[str, MissingFileError] = {}
    for name, measure in parts:
        try:
            found.append(measure())
        except MissingFileError as error:
            missing[name] = error
    return concatenate(found) | missing_table(missing)


def training_name(trials: Sequence[Trial], measured: Any) -> str:
    """Name of the stored tables of a training: its data set, and a digest of all that the tables depend on.

    Fields of a trial at their defaults do not count, so that a new field with a default changes no name.

    >>> training_name([Trial(world="linear", latent=2)], {"points": 10})
    'linear-c03103d6cb19'
    """
    text = json.dumps([_grid(trials), measured], sort_keys=True, default=list)
    return f"{trials[0].world}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _grid(trials: Sequence[Trial]) -> dict[str, Any]:
    """Fields of trials that are not at their defaults: shared ones once, others one value per trial."""
    default = Trial().to_dict()
    rows = [trial.to_dict() for trial in trials]
    found: dict[str, Any] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if any(value != default[name] for value in values):
            found[name] = values[0] if all(value == values[0] for value in values) else {"each": values}
    return found | {"members": len(rows)}


def _provenance(ensemble: Ensemble, world: World) -> pd.DataFrame:
    """One row: what was trained, for how long, where, by which code and on which data."""
    about, trial = ensemble.about, ensemble.trials[0]
    row = {
        "world": trial.world,
        "members": len(ensemble),
        "diverged": len(ensemble.stopped),
        "steps": trial.steps,
        "batch": trial.batch_size,
        "latents": trial.latent,
        "precision": trial.precision,
        "seconds": about["seconds"],
        "hardware": about["hardware"].get("accelerator", about["hardware"]["processor"]),
        "torch": about["versions"]["torch"],
        "unseam": about["versions"]["unseam"],
        "revision": about["revision"],
        "data": identify_data(world).digest[:12],
    }
    return pd.DataFrame([row])
