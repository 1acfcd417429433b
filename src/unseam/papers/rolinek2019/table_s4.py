"""Table S4 and Figure S5 of rolinek2019: factors of nearly the same scale leave the axes undecided."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Scale, Workplace
from unseam.papers.rolinek2019.cells import CELL_RULE, ORDER_RULE, Published, cell, mean_interval, order
from unseam.papers.rolinek2019.measures import SCORE
from unseam.papers.rolinek2019.runs import at_beta, followed, last
from unseam.papers.rolinek2019.setups import JUDGED, LINEAR, Setup, quick, smoke

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE_S5", "TABLE_S4"]

DTO = {1.0: Published(0.49, 0.32), 1.2: Published(0.20, 0.24), 1.5: Published(0.01, 0.06)}
DISENT = {1.0: Published(0.51, 0.28), 1.2: Published(0.76, 0.25), 1.5: Published(0.98, 0.06)}
RESTARTS = 4
"""Panels of Figure S5."""
STRAIGHT = 5.0
"""Degrees within which a representation counts as aligned with the square."""


@dataclass(frozen=True)
class Settings:
    """The linear β-VAE, trained anew for each ratio of the factors' scales."""

    setup: Setup
    beta: float = JUDGED["linear"]
    ratios: tuple[float, ...] = (1.0, 1.2, 1.5)

    def at(self, ratio: float) -> Setup:
        """The setup at one ratio."""
        others = tuple(option for option in self.setup.options if option[0] != "ratio")
        return dataclasses.replace(self.setup, options=(("ratio", ratio), *others))


def measure(settings: Settings, place: Workplace) -> Tables:
    """Runs at every ratio."""
    import pandas as pd

    parts = {ratio: followed(settings.at(ratio), "β-VAE", place) for ratio in settings.ratios}
    members = [at_beta(part.members, settings.beta).assign(ratio=ratio) for ratio, part in parts.items()]
    trainings = [part.trainings.assign(ratio=ratio) for ratio, part in parts.items()]
    return {
        "members": pd.concat(members, ignore_index=True),
        "trainings": pd.concat(trainings, ignore_index=True),
    }


def judge_table(tables: Tables) -> Judgement:
    """Runs at every ratio against the published cells, and the largest ratio against the smallest."""
    ends = {float(str(ratio)): part for ratio, part in last(tables["members"]).groupby("ratio")}
    found = [
        cell(f"ratio {ratio}: {words}", published[ratio], part[name].to_numpy())
        for name, words, published in (("dto", "DtO", DTO), (SCORE, "Disent.", DISENT))
        for ratio, part in ends.items()
    ]
    first, final = ends[min(ends)], ends[max(ends)]
    found.append(order("DtO at the largest ratio less that at the smallest", final["dto"], first["dto"]))
    words = "Disent. at the smallest ratio less that at the largest"
    found.append(order(words, first[SCORE], final[SCORE]))
    return Judgement(tuple(found))


def judge_figure(tables: Tables) -> Judgement:
    """The angle of every restart's representation against the square, at equal scales and at the largest ratio."""
    angles = {
        float(str(ratio)): turned(part[["t11", "t12", "t21", "t22"]].to_numpy())
        for ratio, part in last(tables["members"]).groupby("ratio")
    }
    least, most = min(angles), max(angles)
    found = (
        _angle(f"ratio {least}: largest angle of a restart, degrees", angles[least], random=True),
        _angle(f"ratio {most} (control): median angle, degrees", angles[most], random=False),
        order(f"angle at ratio {most} less that at {least}, degrees", angles[most], angles[least]),
    )
    return Judgement(found)


def turned(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angle (run,) in degrees, 0 to 45, by which maps (run, 4) turn the square, whatever axis becomes which.

    The orthogonal factor of the polar decomposition of T, up to signed permutations.

    >>> turned(np.array([[0.0, 2.0, -2.0, 0.0], [1.0, -1.0, 1.0, 1.0]])).round(6).tolist()
    [0.0, 45.0]
    """
    left, _, right = np.linalg.svd(maps.reshape(-1, 2, 2))
    orthogonal = np.abs(left @ right)
    return np.degrees(np.arctan2(orthogonal.min((1, 2)), orthogonal.max((1, 2))))


def _angle(quantity: str, angles: NDArray[np.float64], *, random: bool) -> Finding:
    """At equal scales any angle may come, in particular large ones; otherwise most are small."""
    lower, upper = mean_interval(angles)
    value = float(angles.max() if random else np.median(angles))
    holds = value > 2 * STRAIGHT if random else value <= STRAIGHT
    return Finding(
        quantity,
        "random alignments" if random else f"aligned: at most {STRAIGHT:g}",
        value,
        None,
        None,
        "reproduced" if holds else "not reproduced",
        f"mean {angles.mean():.1f} (22.5 if uniform)"
        + ("" if lower is None else f" in [{lower:.1f}, {upper:.1f}]"),
    )


def draw_table(tables: Tables) -> Figure:
    """Runs as dots at every ratio, the published cells beside them."""
    ends = last(tables["members"])
    figure, axes = panels(["distance to orthogonality", "disentanglement score"], width=3.0, height=2.5)
    for panel, name, published in zip(axes, ("dto", SCORE), (DTO, DISENT), strict=True):
        for place, (ratio, part) in enumerate(ends.groupby("ratio")):
            spread = 0.15 + 0.06 * (np.arange(len(part)) % 5 - 2)
            panel.plot(place + spread, part[name], "o", color=COLOURS[0], markersize=3, alpha=0.7)
            said = published[float(str(ratio))]
            panel.errorbar(
                place - 0.2, said.mean, said.std, fmt="s", color=COLOURS[1], markersize=4, capsize=3
            )
        panel.set_xticks(
            range(ends["ratio"].nunique()), [f"{ratio:g}" for ratio in sorted(set(ends["ratio"]))]
        )
        panel.set_xlabel("ratio of the factors' scales", fontsize=8)
    axes[0].plot([], [], "o", color=COLOURS[0], markersize=3, label="runs")
    axes[0].errorbar([], [], [], fmt="s", color=COLOURS[1], markersize=4, label="published")
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def draw_figure(tables: Tables) -> Figure:
    """The square, and its representation by four restarts at equal scales."""
    ends = last(tables["members"])
    runs = ends[ends["ratio"] == ends["ratio"].min()].sort_values("seed")[:RESTARTS]
    grid = np.stack(np.meshgrid(np.linspace(-0.5, 0.5, 18), np.linspace(-0.5, 0.5, 18)), -1).reshape(-1, 2)
    titles = ["generating factors", *(f"restart {turn + 1}" for turn in range(len(runs)))]
    figure, axes = panels(titles, width=1.9, height=2.0)
    maps = [np.eye(2), *runs[["t11", "t12", "t21", "t22"]].to_numpy().reshape(-1, 2, 2)]
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
    "full": Settings(dataclasses.replace(LINEAR, seeds=30)),
}
"""Both artefacts look at the same trainings."""

TABLE_S4 = Artefact(
    key="rolinek2019.table_s4",
    title="Table S4: the ratio of two factors' scales",
    claim="At equal scales alignment is a matter of chance; already a ratio of 1.2 to 1.5 decides it.",
    criterion=f"{CELL_RULE} {ORDER_RULE} From the smallest ratio to the largest DtO falls and the score rises.",
    presets=PRESETS,
    measure=measure,
    judge=judge_table,
    draw=draw_table,
)
FIGURE_S5 = Artefact(
    key="rolinek2019.figure_s5",
    title="Figure S5: representations of a square at equal scales",
    claim="With two factors on an equal, uniform scale the linear β-VAE generates arbitrarily rotated representations.",
    criterion="Among all restarts at equal scales some are turned by more than 10° against the square; at the ratio of "
    f"1.5 half of them are by at most 5°, and, asked for later, angles are smaller there. {ORDER_RULE}",
    presets=PRESETS,
    measure=measure,
    judge=judge_figure,
    draw=draw_figure,
)
