"""Which convention of loss and batch size gives Table 2's DtO on synthetic data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Judgement, Workplace
from unseam.papers.rolinek2019.cells import CELL_RULE, cell
from unseam.papers.rolinek2019.runs import followed, last
from unseam.papers.rolinek2019.setups import (
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

PRINTED = {"linear": 1e-4, "nonlinear": 1e-3}
LOSSES = {
    "linear": {0.5: "half the sum of squares", 1.0: "sum of squares (Eq. 11)", 3.0: "mean of squares"},
    "nonlinear": {0.5: "half the sum of squares", 1.0: "sum of squares (Eq. 11)", 6.0: "mean of squares"},
}
"""Adam does not see a factor before the whole loss, so each loss is Eq. 11 with so many times the printed β."""


@dataclass(frozen=True)
class Settings:
    """One synthetic data set at several batch sizes; the losses are members of one stack."""

    setups: tuple[Setup, ...]


def measure(settings: Settings, place: Workplace) -> Tables:
    """Train every combination and follow its distance to orthogonality."""
    import pandas as pd

    parts = [followed(setup, "β-VAE", place) for setup in settings.setups]
    members = pd.concat(
        [
            part.members.assign(batch=setup.batch_size)
            for part, setup in zip(parts, settings.setups, strict=True)
        ],
        ignore_index=True,
    )
    world = settings.setups[0].world
    members["loss"] = (members["beta"] / PRINTED[world]).round(6).map(LOSSES[world])
    members = members.dropna(subset="loss")
    trainings = pd.concat([part.trainings for part in parts], ignore_index=True)
    return {"members": members, "trainings": trainings}


def judge(tables: Tables) -> Judgement:
    """Every combination against the published cell."""
    world, ends = tables["trainings"]["world"].iloc[0], last(tables["members"])
    found = [
        cell(
            f"batches of {batch}, {words}: DtO",
            DTO[world]["β-VAE"],
            ends[(ends["batch"] == batch) & (ends["loss"] == words)]["dto"],
        )
        for batch in ends["batch"].unique()
        for words in LOSSES[world].values()
    ]
    return Judgement(tuple(found))


def draw(tables: Tables) -> Figure:
    """Distance to orthogonality along training, mean and quartiles over runs."""
    members = tables["members"]
    batches = sorted(members["batch"].unique())
    figure, axes = panels([f"DtO, batches of {batch}" for batch in batches], width=3.2, height=2.5)
    for panel, batch in zip(axes, batches, strict=True):
        part = members[members["batch"] == batch]
        for (words, runs), colour in zip(part.groupby("loss", sort=False), COLOURS, strict=False):
            curve = runs.groupby("epoch")["dto"]
            low, high = curve.quantile(0.25), curve.quantile(0.75)
            panel.fill_between(low.index, low, high, color=colour, alpha=0.15, linewidth=0)
            panel.plot(curve.mean().index, curve.mean(), "o-", color=colour, markersize=3, label=words)
        panel.set_xscale("log")
        panel.set_xlabel("epochs", fontsize=8)
        panel.set_ylim(bottom=0)
    axes[-1].legend(fontsize=7, frameon=False)
    return figure


def _at(setup: Setup, batch_size: int) -> Setup:
    betas = tuple(PRINTED[setup.world] * scale for scale in LOSSES[setup.world])
    return dataclasses.replace(setup, betas=betas, batch_size=batch_size, columns=("β-VAE",))


def _artefact(setup: Setup, family: Setup) -> Artefact:
    said, batch = DTO[setup.world]["β-VAE"], quick(setup).batch_size
    return Artefact(
        key=f"rolinek2019.convention_{setup.world}",
        title=f"{NAMES[setup.world]}: what loss scale and batch size do to Table 2's {said.mean:.2f}",
        claim=f"After 600 epochs the β-VAE's DtO is {said} (Table 2); neither the loss's scale nor the batch size is "
        "stated.",
        criterion=f"{CELL_RULE} Each convention is judged by itself.",
        presets={
            "smoke": Settings((_at(smoke(setup), 20), _at(smoke(setup), 40))),
            "laptop": Settings((_at(quick(setup), batch // 2), _at(quick(setup), batch))),
            "full": Settings((family, _at(setup, 100))),
        },
        measure=measure,
        judge=judge,
        draw=draw,
    )


CONVENTION = (_artefact(LINEAR, LINEAR_FAMILY), _artefact(NONLINEAR, NONLINEAR_FAMILY))
