"""Theorem 1 (c) of bhowal2024: variances of latents are inverse to the squared lengths of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024._rows import where_measured
from unseam.papers.bhowal2024._runs import cells_of, select, train_setups, worlds
from unseam.papers.bhowal2024._setups import NAMES, PRESETS, Settings
from unseam.papers.claims import Bound, Bounds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

    Cases = Callable[[Tables], Iterator[Bound]]

__all__ = ["THEOREM1C"]

WITHIN = 0.1
"""How far the slope may be from −1."""
WORDS = {
    "slope_fit": "slope of log σ² on log ‖c‖², columns of M_D",
    "slope": "slope of log σ² on log ‖c‖², columns of the Jacobian",
    "slope_whole": "slope of log σ²/(1 − σ²) on log ‖c‖², columns of the Jacobian",
    "slope_control": "slope with the variances of other latents",
}


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """The line through (log ‖c_j‖², log σ_j²) over active latents, median over points, of every model."""
    return select(
        train_setups(settings.setups, place), members=tuple(WORDS), columns=("variance", "jacobian")
    )


def _slopes(*kinds: str, least: float = -1 - WITHIN, most: float = -1 + WITHIN) -> Cases:
    def cases(tables: Tables) -> Iterator[Bound]:
        for world, part in worlds(tables["members"]):
            for one, own in cells_of(part):
                for kind in kinds:
                    said = "−1" if most < 0 else f"above {least:g}"
                    yield Bound(f"{NAMES[world]}, {one.family}: {WORDS[kind]}", said, own[kind], least, most)

    return cases


@where_measured
def plot(tables: Tables) -> Figure:
    """Variances against squared column lengths of one model of each family, and the law's slope."""
    parts = list(worlds(tables["columns"]))
    if not parts:
        return panels(["fewer than two active latents"], width=3.6, height=1.0)[0]
    figure, axes = panels([NAMES[world] for world, _ in parts], width=4.0, height=3.0)
    for panel, (_, part) in zip(axes, parts, strict=True):
        for (one, own), colour in zip(cells_of(part), COLOURS, strict=False):
            panel.plot(own["jacobian"], own["variance"], ".", color=colour, markersize=3, label=one.family)
            ends = np.geomspace(own["jacobian"].min(), own["jacobian"].max(), 2)
            middle = float(np.exp(np.log(own["jacobian"] * own["variance"]).mean()))
            panel.plot(ends, middle / ends, color=colour, linewidth=0.8)
        panel.set(xscale="log", yscale="log")
        panel.set_xlabel("squared length of the Jacobian's column (line: slope −1)", fontsize=8)
        panel.set_ylabel("posterior variance", fontsize=8)
        panel.legend(fontsize=7, frameon=False)
    return figure


THEOREM1C = Artefact(
    key="bhowal2024.theorem1c",
    title="Theorem 1 (c): σ² ∝ 1/‖c‖²",
    claims=(
        Bounds(
            "Theorem 1 (c): the variance of a latent is inverse to the squared length of its column",
            _slopes("slope_fit", "slope"),
        ),
        Bounds(
            "With the whole KL σ²/(1 − σ²) is inverse to the squared length of the column",
            _slopes("slope_whole"),
            ours=True,
        ),
        Bounds(
            "Control of Theorem 1 (c): the variances of other latents are not",
            _slopes("slope_control", least=-1 + WITHIN, most=np.inf),
            ours=True,
        ),
    ),
    presets=PRESETS,
    measure=measure,
    plot=plot,
    note="Slopes are over active latents, medians over points; −1 is met within 0.1. The law is the optimum of the "
    "stochastic loss under a fixed Σ log σ² alone. With the whole KL the optimum is σ_j² = 1 / (1 + 2‖c_j‖²/β) for a "
    "squared error (allen2024 Eq. 7), whose slope lies between −1 and 0 and is near −1 only where 2‖c_j‖² ≫ β.",
)
