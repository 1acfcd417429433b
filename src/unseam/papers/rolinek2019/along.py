"""Beyond rolinek2019: distance to orthogonality and score of all its models along training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unseam.data import MissingFileError
from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.papers.rolinek2019._findings import missing_findings, missing_table
from unseam.papers.rolinek2019.cells import ORDER_RULE, order
from unseam.papers.rolinek2019.measures import SCORE
from unseam.papers.rolinek2019.runs import at_beta, followed
from unseam.papers.rolinek2019.setups import (
    COLUMNS,
    FASHION,
    JUDGED,
    LINEAR,
    LINEAR_FAMILY,
    MNIST,
    NAMES,
    NONLINEAR,
    NONLINEAR_FAMILY,
    RESTARTS,
    SPRITES,
    Setup,
    beside,
    quick,
    smoke,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["ALONG"]

STYLES = dict(zip(COLUMNS, COLOURS, strict=False))


@dataclass(frozen=True)
class Settings:
    """All trainings of Table 2."""

    setups: tuple[Setup, ...]


def measure(settings: Settings, place: Workplace) -> Tables:
    """Every model at every record, on the data sets whose files are there."""
    import pandas as pd

    parts, trainings, errors = [], [], {}
    for setup in settings.setups:
        for column in setup.columns:
            try:
                runs = followed(setup, column, place)
            except MissingFileError as error:
                errors[setup.world] = error
                break
            parts.append(at_beta(runs.members, JUDGED[setup.world]).assign(world=setup.world))
            trainings.append(runs.trainings)
    members = pd.concat(parts, ignore_index=True)
    tables = {
        "members": members[~members["world"].isin(list(errors))],
        "trainings": pd.concat(trainings, ignore_index=True),
    }
    return tables | ({"missing": missing_table(errors)} if errors else {})


def judge(tables: Tables) -> Judgement:
    """How far the distance to orthogonality falls, on each data set."""
    each = tables["members"].groupby("world", sort=False)
    found = [finding for _, part in each for finding in _findings(part)]
    return Judgement((*found, *missing_findings(tables)))


def _findings(members: pd.DataFrame) -> list[Finding]:
    """How much DtO changes from the first record to the last, of the diagonal posterior against both controls."""
    world = NAMES[members["world"].iloc[0]]
    changes = {str(column): _change(part) for column, part in members.groupby("column")}
    best = next(column for column in COLUMNS if column in changes)
    return [
        order(f"{world}: change of DtO along training, {best} less {other}", changes[best], changes[other])
        for other in ("AE", "β-VAE_Σ")
    ]


def _change(runs: pd.DataFrame) -> Any:
    """DtO at the end less that at the first record, (run,)."""
    curves = runs.pivot(index="seed", columns="epoch", values="dto")
    return (curves[curves.columns.max()] - curves[curves.columns.min()]).to_numpy()


def draw(tables: Tables) -> Figure:
    """A panel of DtO for each data set, then one of the score for each that has one; mean and quartiles over runs."""
    members = tables["members"]
    worlds = list(dict.fromkeys(members["world"]))
    titles = [f"DtO, {NAMES[world]}" for world in worlds]
    scored = [world for world in worlds if members[members["world"] == world][SCORE].notna().any()]
    titles += [f"score, {NAMES[world]}" for world in scored]
    figure, axes = panels(titles, rows=2, width=2.6, height=2.1)
    shown = [(world, "dto") for world in worlds] + [(world, SCORE) for world in scored]
    for panel, (world, name) in zip(axes, shown, strict=True):
        own = members[members["world"] == world]
        for column in (column for column in COLUMNS if (own["column"] == column).any()):
            curve = own[own["column"] == column].groupby("epoch")[name]
            low, high = curve.quantile(0.25), curve.quantile(0.75)
            panel.fill_between(low.index, low, high, color=STYLES[column], alpha=0.15, linewidth=0)
            words = column.replace("_Σ", " Σ")
            panel.plot(
                curve.mean().index, curve.mean(), "o-", color=STYLES[column], markersize=2.5, label=words
            )
        panel.set_xscale("log")
        panel.set_ylim(bottom=0)
        panel.set_xlabel("epochs", fontsize=8)
    shown_once = {
        line.get_label(): line for panel in axes for line in panel.get_lines() if line.get_label()[0] != "_"
    }
    figure.legend(
        shown_once.values(), shown_once.keys(), loc="outside lower center", ncols=4, fontsize=8, frameon=False
    )
    return figure


ALONG = Artefact(
    key="rolinek2019.along",
    title="Beyond the paper: DtO and score of all models along training",
    claim="Training with a diagonal posterior turns latents towards orthogonality; a full covariance or none does not.",
    criterion=f"{ORDER_RULE} From the first record to the last DtO falls further with a diagonal posterior than "
    "without.",
    presets={
        "smoke": Settings((smoke(LINEAR), smoke(SPRITES, latent=3))),
        "laptop": Settings((quick(LINEAR), quick(NONLINEAR))),
        "full": Settings(
            (
                *beside(LINEAR_FAMILY, LINEAR),
                *beside(NONLINEAR_FAMILY, NONLINEAR),
                *beside(RESTARTS, SPRITES),
                MNIST,
                FASHION,
            )
        ),
    },
    measure=measure,
    judge=judge,
    draw=draw,
)
