"""Table 1 of rolinek2019: how much of the training runs in the polarised regime, one artefact per data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseam.data import MissingFileError
from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Scale, Workplace, missing_table
from unseam.papers.claims import Cell, Row, Values
from unseam.papers.rolinek2019.runs import POLARISED, at_beta, last, run_column
from unseam.papers.rolinek2019.setups import (
    BETA,
    FASHION,
    LINEAR,
    LINEAR_FAMILY,
    MNIST,
    NAMES,
    NONLINEAR,
    NONLINEAR_FAMILY,
    RESTARTS,
    SHORT,
    SPRITES,
    Column,
    Setup,
    smoke,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["PUBLISHED", "TABLE1", "plot_missing"]

PUBLISHED = {
    "sprites": (97.8, 90.6),
    "dsprites": (97.8, 90.6),
    "fashion_mnist": (99.8, 97.7),
    "mnist": (99.8, 99.5),
    "linear": (99.8, 96.7),
    "nonlinear": (99.9, 98.5),
}
"""Percentages with few and with ten latents."""


@dataclass(frozen=True)
class Settings:
    """A training of few latents, and one of ten."""

    low: Setup
    high: Setup


def measure(settings: Settings, place: Workplace) -> Tables:
    """Percentage of each run's training from which on Δ_KL stays below 3 %, and Δ_KL along training."""
    import pandas as pd

    setups, world = (settings.low, settings.high), settings.low.base.world
    try:
        parts = [run_column(setup, _column(setup), place) for setup in setups]
    except MissingFileError as error:
        return missing_table({NAMES[world]: error})
    runs, curves = [], []
    for part, setup in zip(parts, setups, strict=True):
        ends = last(at_beta(part.members, BETA[world]))
        runs.append(ends[["seed", "polarised"]].assign(latents=setup.base.latent))
        curves.append(at_beta(part.regime, BETA[world]).assign(latents=setup.base.latent))
    return {
        "runs": pd.concat(runs, ignore_index=True),
        "regime": pd.concat(curves, ignore_index=True),
        "trainings": pd.concat([part.trainings for part in parts], ignore_index=True),
    }


def percentages(tables: Tables) -> Iterator[Row]:
    """The row of a data set: few latents and ten."""
    world = str(tables["trainings"]["world"].iloc[0])
    runs = {f"{latents} latents": own["polarised"] for latents, own in tables["runs"].groupby("latents")}
    cells = (Cell(percentage, digit=0.1) for percentage in PUBLISHED[world])
    yield Row(
        "percentage of training with Δ_KL < 3 % until its end", dict(zip(runs, cells, strict=True)), runs
    )


def _column(setup: Setup) -> Column:
    return "VAE" if setup.betas == (1.0,) else "β-VAE"


def plot(tables: Tables) -> Figure:
    """Δ_KL along training, mean and range over runs, and the threshold."""
    if "missing" in tables:
        return plot_missing()
    figure, (axes,) = panels(["relative error of the polarised KL term, Δ_KL"], width=4.6, height=2.7)
    for (latents, part), colour in zip(tables["regime"].groupby("latents"), COLOURS, strict=False):
        axes.fill_between(part["step"], part["min"], part["max"], color=colour, alpha=0.2, linewidth=0)
        axes.plot(part["step"], part["mean"], color=colour, linewidth=1.2, label=f"{latents:.0f} latents")
    axes.axhline(POLARISED, color="grey", linestyle="--", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("batches", fontsize=8)
    axes.legend(fontsize=7, frameon=False)
    return figure


def plot_missing() -> Figure:
    """The figure of an artefact whose data set is missing."""
    return panels(["the data set is missing"], width=3.6, height=1.0)[0]


def _artefact(setups: Mapping[Scale, tuple[Setup, Setup]], note: str = "") -> Artefact:
    world = setups["smoke"][0].base.world
    return Artefact(
        key=f"rolinek2019.table1_{SHORT[world]}",
        title=f"Table 1, {NAMES[world]}: training in the polarised regime",
        claims=(
            Values(f"Table 1, {NAMES[world]}: percentage of training in the polarised regime", percentages),
        ),
        presets={
            scale: Settings(low, high.replace(latent=10, records=1)) for scale, (low, high) in setups.items()
        },
        measure=measure,
        plot=plot,
        note=note,
    )


def _short(setup: Setup) -> Setup:
    return setup.replace(seeds=3, steps=32_000, records=1)


TABLE1 = (
    _artefact({"smoke": (smoke(SPRITES),) * 2, "full": (RESTARTS, SPRITES)}),
    _artefact({"smoke": (smoke(FASHION),) * 2, "full": (FASHION,) * 2}),
    _artefact({"smoke": (smoke(MNIST),) * 2, "full": (MNIST,) * 2}),
    _artefact(
        {"smoke": (smoke(LINEAR),) * 2, "laptop": (_short(LINEAR),) * 2, "full": (LINEAR_FAMILY, LINEAR)}
    ),
    _artefact(
        {
            "smoke": (smoke(NONLINEAR),) * 2,
            "laptop": (_short(NONLINEAR),) * 2,
            "full": (NONLINEAR_FAMILY, NONLINEAR),
        },
        note="Judged on one random map, that of seed 0; artefact `maps` repeats it on twelve.",
    ),
)
