"""Beyond rolinek2019: distance to orthogonality and score of all its models along training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unseam.data import MissingFileError
from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace, missing_table
from unseam.papers.claims import Order, Orders
from unseam.papers.measures import SCORE
from unseam.papers.rolinek2019.runs import at_beta, run_column
from unseam.papers.rolinek2019.setups import (
    BETA,
    COLUMNS,
    FASHION,
    LINEAR,
    LINEAR_FAMILY,
    MNIST,
    NAMES,
    NONLINEAR,
    NONLINEAR_FAMILY,
    RESTARTS,
    SPRITES,
    Setup,
    add_family,
    quick,
    smoke,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["ALONG", "STYLES"]

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
        world = setup.base.world
        try:
            runs = [run_column(setup, column, place) for column in setup.columns]
        except MissingFileError as error:
            errors[NAMES[world]] = error
            continue
        parts += [at_beta(part.members, BETA[world]).assign(world=world) for part in runs]
        trainings += [part.trainings for part in runs]
    members = pd.concat(parts, ignore_index=True)
    return {
        "members": members[["world", "column", "seed", "epoch", "dto", SCORE]],
        "trainings": pd.concat(trainings, ignore_index=True),
    } | missing_table(errors)


def changes(tables: Tables) -> Iterator[Order]:
    """Change of DtO from the first record to the last: diagonal posteriors against both controls."""
    for world, members in tables["members"].groupby("world", sort=False):
        each = {str(column): _change(part) for column, part in members.groupby("column")}
        model = next(column for column in COLUMNS if column in each)
        for control in ("AE", "β-VAE_Σ"):
            words = f"{NAMES[str(world)]}: change of DtO along training, {model} less {control}"
            yield Order(words, each[model], each[control])


def _change(runs: pd.DataFrame) -> Any:
    """DtO at the end less that at the first record, (run,)."""
    curves = runs.pivot(index="seed", columns="epoch", values="dto")
    return (curves[curves.columns.max()] - curves[curves.columns.min()]).to_numpy()


def plot(tables: Tables) -> Figure:
    """One panel of DtO per data set, then one of the score per data set that has one; mean and quartiles over runs."""
    members = tables["members"]
    worlds = list(dict.fromkeys(members["world"]))
    scored = [world for world in worlds if members[members["world"] == world][SCORE].notna().any()]
    shown = [(world, "dto") for world in worlds] + [(world, SCORE) for world in scored]
    titles = [f"{'DtO' if name == 'dto' else 'score'}, {NAMES[world]}" for world, name in shown]
    figure, axes = panels(titles, rows=2, width=2.6, height=2.1)
    for panel, (world, name) in zip(axes, shown, strict=True):
        own = members[members["world"] == world]
        for column in (column for column in COLUMNS if (own["column"] == column).any()):
            curve = own[own["column"] == column].groupby("epoch")[name]
            plot_curve(panel, curve, STYLES[column], column.replace("_Σ", " Σ"))
        panel.set_xscale("log")
        panel.set_ylim(bottom=0)
        panel.set_xlabel("epochs", fontsize=8)
    lines = [line for panel in axes for line in panel.get_lines() if line.get_label()[0] != "_"]
    once = {line.get_label(): line for line in lines}
    figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def plot_curve(panel: Any, curve: Any, colour: str, label: str) -> None:
    """Mean and quartiles over runs of a column grouped by epoch."""
    low, high, mean = curve.quantile(0.25), curve.quantile(0.75), curve.mean()
    panel.fill_between(low.index, low, high, color=colour, alpha=0.15, linewidth=0)
    panel.plot(mean.index, mean, "o-", color=colour, markersize=2.5, label=label)


ALONG = Artefact(
    key="rolinek2019.along",
    title="Beyond the paper: DtO and score of all models along training",
    claims=(
        Orders(
            "Training with a diagonal posterior rotates latents towards orthogonality: DtO falls further than with a "
            "full covariance or none",
            changes,
            ours=True,
        ),
    ),
    presets={
        "smoke": Settings((smoke(LINEAR), smoke(SPRITES, latent=3))),
        "laptop": Settings((quick(LINEAR), quick(NONLINEAR))),
        "full": Settings(
            (
                *add_family(LINEAR_FAMILY, LINEAR),
                *add_family(NONLINEAR_FAMILY, NONLINEAR),
                *add_family(RESTARTS, SPRITES),
                MNIST,
                FASHION,
            )
        ),
    },
    measure=measure,
    plot=plot,
)
