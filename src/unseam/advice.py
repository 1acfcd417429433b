"""How many latents of a β-VAE are active at which β, predicted from data before any training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unseam.data import World, load, names, open_data
from unseam.drawing import COLOURS, panels
from unseam.files import check_rows, read_arrays, sample_rows
from unseam.inputs import as_tensor, check_count
from unseam.theory import (
    BetaRange,
    active_count,
    beta_range,
    data_moments,
    data_thresholds,
    sample_thresholds,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Advice", "advise", "advice_figure"]

# Values that are read at once: 64 MB in single precision.
_AT_ONCE = 2**24
COUNTS = (
    "Whole values were taken as real ones, under a gaussian likelihood; if they are counts, training gives them a "
    "negative binomial one, for which no closed form is known, and these values of β are not its."
)
# Points that are read at most, by default.
MOST = 50_000
# Side of the largest matrix that is decomposed: points are as many where they have more values than this.
_MOST_SIDE = 2**13


@dataclass(frozen=True)
class Advice:
    """Collapse thresholds of a data set under a likelihood, and what they predict.

    >>> found = Advice("x.npy", "gaussian", 1.0, 100, 0, torch.tensor([4.0, 1.0, 0.5]))
    >>> found.range(1)
    BetaRange(lower=1.0, upper=4.0)
    >>> print(found.summary())
    x.npy: 100 points, 3 values each, gaussian likelihood (variance 1).
    Widest plateau: one latent is active for β from 1 to 4, a factor of 4.
    At β = 1 one latent is active; with β below 0.5 all 3 directions would be.
    2 latents are active for β from 0.5 to 1.
    Exact for linear decoders; others may follow several directions with one latent and use fewer at small β.
    """

    name: str
    likelihood: str
    noise: float
    points: int
    constant: int
    thresholds: Tensor
    """The β at which each latent collapses (data,), descending."""
    notes: tuple[str, ...] = ()
    """What data of the user's own were recognised as."""

    def active_count(self, beta: float) -> int:
        """How many latents are active at a β."""
        return int(active_count(self.thresholds, beta))

    def range(self, latents: int) -> BetaRange:
        """The interval of β at which so many latents are active."""
        return beta_range(self.thresholds, latents)

    @property
    def plateau(self) -> int | None:
        """Number of active latents that holds over the widest range of β, as a ratio; all directions do not count."""
        values = self.thresholds[self.thresholds > 0]
        values = values[values > 1e-9 * values.max()] if len(values) else values
        return int((values[:-1] / values[1:]).argmax()) + 1 if len(values) > 1 else None

    def rows(self, most: int = 12) -> list[dict[str, Any]]:
        """One row per number of latents: from which to which β exactly so many are active."""
        largest = min(most, int((self.thresholds > 0).sum()))
        return [
            {"active latents": count, "from β": self.range(count).lower, "below β": self.range(count).upper}
            for count in range(1, largest + 1)
        ]

    def summary(self) -> str:
        """The answer in a few lines of plain words."""
        variance = f" (variance {self.noise:g})" if self.likelihood == "gaussian" else ""
        constant = f", {self.constant} of them constant" if self.constant else ""
        lines = [
            f"{self.name}: {self.points} points, {len(self.thresholds)} values each{constant}, "
            f"{self.likelihood} likelihood{variance}."
        ]
        positive = self.thresholds[self.thresholds > 0]
        if not len(positive):
            return "\n".join([*lines, "Nothing varies in it: every latent collapses at every β."])
        if self.plateau is not None:
            low, high = self.range(self.plateau)
            lines.append(
                f"Widest plateau: {_latents(self.plateau)} for β from {low:.3g} to {high:.3g}, a factor of "
                f"{high / low:.2g}."
            )
        every = f"all {len(positive)} directions" if len(positive) > 1 else "its only direction"
        lines.append(
            f"At β = 1 {_latents(self.active_count(1.0))}; with β below {float(positive[-1]):.3g} {every} would be."
        )
        shown = [
            f"{_latents(count)} for β from {low:.3g} to {high:.3g}"
            for count in (1, 2, 5, 10)
            if count < len(positive) and count != self.plateau
            for low, high in [self.range(count)]
        ]
        if shown:
            text = ", ".join(shown)
            lines.append(f"{text[0].upper()}{text[1:]}.")
        linear = "Exact for linear decoders" if self.likelihood == "gaussian" else "A guide for linear logits"
        lines.append(
            f"{linear}; others may follow several directions with one latent and use fewer at small β."
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "name": self.name,
            "likelihood": self.likelihood,
            "noise": self.noise,
            "points": self.points,
            "constant": self.constant,
            "plateau": self.plateau,
            "thresholds": self.thresholds.tolist(),
            "ranges": self.rows(),
            "notes": list(self.notes),
        }


def advise(
    target: object,
    *,
    likelihood: str | None = None,
    noise: float | None = None,
    points: int = MOST,
    seed: int = 0,
    data_options: Mapping[str, Any] | None = None,
) -> Advice:
    """Predict from data how many latents are active at which β (see :func:`unseam.theory.collapse_thresholds`).

    Args:
        target: data of one's own, whatever :func:`unseam.data.open_data` takes; the name of a world, or a world.
        likelihood: ``"gaussian"`` or ``"bernoulli"``; by default Bernoulli for values within [0, 1].
        noise: variance of a Gaussian likelihood, by default 1.
        points: how many points are read at most, drawn at random; 8 192 where each has more values than that, for
            then the matrix of their products with each other is decomposed.
        seed: of the choice of points.
        data_options: options of :func:`unseam.data.open_data`.

    Returns:
        The thresholds and what they predict.

    >>> advise(torch.tensor([[2.0, 0.0], [-2.0, 0.0]])).active_count(1.0)
    1
    """
    check_count("points", points, 2)
    if (data_options or {}).get("covariates"):
        raise ValueError("covariates must be left out of data_options: thresholds are of the data alone")
    check_count("seed", seed, 0)
    notes: tuple[str, ...] = ()
    rows = None if data_options else _rows(target)
    if rows is not None:
        name = str(target) if isinstance(target, str | Path) else "data"
        count, values, batches = _parts(rows, points, seed)
    else:
        world, notes = _world(target, data_options or {})
        name = str(target) if isinstance(target, str | Path) else world.name
        count, values, batches = _images(world, points, seed)
    lowest, highest, whole = np.inf, -np.inf, True

    def seen() -> Iterator[Tensor]:
        nonlocal lowest, highest, whole
        for batch in batches:
            lowest, highest = min(lowest, float(batch.min())), max(highest, float(batch.max()))
            whole = whole and bool((batch == batch.round()).all())
            yield batch

    few = torch.cat([batch.flatten(1) for batch in seen()]) if count < values else None
    moments = data_moments(seen()) if few is None else None
    chosen = likelihood or ("bernoulli" if lowest >= 0 and highest <= 1 else "gaussian")
    if chosen == "bernoulli" and not (lowest >= 0 and highest <= 1):
        raise ValueError(
            f"a Bernoulli likelihood needs data in [0, 1], got values from {lowest:g} to {highest:g}"
        )
    if noise is not None and chosen != "gaussian":
        raise ValueError(
            f"noise is the variance of a gaussian likelihood, got {noise:g} for a {chosen} one; leave it out, or ask "
            f"for likelihood gaussian"
        )
    noise = 1.0 if noise is None else noise
    if likelihood is None and chosen == "gaussian" and whole and lowest >= 0:
        notes = (*notes, COUNTS)
    if few is not None:
        thresholds = sample_thresholds(few, chosen, noise=noise)  # type: ignore[arg-type]
        variance = torch.cat(
            [part.double().var(0, correction=0) for part in few.split(_AT_ONCE // len(few) + 1, 1)]
        )
    else:
        assert moments is not None
        thresholds = data_thresholds(moments, chosen, noise=noise)  # type: ignore[arg-type]
        variance = moments.covariance.diagonal()
    return Advice(name, chosen, noise, count, int((variance <= 1e-14).sum()), thresholds, notes)


def advice_figure(found: Advice, *, most: int = 100) -> Figure:
    """The thresholds in descending order, and how many latents are active at each β.

    >>> figure = advice_figure(advise(torch.eye(3)))
    >>> figure.axes[0].get_xlabel()
    'latent'
    """
    values = found.thresholds[found.thresholds > 0][:most].numpy()
    if not len(values):
        raise ValueError(
            f"found must have a positive threshold to be drawn, but nothing varies in {found.name}"
        )
    figure, (left, right) = panels(
        ["β at which each latent collapses", "active latents at β"], width=3.4, height=2.6
    )
    left.plot(range(1, len(values) + 1), values, ".-", color=COLOURS[0], markersize=4, linewidth=0.8)
    left.set(xlabel="latent", ylabel="threshold of β", yscale="log")
    grid = np.geomspace(values[-1] / 2, values[0] * 2, 400)
    right.step(
        grid, active_count(found.thresholds, torch.from_numpy(grid)).numpy(), where="post", color=COLOURS[0]
    )
    right.axvline(1.0, color="grey", linewidth=0.8, linestyle="--")
    right.set(
        xlabel="β", ylabel="active latents", xscale="log", ylim=(-0.02 * len(values), 1.05 * len(values))
    )
    for axes in (left, right):
        axes.xaxis.label.set_fontsize(8)
        axes.yaxis.label.set_fontsize(8)
    return figure


def _world(target: object, options: Mapping[str, Any]) -> tuple[World, tuple[str, ...]]:
    """The world that is named or given, or that data of the user's own are, with what these were recognised as."""
    named = isinstance(target, str | Path) and not Path(target).exists()
    if named and str(target) not in names():
        raise ValueError(
            f"target must be a file or folder of data, or a world ({', '.join(names())}), got {target}"
        )
    if named or isinstance(target, World):
        if options:
            raise ValueError(
                f"data_options are of data of your own, not of a world; got {', '.join(options)}"
            )
        return (target if isinstance(target, World) else load(str(target))), ()
    found = open_data(target, **options)
    return found.world, tuple(note for note in found.notes if not note.startswith("likelihood"))


def _rows(target: object) -> Tensor | None:
    """An array whose values training takes as they are: rows of floats, in their own precision."""
    if isinstance(target, Tensor | np.ndarray):
        rows, name = as_tensor("target", target), "target"
    elif isinstance(target, str | Path) and Path(target).suffix == ".npy":
        rows, name = as_tensor(str(target), read_arrays(Path(target)).popitem()[1]), str(target)
    else:
        return None
    check_rows(rows, name)
    return rows if rows.dtype.is_floating_point and rows.ndim == 2 else None


def _parts(rows: Tensor, points: int, seed: int) -> tuple[int, int, Iterator[Tensor]]:
    values = rows[0].numel()
    rows = sample_rows(rows, _bounded(points, values), seed)
    return len(rows), values, iter(rows.split(max(1, _AT_ONCE // values)))


def _images(world: World, points: int, seed: int) -> tuple[int, int, Iterator[Tensor]]:
    values = int(np.prod(world.shape))
    order = torch.randperm(len(world), generator=torch.Generator().manual_seed(seed))
    index = order[: _bounded(points, values)]
    return len(index), values, (world.images(part) for part in index.split(max(1, _AT_ONCE // values)))


def _bounded(points: int, values: int) -> int:
    return points if values <= _MOST_SIDE else min(points, _MOST_SIDE)


def _latents(count: int) -> str:
    return {0: "no latent is active", 1: "one latent is active"}.get(count, f"{count} latents are active")
