"""Tables 1, 2 and S4 and Figure S5 of rolinek2019: Tables 1 and 2 have one artefact per data set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from unseam.drawing import COLOURS, panels
from unseam.geometry import distance_to_orthogonality, local_basis, right_basis
from unseam.papers.artefact import Artefact, Scale, Workplace
from unseam.papers.claims import Bound, Bounds, Cell, Order, Orders, Row, Values
from unseam.papers.draws import orthogonal, uniform
from unseam.papers.measures import SCORE
from unseam.papers.plots import Figure, Tables, band, blank, columns, finish, reference, where_measured
from unseam.papers.rolinek2019 import setups
from unseam.papers.rolinek2019.runs import POLARISED, Training, Trainings, at_beta, gather, run_column
from unseam.papers.rolinek2019.setups import BETA, LINEAR, NAMES, NONLINEAR, Setup, quick, smoke
from unseam.papers.trainings import measure_present
from unseam.training import learner

__all__ = ["COLLAPSED", "DISENT", "DTO", "FIGURE_S5", "PERCENTAGES", "TABLE1", "TABLE2", "TABLE_S4"]

ONE_MAP = "Judged on one random map, that of seed 0; artefact `maps` repeats it on twelve."


# Table 1: how much of the training runs in the polarised regime

PERCENTAGES = {
    "sprites": (97.8, 90.6),
    "fashion_mnist": (99.8, 97.7),
    "mnist": (99.8, 99.5),
    "linear": (99.8, 96.7),
    "nonlinear": (99.9, 98.5),
}
"""With few and with ten latents."""
PERCENTAGES["dsprites"] = PERCENTAGES["sprites"]


@dataclass(frozen=True)
class RegimeSettings:
    """A training of few latents, and one of ten."""

    low: Setup
    high: Setup


def measure_regime(settings: RegimeSettings, place: Workplace) -> Tables:
    """Percentage of each run's training from which on Δ_KL stays below 3 %, and Δ_KL along training."""
    world = settings.low.base.world

    def measured() -> Tables:
        parts = []
        for setup in (settings.low, settings.high):
            column: setups.Column = "VAE" if setup.betas == (1.0,) else "β-VAE"
            parts.append(({"latents": setup.base.latent}, run_column(setup, column, place)))
        regime = [at_beta(part.regime, BETA[world]).assign(**labels) for labels, part in parts]
        found = gather(parts, ["seed", "polarised", "latents"])
        runs, trainings = found["members"], found["trainings"]
        return {"runs": runs, "regime": pd.concat(regime, ignore_index=True), "trainings": trainings}

    return measure_present([(NAMES[world], measured)])


def _percentages(tables: Tables) -> Iterator[Row]:
    """The row of a data set: few latents and ten."""
    world = str(tables["trainings"]["world"].iloc[0])
    runs = {f"{latents} latents": own["polarised"] for latents, own in tables["runs"].groupby("latents")}
    cells = (Cell(percentage, digit=0.1) for percentage in PERCENTAGES[world])
    yield Row(
        "percentage of training with Δ_KL < 3 % until its end", dict(zip(runs, cells, strict=True)), runs
    )


@where_measured
def plot_regime(tables: Tables) -> Figure:
    """Δ_KL along training, mean and range over runs, and the threshold."""
    figure, (panel,) = panels(["relative error of the polarised KL term, Δ_KL"], width=4.6, height=2.7)
    for (latents, part), colour in zip(tables["regime"].groupby("latents"), COLOURS, strict=False):
        band(panel, part, "step", ("min", "mean", "max"), colour, f"{latents:.0f} latents", style="-")
    reference(panel, y=POLARISED)
    finish(panel, "batches", xscale="log", yscale="log", legend="best")
    return figure


def _table1(setup: Setup, family: Setup | None = None, *, laptop: bool = False, note: str = "") -> Artefact:
    """Of one data set, whose runs with few latents may be those of a training of many β or restarts."""
    world = setup.base.world
    pairs: dict[Scale, tuple[Setup, Setup]] = {"smoke": (smoke(setup),) * 2}
    if laptop:
        pairs["laptop"] = (setup.replace(seeds=3, steps=32_000, records=1),) * 2
    pairs["full"] = (family or setup, setup)
    ten = {scale: (low, high.replace(latent=10, records=1)) for scale, (low, high) in pairs.items()}
    said = f"Table 1, {NAMES[world]}: percentage of training in the polarised regime"
    return Artefact(
        key=f"rolinek2019.table1_{setups.SHORT[world]}",
        title=f"Table 1, {NAMES[world]}: training in the polarised regime",
        claims=(Values(said, _percentages),),
        presets={scale: RegimeSettings(*pair) for scale, pair in ten.items()},
        measure=measure_regime,
        plot=plot_regime,
        note=note,
    )


TABLE1 = (
    _table1(setups.SPRITES, setups.RESTARTS),
    _table1(setups.FASHION),
    _table1(setups.MNIST),
    _table1(LINEAR, setups.LINEAR_FAMILY, laptop=True),
    _table1(NONLINEAR, setups.NONLINEAR_FAMILY, laptop=True, note=ONE_MAP),
)


# Table 2: distance to orthogonality and score of all models


def _row(text: str) -> dict[str, Cell]:
    """Cells by name, from ``name mean SD, ...``."""
    return {name: Cell(float(mean), float(sd)) for name, mean, sd in map(str.split, text.split(", "))}


DTO = {
    "sprites": _row("β-VAE 0.76 0.08, VAE 1.08 0.15, AE 1.62 0.03, β-VAE_Σ 1.73 0.14, random 1.86 0.11"),
    "linear": _row("β-VAE 0.00 0.00, AE 0.33 0.18, β-VAE_Σ 0.34 0.35, random 0.79 0.21"),
    "nonlinear": _row("β-VAE 0.18 0.02, AE 0.54 0.13, β-VAE_Σ 0.55 0.02, random 0.89 0.16"),
    "mnist": _row("VAE 1.59 0.08, AE 1.83 0.05, β-VAE_Σ 1.93 0.08, random 2.11 0.11"),
    "fashion_mnist": _row("VAE 1.36 0.05, AE 1.87 0.03, β-VAE_Σ 2.02 0.08, random 2.11 0.11"),
}
DISENT = {
    "sprites": _row("β-VAE 0.33 0.15, VAE 0.21 0.10, AE 0.09 0.04, β-VAE_Σ 0.12 0.06"),
    "linear": _row("β-VAE 0.99 0.01, AE 0.71 0.19, β-VAE_Σ 0.71 0.31"),
    "nonlinear": _row("β-VAE 0.73 0.16, AE 0.59 0.30, β-VAE_Σ 0.42 0.24"),
}
DTO["dsprites"], DISENT["dsprites"] = DTO["sprites"], DISENT["sprites"]
COLLAPSED = {"a collapsed model": 0.0}
"""Score of codes that tell nothing of the factors."""
RANDOM = {
    "random": "entries from U[0, 1]",
    "random rotations": "Haar-random V",
    "untrained": "untrained networks",
}
"""Random decoders; the text does not say which Table 2 has, but the first kind has its numbers on all data sets."""


@dataclass(frozen=True)
class ModelSettings(Trainings):
    """The trainings of a data set, and the draws of each kind of random decoder."""

    draws: int = 50


def measure_models(settings: ModelSettings, place: Workplace) -> Tables:
    """Every model at the end of its training, and random decoders."""
    world = settings.setups[0].base.world

    def measured() -> Tables:
        parts = [
            ({"world": world}, run_column(setup, column, place))
            for setup in settings.setups
            for column in setup.columns
        ]
        return gather(parts, ["column", "seed", "dto", SCORE, "world"]) | {"random": _random(settings)}

    return measure_present([(NAMES[world], measured)])


def _random(settings: ModelSettings) -> pd.DataFrame:
    """DtO of matrices with independent entries, of random rotations, and of networks before their training."""
    setup, count = settings.setups[0], settings.draws
    shape, latent = setup.load().shape, setup.base.latent
    draw = torch.Generator().manual_seed(0)
    entries = uniform(count, math.prod(shape), latent, generator=draw)
    z = torch.randn(10, latent, generator=draw)
    trials = setup.replace(seeds=count, encoder_widths=()).trials("AE")
    decoders = [learner(trial, shape, size=2).model.decoder for trial in trials]
    found = {
        "random": right_basis(entries.mT @ entries).right_vectors.unsqueeze(1),
        "random rotations": orthogonal(count, 1, latent, latent, generator=draw),
        "untrained": torch.stack([local_basis(decoder, z).right_vectors for decoder in decoders]),
    }
    distances = {kind: distance_to_orthogonality(vectors).mean(1) for kind, vectors in found.items()}
    return pd.DataFrame({kind: values.detach().numpy() for kind, values in distances.items()})


def _model_cells(tables: Tables) -> Iterator[Row]:
    """DtO, and the score where the data set has factors."""
    members = tables["members"]
    world, each = str(members["world"].iloc[0]), members.groupby("column")
    random = {str(kind): draws for kind, draws in tables["random"].items()}
    notes = {"random": RANDOM["random"]}
    yield Row("DtO", DTO[world], {str(column): own["dto"] for column, own in each} | random, notes)
    if world in DISENT:
        runs = {str(column): own[SCORE] for column, own in each}
        yield Row("Disent.", DISENT[world], runs, trivial=COLLAPSED)


def _model_orders(tables: Tables) -> Iterator[Order]:
    """Models with a diagonal posterior against both controls."""
    runs = {str(column): own for column, own in tables["members"].groupby("column")}
    for model in (column for column in ("β-VAE", "VAE") if column in runs):
        for control in ("AE", "β-VAE_Σ"):
            ours, theirs = runs[model], runs[control]
            yield Order(f"DtO of {model} less that of {control}", ours["dto"], theirs["dto"])
            if SCORE in ours:
                yield Order(f"Disent. of {control} less that of {model}", theirs[SCORE], ours[SCORE])


@where_measured
def plot_models(tables: Tables) -> Figure:
    """DtO, and the score where there are factors: runs as dots beside the published mean ± SD."""
    members = tables["members"]
    world = members["world"].iloc[0]
    shown = [("dto", "distance to orthogonality", DTO[world])]
    if world in DISENT:
        shown.append((SCORE, "disentanglement score", DISENT[world]))
    figure, axes = panels([title for _, title, _ in shown], width=3.6, height=2.7)
    for panel, (name, _, published) in zip(axes, shown, strict=True):
        names = {column: column.replace("_Σ", " Σ") for column in setups.COLUMNS if column in published}
        runs = {words: [members[members["column"] == column][name]] for column, words in names.items()}
        columns(panel, runs, published={words: published[column] for column, words in names.items()})
        lowest = panel.get_ylim()[0]
        panel.set_ylim(bottom=min(0.0, lowest) if lowest < 1 else None)
    means = tables["random"].mean()[["random", "random rotations"]]
    axes[0].set_ylim(top=max(axes[0].get_ylim()[1], 1.02 * means.max()))
    for (kind, mean), style in zip(means.items(), ("--", ":"), strict=True):
        reference(axes[0], y=mean, linestyle=style)
        where = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7}
        axes[0].annotate(RANDOM[str(kind)], (1.01, mean), **where)
    return figure


def _table2(given: Mapping[Scale, tuple[Setup, ...]], note: str = "") -> Artefact:
    world = given["smoke"][0].base.world
    both = " and disentanglement score" if world in DISENT else ""
    return Artefact(
        key=f"rolinek2019.table2_{setups.SHORT[world]}",
        title=f"Table 2, {NAMES[world]}: DtO{both}",
        claims=(
            Values(f"Table 2, {NAMES[world]}: DtO{both} of models", _model_cells),
            Orders(
                f"§5.3, {NAMES[world]}: with a diagonal posterior the decoder is closer to orthogonal than without"
                + (", and codes disentangle better" if world in DISENT else ""),
                _model_orders,
            ),
        ),
        presets={scale: ModelSettings(own) for scale, own in given.items()},
        measure=measure_models,
        plot=plot_models,
        note=note,
    )


TABLE2 = (
    _table2(
        {
            "smoke": (smoke(setups.SPRITES, latent=3),),
            "full": setups.add_family(setups.RESTARTS, setups.SPRITES),
        }
    ),
    _table2(
        {
            "smoke": (smoke(LINEAR),),
            "laptop": (quick(LINEAR),),
            "full": setups.add_family(setups.LINEAR_FAMILY, LINEAR),
        },
        note="β as printed, with the square loss of Eq. 11; artefact `convention_linear` has other scales of the loss.",
    ),
    _table2(
        {
            "smoke": (smoke(NONLINEAR),),
            "laptop": (quick(NONLINEAR),),
            "full": setups.add_family(setups.NONLINEAR_FAMILY, NONLINEAR),
        },
        note=ONE_MAP,
    ),
    _table2({"smoke": (smoke(setups.MNIST),), "full": (setups.MNIST,)}),
    _table2({"smoke": (smoke(setups.FASHION),), "full": (setups.FASHION,)}),
)


# Table S4 and Figure S5: factors of nearly the same scale leave the axes undecided

RATIOS = (1.0, 1.2, 1.5)
RATIO_DTO = dict(zip(RATIOS, (Cell(0.49, 0.32), Cell(0.20, 0.24), Cell(0.01, 0.06)), strict=True))
RATIO_DISENT = dict(zip(RATIOS, (Cell(0.51, 0.28), Cell(0.76, 0.25), Cell(0.98, 0.06)), strict=True))
STRAIGHT = 5.0
"""Degrees within which a representation counts as aligned with the square."""
MAP = ["t11", "t12", "t21", "t22"]


def measure_ratios(settings: Training, place: Workplace) -> Tables:
    """The linear β-VAE trained at every ratio of the factors' scales, at the end of training."""
    options = settings.setup.base.world_options
    each = (
        ({"ratio": ratio}, settings.setup.replace(world_options=(("ratio", ratio), *options)))
        for ratio in RATIOS
    )
    parts = ((labels, run_column(setup, "β-VAE", place)) for labels, setup in each)
    return gather(parts, ["ratio", "seed", "dto", SCORE, *MAP])


def _runs(tables: Tables) -> dict[float, pd.DataFrame]:
    return {float(str(ratio)): part for ratio, part in tables["members"].groupby("ratio")}


def _ratio_cells(tables: Tables) -> Iterator[Row]:
    """DtO and score by ratio."""
    for name, words, published in (("dto", "DtO", RATIO_DTO), (SCORE, "Disent.", RATIO_DISENT)):
        said = {f"ratio {ratio}": cell for ratio, cell in published.items()}
        runs = {f"ratio {ratio}": own[name] for ratio, own in _runs(tables).items()}
        yield Row(words, said, runs, trivial=COLLAPSED if name == SCORE else {})


def _ratio_orders(tables: Tables) -> Iterator[Order]:
    """Unequal scales against equal ones."""
    equal, *others = _runs(tables).items()
    for ratio, runs in others:
        at = f"at ratio {ratio} less that at {equal[0]}"
        yield Order(f"DtO {at}", runs["dto"], equal[1]["dto"])
        yield Order(f"Disent. at ratio {equal[0]} less that at {ratio}", equal[1][SCORE], runs[SCORE])


def _angles(tables: Tables) -> dict[float, NDArray[np.float64]]:
    return {ratio: rotation_angle(runs[MAP].to_numpy()) for ratio, runs in _runs(tables).items()}


def _alignments(tables: Tables) -> Iterator[Bound]:
    """The angle between representation and square, at equal scales and at the largest ratio."""
    angles = _angles(tables)
    words = "median angle between representation and square at ratio {}, degrees"
    least, most = 2 * STRAIGHT, 45 - 2 * STRAIGHT
    random, wrong = f"random, 22.5 if uniform: {least:g} to {most:g}", {"ratio 1.5": angles[1.5]}
    yield Bound(words.format(1.0), random, angles[1.0], least, most, wrong=wrong)
    aligned, wrong = f"aligned: at most {STRAIGHT:g}", {"ratio 1.0": angles[1.0]}
    yield Bound(words.format(1.5), aligned, angles[1.5], most=STRAIGHT, wrong=wrong)


def _angle_orders(tables: Tables) -> Iterator[Order]:
    """Angles at unequal scales against those at equal ones."""
    angles = _angles(tables)
    for ratio in RATIOS[1:]:
        yield Order(f"angle at ratio {ratio} less that at 1.0, degrees", angles[ratio], angles[1.0])


def rotation_angle(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angle (run,) in degrees, 0 to 45, by which maps (run, 4) rotate the square, whatever axis becomes which.

    The orthogonal factor of the polar decomposition of T, up to signed permutations.

    >>> rotation_angle(np.array([[0.0, 2.0, -2.0, 0.0], [1.0, -1.0, 1.0, 1.0]])).round(6).tolist()
    [0.0, 45.0]
    """
    left, _, right = np.linalg.svd(maps.reshape(-1, 2, 2))
    factor = np.abs(left @ right)
    return np.degrees(np.arctan2(factor.min((1, 2)), factor.max((1, 2))))


def plot_ratios(tables: Tables) -> Figure:
    """Runs as dots at every ratio, the published cells beside them."""
    figure, axes = panels(["distance to orthogonality", "disentanglement score"], width=3.0, height=2.5)
    for panel, name, published in zip(axes, ("dto", SCORE), (RATIO_DTO, RATIO_DISENT), strict=True):
        runs = {f"{ratio:g}": [own[name]] for ratio, own in _runs(tables).items()}
        cells = {f"{ratio:g}": cell for ratio, cell in published.items()}
        columns(panel, runs, published=cells, labels=["runs"])
        finish(panel, "ratio of the factors' scales")
    finish(axes[0], legend="best")
    return figure


def plot_squares(tables: Tables) -> Figure:
    """The square, and its representation by four restarts at equal scales."""
    runs = _runs(tables)[1.0].sort_values("seed")[:4]
    grid = np.stack(np.meshgrid(*[np.linspace(-0.5, 0.5, 18)] * 2), -1).reshape(-1, 2)
    titles = ["generating factors", *(f"restart {restart + 1}" for restart in range(len(runs)))]
    figure, axes = panels(titles, width=1.9, height=2.0)
    maps = [np.eye(2), *runs[MAP].to_numpy().reshape(-1, 2, 2)]
    for panel, matrix in zip(axes, maps, strict=True):
        look = {"c": grid[:, 0] - 0.3 * grid[:, 1], "cmap": "viridis", "s": 4, "linewidths": 0}
        panel.scatter(*(grid @ matrix.T).T, **look)
        blank(panel)
    return figure


RATIO_PRESETS: dict[Scale, Training] = {
    "smoke": Training(smoke(LINEAR)),
    "laptop": Training(quick(LINEAR)),
    "full": Training(LINEAR.replace(seeds=30)),
}
"""Both artefacts look at the same trainings."""

TABLE_S4 = Artefact(
    key="rolinek2019.table_s4",
    title="Table S4: the ratio of two factors' scales",
    claims=(
        Values("Table S4: DtO and disentanglement score by the ratio of the factors' scales", _ratio_cells),
        Orders("§9.2: the degeneracy of equal scales disappears even for small rescaling", _ratio_orders),
    ),
    presets=RATIO_PRESETS,
    measure=measure_ratios,
    plot=plot_ratios,
)
FIGURE_S5 = Artefact(
    key="rolinek2019.figure_s5",
    title="Figure S5: representations of a square at equal scales",
    claims=(
        Bounds(
            "Figure S5: arbitrarily rotated representations at equal scales, aligned ones otherwise",
            _alignments,
            statistic="median",
        ),
        Orders("§9.2: with unequal scales the right alignment is found", _angle_orders),
    ),
    presets=RATIO_PRESETS,
    measure=measure_ratios,
    plot=plot_squares,
)
