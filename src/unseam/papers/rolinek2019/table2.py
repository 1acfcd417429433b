"""Table 2 of rolinek2019: distance to orthogonality and score of four models, one artefact per data set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from unseam.data import MissingFileError
from unseam.drawing import COLOURS, panels
from unseam.geometry import distance_to_orthogonality, local_basis, right_basis
from unseam.papers.artefact import Artefact, Scale, Workplace, missing_table
from unseam.papers.claims import Cell, Order, Orders, Row, Values
from unseam.papers.measures import SCORE
from unseam.papers.rolinek2019._draws import orthogonal
from unseam.papers.rolinek2019.runs import at_beta, last, run_column
from unseam.papers.rolinek2019.setups import (
    BETA,
    COLUMNS,
    FASHION,
    LINEAR,
    LINEAR_FAMILY,
    MNIST,
    NAMES,
    NONLINEAR,
    NONLINEAR_FAMILY,
    RESTARTS,
    SHORT,
    SPRITES,
    Setup,
    add_family,
    quick,
    smoke,
)
from unseam.papers.rolinek2019.table1 import plot_missing
from unseam.training import learner

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["DISENT", "DTO", "TABLE2"]

DTO: dict[str, Mapping[str, Cell]] = {
    "sprites": {
        "β-VAE": Cell(0.76, 0.08),
        "VAE": Cell(1.08, 0.15),
        "AE": Cell(1.62, 0.03),
        "β-VAE_Σ": Cell(1.73, 0.14),
        "random": Cell(1.86, 0.11),
    },
    "linear": {
        "β-VAE": Cell(0.00, 0.00),
        "AE": Cell(0.33, 0.18),
        "β-VAE_Σ": Cell(0.34, 0.35),
        "random": Cell(0.79, 0.21),
    },
    "nonlinear": {
        "β-VAE": Cell(0.18, 0.02),
        "AE": Cell(0.54, 0.13),
        "β-VAE_Σ": Cell(0.55, 0.02),
        "random": Cell(0.89, 0.16),
    },
    "mnist": {
        "VAE": Cell(1.59, 0.08),
        "AE": Cell(1.83, 0.05),
        "β-VAE_Σ": Cell(1.93, 0.08),
        "random": Cell(2.11, 0.11),
    },
    "fashion_mnist": {
        "VAE": Cell(1.36, 0.05),
        "AE": Cell(1.87, 0.03),
        "β-VAE_Σ": Cell(2.02, 0.08),
        "random": Cell(2.11, 0.11),
    },
}
DISENT: dict[str, Mapping[str, Cell]] = {
    "sprites": {
        "β-VAE": Cell(0.33, 0.15),
        "VAE": Cell(0.21, 0.10),
        "AE": Cell(0.09, 0.04),
        "β-VAE_Σ": Cell(0.12, 0.06),
    },
    "linear": {"β-VAE": Cell(0.99, 0.01), "AE": Cell(0.71, 0.19), "β-VAE_Σ": Cell(0.71, 0.31)},
    "nonlinear": {"β-VAE": Cell(0.73, 0.16), "AE": Cell(0.59, 0.30), "β-VAE_Σ": Cell(0.42, 0.24)},
}
DTO["dsprites"], DISENT["dsprites"] = DTO["sprites"], DISENT["sprites"]
RANDOM = {
    "random": "entries from U[0, 1]",
    "random rotations": "Haar-random V",
    "untrained": "untrained networks",
}
"""Random decoders; the text does not say which Table 2 has, but the first kind has its numbers on all data sets."""


@dataclass(frozen=True)
class Settings:
    """The trainings of a data set, and the draws of each kind of random decoder."""

    setups: tuple[Setup, ...]
    draws: int = 50


def measure(settings: Settings, place: Workplace) -> Tables:
    """Every model at the end of its training, and random decoders."""
    import pandas as pd

    world = settings.setups[0].base.world
    try:
        parts = [run_column(setup, column, place) for setup in settings.setups for column in setup.columns]
        random = _random(settings)
    except MissingFileError as error:
        return missing_table({NAMES[world]: error})
    ends = last(at_beta(pd.concat([part.members for part in parts], ignore_index=True), BETA[world]))
    shown = [name for name in ("column", "seed", "dto", SCORE) if name in ends]
    return {
        "members": ends[shown].assign(world=world),
        "random": random,
        "trainings": pd.concat([part.trainings for part in parts], ignore_index=True),
    }


def _random(settings: Settings) -> pd.DataFrame:
    """DtO of matrices with independent entries, of random rotations, and of networks before their training."""
    import pandas as pd

    setup, count = settings.setups[0], settings.draws
    shape, latent = setup.load().shape, setup.base.latent
    draw = torch.Generator().manual_seed(0)
    entries = torch.rand(count, math.prod(shape), latent, generator=draw, dtype=torch.float64)
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


def cells(tables: Tables) -> Iterator[Row]:
    """DtO, and the score where the data set has factors."""
    members = tables["members"]
    world, each = str(members["world"].iloc[0]), members.groupby("column")
    random = {str(kind): draws for kind, draws in tables["random"].items()}
    notes = {"random": RANDOM["random"]}
    yield Row("DtO", DTO[world], {str(column): own["dto"] for column, own in each} | random, notes)
    if world in DISENT:
        yield Row("Disent.", DISENT[world], {str(column): own[SCORE] for column, own in each})


def orders(tables: Tables) -> Iterator[Order]:
    """Models with a diagonal posterior against both controls."""
    runs = {str(column): own for column, own in tables["members"].groupby("column")}
    for model in (column for column in ("β-VAE", "VAE") if column in runs):
        for control in ("AE", "β-VAE_Σ"):
            ours, theirs = runs[model], runs[control]
            yield Order(f"DtO of {model} less that of {control}", ours["dto"], theirs["dto"])
            if SCORE in ours:
                yield Order(f"Disent. of {control} less that of {model}", theirs[SCORE], ours[SCORE])


def plot(tables: Tables) -> Figure:
    """DtO, and the score where there are factors: runs as dots beside the published mean ± SD."""
    if "missing" in tables:
        return plot_missing()
    members, random = tables["members"], tables["random"]
    world = members["world"].iloc[0]
    shown = [("dto", "distance to orthogonality", DTO[world])]
    if world in DISENT:
        shown.append((SCORE, "disentanglement score", DISENT[world]))
    figure, axes = panels([title for _, title, _ in shown], width=3.6, height=2.7)
    for panel, (name, _, published) in zip(axes, shown, strict=True):
        columns = [column for column in COLUMNS if column in published]
        for position, column in enumerate(columns):
            plot_cell(panel, position, members[members["column"] == column][name], published[column])
        panel.set_xticks(range(len(columns)), [column.replace("_Σ", " Σ") for column in columns])
        panel.set_xlim(-0.6, len(columns) - 0.4)
        lowest = panel.get_ylim()[0]
        panel.set_ylim(bottom=min(0.0, lowest) if lowest < 1 else None)
    means = random.mean()[["random", "random rotations"]]
    axes[0].set_ylim(top=max(axes[0].get_ylim()[1], 1.02 * means.max()))
    for (kind, mean), style in zip(means.items(), ("--", ":"), strict=True):
        axes[0].axhline(mean, color="grey", linewidth=0.8, linestyle=style)
        where = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7}
        axes[0].annotate(RANDOM[str(kind)], (1.01, mean), **where)
    return figure


def plot_cell(panel: Any, position: float, runs: Any, published: Cell) -> None:
    """Runs as dots, the published mean ± SD left of them."""
    spread = [0.12 * (turn % 5 - 2) / 2 for turn in range(len(runs))]
    panel.plot([position + 0.15 + s for s in spread], runs, "o", color=COLOURS[0], markersize=3, alpha=0.7)
    style = {"fmt": "s", "color": COLOURS[1], "markersize": 4, "capsize": 3}
    panel.errorbar(position - 0.2, published.mean, published.sd, **style)


def _artefact(setups: Mapping[Scale, tuple[Setup, ...]], note: str = "") -> Artefact:
    world = setups["smoke"][0].base.world
    both = " and disentanglement score" if world in DISENT else ""
    return Artefact(
        key=f"rolinek2019.table2_{SHORT[world]}",
        title=f"Table 2, {NAMES[world]}: DtO{both}",
        claims=(
            Values(f"Table 2, {NAMES[world]}: DtO{both} of models", cells),
            Orders(
                f"§5.3, {NAMES[world]}: with a diagonal posterior the decoder is closer to orthogonal than without"
                + (", and codes disentangle better" if world in DISENT else ""),
                orders,
            ),
        ),
        presets={scale: Settings(given) for scale, given in setups.items()},
        measure=measure,
        plot=plot,
        note=note,
    )


TABLE2 = (
    _artefact({"smoke": (smoke(SPRITES, latent=3),), "full": add_family(RESTARTS, SPRITES)}),
    _artefact(
        {"smoke": (smoke(LINEAR),), "laptop": (quick(LINEAR),), "full": add_family(LINEAR_FAMILY, LINEAR)},
        note="β as printed, with the square loss of Eq. 11; artefact `convention_linear` has other scales of the "
        "loss.",
    ),
    _artefact(
        {
            "smoke": (smoke(NONLINEAR),),
            "laptop": (quick(NONLINEAR),),
            "full": add_family(NONLINEAR_FAMILY, NONLINEAR),
        },
        note="Judged on one random map, that of seed 0; artefact `maps` repeats it on twelve.",
    ),
    _artefact({"smoke": (smoke(MNIST),), "full": (MNIST,)}),
    _artefact({"smoke": (smoke(FASHION),), "full": (FASHION,)}),
)
