"""Beyond rolinek2019: which scale of the loss and batch size give Table 2's DtO on synthetic data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Row, Values
from unseam.papers.rolinek2019.along import plot_curve
from unseam.papers.rolinek2019.runs import last, run_column
from unseam.papers.rolinek2019.setups import (
    BETA,
    LINEAR,
    LINEAR_FAMILY,
    NAMES,
    NONLINEAR,
    NONLINEAR_FAMILY,
    Setup,
    quick,
    smoke,
)
from unseam.papers.rolinek2019.table2 import DTO

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["CONVENTION"]

LOSSES = {
    "linear": {0.5: "half the sum of squares", 1.0: "sum of squares (Eq. 11)", 3.0: "mean of squares"},
    "nonlinear": {0.5: "half the sum of squares", 1.0: "sum of squares (Eq. 11)", 6.0: "mean of squares"},
}
"""Adam is invariant to a factor before the loss, so each loss is Eq. 11 with so many times the printed β."""


@dataclass(frozen=True)
class Settings:
    """One synthetic data set at several batch sizes; the losses are members of one stack."""

    setups: tuple[Setup, ...]


def measure(settings: Settings, place: Workplace) -> Tables:
    """Distance to orthogonality of every combination along training."""
    import pandas as pd

    world = settings.setups[0].base.world
    parts = {setup.base.batch_size: run_column(setup, "β-VAE", place) for setup in settings.setups}
    members = pd.concat(
        [part.members.assign(batch=batch) for batch, part in parts.items()], ignore_index=True
    )
    members["loss"] = (members["beta"] / BETA[world]).round(6).map(LOSSES[world])
    shown = members.dropna(subset="loss")[["column", "batch", "loss", "seed", "epoch", "dto"]]
    trainings = pd.concat([part.trainings for part in parts.values()], ignore_index=True)
    return {"members": shown, "trainings": trainings}


def conventions(tables: Tables) -> Iterator[Row]:
    """Every combination against the published cell."""
    world = str(tables["trainings"]["world"].iloc[0])
    for batch, runs in tables["members"].groupby("batch"):
        for loss, own in last(runs).groupby("loss", sort=False):
            yield Row(f"DtO, {loss}, batches of {batch}", DTO[world], {"β-VAE": own["dto"]})


def plot(tables: Tables) -> Figure:
    """Distance to orthogonality along training, mean and quartiles over runs."""
    each = tables["members"].groupby("batch")
    figure, axes = panels([f"DtO, batches of {batch}" for batch, _ in each], width=3.2, height=2.5)
    for panel, (_, part) in zip(axes, each, strict=True):
        for (loss, runs), colour in zip(part.groupby("loss", sort=False), COLOURS, strict=False):
            plot_curve(panel, runs.groupby("epoch")["dto"], colour, str(loss))
        panel.set_xscale("log")
        panel.set_xlabel("epochs", fontsize=8)
        panel.set_ylim(bottom=0)
    axes[-1].legend(fontsize=7, frameon=False)
    return figure


def _at(setup: Setup, batch_size: int) -> Setup:
    """The same number of epochs in batches of another size."""
    world, steps = setup.base.world, setup.base.steps * setup.base.batch_size // batch_size
    betas = tuple(BETA[world] * scale for scale in LOSSES[world])
    return setup.replace(betas=betas, batch_size=batch_size, steps=steps, columns=("β-VAE",))


def _artefact(setup: Setup, family: Setup) -> Artefact:
    world, batch = setup.base.world, quick(setup).base.batch_size
    said = DTO[world]["β-VAE"]
    return Artefact(
        key=f"rolinek2019.convention_{world}",
        title=f"Beyond the paper, {NAMES[world]}: scale of the loss and batch size against Table 2's DtO",
        claims=(
            Values(
                f"Table 2's DtO of β-VAE on {NAMES[world]}, {said}, under each scale of the loss and batch size",
                conventions,
                ours=True,
                exclusive=True,
            ),
        ),
        presets={
            "smoke": Settings((_at(smoke(setup), 20), _at(smoke(setup), 40))),
            "laptop": Settings((_at(quick(setup), batch // 2), _at(quick(setup), batch))),
            "full": Settings((family, _at(setup, 100))),
        },
        measure=measure,
        plot=plot,
        note="Neither the scale of the loss nor the batch size is stated.",
    )


CONVENTION = (_artefact(LINEAR, LINEAR_FAMILY), _artefact(NONLINEAR, NONLINEAR_FAMILY))
