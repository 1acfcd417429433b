"""Rendered worlds beside the published data sets that they stand for, item by item and as data to train on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam import geometry
from unseam.data import ArrayWorld, World, load
from unseam.drawing import COLOURS, panels
from unseam.metrics import mig
from unseam.papers.artefact import TWINS, Artefact, PerDataset, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Identities, Identity
from unseam.papers.draws import Seeded
from unseam.papers.plots import (
    Figure,
    Tables,
    columns,
    dots,
    finish,
    identity,
    lines,
    reference,
    where_measured,
)
from unseam.papers.tables import table_of
from unseam.papers.trainings import combinations, measure_present
from unseam.theory import data_moments, data_thresholds
from unseam.training import Ensemble, train, training_index
from unseam.trial import Trial

__all__ = ["TWINS_COMPARED"]

NAMES = {"dsprites": "dSprites", "shapes3d": "3D Shapes"}
ALIKE = 0.1
"""Share by which numbers of twin and published data set may differ."""
SAME_SPACE, SAME_DISTANCES = 0.9, 0.95
"""Overlap of principal subspaces, and correlation of distances, from which they count as the same."""
LEADING = 10
"""Principal components that are compared."""
MEASURES = {
    "rec": "reconstruction loss, nats per item",
    "kl": "KL, nats per item",
    "active": "active latents",
    "dto": "DtO over active latents",
    "mig": "MIG",
}
ROWS = 1000
"""Items that are rendered or read at once."""


@dataclass(frozen=True)
class Pair(PerDataset):
    """A rendered world and the published data set that it stands for, named by either."""

    world: str
    options: tuple[tuple[str, Any], ...] = ()
    """Of the rendered world, whose grid of factors must be that of the file."""
    side: int = 16
    """Side in pixels of the averaged images whose spectrum is taken and on which models are trained."""

    @property
    def published(self) -> str:
        """The published data set's name."""
        return self.world if self.world in TWINS else {twin: name for name, twin in TWINS.items()}[self.world]


@dataclass(frozen=True)
class Settings(Seeded):
    """Which items are compared, and the β-VAEs that are trained on both."""

    pairs: tuple[Pair, ...] = scaled(
        (Pair("sprites", side=8), Pair("shapes", side=4)),
        (Pair("sprites"), Pair("shapes", side=8)),
        (Pair("sprites", side=32), Pair("shapes", side=16)),
    )
    items: int = scaled(200, 5000, 50_000)
    distances: int = scaled(200, 20_000)
    """Pairs of items."""
    shown: int = scaled(50, 200)
    """Of them, those in the figure."""
    components: int = 50
    beta: float = 1.0
    widths: tuple[int, ...] = scaled((16,), (128, 128))
    latent: int = scaled(4, 10)
    steps: int = scaled(20, 3000, 30_000)
    seeds: int = scaled(2, 3, 10)
    points: int = scaled(10, 200)


class Both(NamedTuple):
    """The same items of both, pixels averaged."""

    twin: ArrayWorld
    published: ArrayWorld


def measure(settings: Settings, place: Workplace) -> Tables:
    """Compare every pair whose published file is installed."""

    def compared(pair: Pair) -> Tables:
        published = load(pair.published)
        twin = load(TWINS[pair.published], **dict(pair.options))
        one, other = ((w.factor_names, tuple(w.factor_sizes), tuple(w.shape)) for w in (twin, published))
        if one != other:
            names = f"{twin.name} and {published.name}"
            raise ValueError(f"{names} must have one grid of factors and one shape, got {one} and {other}")
        random = settings.generator()
        index = torch.randperm(len(twin), generator=random)[: settings.items]
        own: dict[str, pd.DataFrame] = {}
        own["agreement"], both = _agreement(twin, published, index, pair.side)
        own["spectrum"], overlap = _spectrum(both, settings)
        own["distances"], summary = _distances(both, settings, random)
        own["summary"] = summary.assign(overlap=overlap)
        own["models"], own["trainings"] = _models(both, settings, place)
        for table in own.values():
            table.insert(0, "world", pair.published)
        return own

    return measure_present((NAMES[pair.published], partial(compared, pair)) for pair in settings.pairs)


def _agreement(twin: World, published: World, index: Tensor, side: int) -> tuple[pd.DataFrame, Both]:
    """Differences of the same items, over all and per shape, beside those of different items; and averaged images."""
    rows: list[pd.DataFrame] = []
    averaged: tuple[list[Tensor], list[Tensor]] = ([], [])
    shapes = published.factors[:, published.factor_names.index("shape")].cpu()
    for part in index.split(ROWS):
        ours, theirs = (world.images(part.to(world.device)).cpu() for world in (twin, published))
        difference = (ours - theirs).abs()
        pixels = {"equal": difference < 0.5 / 255, "difference": difference}
        pixels["chance"] = (theirs - theirs.roll(1, 0)).abs()
        means = {name: values.double().flatten(1).mean(1) for name, values in pixels.items()}
        rows.append(pd.DataFrame({"shape": shapes[part]} | means))
        for images, parts in zip((ours, theirs), averaged, strict=True):
            parts.append(torch.nn.functional.interpolate(images, (side, side), mode="area"))
    items = pd.concat(rows, ignore_index=True)
    every = pd.concat([items.assign(shape="all"), items])
    groups = every.groupby("shape", sort=False)
    table = groups[["equal", "difference", "chance"]].mean().join(groups.size().rename("items"))
    factors = published.factors[index.to(published.factors.device)].cpu()
    names: dict[str, Any] = {"name": published.name, "factor_names": published.factor_names}
    names["factor_sizes"] = tuple(published.factor_sizes)
    return table.reset_index(), Both(*(ArrayWorld(torch.cat(part), factors, **names) for part in averaged))


def _spectrum(both: Both, settings: Settings) -> tuple[pd.DataFrame, float]:
    """Variances of principal components and collapse thresholds; and the overlap of leading subspaces, 0 to 1."""
    tables, spaces = [], []
    for source, world in zip(Both._fields, both, strict=True):
        moments = data_moments([world.images(torch.arange(len(world)))])
        variances, directions = torch.linalg.eigh(moments.covariance)
        spaces.append(directions[:, -LEADING:])
        found = {"variance": variances.flip(0), "threshold": data_thresholds(moments, "bernoulli")}
        found = {name: values[: settings.components] for name, values in found.items()}
        tables.append(table_of({"source": source, "component": range(1, len(found["variance"]) + 1)} | found))
    overlap = float((spaces[0].mT @ spaces[1]).square().sum() / spaces[0].shape[1])
    return pd.concat(tables, ignore_index=True), overlap


def _distances(both: Both, settings: Settings, random: torch.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Distances between pairs of items in both, some of them for the figure, and how they agree."""
    one, other = torch.randint(len(both.twin), (2, settings.distances), generator=random)
    found = pd.DataFrame(
        {
            source: (world.images(one) - world.images(other)).flatten(1).norm(dim=1).double()
            for source, world in zip(Both._fields, both, strict=True)
        }
    )
    found = found[one.numpy() != other.numpy()]
    summary = {"pairs": len(found), "correlation": found["twin"].corr(found["published"])}
    summary["ratio"] = found["twin"].mean() / found["published"].mean()
    return found[: settings.shown].reset_index(drop=True), pd.DataFrame([summary])


def _models(both: Both, settings: Settings, place: Workplace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same trials trained on both: same initial weights, items and noise."""
    first = Trial(
        world=both.published.name,
        train_fraction=0.8,
        encoder_widths=settings.widths,
        decoder_widths=settings.widths[::-1],
        latent=settings.latent,
        beta=settings.beta,
        steps=settings.steps,
        precision="float32",
    )
    trials = combinations(first, seed=range(settings.seeds))
    rows, trainings = [], []
    for source, world in zip(Both._fields, both, strict=True):
        began = time.monotonic()
        ensemble = train(trials, world=world, device=place.device, progress=place.progress)
        hardware = ensemble.about["hardware"]
        spent = {"source": source, "members": len(trials), "steps": settings.steps}
        spent["seconds"] = round(time.monotonic() - began, 1)
        trainings.append(spent | {"hardware": hardware.get("accelerator", hardware["processor"])})
        found = _measures(ensemble, world, settings.points)
        rows.append(table_of({"source": source, "seed": range(len(trials))} | found))
    return pd.concat(rows, ignore_index=True), pd.DataFrame(trainings)


@torch.no_grad()
def _measures(ensemble: Ensemble, world: World, points: int) -> dict[str, Tensor]:
    """What is compared of trained models (member,) each, on items they have not seen."""
    seen = training_index(ensemble.trials[0], len(world))
    assert seen is not None
    unseen = torch.ones(len(world), dtype=torch.bool).index_fill(0, seen.cpu(), False).nonzero().flatten()
    x = world.images(unseen).to(ensemble.device)
    code = ensemble.encode(x)
    cost = geometry.gaussian_kl(code.mean, code.variance)
    active = cost.mean(1) > 0.01
    rec, dto = [], []
    for member, some in enumerate(active):
        model = ensemble[member]
        rec.append(-model.likelihood.log_prob(x, model.decode(code.mean[member])).mean())
        dto.append(torch.full_like(rec[-1], torch.nan))
        if int(some.sum()) > 1:
            metric = geometry.restrict(geometry.pullback(model.decode, code.mean[member, :points]), some)
            dto[-1] = geometry.distance_to_orthogonality(geometry.right_basis(metric).right_vectors).mean()
    factors = world.factors[unseen.to(world.factors.device)].cpu()
    return {
        "rec": torch.stack(rec),
        "kl": cost.sum(2).mean(1),
        "active": active.sum(1),
        "dto": torch.stack(dto),
        "mig": mig(code.mean.cpu(), factors).score,
    }


def _pairs(tables: Tables) -> Iterator[tuple[str, dict[str, pd.DataFrame]]]:
    for world in tables["summary"]["world"]:
        own = {name: table[table["world"] == world] for name, table in tables.items() if name != "missing"}
        yield f"{TWINS[world]} for {NAMES[world]}", own


def _image_cases(tables: Tables) -> Iterator[Identity]:
    for label, own in _pairs(tables):
        pixels = own["agreement"][own["agreement"]["shape"] == "all"].iloc[0]
        part, n = float(pixels["difference"] / pixels["chance"]), int(pixels["items"])
        words = f"{label}: mean absolute difference of the same item, over that of two items"
        note = f"{100 * pixels['equal']:.1f} % of pixels equal"
        yield Identity(words, f"0 (within {ALIKE:g})", part, ALIKE, n=n, note=note)


def _statistic_cases(tables: Tables) -> Iterator[Identity]:
    for label, own in _pairs(tables):
        twin, published = (own["spectrum"][own["spectrum"]["source"] == source] for source in Both._fields)
        for name, words in (("variance", "variances of the data"), ("threshold", "collapse thresholds")):
            ours, theirs = twin[name].to_numpy()[:LEADING], published[name].to_numpy()[:LEADING]
            apart = float(np.abs(ours / theirs - 1).max())
            quantity = f"{label}: largest relative difference of the leading {len(ours)} {words}"
            yield Identity(quantity, f"0 (within {ALIKE:g})", apart, ALIKE)
        summary = own["summary"].iloc[0]
        for name, words, tolerance in (
            ("overlap", "overlap of the leading principal subspaces", 1 - SAME_SPACE),
            ("correlation", "correlation of distances between items", 1 - SAME_DISTANCES),
            ("ratio", "mean distance between items, over the published one", ALIKE),
        ):
            said = f"1 (within {tolerance:.2g})"
            yield Identity(f"{label}: {words}", said, float(summary[name]), tolerance, 1.0)


def _model_cases(tables: Tables) -> Iterator[Bound]:
    """Paired by seed, since models of one seed start from the same weights."""
    for label, own in _pairs(tables):
        for name, words in MEASURES.items():
            wide = own["models"].pivot(index="seed", columns="source", values=name)
            ours, theirs = (wide[source] for source in Both._fields)
            relative = (ours - theirs) / abs(theirs.mean())
            quantity = f"{label}, trained β-VAEs: relative difference of {words}"
            yield Bound(quantity, f"0 (within {ALIKE:g})", relative, -ALIKE, ALIKE)


@where_measured
def plot(tables: Tables) -> Figure:
    """Spectra, collapse thresholds, distances and trained models, one row per pair."""
    pairs = [own for _, own in _pairs(tables)]
    names = [NAMES[own["summary"]["world"].iloc[0]] for own in pairs]
    words = ("variances", "collapse thresholds", "distances", "β-VAEs")
    titles = [f"{name}: {word}" for name, word in itertools.product(names, words)]
    figure, axes = panels(titles, rows=len(pairs), width=2.8, height=2.4)
    for row, own in enumerate(pairs):
        *spectra, apart, trained = axes[4 * row : 4 * row + 4]
        for panel, name in zip(spectra, ("variance", "threshold"), strict=True):
            positive = own["spectrum"][own["spectrum"][name] > 0]
            lines(panel, positive[::-1], "component", name, by="source")
            finish(panel, "principal component", xscale="log", yscale="log")
        finish(spectra[0], legend="best")
        distances = own["distances"]
        dots(apart, distances["published"], distances["twin"], COLOURS[2])
        identity(apart, [0], distances[["published", "twin"]])
        finish(apart, "published", "twin", aspect="equal")
        relative = {}
        for name, short in zip(MEASURES, ("rec.", "KL", "active", "DtO", "MIG"), strict=True):
            runs = {source: part[name] for source, part in own["models"].groupby("source")}
            relative[short] = [runs[source] / runs["published"].mean() for source in ("published", "twin")]
        columns(trained, relative, markers="os")
        reference(trained, y=1)
        finish(trained, y="over the published mean")
    return figure


TWINS_COMPARED = Artefact(
    key="ours.twins",
    title="Rendered twins beside the published dSprites and 3D Shapes",
    claims=(
        Identities("The same factors give nearly the same images", _image_cases, ours=True),
        Identities("Twins have nearly the statistics of the published data", _statistic_cases, ours=True),
        Bounds(
            "β-VAEs trained on a twin are nearly those trained on the published data", _model_cases, ours=True
        ),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
)
