"""What two-dimensional decoders do to coordinate lines, and to the density along them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unseam.drawing import COLOURS
from unseam.independence import AxisDensity, axis_density

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["factorisation_figure"]

# Dashes keep lines visible that lie on each other.
DASHES: tuple[Any, ...] = ("-", (0, (4, 2.5)), (0, (1, 2)))
GRID = "#9a9a9a"


def factorisation_figure(
    decoders: Mapping[str, Callable[[Tensor], Tensor]],
    *,
    along: tuple[float, float, float] = (-1.0, 0.0, 1.0),
    reach: float = 1.6,
) -> Figure:
    """Images of coordinate lines under each decoder, and the second component's density on three of its curves.

    In the upper row, lines that cross at right angles everywhere have no Hadamard gap. In the lower row, curves
    that lie on each other show a component with one density wherever it is looked at from: no coupling.

    Args:
        decoders: by name, maps from (batch, 2) to (batch, 2).
        along: values of the first latent whose curves are drawn in colour.
        reach: lines run from -reach to reach in either latent, in the prior's standard deviations.

    >>> figure = factorisation_figure({"plain": lambda z: z, "stretched": lambda z: 2 * z})
    >>> [axes.get_title(loc="left") for axes in figure.axes[:2]]
    ['plain', 'stretched']
    """
    from matplotlib.figure import Figure

    if not decoders:
        raise ValueError("decoders must hold at least one decoder, got none")
    figure = Figure(figsize=(1.8 * len(decoders) + 0.3, 4.0), layout="constrained")
    upper, lower = figure.subplots(2, len(decoders), squeeze=False, height_ratios=(3, 2))
    starts = torch.tensor([[value, 0.0] for value in along], dtype=torch.float64)
    for top, bottom, (name, decoder) in zip(upper, lower, decoders.items(), strict=True):
        _draw_lines(top, name, decoder, along, reach)
        _draw_densities(bottom, axis_density(decoder, starts, 1), along)
    upper[0].set_ylabel("coordinate lines", fontsize=8)
    lower[0].set_ylabel("density of component 2", fontsize=8)
    handles, labels = lower[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=3, loc="outside lower center")
    return figure


def _draw_lines(
    axes: Axes, name: str, decoder: Callable[[Tensor], Tensor], along: tuple[float, ...], reach: float
) -> None:
    """A grid of coordinate lines, with the coloured curves on top."""
    ticks = torch.linspace(-reach, reach, 9, dtype=torch.float64)
    path = torch.linspace(-reach, reach, 201, dtype=torch.float64)
    for tick in ticks:
        for line in (
            torch.stack([path, tick.expand_as(path)], 1),
            torch.stack([tick.expand_as(path), path], 1),
        ):
            x = _image(decoder, line, name)
            axes.plot(x[:, 0], x[:, 1], color=GRID, linewidth=0.6)
    for value, colour in zip(along, COLOURS[:3], strict=True):
        x = _image(decoder, torch.stack([torch.full_like(path, value), path], 1), name)
        axes.plot(x[:, 0], x[:, 1], color=colour, linewidth=1.8)
    axes.set_title(name, fontsize=9, loc="left")
    axes.set_aspect("equal", adjustable="datalim")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _draw_densities(axes: Axes, found: AxisDensity, along: tuple[float, ...]) -> None:
    lengths, densities = found.arc_length.cpu(), found.log_density.exp().cpu()
    for value, length, density, colour, dash in zip(
        along, lengths, densities, COLOURS[:3], DASHES, strict=True
    ):
        axes.plot(
            length,
            density,
            color=colour,
            linestyle=dash,
            linewidth=1.6,
            label=f"on the curve at $z_1 = {value:g}$",
        )
    seen = densities > 0.01 * densities.amax()
    axes.set_xlim(float(lengths[seen].min()), float(lengths[seen].max()))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("arc length", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)


def _image(decoder: Callable[[Tensor], Tensor], z: Tensor, name: str) -> Tensor:
    with torch.no_grad():
        x = decoder(z)
    if x.shape != z.shape:
        raise ValueError(
            f"decoders must map (batch, 2) to (batch, 2), but {name!r} gave shape {tuple(x.shape)} "
            f"from z of shape {tuple(z.shape)}"
        )
    return x.cpu()
