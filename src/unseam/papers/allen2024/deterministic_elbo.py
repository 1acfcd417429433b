"""Eqs. 5, 6 and A.4 of allen2024: the deterministic ELBO's gap to the sampled one along training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.models import VAE
from unseam.papers.allen2024._members import (
    expansion,
    finding,
    logarithmic,
    sample_images,
    sprite_trial,
    trained,
)
from unseam.papers.artefact import Artefact, Judgement, Workplace
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["DETERMINISTIC_ELBO"]

KINDS = ("Gaussian", "Bernoulli", "Gaussian, linear decoder")


@dataclass(frozen=True)
class Settings:
    """Trainings stopped after more and more steps, and how finely the gap of each is measured."""

    resolution: int = 16
    positions: int = 16
    scales: int = 8
    width: int = 64
    latent: int = 4
    variance: float = 0.05
    records: tuple[int, ...] = (10, 18, 32, 56, 100, 180, 320, 560, 1000, 1800, 3200)
    """Steps after which the gap is measured: four per factor of ten, so that a minimum along training shows."""
    seeds: int = 5
    points: int = 128
    samples: int = 128


def measure(settings: Settings, place: Workplace) -> Tables:
    """Both ELBOs of every model at the same points, noise used with both signs."""
    import pandas as pd

    trials = _trials(settings)
    ensemble = trained([trial for _, trial in trials], place, "sprites")
    random = torch.Generator().manual_seed(0)
    x = sample_images(trials[0][1], settings.points, random)
    noise = torch.randn(settings.samples, len(x), settings.latent, generator=random)
    x, noise = x.to(ensemble.device), noise.to(ensemble.device)
    rows = [
        {"kind": kind, "steps": trial.steps, "seed": trial.seed} | _terms(ensemble[member], x, noise)
        for member, (kind, trial) in enumerate(trials)
    ]
    return {"training": pd.DataFrame(rows)}


def _trials(settings: Settings) -> list[tuple[str, Trial]]:
    """A trial of fewer steps is the same training, stopped there; the linear control is measured at its end."""
    base = sprite_trial(
        settings.resolution, settings.positions, settings.scales, settings.width, settings.latent
    )
    gaussian = dataclasses.replace(base, likelihood="gaussian", likelihood_variance=settings.variance)
    forms = {
        KINDS[0]: (gaussian, settings.records),
        KINDS[1]: (base, settings.records),
        KINDS[2]: (dataclasses.replace(gaussian, decoder_widths=()), settings.records[-1:]),
    }
    return [
        (kind, dataclasses.replace(trial, steps=steps, seed=seed))
        for kind, (trial, records) in forms.items()
        for steps in records
        for seed in range(settings.seeds)
    ]


def _terms(model: VAE, x: Tensor, noise: Tensor) -> dict[str, float]:
    """Means over points, in nats, at β = 1; the residual is what Eq. 6 keeps and A.4 drops."""
    gap, regularisation, residual = expansion(model, x, noise)
    return {
        "deterministic": float(gap.deterministic.mean()),
        "sampled": float(gap.sampled.mean()),
        "gap": float(gap.gap.mean()),
        "size of the gap": float(gap.gap.abs().mean()),
        "size with the exact Hessian": float((gap.gap + residual).abs().mean()),
        "error of sampling": float(gap.standard_error.mean()),
        "regularisation": float(regularisation.mean()),
        "size of the residual": float(residual.abs().mean()),
    }


def judge(tables: Tables) -> Judgement:
    """Gap and residual term relative to the regularisation, at the last record and against the first."""
    table, found, parts = tables["training"], [], []
    for kind in KINDS[:2]:
        own = table[table["kind"] == kind]
        first, last = (own[own["steps"] == steps] for steps in (own["steps"].min(), own["steps"].max()))
        begun, ended = (_relative(part, "size of the gap") for part in (first, last))
        dropped, left = (_relative(part, "size of the residual") for part in (first, last))
        since = f"after {first['steps'].iloc[0]} steps it is"
        end = last.mean(numeric_only=True)
        found += [
            finding(
                f"{kind}: size of the gap at the end, of ½⟨DᵀA²D, Σ⟩",
                "small: the approximation is of fourth order",
                ended,
                ended.mean() <= 0.1,
                f"{end['size of the gap']:.3g} nats of {end['sampled']:.4g}",
            ),
            finding(
                f"{kind}: the same, how often smaller than at the first record",
                "vanishes as training progresses",
                begun / ended,
                (begun > ended).all(),
                f"{since} {begun.mean():.3g}",
            ),
            finding(
                f"{kind}: the residual term of Eq. 6 at the end, of ½⟨DᵀA²D, Σ⟩",
                "vanishes as training progresses",
                left,
                (left < dropped).all(),
                f"{since} {dropped.mean():.3g}",
            ),
        ]
        parts.append(
            f"{kind}: {end['size of the gap']:.3g} nats without the residual term, "
            f"{end['size with the exact Hessian']:.3g} with it (sampling error {end['error of sampling']:.2g})"
        )
    sizes = _relative(table[table["kind"] == KINDS[2]], "size of the gap")
    found.append(
        finding(
            "Gaussian, linear decoder: size of the gap, of ½⟨DᵀA²D, Σ⟩",
            "0 (Eq. 5 is exact)",
            sizes,
            (sizes <= 1e-4).all(),
            "single precision",
        )
    )
    return Judgement(tuple(found), "Mean size of the gap at the end: " + "; ".join(parts) + ".")


def _relative(rows: pd.DataFrame, column: str) -> np.ndarray:
    return (rows[column] / rows["regularisation"]).to_numpy()


def draw(tables: Tables) -> Figure:
    """Both ELBOs along training, and sizes of the gap and of what is dropped relative to the regularisation."""
    table = tables["training"]
    titles = ["ELBO, Gaussian", "ELBO, Bernoulli", "of ½⟨DᵀA²D, Σ⟩, Gaussian", "of ½⟨DᵀA²D, Σ⟩, Bernoulli"]
    figure, axes = panels(titles, rows=2, width=3.4, height=2.3)
    for kind, levels, shares in zip(KINDS[:2], axes[:2], axes[2:], strict=True):
        means = table[table["kind"] == kind].groupby("steps").mean(numeric_only=True)
        levels.plot(means.index, means["sampled"], color=COLOURS[0], label="sampled")
        levels.plot(
            means.index, means["deterministic"], "--", color=COLOURS[1], label="deterministic (Eq. 5)"
        )
        for column, colour, label in (
            ("size of the gap", COLOURS[0], "gap"),
            ("size of the residual", COLOURS[1], "residual term of Eq. 6"),
            ("size with the exact Hessian", COLOURS[2], "gap with the exact Hessian"),
        ):
            shares.plot(
                means.index,
                means[column] / means["regularisation"],
                "o-",
                color=colour,
                markersize=3,
                label=label,
            )
        levels.set_ylabel("nats", fontsize=8)
        logarithmic(shares.yaxis)
    axes[0].legend(fontsize=7, frameon=False)
    axes[2].legend(fontsize=7, frameon=False)
    for panel in axes:
        logarithmic(panel.xaxis)
        panel.set_xlabel("training steps", fontsize=8)
    return figure


DETERMINISTIC_ELBO = Artefact(
    key="allen2024.deterministic_elbo",
    title="The deterministic ELBO's gap to the sampled ELBO along training",
    claim="The ELBO is approximated by its second-order expansion, the error being of fourth order, and the term of "
    "Eq. 6 that is dropped vanishes as training progresses (Eq. 5, A.2–A.4).",
    criterion="At the end of training the mean size of the gap is at most a tenth of the regularising term "
    "½⟨DᵀA²D, Σ⟩, Gaussian and Bernoulli; gap and dropped term, of that term, are smaller than after the first few "
    "steps for every seed; with a linear decoder and a Gaussian likelihood there is no gap.",
    presets={
        "smoke": Settings(
            resolution=8,
            positions=8,
            scales=4,
            width=24,
            latent=3,
            records=(5, 80),
            seeds=2,
            points=32,
            samples=8,
        ),
        "laptop": Settings(),
        "full": Settings(
            resolution=24,
            width=128,
            latent=5,
            records=(10, 18, 32, 56, 100, 180, 320, 560, 1000, 1800, 3200, 5600, 10_000),
            seeds=10,
            points=256,
        ),
    },
    measure=measure,
    judge=judge,
    draw=draw,
)
