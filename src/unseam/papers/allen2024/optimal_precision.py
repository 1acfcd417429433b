"""Eqs. 7 and 8 of allen2024 on trained models: the posterior's precision against I + DᵀA²D/β."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.geometry import posterior_hessian, precision_error, pullback
from unseam.models import VAE
from unseam.papers.allen2024._members import SpriteSettings, items_and_noise, sprite_trial
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Order, Orders
from unseam.papers.plots import Figure, Tables, finish, identity, lines, logarithmic
from unseam.papers.tables import table_of
from unseam.papers.trainings import combinations, train_or_resume
from unseam.theory import optimal_precision

__all__ = ["OPTIMAL_PRECISION"]

LIKELIHOODS = {"gaussian": "Gaussian", "bernoulli": "Bernoulli"}
POSTERIORS = ("diagonal", "full")


@dataclass(frozen=True)
class Settings(SpriteSettings):
    """Models of both likelihoods and both posteriors on the same pictures, and where they are measured."""

    beta: float = 2.0
    steps: int = scaled(100, 4000, 15_000)
    batch_size: int = scaled(64, 64, 128)
    learning_rate: float = scaled(2e-3, 2e-3, 1e-3)
    seeds: int = scaled(2, 3, 8)
    points: int = scaled(32, 128, 256)
    hessians: int = scaled(2, 8)
    drawn: int = 15


def measure(settings: Settings, place: Workplace) -> Tables:
    """Σ_x⁻¹ beside I + DᵀA²D/β at the same points, entry by entry."""
    copied = ("beta", "steps", "batch_size", "learning_rate")
    firsts = [sprite_trial(settings, *copied, likelihood=likelihood) for likelihood in LIKELIHOODS]
    axes: dict[str, Any] = {"posterior": POSTERIORS, "seed": range(settings.seeds)}
    trials = [trial for first in firsts for trial in combinations(first, **axes)]
    ensemble = train_or_resume(trials, place, "sprites")
    x, noise = items_and_noise(trials[0], settings.points, settings.hessians, ensemble.device)
    rows, entries = [], []
    for member, trial in enumerate(trials):
        who: dict[str, Any] = {"likelihood": trial.likelihood, "posterior": trial.posterior}
        found, optimum, errors = _precisions(ensemble[member], x, noise, settings.beta)
        rows.append(who | {"seed": trial.seed} | errors | _agreement(found, optimum))
        if trial.seed == 0:
            upper = torch.ones(found.shape[-2:]).triu(1).bool()
            pair = [part[: settings.drawn] for part in (found, optimum)]
            for part, both in (
                ("diagonal", [one.diagonal(dim1=-2, dim2=-1).flatten() for one in pair]),
                ("off the diagonal", [_correlations(one)[:, upper].flatten() for one in pair]),
            ):
                values = dict(zip(("posterior's", "predicted"), both, strict=True))
                entries.append(table_of(who | {"part": part} | values))
    return {"members": pd.DataFrame(rows), "entries": pd.concat(entries, ignore_index=True).round(4)}


@torch.no_grad()
def _precisions(model: VAE, x: Tensor, noise: Tensor, beta: float) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Σ_x⁻¹ and I + DᵀA²D/β (batch, latent, latent) in double precision on the host, and medians of relative errors.

    Errors are by Eq. 7, and by the Hessian's mean over the posterior.
    """
    code = model.encode(x)
    metric = pullback(model.decode, code.mean, likelihood=model.likelihood)
    mean = posterior_hessian(model.decode, model.likelihood, x, code.mean, code.variance, noise=noise)
    error, exact = (precision_error(code.variance, one, beta=beta) for one in (metric, -mean.exact))
    errors = {
        "whole": error.relative,
        "diagonal": error.diagonal,
        "off the diagonal": error.off_diagonal,
        "whole, mean Hessian": exact.relative,
        "diagonal, mean Hessian": exact.diagonal,
    }
    variance = code.variance.double().cpu()
    found = torch.diag_embed(1 / variance) if variance.ndim == 2 else torch.linalg.inv(variance)
    optimum = optimal_precision(metric.double().cpu(), beta=beta)
    return found, optimum, {name: float(values.median()) for name, values in errors.items()}


def _agreement(found: Tensor, optimum: Tensor) -> dict[str, float]:
    """How entries correlate over points and latents, and the optimum's part off the diagonal."""
    off = ~torch.eye(found.shape[-1], dtype=torch.bool)
    logs = torch.stack([part.diagonal(dim1=-2, dim2=-1).flatten() for part in (found, optimum)]).log()
    beside = torch.stack([_correlations(part)[:, off] for part in (found, optimum)])
    return {
        "log ratio": float((logs[0] - logs[1]).median()),
        "correlation of logarithms": _correlation(logs),
        "correlation off the diagonal": _correlation(beside.flatten(1)),
        "size off the diagonal": float(beside[1].abs().mean()),
    }


def _correlations(precision: Tensor) -> Tensor:
    """A precision matrix scaled to a unit diagonal, so that latents of all lengths count alike."""
    root = precision.diagonal(dim1=-2, dim2=-1).sqrt()
    return precision / (root.unsqueeze(-1) * root.unsqueeze(-2))


def _correlation(pair: Tensor) -> float:
    """Of two rows; undefined, so NaN, where one of them does not vary."""
    return math.nan if bool((pair.std(1) == 0).any()) else float(torch.corrcoef(pair)[0, 1])


def _groups(tables: Tables) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    members = tables["members"]
    for likelihood, name in LIKELIHOODS.items():
        own = members[members["likelihood"] == likelihood]
        straight, full = (own[own["posterior"] == posterior] for posterior in POSTERIORS)
        yield name, straight, full


def _diagonal_cases(tables: Tables) -> Iterator[Bound]:
    for name, *groups in _groups(tables):
        for posterior, part in zip(POSTERIORS, groups, strict=True):
            words = f"{name}, {posterior} posterior: relative error of the diagonal of Σ⁻¹"
            exact = part["diagonal, mean Hessian"].mean()
            note = f"{exact:.3g} against the Hessian's mean over the posterior"
            yield Bound(words, "0, within 0.1", part["diagonal"], most=0.1, note=note)


def _off_diagonal_cases(tables: Tables) -> Iterator[Bound]:
    for name, _, full in _groups(tables):
        words = f"{name}, full posterior: correlation of Σ⁻¹ and I + DᵀA²D/β off the diagonal"
        yield Bound(words, "at least 0.9 (1)", full["correlation off the diagonal"], least=0.9)


def _driven_cases(tables: Tables) -> Iterator[Order]:
    for name, straight, full in _groups(tables):
        words = f"{name}: size of I + DᵀA²D/β off its diagonal, diagonal less full posterior"
        yield Order(words, straight["size off the diagonal"], full["size off the diagonal"])


def plot(tables: Tables) -> Figure:
    """Entries of Σ⁻¹ against those of I + DᵀA²D/β: on the diagonal above, off it below."""
    entries = tables["entries"][::-1]
    cells = list(itertools.product(("diagonal", "off the diagonal"), LIKELIHOODS))
    titles = [f"{LIKELIHOODS[likelihood]}: {part}" for part, likelihood in cells]
    figure, axes = panels(titles, rows=2, width=3.2, height=2.8)
    look: dict[str, Any] = {"style": ".", "label": "{} posterior", "markersize": 3, "alpha": 0.5}
    look["colours"] = {"full": COLOURS[1], "diagonal": COLOURS[0]}
    for panel, (part, likelihood) in zip(axes, cells, strict=True):
        own = entries[(entries["part"] == part) & (entries["likelihood"] == likelihood)]
        values = own[["predicted", "posterior's"]].to_numpy()
        lines(panel, own, "predicted", "posterior's", by="posterior", **look)
        identity(panel, values)
        if part == "diagonal":
            low, high = np.nanmin(values), np.nanmax(values)
            ticks = [value for value in (1, 2, 5, 10, 20, 50, 100, 200, 500) if low <= value <= high]
            logarithmic(panel.xaxis, ticks)
            logarithmic(panel.yaxis, ticks)
        finish(panel, "I + DᵀA²D/β", "Σ⁻¹")
    finish(axes[0], legend="best")
    return figure


OPTIMAL_PRECISION = Artefact(
    key="allen2024.optimal_precision",
    title="The posterior's precision is I + DᵀA²D/β on trained Gaussian and Bernoulli VAEs",
    claims=(
        Bounds("Eq. 7: at the optimum Σ⁻¹ = I + DᵀA²D/β, on the diagonal", _diagonal_cases),
        Bounds("Eq. 7: the same off the diagonal, under a full posterior", _off_diagonal_cases),
        Orders("Eq. 8: a diagonal posterior drives DᵀA²D to be diagonal", _driven_cases),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
)
