"""Trainings of artefacts: done once, measured along the way and at the end, stored as small tables."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from unseam.data import World
from unseam.files import remove_folder, write_json
from unseam.papers.artefact import Workplace
from unseam.papers.results import MissingTableError, read_tables, write_tables
from unseam.training import Ensemble, train
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

    Tables = Mapping[str, pd.DataFrame]

__all__ = ["data_checksum", "follow", "training_name"]

CHECKPOINT_SECONDS = 60.0
CHECKED_ITEMS = 256


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
    import pandas as pd

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
        "data": data_checksum(world),
    }
    return pd.DataFrame([row])


def data_checksum(world: World) -> str:
    """A checksum of a data set: its size, and up to 256 evenly spaced items with their factors, at 16 bits.

    >>> from unseam.data import load
    >>> data_checksum(load("linear", size=10)) == data_checksum(load("linear", size=11))
    False
    """
    index = torch.linspace(0, len(world) - 1, min(len(world), CHECKED_ITEMS)).long()
    digest = hashlib.sha256(f"{world.name} {len(world)} {tuple(world.shape)}".encode())
    for values in (world.images(index.to(world.device)), world.factors[index.to(world.factors.device)]):
        digest.update(values.detach().cpu().half().numpy().tobytes())
    return digest.hexdigest()[:12]
