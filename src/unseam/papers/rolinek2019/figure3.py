"""Figure 3 of rolinek2019, and which measures without labels predict the score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Correlation, Correlations
from unseam.papers.measures import SCORE
from unseam.papers.rolinek2019.runs import at_beta, last, run_column
from unseam.papers.rolinek2019.setups import (
    BETA,
    LINEAR,
    LINEAR_FAMILY,
    NAMES,
    NONLINEAR,
    NONLINEAR_FAMILY,
    RESTARTS,
    SPRITES,
    Setup,
    quick,
    smoke,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE3", "PREDICTED"]

MEASURES = {
    "dto": "DtO",
    "dto_active": "DtO over active latents",
    "dto_weighted": "likelihood-weighted DtO",
    "gap": "Hadamard gap",
    "cosine": "cosine",
}


@dataclass(frozen=True)
class Settings:
    """Restarts of β-VAEs, and after which epochs."""

    setups: tuple[Setup, ...]
    epochs: tuple[int, ...] = ()


def measure_figure(settings: Settings, place: Workplace) -> Tables:
    """Restarts at each number of epochs."""
    (setup,) = settings.setups
    part = run_column(setup, "β-VAE", place)
    members = at_beta(part.members, BETA[setup.base.world])
    shown = members[members["epoch"].round().isin(settings.epochs)]
    return {"members": shown[["seed", "epoch", "dto", SCORE]], "trainings": part.trainings}


def correlations(tables: Tables) -> Iterator[Correlation]:
    """Score against DtO over restarts, over all numbers of epochs and at each."""
    members = tables["members"]
    runs = members["seed"].nunique()
    note = f"{runs} runs at {members['epoch'].nunique()} times, drawn together"
    both = members["dto"], members[SCORE]
    yield Correlation("DtO and score, all epochs", *both, groups=members["seed"], note=note)
    for epoch, part in members.groupby("epoch"):
        yield Correlation(f"DtO and score, {epoch:.0f} epochs", part["dto"], part[SCORE])


def measure_predicted(settings: Settings, place: Workplace) -> Tables:
    """Restarts at the end of training, on every data set."""
    import pandas as pd

    parts = {setup.base.world: run_column(setup, "β-VAE", place) for setup in settings.setups}
    ends = [last(at_beta(part.members, BETA[name])).assign(world=name) for name, part in parts.items()]
    return {
        "members": pd.concat(ends, ignore_index=True)[["world", "seed", "active", SCORE, *MEASURES]],
        "trainings": pd.concat([part.trainings for part in parts.values()], ignore_index=True),
    }


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


def plot_figure(tables: Tables) -> Figure:
    """Score against DtO, one colour per number of epochs."""
    figure, (axes,) = panels(["disentanglement score"], width=4.0, height=2.9)
    for (epoch, part), colour in zip(tables["members"].groupby("epoch"), COLOURS, strict=False):
        label = f"{epoch:.0f} epochs"
        axes.plot(part["dto"], part[SCORE], "o", color=colour, markersize=4, alpha=0.8, label=label)
    axes.set_xlabel("distance to orthogonality", fontsize=8)
    axes.legend(fontsize=7, frameon=False)
    return figure


def plot_predicted(tables: Tables) -> Figure:
    """Rank correlations with their intervals, one panel per data set."""
    findings = PREDICTED.claims[0].judge(tables)
    worlds = list(dict.fromkeys(finding.quantity.split(":")[0] for finding in findings))
    figure, axes = panels(worlds, width=3.4, height=2.2)
    for panel, world in zip(axes, worlds, strict=True):
        found = [finding for finding in findings if finding.quantity.startswith(f"{world}:")]
        names = [finding.quantity.split(": ")[1].removesuffix(" and score") for finding in found]
        for position, one in enumerate(found):
            panel.plot([one.lower, one.upper], [position, position], color=COLOURS[0], linewidth=1.5)
            panel.plot(one.measured, position, "o", color=COLOURS[0], markersize=5)
        panel.set_yticks(range(len(found)), names)
        panel.invert_yaxis()
        panel.set_xlim(-1.05, 1.05)
        panel.axvline(0, color="grey", linewidth=0.7)
        panel.set_xlabel("rank correlation with the score", fontsize=8)
    return figure


def _many(setup: Setup, seeds: int) -> Setup:
    return setup.replace(seeds=seeds, columns=("β-VAE",), records=1)


FIGURE3 = Artefact(
    key="rolinek2019.figure3",
    title="Figure 3, sprites (a twin of dSprites): score against DtO over restarts",
    claims=(
        Correlations(
            "Figure 3: restarts with lower DtO disentangle better, at 10, 30 and 50 epochs", correlations
        ),
    ),
    presets={
        "smoke": Settings((smoke(SPRITES).replace(columns=("β-VAE",), epochs=(2, 4)),), (2, 4)),
        "full": Settings((RESTARTS,), (10, 30, 50)),
    },
    measure=measure_figure,
    plot=plot_figure,
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
        "smoke": Settings((_many(smoke(LINEAR), 5), _many(smoke(SPRITES), 5))),
        "laptop": Settings(
            (_many(quick(LINEAR, steps=12_000), 30), _many(quick(NONLINEAR, steps=2_400), 30))
        ),
        "full": Settings((RESTARTS, LINEAR_FAMILY, NONLINEAR_FAMILY)),
    },
    measure=measure_predicted,
    plot=plot_predicted,
    note="That a measure which orders all runs as another does is not counted again was decided after a first look.",
)
