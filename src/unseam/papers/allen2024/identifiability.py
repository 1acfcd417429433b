"""Corollaries 1.1 and 2.1 of allen2024: what distinct and repeated singular values leave identified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch.nn.functional import normalize

from unseam.data import load
from unseam.drawing import COLOURS, panels
from unseam.geometry import jacobian
from unseam.papers.allen2024._members import angles_to, decoder_matrices, exact_sample, square_trial
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds
from unseam.papers.draws import Seeded, orthonormal
from unseam.papers.plots import Figure, Tables, dots, finish, logarithmic, reference
from unseam.papers.trainings import combinations, train_or_resume, vae_trial

__all__ = ["IDENTIFIABILITY"]

FOUND = 5.0
"""Degrees within which axes count as found."""
RANDOM, FURTHEST = 22.5, 45.0
"""Angle of a pair after a random rotation, on average, and at most."""


@dataclass(frozen=True)
class Settings(Seeded):
    """Linear VAEs on normal data with a pair of singular values of some ratio; networks on a stretched square.

    The data's covariance is exact in the sample, so that equal singular values are equal for the models too.
    """

    data: int = scaled(4, 8)
    first: float = 6.0
    pair: float = 1.5
    ratios: tuple[float, ...] = scaled((1.0, 2.0), (1.0, 1.4, 2.0), (1.0, 1.1, 1.2, 1.4, 1.7, 2.0))
    items: int = scaled(1000, 5000)
    seeds: int = scaled(3, 8, 50)
    steps: int = scaled(150, 8000, 10_000)
    batch_size: int = scaled(50, 200, 500)
    learning_rate: float = scaled(5e-2, 5e-3)
    square_ratios: tuple[float, ...] = scaled((1.0, 2.0), (1.0, 2.0), (1.0, 1.2, 1.5, 2.0))
    square_seeds: int = scaled(2, 4, 20)
    square_steps: int = scaled(60, 4000, 8000)
    width: int = scaled(10, 40)
    variance: float = 2e-3
    points: int = scaled(30, 200)


def measure(settings: Settings, place: Workplace) -> Tables:
    """Angles between the columns of decoders and the true components."""
    linear = [row for ratio in settings.ratios for row in _linear(settings, ratio, place)]
    square = [row for ratio in settings.square_ratios for row in _square(settings, ratio, place)]
    return {"linear": pd.DataFrame(linear), "square": pd.DataFrame(square)}


def _linear(settings: Settings, ratio: float, place: Workplace) -> list[dict[str, Any]]:
    """Linear VAEs on x = U S z + ε with S = (first, pair · ratio, pair)."""
    draw = settings.generator()
    scales = torch.tensor([settings.first, settings.pair * ratio, settings.pair], dtype=torch.float64)
    axes = orthonormal(settings.data, len(scales), generator=draw)
    covariance = (axes * scales.square()) @ axes.mT + torch.eye(settings.data, dtype=torch.float64)
    trial = vae_trial("mixture", settings, latent=len(scales))
    trials = combinations(trial, seed=range(settings.seeds))
    world = exact_sample(covariance, settings.items, draw)
    weights, _ = decoder_matrices(train_or_resume(trials, place, f"linear-{ratio:g}", world=world))
    return [
        {"ratio": ratio, "seed": seed, "alone": float(each[0]), "pair": float(each[1:].mean())}
        for seed, each in enumerate(angles_to(normalize(weights, dim=-2), axes))
    ]


def _square(settings: Settings, ratio: float, place: Workplace) -> list[dict[str, Any]]:
    """Networks on the stretched square: the push-forward of a normal by x = U diag(ratio, 1) Φ(z), orthogonal."""
    trial = square_trial(settings, ratio, settings.square_steps)
    trials = combinations(trial, seed=range(settings.square_seeds))
    ensemble = train_or_resume(trials, place, f"square-{ratio:g}")
    world = load("linear", size=settings.items, ratio=ratio)
    # the square's sides in data space
    sides = world.generator(torch.eye(2, dtype=torch.float64)).mT  # type: ignore[attr-defined]
    axes = normalize(sides, dim=0)
    codes = ensemble.encode(world.images(torch.arange(settings.points))).mean
    rows = []
    for seed in range(len(trials)):
        steps = jacobian(ensemble[seed].decode, codes[seed]).double().cpu().detach()
        rows.append(
            {"ratio": ratio, "seed": seed, "angle": float(angles_to(normalize(steps, dim=-2), axes).mean())}
        )
    return rows


def _distinct_cases(tables: Tables) -> Iterator[Bound]:
    linear, square = tables["linear"], tables["square"]
    most, clear = linear["ratio"].max(), square["ratio"].max()
    wrong = {"equal singular values": linear[linear["ratio"] == linear["ratio"].min()]["pair"]}
    random = {"random rotations": [RANDOM]}
    pair, bent = linear[linear["ratio"] == most]["pair"], square[square["ratio"] == clear]["angle"]
    alone = linear.groupby("seed")["alone"].max()
    for words, angle, other in (
        (f"linear, ratio {most:g}: angle of the pair to the true components", pair, wrong),
        ("linear, all ratios: angle of the component with a singular value of its own", alone, wrong),
        (f"square, ratio {clear:g}: mean angle of the Jacobian's columns (Cor. 2.1)", bent, random),
    ):
        yield Bound(f"{words}, degrees", f"at most {FOUND:g} (0)", angle, most=FOUND, wrong=other)


def _repeated_cases(tables: Tables) -> Iterator[Bound]:
    """Random rotations against components that are found (0°) and that are as far off as can be (45°): half way."""
    linear = tables["linear"]
    pair = linear[linear["ratio"] == linear["ratio"].min()]["pair"]
    wrong = {"distinct singular values": linear[linear["ratio"] == linear["ratio"].max()]["pair"]}
    words, note = "linear, ratio 1: angle of the pair, degrees", f"from {pair.min():.3g} to {pair.max():.3g}"
    bounds = (RANDOM / 2, (RANDOM + FURTHEST) / 2)
    yield Bound(words, "any: 22.5 on average", pair, *bounds, note=note, wrong=wrong)


def plot(tables: Tables) -> Figure:
    """Angles against the ratio of singular values: linear VAEs, and networks on the stretched square."""
    linear, square = tables["linear"], tables["square"]
    figure, axes = panels(["linear VAE, normal data", "networks, stretched square"], width=3.4, height=2.6)
    dots(axes[0], linear["ratio"] / 1.012, linear["alone"], COLOURS[1], "singular value of its own")
    dots(axes[0], linear["ratio"] * 1.012, linear["pair"], COLOURS[0], "pair")
    dots(axes[1], square["ratio"], square["angle"], COLOURS[0])
    for panel, table in zip(axes, (linear, square), strict=True):
        reference(panel, y=RANDOM)
        where = {"ha": "right", "transform": panel.get_yaxis_transform()}
        panel.text(1.0, 23.0, "mean of random rotations", fontsize=7, color="grey", **where)
        logarithmic(panel.xaxis, sorted(table["ratio"].unique()))
        finish(panel, "ratio of the pair's singular values", "angle to the true components, °")
        panel.set(xlim=(0.95, 1.05 * table["ratio"].max()), ylim=(-1, 55))
    finish(axes[0], legend="best")
    return figure


IDENTIFIABILITY = Artefact(
    key="allen2024.identifiability",
    title="Identifiability with distinct and with repeated singular values",
    claims=(
        Bounds(
            "Cor. 1.1, Cor. 2.1: components with distinct singular values are identified up to order and sign",
            _distinct_cases,
        ),
        Bounds(
            "Remark 3: within the span of a repeated singular value any rotation remains", _repeated_cases
        ),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="Cor. 2.1 says nothing of components whose singular values coincide as functions of z; a random rotation of "
    "a pair is 22.5° off on average.",
)
