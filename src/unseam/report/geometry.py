"""Figures of a decoder's geometry: spectrum, cosines, right singular vectors, posterior against Jacobian."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unseam.drawing import COLOURS
from unseam.geometry import cosine_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["basis_figure", "cosine_figure", "geometry_figures", "precision_figure", "spectrum_figure"]

LIVE, ACCENT = COLOURS[:2]
DEAD = "#999999"


def geometry_figures(
    pullback: Tensor, right_vectors: Tensor, active: Tensor, variance: Tensor | None, *, beta: float = 1.0
) -> dict[str, Figure]:
    """All figures that can be drawn of one inspection, by name.

    Args:
        pullback: JᵀWJ (points, latent, latent).
        right_vectors: (points, latent, latent).
        active: (latent,) booleans.
        variance: the posterior's, or ``None``.
        beta: weight of the KL term.

    >>> metric = torch.eye(2).expand(4, 2, 2)
    >>> sorted(geometry_figures(metric, metric, torch.tensor([True, False]), None))
    ['basis', 'cosine', 'spectrum']
    """
    figures = {
        "spectrum": spectrum_figure(pullback, active),
        "cosine": cosine_figure(pullback),
        "basis": basis_figure(right_vectors),
    }
    if variance is not None and bool((variance != 0).any()):
        figures["precision"] = precision_figure(variance, pullback, active, beta=beta)
    return figures


def spectrum_figure(pullback: Tensor, active: Tensor) -> Figure:
    """Column norm of each latent's Jacobian column over points: median, quartiles and range, live ones coloured.

    >>> spectrum_figure(torch.eye(3).expand(5, 3, 3), torch.tensor([True, True, False])).axes[0].get_xlabel()
    'latent'
    """
    figure, axes = _figure(max(3.2, 0.45 * pullback.shape[-1] + 1.4), 2.8)
    norms = pullback.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt().cpu().double().numpy()
    floor = max(norms.max(), 1e-30) * 1e-6
    drawn = axes.boxplot(
        np.maximum(norms, floor),
        positions=range(norms.shape[1]),
        widths=0.6,
        whis=(0, 100),
        patch_artist=True,
        medianprops={"color": "white", "linewidth": 1.5},
    )
    for patch, alive in zip(drawn["boxes"], active.tolist(), strict=True):
        patch.set(facecolor=LIVE if alive else DEAD, edgecolor="none")
    axes.set(xlabel="latent", ylabel="norm of its Jacobian column", yscale="log")
    axes.set_xticks(range(norms.shape[1]), [str(j) for j in range(norms.shape[1])])
    axes.set_title("How strongly each latent moves the output", fontsize=10, loc="left")
    return figure


def cosine_figure(pullback: Tensor) -> Figure:
    """Mean ``|cos|`` between the Jacobian's columns over points, as a matrix with its numbers.

    >>> cosine_figure(torch.eye(2).expand(5, 2, 2)).axes[0].get_title(loc="left")
    'Mean |cos| between columns'
    """
    cosines = cosine_matrix(pullback).mean(0).clamp(max=1.0)
    return _matrix(cosines, "Mean |cos| between columns", "latent", "latent")


def basis_figure(right_vectors: Tensor, *, points: int = 4) -> Figure:
    """``|V|`` at a few points, spread over those given: a permutation matrix where axes are orthogonal.

    >>> len(basis_figure(torch.eye(2).expand(9, 2, 2)).axes)
    4
    """
    from matplotlib.figure import Figure

    count = min(points, len(right_vectors))
    chosen = torch.linspace(0, len(right_vectors) - 1, count).round().long()
    figure = Figure(figsize=(1.9 * count + 0.4, 2.4), layout="constrained")
    for axes, point in zip(figure.subplots(1, count, squeeze=False)[0], chosen.tolist(), strict=True):
        axes.imshow(right_vectors[point].abs().cpu().double().numpy(), vmin=0, vmax=1, cmap="cividis")
        axes.set(title=f"point {point}", xlabel="singular vector", xticks=[], yticks=[])
        axes.title.set_fontsize(9)
    figure.axes[0].set_ylabel("latent")
    figure.suptitle("|V|: right singular vectors in the latents' axes", fontsize=10, x=0.01, ha="left")
    return figure


def precision_figure(variance: Tensor, pullback: Tensor, active: Tensor, *, beta: float = 1.0) -> Figure:
    """Posterior precision of each latent and point against 1 + ‖c_j‖²/β, which allen2024 Eq. 7 says it is.

    >>> figure = precision_figure(torch.ones(5, 2), torch.zeros(5, 2, 2), torch.tensor([True, False]))
    >>> figure.axes[0].get_xscale()
    'log'
    """
    figure, axes = _figure(3.4, 3.2)
    expected = 1 + pullback.diagonal(dim1=-2, dim2=-1) / beta
    precision = 1 / variance if variance.ndim == 2 else torch.linalg.inv(variance).diagonal(dim1=-2, dim2=-1)
    few = slice(None, None, max(1, len(expected) // 400))
    for alive, colour, label in ((False, DEAD, "collapsed"), (True, LIVE, "alive")):
        chosen = active if alive else ~active
        if chosen.any():
            across, along = (
                value[few][:, chosen].flatten().cpu().double() for value in (expected, precision)
            )
            axes.plot(across, along, ".", color=colour, markersize=3, alpha=0.5, label=label, rasterized=True)
    ends = [float(expected.min()), float(expected.max()) * 1.1]
    axes.plot(ends, ends, color=ACCENT, linewidth=1.2, label="Eq. 7")
    axes.set(xscale="log", yscale="log", xlabel="1 + ‖column‖²/β", ylabel="posterior precision")
    axes.set_title("Does the posterior follow the decoder?", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _matrix(values: Tensor, title: str, across: str, along: str) -> Figure:
    from matplotlib.figure import Figure

    numbers = values.cpu().double().numpy()
    side = len(numbers)
    figure = Figure(figsize=(0.42 * side + 1.6, 0.42 * side + 1.2), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(numbers, vmin=0, vmax=1, cmap="cividis")
    if side <= 12:
        for (row, column), value in np.ndenumerate(numbers):
            colour = "black" if value > 0.6 else "white"
            axes.text(
                column,
                row,
                f"{value:.2f}"[-3:] if value < 1 else "1",
                ha="center",
                va="center",
                fontsize=7,
                color=colour,
            )
    axes.set(xlabel=across, ylabel=along, xticks=range(side), yticks=range(side))
    axes.set_title(title, fontsize=10, loc="left")
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure
