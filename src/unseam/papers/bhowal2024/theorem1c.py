"""Theorem 1 (c) of bhowal2024: variances of latents are inverse to the squared lengths of their columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.papers.bhowal2024.rows import cells_of, judgement, where_measured, worlds
from unseam.papers.bhowal2024.runs import select, trained
from unseam.papers.bhowal2024.setups import NAMES, PRESETS, Settings
from unseam.papers.rolinek2019.cells import mean_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["THEOREM1C"]

STRICT = 0.1
"""How far the slope may be from −1."""
KINDS = {"": "Jacobian", "_fit": "M_D"}


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """The line through (log ‖c_j‖², log σ_j²) over active latents, at every point of every model."""
    return select([trained(settings.setups, place)], "members", "columns")


def judge(tables: Tables) -> Judgement:
    """The slope of that line, for each model family."""
    return judgement(tables, lambda found: _findings(found["members"]), NOTE)


def _findings(members: pd.DataFrame) -> Iterator[Finding]:
    for world, part in worlds(members):
        for one, own in cells_of(part):
            for suffix, words in KINDS.items():
                yield _slope(
                    f"{NAMES[world]}, {one.family}: slope of log σ² on log ‖c‖², {words}", own, suffix
                )


def _slope(quantity: str, own: pd.DataFrame, suffix: str) -> Finding:
    known = own[own[f"slope{suffix}"].notna()]
    if not len(known):
        return Finding(quantity, "−1", None, None, None, "not reproduced", "fewer than two active latents")
    slopes = known[f"slope{suffix}"].to_numpy(dtype=float)
    control = float(known["slope_control"].mean())
    lower, upper = mean_interval(slopes)
    holds = abs(float(slopes.mean()) + 1) <= STRICT < abs(control + 1)
    return Finding(
        quantity,
        "−1",
        float(slopes.mean()),
        lower,
        upper,
        "reproduced" if holds else "not reproduced",
        f"median correlation {known[f'correlation{suffix}'].median():.3f}, spread of log σ²‖c‖² "
        f"{known[f'spread{suffix}'].median():.2f}, {len(slopes)} models; variances of other latents {control:+.2f}, "
        f"σ²/(1 − σ²) for σ² {known['slope_whole'].mean():+.2f}",
    )


NOTE = (
    "The law is the optimum of the stochastic loss under a fixed Σ log σ² alone. With the whole KL the optimum is "
    "σ_j² = 1 / (1 + 2‖c_j‖²/β) for a squared error (allen2024 Eq. 7), whose slope lies between −1 and 0 and nears "
    "−1 only where 2‖c_j‖² ≫ β: passive and weak latents bend the line. σ²/(1 − σ²), which that optimum makes "
    "proportional to 1/‖c‖², is measured beside it."
)


@where_measured
def draw(tables: Tables) -> Figure:
    """Variances against squared column lengths of one model of each family, and the law's slope."""
    parts = list(worlds(tables["columns"]))
    if not parts:
        return panels(["fewer than two active latents"], width=3.6, height=1.0)[0]
    figure, axes = panels([NAMES[world] for world, _ in parts], width=4.0, height=3.0)
    for panel, (_, part) in zip(axes, parts, strict=True):
        for (one, own), colour in zip(cells_of(part), COLOURS, strict=False):
            panel.plot(own["jacobian"], own["variance"], ".", color=colour, markersize=3, label=one.family)
            across = np.geomspace(own["jacobian"].min(), own["jacobian"].max(), 2)
            middle = float(np.exp(np.log(own["jacobian"] * own["variance"]).mean()))
            panel.plot(across, middle / across, color=colour, linewidth=0.8)
        panel.set(xscale="log", yscale="log")
        panel.set_xlabel("squared length of the Jacobian's column (line: slope −1)", fontsize=8)
        panel.set_ylabel("posterior variance", fontsize=8)
        panel.legend(fontsize=7, frameon=False)
    return figure


THEOREM1C = Artefact(
    key="bhowal2024.theorem1c",
    title="Theorem 1 (c): σ² ∝ 1/‖c‖²",
    claim="The posterior variance of a latent is inversely proportional to the squared length of its column of the "
    "local decoder.",
    criterion="The mean over models of the slope of log σ² on log ‖c‖² over active latents (median over points) lies "
    "within 0.1 of −1, for the Jacobian and for M_D, while that with variances of other latents does not.",
    presets=PRESETS,
    measure=measure,
    judge=judge,
    draw=draw,
)
