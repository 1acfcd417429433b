"""Figure 2 of allen2024: close neighbours, then small circles, then everything merge as β grows."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unseam.data import load
from unseam.drawing import COLOURS, panels
from unseam.papers.allen2024._members import last_crossing, trained
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Bound, Bounds, Order, Orders
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE2"]

SCALES = ("close neighbours", "across a small circle", "across the large circle")
FACING = "facing points of two circles"
"""The closest neighbours that lie on different circles, which the figure shows merging first."""
SHOWN = (0.55, 2.2, 3.8, 60.0)
BETAS = (0.1, 0.25, 0.55, 0.8, 1.2, 1.7, 2.2, 3.0, 3.8, 5.5, 8.0, 15.0, 30.0, 45.0, 60.0, 80.0)
MERGED = 0.5


@dataclass(frozen=True)
class Settings:
    """VAEs with two latents and a likelihood of unit variance on eight small circles, over β and seeds."""

    betas: tuple[float, ...] = BETAS
    seeds: int = 5
    width: int = 64
    steps: int = 5000
    batch_size: int = 256
    learning_rate: float = 2e-3
    angles: int = 64
    apart: int = 4
    """Close neighbours lie this many of the ``angles`` apart on their circle."""


def measure(settings: Settings, place: Workplace) -> Tables:
    """Which part of the distance between points is kept by reconstructions, at three scales of distance."""
    import pandas as pd

    world = load("circles")
    assert world.generator is not None  # type: ignore[attr-defined]
    trials = circle_trials(settings)
    ensemble = trained(trials, place, "circles")
    circles = int(world.factor_sizes[0])
    x = world.generator(_factors(circles, settings.angles)).float()  # type: ignore[attr-defined]
    back = ensemble.reconstruct(x).cpu().unflatten(1, (circles, settings.angles))
    ratios = _ratios(x.unflatten(0, (circles, settings.angles)), back, settings.apart)
    who = {"beta": [trial.beta for trial in trials], "seed": [trial.seed for trial in trials]}
    kept = {name: ratio.median(1).values for name, ratio in ratios.items()}
    lost = {f"{name}, share merged": (ratio < MERGED).double().mean(1) for name, ratio in ratios.items()}
    return {"members": pd.DataFrame(who | kept | lost), "points": _points(settings, trials, x, back)}


def circle_trials(settings: Any) -> list[Trial]:
    """The β-VAEs of both parts of Figure 2: every β and seed."""
    first = Trial(
        world="circles",
        likelihood="gaussian",
        latent=2,
        encoder_widths=(settings.width, settings.width),
        decoder_widths=(settings.width, settings.width),
        steps=settings.steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        precision="float32",
    )
    return [
        dataclasses.replace(first, beta=beta, seed=seed)
        for beta in settings.betas
        for seed in range(settings.seeds)
    ]


def _factors(circles: int, angles: int) -> Tensor:
    """Evenly spaced points on every circle, (circle · angle, 2)."""
    which = torch.arange(circles, dtype=torch.float64)
    angle = 2 * math.pi * torch.arange(angles, dtype=torch.float64) / angles
    return torch.cartesian_prod(which, angle)


def _ratios(x: Tensor, back: Tensor, apart: int) -> dict[str, Tensor]:
    """Squared distances in reconstructions (member, circle, angle, 2) over those in data, (member, pair) by scale."""
    true, given = _squared_distances(x, apart), _squared_distances(back, apart)
    return {scale: (given[scale] / true[scale]).flatten(1) for scale in true}


def _squared_distances(points: Tensor, apart: int) -> dict[str, Tensor]:
    circles, angles = points.shape[-3:-1]
    this = torch.arange(circles)
    # circle j at angle φ_j faces the next one at φ_j + π/2 + π/m, and is faced at φ_{j+1} − π/2 − π/m
    corner = angles * (1 / 4 + 1 / (2 * circles))
    ahead, behind = this * angles / circles + corner, (this + 1) * angles / circles - corner
    here = points[..., this, ahead.round().long() % angles, :]
    there = points[..., (this + 1) % circles, behind.round().long() % angles, :]
    shifts = ((apart, -2), (angles // 2, -2), (circles // 2, -3))
    differences = [points - points.roll(*shift) for shift in shifts]
    names = (*SCALES, FACING)
    return {
        name: pair.square().sum(-1) for name, pair in zip(names, (*differences, here - there), strict=True)
    }


def _mergers(members: pd.DataFrame) -> pd.DataFrame:
    """The β of each seed from which half of a squared distance is lost, at least the smallest β trained."""
    import pandas as pd

    least = members["beta"].min()
    return pd.DataFrame(
        {scale: max(least, last_crossing(own["beta"], own[scale], MERGED)) for scale in SCALES}
        for _, own in members.groupby("seed")
    )


def _points(settings: Settings, trials: list[Trial], x: Tensor, back: Tensor) -> pd.DataFrame:
    """Data and reconstructions of the first seed at the β closest to the figure's, every second angle."""
    import pandas as pd

    kept = []
    for wanted in SHOWN:
        beta = min(settings.betas, key=lambda beta: abs(math.log(beta / wanted)))
        member = next(i for i, trial in enumerate(trials) if trial.beta == beta and trial.seed == 0)
        pair = torch.cat([x, back[member].flatten(0, 1)], 1)[::2].numpy()
        kept.append(pd.DataFrame(pair, columns=["x1", "x2", "y1", "y2"]).assign(wanted=wanted, beta=beta))
    return pd.concat(kept).round(2)


def _order_cases(tables: Tables) -> Iterator[Order]:
    """A scale that has not merged at the largest β counts with it."""
    most = tables["members"]["beta"].max()
    mergers = _mergers(tables["members"]).clip(upper=most)
    for low, high in itertools.pairwise(SCALES):
        note = f"in this order in {int((mergers[low] < mergers[high]).sum())} of {len(mergers)} seeds"
        words = f"β at which half of the squared distance is lost: {low} less {high}"
        yield Order(words, mergers[low], mergers[high], paired=True, note=note)


def _place_cases(tables: Tables) -> Iterator[Bound]:
    """Where half of the squared distance is lost, against the values of β between which the pictures show it."""
    mergers = _mergers(tables["members"])
    for scale, least, most in zip(SCALES, (2.2, 3.8, 3.8), (3.8, 60.0, 60.0), strict=True):
        words = f"β at which half of the squared distance is lost: {scale}"
        yield Bound(words, f"between {least:g} and {most:g}", mergers[scale], least, most)


def plot(tables: Tables) -> Figure:
    """Data and reconstructions at four β as published, and what is kept at each scale over β."""
    points, members = tables["points"], tables["members"]
    mergers = _mergers(members)
    shown = points.drop_duplicates("wanted")
    titles = [f"β = {beta:g}" for beta in shown["beta"]]
    figure, axes = panels([*titles, "squared distance kept"], width=2.1, height=2.2)
    for panel, wanted in zip(axes[:-1], shown["wanted"], strict=True):
        own = points[points["wanted"] == wanted]
        panel.plot(own["x1"], own["x2"], ".", color=COLOURS[0], markersize=1.5, alpha=0.5)
        panel.plot(own["y1"], own["y2"], ".", color=COLOURS[1], markersize=2.5)
        panel.set_aspect("equal")
        panel.set_xticks([])
        panel.set_yticks([])
    mean = members.groupby("beta")[list(SCALES)].mean()
    for colour, scale in zip(COLOURS, SCALES, strict=False):
        axes[-1].plot(mean.index, mean[scale], ".-", color=colour, linewidth=1, markersize=4, label=scale)
        axes[-1].plot(mergers[scale], [MERGED] * len(mergers), "|", color=colour, markersize=9)
    axes[-1].axhline(MERGED, color="grey", linewidth=0.6, linestyle="--")
    axes[-1].set_xscale("log")
    axes[-1].set_xlabel("β", fontsize=8)
    axes[-1].legend(fontsize=6, frameon=False)
    return figure


FIGURE2 = Artefact(
    key="allen2024.figure2",
    title="Figure 2: neighbours, small circles and everything merge in this order as β grows",
    claims=(
        Orders(
            "Figure 2, left: as β grows, reconstructions of close neighbours merge first, then small circles become "
            "their centroids, then all data their mean",
            _order_cases,
        ),
        Bounds(
            "Figure 2, left: neighbours have merged between β = 2.2 and 3.8, small circles and everything by β = 60",
            _place_cases,
        ),
    ),
    presets={
        "smoke": Settings(betas=(0.55, 2.2, 3.8, 8.0, 60.0), seeds=1, steps=300, width=32, batch_size=128),
        "laptop": Settings(seeds=2, steps=2500, batch_size=128),
        "full": Settings(seeds=20, steps=20_000),
    },
    measure=measure,
    plot=plot,
    note="The radii of the figure's circles are not given, so only the order of mergers is comparable; their "
    "absolute β "
    "depends on the radii chosen here.",
)
