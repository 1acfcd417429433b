"""Figure 3 of rolinek2019, and which measure without labels foretells the score best."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Scale, Workplace
from unseam.papers.ranks import centred_ranks, correlation, spearman
from unseam.papers.rolinek2019.cells import correlated, resampled
from unseam.papers.rolinek2019.measures import SCORE
from unseam.papers.rolinek2019.runs import at_beta, followed, last
from unseam.papers.rolinek2019.setups import (
    JUDGED,
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

__all__ = ["FIGURE3", "FORETOLD"]

MEASURES = {
    "dto": "DtO",
    "dto_active": "DtO over active latents",
    "dto_weighted": "DtO, likelihood-weighted",
    "gap": "Hadamard gap",
    "cosine": "cosine",
}


@dataclass(frozen=True)
class Settings:
    """Restarts of β-VAEs, which β of each, and after which epochs."""

    setups: tuple[Setup, ...]
    betas: tuple[float, ...]
    epochs: tuple[int, ...] = ()


def measure_figure(settings: Settings, place: Workplace) -> Tables:
    """Restarts at each number of epochs."""
    part = followed(settings.setups[0], "β-VAE", place)
    members = at_beta(part.members, settings.betas[0])
    return {
        "members": members[members["epoch"].round().isin(settings.epochs)],
        "trainings": part.trainings,
    }


def judge_figure(tables: Tables) -> Judgement:
    """Score against DtO over restarts, at each number of epochs and over all."""
    members = tables["members"]
    words = "all epochs: rank correlation of DtO and score"
    whole = correlated(words, members["dto"], members[SCORE], groups=members["seed"])
    many, times = members["seed"].nunique(), members["epoch"].nunique()
    found = [whole._replace(note=f"{many} runs, {times} times each, drawn together")]
    for epoch, runs in members.groupby("epoch"):
        words = f"{epoch:.0f} epochs: rank correlation of DtO and score"
        found.append(correlated(words, runs["dto"], runs[SCORE]))
    return Judgement(tuple(found))


def measure_foretold(settings: Settings, place: Workplace) -> Tables:
    """Restarts at the end of training, on every data set."""
    import pandas as pd

    parts = [followed(setup, "β-VAE", place) for setup in settings.setups]
    members = pd.concat(
        [
            last(at_beta(part.members, beta)).assign(world=setup.world)
            for part, setup, beta in zip(parts, settings.setups, settings.betas, strict=True)
        ],
        ignore_index=True,
    )
    return {
        "members": members,
        "trainings": pd.concat([part.trainings for part in parts], ignore_index=True),
    }


def judge_foretold(tables: Tables) -> Judgement:
    """Rank correlation with the score of every measure."""
    each = tables["members"].groupby("world")
    return Judgement(tuple(finding for _, part in each for finding in _foretelling(part)))


def _foretelling(ends: pd.DataFrame) -> list[Finding]:
    """A finding for each measure that does not order runs as DtO does."""
    world = NAMES[str(ends["world"].iloc[0])]
    known = [name for name in MEASURES if name in ends and ends[name].notna().all()]
    as_dto = [name for name in known if name != "dto" and ends[name].rank().equals(ends["dto"].rank())]
    found = []
    for name in (name for name in known if name not in as_dto):
        words = f"{world}: rank correlation of {MEASURES[name]} and score"
        finding = correlated(words, ends[name], ends[SCORE])
        notes = [finding.note]
        if name == "dto" and as_dto:
            notes.append(f"{', '.join(MEASURES[other] for other in as_dto)} order runs alike")
        if name != "dto":
            notes.append(_beside_dto(ends, name))
        if ends["active"].nunique() > 1 and ends["active"].value_counts().max() > 2:
            notes.append(f"{_among_alike(ends, name):.2f} among runs with equally many active latents")
        found.append(finding._replace(note="; ".join(notes)))
    return found


def _beside_dto(ends: pd.DataFrame, name: str) -> str:
    """How much lower a measure's correlation is than DtO's, over the same resampled runs."""
    values = ends[[name, "dto", SCORE]].to_numpy(dtype=float).T
    own, dto = values[[0, 2]], values[[1, 2]]
    gain = float(spearman(own[:, None])[0] - spearman(dto[:, None])[0])
    drawn = np.stack(resampled(values.shape[1]))
    lower, upper = np.nanquantile(spearman(own[:, drawn]) - spearman(dto[:, drawn]), (0.025, 0.975))
    return f"less that of DtO {gain:.2f} in [{lower:.2f}, {upper:.2f}]"


def _among_alike(ends: pd.DataFrame, name: str) -> float:
    """Rank correlation with the score where ranks are those among runs with the same number of active latents."""
    alike = [part for _, part in ends.groupby("active") if len(part) > 2]
    ranks = [centred_ranks(part[[name, SCORE]].to_numpy(dtype=float).T) / len(part) for part in alike]
    return float(correlation(np.concatenate(ranks, axis=-1)))


def draw_figure(tables: Tables) -> Figure:
    """Score against DtO, a colour for each number of epochs."""
    members = tables["members"]
    figure, (axes,) = panels(["disentanglement score"], width=4.0, height=2.9)
    for (epoch, part), colour in zip(members.groupby("epoch"), COLOURS, strict=False):
        label = f"{epoch:.0f} epochs"
        axes.plot(part["dto"], part[SCORE], "o", color=colour, markersize=4, alpha=0.8, label=label)
    axes.set_xlabel("distance to orthogonality", fontsize=8)
    axes.legend(fontsize=7, frameon=False)
    return figure


def draw_foretold(tables: Tables) -> Figure:
    """Rank correlations with their intervals, one panel per data set."""
    findings = judge_foretold(tables).findings
    worlds = list(dict.fromkeys(finding.quantity.split(":")[0] for finding in findings))
    figure, axes = panels(worlds, width=3.4, height=2.2)
    for panel, world in zip(axes, worlds, strict=True):
        found = [finding for finding in findings if finding.quantity.startswith(f"{world}:")]
        names = [
            finding.quantity.split("rank correlation of ")[1].removesuffix(" and score") for finding in found
        ]
        for place, one in enumerate(found):
            panel.plot([one.lower, one.upper], [place, place], color=COLOURS[0], linewidth=1.5)
            panel.plot(one.measured, place, "o", color=COLOURS[0], markersize=5)
        panel.set_yticks(range(len(found)), names)
        panel.invert_yaxis()
        panel.set_xlim(-1.05, 1.05)
        panel.axvline(0, color="grey", linewidth=0.7)
        panel.set_xlabel("rank correlation with the score", fontsize=8)
    return figure


def _many(setup: Setup, seeds: int) -> Setup:
    return dataclasses.replace(setup, seeds=seeds, columns=("β-VAE",), records=1)


FIGURE3 = Artefact(
    key="rolinek2019.figure3",
    title="Figure 3, sprites (a twin of dSprites): score against DtO over restarts",
    claim="Restarts of one β-VAE with lower DtO disentangle better: a clear correlation, at 10, 30 and 50 epochs.",
    criterion="The 95 % bootstrap interval of the rank correlation lies below zero, over all points and at each number "
    "of epochs.",
    presets={
        "smoke": Settings(
            (dataclasses.replace(smoke(SPRITES), columns=("β-VAE",), epochs_recorded=(2, 4)),),
            (JUDGED["sprites"],),
            (2, 4),
        ),
        "full": Settings((RESTARTS,), (JUDGED["sprites"],), (10, 30, 50)),
    },
    measure=measure_figure,
    judge=judge_figure,
    draw=draw_figure,
)
_FORETOLD: dict[Scale, Settings] = {
    "smoke": Settings((_many(smoke(LINEAR), 5), _many(smoke(SPRITES), 5)), (JUDGED["linear"], 4.0)),
    "laptop": Settings(
        (_many(quick(LINEAR, epochs=60), 30), _many(quick(NONLINEAR, epochs=60), 30)),
        (JUDGED["linear"], JUDGED["nonlinear"]),
    ),
    "full": Settings(
        (RESTARTS, LINEAR_FAMILY, NONLINEAR_FAMILY), (4.0, JUDGED["linear"], JUDGED["nonlinear"])
    ),
}
FORETOLD = Artefact(
    key="rolinek2019.foretold",
    title="Beyond the paper: which measure without labels foretells the score over restarts",
    claim="DtO correlates with the disentanglement score over restarts (Figure 3); Hadamard gap and cosine, which need "
    "no singular vectors, should too.",
    criterion="The 95 % bootstrap interval of a measure's rank correlation with the score lies below zero. "
    "Measures that order all runs as DtO does are not counted again, which was decided after a first look.",
    presets=_FORETOLD,
    measure=measure_foretold,
    judge=judge_foretold,
    draw=draw_foretold,
)
