"""Figure 2 of allen2024, right: posteriors of close data overlap more as β grows, and decode to weighted averages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unseam.data import load
from unseam.drawing import COLOURS, panels
from unseam.papers.allen2024._members import logarithmic, trained
from unseam.papers.allen2024.figure2 import SCALES, _factors, _ratios, circle_trials
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Bound, Bounds, rank_correlation
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables
    from unseam.training import Ensemble

__all__ = ["FIGURE2_RIGHT"]

MONOTONE = 0.9
"""Rank correlation from which a quantity counts as growing with another."""
AVERAGE, OWN = 0.01, 0.25
"""A decoder maps to the weighted average within this part of the data's variance, and this part of the way to x."""


@dataclass(frozen=True)
class Settings:
    """VAEs with two latents and a likelihood of unit variance on eight small circles, over β and seeds."""

    betas: tuple[float, ...] = (0.55, 1.2, 2.2, 3.8, 8.0, 15.0, 30.0, 60.0)
    low: float = 0.55
    high: float = 8.0
    """The two β whose posteriors are drawn."""
    seeds: int = 3
    width: int = 64
    steps: int = 3000
    batch_size: int = 128
    learning_rate: float = 2e-3
    angles: int = 64
    apart: int = 4
    """Close neighbours lie this many of the ``angles`` apart on their circle."""
    samples: int = 256
    """Latent points per model at which the decoder is compared with the weighted average."""
    shown: int = 8
    """Posteriors drawn per circle."""


def measure(settings: Settings, place: Workplace) -> Tables:
    """Posterior variances, overlaps at three scales of distance, and distances of the decoder from averages."""
    import pandas as pd

    world = load("circles")
    trials = circle_trials(settings)
    ensemble = trained(trials, place, "circles")
    grid = (int(world.factor_sizes[0]), settings.angles)
    x = world.generator(_factors(*grid)).float()  # type: ignore[attr-defined]
    code = ensemble.encode(x)
    mean, variance = (part.double().cpu().unflatten(1, grid) for part in code)
    back = ensemble.reconstruct(x).cpu().unflatten(1, grid)
    ratios = _ratios(x.unflatten(0, grid), back, settings.apart)
    apart = _bhattacharyya(mean, variance, settings.apart)
    members = pd.DataFrame(
        {"β": [trial.beta for trial in trials], "seed": [trial.seed for trial in trials]}
        | {"variance": variance.mean((1, 2, 3)).tolist()}
        | {f"distance, {name}": apart[:, i].tolist() for i, name in enumerate(SCALES)}
        | {f"kept, {name}": ratio.median(1).values.tolist() for name, ratio in ratios.items()}
        | _averages(ensemble, world.images(torch.arange(len(world))), settings)
    )
    return {"members": members, "posteriors": _posteriors(settings, trials, mean, variance)}


def _bhattacharyya(mean: Tensor, variance: Tensor, apart: int) -> Tensor:
    """Median distances −log ∫ √(q_i q_j) (member, 3) of posteriors (member, circle, angle, latent) at three scales."""
    half_ring, half_circle = mean.shape[1] // 2, mean.shape[2] // 2
    found = []
    for shift, dim in ((apart, 2), (half_circle, 2), (half_ring, 1)):
        middle = (variance + variance.roll(shift, dim)) / 2
        away = (mean - mean.roll(shift, dim)).square() / (8 * middle)
        shape = (middle.log() - (variance.log() + variance.roll(shift, dim).log()) / 2) / 2
        found.append((away + shape).sum(-1).flatten(1).median(1).values)
    return torch.stack(found, 1)


@torch.no_grad()
def _averages(ensemble: Ensemble, x: Tensor, settings: Settings) -> dict[str, list[float]]:
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


def _posteriors(settings: Settings, trials: list[Trial], mean: Tensor, variance: Tensor) -> pd.DataFrame:
    """Means and standard deviations of some posteriors of the first seed, at two β."""
    import pandas as pd

    every = settings.angles // settings.shown
    parts = []
    for beta in (settings.low, settings.high):
        member = next(i for i, trial in enumerate(trials) if trial.beta == beta and trial.seed == 0)
        centre, deviation = mean[member, :, ::every], variance[member, :, ::every].sqrt()
        circle = torch.arange(len(centre))[:, None].expand(centre.shape[:2])
        columns = {"circle": circle, "z1": centre[..., 0], "z2": centre[..., 1]}
        columns |= {"s1": deviation[..., 0], "s2": deviation[..., 1]}
        parts.append(
            pd.DataFrame({"β": beta} | {name: part.flatten().numpy() for name, part in columns.items()})
        )
    return pd.concat(parts, ignore_index=True)


def _growth_cases(tables: Tables) -> Iterator[Bound]:
    """Rank correlations with β, one per seed."""
    members = tables["members"]
    columns = [("variance", "Var[z|x]", 1)]
    columns += [(f"distance, {name}", f"overlap of posteriors, {name}", -1) for name in SCALES]
    for column, words, sign in columns:
        pairs = [np.stack([own["β"], sign * own[column]]) for _, own in members.groupby("seed")]
        ranks = [float(rank_correlation(pair)) for pair in pairs]
        yield Bound(
            f"rank correlation of β with {words}, over β", f"at least {MONOTONE:g} (1)", ranks, least=MONOTONE
        )


def _order_cases(tables: Tables) -> Iterator[Bound]:
    near, middle, far = (tables["members"][f"distance, {name}"] for name in SCALES)
    ordered = (near <= middle) & (middle <= far)
    words = (
        "share of models whose posteriors overlap most for close neighbours, least across the large circle"
    )
    yield Bound(words, f"at least {MONOTONE:g} (1)", share=(int(ordered.sum()), len(ordered)), least=MONOTONE)


def _merging_cases(tables: Tables) -> Iterator[Bound]:
    ranks = []
    for _, own in tables["members"].groupby("seed"):
        pair = [
            own[[f"{what}, {name}" for name in SCALES]].to_numpy().ravel() for what in ("distance", "kept")
        ]
        ranks.append(float(rank_correlation(np.stack(pair))))
    words = "rank correlation of overlap with squared distance lost by reconstructions, over β and scales"
    yield Bound(words, f"at least {MONOTONE:g} (1)", ranks, least=MONOTONE)


def _average_cases(tables: Tables) -> Iterator[Bound]:
    members = tables["members"]
    means = members.groupby("β")[["from the average", "from x"]].mean()
    worst, ratio = means["from the average"].idxmax(), means["from the average"] / means["from x"]
    own = members[members["β"] == worst]["from the average"]
    words = f"squared distance of d(z) from the weighted average, of Var[x], at the worst β ({worst:g})"
    wrong = f"x itself, a wrong model: {members[members['β'] == worst]['from x'].mean():.2g}"
    yield Bound(words, f"at most {AVERAGE:g} (0)", own, most=AVERAGE, note=wrong)
    at = members[members["β"] == ratio.idxmax()]
    words = f"that distance over the one from the x whose posterior z comes from, at the worst β ({ratio.idxmax():g})"
    wrong = "at 1 the decoder would map to x as well as to the average"
    yield Bound(words, f"at most {OWN:g} (0)", at["from the average"] / at["from x"], most=OWN, note=wrong)


def plot(tables: Tables) -> Figure:
    """Posteriors at a low and a higher β, one colour per circle; overlaps, and distances of the decoder, over β."""
    from matplotlib import colormaps
    from matplotlib.patches import Ellipse

    members, posteriors = tables["members"], tables["posteriors"]
    betas = list(dict.fromkeys(posteriors["β"]))
    figure, axes = panels(
        [f"q(z|x) at β = {beta:g}" for beta in betas] + ["overlap of posteriors", "d(z) against averages"],
        width=2.7,
        height=2.6,
    )
    for panel, beta in zip(axes, betas, strict=False):
        own = posteriors[posteriors["β"] == beta]
        for circle, *centre, first, second in own[["circle", "z1", "z2", "s1", "s2"]].to_numpy():
            hue = colormaps["tab10"](int(circle) % 10)
            panel.add_patch(Ellipse(centre, 2 * first, 2 * second, alpha=0.35, color=hue, linewidth=0))
            panel.plot(*centre, ".", markersize=2, color=hue)
        reach = 1.05 * float((own[["z1", "z2"]].abs().to_numpy() + own[["s1", "s2"]].to_numpy()).max())
        panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        panel.set_xlabel("z, ellipses of one standard deviation", fontsize=7.5)
    mean = members.groupby("β").mean()
    for colour, name in zip(COLOURS, SCALES, strict=False):
        axes[2].plot(
            mean.index, np.exp(-mean[f"distance, {name}"]), ".-", color=colour, linewidth=1, label=name
        )
    axes[2].plot(mean.index, mean["variance"], ".--", color="grey", linewidth=1, label="Var[z|x]")
    for colour, column in zip(COLOURS, ("from the average", "from x"), strict=False):
        axes[3].plot(members["β"], members[column], "o", color=colour, markersize=2.5, alpha=0.6)
        axes[3].plot(mean.index, mean[column], "-", color=colour, linewidth=1, label=column)
    axes[3].set_ylabel("squared distance over Var[x]", fontsize=7.5)
    logarithmic(axes[3].yaxis)
    for panel in axes[2:]:
        logarithmic(panel.xaxis)
        panel.set_xlabel("β", fontsize=8)
    axes[2].set_ylim(-0.03, 1.5)
    axes[2].legend(fontsize=6.5, frameon=False, loc="upper left")
    axes[3].legend(fontsize=6.5, frameon=False)
    return figure


FIGURE2_RIGHT = Artefact(
    key="allen2024.figure2_right",
    title="Figure 2, right: posterior overlap at a low and a higher β",
    claims=(
        Bounds(
            "Figure 2, right: as β increases, Var[z|x] increases and posteriors increasingly overlap",
            _growth_cases,
        ),
        Bounds("Figure 2, right: posteriors of nearby data points overlap first", _order_cases),
        Bounds("Figure 2, right: what overlaps is merged by reconstructions", _merging_cases),
        Bounds(
            "Figure 2, right: where posteriors overlap, the decoder maps to a weighted average of their data",
            _average_cases,
        ),
    ),
    presets={
        "smoke": Settings(betas=(0.55, 2.2, 8.0, 60.0), seeds=1, steps=300, width=32, samples=32),
        "laptop": Settings(),
        "full": Settings(seeds=20, steps=20_000, batch_size=256, samples=2048),
    },
    measure=measure,
    plot=plot,
)
