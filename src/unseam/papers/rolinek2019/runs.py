"""Trainings of a setup, measured on their way; each is made once for all artefacts that need it."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from unseam.data import World, place, split
from unseam.papers.artefact import Workplace
from unseam.papers.kept import digest, kept
from unseam.papers.rolinek2019.measures import LEAST_ERROR, Unseen, measures, regime_errors
from unseam.papers.rolinek2019.setups import Column, Setup
from unseam.training import Ensemble, Stack, provenance, stack_trials, training_index, training_steps
from unseam.training.progress import choose

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["POLARISED", "Followed", "Prepared", "at_beta", "followed", "last", "prepared"]

# Labels of digits and clothes do not generate the pictures (Remark on Table 1).
UNSCORED = ("mnist", "fashion_mnist")
POLARISED = 0.03
"""Δ_KL below which training runs in the polarised regime (§5.2)."""


class Followed(NamedTuple):
    """A column of a setup, trained and measured.

    >>> Followed._fields
    ('members', 'regime', 'trainings')
    """

    members: pd.DataFrame
    """A row for each run and record: ``column``, ``beta``, ``seed``, ``epoch``, and the keys of :func:`measures`.

    ``polarised`` is the percentage of training, so far, from which on Δ_KL stayed below 3 %. Runs that diverged are
    left out.
    """
    regime: pd.DataFrame
    """Δ_KL along training: ``column``, ``beta``, ``step``, and ``min``, ``mean`` and ``max`` over seeds."""
    trainings: pd.DataFrame
    """One row: how many members were trained, how many of them diverged, for how long and where."""


def followed(setup: Setup, column: Column, where: Workplace) -> Followed:
    """Train all seeds of a column together and measure them at every record.

    What was measured is kept in the workplace's shared folder, where other artefacts with the same trainings find it.

    >>> import torch
    >>> tiny = Setup(world="linear", options=(("size", 250),), epochs=1, seeds=1, records=1, points=5)
    >>> followed(tiny, "AE", Workplace(torch.device("cpu"))).members["epoch"].tolist()
    [1.0]
    """
    return kept(
        where.shared,
        f"{setup.world}-{_digest(setup, column)}",
        Followed,
        lambda: _train(setup, column, place(setup.load(), where.device), where),
    )


def last(members: pd.DataFrame) -> pd.DataFrame:
    """The rows at the end of training.

    >>> import pandas as pd
    >>> last(pd.DataFrame({"column": ["AE"] * 2, "seed": [0, 0], "epoch": [1, 2]}))["epoch"].tolist()
    [2]
    """
    return members[members["epoch"] == members.groupby("column")["epoch"].transform("max")]


def at_beta(table: pd.DataFrame, beta: float) -> pd.DataFrame:
    """The rows of models with this β, and of those that have none to choose.

    >>> import pandas as pd
    >>> at_beta(pd.DataFrame({"column": ["AE", "β-VAE", "β-VAE"], "beta": [1.0, 1.0, 4.0]}), 4.0)["beta"].tolist()
    [1.0, 4.0]
    """
    return table[table["column"].isin(["VAE", "AE"]) | (table["beta"] == beta)]


class Prepared(NamedTuple):
    """A column of a setup before its training.

    >>> Prepared._fields
    ('stack', 'ensemble', 'unseen', 'size')
    """

    stack: Stack
    ensemble: Ensemble
    """The same members, as they are at any time of the training."""
    unseen: Unseen
    size: int
    """Number of training items."""


def prepared(setup: Setup, column: Column, world: World, device: torch.device) -> Prepared:
    """Members that are about to be trained, and where to measure them.

    >>> tiny = Setup(world="linear", options=(("size", 250),), seeds=3)
    >>> prepared(tiny, "AE", tiny.load(), torch.device("cpu")).size
    200
    """
    trials = setup.trials(column, world)
    part = training_index(trials[0], len(world))
    size = len(world) if part is None else len(part)
    stack = stack_trials(trials, world.shape, size=size, device=device)
    return Prepared(stack, _ensemble(stack, world), _unseen(setup, world), size)


def _train(setup: Setup, column: Column, world: World, where: Workplace) -> Followed:
    import pandas as pd

    stack, ensemble, unseen, size = prepared(setup, column, world, where.device)
    trials = stack.trials
    rows: list[dict[str, Any]] = []
    checks: list[dict[str, Any]] = []
    steps, marks = trials[0].steps, _marks(setup, trials[0].steps, size)
    who = [{"column": column, "beta": trial.beta, "seed": trial.seed} for trial in trials]
    last_unpolarised = torch.zeros(len(trials))
    began = time.monotonic()
    with choose(where.progress) as telling:
        for record in training_steps(stack, world, every=setup.checked):
            telling.record(stack, record, record.step, steps)
            if trials[0].posterior == "diagonal":
                errors = regime_errors(ensemble, unseen)
                last_unpolarised[~(errors < POLARISED)] = record.step
                checks += _ranges(who, record.step, errors)
            if record.step in marks:
                share = (100 * (1 - last_unpolarised / record.step)).tolist()
                epoch = record.step * setup.batch_size / size
                found = measures(ensemble, unseen)
                rows += [
                    one | {"epoch": epoch, "polarised": part} | other
                    for one, part, other in zip(who, share, found, strict=True)
                ]
    alive = stack.alive.tolist()
    if not any(alive):
        raise RuntimeError(
            f"all {len(alive)} runs of {column} on {setup.world} diverged: lower the learning rate or, for "
            "adagrad, raise the accumulator"
        )
    sound_rows = [row for row, sound in zip(rows, itertools.cycle(alive), strict=False) if sound]
    about = _about(setup, column, ensemble) | {"diverged": alive.count(False)}
    about["seconds"] = round(time.monotonic() - began, 1)
    return Followed(pd.DataFrame(sound_rows), _thinned(checks), pd.DataFrame([about]))


def _about(setup: Setup, column: Column, ensemble: Ensemble) -> dict[str, Any]:
    versions, hardware = ensemble.about["versions"], ensemble.about["hardware"]
    return {
        "world": setup.world,
        "column": column,
        "latents": setup.latent,
        "batch": setup.batch_size,
        "members": len(ensemble),
        "steps": ensemble.trials[0].steps,
        "partition": LEAST_ERROR if ensemble.trials[0].posterior == "diagonal" else "",
        "hardware": hardware.get("accelerator", hardware["processor"]),
        "torch": versions["torch"],
        "unseam": versions["unseam"],
    }


def _ranges(who: Sequence[Mapping[str, Any]], step: int, errors: Tensor) -> Iterator[dict[str, Any]]:
    """Least, mean and largest Δ_KL over the seeds of each β."""
    for beta in dict.fromkeys(one["beta"] for one in who):
        own = errors[torch.tensor([one["beta"] == beta for one in who])]
        extremes = {"min": float(own.min()), "mean": float(own.mean()), "max": float(own.max())}
        yield {"column": who[0]["column"], "beta": beta, "step": step} | extremes


def _thinned(checks: list[dict[str, Any]]) -> pd.DataFrame:
    """At most 120 checks a β, denser where training begins: what a figure shows."""
    import numpy as np
    import pandas as pd

    table = pd.DataFrame(checks, columns=["column", "beta", "step", "min", "mean", "max"])
    steps = np.sort(table["step"].unique())
    chosen = np.unique(np.geomspace(1, max(1, len(steps)), 120).round().astype(int)) - 1
    return table[table["step"].isin(steps[chosen] if len(steps) else [])].reset_index(drop=True)


def _marks(setup: Setup, steps: int, size: int) -> set[int]:
    """Steps at which members are measured, as multiples of the checks, and the last."""
    if setup.epochs_recorded:
        wanted = [epoch * size / setup.batch_size for epoch in setup.epochs_recorded]
    else:
        ratio = min(1.0, 2 * setup.checked / steps)
        wanted = [steps * ratio ** (1 - turn / setup.records) for turn in range(1, setup.records)]
    marks = {setup.checked * max(1, round(step / setup.checked)) for step in wanted}
    return {mark for mark in marks if mark < steps - setup.checked / 2} | {steps}


def _unseen(setup: Setup, world: World) -> Unseen:
    _, validation, test = (part.to(world.device) for part in split(len(world), (0.8, 0.1, 0.1), seed=0))
    return Unseen(world, validation, test, setup.points, setup.world not in UNSCORED)


def _ensemble(stack: Stack, world: World) -> Ensemble:
    import pandas as pd

    return Ensemble(
        stack.trials,
        world.shape,
        (stack,),
        (tuple(range(len(stack))),),
        pd.DataFrame(),
        provenance(stack.device),
    )


def _digest(setup: Setup, column: str) -> str:
    """Of all that a column's training depends on: which other columns are trained is not among it."""
    given = dataclasses.asdict(dataclasses.replace(setup, columns=()))
    return digest([given, column])
