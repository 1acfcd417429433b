"""Table 2 of rolinek2019: distance to orthogonality and score of four models, an artefact for each data set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from unseam.data import MissingFileError
from unseam.drawing import COLOURS, panels
from unseam.geometry import haar_dto, random_decoder_dto, uniform_dto
from unseam.papers.artefact import Artefact, Finding, Judgement, Scale, Workplace
from unseam.papers.rolinek2019._findings import draw_missing, missing_findings, missing_table
from unseam.papers.rolinek2019.cells import CELL_RULE, ORDER_RULE, Published, cell, order
from unseam.papers.rolinek2019.measures import SCORE
from unseam.papers.rolinek2019.runs import at_beta, followed, last
from unseam.papers.rolinek2019.setups import (
    COLUMNS,
    FASHION,
    JUDGED,
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
    beside,
    quick,
    smoke,
)
from unseam.training import learner

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["TABLE2"]

DTO: dict[str, Mapping[str, Published]] = {
    "sprites": {
        "β-VAE": Published(0.76, 0.08),
        "VAE": Published(1.08, 0.15),
        "AE": Published(1.62, 0.03),
        "β-VAE_Σ": Published(1.73, 0.14),
        "random": Published(1.86, 0.11),
    },
    "linear": {
        "β-VAE": Published(0.00, 0.00),
        "AE": Published(0.33, 0.18),
        "β-VAE_Σ": Published(0.34, 0.35),
        "random": Published(0.79, 0.21),
    },
    "nonlinear": {
        "β-VAE": Published(0.18, 0.02),
        "AE": Published(0.54, 0.13),
        "β-VAE_Σ": Published(0.55, 0.02),
        "random": Published(0.89, 0.16),
    },
    "mnist": {
        "VAE": Published(1.59, 0.08),
        "AE": Published(1.83, 0.05),
        "β-VAE_Σ": Published(1.93, 0.08),
        "random": Published(2.11, 0.11),
    },
    "fashion_mnist": {
        "VAE": Published(1.36, 0.05),
        "AE": Published(1.87, 0.03),
        "β-VAE_Σ": Published(2.02, 0.08),
        "random": Published(2.11, 0.11),
    },
}
DISENT: dict[str, Mapping[str, Published]] = {
    "sprites": {
        "β-VAE": Published(0.33, 0.15),
        "VAE": Published(0.21, 0.10),
        "AE": Published(0.09, 0.04),
        "β-VAE_Σ": Published(0.12, 0.06),
    },
    "linear": {
        "β-VAE": Published(0.99, 0.01),
        "AE": Published(0.71, 0.19),
        "β-VAE_Σ": Published(0.71, 0.31),
    },
    "nonlinear": {
        "β-VAE": Published(0.73, 0.16),
        "AE": Published(0.59, 0.30),
        "β-VAE_Σ": Published(0.42, 0.24),
    },
}


DTO["dsprites"], DISENT["dsprites"] = DTO["sprites"], DISENT["sprites"]


@dataclass(frozen=True)
class Settings:
    """The trainings of a row, the β of its β-VAEs, and the draws of its random decoders."""

    setups: tuple[Setup, ...]
    beta: float
    random: int = 100


def measure(settings: Settings, place: Workplace) -> Tables:
    """Every column along its training, and random decoders."""
    import pandas as pd

    world = settings.setups[0].world
    try:
        parts = [followed(setup, column, place) for setup in settings.setups for column in setup.columns]
    except MissingFileError as error:
        return {"missing": missing_table({world: error})}
    members = at_beta(pd.concat([part.members for part in parts], ignore_index=True), settings.beta)
    members.insert(0, "world", world)
    trainings = pd.concat([part.trainings for part in parts], ignore_index=True)
    return {"members": members, "random": _random(settings), "trainings": trainings}


def judge(tables: Tables) -> Judgement:
    """The end of every column against the published cells and against each other."""
    if "missing" in tables:
        return Judgement(missing_findings(tables))
    members, random = tables["members"], tables["random"]
    world, ends = members["world"].iloc[0], last(members)
    found = (*_cells(ends, world), *_orders(ends, world), *_baselines(random, world))
    return Judgement(found, _note(ends, world))


def _cells(ends: pd.DataFrame, world: str) -> list[Finding]:
    return [
        cell(f"{column}: {words}", published[column], ends[ends["column"] == column][name].to_numpy())
        for name, words, published in (
            ("dto", "DtO", DTO[world]),
            (SCORE, "Disent.", DISENT.get(world, {})),
        )
        for column in COLUMNS
        if column in published
    ]


def _orders(ends: pd.DataFrame, world: str) -> list[Finding]:
    """The diagonal posterior against both controls."""
    best = next(column for column in COLUMNS if column in DTO[world])
    runs = {column: part for column, part in ends.groupby("column")}
    found = []
    for other in ("AE", "β-VAE_Σ"):
        found.append(order(f"DtO of {best} less that of {other}", runs[best]["dto"], runs[other]["dto"]))
        if world in DISENT:
            words = f"Disent. of {other} less that of {best}"
            found.append(order(words, runs[other][SCORE], runs[best][SCORE]))
    return found


def _random(settings: Settings) -> pd.DataFrame:
    """Three random decoders: i.i.d. matrices as in the paper, Haar-random V, and untrained networks."""
    import pandas as pd

    setup = settings.setups[0]
    world = setup.load()
    draw = torch.Generator().manual_seed(0)
    model = learner(setup.trials("AE", world)[0], world.shape, size=2).model
    z = torch.randn(50, setup.latent, generator=draw)
    data = math.prod(world.shape)
    found = {
        "entries from U[0, 1]": uniform_dto(data, setup.latent, samples=settings.random, generator=draw),
        "random orthogonal V": haar_dto(setup.latent, samples=10 * settings.random, generator=draw),
        "untrained networks": random_decoder_dto(
            model.decoder, z, seeds=max(2, settings.random // 5), generator=draw
        ),
    }
    return pd.DataFrame([{"kind": kind, "mean": one.mean, "std": one.std} for kind, one in found.items()])


def _baselines(random: pd.DataFrame, world: str) -> list[Finding]:
    published = DTO[world]["random"]
    uniform = random.iloc[0]
    agrees = abs(uniform["mean"] - published.mean) <= 2 * math.hypot(uniform["std"], published.std)
    others = ", ".join(
        f"{row['kind']} {row['mean']:.2f} ± {row['std']:.2f}" for _, row in random[1:].iterrows()
    )
    return [
        Finding(
            "random decoder, entries from U[0, 1]: DtO",
            str(published),
            float(uniform["mean"]),
            None,
            None,
            "reproduced" if agrees else "not reproduced",
            f"± {uniform['std']:.2f}; {others}",
        )
    ]


def _note(ends: pd.DataFrame, world: str) -> str:
    wanted = ("dto", "dto_active", "dto_weighted", "dto_means", "disent", "active")
    means = ends.groupby("column")[[name for name in wanted if name in ends]].mean()
    lines = "; ".join(
        f"{column}: " + ", ".join(f"{name} {value:.2f}" for name, value in row.items())
        for column, row in means.iterrows()
    )
    return (
        f"Means over runs on {NAMES[world]}, test part. DtO is that of the decoder's output, over all latents (dto), "
        f"over active ones, in the likelihood's metric, and of the likelihood's mean. {lines}."
    )


def draw(tables: Tables) -> Figure:
    """DtO, and the score where there are factors: runs as dots beside the published mean ± standard deviation."""
    if "missing" in tables:
        return draw_missing()
    members, random = tables["members"], tables["random"]
    world = members["world"].iloc[0]
    shown = [("dto", "distance to orthogonality", DTO[world])]
    if world in DISENT:
        shown.append((SCORE, "disentanglement score", DISENT[world]))
    figure, axes = panels([title for _, title, _ in shown], width=3.6, height=2.7)
    ends = last(members)
    for panel, (name, _, published) in zip(axes, shown, strict=True):
        columns = [column for column in COLUMNS if column in published]
        for place, column in enumerate(columns):
            _draw_column(panel, place, ends[ends["column"] == column][name].to_numpy(), published[column])
        panel.set_xticks(range(len(columns)), [column.replace("_Σ", " Σ") for column in columns])
        panel.set_xlim(-0.6, len(columns) - 0.4)
        lowest = panel.get_ylim()[0]
        panel.set_ylim(bottom=min(0.0, lowest) if lowest < 1 else None)
    axes[0].set_ylim(top=max(axes[0].get_ylim()[1], 1.02 * random["mean"][:2].max()))
    for (_, row), style in zip(random.iterrows(), ("--", ":"), strict=False):
        axes[0].axhline(row["mean"], color="grey", linewidth=0.8, linestyle=style)
        axes[0].annotate(
            row["kind"],
            (1.01, row["mean"]),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7,
        )
    return figure


def _draw_column(panel: Any, place: int, runs: Any, published: Published) -> None:
    spread = [0.12 * (turn % 5 - 2) / 2 for turn in range(len(runs))]
    panel.plot([place + 0.15 + s for s in spread], runs, "o", color=COLOURS[0], markersize=3, alpha=0.7)
    panel.errorbar(
        place - 0.2, published.mean, published.std, fmt="s", color=COLOURS[1], markersize=4, capsize=3
    )


def _artefact(beta: float, setups: Mapping[Scale, tuple[Setup, ...]]) -> Artefact:
    world = setups["smoke"][0].world
    return Artefact(
        key=f"rolinek2019.table2_{SHORT[world]}",
        title=f"Table 2, {NAMES[world]}: DtO" + (" and disentanglement score" if world in DISENT else ""),
        claim="Models with a diagonal posterior have decoders closer to orthogonal than an autoencoder and than a full "
        "covariance, and disentangle better; those lie near random decoders.",
        criterion=f"{CELL_RULE} {ORDER_RULE} The diagonal posterior's DtO must lie below both controls', and its score "
        "above.",
        presets={scale: Settings(given, beta) for scale, given in setups.items()},
        measure=measure,
        judge=judge,
        draw=draw,
    )


TABLE2 = (
    _artefact(
        4.0,
        {
            "smoke": (smoke(SPRITES, latent=3),),
            "full": beside(RESTARTS, SPRITES),
        },
    ),
    _artefact(
        JUDGED["linear"],
        {"smoke": (smoke(LINEAR),), "laptop": (quick(LINEAR),), "full": beside(LINEAR_FAMILY, LINEAR)},
    ),
    _artefact(
        JUDGED["nonlinear"],
        {
            "smoke": (smoke(NONLINEAR),),
            "laptop": (quick(NONLINEAR),),
            "full": beside(NONLINEAR_FAMILY, NONLINEAR),
        },
    ),
    _artefact(1.0, {"smoke": (smoke(MNIST),), "full": (MNIST,)}),
    _artefact(1.0, {"smoke": (smoke(FASHION),), "full": (FASHION,)}),
)
