"""Theorem 1 (c) of bhowal2024: variances of latents are inverse to the squared lengths of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024._rows import control_note, where_measured
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


def _slopes(*kinds: str) -> Cases:
    """Slopes within bounds around −1, beside that of the control."""
    bounds = {"least": -1 - WITHIN, "most": -1 + WITHIN}

    def cases(tables: Tables) -> Iterator[Bound]:
        for world, part in worlds(tables["members"]):
            for one, own in cells_of(part):
                note = control_note("variances of other latents", own["slope_control"], **bounds)
                for kind in kinds:
                    quantity = f"{NAMES[world]}, {one.family}: {WORDS[kind]}"
                    yield Bound(quantity, f"−1 (within {WITHIN:g})", own[kind], **bounds, note=note)

    return cases


def _controls(tables: Tables) -> Iterator[Bound]:
    for world, part in worlds(tables["members"]):
        for one, own in cells_of(part):
            quantity = f"{NAMES[world]}, {one.family}: distance from −1 of the {WORDS['slope_control']}"
            yield Bound(quantity, f"at least {WITHIN:g}", (own["slope_control"] + 1).abs(), least=WITHIN)


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
            _controls,
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
