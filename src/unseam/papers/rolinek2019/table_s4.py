"""Table S4 and Figure S5 of rolinek2019: factors of nearly the same scale leave the axes undecided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Scale, Workplace
from unseam.papers.claims import Bound, Bounds, Cell, Order, Orders, Row, Values
from unseam.papers.measures import SCORE
from unseam.papers.rolinek2019.runs import at_beta, last, run_column
from unseam.papers.rolinek2019.setups import BETA, LINEAR, Setup, quick, smoke
from unseam.papers.rolinek2019.table2 import plot_cell

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE_S5", "TABLE_S4"]

RATIOS = (1.0, 1.2, 1.5)
DTO = dict(zip(RATIOS, (Cell(0.49, 0.32), Cell(0.20, 0.24), Cell(0.01, 0.06)), strict=True))
DISENT = dict(zip(RATIOS, (Cell(0.51, 0.28), Cell(0.76, 0.25), Cell(0.98, 0.06)), strict=True))
RESTARTS = 4
"""Panels of Figure S5."""
STRAIGHT = 5.0
"""Degrees within which a representation counts as aligned with the square."""
MAP = ["t11", "t12", "t21", "t22"]


@dataclass(frozen=True)
class Settings:
    """The linear β-VAE, trained anew for each ratio of the factors' scales."""

    setup: Setup

    def at(self, ratio: float) -> Setup:
        """The setup at one ratio."""
        return self.setup.replace(world_options=(("ratio", ratio), *self.setup.base.world_options))


def measure(settings: Settings, place: Workplace) -> Tables:
    """Runs at every ratio, at the end of training."""
    import pandas as pd

    parts = {ratio: run_column(settings.at(ratio), "β-VAE", place) for ratio in RATIOS}
    ends = [last(at_beta(part.members, BETA["linear"])).assign(ratio=ratio) for ratio, part in parts.items()]
    trainings = [part.trainings.assign(ratio=ratio) for ratio, part in parts.items()]
    return {
        "members": pd.concat(ends, ignore_index=True)[["ratio", "seed", "dto", SCORE, *MAP]],
        "trainings": pd.concat(trainings, ignore_index=True),
    }


def _runs(tables: Tables) -> dict[float, pd.DataFrame]:
    return {float(str(ratio)): part for ratio, part in tables["members"].groupby("ratio")}


def cells(tables: Tables) -> Iterator[Row]:
    """DtO and score by ratio."""
    for name, words, published in (("dto", "DtO", DTO), (SCORE, "Disent.", DISENT)):
        said = {f"ratio {ratio}": cell for ratio, cell in published.items()}
        yield Row(words, said, {f"ratio {ratio}": runs[name] for ratio, runs in _runs(tables).items()})


def orders(tables: Tables) -> Iterator[Order]:
    """Unequal scales against equal ones."""
    equal, *others = _runs(tables).items()
    for ratio, runs in others:
        at = f"at ratio {ratio} less that at {equal[0]}"
        yield Order(f"DtO {at}", runs["dto"], equal[1]["dto"])
        yield Order(f"Disent. at ratio {equal[0]} less that at {ratio}", equal[1][SCORE], runs[SCORE])


def _angles(tables: Tables) -> dict[float, NDArray[np.float64]]:
    return {ratio: rotation_angle(runs[MAP].to_numpy()) for ratio, runs in _runs(tables).items()}


def alignments(tables: Tables) -> Iterator[Bound]:
    """The angle between representation and square, at equal scales and at the largest ratio."""
    angles = _angles(tables)
    words = "median angle between representation and square at ratio {}, degrees"
    least, most = 2 * STRAIGHT, 45 - 2 * STRAIGHT
    random, wrong = f"random, 22.5 if uniform: {least:g} to {most:g}", {"ratio 1.5": angles[1.5]}
    yield Bound(words.format(1.0), random, angles[1.0], least, most, wrong=wrong)
    aligned, wrong = f"aligned: at most {STRAIGHT:g}", {"ratio 1.0": angles[1.0]}
    yield Bound(words.format(1.5), aligned, angles[1.5], most=STRAIGHT, wrong=wrong)


def angle_orders(tables: Tables) -> Iterator[Order]:
    """Angles at unequal scales against those at equal ones."""
    angles = _angles(tables)
    for ratio in RATIOS[1:]:
        yield Order(f"angle at ratio {ratio} less that at 1.0, degrees", angles[ratio], angles[1.0])


def rotation_angle(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angle (run,) in degrees, 0 to 45, by which maps (run, 4) rotate the square, whatever axis becomes which.

    The orthogonal factor of the polar decomposition of T, up to signed permutations.

    >>> rotation_angle(np.array([[0.0, 2.0, -2.0, 0.0], [1.0, -1.0, 1.0, 1.0]])).round(6).tolist()
    [0.0, 45.0]
    """
    left, _, right = np.linalg.svd(maps.reshape(-1, 2, 2))
    factor = np.abs(left @ right)
    return np.degrees(np.arctan2(factor.min((1, 2)), factor.max((1, 2))))


def plot_table(tables: Tables) -> Figure:
    """Runs as dots at every ratio, the published cells beside them."""
    figure, axes = panels(["distance to orthogonality", "disentanglement score"], width=3.0, height=2.5)
    for panel, name, published in zip(axes, ("dto", SCORE), (DTO, DISENT), strict=True):
        for position, (ratio, runs) in enumerate(_runs(tables).items()):
            plot_cell(panel, position, runs[name], published[ratio])
        panel.set_xticks(range(len(RATIOS)), [f"{ratio:g}" for ratio in RATIOS])
        panel.set_xlabel("ratio of the factors' scales", fontsize=8)
    axes[0].plot([], [], "o", color=COLOURS[0], markersize=3, label="runs")
    axes[0].errorbar([], [], [], fmt="s", color=COLOURS[1], markersize=4, label="published")
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def plot_figure(tables: Tables) -> Figure:
    """The square, and its representation by four restarts at equal scales."""
    runs = _runs(tables)[1.0].sort_values("seed")[:RESTARTS]
    grid = np.stack(np.meshgrid(np.linspace(-0.5, 0.5, 18), np.linspace(-0.5, 0.5, 18)), -1).reshape(-1, 2)
    titles = ["generating factors", *(f"restart {turn + 1}" for turn in range(len(runs)))]
    figure, axes = panels(titles, width=1.9, height=2.0)
    maps = [np.eye(2), *runs[MAP].to_numpy().reshape(-1, 2, 2)]
    for panel, matrix in zip(axes, maps, strict=True):
        z = grid @ matrix.T
        panel.scatter(z[:, 0], z[:, 1], c=grid[:, 0] - 0.3 * grid[:, 1], cmap="viridis", s=4, linewidths=0)
        panel.set_aspect("equal")
        panel.set_xticks([])
        panel.set_yticks([])
    return figure


PRESETS: dict[Scale, Settings] = {
    "smoke": Settings(smoke(LINEAR)),
    "laptop": Settings(quick(LINEAR)),
    "full": Settings(LINEAR.replace(seeds=30)),
}
"""Both artefacts look at the same trainings."""

TABLE_S4 = Artefact(
    key="rolinek2019.table_s4",
    title="Table S4: the ratio of two factors' scales",
    claims=(
        Values("Table S4: DtO and disentanglement score by the ratio of the factors' scales", cells),
        Orders("§9.2: the degeneracy of equal scales disappears even for small rescaling", orders),
    ),
    presets=PRESETS,
    measure=measure,
    plot=plot_table,
)
FIGURE_S5 = Artefact(
    key="rolinek2019.figure_s5",
    title="Figure S5: representations of a square at equal scales",
    claims=(
        Bounds(
            "Figure S5: arbitrarily rotated representations at equal scales, aligned ones otherwise",
            alignments,
            statistic="median",
        ),
        Orders("§9.2: with unequal scales the right alignment is found", angle_orders),
    ),
    presets=PRESETS,
    measure=measure,
    plot=plot_figure,
)
