"""Trainings of a setup's models, each done once for all artefacts that need it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unseam.data import World, place
from unseam.papers.artefact import Workplace
from unseam.papers.measures import Unseen, measures
from unseam.papers.rolinek2019.regime import regime_errors
from unseam.papers.rolinek2019.setups import Column, Setup
from unseam.papers.trainings import follow
from unseam.training import Ensemble, split_items, training_index

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["POLARISED", "Runs", "at_beta", "epochs", "held_out", "last", "run_column"]

# Labels of digits and clothes do not generate the pictures (Remark on Table 1).
UNSCORED = ("mnist", "fashion_mnist")
POLARISED = 0.03
"""Δ_KL below which training runs in the polarised regime (§5.2)."""
SHOWN = 120
"""Checks of the regime that are stored per β, denser where training begins."""


class Runs(NamedTuple):
    """A column of a setup, trained and measured."""

    members: pd.DataFrame
    """A row for each run and record: ``column``, ``beta``, ``seed``, ``epoch``, and the keys of :func:`measures`.

    With a diagonal posterior ``polarised`` is the percentage of training, so far, from which on Δ_KL stayed below 3 %.
    Runs that diverged are left out.
    """
    regime: pd.DataFrame
    """Δ_KL along training: ``column``, ``beta``, ``step``, and ``min``, ``mean`` and ``max`` over seeds."""
    trainings: pd.DataFrame
    """One row: what was trained, for how long and where."""


def run_column(setup: Setup, column: Column, where: Workplace) -> Runs:
    """Train all runs of a column in one stack and measure them at every record.

    The tables are stored in the workplace's shared folder, where other artefacts with the same trainings find them; the
    data set is loaded only where they are not stored yet.

    >>> import torch
    >>> from unseam.papers.rolinek2019.setups import LINEAR, smoke
    >>> tiny = smoke(LINEAR, seeds=1, steps=4, records=1)
    >>> run_column(tiny, "AE", Workplace(torch.device("cpu"))).members["seed"].tolist()
    [0]
    """
    unseen = functools.cache(lambda: held_out(setup, place(setup.load(), where.device)))
    tables = follow(
        setup.trials(column),
        where,
        world=lambda: unseen().world,
        measured=setup.measured(column),
        observe=lambda ensemble, step: _observe(setup, ensemble, step, unseen()),
        finish=lambda ensemble: _finish(column, ensemble, unseen()),
        every=setup.checked,
    )
    return Runs(**tables)


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


def held_out(setup: Setup, world: World) -> Unseen:
    """Where members of a setup are measured."""
    _, validation, test = (part.to(world.device) for part in split_items(setup.base, len(world)))
    return Unseen(world, validation, test, setup.points, setup.base.world not in UNSCORED)


def epochs(ensemble: Ensemble, unseen: Unseen, step: int) -> float:
    """Epochs of the training part that so many steps are."""
    trial = ensemble.trials[0]
    index = training_index(trial, len(unseen.world))
    return step * trial.batch_size / (len(unseen.world) if index is None else len(index))


def _observe(setup: Setup, ensemble: Ensemble, step: int, unseen: Unseen) -> dict[str, pd.DataFrame]:
    """Δ_KL of every member with a diagonal posterior; at some steps all that is measured."""
    import pandas as pd

    found, trial = {}, ensemble.trials[0]
    if trial.posterior == "diagonal":
        errors = regime_errors(ensemble, unseen)
        found["regime"] = pd.DataFrame({"member": range(len(ensemble)), "delta_kl": errors.tolist()})
    if step in _marks(setup, trial.steps, epochs(ensemble, unseen, 1)):
        found["members"] = pd.DataFrame(measures(ensemble, unseen)).rename_axis("member").reset_index()
    return found


def _finish(column: Column, ensemble: Ensemble, unseen: Unseen) -> dict[str, pd.DataFrame]:
    import pandas as pd

    sound = [member for member in range(len(ensemble)) if member not in ensemble.stopped]
    if not sound:
        raise RuntimeError(
            f"all {len(ensemble)} runs of {column} on {unseen.world.name} diverged: lower the learning rate or, for "
            "adagrad, raise the accumulator"
        )
    trials = [ensemble.trials[member] for member in sound]
    grid = {
        "column": column,
        "beta": [trial.beta for trial in trials],
        "seed": [trial.seed for trial in trials],
    }
    who = pd.DataFrame(grid, index=pd.Index(sound, name="member"))
    members = who.join(ensemble.observed["members"].set_index("member"), how="inner")
    members.insert(3, "epoch", members["step"] * epochs(ensemble, unseen, 1))
    regime = pd.DataFrame(columns=["column", "beta", "step", "min", "mean", "max"])
    if "regime" in ensemble.observed:
        errors = ensemble.observed["regime"].pivot(index="step", columns="member", values="delta_kl")
        members.insert(4, "polarised", _polarised(errors, members))
        ranges = who.join(ensemble.observed["regime"].set_index("member")).groupby(["column", "beta", "step"])
        regime = _thinned(ranges["delta_kl"].agg(["min", "mean", "max"]).reset_index())
    order = members.sort_values("step", kind="stable")
    return {"members": order.drop(columns="step").reset_index(drop=True), "regime": regime}


def _polarised(errors: pd.DataFrame, members: pd.DataFrame) -> NDArray[np.float64]:
    """Percentage of training until the step of each row, from which on Δ_KL (step, member) stayed below 3 %."""
    steps = errors.index.to_numpy()[:, None]
    above = np.maximum.accumulate(np.where(errors.to_numpy() < POLARISED, 0, steps), axis=0)
    percentages = 100 * (1 - above / steps)
    return percentages[
        np.searchsorted(steps[:, 0], members["step"]), np.searchsorted(errors.columns, members.index)
    ]


def _thinned(ranges: pd.DataFrame) -> pd.DataFrame:
    """What a figure shows of the regime's checks."""
    steps = np.sort(ranges["step"].unique())
    chosen = np.unique(np.geomspace(1, len(steps), SHOWN).round().astype(int)) - 1
    return ranges[ranges["step"].isin(steps[chosen])]


def _marks(setup: Setup, steps: int, per_step: float) -> set[int]:
    """Steps at which members are measured, as multiples of the checks, and the last."""
    if setup.epochs:
        wanted = [epoch / per_step for epoch in setup.epochs]
    else:
        ratio = min(1.0, 2 * setup.checked / steps)
        wanted = [steps * ratio ** (1 - turn / setup.records) for turn in range(1, setup.records)]
    marks = {setup.checked * max(1, round(step / setup.checked)) for step in wanted}
    return {mark for mark in marks if mark < steps - setup.checked / 2} | {steps}
