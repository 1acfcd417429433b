"""Beyond rolinek2019: what the random map behind Synth. Non-Lin. decides."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from unseam import geometry
from unseam.data import ArrayWorld, World
from unseam.drawing import panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.papers.rolinek2019.along import STYLES
from unseam.papers.rolinek2019.cells import LEVEL, cell, correlated
from unseam.papers.rolinek2019.measures import SCORE
from unseam.papers.rolinek2019.runs import POLARISED, followed, last
from unseam.papers.rolinek2019.setups import COLUMNS, JUDGED, NONLINEAR, Setup, quick, smoke
from unseam.papers.rolinek2019.table2 import DISENT, DTO

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["MAPS"]

WORLD = "nonlinear"


@dataclass(frozen=True)
class Settings:
    """The training, and how many random maps it is repeated on."""

    setup: Setup
    maps: int


def measure(settings: Settings, place: Workplace) -> Tables:
    """Train every column on every map, and measure the map itself as one measures a decoder."""
    import pandas as pd

    members, trainings, regimes, embeddings = [], [], [], []
    for seed in range(settings.maps):
        setup = dataclasses.replace(settings.setup, options=(*settings.setup.options, ("seed", seed)))
        embeddings.append({"map": seed} | _about(setup.load()))
        for column in setup.columns:
            part = followed(setup, column, place)
            members.append(last(part.members).assign(map=seed))
            trainings.append(part.trainings.assign(map=seed))
            regimes.append(part.regime.tail(1).assign(map=seed))
    tables = {
        "members": pd.concat(members, ignore_index=True),
        "maps": pd.DataFrame(embeddings),
        "trainings": pd.concat(trainings, ignore_index=True),
    }
    ends = pd.concat(regimes, ignore_index=True).set_index("map")["mean"]
    tables["maps"]["delta_kl"] = tables["maps"]["map"].map(ends)
    return tables


def _about(world: World) -> dict[str, float]:
    """How far a map's own columns are from orthogonal, and the variance of what it gives."""
    assert isinstance(world, ArrayWorld) and world.generator is not None
    basis = geometry.right_basis(geometry.pullback(world.generator, world.factors[:1000].double()))
    return {
        "dto": float(geometry.distance_to_orthogonality(basis.right_vectors).mean()),
        "variance": float(world.generator(world.factors.double()).var(0).sum()),
    }


def judge(tables: Tables) -> Judgement:
    """Published numbers among those of the maps, orders over maps, and what the map itself decides."""
    members, maps = tables["members"], tables["maps"]
    means = members.pivot_table(index="map", columns="column", values=["dto", SCORE])
    found = [
        _among(f"{column}: {words}", cells[WORLD][column].mean, means[name][column])
        for name, words, cells in (("dto", "DtO", DTO), (SCORE, "score", DISENT))
        for column in means[name].columns
    ]
    found.append(_among("β-VAE: Δ_KL at the end", POLARISED, maps["delta_kl"], below=True))
    found.append(_together(members))
    for other in (column for column in means["dto"].columns if column != "β-VAE"):
        found += [
            _paired(
                f"DtO of β-VAE less that of {other}, over maps", means["dto"]["β-VAE"], means["dto"][other]
            ),
            _paired(
                f"score of {other} less that of β-VAE, over maps", means[SCORE][other], means[SCORE]["β-VAE"]
            ),
        ]
    found.append(
        correlated(
            "rank correlation of the map's own DtO and the β-VAE's score",
            maps["dto"],
            means[SCORE]["β-VAE"],
            of="maps",
        )
    )
    return Judgement(tuple(found))


def _together(members: pd.DataFrame) -> Finding:
    """On how many maps all published cells are reproduced at once, by the rule of Table 2."""
    cells = [
        (name, column, said)
        for name, published in (("dto", DTO), (SCORE, DISENT))
        for column, said in published[WORLD].items()
        if (members["column"] == column).any()
    ]
    met = {
        int(str(seed)): sum(
            cell("", said, part[part["column"] == column][name]).verdict == "reproduced"
            for name, column, said in cells
        )
        for seed, part in members.groupby("map")
    }
    whole = [str(seed) for seed, count in met.items() if count == len(cells)]
    return Finding(
        f"maps on which all {len(cells)} published cells of Table 2 are reproduced at once",
        "at least 1",
        float(len(whole)),
        None,
        None,
        "reproduced" if whole else "not reproduced",
        f"of {len(met)}{': map ' if whole else ''}{', '.join(whole)}",
    )


def _among(quantity: str, published: float, values: ArrayLike, *, below: bool = False) -> Finding:
    """Whether a published number is one of those that maps give; measured is the median of maps' means."""
    own = np.asarray(values, dtype=float)
    low, high = float(own.min()), float(own.max())
    inside = low < published if below else low <= published <= high
    count = f"{int((own < published).sum())} of {len(own)} maps below"
    return Finding(
        quantity,
        f"< {published:g}" if below else f"{published:.2f}",
        float(np.median(own)),
        low,
        high,
        "reproduced" if inside else "not reproduced",
        f"median, least and greatest over maps; {count}",
    )


def _paired(quantity: str, smaller: ArrayLike, larger: ArrayLike) -> Finding:
    """Whether one kind of model lies below another on the same maps; measured is the mean difference."""
    from scipy import stats

    difference = np.asarray(smaller, dtype=float) - np.asarray(larger, dtype=float)
    chance = float(stats.wilcoxon(difference, alternative="less").pvalue)
    return Finding(
        quantity,
        "< 0",
        float(difference.mean()),
        None,
        None,
        "reproduced" if chance < LEVEL else "not reproduced",
        f"{int((difference < 0).sum())} of {len(difference)} maps, p = {chance:.2g}",
    )


def draw(tables: Tables) -> Figure:
    """Score and DtO against the map's own DtO, mean and range over runs, published dashed; Δ_KL against variance."""
    members, maps = tables["members"], tables["maps"].set_index("map")
    titles = ["disentanglement score", "DtO of trained decoders", "Δ_KL of β-VAEs at the end"]
    figure, (score, distance, regime) = panels(titles, width=2.9, height=2.6)
    columns = [column for column in COLUMNS if (members["column"] == column).any()]
    for axes, name, cells in ((score, SCORE, DISENT), (distance, "dto", DTO)):
        for place, column in enumerate(columns):
            runs = members[members["column"] == column].groupby("map")[name]
            mean, colour = runs.mean(), STYLES[column]
            # beside each other, so that none hides another's range
            at = maps["dto"].reindex(mean.index) + 0.014 * (place - (len(columns) - 1) / 2)
            axes.vlines(at, runs.min(), runs.max(), color=colour, linewidth=0.9, alpha=0.6)
            axes.plot(at, mean, "o", color=colour, markersize=4, label=column.replace("_Σ", " Σ"))
            axes.axhline(cells[WORLD][column].mean, color=colour, linestyle="--", linewidth=0.8)
        axes.set_xlabel("DtO of the map itself", fontsize=8)
        axes.set_ylim(bottom=0)
    regime.plot(maps["variance"], maps["delta_kl"], "o", color=STYLES["β-VAE"], markersize=4)
    regime.axhline(POLARISED, color="grey", linestyle="--", linewidth=0.8)
    regime.set_yscale("log")
    regime.set_xlim(left=0)
    regime.set_xlabel("variance of the data", fontsize=8)
    figure.legend(
        *score.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False
    )
    return figure


def _on_maps(setup: Setup, seeds: int) -> Setup:
    return dataclasses.replace(setup, seeds=seeds, records=1, betas=(JUDGED[WORLD],))


MAPS = Artefact(
    key="rolinek2019.maps",
    title="Beyond the paper: Synth. Non-Lin. over random maps, trained as at laptop scale",
    claim="Synth. Non-Lin. is the image of a square under one random network (Suppl. 8.5), which is not published. Its "
    "numbers in Tables 1 and 2 should be among those that other random networks give, and orders hold there too.",
    criterion="Made after Table 2 was measured on one map, and all cells at once asked for after a first look. "
    "A published mean lies between the least and the greatest of "
    "the maps' means, and on some map all cells of Table 2 are reproduced by its rule. Orders hold where a "
    "one-sided Wilcoxon test over maps gives p < 0.05. The 95 % bootstrap interval of the rank correlation between the "
    "map's own DtO and the β-VAE's score lies below zero.",
    presets={
        "smoke": Settings(_on_maps(smoke(NONLINEAR), 2), 4),
        "laptop": Settings(_on_maps(dataclasses.replace(quick(NONLINEAR), columns=("β-VAE", "AE")), 2), 6),
        "full": Settings(_on_maps(quick(NONLINEAR), 5), 12),
    },
    measure=measure,
    judge=judge,
    draw=draw,
)
