"""Eq. 14 of allen2024, corrected: few data points give flat plateaus with jumps between them, many give none."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unseam.data import ArrayWorld
from unseam.drawing import COLOURS, panels
from unseam.papers.allen2024._members import finding, interval, trained
from unseam.papers.artefact import Artefact, Finding, Outcome, Workplace
from unseam.theory import linear_vae, plateau_term
from unseam.training import Ensemble
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["PLATEAUS"]

FLAT = 0.1


@dataclass(frozen=True)
class Settings:
    """VAEs with one latent on 2 to many points of a line, spread as normal quantiles of unit variance."""

    points: tuple[int, ...] = (2, 3, 5, 10, 30, 100, 300, 1000)
    variance: float = 0.01
    width: int = 64
    seeds: int = 5
    steps: int = 4000
    batch_size: int = 64
    learning_rate: float = 2e-3
    reach: float = 3.0
    nodes: int = 1201
    quadrature: int = 40


def measure(settings: Settings, place: Workplace) -> Outcome:
    """Slopes of all decoders over the latent axis and at the codes of the data, and their ELBO against a line's."""
    import pandas as pd

    members, curves = [], []
    for count in settings.points:
        world = _world(count)
        trials = _trials(settings)
        ensemble = trained(trials, place, f"points{count}", world=world)
        x = world.images(torch.arange(count))
        found, curve = _slopes(ensemble, x, settings)
        found["elbo gained"] = _elbo(ensemble, x, settings) - _best_line(x, settings.variance)
        columns = {name: value.tolist() for name, value in found.items()}
        members.append(pd.DataFrame({"points": count, "seed": range(len(trials))} | columns))
        curves.append(pd.DataFrame({"points": count, "z": curve[0].numpy(), "x": curve[1].numpy()}))
    table = pd.concat(members, ignore_index=True)
    terms = _terms()
    tables = {"members": table, "curves": pd.concat(curves, ignore_index=True), "terms": terms}
    return Outcome(tuple(_findings(table, terms)), tables)


def _world(count: int) -> ArrayWorld:
    """Quantiles of the normal distribution at evenly spaced levels, scaled to unit variance."""
    from scipy.stats import norm

    values = torch.from_numpy(norm.ppf((np.arange(count) + 0.5) / count))
    values = (values / values.std(correction=0)).float()[:, None]
    return ArrayWorld(
        values,
        torch.zeros(count, 0),
        name="quantiles",
        factor_names=(),
        factor_sizes=(),
        options={"points": count},
    )


def _trials(settings: Settings) -> list[Trial]:
    first = Trial(
        world="quantiles",
        likelihood="gaussian",
        likelihood_variance=settings.variance,
        latent=1,
        encoder_widths=(settings.width, settings.width),
        encoder_activation="tanh",
        decoder_widths=(settings.width, settings.width),
        steps=settings.steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        precision="float32",
    )
    return [dataclasses.replace(first, seed=seed) for seed in range(settings.seeds)]


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
    kl = (mean.square() + variance - variance.log() - 1)[..., 0] / 2
    return (fit - kl).mean(1)


def _best_line(x: Tensor, variance: float) -> float:
    """The ELBO of the best linear VAE, in closed form."""
    return float(linear_vae(x.double().mT @ x.double() / len(x), 1, noise=variance).elbo)


def _terms() -> pd.DataFrame:
    """What Eq. 5 pays for a singular value at the best Σ: as it stands, as corrected, and as Eq. 14 prints it."""
    import pandas as pd

    beta, noise = 1.5, 0.7
    scale = torch.linspace(0, 10, 101, dtype=torch.float64)
    precision = 1 + scale.square() / (beta * noise)
    summed = -scale.square() / noise / precision / 2 - beta / 2 * (1 / precision + precision.log() - 1)
    printed = -scale.square() / noise / precision / 2
    corrected = plateau_term(scale[:, None], beta=beta, noise=noise)
    return pd.DataFrame({"s": scale, "summed": summed, "corrected": corrected, "printed": printed})


def _findings(table: pd.DataFrame, terms: pd.DataFrame) -> list[Finding]:
    from scipy.stats import spearmanr

    few, many = (table[table["points"] == count] for count in (table["points"].min(), table["points"].max()))
    counts = int(few["points"].iloc[0]), int(many["points"].iloc[0])

    def both(column: str) -> tuple[Tensor, Tensor]:
        return torch.tensor(few[column].to_numpy()), torch.tensor(many[column].to_numpy())

    flat, slope, gained = both("flat share"), both("slope at data"), both("elbo gained")
    apart = float(flat[0].min()) > float(flat[1].max())
    mean = table.groupby("points")["flat share"].mean()
    order = float(spearmanr(mean.index.to_numpy(), mean.to_numpy()).statistic)
    return [
        finding(
            f"share of the latent axis that is flat, {counts[0]} points",
            f"near 1, and above that at {counts[1]} points",
            flat[0],
            apart and float(flat[0].mean()) >= 0.5,
            f"at {counts[1]} points {float(flat[1].mean()):.3f}",
        ),
        Finding(
            "rank correlation of that share with the number of points",
            "negative: mitigated by more data",
            order,
            None,
            None,
            "reproduced" if order <= -0.8 else "not reproduced",
        ),
        finding(
            f"slope at data over its mean along the axis, {counts[0]} points",
            "towards 0: stationary at data",
            slope[0],
            bool((slope[0] < 0.5).all()),
        ),
        finding(
            f"slope at data over its mean along the axis, {counts[1]} points",
            "towards 1: plateaus go away",
            slope[1],
            bool(((slope[1] > 0.8) & (slope[1] < 1.25)).all()),
        ),
        finding(
            f"nats that plateaus gain over the best line, {counts[0]} points",
            f"above those at {counts[1]} points",
            gained[0],
            interval(gained[0])[0] > interval(gained[1])[0] and bool((gained[0] > 0).all()),
            f"at {counts[1]} points {float(gained[1].mean()):.3f}",
        ),
        *_about_terms(terms),
    ]


def _about_terms(terms: pd.DataFrame) -> list[Finding]:
    wrong = float((terms["corrected"] - terms["summed"]).abs().max())
    missed = float((terms["printed"] - terms["summed"]).abs().max())
    return [
        Finding(
            "Eq. 14 corrected, −(β/2) log(1 + s²/(βσ²)): distance from the terms of Eq. 5 at the best Σ",
            "0",
            wrong,
            None,
            None,
            "reproduced" if wrong <= 1e-9 else "not reproduced",
        ),
        Finding(
            "Eq. 14 as printed: distance from the same, s up to 10",
            "0, up to what does not affect optimisation",
            missed,
            None,
            None,
            "reproduced" if missed <= 1e-9 else "not reproduced",
            "trace and logarithm of Σ depend on S and are dropped; both fall with s, so plateaus follow from either",
        ),
    ]


def draw(outcome: Outcome) -> Figure:
    """One decoder for some numbers of points, and flat share and slope at data over all of them."""
    members, curves = outcome.tables["members"], outcome.tables["curves"]
    counts = sorted(members["points"].unique())
    chosen = sorted({counts[0], counts[len(counts) // 3], counts[2 * len(counts) // 3], counts[-1]})
    figure, axes = panels([*(f"{count} points" for count in chosen), "over all"], width=2.1, height=2.2)
    for panel, count in zip(axes[:-1], chosen, strict=True):
        own = curves[curves["points"] == count]
        panel.plot(own["z"], own["x"], color=COLOURS[0], linewidth=1.3)
        for value in _world(int(count)).images(torch.arange(int(count)))[:, 0].tolist():
            panel.axhline(value, color=COLOURS[1], linewidth=0.4, alpha=0.7 if count <= 30 else 0.08)
        panel.set_xlabel("z", fontsize=8)
        panel.set_ylim(-3.2, 3.2)
    axes[0].set_ylabel("decoder (lines: data)", fontsize=8)
    for colour, column in zip(COLOURS, ("flat share", "slope at data"), strict=False):
        mean = members.groupby("points")[column].mean()
        axes[-1].plot(mean.index, mean, "-", color=colour, linewidth=1)
        axes[-1].plot(members["points"], members[column], ".", color=colour, markersize=4, label=column)
    axes[-1].set_xscale("log")
    axes[-1].set_xlabel("data points", fontsize=8)
    axes[-1].legend(fontsize=7, frameon=False)
    return figure


PLATEAUS = Artefact(
    key="allen2024.plateaus",
    title="Plateaus of Eq. 14 (corrected) on few data points, and their going away with more",
    claim="The ELBO falls with every singular value at the data, so a flexible decoder passes through data points with "
    "zero gradient and jumps between plateaus, which is mitigated by more data (§4, Eq. 14).",
    criterion="At least half of the latent axis (by prior mass) has less than a tenth of the mean slope with two "
    "points, more than for any seed with the most points; the share falls with the number of points (rank correlation "
    "at most −0.8); the slope at data is below half of the mean slope with two points and within 0.8 to 1.25 of it "
    "with the most; plateaus gain more nats over the best line with two points than with the most. Eq. 14's term, "
    "corrected and as printed, equals the terms of Eq. 5 that depend on S.",
    presets={
        "smoke": Settings(points=(2, 100), seeds=2, steps=300, width=16, batch_size=32, nodes=201),
        "laptop": Settings(points=(2, 3, 5, 10, 30, 100, 300), seeds=3, width=32, steps=3000, batch_size=32),
        "full": Settings(seeds=20, steps=10_000),
    },
    measure=measure,
    draw=draw,
)
