"""Collapse of latents (allen2024 Eqs. 4 and 7, Theorem 3): thresholds from the data against trained β-VAEs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.data import World, load
from unseam.drawing import COLOURS, panels
from unseam.papers.allen2024._members import last_crossing
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Correlation, Correlations, Identities, Identity
from unseam.papers.draws import orthonormal
from unseam.papers.plots import Figure, Tables, dots, finish, identity, logarithmic
from unseam.papers.tables import columns_of, table_of
from unseam.papers.trainings import combinations, measure_present, train_or_resume, vae_trial
from unseam.theory import active_count, data_moments, data_thresholds
from unseam.training import Ensemble
from unseam.trial import Trial

__all__ = ["COLLAPSE"]

MODELS = ("linear", "sprites", "mnist")
ACTIVE, NEAR = 0.01, 0.1


@dataclass(frozen=True)
class Settings:
    """A linear VAE on linear data, and non-linear β-VAEs on sprites and handwritten digits, over β and seeds."""

    betas: int = scaled(5, 10, 20)
    seeds: int = scaled(1, 1, 3)
    scales: tuple[float, ...] = scaled((4.0, 2.0), (5.0, 4.0, 3.0, 2.2, 1.6, 1.2))
    linear_steps: int = scaled(600, 8000, 10_000)
    resolution: int = scaled(8, 16, 32)
    positions: int = scaled(4, 8, 16)
    orientations: int = scaled(4, 8)
    latents: tuple[int, int] = scaled((4, 4), (12, 20), (20, 40))
    widths: tuple[int, ...] = scaled((32,), (128,), (256, 256))
    steps: int = scaled(100, 2000, 10_000)
    batch_size: int = scaled(64, 64, 128)
    learning_rate: float = 1e-3
    items: int = scaled(2000, 20_000, 60_000)
    points: int = scaled(300, 1000)


def measure(settings: Settings, place: Workplace) -> Tables:
    """Number of active latents of every model beside the number predicted without training."""

    def counted(name: str) -> Tables:
        world, first = _world(name, settings), _trial(name, settings)
        known = _thresholds(world, first.likelihood, settings.items)[: first.latent]
        trials = combinations(first, beta=_betas(known, settings.betas), seed=range(settings.seeds))
        ensemble = train_or_resume(trials, place, name, world=world)
        counts = {
            "predicted": [int(active_count(known, trial.beta)) for trial in trials],
            "counted": _active(ensemble, world, settings.points),
        }
        rank = range(1, len(known) + 1)
        return {
            "members": table_of({"model": name} | columns_of(trials, "beta", "seed") | counts),
            "thresholds": table_of({"model": name, "latent": rank, "predicted": known}),
        }

    return measure_present((name, partial(counted, name)) for name in MODELS)


def _world(name: str, settings: Settings) -> World:
    if name == "linear":
        random = torch.Generator().manual_seed(0)
        scales = torch.tensor(settings.scales, dtype=torch.float64)
        mixing = orthonormal(3 * len(scales), len(scales), generator=random) * scales
        return load("mixture", mixing=mixing.tolist(), size=settings.items)
    if name == "sprites":
        sizes = {field: getattr(settings, field) for field in ("resolution", "positions", "orientations")}
        return load("sprites", scales=3, **sizes)
    return load("mnist")


def _trial(name: str, settings: Settings) -> Trial:
    if name == "linear":
        return vae_trial(
            "mixture",
            settings,
            latent=len(settings.scales),
            steps=settings.linear_steps,
            learning_rate=3 * settings.learning_rate,
            # two latents share a direction for long, and only precise gradients part them
            batch_size=4 * settings.batch_size,
        )
    latent = settings.latents[0 if name == "sprites" else 1]
    # active latents are counted, which tells no small differences
    options = {"likelihood": "bernoulli", "latent": latent, "precision": "tf32"}
    return vae_trial(name, settings, settings.widths, **options)


def _thresholds(world: World, likelihood: str, items: int) -> Tensor:
    index = torch.randperm(len(world), generator=torch.Generator().manual_seed(0))[:items]
    moments = data_moments(world.images(part) for part in index.split(2000))
    return data_thresholds(moments, likelihood)  # type: ignore[arg-type]


def _betas(thresholds: Tensor, count: int) -> list[float]:
    """From where all latents should be active to where none should, evenly on a logarithmic scale."""
    return np.geomspace(float(thresholds[-1]) * 0.7, float(thresholds[0]) * 1.6, count).round(6).tolist()


@torch.no_grad()
def _active(ensemble: Ensemble, world: World, points: int) -> Tensor:
    """Latents whose posterior mean varies by more than 0.01 over the data (Burda et al. 2016), (member,)."""
    index = torch.randperm(len(world), generator=torch.Generator().manual_seed(1))[:points]
    mean = ensemble.encode(world.images(index)).mean
    return (mean.var(1, correction=0) > ACTIVE).sum(1).cpu()


def _collapse_points(own: pd.DataFrame, predicted: pd.Series) -> pd.DataFrame:
    """Predicted and measured β, within those trained, at which fewer than k latents are active, k = 1, 2, ..."""
    mean = own.groupby("beta")["counted"].mean()
    crossing = np.array([last_crossing(mean.index, mean, place + 0.5) for place in range(len(predicted))])
    measured = crossing.clip(mean.index.min(), mean.index.max())
    return pd.DataFrame({"predicted": predicted.to_numpy(), "measured": measured, "never": crossing == 0})


def _models(tables: Tables) -> dict[str, tuple[pd.DataFrame, pd.Series]]:
    known = dict(list(tables["thresholds"].groupby("model")["predicted"]))
    return {str(name): (own, known[name]) for name, own in tables["members"].groupby("model", sort=False)}


def _networks(tables: Tables) -> list[tuple[str, pd.DataFrame, pd.Series]]:
    return [(name, *parts) for name, parts in _models(tables).items() if name != "linear"]


def _linear_cases(tables: Tables) -> Iterator[Identity]:
    own, known = _models(tables)["linear"]
    clear = (abs(own["beta"].to_numpy()[:, None] / known.to_numpy() - 1) > NEAR).all(1)
    worst = float((own["counted"] - own["predicted"]).abs()[clear].max())
    words = "linear VAEs: active latents counted less predicted, largest over models"
    note = "at least 10 % from every threshold"
    yield Identity(words, "0", worst, 0.0, n=int(clear.sum()), note=note)


def _network_cases(tables: Tables) -> Iterator[Bound]:
    for name, own, known in _networks(tables):
        points = _collapse_points(own, known)
        words = f"{name}: measured over predicted β at which a latent collapses, median over latents"
        note = f"{int(points['never'].sum())} latents were never active and count with the smallest β trained"
        ratio = points["measured"] / points["predicted"]
        yield Bound(words, "within a factor of two", ratio, 0.5, 2.0, note=note)


def _count_cases(tables: Tables) -> Iterator[Correlation]:
    for name, own, _ in _networks(tables):
        words = f"{name}: active latents, counted and predicted, over β"
        yield Correlation(words, own["counted"], own["predicted"], groups=own["beta"], positive=True)


def plot(tables: Tables) -> Figure:
    """Counted latents over β on the predicted staircase, a panel for each model."""
    models = _models(tables)
    figure, axes = panels([*models, "β at which each collapses"], width=2.7, height=2.4)
    for colour, panel, (name, (own, known)) in zip(COLOURS, axes, models.items(), strict=False):
        grid = np.geomspace(own["beta"].min() * 0.9, own["beta"].max() * 1.1, 500)
        predicted = (known.to_numpy() > grid[:, None]).sum(1)
        panel.step(grid, predicted, where="post", color="black", linewidth=0.9, label="predicted")
        dots(panel, own["beta"], own["counted"], colour, "trained")
        ticks = [float(f"{tick:.2g}") for tick in np.geomspace(own["beta"].min(), own["beta"].max(), 4)]
        logarithmic(panel.xaxis, ticks)
        finish(panel, "β", legend="best")
        points = _collapse_points(own, known)
        dots(axes[-1], points["predicted"], points["measured"], colour, name)
    finish(axes[0], y="active latents")
    known = tables["thresholds"]["predicted"]
    identity(axes[-1], known)
    for axis in (axes[-1].xaxis, axes[-1].yaxis):
        logarithmic(axis, [float(f"{tick:.1g}") for tick in np.geomspace(known.min(), known.max(), 3)])
    finish(axes[-1], "predicted", "measured", legend="best")
    return figure


COLLAPSE = Artefact(
    key="allen2024.collapse",
    title="Collapse of latents: thresholds from the data against active latents of trained β-VAEs",
    claims=(
        Identities(
            "Theorem 3, Eqs. 4 and 7: β scales the likelihood's variance, and a latent is active only while the "
            "variance it explains exceeds it; so linear VAEs have the predicted number of active latents",
            _linear_cases,
        ),
        Bounds(
            "The linear thresholds predict at which β latents of non-linear VAEs collapse (no claim of the text)",
            _network_cases,
            ours=True,
            statistic="median",
        ),
        Correlations(
            "The linear thresholds order the number of active latents of non-linear VAEs over β",
            _count_cases,
            ours=True,
        ),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="The thresholds are exact for linear decoders; for others they say where the collapsed solution becomes "
    "unstable. A non-linear decoder can follow several directions of the covariance with one latent; several latents "
    "that share a direction, as they long do in training, give more.",
)
