"""Eq. 14 of allen2024, corrected: decoders of few data points have plateaus with jumps between, of many none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.data import ArrayWorld
from unseam.drawing import COLOURS, panels
from unseam.geometry import gaussian_kl
from unseam.papers.allen2024._members import unlabelled
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Curve, Identities, Identity, Order, Orders, Trends
from unseam.papers.plots import Figure, Tables, curve, finish, reference
from unseam.papers.tables import of_tables, table_of
from unseam.papers.trainings import combinations, train_or_resume, vae_trial
from unseam.theory import linear_vae, plateau_term
from unseam.training import Ensemble

__all__ = ["PLATEAUS"]

FLAT = 0.1
"""Fraction of the mean slope below which a decoder is flat; and what stands for 0."""
DRAWN = 150
"""Intervals at which curves are stored, for the figure."""


@dataclass(frozen=True)
class Settings:
    """VAEs with one latent on 2 to many points of a line, spread as normal quantiles of unit variance."""

    points: tuple[int, ...] = scaled((2, 100), (2, 3, 5, 10, 30, 100, 300), (2, 3, 5, 10, 30, 100, 300, 1000))
    variance: float = 0.01
    width: int = scaled(16, 32, 64)
    seeds: int = scaled(2, 3, 20)
    steps: int = scaled(300, 3000, 10_000)
    batch_size: int = scaled(32, 32, 64)
    learning_rate: float = 2e-3
    reach: float = 3.0
    nodes: int = scaled(201, 1201)
    quadrature: int = 40


def measure(settings: Settings, place: Workplace) -> Tables:
    """Slopes of all decoders over the latent axis and at the codes of the data, and their ELBO against a line's."""
    members, curves = [], []
    widths = (settings.width, settings.width)
    options = {"likelihood_variance": settings.variance, "latent": 1, "encoder_activation": "tanh"}
    first = vae_trial("quantiles", settings, widths, **options)
    for count in settings.points:
        world = _world(count)
        trials = combinations(first, seed=range(settings.seeds))
        ensemble = train_or_resume(trials, place, f"points{count}", world=world)
        x = world.images(torch.arange(count))
        found, curve = _slopes(ensemble, x, settings)
        line = linear_vae(x.double().mT @ x.double() / len(x), 1, noise=settings.variance).elbo
        found["elbo gained"] = _elbo(ensemble, x, settings) - float(line)
        members.append(table_of({"points": count, "seed": range(len(trials))} | found))
        z, image = (part[:: max(1, settings.nodes // DRAWN)].numpy() for part in curve)
        curves.append(pd.DataFrame({"points": count, "z": z, "x": image}))
    joined = {"members": pd.concat(members, ignore_index=True), "curves": pd.concat(curves).round(3)}
    return {**joined, "terms": _terms()}


def _world(count: int) -> ArrayWorld:
    """Quantiles of the normal distribution at evenly spaced levels, scaled to unit variance."""
    from scipy.stats import norm

    values = torch.from_numpy(norm.ppf((np.arange(count) + 0.5) / count))
    values = (values / values.std(correction=0)).float()[:, None]
    return unlabelled(values, "quantiles", points=count)


def _slopes(
    ensemble: Ensemble, x: Tensor, settings: Settings
) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
    """Share of the prior where the slope is below a tenth of its mean, and the slope at data over that mean."""
    z = torch.linspace(-settings.reach, settings.reach, settings.nodes, dtype=torch.float64)
    image = ensemble.decode(z[:, None].float())[..., 0].double().cpu()
    slope = image.diff(dim=1).abs() / z.diff()
    middle = (z[1:] + z[:-1]) / 2
    weight = torch.softmax(-middle.square() / 2, 0)
    mean = (slope * weight).sum(1, keepdim=True)
    code = ensemble.encode(x).mean[..., 0].double().cpu()
    place = ((code + settings.reach) / (2 * settings.reach) * len(middle)).long().clamp(0, len(middle) - 1)
    return {
        "flat share": ((slope < FLAT * mean) * weight).sum(1),
        "slope at data": slope.gather(1, place).mean(1) / mean[:, 0],
    }, (z, image[0])


def _elbo(ensemble: Ensemble, x: Tensor, settings: Settings) -> Tensor:
    """ELBO of every member (member,), a mean over data; the expectation over one latent by Gauss–Hermite nodes."""
    node, weight = (
        torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(settings.quadrature)
    )
    weight = weight / weight.sum()
    code = ensemble.encode(x)
    mean, variance = code.mean.double().cpu(), code.variance.double().cpu()
    z = (mean + variance.sqrt() * node).flatten(1)[..., None]
    back = ensemble.decode(z.float())[..., 0].double().cpu().unflatten(1, (len(x), len(node)))
    error = ((back - x.double()).square() * weight).sum(-1)
    fit = -(math.log(2 * math.pi * settings.variance) + error / settings.variance) / 2
    kl = gaussian_kl(mean, variance)[..., 0]
    return (fit - kl).mean(1)


def _terms() -> pd.DataFrame:
    """What Eq. 5 pays for a singular value s at the best Σ, and how far Eq. 14 is from it, corrected and as printed."""
    beta, noise = 1.5, 0.7
    scale = torch.linspace(0, 10, 101, dtype=torch.float64)
    precision = 1 + scale.square() / (beta * noise)
    printed = -scale.square() / noise / precision / 2
    paid = printed - beta / 2 * (1 / precision + precision.log() - 1)
    corrected = plateau_term(scale[:, None], beta=beta, noise=noise)
    errors = {"error, corrected": corrected - paid, "error, printed": printed - paid}
    return pd.DataFrame({"s": scale, "Eq. 5": paid, **errors})


def _ends(tables: Tables) -> tuple[tuple[int, int], pd.DataFrame, pd.DataFrame]:
    table = tables["members"]
    counts = int(table["points"].min()), int(table["points"].max())
    few, many = (table[table["points"] == count] for count in counts)
    return counts, few, many


def _few_cases(tables: Tables) -> Iterator[Bound]:
    counts, few, many = _ends(tables)
    line = f"{counts[1]} points", "a straight line"
    words = f"share of the latent axis that is flat, {counts[0]} points"
    said = f"at least {1 - FLAT:g} (1: all but jumps)"
    flat = {line[0]: many["flat share"].to_numpy(), line[1]: np.zeros(1)}
    yield Bound(words, said, few["flat share"], least=1 - FLAT, wrong=flat)
    words = f"slope at data over its mean along the axis, {counts[0]} points"
    slopes = {line[0]: many["slope at data"].to_numpy(), line[1]: np.ones(1)}
    yield Bound(words, f"at most {FLAT:g} (0: stationary)", few["slope at data"], most=FLAT, wrong=slopes)


def _more_cases(tables: Tables) -> Iterator[Order]:
    counts, few, many = _ends(tables)
    for column, words in (("flat share", "flat share"), ("elbo gained", "nats gained over the best line")):
        quantity = f"{words}, {counts[1]} points less {counts[0]} points"
        yield Order(quantity, many[column], few[column])


def _trend_cases(tables: Tables) -> Iterator[Curve]:
    wide = tables["members"].pivot(index="points", columns="seed", values="flat share")
    words = "largest rise of the flat share with the number of points, of its range"
    yield Curve(words, "falls", wide.to_numpy())


@of_tables
def _equation_cases(tables: Tables, form: str) -> Iterator[Identity]:
    worst = float(tables["terms"][f"error, {form}"].abs().max())
    words = "−(β/2) log(1 + s²/(βσ²))" if form == "corrected" else "as printed"
    note = "" if form == "corrected" else "trace and logarithm of Σ depend on S; both decrease with s"
    yield Identity(f"Eq. 14, {words}: distance from the terms of Eq. 5", "0", worst, 1e-9, note=note)


def plot(tables: Tables) -> Figure:
    """One decoder for some numbers of points, and flat share and slope at data over all of them."""
    members, curves = tables["members"], tables["curves"]
    counts = sorted(members["points"].unique())
    chosen = sorted({counts[0], counts[len(counts) // 3], counts[2 * len(counts) // 3], counts[-1]})
    figure, axes = panels([*(f"{count} points" for count in chosen), "over all"], width=2.1, height=2.2)
    for panel, count in zip(axes[:-1], chosen, strict=True):
        own = curves[curves["points"] == count]
        panel.plot(own["z"], own["x"], color=COLOURS[0], linewidth=1.3)
        data = _world(int(count)).images(torch.arange(int(count)))[:, 0]
        look = {"color": COLOURS[1], "linewidth": 0.4, "linestyle": "-"}
        reference(panel, y=data, alpha=0.7 if count <= 30 else 0.08, **look)
        finish(panel, "z", ylim=(-3.2, 3.2))
    finish(axes[0], y="decoder (lines: data)")
    for colour, column in zip(COLOURS, ("flat share", "slope at data"), strict=False):
        curve(axes[-1], members, "points", column, colour)
    finish(axes[-1], "data points", legend="best", xscale="log")
    return figure


PLATEAUS = Artefact(
    key="allen2024.plateaus",
    title="Plateaus of Eq. 14 (corrected) on few data points, and their going away with more",
    claims=(
        Bounds(
            "§4: a flexible decoder passes through data points with zero gradient and jumps between plateaus",
            _few_cases,
        ),
        Orders("§4: plateaus are mitigated by more data", _more_cases),
        Trends("§4: the more data, the smaller the plateaus", _trend_cases),
        Identities("Eq. 14 as printed: the terms of the ELBO that depend on S", _equation_cases("printed")),
        Identities("Eq. 14, corrected", _equation_cases("corrected"), ours=True),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
)
