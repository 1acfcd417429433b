"""A.3 of allen2024: piece-wise linear decoders as limits of smooth ones, and what the Taylor argument drops."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from unseam.drawing import COLOURS, panels
from unseam.models import VAE
from unseam.papers.allen2024._members import dots, expansion, finding, sample_images, sprite_trial, trained
from unseam.papers.artefact import Artefact, Judgement, Workplace
from unseam.trial import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["PIECEWISE_LINEAR"]

ACTIVATIONS = ("relu", "softplus", "tanh")
TERMS = ("gap", "gap with all of H", "dropped term", "median dropped term", "distance from ReLU")


@dataclass(frozen=True)
class Settings:
    """Gaussian VAEs with ReLU, softplus and tanh decoders; the first also with ever sharper softplus instead."""

    sharpness: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
    resolution: int = 16
    positions: int = 16
    scales: int = 8
    width: int = 64
    latent: int = 3
    variance: float = 0.05
    seeds: int = 5
    steps: int = 3000
    early: int = 100
    points: int = 256
    samples: int = 128


def measure(settings: Settings, place: Workplace) -> Tables:
    """Gap of the deterministic ELBO with and without the dropped term, for every decoder."""
    import pandas as pd

    trials = _trials(settings)
    ensemble = trained(trials, place, "sprites")
    random = torch.Generator().manual_seed(0)
    x = sample_images(trials[0], settings.points, random)
    noise = torch.randn(settings.samples, len(x), settings.latent, generator=random)
    x, noise = x.to(ensemble.device).double(), noise.to(ensemble.device).double()
    kinds, sharp = [], []
    for member, trial in enumerate(trials):
        model = ensemble[member].double()
        who = {"activation": trial.decoder_activation, "steps": trial.steps, "seed": trial.seed}
        kinds.append(who | _terms(model, x, noise))
        if trial.decoder_activation == "relu" and trial.steps == settings.steps:
            for value in settings.sharpness:
                smooth = _sharpened(model, value)
                sharp.append({"sharpness": value, "seed": trial.seed} | _terms(smooth, x, noise, limit=model))
    return {"activations": pd.DataFrame(kinds), "sharpness": pd.DataFrame(sharp)}


def _trials(settings: Settings) -> list[Trial]:
    base = sprite_trial(
        settings.resolution, settings.positions, settings.scales, settings.width, settings.latent
    )
    base = dataclasses.replace(base, likelihood="gaussian", likelihood_variance=settings.variance)
    return [
        dataclasses.replace(base, decoder_activation=activation, steps=steps, seed=seed)
        for activation in ACTIVATIONS
        for steps in (settings.early, settings.steps)
        for seed in range(settings.seeds)
    ]


def _sharpened(model: VAE, sharpness: float) -> VAE:
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
        code = model.encode(x)
        away = (model.decode(code.mean) - limit.decode(code.mean)).flatten(1).norm(dim=1)
        found["distance from ReLU"] = float((away / limit.decode(code.mean).flatten(1).norm(dim=1)).max())
    return found


def judge(tables: Tables) -> Judgement:
    """The limit of growing sharpness against ReLU, and the dropped term along training of smooth decoders."""
    activations, sharpness = tables["activations"], tables["sharpness"].set_index("sharpness")
    early, late = activations["steps"].min(), activations["steps"].max()

    def of(activation: str, steps: int, column: str) -> np.ndarray:
        own = activations[(activations["activation"] == activation) & (activations["steps"] == steps)]
        return own[column].to_numpy()

    least, most = sharpness.index.min(), sharpness.index.max()
    distance, near = (sharpness.loc[[value], "distance from ReLU"].to_numpy() for value in (least, most))
    last, whole = (sharpness.loc[[most], name].to_numpy() for name in TERMS[:2])
    plain, dropped = (of("relu", late, name) for name in ("gap", "median dropped term"))
    found = [
        finding(
            f"largest distance of the decoder at τ = {most:g} from the ReLU decoder, relative",
            "0 as τ grows",
            near,
            (near < 0.01 * distance).all(),
        ),
        finding(
            f"gap of the deterministic ELBO at τ = {most:g} over that of ReLU itself",
            "1: the smooth decoder stands for the piece-wise linear one",
            last / plain,
            (abs(last / plain - 1) < 0.05).all(),
        ),
        finding(
            "median size of the dropped term at ReLU, of the regularisation",
            "0 almost everywhere (Eq. 6)",
            dropped,
            (dropped < 1e-9).all(),
        ),
        finding(
            f"gap with all of H over gap without the dropped term, τ = {most:g}",
            "below 1: abrupt changes are accounted for by the Taylor series",
            whole / last,
            (whole < last).all(),
            "the second derivative is spikes of height τ on a part 1/τ of the points, which a series at one point "
            "misses or overstates",
        ),
    ]
    for activation in ("softplus", "tanh"):
        ratio = of(activation, late, "dropped term") / of(activation, early, "dropped term")
        found.append(
            finding(
                f"{activation} decoder: dropped term after training over that after {early} steps, each of "
                "the regularisation",
                "below 1: it vanishes as training progresses (A.2, point 2)",
                ratio,
                (ratio < 1).all(),
                f"{int((ratio < 1).sum())} of {len(ratio)} seeds below 1",
            )
        )
    mean = sharpness.groupby(level=0)[list(TERMS)].mean()
    first, final = mean.iloc[0], mean.iloc[-1]
    return Judgement(
        tuple(found),
        f"With τ from {least:g} to {most:g} the median dropped term goes from {first['median dropped term']:.2g} to "
        f"{final['median dropped term']:.2g} of the regularisation, its mean from {first['dropped term']:.2g} to "
        f"{final['dropped term']:.2g}: at large τ a few points carry all of it, so that mean is uncertain. The gap "
        f"with all of H goes from {first['gap with all of H']:.2g} to {final['gap with all of H']:.2g}, without the "
        f"dropped term from {first['gap']:.2g} to {final['gap']:.2g}. What carries over to ReLU is the argument "
        "without the dropped term, at the price of ReLU's own gap.",
    )


def draw(tables: Tables) -> Figure:
    """Gap and dropped term against sharpness, and the gap of decoders trained with each activation."""
    sharpness, activations = tables["sharpness"], tables["activations"]
    figure, axes = panels(
        ["gap to the sampled ELBO", "dropped term", "trained decoders: gap"], width=3.0, height=2.5
    )
    mean = sharpness.groupby("sharpness")[list(TERMS)].mean()
    steps = activations["steps"].max()
    ends = activations[activations["steps"] == steps]
    plain = ends[ends["activation"] == "relu"]["gap"].mean()
    for panel, columns in ((axes[0], TERMS[:2]), (axes[1], TERMS[2:4])):
        for colour, column in zip(COLOURS, columns, strict=False):
            for _, own in sharpness.groupby("seed"):
                panel.plot(
                    own["sharpness"], own[column].clip(lower=1e-12), color=colour, linewidth=0.4, alpha=0.5
                )
            panel.plot(
                mean.index, mean[column].clip(lower=1e-12), ".-", color=colour, label=column, markersize=4
            )
        panel.set_xscale("log")
        panel.set_xlabel("sharpness τ", fontsize=8)
    axes[1].set_yscale("symlog", linthresh=1e-4)
    axes[1].set_ylim(bottom=0)
    axes[0].set_yscale("log")
    axes[0].axhline(plain, color="black", linewidth=0.8, linestyle="--", label="ReLU")
    axes[0].set_ylabel("share of ½⟨DᵀA²D, Σ⟩", fontsize=8)
    for panel in axes[:2]:
        panel.legend(fontsize=7, frameon=False)
    for number, activation in enumerate(ACTIVATIONS):
        own = activations[activations["activation"] == activation]
        for colour, (count, part) in zip(COLOURS, own.groupby("steps"), strict=False):
            dots(axes[2], number, part["gap"], colour, f"{count} steps" if number == 0 else None)
    axes[2].set_xticks(range(len(ACTIVATIONS)), ACTIVATIONS)
    axes[2].set_yscale("log")
    axes[2].legend(fontsize=7, frameon=False)
    return figure


PIECEWISE_LINEAR = Artefact(
    key="allen2024.piecewise_linear",
    title="A.3: piece-wise linear decoders against smooth ones in the Taylor argument",
    claim="The Taylor argument holds for ReLU decoders since ReLU is the limit of softplus of growing sharpness τ: "
    "abrupt changes of the derivative are then accounted for by the Taylor series, and the dropped term of Eq. 6 is "
    "zero almost everywhere and vanishes as training progresses (A.2, A.3).",
    criterion="With the weights of trained ReLU decoders and softplus of growing τ: the decoder and the gap of its "
    "deterministic ELBO approach ReLU's (gap within 5 % at the largest τ); the dropped term of ReLU is zero at the "
    "median point; the series with the whole Hessian has a smaller gap than without the dropped term at the largest "
    "τ; and for smooth decoders the dropped term, relative to the regularisation, falls with training. All for every "
    "seed.",
    presets={
        "smoke": Settings(
            sharpness=(1.0, 100.0, 3000.0),
            positions=8,
            scales=3,
            resolution=8,
            width=16,
            seeds=1,
            steps=200,
            points=16,
            samples=8,
        ),
        "laptop": Settings(seeds=3, steps=2000, points=128, samples=64),
        "full": Settings(seeds=10, steps=10_000),
    },
    measure=measure,
    judge=judge,
    draw=draw,
)
