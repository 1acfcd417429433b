"""Beyond rolinek2019: what the random map behind Synth. Non-Lin. decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unseam import geometry
from unseam.data import ArrayWorld, World
from unseam.drawing import panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Bound, Bounds, Correlation, Correlations, Order, Orders, Row, Values
from unseam.papers.measures import SCORE
from unseam.papers.rolinek2019.along import STYLES
from unseam.papers.rolinek2019.runs import POLARISED, last, run_column
from unseam.papers.rolinek2019.setups import BETA, COLUMNS, NONLINEAR, Setup, quick, smoke
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

    members, trainings, maps = [], [], []
    options = settings.setup.base.world_options
    for seed in range(settings.maps):
        setup = settings.setup.replace(world_options=(*options, ("seed", seed)))
        parts = {column: run_column(setup, column, place) for column in setup.columns}
        members += [last(part.members).assign(map=seed) for part in parts.values()]
        trainings += [part.trainings.assign(map=seed) for part in parts.values()]
        ends = {"delta_kl": float(parts["β-VAE"].regime["mean"].iloc[-1])}
        maps.append({"map": seed} | _measure_map(setup.load()) | ends)
    return {
        "members": pd.concat(members, ignore_index=True)[["map", "column", "seed", "dto", SCORE]],
        "maps": pd.DataFrame(maps),
        "trainings": pd.concat(trainings, ignore_index=True),
    }


def _measure_map(world: World) -> dict[str, float]:
    """How far a map's own columns are from orthogonal, and the variance of what it gives."""
    assert isinstance(world, ArrayWorld) and world.generator is not None
    basis = geometry.right_basis(geometry.pullback(world.generator, world.factors[:1000].double()))
    return {
        "dto": float(geometry.distance_to_orthogonality(basis.right_vectors).mean()),
        "variance": float(world.generator(world.factors.double()).var(0).sum()),
    }


def _means(tables: Tables) -> pd.DataFrame:
    """Means over runs by map, with columns (measure, column)."""
    return tables["members"].pivot_table(index="map", columns="column", values=["dto", SCORE])


def regimes(tables: Tables) -> Iterator[Bound]:
    """Share of maps on which training ends in the polarised regime."""
    errors = tables["maps"]["delta_kl"]
    share = int((errors < POLARISED).sum()), len(errors)
    yield Bound(
        "maps on which β-VAEs end with Δ_KL < 3 %", "most maps: at least half", share=share, least=0.5
    )


def orders(tables: Tables) -> Iterator[Order]:
    """β-VAE against each control, on the same maps."""
    dto, score = (_means(tables)[name] for name in ("dto", SCORE))
    for other in (column for column in dto if column != "β-VAE"):
        yield Order(f"DtO of β-VAE less that of {other}", dto["β-VAE"], dto[other], paired=True)
        yield Order(f"score of {other} less that of β-VAE", score[other], score["β-VAE"], paired=True)


def cells(tables: Tables) -> Iterator[Row]:
    """Table 2's cells against the average over maps."""
    means = _means(tables)
    for name, words, published in (("dto", "DtO", DTO), (SCORE, "Disent.", DISENT)):
        yield Row(
            f"{words}, mean over maps",
            published[WORLD],
            {str(column): own for column, own in means[name].items()},
        )


def own_axes(tables: Tables) -> Iterator[Correlation]:
    """The map's own DtO against the β-VAE's score."""
    own = tables["maps"].set_index("map")["dto"]
    yield Correlation("the map's own DtO and the β-VAE's score", own, _means(tables)[SCORE]["β-VAE"])


def plot(tables: Tables) -> Figure:
    """Score and DtO against the map's own DtO, mean and range over runs, published dashed; Δ_KL against variance."""
    members, maps = tables["members"], tables["maps"].set_index("map")
    titles = ["disentanglement score", "DtO of trained decoders", "Δ_KL of β-VAEs at the end"]
    figure, (score, distance, regime) = panels(titles, width=2.9, height=2.6)
    columns = [column for column in COLUMNS if (members["column"] == column).any()]
    for axes, name, published in ((score, SCORE, DISENT), (distance, "dto", DTO)):
        for position, column in enumerate(columns):
            runs = members[members["column"] == column].groupby("map")[name]
            mean, colour = runs.mean(), STYLES[column]
            # side by side, so that none hides another's range
            at = maps["dto"].reindex(mean.index) + 0.014 * (position - (len(columns) - 1) / 2)
            axes.vlines(at, runs.min(), runs.max(), color=colour, linewidth=0.9, alpha=0.6)
            axes.plot(at, mean, "o", color=colour, markersize=4, label=column.replace("_Σ", " Σ"))
            axes.axhline(published[WORLD][column].mean, color=colour, linestyle="--", linewidth=0.8)
        axes.set_xlabel("DtO of the map itself", fontsize=8)
        axes.set_ylim(bottom=0)
    regime.plot(maps["variance"], maps["delta_kl"], "o", color=STYLES["β-VAE"], markersize=4)
    regime.axhline(POLARISED, color="grey", linestyle="--", linewidth=0.8)
    regime.set_yscale("log")
    regime.set_xlim(left=0)
    regime.set_xlabel("variance of the data", fontsize=8)
    handles = score.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _on_maps(setup: Setup, seeds: int) -> Setup:
    return setup.replace(seeds=seeds, records=1, betas=(BETA[WORLD],))


MAPS = Artefact(
    key="rolinek2019.maps",
    title="Beyond the paper: Synth. Non-Lin. over random maps, trained as at laptop scale",
    claims=(
        Bounds("Table 1 on other maps: training ends in the polarised regime", regimes, ours=True),
        Orders("Table 2 on other maps: β-VAE has lower DtO and a higher score", orders, ours=True),
        Values("Table 2 on other maps: cells as means over maps", cells, ours=True),
        Correlations(
            "β-VAEs disentangle the square where its axes are orthogonal in data space", own_axes, ours=True
        ),
    ),
    presets={
        "smoke": Settings(_on_maps(smoke(NONLINEAR), 2), 4),
        "laptop": Settings(_on_maps(quick(NONLINEAR, columns=("β-VAE", "AE")), 2), 6),
        "full": Settings(_on_maps(quick(NONLINEAR), 5), 12),
    },
    measure=measure,
    plot=plot,
    note="Synth. Non-Lin. is the image of a square under one random network (Suppl. 8.5), which is not "
    "published. Made "
    "after Table 2 was measured on one map.",
)
