"""Figure 2 of allen2024: as β grows, posteriors of ever more distant data overlap, and reconstructions merge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.data import load
from unseam.drawing import COLOURS, panels
from unseam.papers.allen2024._members import last_crossing
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Order, Orders, rank_correlation
from unseam.papers.plots import Figure, Tables, blank, curve, finish, logarithmic, reference
from unseam.papers.tables import columns_of, table_of
from unseam.papers.trainings import combinations, train_or_resume, vae_trial
from unseam.training import Ensemble
from unseam.trial import Trial

__all__ = ["FIGURE2", "FIGURE2_RIGHT"]

SCALES = ("close neighbours", "across a small circle", "across the large circle")
FACING = "facing points of two circles"
"""The closest neighbours that lie on different circles, which the figure shows merging first."""
SHOWN = (0.55, 2.2, 3.8, 60.0)
BETAS = (0.1, 0.25, 0.55, 0.8, 1.2, 1.7, 2.2, 3.0, 3.8, 5.5, 8.0, 15.0, 30.0, 45.0, 60.0, 80.0)
MERGED = 0.5
MONOTONE = 0.9
"""Rank correlation from which a quantity counts as growing with another."""
AVERAGE, OWN = 0.01, 0.25
"""A decoder maps to the weighted average within this part of the data's variance, and this part of the way to x."""


@dataclass(frozen=True)
class Settings:
    """VAEs with two latents and a likelihood of unit variance on eight small circles, over β and seeds."""

    betas: tuple[float, ...] = scaled((0.55, 2.2, 3.8, 8.0, 60.0), BETAS)
    seeds: int = scaled(1, 2, 20)
    width: int = scaled(32, 64)
    steps: int = scaled(300, 2500, 20_000)
    batch_size: int = scaled(128, 128, 256)
    learning_rate: float = 2e-3
    angles: int = 64
    apart: int = 4
    """Close neighbours lie this many of the ``angles`` apart on their circle."""


@dataclass(frozen=True)
class RightSettings(Settings):
    """The same models, for the right of the figure."""

    betas: tuple[float, ...] = scaled((0.55, 2.2, 8.0, 60.0), (0.55, 1.2, 2.2, 3.8, 8.0, 15.0, 30.0, 60.0))
    low: float = 0.55
    high: float = 8.0
    """The two β whose posteriors are drawn."""
    seeds: int = scaled(1, 3, 20)
    steps: int = scaled(300, 3000, 20_000)
    batch_size: int = scaled(128, 128, 256)
    samples: int = scaled(32, 256, 2048)
    """Latent points per model at which the decoder is compared with the weighted average."""
    shown: int = 8
    """Posteriors drawn per circle."""


def measure(settings: Settings, place: Workplace) -> Tables:
    """Which part of the distance between points is retained by reconstructions, at three scales of distance."""
    trials, _, x, back = _train(settings, place)
    ratios = _ratios(x, back, settings.apart)
    kept = {name: ratio.median(1).values for name, ratio in ratios.items()}
    lost = {f"{name}, share merged": (ratio < MERGED).double().mean(1) for name, ratio in ratios.items()}
    points = []
    for wanted in SHOWN:
        # the first seed at the β closest to the figure's, every second angle
        beta = min(settings.betas, key=lambda beta: abs(math.log(beta / wanted)))
        pair = torch.cat([x, back[_first_seed(trials, beta)]], -1).flatten(0, 1)[::2].numpy()
        points.append(pd.DataFrame(pair, columns=["x1", "x2", "y1", "y2"]).assign(wanted=wanted, beta=beta))
    members = pd.DataFrame(columns_of(trials, "beta", "seed") | kept | lost)
    return {"members": members, "points": pd.concat(points).round(2)}


def measure_right(settings: RightSettings, place: Workplace) -> Tables:
    """Posterior variances, overlaps at three scales of distance, and distances of the decoder from averages."""
    trials, ensemble, x, back = _train(settings, place)
    code = ensemble.encode(x.flatten(0, 1))
    mean, variance = (part.double().cpu().unflatten(1, x.shape[:2]) for part in code)
    apart, ratios = _bhattacharyya(mean, variance, settings.apart), _ratios(x, back, settings.apart)
    world = load("circles")
    columns = columns_of(trials, "beta", "seed")
    members = table_of(
        {"β": columns["beta"], "seed": columns["seed"], "variance": variance.mean((1, 2, 3))}
        | {f"distance, {name}": away for name, away in zip(SCALES, apart.mT, strict=True)}
        | {f"kept, {name}": ratio.median(1).values.tolist() for name, ratio in ratios.items()}
        | _averages(ensemble, world.images(torch.arange(len(world))), settings)
    )
    every, posteriors = settings.angles // settings.shown, []
    for beta in (settings.low, settings.high):
        member = _first_seed(trials, beta)
        centre, deviation = mean[member, :, ::every], variance[member, :, ::every].sqrt()
        circle = torch.arange(len(centre)).repeat_interleave(centre.shape[1])
        values = zip(
            ("z1", "z2", "s1", "s2"), torch.cat([centre, deviation], -1).flatten(0, 1).mT, strict=True
        )
        posteriors.append(table_of({"β": beta, "circle": circle} | dict(values)))
    return {"members": members, "posteriors": pd.concat(posteriors, ignore_index=True)}


def _train(settings: Any, place: Workplace) -> tuple[list[Trial], Ensemble, Tensor, Tensor]:
    """Every β and seed of either part; evenly spaced points (circle, angle, 2) on every circle, and back."""
    first = vae_trial("circles", settings, (settings.width, settings.width), latent=2)
    trials = combinations(first, beta=settings.betas, seed=range(settings.seeds))
    world = load("circles")
    which = torch.arange(int(world.factor_sizes[0]), dtype=torch.float64)
    angle = 2 * math.pi * torch.arange(settings.angles, dtype=torch.float64) / settings.angles
    x = world.generator(torch.cartesian_prod(which, angle)).float()  # type: ignore[attr-defined]
    ensemble, grid = train_or_resume(trials, place, "circles"), (len(which), len(angle))
    return trials, ensemble, x.unflatten(0, grid), ensemble.reconstruct(x).cpu().unflatten(1, grid)


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
    differences = [points - points.roll(*shift) for shift in _shifts(points.shape[-3:-1], apart)]
    pairs = zip((*SCALES, FACING), (*differences, here - there), strict=True)
    return {name: pair.square().sum(-1) for name, pair in pairs}


def _shifts(grid: Any, apart: int) -> tuple[tuple[int, int], ...]:
    """How far, and along which axis of (circle, angle, 2), the other point of a pair is at each scale."""
    return (apart, -2), (grid[1] // 2, -2), (grid[0] // 2, -3)


def _first_seed(trials: list[Trial], beta: float) -> int:
    return next(i for i, trial in enumerate(trials) if trial.beta == beta and trial.seed == 0)


def _bhattacharyya(mean: Tensor, variance: Tensor, apart: int) -> Tensor:
    """Median distances −log ∫ √(q_i q_j) (member, 3) of posteriors (member, circle, angle, latent) at three scales."""
    found = []
    for shift in _shifts(mean.shape[1:3], apart):
        middle = (variance + variance.roll(*shift)) / 2
        away = (mean - mean.roll(*shift)).square() / (8 * middle)
        shape = (middle.log() - (variance.log() + variance.roll(*shift).log()) / 2) / 2
        found.append((away + shape).sum(-1).flatten(1).median(1).values)
    return torch.stack(found, 1)


@torch.no_grad()
def _averages(ensemble: Ensemble, x: Tensor, settings: RightSettings) -> dict[str, list[float]]:
    """Mean squared distances of d(z), z ~ q(z|x), from Σ q(z|x_i) x_i / Σ q(z|x_i) and from x, over Var[x]."""
    draw = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(x), (settings.samples,), generator=draw)
    code = ensemble.encode(x)
    noise = torch.randn(settings.samples, code.mean.shape[-1], generator=draw).to(code.mean)
    z = code.mean[:, chosen] + code.variance[:, chosen].sqrt() * noise
    output, data = ensemble.decode(z).double(), x.to(z.device).double()
    spread = (data - data.mean(0)).square().sum(-1).mean()
    found: dict[str, list[float]] = {"from the average": [], "from x": []}
    for points, mean, variance, image in zip(z, code.mean, code.variance, output, strict=True):
        away = (points[:, None].double() - mean.double()).square() / variance.double()
        weights = (-(away + variance.double().log()).sum(-1) / 2).softmax(1)
        for name, target in (("from the average", weights @ data), ("from x", data[chosen.to(data.device)])):
            found[name].append(float((image - target).square().sum(-1).mean() / spread))
    return found


def _mergers(members: pd.DataFrame) -> pd.DataFrame:
    """The β of each seed from which half of a squared distance is lost, at least the smallest β trained."""
    least = members["beta"].min()
    return pd.DataFrame(
        {scale: max(least, last_crossing(own["beta"], own[scale], MERGED)) for scale in SCALES}
        for _, own in members.groupby("seed")
    )


def _order_cases(tables: Tables) -> Iterator[Order]:
    """A scale that has not merged at the largest β counts with it."""
    mergers = _mergers(tables["members"]).clip(upper=tables["members"]["beta"].max())
    for low, high in itertools.pairwise(SCALES):
        note = f"in this order in {int((mergers[low] < mergers[high]).sum())} of {len(mergers)} seeds"
        words = f"β at which half of the squared distance is lost: {low} less {high}"
        yield Order(words, mergers[low], mergers[high], paired=True, note=note)


def _place_cases(tables: Tables) -> Iterator[Bound]:
    mergers = _mergers(tables["members"])
    doubt = "the figure's radii, which decide it, are not given: ours are chosen"
    for scale, least, most in zip(SCALES, (2.2, 3.8, 3.8), (3.8, 60.0, 60.0), strict=True):
        words = f"β at which half of the squared distance is lost: {scale}"
        yield Bound(words, f"between {least:g} and {most:g}", mergers[scale], least, most, doubt=doubt)


def _rank_case(
    tables: Tables, words: str, first: list[str], second: list[str], sign: int, wrong: str
) -> Bound:
    """Rank correlation of some columns with others, one per seed."""
    seeds = [own for _, own in tables["members"].groupby("seed")]
    pairs = [(own[first].to_numpy().ravel(), sign * own[second].to_numpy().ravel()) for own in seeds]
    ranks = [float(rank_correlation(np.stack(pair))) for pair in pairs]
    said = f"at least {MONOTONE:g} (1)"
    return Bound(f"rank correlation of {words}", said, ranks, least=MONOTONE, wrong={wrong: [0.0]})


def _growth_cases(tables: Tables) -> Iterator[Bound]:
    columns = [("variance", "Var[z|x]", 1)]
    columns += [(f"distance, {name}", f"overlap of posteriors, {name}", -1) for name in SCALES]
    for column, words, sign in columns:
        yield _rank_case(tables, f"β with {words}, over β", ["β"], [column], sign, "β without effect")


def _overlap_cases(tables: Tables) -> Iterator[Bound]:
    near, middle, far = (tables["members"][f"distance, {name}"] for name in SCALES)
    ordered = (near <= middle) & (middle <= far)
    words = (
        "share of models with most overlap of posteriors for close neighbours, least across the large circle"
    )
    share, wrong = (int(ordered.sum()), len(ordered)), {"a random order": [1 / 6]}
    yield Bound(words, f"at least {MONOTONE:g} (1)", share=share, least=MONOTONE, wrong=wrong)


def _merging_cases(tables: Tables) -> Iterator[Bound]:
    distance, kept = ([f"{what}, {name}" for name in SCALES] for what in ("distance", "kept"))
    words = "overlap with squared distance lost by reconstructions, over β and scales"
    yield _rank_case(tables, words, distance, kept, 1, "no relation")


def _average_cases(tables: Tables) -> Iterator[Bound]:
    members = tables["members"].assign(ratio=lambda rows: rows["from the average"] / rows["from x"])
    means = members.groupby("β")[["from the average", "from x"]].mean()
    worst = means["from the average"].idxmax()
    own = members[members["β"] == worst]
    words = f"squared distance of d(z) from the weighted average, of Var[x], at the worst β ({worst:g})"
    wrong = {"x itself": own["from x"]}
    yield Bound(words, f"at most {AVERAGE:g} (0)", own["from the average"], most=AVERAGE, wrong=wrong)
    worst = (means["from the average"] / means["from x"]).idxmax()
    words = f"that distance over the one from the x whose posterior z comes from, at the worst β ({worst:g})"
    ratio, alike = members[members["β"] == worst]["ratio"], {"as near to x as to the average": [1.0]}
    yield Bound(words, f"at most {OWN:g} (0)", ratio, most=OWN, wrong=alike)


def plot(tables: Tables) -> Figure:
    """Data and reconstructions at four β as published, and what is retained at each scale over β."""
    members, shown = tables["members"], list(tables["points"].groupby(["wanted", "beta"]))
    mergers = _mergers(members)
    titles = [f"β = {beta:g}" for (_, beta), _ in shown]
    figure, axes = panels([*titles, "squared distance retained"], width=2.1, height=2.2)
    for panel, (_, own) in zip(axes, shown, strict=False):
        panel.plot(own["x1"], own["x2"], ".", color=COLOURS[0], markersize=1.5, alpha=0.5)
        panel.plot(own["y1"], own["y2"], ".", color=COLOURS[1], markersize=2.5)
        blank(panel)
    for colour, scale in zip(COLOURS, SCALES, strict=False):
        curve(axes[-1], members, "beta", scale, colour)
        axes[-1].plot(mergers[scale], [MERGED] * len(mergers), "|", color=colour, markersize=9)
    reference(axes[-1], y=MERGED)
    finish(axes[-1], "β", xscale="log", legend="best")
    return figure


def plot_right(tables: Tables) -> Figure:
    """Posteriors at a low and a higher β, one colour per circle; overlaps, and distances of the decoder, over β."""
    from matplotlib import colormaps
    from matplotlib.patches import Ellipse

    groups = list(tables["posteriors"].groupby("β", sort=False))
    overlaps = {name: np.exp(-tables["members"][f"distance, {name}"]) for name in SCALES}
    members = tables["members"].assign(**overlaps)
    titles = [f"q(z|x) at β = {beta:g}" for beta, _ in groups]
    figure, axes = panels([*titles, "overlap of posteriors", "d(z) against averages"], width=2.7, height=2.6)
    for panel, (_, own) in zip(axes, groups, strict=False):
        for circle, z1, z2, s1, s2 in own[["circle", "z1", "z2", "s1", "s2"]].to_numpy():
            hue = colormaps["tab10"](int(circle) % 10)
            panel.add_patch(Ellipse((z1, z2), 2 * s1, 2 * s2, alpha=0.35, color=hue, linewidth=0))
            panel.plot(z1, z2, ".", markersize=2, color=hue)
        reach = 1.05 * float((own[["z1", "z2"]].abs().to_numpy() + own[["s1", "s2"]].to_numpy()).max())
        limits = (-reach, reach)
        finish(panel, "z, ellipses of one standard deviation", xlim=limits, ylim=limits, aspect="equal")
    for panel, columns in zip(axes[2:], (SCALES, ("from the average", "from x")), strict=True):
        for colour, column in zip(COLOURS, columns, strict=False):
            curve(panel, members, "β", column, colour)
        logarithmic(panel.xaxis)
    curve(axes[2], members, "β", "variance", "grey", "Var[z|x]", ".--")
    logarithmic(axes[3].yaxis)
    finish(axes[2], "β", ylim=(-0.03, 1.5), legend="upper left")
    finish(axes[3], "β", "squared distance over Var[x]", legend="best")
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
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="The radii of the figure's circles are not given, so only the order of mergers is comparable; their absolute "
    "β depends on the radii chosen here.",
)

FIGURE2_RIGHT = Artefact(
    key="allen2024.figure2_right",
    title="Figure 2, right: posterior overlap at a low and a higher β",
    claims=(
        Bounds(
            "Figure 2, right: as β increases, Var[z|x] increases and posteriors increasingly overlap",
            _growth_cases,
        ),
        Bounds("Figure 2, right: posteriors of nearby data points overlap first", _overlap_cases),
        Bounds("Figure 2, right: what overlaps is merged by reconstructions", _merging_cases),
        Bounds(
            "Figure 2, right: where posteriors overlap, the decoder maps to a weighted average of their data",
            _average_cases,
        ),
    ),
    presets=presets_of(RightSettings, smoke={"width": 32}),
    measure=measure_right,
    plot=plot_right,
)
