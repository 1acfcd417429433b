"""Figure S4 of rolinek2019: score and distance to orthogonality against β."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Scale, Workplace
from unseam.papers.rolinek2019.cells import ORDER_RULE, order
from unseam.papers.rolinek2019.measures import SCORE
from unseam.papers.rolinek2019.runs import followed, last
from unseam.papers.rolinek2019.setups import (
    JUDGED,
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
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE_S4"]


@dataclass(frozen=True)
class Settings:
    """β-VAEs of each data set at many values of β, and the β that the paper marks.

    A data set may have several setups: a VAE is a β-VAE whose β is 1.
    """

    setups: tuple[Setup, ...]
    chosen: tuple[float, ...]


def measure(settings: Settings, place: Workplace) -> Tables:
    """All values of β at the end of training."""
    import pandas as pd

    parts = [followed(setup, setup.columns[0], place) for setup in settings.setups]
    members = pd.concat(
        [
            last(part.members).assign(world=setup.world, chosen=chosen)
            for part, setup, chosen in zip(parts, settings.setups, settings.chosen, strict=True)
        ],
        ignore_index=True,
    )
    return {
        "members": members,
        "trainings": pd.concat([part.trainings for part in parts], ignore_index=True),
    }


def judge(tables: Tables) -> Judgement:
    """The smallest and the largest β against the chosen one, on each data set."""
    each = tables["members"].groupby("world")
    return Judgement(tuple(finding for _, part in each for finding in _findings(part)))


def _findings(ends: pd.DataFrame) -> list[Finding]:
    """Too small a β orthogonalises less, too large a one prunes latents that are needed."""
    name, chosen = NAMES[ends["world"].iloc[0]], ends["chosen"].iloc[0]
    least, most, here = (
        ends[ends["beta"] == beta] for beta in (ends["beta"].min(), ends["beta"].max(), chosen)
    )
    pruned = float(most["active"].mean() - here["active"].mean())
    return [
        order(
            f"{name}: DtO at the chosen β = {chosen:g} less that at the smallest", here["dto"], least["dto"]
        ),
        order(f"{name}: score at the smallest β less that at the chosen one", least[SCORE], here[SCORE]),
        order(f"{name}: score at the largest β less that at the chosen one", most[SCORE], here[SCORE]),
        Finding(
            f"{name}: active latents at the largest β less those at the chosen one",
            "< 0: overpruning",
            pruned,
            None,
            None,
            "reproduced" if pruned < 0 else "not reproduced",
        ),
    ]


def draw(tables: Tables) -> Figure:
    """Score above, DtO below, each against β; mean and range over runs, dashed at the chosen value."""
    ends = tables["members"]
    figure, (score, distance) = panels(
        ["disentanglement score", "distance to orthogonality"], rows=2, width=4.4, height=2.1
    )
    for (world, part), colour in zip(ends.groupby("world"), COLOURS, strict=False):
        for axes, name in ((score, SCORE), (distance, "dto")):
            runs = part.groupby("beta")[name]
            axes.fill_between(runs.mean().index, runs.min(), runs.max(), color=colour, alpha=0.2, linewidth=0)
            axes.plot(
                runs.mean().index, runs.mean(), "o-", color=colour, markersize=3.5, label=NAMES[str(world)]
            )
            axes.axvline(part["chosen"].iloc[0], color=colour, linestyle="--", linewidth=0.8)
            axes.set_xscale("log")
    distance.set_xlabel("β", fontsize=8)
    score.legend(fontsize=7, frameon=False)
    return figure


def _artefact(name: str, presets: dict[Scale, Settings]) -> Artefact:
    return Artefact(
        key=f"rolinek2019.figure_s4_{name}",
        title=f"Figure S4, {NAMES.get(name, 'synthetic data')}: the choice of β",
        claim="Too small a β has a negligible effect on orthogonality; too large a one prunes latents that are needed, "
        "and the score falls.",
        criterion=f"{ORDER_RULE} DtO at the chosen β lies below that at the smallest; the score at the chosen β lies "
        "above those at the smallest and the largest; fewer latents are active at the largest.",
        presets=presets,
        measure=measure,
        judge=judge,
        draw=draw,
    )


def _at(setup: Setup, betas: tuple[float, ...], seeds: int) -> Setup:
    return dataclasses.replace(setup, betas=betas, seeds=seeds, records=1, columns=("β-VAE",))


FEW = (1e-6, 3e-4, 1e-3, 1.0)
CHOSEN = (JUDGED["linear"], JUDGED["nonlinear"])
FIGURE_S4 = (
    _artefact(
        "synthetic",
        {
            "smoke": Settings((_at(smoke(LINEAR), FEW, 3), _at(smoke(NONLINEAR), FEW, 3)), CHOSEN),
            "laptop": Settings((_at(quick(LINEAR), FEW, 5), _at(quick(NONLINEAR), FEW, 5)), CHOSEN),
            "full": Settings((LINEAR_FAMILY, NONLINEAR_FAMILY), CHOSEN),
        },
    ),
    _artefact(
        "sprites",
        {
            "smoke": Settings((_at(smoke(SPRITES), (0.1, 4.0, 100.0), 3),), (4.0,)),
            "full": Settings(
                (dataclasses.replace(SPRITES, columns=("VAE",)), SPRITES_FAMILY),
                (JUDGED["sprites"],) * 2,
            ),
        },
    ),
)
