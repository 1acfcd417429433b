"""Figures 3 and S4 of rolinek2019: the score against the distance to orthogonality, and both against β."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Scale, Workplace
from unseam.papers.claims import Bound, Bounds, Correlation, Correlations, Curve, Trends
from unseam.papers.measures import SCORE
from unseam.papers.plots import Figure, Tables, band, finish, intervals, lines, reference
from unseam.papers.rolinek2019 import setups
from unseam.papers.rolinek2019.runs import Trainings, gather, last, printed, run_column
from unseam.papers.rolinek2019.setups import BETA, LINEAR, NAMES, NONLINEAR, SPRITES, Setup, quick, smoke

__all__ = ["FIGURE3", "FIGURE_S4", "PREDICTED"]


def _at(setup: Setup, seeds: int, betas: tuple[float, ...] | None = None) -> Setup:
    """β-VAEs alone, measured once, at the end."""
    return setup.replace(betas=betas or setup.betas, seeds=seeds, records=1, columns=("β-VAE",))


# Figure 3, and which measures without labels predict the score

MEASURES = {
    "dto": "DtO",
    "dto_active": "DtO over active latents",
    "dto_weighted": "likelihood-weighted DtO",
    "gap": "Hadamard gap",
    "cosine": "cosine",
}


@dataclass(frozen=True)
class Restarts(Trainings):
    """Restarts of β-VAEs, and after which epochs."""

    epochs: tuple[int, ...] = ()


def measure_restarts(settings: Restarts, place: Workplace) -> Tables:
    """Restarts at each number of epochs."""
    (setup,) = settings.setups
    part = run_column(setup, "β-VAE", place)
    members = printed(part)
    shown = members[members["epoch"].round().isin(settings.epochs)]
    return {"members": shown[["seed", "epoch", "dto", SCORE]], "trainings": part.trainings}


def _correlations(tables: Tables) -> Iterator[Correlation]:
    """Score against DtO over restarts, over all numbers of epochs and at each."""
    members = tables["members"]
    runs = members["seed"].nunique()
    note = f"{runs} runs at {members['epoch'].nunique()} times, drawn together"
    both = members["dto"], members[SCORE]
    yield Correlation("DtO and score, all epochs", *both, groups=members["seed"], note=note)
    for epoch, part in members.groupby("epoch"):
        yield Correlation(f"DtO and score, {epoch:.0f} epochs", part["dto"], part[SCORE])


def measure_predicted(settings: Restarts, place: Workplace) -> Tables:
    """Restarts at the end of training, on every data set."""
    each = (({"world": setup.base.world}, run_column(setup, "β-VAE", place)) for setup in settings.setups)
    return gather(each, ["world", "seed", "active", SCORE, *MEASURES])


def predictions(tables: Tables) -> Iterator[Correlation]:
    """Every measure against the score, unless it orders runs as one before it does."""
    for world, ends in tables["members"].groupby("world"):
        for name, alike in _distinct(ends).items():
            note = f"{', '.join(MEASURES[other] for other in alike)} order runs alike" if alike else ""
            words = f"{NAMES[str(world)]}: {MEASURES[name]} and score"
            yield Correlation(words, ends[name], ends[SCORE], note=note)


def predictions_among_alike(tables: Tables) -> Iterator[Correlation]:
    """The same of ranks among runs with equally many active latents, where there are several numbers of them."""
    for world, ends in tables["members"].groupby("world"):
        each = ends.groupby("active")
        alike = ends[each["seed"].transform("size") > 2]
        if ends["active"].nunique() > 1 and len(alike):
            ranks = alike.groupby("active")[[*MEASURES, SCORE]].rank(pct=True)
            for name in _distinct(ends):
                words = f"{NAMES[str(world)]}: {MEASURES[name]} and score"
                yield Correlation(words, ranks[name], ranks[SCORE], strata=alike["active"])


def _distinct(ends: pd.DataFrame) -> dict[str, list[str]]:
    """Measures of which no two order all runs alike, each with those that order them as it does."""
    found: dict[str, list[str]] = {}
    for name in (name for name in MEASURES if ends[name].notna().all()):
        same = next((known for known in found if ends[known].rank().equals(ends[name].rank())), None)
        if same is None:
            found[name] = []
        else:
            found[same].append(name)
    return found


def plot_restarts(tables: Tables) -> Figure:
    """Score against DtO, one colour per number of epochs."""
    figure, (panel,) = panels(["disentanglement score"], width=4.0, height=2.9)
    lines(panel, tables["members"], "dto", SCORE, by="epoch", style="o", label="{:.0f} epochs", markersize=4)
    finish(panel, "distance to orthogonality", legend="best")
    return figure


def plot_predicted(tables: Tables) -> Figure:
    """Rank correlations with their intervals, one panel per data set."""
    findings = PREDICTED.claims[0].judge(tables)
    worlds = list(dict.fromkeys(finding.quantity.split(":")[0] for finding in findings))
    figure, axes = panels(worlds, width=3.4, height=2.2)
    for panel, world in zip(axes, worlds, strict=True):
        found = [finding for finding in findings if finding.quantity.startswith(f"{world}:")]
        names = [finding.quantity.split(": ")[1].removesuffix(" and score") for finding in found]
        estimates = zip(*((one.measured, one.lower, one.upper) for one in found), strict=True)
        intervals(panel, names, {"": tuple(estimates)})
        reference(panel, x=0, linestyle="-")
        finish(panel, "rank correlation with the score", xlim=(-1.05, 1.05))
    return figure


FIGURE3 = Artefact(
    key="rolinek2019.figure3",
    title="Figure 3, sprites (a twin of dSprites): score against DtO over restarts",
    claims=(
        Correlations(
            "Figure 3: restarts with lower DtO disentangle better, at 10, 30 and 50 epochs", _correlations
        ),
    ),
    presets={
        "smoke": Restarts((smoke(SPRITES).replace(columns=("β-VAE",), epochs=(2, 4)),), (2, 4)),
        "full": Restarts((setups.RESTARTS,), (10, 30, 50)),
    },
    measure=measure_restarts,
    plot=plot_restarts,
    note="The text does not say whether points at different epochs are the same runs; ours are.",
)
PREDICTED = Artefact(
    key="rolinek2019.predicted",
    title="Beyond the paper: which measures without labels predict the score over restarts",
    claims=(
        Correlations(
            "Restarts with a lower DtO, Hadamard gap or cosine have a higher score", predictions, ours=True
        ),
        Correlations(
            "The same among runs with equally many active latents", predictions_among_alike, ours=True
        ),
    ),
    presets={
        "smoke": Restarts((_at(smoke(LINEAR), 5), _at(smoke(SPRITES), 5))),
        "laptop": Restarts((_at(quick(LINEAR, steps=12_000), 30), _at(quick(NONLINEAR, steps=2_400), 30))),
        "full": Restarts((setups.RESTARTS, setups.LINEAR_FAMILY, setups.NONLINEAR_FAMILY)),
    },
    measure=measure_predicted,
    plot=plot_predicted,
    note="That a measure which orders all runs as another does is not counted again was decided after a first look.",
)


# Figure S4: the choice of β

FACTORS = {"linear": 2, "nonlinear": 2, "sprites": 5, "dsprites": 5}


def measure_betas(settings: Trainings, place: Workplace) -> Tables:
    """All values of β at the end of training; a VAE is a β-VAE whose β is 1."""
    each = (
        ({"world": setup.base.world}, run_column(setup, setup.columns[0], place)) for setup in settings.setups
    )
    shown = ["world", "beta", "seed", "dto", SCORE, "active"]
    return gather(each, shown, lambda part: last(part.members))


def _curves(tables: Tables) -> Iterator[tuple[str, Any]]:
    """Each data set's name, and its table by β with columns (measure, seed)."""
    for world, ends in tables["members"].groupby("world"):
        yield str(world), ends.pivot(index="beta", columns="seed", values=["dto", SCORE, "active"])


def _trends(tables: Tables) -> Iterator[Curve]:
    """Up to the chosen β latents align; beyond it they are pruned, and the score falls."""
    for world, curves in _curves(tables):
        name, chosen = NAMES[world], BETA[world]
        below, above = curves[curves.index <= chosen], curves[curves.index >= chosen]
        until, beyond = f"up to the chosen β = {chosen:g}", f"from the chosen β = {chosen:g} on"
        yield Curve(f"{name}: DtO {until}", "decreasing", below["dto"])
        yield Curve(f"{name}: score {until}", "increasing", below[SCORE], rising=True)
        yield Curve(f"{name}: score {beyond}", "decreasing", above[SCORE])
        yield Curve(f"{name}: active latents over all β", "decreasing", curves["active"])


def _pruned(tables: Tables) -> Iterator[Bound]:
    """Active latents at the largest β."""
    for world, curves in _curves(tables):
        words = f"{NAMES[world]}: active latents at β = {curves.index.max():g}"
        said, most = f"below the {FACTORS[world]} generating factors", FACTORS[world] - 1
        wrong = {f"β = {beta:g}": curves["active"].loc[beta] for beta in (curves.index.min(), BETA[world])}
        yield Bound(words, said, curves["active"].iloc[-1], most=most, wrong=wrong)


def plot_betas(tables: Tables) -> Figure:
    """Score above, DtO below, each against β; mean and range over runs, dashed at the chosen value."""
    titles = ["disentanglement score", "distance to orthogonality"]
    figure, axes = panels(titles, rows=2, width=4.4, height=2.1)
    for (world, own), colour in zip(tables["members"].groupby("world"), COLOURS, strict=False):
        for panel, name in zip(axes, (SCORE, "dto"), strict=True):
            band(panel, own, "beta", name, colour, NAMES[str(world)])
            reference(panel, x=BETA[str(world)], color=colour)
            panel.set_xscale("log")
    finish(axes[1], "β")
    finish(axes[0], legend="best")
    return figure


def _figure_s4(name: str, presets: dict[Scale, Trainings]) -> Artefact:
    return Artefact(
        key=f"rolinek2019.figure_s4_{name}",
        title=f"Figure S4, {NAMES.get(name, 'synthetic data')}: the choice of β",
        claims=(
            Trends("Figure S4, §9.1: up to the chosen β latents align, beyond it they are pruned", _trends),
            Bounds("§9.1: too large a β leaves fewer active latents than generating factors", _pruned),
        ),
        presets=presets,
        measure=measure_betas,
        plot=plot_betas,
    )


FEW = (1e-6, 1e-4, 1e-3, 1.0)
FIGURE_S4 = (
    _figure_s4(
        "synthetic",
        {
            "smoke": Trainings((_at(smoke(LINEAR), 3, FEW), _at(smoke(NONLINEAR), 3, FEW))),
            "laptop": Trainings((_at(quick(LINEAR), 5, FEW), _at(quick(NONLINEAR), 5, FEW))),
            "full": Trainings((setups.LINEAR_FAMILY, setups.NONLINEAR_FAMILY)),
        },
    ),
    _figure_s4(
        "sprites",
        {
            "smoke": Trainings((_at(smoke(SPRITES), 3, (0.1, 4.0, 100.0)),)),
            "full": Trainings((SPRITES.replace(columns=("VAE",)), setups.SPRITES_FAMILY)),
        },
    ),
)
