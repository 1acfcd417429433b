"""Beyond rolinek2019: its models along training, conventions it leaves open, and other random maps."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch

from unseam import geometry
from unseam.data import ArrayWorld, World, place
from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Bound, Bounds, Correlation, Correlations, Order, Orders, Row, Values
from unseam.papers.measures import ACTIVE, SCORE
from unseam.papers.plots import (
    Figure,
    Tables,
    band,
    dots,
    finish,
    legend_below,
    lines,
    reference,
    where_measured,
)
from unseam.papers.rolinek2019 import runs, setups
from unseam.papers.rolinek2019.runs import POLARISED, Training, Trainings, gather, run_column
from unseam.papers.rolinek2019.setups import BETA, COLUMNS, LINEAR, NAMES, NONLINEAR, Setup, quick, smoke
from unseam.papers.rolinek2019.tables import COLLAPSED, DISENT, DTO, PERCENTAGES
from unseam.papers.tables import columns_of, concatenate, table_of
from unseam.papers.trainings import follow, measure_present
from unseam.training import Ensemble

__all__ = ["ALONG", "CONVENTION", "MAPS", "PARTITION"]

STYLES: dict[str, str] = dict(zip(COLUMNS, COLOURS, strict=False))
WORDS: dict[str, str] = {column: column.replace("_Σ", " Σ") for column in COLUMNS}


# All models along training


def measure_along(settings: Trainings, where: Workplace) -> Tables:
    """Every model at every record, on the data sets whose files are there."""

    def members(setup: Setup) -> Tables:
        world = setup.base.world
        parts = [({"world": world}, run_column(setup, column, where)) for column in setup.columns]
        return gather(parts, ["world", "column", "seed", "epoch", "dto", SCORE], runs.printed)

    return measure_present((NAMES[setup.base.world], partial(members, setup)) for setup in settings.setups)


def _changes(tables: Tables) -> Iterator[Order]:
    """Change of DtO from the first record to the last: diagonal posteriors against both controls."""
    for world, members in tables["members"].groupby("world", sort=False):
        curves = members.pivot(index=["column", "seed"], columns="epoch", values="dto")
        each = {str(column): own.dropna(axis=1, how="all") for column, own in curves.groupby(level="column")}
        change = {column: own.iloc[:, -1] - own.iloc[:, 0] for column, own in each.items()}
        model = next(column for column in COLUMNS if column in each)
        for control in ("AE", "β-VAE_Σ"):
            words = f"{NAMES[str(world)]}: change of DtO along training, {model} less {control}"
            yield Order(words, change[model], change[control])


def plot_along(tables: Tables) -> Figure:
    """One panel of DtO per data set, then one of the score per data set that has one; mean and quartiles over runs."""
    members = tables["members"]
    shown = [
        (name, world, own)
        for name in ("dto", SCORE)
        for world, own in members.groupby("world", sort=False)
        if own[name].notna().any()
    ]
    titles = [f"{'DtO' if name == 'dto' else 'score'}, {NAMES[str(world)]}" for name, world, _ in shown]
    figure, axes = panels(titles, rows=2, width=2.6, height=2.1)
    for panel, (name, _, own) in zip(axes, shown, strict=True):
        for column, part in own.groupby("column", sort=False):
            band(panel, part, "epoch", name, STYLES[str(column)], WORDS[str(column)], quartiles=True)
        finish(panel, "epochs", xscale="log", ylim=(0, None))
    legend_below(figure, axes, 4)
    return figure


ALONG = Artefact(
    key="rolinek2019.along",
    title="Beyond the paper: DtO and score of all models along training",
    claims=(
        Orders(
            "Training with a diagonal posterior rotates latents towards orthogonality: DtO falls further than with a "
            "full covariance or none",
            _changes,
            ours=True,
        ),
    ),
    presets={
        "smoke": Trainings((smoke(LINEAR), smoke(setups.SPRITES, latent=3))),
        "laptop": Trainings((quick(LINEAR), quick(NONLINEAR))),
        "full": Trainings(
            (
                *setups.add_family(setups.LINEAR_FAMILY, LINEAR),
                *setups.add_family(setups.NONLINEAR_FAMILY, NONLINEAR),
                *setups.add_family(setups.RESTARTS, setups.SPRITES),
                setups.MNIST,
                setups.FASHION,
            )
        ),
    },
    measure=measure_along,
    plot=plot_along,
)


# Scale of the loss and batch size, which the text leaves open

LOSSES = {
    "linear": {0.5: "half the sum of squares", 1.0: "sum of squares (Eq. 11)", 3.0: "mean of squares"},
    "nonlinear": {0.5: "half the sum of squares", 1.0: "sum of squares (Eq. 11)", 6.0: "mean of squares"},
}
"""Adam is invariant to a factor before the loss, so each loss is Eq. 11 with so many times the printed β."""


def measure_convention(settings: Trainings, where: Workplace) -> Tables:
    """Distance to orthogonality of every combination along training: batch sizes of one synthetic data set."""
    world = settings.setups[0].base.world

    def named(part: runs.Runs) -> pd.DataFrame:
        losses = (part.members["beta"] / BETA[world]).round(6).map(LOSSES[world])
        return part.members.assign(loss=losses).dropna(subset="loss")

    each = (
        ({"batch": setup.base.batch_size}, run_column(setup, "β-VAE", where)) for setup in settings.setups
    )
    return gather(each, ["column", "batch", "loss", "seed", "epoch", "dto"], named)


def _conventions(tables: Tables) -> Iterator[Row]:
    """Every combination against the published cell."""
    world = str(tables["trainings"]["world"].iloc[0])
    for batch, own in tables["members"].groupby("batch"):
        for loss, ends in runs.last(own).groupby("loss", sort=False):
            yield Row(f"DtO, {loss}, batches of {batch}", DTO[world], {"β-VAE": ends["dto"]})


def plot_convention(tables: Tables) -> Figure:
    """Distance to orthogonality along training, mean and quartiles over runs."""
    each = tables["members"].groupby("batch")
    figure, axes = panels([f"DtO, batches of {batch}" for batch, _ in each], width=3.2, height=2.5)
    for panel, (_, part) in zip(axes, each, strict=True):
        for (loss, own), colour in zip(part.groupby("loss", sort=False), COLOURS, strict=False):
            band(panel, own, "epoch", "dto", colour, str(loss), quartiles=True)
        finish(panel, "epochs", xscale="log", ylim=(0, None), legend="best" if panel is axes[-1] else "")
    return figure


def _convention(setup: Setup, family: Setup) -> Artefact:
    world, batch = setup.base.world, quick(setup).base.batch_size

    def at(setup: Setup, batch_size: int) -> Setup:
        """The same number of epochs in batches of another size."""
        steps = setup.base.steps * setup.base.batch_size // batch_size
        betas = tuple(BETA[world] * scale for scale in LOSSES[world])
        return setup.replace(betas=betas, batch_size=batch_size, steps=steps, columns=("β-VAE",))

    said = f"Table 2's DtO of β-VAE on {NAMES[world]}, {DTO[world]['β-VAE']}"
    return Artefact(
        key=f"rolinek2019.convention_{world}",
        title=f"Beyond the paper, {NAMES[world]}: scale of the loss and batch size against Table 2's DtO",
        claims=(
            Values(
                f"{said}, under each scale of the loss and batch size",
                _conventions,
                ours=True,
                exclusive=True,
            ),
        ),
        presets={
            "smoke": Trainings((at(smoke(setup), 20), at(smoke(setup), 40))),
            "laptop": Trainings((at(quick(setup), batch // 2), at(quick(setup), batch))),
            "full": Trainings((family, at(setup, 100))),
        },
        measure=measure_convention,
        plot=plot_convention,
        note="Neither the scale of the loss nor the batch size is stated.",
    )


CONVENTION = (
    _convention(LINEAR, setups.LINEAR_FAMILY),
    _convention(NONLINEAR, setups.NONLINEAR_FAMILY),
)


# What the random map behind Synth. Non-Lin. decides

WORLD = "nonlinear"


@dataclass(frozen=True)
class MapSettings(Training):
    """The training, and how many random maps it is repeated on."""

    maps: int


def measure_maps(settings: MapSettings, where: Workplace) -> Tables:
    """Train every column on every map, and measure the map itself as one measures a decoder."""
    parts, maps = [], []
    options = settings.setup.base.world_options
    for seed in range(settings.maps):
        setup = settings.setup.replace(world_options=(*options, ("seed", seed)))
        own = {column: run_column(setup, column, where) for column in setup.columns}
        parts += [({"map": seed}, part) for part in own.values()]
        ends = {"delta_kl": float(own["β-VAE"].regime["mean"].iloc[-1])}
        maps.append({"map": seed} | _measure_map(setup.load()) | ends)
    found = gather(parts, ["map", "column", "seed", "dto", SCORE])
    return {"members": found["members"], "maps": pd.DataFrame(maps), "trainings": found["trainings"]}


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


def _regimes(tables: Tables) -> Iterator[Bound]:
    """Share of maps on which training ends in the polarised regime."""
    errors = tables["maps"]["delta_kl"]
    share = int((errors < POLARISED).sum()), len(errors)
    yield Bound(
        "maps on which β-VAEs end with Δ_KL < 3 %", "most maps: at least half", share=share, least=0.5
    )


def _orders(tables: Tables) -> Iterator[Order]:
    """β-VAE against each control, on the same maps."""
    dto, score = (_means(tables)[name] for name in ("dto", SCORE))
    for other in (column for column in dto if column != "β-VAE"):
        yield Order(f"DtO of β-VAE less that of {other}", dto["β-VAE"], dto[other], paired=True)
        yield Order(f"score of {other} less that of β-VAE", score[other], score["β-VAE"], paired=True)


def _cells(tables: Tables) -> Iterator[Row]:
    """Table 2's cells against the average over maps."""
    means = _means(tables)
    for name, words, published in (("dto", "DtO", DTO), (SCORE, "Disent.", DISENT)):
        yield Row(
            f"{words}, mean over maps",
            published[WORLD],
            {str(column): own for column, own in means[name].items()},
            trivial=COLLAPSED if name == SCORE else {},
        )


def _own_axes(tables: Tables) -> Iterator[Correlation]:
    """The map's own DtO against the β-VAE's score."""
    own = tables["maps"].set_index("map")["dto"]
    yield Correlation("the map's own DtO and the β-VAE's score", own, _means(tables)[SCORE]["β-VAE"])


def plot_maps(tables: Tables) -> Figure:
    """Score and DtO against the map's own DtO, mean and range over runs, published dashed; Δ_KL against variance."""
    maps = tables["maps"]
    members = tables["members"].merge(maps[["map", "dto"]], on="map", suffixes=("", " of the map"))
    titles = ["disentanglement score", "DtO of trained decoders", "Δ_KL of β-VAEs at the end"]
    figure, axes = panels(titles, width=2.9, height=2.6)
    for panel, name, published in ((axes[0], SCORE, DISENT), (axes[1], "dto", DTO)):
        for column in dict.fromkeys(members["column"]):
            own = members[members["column"] == column]
            runs = own.groupby("dto of the map")[name]
            # side by side, so that none hides another's range
            at = runs.mean().index + 0.014 * (list(STYLES).index(column) - 1)
            panel.vlines(at, runs.min(), runs.max(), color=STYLES[column], linewidth=0.9, alpha=0.6)
            dots(panel, at, runs.mean(), STYLES[column], WORDS[column])
            reference(panel, y=published[WORLD][column].mean, color=STYLES[column])
        finish(panel, "DtO of the map itself", ylim=(0, None))
    dots(axes[2], maps["variance"], maps["delta_kl"], STYLES["β-VAE"])
    reference(axes[2], y=POLARISED)
    finish(axes[2], "variance of the data", yscale="log", xlim=(0, None))
    legend_below(figure, axes[:1], 3)
    return figure


def _on_maps(setup: Setup, seeds: int) -> Setup:
    return setup.replace(seeds=seeds, records=1, betas=(BETA[WORLD],))


MAPS = Artefact(
    key="rolinek2019.maps",
    title="Beyond the paper: Synth. Non-Lin. over random maps, trained as at laptop scale",
    claims=(
        Bounds("Table 1 on other maps: training ends in the polarised regime", _regimes, ours=True),
        Orders("Table 2 on other maps: β-VAE has lower DtO and a higher score", _orders, ours=True),
        Values("Table 2 on other maps: cells as means over maps", _cells, ours=True),
        Correlations(
            "β-VAEs disentangle the square where its axes are orthogonal in data space", _own_axes, ours=True
        ),
    ),
    presets={
        "smoke": MapSettings(_on_maps(smoke(NONLINEAR), 2), 4),
        "laptop": MapSettings(_on_maps(quick(NONLINEAR, columns=("β-VAE", "AE")), 2), 6),
        "full": MapSettings(_on_maps(quick(NONLINEAR), 5), 12),
    },
    measure=measure_maps,
    plot=plot_maps,
    note="Synth. Non-Lin. is the image of a square under one random network (Suppl. 8.5), which is not "
    "published. Made "
    "after Table 2 was measured on one map.",
)


# Table 1's beginning under two partitions of the latents

PARTITIONS = {"nats": f"latents of more than {ACTIVE} nats", "least": "partition of least error"}
EPOCHS = 500
"""Of Table 1's training."""


def measure_partition(settings: Training, where: Workplace) -> Tables:
    """Train, and measure Δ_KL under both partitions along the way."""
    setup = settings.setup
    unseen = functools.cache(lambda: runs.held_out(setup, place(setup.load(), where.device)))

    def observe(ensemble: Ensemble, step: int) -> Tables:
        """Δ_KL of every run under both partitions: by the mean KL, and by the error with and without a latent."""
        kl, half = runs.latent_terms(ensemble, unseen())
        who = columns_of(ensemble.trials, "seed") | {"epoch": runs.epochs(ensemble, unseen(), step)}
        partitions = {"nats": kl > ACTIVE, "least": runs.least_error(kl, half)}
        return concatenate(
            {"curves": table_of({"partition": name} | who | {"delta_kl": runs.missing(kl, half, active)})}
            for name, active in partitions.items()
        )

    def finish(ensemble: Ensemble) -> Tables:
        """The curves, and all latents at the end."""
        kl, half = runs.latent_terms(ensemble, unseen())
        seed = torch.arange(len(kl)).repeat_interleave(kl.shape[1])
        columns = {"kl": kl, "variance": 2 * half, "least": runs.least_error(kl, half)}
        latents = {"seed": seed} | {name: value.flatten() for name, value in columns.items()}
        return {"curves": ensemble.observed["curves"].drop(columns="step"), "latents": table_of(latents)}

    def trained() -> Tables:
        return follow(
            setup.trials("VAE"),
            where,
            world=lambda: unseen().world,
            measured={"partitions": list(PARTITIONS), "points": setup.points, "checked": setup.checked},
            observe=observe,
            finish=finish,
            every=setup.checked,
        )

    return measure_present([(NAMES[setup.base.world], trained)])


def _partition_bounds(tables: Tables) -> Iterator[Bound]:
    """When Δ_KL falls below 3 % for good and where it ends, under each partition."""
    published = PERCENTAGES["fashion_mnist"][1]
    allowed = EPOCHS * (1 - published / 100)
    for name, words in PARTITIONS.items():
        curves = tables["curves"][tables["curves"]["partition"] == name]
        errors = curves.pivot(index="epoch", columns="seed", values="delta_kl")
        above = np.where(errors < POLARISED, 0.0, errors.index.to_numpy()[:, None]).max(0)
        said = f"{published} % of {EPOCHS}: at most {allowed:.1f}"
        yield Bound(f"{words}: last epoch with Δ_KL above 3 %", said, above, most=allowed)
        wrong = {"at the first record": errors.iloc[0]}
        yield Bound(f"{words}: Δ_KL at the end", "< 0.03", errors.iloc[-1], most=POLARISED, wrong=wrong)


@where_measured
def plot_partition(tables: Tables) -> Figure:
    """Δ_KL along training under both partitions, and all latents at the end."""
    titles = ["Δ_KL along training", "latents at the end: mean σ²"]
    figure, (along, at_end) = panels(titles, width=3.4, height=2.5)
    for colour, (name, own) in zip(COLOURS, tables["curves"].groupby("partition", sort=False), strict=False):
        for seed, run in own.groupby("seed"):
            label = None if seed else PARTITIONS[str(name)]
            along.plot(run["epoch"], run["delta_kl"], color=colour, linewidth=1.0, alpha=0.8, label=label)
    reference(along, y=POLARISED)
    finish(along, "epochs", xscale="log", yscale="log", legend="lower left")
    words = {True: "active by the least error", False: "passive by the least error"}
    lines(at_end, tables["latents"], "kl", "variance", by="least", style="o", label=words, markersize=4)
    reference(at_end, x=ACTIVE)
    finish(at_end, "mean KL, nats", xscale="log", legend="best")
    return figure


PARTITION = Artefact(
    key="rolinek2019.partition",
    title="Beyond the paper: Table 1's beginning, Fashion-MNIST with ten latents, under two partitions",
    claims=(
        Bounds(
            "Table 1's percentage with ten latents does not depend on which latents count as active: in the first 20 "
            "epochs Δ_KL falls below 3 % for good, in time for the published percentage",
            _partition_bounds,
            ours=True,
        ),
    ),
    presets={
        "smoke": Training(smoke(setups.FASHION, latent=4)),
        "full": Training(setups.FASHION.replace(latent=10, steps=11_200, seeds=4, precision="float32")),
    },
    measure=measure_partition,
    plot=plot_partition,
    note="Eq. 30 needs the set of active latents, and the text does not say how it was found. Made after Table 1 was "
    "measured.",
)
