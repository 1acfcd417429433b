"""A.3 of allen2024: piece-wise linear decoders as limits of smooth ones, and what the Taylor argument drops."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from unseam.drawing import COLOURS, panels
from unseam.models import VAE
from unseam.papers.allen2024._members import (
    SpriteSettings,
    expansion,
    items_and_noise,
    sprite_trial,
    vanishing,
)
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Curve, Order, Orders, Trends
from unseam.papers.plots import Figure, Tables, categories, curve, finish, logarithmic, reference
from unseam.papers.trainings import combinations, train_or_resume
from unseam.trial import Trial

__all__ = ["PIECEWISE_LINEAR"]

TICKS = (0.02, 0.05, 0.1, 0.2, 0.5)
ACTIVATIONS = ("relu", "softplus", "tanh")
TERMS = ("gap", "gap with all of H", "dropped term", "median dropped term", "distance from ReLU")


@dataclass(frozen=True)
class Settings(SpriteSettings):
    """Gaussian VAEs with ReLU, softplus and tanh decoders; the first also with ever sharper softplus instead."""

    sharpness: tuple[float, ...] = scaled(
        (1.0, 100.0, 3000.0), (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
    )
    latent: int = 3
    steps: int = scaled(200, 2000, 10_000)
    early: int = 100
    points: int = scaled(16, 128, 256)
    samples: int = scaled(8, 64, 128)


def measure(settings: Settings, place: Workplace) -> Tables:
    """Gap of the deterministic ELBO with and without the dropped term, for every decoder."""
    trials = _trials(settings)
    ensemble = train_or_resume(trials, place, "sprites")
    given = items_and_noise(trials[0], settings.points, settings.samples, ensemble.device)
    x, noise = (part.double() for part in given)
    kinds, sharp = [], []
    for member, trial in enumerate(trials):
        model = ensemble[member].double()
        who = {"activation": trial.decoder_activation, "steps": trial.steps, "seed": trial.seed}
        kinds.append(who | _terms(model, x, noise))
        if trial.decoder_activation == "relu" and trial.steps == settings.steps:
            for value in settings.sharpness:
                smooth = _sharpen(model, value)
                sharp.append({"sharpness": value, "seed": trial.seed} | _terms(smooth, x, noise, limit=model))
    return {"activations": pd.DataFrame(kinds), "sharpness": pd.DataFrame(sharp)}


def _trials(settings: Settings) -> list[Trial]:
    base = sprite_trial(settings, likelihood="gaussian")
    steps, seeds = (settings.early, settings.steps), range(settings.seeds)
    return combinations(base, decoder_activation=ACTIVATIONS, steps=steps, seed=seeds)


def _sharpen(model: VAE, sharpness: float) -> VAE:
    """The same weights with log(1 + e^{τx}) / τ in place of max(0, x) in the decoder; the encoder stays."""
    changed = copy.deepcopy(model)
    layers = changed.decoder.layers
    assert isinstance(layers, nn.Sequential)
    for place, layer in enumerate(layers):
        if isinstance(layer, nn.ReLU):
            layers[place] = nn.Softplus(beta=sharpness, threshold=40.0)
    return changed


@torch.no_grad()
def _terms(model: VAE, x: Tensor, noise: Tensor, *, limit: VAE | None = None) -> dict[str, float]:
    """Means over points of |nats|, relative to the regularisation ½⟨DᵀA²D, Σ⟩ that the argument is about."""
    terms = expansion(model, x, noise)
    gap, dropped = terms.gap.gap, terms.residual
    unit = float(terms.regularisation.mean())
    found = {
        "regularisation": unit,
        "gap": float(gap.abs().mean()) / unit,
        "gap with all of H": float((gap + dropped).abs().mean()) / unit,
        "dropped term": float(dropped.abs().mean()) / unit,
        "median dropped term": float(dropped.abs().median()) / unit,
    }
    if limit is not None:
        mean = model.encode(x).mean
        smooth, sharp = (one.decode(mean).flatten(1) for one in (model, limit))
        found["distance from ReLU"] = float(((smooth - sharp).norm(dim=1) / sharp.norm(dim=1)).max())
    return found


def _of(tables: Tables, activation: str, steps: str, column: str) -> np.ndarray:
    rows = tables["activations"]
    wanted = getattr(rows["steps"], steps)()
    return rows[(rows["activation"] == activation) & (rows["steps"] == wanted)][column].to_numpy()


def _sharpest(tables: Tables) -> tuple[float, pd.DataFrame, pd.DataFrame]:
    rows = tables["sharpness"]
    least, most = rows["sharpness"].min(), rows["sharpness"].max()
    return most, rows[rows["sharpness"] == least], rows[rows["sharpness"] == most]


def _limit_cases(tables: Tables) -> Iterator[Bound]:
    most, first, last = _sharpest(tables)
    ratio = last["distance from ReLU"].to_numpy() / first["distance from ReLU"].to_numpy()
    words = f"distance from the ReLU decoder at τ = {most:g}, of that at the smallest τ"
    yield Bound(words, "at most 0.01 (0)", ratio, most=0.01, wrong={"the smallest τ": [1.0]})
    gaps, others = (part["gap"].to_numpy() / _of(tables, "relu", "max", "gap") for part in (last, first))
    words = f"gap of the deterministic ELBO at τ = {most:g}, of that of ReLU itself"
    yield Bound(words, "1, within 0.05", gaps, 0.95, 1.05, wrong={"the smallest τ": others})
    dropped, *smooth = (_of(tables, name, "max", "median dropped term") for name in ACTIVATIONS)
    words = "median dropped term of ReLU, of the regularisation"
    wrong = dict(zip(ACTIVATIONS[1:], smooth, strict=True))
    yield Bound(words, "0 (Eq. 6)", dropped, most=1e-9, wrong=wrong)


def _series_cases(tables: Tables) -> Iterator[Order]:
    most, _, last = _sharpest(tables)
    words = f"gap with all of H less gap without the dropped term, τ = {most:g}"
    note = "the second derivative is spikes of height τ at a share 1/τ of the points"
    yield Order(words, last["gap with all of H"], last["gap"], paired=True, note=note)


def _training_cases(tables: Tables) -> Iterator[Curve]:
    for activation in ("softplus", "tanh"):
        own = tables["activations"][tables["activations"]["activation"] == activation]
        yield vanishing(own, "dropped term", f"{activation} decoder: ", "dropped term of the regularisation")


def plot(tables: Tables) -> Figure:
    """Gap and dropped term against sharpness, and the gap of decoders trained with each activation."""
    sharpness, activations = tables["sharpness"], tables["activations"]
    titles = ["gap to the sampled ELBO", "dropped term", "trained decoders: gap"]
    figure, axes = panels(titles, width=3.0, height=2.5)
    sharp = sharpness.assign(**sharpness[list(TERMS)].clip(lower=1e-12))
    for panel, columns in ((axes[0], TERMS[:2]), (axes[1], TERMS[2:4])):
        for colour, column in zip(COLOURS, columns, strict=False):
            curve(panel, sharp, "sharpness", column, colour)
    reference(axes[0], y=_of(tables, "relu", "max", "gap").mean(), color="black", label="ReLU")
    finish(axes[0], "sharpness τ", "share of ½⟨DᵀA²D, Σ⟩", legend="best", xscale="log")
    logarithmic(axes[0].yaxis, TICKS)
    axes[1].set_yscale("symlog", linthresh=1e-4)
    finish(axes[1], "sharpness τ", legend="best", xscale="log", ylim=(0, None))
    counts = {steps: f"{steps} steps" for steps in sorted(activations["steps"].unique())}
    each = activations.set_index(["activation", "steps"])["gap"].sort_index()
    rows = {name: [each[name, steps] for steps in counts] for name in ACTIVATIONS}
    categories(axes[2], rows, list(counts.values()))
    finish(axes[2], "share of ½⟨DᵀA²D, Σ⟩", legend="best")
    logarithmic(axes[2].xaxis, TICKS)
    return figure


PIECEWISE_LINEAR = Artefact(
    key="allen2024.piecewise_linear",
    title="A.3: piece-wise linear decoders against smooth ones in the Taylor argument",
    claims=(
        Bounds("A.3: ReLU is the limit of softplus of growing sharpness τ, and so is its gap", _limit_cases),
        Orders("A.3: abrupt changes of the derivative are accounted for by the Taylor series", _series_cases),
        Trends("A.2: the dropped term vanishes as training progresses", _training_cases),
    ),
    presets=presets_of(
        Settings,
        smoke={"scales": 3, "width": 16, "seeds": 1},
        laptop={"seeds": 3},
        full={"resolution": 16, "width": 64, "seeds": 10},
    ),
    measure=measure,
    plot=plot,
    note="What carries over to ReLU is the argument without the dropped term, at the price of ReLU's own gap: at "
    "large τ a few points carry all of the dropped term.",
)
