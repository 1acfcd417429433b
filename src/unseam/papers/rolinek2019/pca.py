"""Suppl. 9.2 of rolinek2019: the alignment that PCA and linear VAEs find where factors have equal scales."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.data import ArrayWorld, World, load
from unseam.drawing import COLOURS, panels
from unseam.geometry import hadamard_gap
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Identities, Identity, Order, Orders
from unseam.papers.draws import Seeded, normal, orthogonal, plane_rotations, uniform
from unseam.papers.plots import Figure, Tables, columns, finish, lines, reference
from unseam.papers.rolinek2019.linear import ALIGNED, CONVERGED, axis_angle, decoders, linear_models
from unseam.papers.rolinek2019.setups import Column, Setup, smoke
from unseam.theory import linear_vae, ppca_em

__all__ = ["PCA"]

COLUMNS: tuple[Column, ...] = ("β-VAE", "AE")
IMPLEMENTATIONS = ("eigenvectors", "eigenvectors, float32", "SVD of the data", "power iteration")
DIRECT = IMPLEMENTATIONS[:3]
SAMPLES, COORDINATES = "samples", "coordinates"
"""Random samples of one size, and the exact covariance in random coordinates."""
BIN = 5
"""Degrees."""
AT_ONCE = 20
"""Samples that are decomposed together."""
# Relative difference up to which variances are equal; sampling error allowed for in that of a sample.
SAME, SAMPLED = 1e-9, 0.02
NORMALISED = 0.1
"""Distance of a latent's mean from 0, and of its variance from 1, up to which it is normalised."""
SCALES = 0.05
"""Share by which ratios of singular values may differ from the closed form."""
EVEN = 0.05
"""A share within this of one half shows no preference."""
PREFERRED = 2 / math.pi * math.atan(math.sqrt(2.5))
"""P(tilt > 22.5°) of a uniform square's samples: tan 2θ = c₁₂ / (½(c₁₁ − c₂₂)), normal with variances 1 : 0.4, as the
fourth moments of a uniform distribution have it; ½ if no alignment were preferred."""


@dataclass(frozen=True)
class Settings(Seeded):
    """Linear β-VAEs and autoencoders at each ratio of the factors' scales, and the samples that PCA is given."""

    setup: Setup
    ratios: tuple[float, ...] = (1.0, 1.2, 1.5)
    samples: int = scaled(20, 200, 1000)
    size: int = scaled(500, 50_000)
    """Points per sample, as many as the data set has."""
    power_steps: int = 100
    angles: int = scaled(7, 37)
    starts: int = scaled(2, 10, 20)
    """Of expectation–maximisation with a diagonal posterior."""
    em_steps: int = scaled(20, 1000)

    def at(self, ratio: float) -> Setup:
        """The setup at one ratio."""
        others = tuple(option for option in self.setup.base.world_options if option[0] != "ratio")
        return self.setup.replace(world_options=(("ratio", ratio), *others))

    @property
    def noise(self) -> float:
        """βσ² of the β-VAEs; the square loss of Eq. 11 is a likelihood of variance ½."""
        return self.setup.betas[0] / 2


def measure(settings: Settings, place: Workplace) -> Tables:
    """Variances of projections, PCA of many samples by several implementations, closed forms, trained models."""
    random = settings.generator()
    worlds = {ratio: settings.at(ratio).load() for ratio in settings.ratios}
    parts = {
        (ratio, column): linear_models(settings.at(ratio), column, place)
        for ratio in settings.ratios
        for column in COLUMNS
    }
    models = [_with_angles(part["models"], worlds[ratio], settings) for (ratio, _), part in parts.items()]
    alignments = (_alignments(ratio, settings, random) for ratio in settings.ratios)
    ends = (_em(ratio, settings, random) for ratio in settings.ratios)
    return {
        "projections": pd.concat([_projections(ratio, worlds[ratio], settings) for ratio in settings.ratios]),
        "alignments": pd.DataFrame(itertools.chain(*alignments)),
        "em": pd.DataFrame(itertools.chain(*ends)),
        "models": pd.concat(models, ignore_index=True),
        "trainings": pd.concat([part["trainings"] for part in parts.values()], ignore_index=True),
    }


def _mixing(ratio: float) -> Tensor:
    """A (3, 2) of x = A w."""
    world = load("linear", size=1, ratio=ratio)
    assert isinstance(world, ArrayWorld) and world.mixing is not None
    return world.mixing


def _exact(ratio: float) -> Tensor:
    """Covariance (3, 3) of a uniform square, embedded."""
    mixing = _mixing(ratio)
    return mixing @ mixing.mT / 12


def _axes(ratio: float) -> Tensor:
    """Directions (3, 2) of the factors in the data, orthonormal."""
    return torch.nn.functional.normalize(_mixing(ratio), dim=0)


def _projections(ratio: float, world: World, settings: Settings) -> pd.DataFrame:
    """Variance along every line of the square's plane, exact and of the data set, and the cost of a rotation.

    The cost is that of rotating the latents of a linear VAE at its optimum: the ELBO, in nats, that its best diagonal
    posterior loses.
    """
    angle = torch.linspace(0, 90, settings.angles, dtype=torch.float64)
    rotations = plane_rotations(torch.deg2rad(angle))
    line = rotations[..., 0] @ _axes(ratio).mT
    x = world.images(torch.arange(len(world))).double()
    weights = linear_vae(_exact(ratio), 2, noise=settings.noise).weights
    # seen from the factors' axes, so that the angle is that to the square where all are equally good
    straight = _axes(ratio) @ (_axes(ratio).mT @ weights @ weights.mT @ _axes(ratio)).diagonal().sqrt().diag()
    rotated = straight @ rotations
    cost = hadamard_gap(torch.eye(2, dtype=torch.float64) + rotated.mT @ rotated / settings.noise)
    variance = ((line @ _exact(ratio)) * line).sum(1)
    columns = {"ratio": ratio, "angle": angle, "variance": variance, "change": variance / variance[0] - 1}
    return pd.DataFrame(columns | {"of the data": (x @ line.mT).var(0, correction=0), "cost": cost})


def _alignments(ratio: float, settings: Settings, random: torch.Generator) -> list[dict[str, Any]]:
    """Angles between principal directions and the square's axes by each implementation, counted in bins."""
    rows = []
    for source in (SAMPLES, COORDINATES):
        batches = [AT_ONCE] * (settings.samples // AT_ONCE) + [settings.samples % AT_ONCE]
        parts = [_principal(source, ratio, count, settings, random) for count in batches if count]
        angles = {name: np.concatenate([part[name] for part in parts]) for name in IMPLEMENTATIONS}
        for name, own in angles.items():
            apart = np.abs(own - angles["eigenvectors"])
            counts, _ = np.histogram(own, np.arange(0, 46, BIN))
            rows.append(
                {"ratio": ratio, "source": source, "implementation": name, "cases": len(own)}
                | {"median": np.median(own), "mean": own.mean(), "largest": own.max()}
                | {"tilted": int((own > 22.5).sum()), "apart": apart.max()}
                | {f"{BIN * place}°": count for place, count in enumerate(counts)}
            )
    return rows


def _principal(
    source: str, ratio: float, count: int, settings: Settings, random: torch.Generator
) -> dict[str, NDArray[np.float64]]:
    """Angles (case,) to the square's axes of the two leading directions, by every implementation."""
    if source == SAMPLES:
        frame = torch.eye(3, dtype=torch.float64)
        factors = uniform(count, settings.size, 2, generator=random)
        centred = (factors - factors.mean(1, keepdim=True)) @ _mixing(ratio).mT
    else:
        frame = orthogonal(count, 3, 3, generator=random)
        # four points with the covariance of the square
        points = torch.cat([_mixing(ratio), -_mixing(ratio)], 1).mT / math.sqrt(6)
        centred = points @ frame.mT
    covariance = centred.mT @ centred / centred.shape[1]
    start = normal(count, 3, 1, generator=random)
    found = {
        "eigenvectors": torch.linalg.eigh(covariance).eigenvectors[..., 1:],
        "eigenvectors, float32": torch.linalg.eigh(covariance.float()).eigenvectors[..., 1:].double(),
        "SVD of the data": torch.linalg.svd(centred, full_matrices=False).Vh.mT[..., :2],
        "power iteration": _greedy(covariance, start, settings.power_steps),
    }
    return {name: axis_angle(((frame @ _axes(ratio)).mT @ own).numpy()) for name, own in found.items()}


def _greedy(covariance: Tensor, start: Tensor, steps: int) -> Tensor:
    """The leading direction (case, 3) by power iteration, then that of what is left: (case, 3, 2)."""
    found: list[Tensor] = []
    for _ in range(2):
        direction = start
        for _ in range(steps):
            direction = torch.nn.functional.normalize(covariance @ direction, dim=-2)
        found.append(direction)
        rest = torch.eye(3, dtype=torch.float64) - direction @ direction.mT
        covariance = rest @ covariance @ rest
    return torch.cat(found, -1)


def _em(ratio: float, settings: Settings, random: torch.Generator) -> list[dict[str, Any]]:
    """Where expectation–maximisation of the linear VAE ends, from random starts: angles to the square's axes."""
    rows = []
    options: dict[str, Any] = {"noise": settings.noise, "steps": settings.em_steps, "generator": random}
    for diagonal in (True, False):
        for start in range(settings.starts):
            path = ppca_em(_exact(ratio), 2, diagonal=diagonal, **options)
            columns = torch.nn.functional.normalize(path.solution.weights, dim=0)
            angle = float(axis_angle((_axes(ratio).mT @ columns).numpy()))
            rows.append({"ratio": ratio, "diagonal": diagonal, "start": start, "angle": angle})
    return rows


def _with_angles(models: pd.DataFrame, world: World, settings: Settings) -> pd.DataFrame:
    """Angles of decoder columns to the factors' axes and to PCA of the same data; singular values and closed form."""
    ratio = float(models["ratio"].iloc[0])
    x = world.images(torch.arange(len(world))).double().numpy()
    principal = np.linalg.eigh(np.cov(x.T))[1][:, 1:]
    optimum = linear_vae(_exact(ratio), 2, noise=settings.noise).weights
    matrix = decoders(models)
    return models.assign(
        **{
            "angle": axis_angle(_axes(ratio).numpy().T @ matrix),
            "angle to PCA": axis_angle(principal.T @ matrix),
            "singular ratio": np.divide(*np.linalg.svd(matrix)[1].T),
            "closed form": float(np.divide(*torch.linalg.svdvals(optimum).numpy())),
        }
    )


def _projection_cases(tables: Tables) -> Iterator[Identity]:
    own = tables["projections"][tables["projections"]["ratio"] == 1.0]
    exact = float(own["change"].max() - own["change"].min())
    words = "largest relative difference of variances of projections"
    yield Identity(words, "0", exact, SAME, note="closed form")
    sampled = float(own["of the data"].max() / own["of the data"].min() - 1)
    yield Identity("the same of the data set's points", "0", sampled, SAMPLED, note="up to sampling error")
    words = "nats that a linear VAE loses at the worst rotation, closed form"
    yield Identity(words, "0", float(own["cost"].max()), SAME)


def _samples(tables: Tables, source: str) -> Any:
    return tables["alignments"][tables["alignments"]["source"] == source].set_index(
        ["implementation", "ratio"]
    )


def _preference_cases(tables: Tables) -> Iterator[Bound]:
    samples = _samples(tables, SAMPLES).loc["eigenvectors"]
    own, last = samples.loc[1.0], samples.loc[samples.index.max()]
    wrong = {f"ratio {samples.index.max():g}": [last["tilted"] / last["cases"]]}
    words, said = "PCA of samples: share that is rotated by more than 22.5°", f"0.5: within {EVEN:g}"
    note = f"fourth moments of a uniform square predict {PREFERRED:.3f}: diagonals are preferred"
    share = (int(own["tilted"]), int(own["cases"]))
    yield Bound(words, said, share=share, least=0.5 - EVEN, most=0.5 + EVEN, note=note, wrong=wrong)


def _implementation_cases(tables: Tables) -> Iterator[Bound]:
    said = f"different: at least {2 * ALIGNED:g}"
    for source, words in ((SAMPLES, "the same sample"), (COORDINATES, "the exact covariance")):
        apart = _samples(tables, source)["apart"].xs(1.0, level="ratio")
        worst, power = float(apart[list(DIRECT)].max()), float(apart["power iteration"])
        note = f"eigenvectors in two precisions and SVD; power iteration {power:.1f}"
        quantity = f"implementations of PCA on {words}: largest difference in angle, degrees"
        yield Bound(quantity, said, estimate=(worst, worst, worst), least=2 * ALIGNED, n=1, note=note)


def _unequal_cases(tables: Tables) -> Iterator[Bound]:
    """Angles at ratios above one: PCA of samples, linear VAEs by EM, trained β-VAEs against PCA of their data."""
    samples = _samples(tables, SAMPLES).loc["eigenvectors"]
    share = samples["0°"] / samples["cases"]
    equal = {"ratio 1": [share[1.0]]}
    for at in share.index[share.index > 1]:
        words = f"ratio {at:g}, PCA of samples: share within {BIN}° of the square"
        counts, note = (
            (int(samples["0°"][at]), int(samples["cases"][at])),
            f"median {samples['median'][at]:.2g}°",
        )
        yield Bound(words, "all: at least 90 %", share=counts, least=0.9, wrong=equal, note=note)
    for table, column, words in (
        (_em_ends(tables), "angle", "linear VAE by EM: median angle to the square"),
        (_trained(tables), "angle to PCA", "trained β-VAEs: median angle to PCA of the same data"),
    ):
        for ratio, angles in table[table["ratio"] > 1].groupby("ratio")[column]:
            said, wrong = f"0: at most {ALIGNED:g}", {"ratio 1": table[table["ratio"] == 1.0][column]}
            yield Bound(f"ratio {ratio:g}, {words}, degrees", said, angles, most=ALIGNED, wrong=wrong)


def _random_cases(tables: Tables) -> Iterator[Bound]:
    least, most = 2 * ALIGNED, 45 - 2 * ALIGNED
    said = f"random, 22.5 if uniform: {least:g} to {most:g}"
    for table, words in ((_em_ends(tables), "linear VAE by EM"), (_trained(tables), "trained β-VAEs")):
        own, other = (table[table["ratio"] == ratio]["angle"] for ratio in (1.0, 1.5))
        quantity = f"{words}: median angle to the square, degrees"
        yield Bound(quantity, said, own, least, most, wrong={"ratio 1.5": other})


def _em_ends(tables: Tables) -> pd.DataFrame:
    return tables["em"][tables["em"]["diagonal"]]


def _trained(tables: Tables, column: str = "β-VAE") -> pd.DataFrame:
    return tables["models"][tables["models"]["column"] == column]


def _normalised_cases(tables: Tables) -> Iterator[Bound]:
    away, relative = [], []
    for models in (_trained(tables, column) for column in COLUMNS):
        mean, variance = models[["m1", "m2"]].abs(), (models[["s1", "s2"]] - 1).abs()
        away.append(mean.max(axis=1).clip(lower=variance.max(axis=1)))
        relative.append((models["singular ratio"] / models["closed form"]).groupby(models["ratio"]))
    words = "trained β-VAEs: distance of a latent's mean from 0 or variance from 1"
    yield Bound(words, f"0: at most {NORMALISED:g}", away[0], most=NORMALISED, wrong={"autoencoder": away[1]})
    for ratio, own in relative[0]:
        words = f"ratio {ratio:g}: ratio of the decoder's singular values, over the closed form"
        said, wrong = f"1: within {100 * SCALES:g} %", {"autoencoder": relative[1].get_group(ratio)}
        yield Bound(words, said, own, 1 - SCALES, 1 + SCALES, wrong=wrong)


def _order_cases(tables: Tables) -> Iterator[Order]:
    largest = tables["models"]["ratio"].max()
    low, high = (
        own[own["ratio"] == largest]["angle to PCA"] for own in (_trained(tables, name) for name in COLUMNS)
    )
    yield Order(f"ratio {largest:g}: angle to PCA, β-VAE less autoencoder, degrees", low, high)


def plot(tables: Tables) -> Figure:
    """Variance against the line, alignments that PCA and linear VAEs find, and what a rotation costs the latter."""
    angle = "angle to the square, degrees"
    titles = ["variance along a line", "PCA at ratio 1: samples per angle", angle, "cost of a rotation, nats"]
    figure, axes = panels(titles, width=2.7, height=2.5)
    shown, label = tables["projections"], "ratio {:g}"
    lines(axes[0], shown, "angle", "variance", by="ratio", label=label)
    lines(axes[0], shown, "angle", "of the data", by="ratio", label="", style=".", markersize=3)
    lines(axes[3], shown, "angle", "cost", by="ratio", label=label)
    for panel, legend in ((axes[0], "best"), (axes[3], "")):
        finish(panel, angle, ylim=(0, None), xticks=range(0, 91, 45), legend=legend)
    own, edges = _samples(tables, SAMPLES).loc["eigenvectors"].loc[1.0], np.arange(0, 45, BIN)
    counts = [own[f"{edge}°"] for edge in edges]
    axes[1].bar(edges, counts, BIN, align="edge", color=COLOURS[0], alpha=0.6)
    reference(axes[1], y=own["cases"] / len(edges), linestyle=":", label="no preference", zorder=3)
    # density of θ where tan 2θ is a ratio of normal numbers with variances 1 : 0.4
    degrees = np.linspace(0, 45, 91)
    double = 2 * np.radians(degrees)
    density = np.sqrt(0.4) / (np.cos(double) ** 2 + 0.4 * np.sin(double) ** 2) * 4 / np.pi
    axes[1].plot(degrees, own["cases"] * np.radians(BIN) * density, color=COLOURS[1], label="fourth moments")
    finish(axes[1], angle, xticks=range(0, 46, 15), legend="upper left")
    kinds = [_em_ends(tables), _trained(tables), _trained(tables, "AE")]
    ratios = sorted(tables["models"]["ratio"].unique())
    runs = {f"ratio {at:g}": [own[own["ratio"] == at]["angle"] for own in kinds] for at in ratios}
    columns(axes[2], runs, labels=("linear VAE by EM", "β-VAE", "autoencoder"))
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.1), "ncols": 3, "handlelength": 0.5}
    axes[2].legend(fontsize=7, frameon=False, **below)
    return figure


ALIGNING = CONVERGED.replace(betas=(5e-2,), steps=20_000)
"""A larger β still, since rotations at a ratio of 1.2 are slow; optima have the same directions at any β below 1/6."""

PCA = Artefact(
    key="rolinek2019.pca",
    title="Suppl. 9.2: PCA and linear VAEs of a square, at equal and at unequal scales",
    claims=(
        Identities(
            "Suppl. 9.2: any projection of a unit square on a line has equal variance", _projection_cases
        ),
        Bounds("Suppl. 9.2: so PCA has no preference over alignments", _preference_cases),
        Bounds("Suppl. 9.2: and its practical choice depends on the implementation", _implementation_cases),
        Bounds(
            "Suppl. 9.2: β-VAEs expose random alignments of the square", _random_cases, statistic="median"
        ),
        Bounds(
            "Suppl. 9.2: with a small rescaling of one factor the right alignment is found, by β-VAEs and by PCA",
            _unequal_cases,
            statistic="median",
        ),
        Bounds(
            "Suppl. 9.2: β-VAEs promote normalised latents, so that singular values are no longer equal",
            _normalised_cases,
            statistic="median",
        ),
        Orders("Control: an autoencoder is less aligned with PCA", _order_cases, ours=True),
    ),
    presets=presets_of(
        Settings,
        smoke={"setup": smoke(ALIGNING)},
        laptop={"setup": ALIGNING.replace(steps=10_000, seeds=10)},
        full={"setup": ALIGNING},
    ),
    measure=measure,
    plot=plot,
)
