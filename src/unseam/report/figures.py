"""Figures of trained models from plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unseam.drawing import COLOURS, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curves_figure", "gaps_figure", "pictures_figure", "recovery_figure"]


def recovery_figure(
    recovered: Mapping[str, NDArray[np.floating]], factors: Sequence[str], *, measure: str = "score"
) -> Figure:
    """How well each latent alone predicts each factor: one matrix (latent, factor) a model.

    >>> figure = recovery_figure({"β-VAE": np.eye(3)}, ("scale", "x", "y"))
    >>> figure.axes[0].get_title()
    'β-VAE'
    """
    from matplotlib.figure import Figure

    sides = [len(values) for values in recovered.values()]
    figure = Figure(figsize=(2.1 * len(sides) + 0.9, 0.36 * max(sides) + 1.2), layout="constrained")
    grid = figure.subplots(1, len(sides), squeeze=False)[0]
    for axes, (name, values) in zip(grid, recovered.items(), strict=True):
        image = axes.imshow(values, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            colour = "black" if value > 0.6 else "white"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7.5, color=colour)
        axes.set_title(name, fontsize=10)
        axes.set_xticks(range(len(factors)), factors, fontsize=8)
        axes.set_yticks(range(len(values)), [str(j) for j in range(len(values))], fontsize=8)
    grid[0].set_ylabel("latent")
    figure.colorbar(image, ax=grid.tolist(), shrink=0.9, label=measure)
    return figure


def gaps_figure(
    values: Mapping[str, Mapping[str, Sequence[float]]],
    chance: Mapping[str, float] | None = None,
    *,
    columns: int = 3,
) -> Figure:
    """Numbers over seeds: a panel a quantity, a column of dots a model, with the mean as a line.

    Args:
        values: by quantity, then by model, one number a seed.
        chance: by quantity, what chance gives, drawn as a dashed line.
        columns: panels beside each other at most, further ones go below.

    >>> figure = gaps_figure({"DtO": {"β-VAE": [0.2, 0.3], "AE": [1.4, 1.5]}}, {"DtO": 1.6})
    >>> figure.axes[0].get_title(loc="left")
    'DtO'
    """
    figure, grid = panels(list(values), rows=-(-len(values) // columns), width=2.55, height=2.7)
    for axes, (quantity, models) in zip(grid, values.items(), strict=True):
        level = (chance or {}).get(quantity)
        _dots(axes, models)
        if level is not None:
            axes.axhline(level, color="#777777", linestyle="--", linewidth=1)
            where = {"xycoords": ("axes fraction", "data"), "ha": "left", "va": "center"}
            axes.annotate("chance", (1.01, level), fontsize=7, color="#777777", **where)
        seen = [number for numbers in models.values() for number in numbers if np.isfinite(number)]
        axes.set_ylim(0, 1.08 * max([*seen, level or 0.0]) or 1.0)  # room for whole dots at the top
    return figure


def _dots(axes: Axes, models: Mapping[str, Sequence[float]]) -> None:
    """One column of dots a model, with its mean as a line."""
    for place, (colour, numbers) in enumerate(zip(COLOURS, models.values(), strict=False)):
        shifts = np.linspace(-0.12, 0.12, len(numbers)) if len(numbers) > 1 else np.zeros(1)
        axes.plot(place + shifts, numbers, "o", color=colour, markersize=5, alpha=0.8)
        axes.plot([place - 0.3, place + 0.3], [np.mean(numbers)] * 2, color=colour, linewidth=2)
    axes.set_xticks(range(len(models)), [name.replace(" ", "\n") for name in models])
    axes.set(xlim=(-0.6, len(models) - 0.4))


def pictures_figure(
    rows: Mapping[str, NDArray[np.floating]], *, columns: Sequence[str] | None = None, signed: bool = False
) -> Figure:
    """Rows of pictures (column, height, width), each row with its name.

    Args:
        rows: by name, pictures in [0, 1]; of any range where ``signed``.
        columns: names of the columns.
        signed: draw positive and negative values in two colours, each picture on its own scale.

    >>> len(pictures_figure({"one": np.zeros((4, 8, 8)), "two": np.zeros((4, 8, 8))}).axes)
    8
    """
    from matplotlib.figure import Figure

    count = max(len(pictures) for pictures in rows.values())
    figure = Figure(
        figsize=(0.62 * count + 1.1, 0.62 * len(rows) + (0.35 if columns else 0.1)), layout="constrained"
    )
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=0.01, h_pad=0.01, wspace=0.02, hspace=0.02)
    grid = figure.subplots(len(rows), count, squeeze=False)
    for line, (name, pictures) in zip(grid, rows.items(), strict=True):
        for axes in line:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        for axes, picture in zip(line, pictures, strict=False):
            reach = float(np.abs(picture).max()) or 1.0
            limits = (-reach, reach) if signed else (0.0, 1.0)
            axes.imshow(picture, cmap="RdBu_r" if signed else "gray", vmin=limits[0], vmax=limits[1])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    for axes, name in zip(grid[0], columns or (), strict=False):
        axes.set_title(name, fontsize=8)
    return figure


def curves_figure(
    history: pd.DataFrame, models: Mapping[str, Sequence[int]], *, term: str = "reconstruction"
) -> Figure:
    """A term of the objective along training: one line a member, one colour a model.

    Args:
        history: rows of an ensemble's history.
        models: members of each model, by its name.
        term: column of the history.

    >>> import pandas as pd
    >>> history = pd.DataFrame({"member": [0, 0], "step": [1, 2], "loss": [3.0, 2.0]})
    >>> curves_figure(history, {"β-VAE": [0]}, term="loss").axes[0].get_ylabel()
    'loss (nats)'
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 2.5), layout="constrained")
    axes = figure.subplots()
    for colour, (name, members) in zip(COLOURS, models.items(), strict=False):
        for turn, member in enumerate(members):
            rows = history[history["member"] == member]
            label = name if turn == 0 else None
            axes.plot(rows["step"], rows[term], color=colour, linewidth=1, alpha=0.8, label=label)
    axes.set(xlabel="step", ylabel=f"{term} (nats)", yscale="log" if (history[term] > 0).all() else "linear")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure
