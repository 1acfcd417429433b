"""Figures of components: curves over the latent plane with the fields they follow, and pictures along a curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from unseam.drawing import COLOURS
from unseam.report.figures import pictures_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "components_figure", "strip_figure"]

GREY = "#999999"


class Curve(Protocol):
    """What a figure reads of a curve, as :class:`unseam.independence.Submanifold` has it; batches too."""

    @property
    def points(self) -> Tensor:
        """z (step, latent)."""

    @property
    def data_length(self) -> Tensor:
        """Arc length in data space (step,)."""

    @property
    def degenerate(self) -> Tensor:
        """Nodes (step,) where the direction is one of many."""

    @property
    def data(self) -> Tensor | None:
        """Decoder outputs (step, *data)."""


def components_figure(
    curves: dict[str, Curve],
    *,
    grid: Tensor | None = None,
    right_vectors: Tensor | None = None,
    singular_values: Tensor | None = None,
    samples: Tensor | None = None,
    axes: tuple[int, int] = (0, 1),
) -> Figure:
    """Curves of components over two latents, one colour a component, with the fields that they follow.

    Args:
        curves: by the component's name, one curve or a batch of them.
        grid: points (point, latent) at which the fields are drawn as crosses.
        right_vectors: V (point, latent, field) there.
        singular_values: s (point, field) there; arms are as long as s relative to the largest at the point.
        samples: points (batch, latent) drawn as dots behind all.
        axes: the two latents to show.

    Nodes where singular values are nearly repeated are marked by rings: the direction is arbitrary there.

    >>> from unseam.independence import submanifold
    >>> curve = submanifold(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(2), 0, steps=2)
    >>> components_figure({"first": curve}).axes[0].get_xlabel()
    'latent 0'
    """
    from matplotlib.figure import Figure

    if len(curves) > len(COLOURS):
        raise ValueError(f"curves must be of at most {len(COLOURS)} components, got {len(curves)}")
    figure = Figure(figsize=(4.6, 4.4), layout="constrained")
    panel = figure.subplots()
    if samples is not None:
        across, along = samples[:, list(axes)].T.cpu()
        panel.plot(across, along, ".", color=GREY, markersize=2, alpha=0.4, rasterized=True)
    if grid is not None and right_vectors is not None:
        _crosses(panel, grid, right_vectors, singular_values, axes)
    for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
        _lines(panel, curve, axes, colour, name)
    panel.set(xlabel=f"latent {axes[0]}", ylabel=f"latent {axes[1]}", aspect="equal")
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(curves))
    return figure


def strip_figure(curves: dict[str, Curve], *, count: int = 9) -> Figure:
    """Pictures along curves in data space: one row a curve, with its length from the start over each picture.

    Args:
        curves: by name, single curves traced with ``data=True``; pictures (step, 1, height, width) or
            (step, height, width), values in [0, 1].
        count: pictures of each row, spread over the curve's nodes; an odd number shows the start.

    >>> from unseam.independence import submanifold
    >>> def decoder(z):
    ...     return torch.sigmoid(z.repeat_interleave(8, 1)).reshape(-1, 4, 4)
    >>> curve = submanifold(decoder, torch.tensor([0.5, -1.0]), 0, steps=4, data=True)
    >>> len(strip_figure({"first": curve}, count=3).axes)
    3
    """
    rows = {}
    lengths = []
    for name, curve in curves.items():
        pictures, chosen = _pictures(name, curve, count)
        rows[name] = pictures
        lengths.append([f"{value:+.3g}" if value else "0" for value in curve.data_length[chosen].tolist()])
    figure = pictures_figure(rows, columns=lengths[0])
    for place, row in enumerate(lengths):
        for panel, text in zip(figure.axes[place * count : (place + 1) * count], row, strict=True):
            panel.set_title(text, fontsize=7, pad=2)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.16 * (len(rows) - 1))
    return figure


def _pictures(name: str, curve: Curve, count: int) -> tuple[np.ndarray, Tensor]:
    """The chosen pictures of one curve (picture, height, width), and which nodes they are."""
    if curve.data is None:
        raise ValueError(f"curves must be traced with data=True, got {name!r} without data")
    data = curve.data.detach().cpu().double()
    if data.ndim == 4 and data.shape[1] == 1:
        data = data[:, 0]
    if data.ndim != 3:
        raise ValueError(
            f"curves must have pictures (step, height, width) for data, got {name!r} of {tuple(data.shape)}"
        )
    if not 1 <= count <= len(data):
        raise ValueError(f"count must be from 1 to the {len(data)} nodes of {name!r}, got {count}")
    chosen = torch.linspace(0, len(data) - 1, count).round().long()
    return data[chosen].numpy(), chosen


def _crosses(
    panel: Axes, grid: Tensor, right_vectors: Tensor, singular_values: Tensor | None, axes: tuple[int, int]
) -> None:
    """Every field as a short line through each point of the grid."""
    places = grid[:, list(axes)].cpu().double().numpy()
    reach = 0.4 * (np.ptp(places, axis=0).max() or 1.0) / max(1.0, len(places) ** 0.5 - 1)
    arms = right_vectors[:, list(axes)].cpu().double().numpy()
    if singular_values is not None:
        values = singular_values.cpu().double().numpy()
        arms = arms * (values / np.maximum(values.max(1, keepdims=True), np.finfo(float).tiny))[:, None]
    for field in range(arms.shape[2]):
        ends = np.stack([places - reach * arms[:, :, field], places + reach * arms[:, :, field]])
        panel.plot(ends[:, :, 0], ends[:, :, 1], color=GREY, linewidth=0.7, zorder=1)


def _lines(panel: Axes, curve: Curve, axes: tuple[int, int], colour: str, name: str) -> None:
    points = curve.points[..., list(axes)].detach().cpu().double()
    rings = curve.degenerate.cpu()
    if points.ndim == 2:
        points, rings = points[None], rings[None]
    for turn, (line, marked) in enumerate(zip(points, rings, strict=True)):
        panel.plot(line[:, 0], line[:, 1], color=colour, linewidth=1.6, label=name if turn == 0 else None)
        panel.plot(*line[len(line) // 2], "o", color=colour, markersize=3.5)
        panel.plot(line[marked, 0], line[marked, 1], "o", color=colour, markersize=5, fillstyle="none")
