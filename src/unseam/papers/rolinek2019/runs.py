"""Trainings of a setup's models, each done once for all artefacts that need it, and their polarised regime."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.data import World, place
from unseam.geometry import gaussian_kl
from unseam.papers.artefact import Workplace
from unseam.papers.measures import Unseen, measures
from unseam.papers.rolinek2019.setups import BETA, Column, Setup
from unseam.papers.tables import columns_of
from unseam.papers.trainings import follow
from unseam.training import Ensemble, training_index

__all__ = [
    "POLARISED",
    "Runs",
    "Training",
    "Trainings",
    "at_beta",
    "epochs",
    "final",
    "gather",
    "held_out",
    "last",
    "latent_terms",
    "least_error",
    "missing",
    "printed",
    "run_column",
]

# Labels of digits and clothes do not generate the pictures (Remark on Table 1).
UNSCORED = ("mnist", "fashion_mnist")
POLARISED = 0.03
"""Δ_KL below which training runs in the polarised regime (§5.2)."""
SHOWN = 120
"""Checks of the regime that are stored per β, denser where training begins."""


@dataclass(frozen=True)
class Training:
    """Settings of artefacts that look at one training and need nothing else."""

    setup: Setup


@dataclass(frozen=True)
class Trainings:
    """Settings of artefacts that look at several."""

    setups: tuple[Setup, ...]


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


def gather(
    parts: Iterable[tuple[Mapping[str, Any], Runs]],
    columns: Sequence[str],
    choose: Callable[[Runs], pd.DataFrame] | None = None,
) -> dict[str, pd.DataFrame]:
    """Tables ``members`` and ``trainings`` of several columns, each with labels of its own.

    Args:
        parts: labels, as columns and their value, and what was measured.
        columns: of ``members`` that are shown.
        choose: the rows of a part's members that are; those at the printed β and the end of training if not given.
    """
    labelled = list(parts)
    members = [(choose or final)(part).assign(**labels) for labels, part in labelled]
    trainings = [part.trainings.assign(**labels) for labels, part in labelled]
    found = pd.concat(members, ignore_index=True)
    return {
        "members": found[[name for name in columns if name in found]],
        "trainings": pd.concat(trainings, ignore_index=True),
    }


def last(members: pd.DataFrame) -> pd.DataFrame:
    """The rows at the end of training."""
    return members[members["epoch"] == members.groupby("column")["epoch"].transform("max")]


def at_beta(table: pd.DataFrame, beta: float) -> pd.DataFrame:
    """The rows of models with this β, and of those that have none to choose."""
    return table[table["column"].isin(["VAE", "AE"]) | (table["beta"] == beta)]


def printed(part: Runs) -> pd.DataFrame:
    """The rows at the printed β."""
    return at_beta(part.members, BETA[str(part.trainings["world"].iloc[0])])


def final(part: Runs) -> pd.DataFrame:
    """The rows at the printed β and the end of training."""
    return last(printed(part))


def held_out(setup: Setup, world: World) -> Unseen:
    """Where members of a setup are measured."""
    return Unseen.of(setup.base, world, setup.points, scored=setup.base.world not in UNSCORED)


def epochs(ensemble: Ensemble, unseen: Unseen, step: int) -> float:
    """Epochs of the training part that so many steps are."""
    trial = ensemble.trials[0]
    index = training_index(trial, len(unseen.world))
    return step * trial.batch_size / (len(unseen.world) if index is None else len(index))


def _observe(setup: Setup, ensemble: Ensemble, step: int, unseen: Unseen) -> dict[str, pd.DataFrame]:
    """Δ_KL of every member with a diagonal posterior; at some steps all that is measured."""
    found, trial = {}, ensemble.trials[0]
    if trial.posterior == "diagonal":
        errors = _regime_errors(ensemble, unseen)
        found["regime"] = pd.DataFrame({"member": range(len(ensemble)), "delta_kl": errors.tolist()})
    if step in _marks(setup, trial.steps, epochs(ensemble, unseen, 1)):
        found["members"] = pd.DataFrame(measures(ensemble, unseen)).rename_axis("member").reset_index()
    return found


def _finish(column: Column, ensemble: Ensemble, unseen: Unseen) -> dict[str, pd.DataFrame]:
    sound = [member for member in range(len(ensemble)) if member not in ensemble.stopped]
    if not sound:
        raise RuntimeError(
            f"all {len(ensemble)} runs of {column} on {unseen.world.name} diverged: lower the learning rate or, for "
            "adagrad, raise the accumulator"
        )
    grid = {"column": column} | columns_of([ensemble.trials[member] for member in sound], "beta", "seed")
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
        wanted = [steps * ratio ** (1 - record / setup.records) for record in range(1, setup.records)]
    marks = {setup.checked * max(1, round(step / setup.checked)) for step in wanted}
    return {mark for mark in marks if mark < steps - setup.checked / 2} | {steps}


def _regime_errors(ensemble: Ensemble, unseen: Unseen) -> Tensor:
    """Δ_KL (member,) of Eq. 30 over the validation items: :func:`unseam.geometry.delta_kl` of every member."""
    kl, half = latent_terms(ensemble, unseen)
    return missing(kl, half, least_error(kl, half))


def latent_terms(ensemble: Ensemble, unseen: Unseen) -> tuple[Tensor, Tensor]:
    """KL in nats, and σ²/2, which Eq. 10 leaves out of an active latent's KL: means over the validation items.

    Returns:
        Both (member, latent), in double precision on the host.
    """
    mean, variance = ensemble.encode(unseen.world.images(unseen.validation[: unseen.points]))
    costs = gaussian_kl(mean, variance).double()
    kl, half = (values.mean(1).cpu() for values in (costs, variance.double() / 2))
    return kl, half


def least_error(kl: Tensor, half: Tensor) -> Tensor:
    """Active latents (member, latent) under the partition for which Eq. 10 misses least.

    >>> least_error(torch.tensor([[2.0, 0.01]]), torch.tensor([[0.1, 0.49]]))
    tensor([[ True, False]])
    """
    return half < kl


def missing(kl: Tensor, half: Tensor, active: Tensor) -> Tensor:
    """Δ_KL (member,) where the ``active`` latents (member, latent) count as such: all that Eq. 10 misses is positive.

    >>> missing(torch.tensor([[2.0, 0.5]]), torch.tensor([[0.1, 0.5]]), torch.tensor([[True, False]]))
    tensor([0.2400])
    """
    return torch.where(active, half, kl).sum(1) / kl.sum(1)
