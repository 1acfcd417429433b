"""Figure S4 of rolinek2019: score and distance to orthogonality against β."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Scale, Workplace
from unseam.papers.claims import Bound, Bounds, Curve, Trends
from unseam.papers.measures import SCORE
from unseam.papers.rolinek2019.runs import last, run_column
from unseam.papers.rolinek2019.setups import (
    BETA,
    LINEAR,
    LINEAR_FAMILY,
    NAMES,
    NONLINEAR,
    NONLINEAR_FAMILY,
    SPRITES,
    SPRITES_FAMILY,
    Setup,
    quick,
    smoke,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE_S4"]

FACTORS = {"linear": 2, "nonlinear": 2, "sprites": 5, "dsprites": 5}


@dataclass(frozen=True)
class Settings:
    """β-VAEs of each data set at many values of β; a VAE is a β-VAE whose β is 1."""

    setups: tuple[Setup, ...]


def measure(settings: Settings, place: Workplace) -> Tables:
    """All values of β at the end of training."""
    import pandas as pd

    parts = [run_column(setup, setup.columns[0], place) for setup in settings.setups]
    ends = [
        last(part.members).assign(world=setup.base.world)
        for part, setup in zip(parts, settings.setups, strict=True)
    ]
    return {
        "members": pd.concat(ends, ignore_index=True)[["world", "beta", "seed", "dto", SCORE, "active"]],
        "trainings": pd.concat([part.trainings for part in parts], ignore_index=True),
    }


def _curves(tables: Tables) -> Iterator[tuple[str, Any]]:
    """Each data set's name, and its table by β with columns (measure, seed)."""
    for world, ends in tables["members"].groupby("world"):
        yield str(world), ends.pivot(index="beta", columns="seed", values=["dto", SCORE, "active"])


def trends(tables: Tables) -> Iterator[Curve]:
    """Up to the chosen β latents align; beyond it they are pruned, and the score falls."""
    for world, curves in _curves(tables):
        name, chosen = NAMES[world], BETA[world]
        below, above = curves[curves.index <= chosen], curves[curves.index >= chosen]
        until, beyond = f"up to the chosen β = {chosen:g}", f"from the chosen β = {chosen:g} on"
        yield Curve(f"{name}: DtO {until}", "decreasing", below["dto"])
        yield Curve(f"{name}: score {until}", "increasing", below[SCORE], rising=True)
        yield Curve(f"{name}: score {beyond}", "decreasing", above[SCORE])
        yield Curve(f"{name}: active latents over all β", "decreasing", curves["active"])


def pruned(tables: Tables) -> Iterator[Bound]:
    """Active latents at the largest β."""
    for world, curves in _curves(tables):
        words = f"{NAMES[world]}: active latents at β = {curves.index.max():g}"
        said, most = f"below the {FACTORS[world]} generating factors", FACTORS[world] - 1
        wrong = {f"β = {beta:g}": curves["active"].loc[beta] for beta in (curves.index.min(), BETA[world])}
        yield Bound(words, said, curves["active"].iloc[-1], most=most, wrong=wrong)


def plot(tables: Tables) -> Figure:
    """Score above, DtO below, each against β; mean and range over runs, dashed at the chosen value."""
    figure, (score, distance) = panels(
        ["disentanglement score", "distance to orthogonality"], rows=2, width=4.4, height=2.1
    )
    for (world, curves), colour in zip(_curves(tables), COLOURS, strict=False):
        for axes, name in ((score, SCORE), (distance, "dto")):
            runs = curves[name]
            axes.fill_between(
                runs.index, runs.min(axis=1), runs.max(axis=1), color=colour, alpha=0.2, linewidth=0
            )
            axes.plot(runs.index, runs.mean(axis=1), "o-", color=colour, markersize=3.5, label=NAMES[world])
            axes.axvline(BETA[world], color=colour, linestyle="--", linewidth=0.8)
            axes.set_xscale("log")
    distance.set_xlabel("β", fontsize=8)
    score.legend(fontsize=7, frameon=False)
    return figure


def _artefact(name: str, presets: dict[Scale, Settings]) -> Artefact:
    return Artefact(
        key=f"rolinek2019.figure_s4_{name}",
        title=f"Figure S4, {NAMES.get(name, 'synthetic data')}: the choice of β",
        claims=(
            Trends("Figure S4, §9.1: up to the chosen β latents align, beyond it they are pruned", trends),
            Bounds("§9.1: too large a β leaves fewer active latents than generating factors", pruned),
        ),
        presets=presets,
        measure=measure,
        plot=plot,
    )


def _at(setup: Setup, betas: tuple[float, ...], seeds: int) -> Setup:
    return setup.replace(betas=betas, seeds=seeds, records=1, columns=("β-VAE",))


FEW = (1e-6, 1e-4, 1e-3, 1.0)
FIGURE_S4 = (
    _artefact(
        "synthetic",
        {
            "smoke": Settings((_at(smoke(LINEAR), FEW, 3), _at(smoke(NONLINEAR), FEW, 3))),
            "laptop": Settings((_at(quick(LINEAR), FEW, 5), _at(quick(NONLINEAR), FEW, 5))),
            "full": Settings((LINEAR_FAMILY, NONLINEAR_FAMILY)),
        },
    ),
    _artefact(
        "sprites",
        {
            "smoke": Settings((_at(smoke(SPRITES), (0.1, 4.0, 100.0), 3),)),
            "full": Settings((SPRITES.replace(columns=("VAE",)), SPRITES_FAMILY)),
        },
    ),
)
