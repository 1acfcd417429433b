"""Figures of disentanglement scores: the validation grid, scores with intervals, mutual information."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseam.drawing import COLOURS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

__all__ = ["grid_figure", "information_figure", "scores_figure"]

OUTSIDE = "#f0f0f0"


def grid_figure(table: pd.DataFrame, *, names: Mapping[str, str] | None = None, columns: int = 1) -> Figure:
    """Scores of synthetic encoders (rows) by metric (columns), one panel a world, every value printed.

    Args:
        table: rows of :func:`~unseam.metrics.validation_grid`; metrics, worlds and encoders keep its order.
            Scores outside [0, 1] take the colour of the nearer end, missing ones stay grey.
        names: titles of metrics, in place of their function names.
        columns: panels side by side.

    >>> import pandas as pd
    >>> row = {"metric": "mig", "world": "uniform", "encoder": "perfect", "score": 1.0}
    >>> grid_figure(pd.DataFrame([row])).axes[0].get_title(loc="left")
    'uniform'
    """
    from matplotlib.figure import Figure

    worlds, encoders, metrics = (list(dict.fromkeys(table[key])) for key in ("world", "encoder", "metric"))
    lines = -(-len(worlds) // columns)
    size = ((0.42 * len(metrics) + 1.7) * columns + 0.6, (0.235 * len(encoders) + 0.35) * lines + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    titles = [(names or {}).get(metric, metric.replace("_", " ")) for metric in metrics]
    image = None
    for axes, world in zip(panels.flat, worlds, strict=False):
        rows = table[table["world"] == world].pivot(index="encoder", columns="metric", values="score")
        image = _cells(axes, rows.reindex(index=encoders, columns=metrics).to_numpy("float64"))
        axes.set_title(world, fontsize=10, loc="left")
        axes.set_yticks(range(len(encoders)), encoders, fontsize=8)
        axes.set_xticks(
            range(len(titles)), titles, fontsize=8, rotation=40, ha="right", rotation_mode="anchor"
        )
    for axes in panels.flat[len(worlds) :]:
        axes.set_visible(False)
    if image is not None:
        figure.colorbar(image, ax=panels.ravel().tolist(), shrink=0.5 / lines, anchor=(0, 1), label="score")
    return figure


def scores_figure(table: pd.DataFrame, *, members: Sequence[str] | None = None) -> Figure:
    """Scores with their intervals: one line a metric, one mark a member.

    Args:
        table: rows of :func:`~unseam.metrics.evaluate`; those without a score are not drawn.
        members: names of the members, in place of their numbers.

    >>> import pandas as pd
    >>> row = {"member": 0, "metric": "mig", "score": 0.5, "lower": 0.4, "upper": 0.6}
    >>> [label.get_text() for label in scores_figure(pd.DataFrame([row])).axes[0].get_yticklabels()]
    ['mig']
    """
    from matplotlib.figure import Figure

    drawn = table[table["score"].notna()]
    metrics = list(dict.fromkeys(drawn["metric"]))
    stack = sorted(set(drawn["member"]))
    figure = Figure(figsize=(5.6, max(0.3, 0.1 * len(stack)) * len(metrics) + 0.9), layout="constrained")
    axes = figure.subplots()
    shifts = 0.2 * np.linspace(-1, 1, len(stack)) if len(stack) > 1 else np.zeros(1)
    for place, member in enumerate(stack):
        rows = drawn[drawn["member"] == member]
        heights = rows["metric"].map(metrics.index).to_numpy() + shifts[place]
        colour = COLOURS[place % len(COLOURS)]
        name = members[member] if members else f"member {member}"
        axes.hlines(heights, rows["lower"], rows["upper"], color=colour, linewidth=1.4)
        axes.plot(rows["score"], heights, "o", color=colour, markersize=4.5, label=name)
    axes.set_yticks(range(len(metrics)), [metric.replace("_", " ") for metric in metrics], fontsize=8)
    axes.set_xlabel("score, with its 95 % interval", fontsize=8)
    axes.set(ylim=(len(metrics) - 0.4, -0.6))
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    if len(stack) > 1:
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def information_figure(
    information: Tensor | NDArray[Any],
    factors: Sequence[str] | None = None,
    *,
    entropy: Tensor | NDArray[Any] | None = None,
) -> Figure:
    """Mutual information of every code and every factor as a matrix with its numbers.

    Args:
        information: in nats (latent, factor).
        factors: their names.
        entropy: of the factors (factor,), in nats; where given, each column is drawn as a part of it.

    >>> information_figure(np.eye(2), ("x", "y"), entropy=np.ones(2)).axes[0].get_title(loc="left")
    'Mutual information / entropy of the factor'
    """
    from matplotlib.figure import Figure

    values = _numbers(information)
    if values.ndim != 2:
        raise ValueError(f"information must have shape (latent, factor), got shape {values.shape}")
    latent, count = values.shape
    if entropy is not None:
        values = values / _numbers(entropy)
    figure = Figure(figsize=(0.55 * count + 2.2, 0.32 * latent + 1.2), layout="constrained")
    axes = figure.subplots()
    image = _cells(axes, values, top=1.0 if entropy is not None else max(float(values.max()), 1e-12))
    axes.set_yticks(range(latent), [str(j) for j in range(latent)], fontsize=8)
    axes.set_xticks(range(count), factors or [str(k) for k in range(count)], fontsize=8)
    axes.set(ylabel="code", xlabel="factor")
    title = "Mutual information (nats)" if entropy is None else "Mutual information / entropy of the factor"
    axes.set_title(title, fontsize=10, loc="left")
    figure.colorbar(image, ax=axes, shrink=0.9)
    return figure


def _cells(axes: Axes, values: NDArray[np.float64], *, top: float = 1.0) -> AxesImage:
    """A heat map with its numbers; light text on dark cells and dark on light ones."""
    axes.set_facecolor(OUTSIDE)
    image = axes.imshow(np.ma.masked_invalid(values), vmin=0, vmax=top, cmap="cividis", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        colour = "black" if value > 0.6 * top or np.isnan(value) else "white"
        axes.text(column, row, _shown(value), ha="center", va="center", fontsize=7.5, color=colour)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def _shown(value: float) -> str:
    """Two decimals without the leading zero, one from 1 on, none for 0 and 1; a dash for what is not there."""
    if np.isnan(value):
        return "–"
    if abs(value - round(value)) < 5e-4 and abs(value) < 1.5:
        return f"{abs(round(value))}" if value > -0.5 else "−1"
    text = f"{value:.2f}".replace("0.", ".") if abs(value) < 0.995 else f"{value:.1f}"
    return text.replace("-", "−")


def _numbers(values: Tensor | NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype="float64")
