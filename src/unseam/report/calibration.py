"""Figure of how often tests of independence reject: at their level when they should not, and when they should."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from unseam.drawing import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["calibration_figure"]

# Colours with a sign of their own each.
STYLES = tuple(zip((*COLOURS[:3], "#777777", COLOURS[3]), "os^vD", strict=True))


def calibration_figure(
    rows: Sequence[Mapping[str, Any]], levels: Sequence[float], *, level: float = 0.05
) -> Figure:
    """Rejection rates of tests under independence, with the range chance leaves them, and power under dependence.

    Args:
        rows: one mapping a case: ``kind`` ("independent" or "dependent"), ``samples`` (their name), ``method``,
            ``points``, ``components``, ``tests``, and ``rejected``, the number of tests that rejected at each level.
        levels: levels α of the counts, in their order.
        level: the level that is drawn.

    >>> case = {"samples": "normal", "method": "hsic", "points": 30, "components": 2, "tests": 100}
    >>> rows = [case | {"kind": "independent", "rejected": [4]}, case | {"kind": "dependent", "rejected": [90]}]
    >>> calibration_figure(rows, [0.05]).axes[0].get_ylabel()
    'rejected at level 0.05'
    """
    from matplotlib.figure import Figure

    if level not in levels:
        raise ValueError(f"level must be one of {', '.join(map(str, levels))}, got {level}")
    column = list(levels).index(level)
    null = [row for row in rows if row["kind"] == "independent"]
    alternatives = [row for row in rows if row["kind"] == "dependent"]
    names = _distinct(row["samples"] for row in alternatives)
    figure = Figure(figsize=(9.2, 5.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    top, bottom = parts
    styles = dict(zip(_distinct(row["method"] for row in rows), STYLES, strict=False))
    _draw_null(top.subplots(), null, column, level, styles)
    panels = bottom.subplots(1, max(1, len(names)), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=False):
        _draw_power(axes, [row for row in alternatives if row["samples"] == name], column, level, styles)
        axes.set_title(name, fontsize=9, loc="left")
    panels[0].set_ylabel("rejected (power)")
    return figure


def _draw_null(
    axes: Axes, rows: Sequence[Mapping[str, Any]], column: int, level: float, styles: Mapping[str, Any]
) -> None:
    """A column for each kind of samples, a sign for each method, the binomial's central 99 % as a band."""
    cases = _distinct((row["points"], row["components"], row["samples"]) for row in rows)
    shifts = np.linspace(-0.24, 0.24, len(styles)) if len(styles) > 1 else np.zeros(1)
    for shift, (method, (colour, sign)) in zip(shifts, styles.items(), strict=True):
        own = [row for row in rows if row["method"] == method]
        places = [cases.index((row["points"], row["components"], row["samples"])) + shift for row in own]
        rates = [row["rejected"][column] / row["tests"] for row in own]
        axes.plot(places, rates, sign, color=colour, markersize=4.5, label=method)
    for place, case in enumerate(cases):
        tests = [row["tests"] for row in rows if (row["points"], row["components"], row["samples"]) == case]
        low, high = stats.binom.ppf([0.005, 0.995], min(tests), level) / min(tests)
        axes.fill_between([place - 0.5, place + 0.5], low, high, color="#DDDDDD", linewidth=0, zorder=0)
    axes.axhline(level, color="#777777", linewidth=1, zorder=1)
    labels = [f"{name}\n{points} points\n{components} comp." for points, components, name in cases]
    axes.set_xticks(range(len(cases)), labels, fontsize=6.5)
    axes.set(xlim=(-0.5, max(1, len(cases)) - 0.5), ylabel=f"rejected at level {level}")
    axes.set_ylim(0, 1.25 * axes.get_ylim()[1])  # room for the legend
    axes.set_title(
        "Independent components: the rate is the level (band: 99 % of what chance gives)",
        fontsize=10,
        loc="left",
    )
    axes.legend(frameon=False, fontsize=8, ncols=len(styles), loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_power(
    axes: Axes, rows: Sequence[Mapping[str, Any]], column: int, level: float, styles: Mapping[str, Any]
) -> None:
    """Power over points as a line; hollow signs where independent components stand beside the dependent ones."""
    fewest = min(row["components"] for row in rows)
    for method, (colour, sign) in styles.items():
        for crowded in (False, True):
            own = [row for row in rows if row["method"] == method and (row["components"] > fewest) == crowded]
            axes.plot(
                [row["points"] for row in own],
                [row["rejected"][column] / row["tests"] for row in own],
                marker=sign,
                markersize=5.5 if crowded else 4,
                markerfacecolor="none" if crowded else colour,
                linestyle="none" if crowded else "-",
                linewidth=1.2,
                color=colour,
            )
    axes.axhline(level, color="#777777", linewidth=1, zorder=0)
    axes.set(ylim=(-0.02, 1.04), xlabel="points", xticks=sorted({row["points"] for row in rows}))
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Values in the order of their first appearance."""
    return list(dict.fromkeys(values))
