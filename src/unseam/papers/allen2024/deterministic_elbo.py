"""Eqs. 5, 6 and A.4 of allen2024: the deterministic ELBO's gap to the sampled one along training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.models import VAE
from unseam.papers.allen2024._members import (
    SpriteSettings,
    expansion,
    items_and_noise,
    sprite_trial,
    vanishing,
)
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Curve, Identities, Identity, Trends
from unseam.papers.plots import Figure, Tables, curve, finish, logarithmic
from unseam.papers.tables import of_tables
from unseam.papers.trainings import combinations, train_or_resume
from unseam.trial import Trial

__all__ = ["DETERMINISTIC_ELBO"]

KINDS = ("Gaussian", "Bernoulli", "Gaussian, linear decoder")
CLOSE = 0.1


@dataclass(frozen=True)
class Settings(SpriteSettings):
    """Trainings stopped after more and more steps, and how finely the gap of each is measured."""

    records: tuple[int, ...] = scaled((5, 80), (10, 18, 32, 56, 100, 180, 320, 560, 1000, 1800, 3200))
    """Steps after which the gap is measured: four per factor of ten, so that a minimum along training shows."""
    points: int = scaled(32, 128, 256)
    samples: int = scaled(8, 128)


def measure(settings: Settings, place: Workplace) -> Tables:
    """Both ELBOs of every model at the same points, noise used with both signs."""
    trials = _trials(settings)
    ensemble = train_or_resume([trial for _, trial in trials], place, "sprites")
    given = items_and_noise(trials[0][1], settings.points, settings.samples, ensemble.device)
    rows = [
        {"kind": kind, "steps": trial.steps, "seed": trial.seed} | _terms(ensemble[member], *given)
        for member, (kind, trial) in enumerate(trials)
    ]
    return {"training": pd.DataFrame(rows)}


def _trials(settings: Settings) -> list[tuple[str, Trial]]:
    """A trial of fewer steps is the same training, stopped there; the linear control is measured at its end."""
    bernoulli, gaussian = (sprite_trial(settings, likelihood=name) for name in ("bernoulli", "gaussian"))
    forms = {
        KINDS[0]: (gaussian, settings.records),
        KINDS[1]: (bernoulli, settings.records),
        KINDS[2]: (dataclasses.replace(gaussian, decoder_widths=()), settings.records[-1:]),
    }
    return [
        (kind, trial)
        for kind, (first, records) in forms.items()
        for trial in combinations(first, steps=records, seed=range(settings.seeds))
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


def _relative(rows: pd.DataFrame, column: str) -> np.ndarray:
    """Per seed, in units of the regularisation ½⟨DᵀA²D, Σ⟩."""
    return (rows[column] / rows["regularisation"]).to_numpy()


def _size_cases(tables: Tables) -> Iterator[Bound]:
    for kind in KINDS[:2]:
        own = tables["training"][tables["training"]["kind"] == kind]
        last = own[own["steps"] == own["steps"].max()]
        size, exact = (_relative(last, f"size {of}") for of in ("of the gap", "with the exact Hessian"))
        note = f"{100 * exact.mean() / size.mean():.0f} % of it is left with the exact Hessian"
        wrong = {"without the term of second order": abs(1 + _relative(last, "gap"))}
        words = f"{kind}: |gap| at the end of training, of the regularisation"
        yield Bound(words, f"at most {CLOSE:g}", size, most=CLOSE, note=note, wrong=wrong)


@of_tables
def _trend_cases(tables: Tables, column: str, words: str) -> Iterator[Curve]:
    for kind in KINDS[:2]:
        own = tables["training"][tables["training"]["kind"] == kind]
        yield vanishing(own.assign(ratio=_relative(own, column)), "ratio", f"{kind}: ", words)


def _linear_cases(tables: Tables) -> Iterator[Identity]:
    sizes = _relative(tables["training"][tables["training"]["kind"] == KINDS[2]], "size of the gap")
    words = "Gaussian, linear decoder: largest |gap|, of the regularisation"
    yield Identity(words, "0", float(sizes.max()), 1e-4, n=len(sizes), note="single precision")


def plot(tables: Tables) -> Figure:
    """Both ELBOs along training, and sizes of the gap and of what is dropped relative to the regularisation."""
    titles = ["ELBO, Gaussian", "ELBO, Bernoulli", "of ½⟨DᵀA²D, Σ⟩, Gaussian", "of ½⟨DᵀA²D, Σ⟩, Bernoulli"]
    figure, axes = panels(titles, rows=2, width=3.4, height=2.3)
    elbos = {"sampled": "sampled", "deterministic": "deterministic (Eq. 5)"}
    sizes = {
        "size of the gap": "gap",
        "size of the residual": "residual term of Eq. 6",
        "size with the exact Hessian": "gap with the exact Hessian",
    }
    for kind, levels, shares in zip(KINDS[:2], axes[:2], axes[2:], strict=True):
        own = tables["training"][tables["training"]["kind"] == kind]
        means = own.groupby("steps").mean(numeric_only=True)
        for colour, style, (column, label) in zip(COLOURS, ("-", "--"), elbos.items(), strict=False):
            levels.plot(means.index, means[column], style, color=colour, label=label)
        for colour, (column, label) in zip(COLOURS, sizes.items(), strict=False):
            curve(shares, own.assign(share=_relative(own, column)), "steps", "share", colour, label)
        finish(levels, y="nats")
        logarithmic(shares.yaxis)
    for panel in axes:
        logarithmic(panel.xaxis)
        finish(panel, "training steps", legend="best" if panel in (axes[0], axes[2]) else "")
    return figure


DETERMINISTIC_ELBO = Artefact(
    key="allen2024.deterministic_elbo",
    title="The deterministic ELBO's gap to the sampled ELBO along training",
    claims=(
        Bounds(
            "A.2: the second-order expansion approximates the ELBO, with an error small beside the term it is about",
            _size_cases,
        ),
        Trends(
            "A.2, A.3: the term of Eq. 6 that is dropped vanishes as training progresses",
            _trend_cases("size of the residual", "residual term of Eq. 6"),
        ),
        Trends(
            "The error of the expansion vanishes as training progresses (the text says so of the dropped term only)",
            _trend_cases("size of the gap", "|gap|"),
            ours=True,
        ),
        Identities("Eq. 5 is exact for a linear decoder and a Gaussian likelihood", _linear_cases),
    ),
    presets=presets_of(
        Settings,
        smoke={"seeds": 2},
        full={"records": (*Settings.records, 5600, 10_000), "seeds": 10},
    ),
    measure=measure,
    plot=plot,
    note="That the error is of fourth order in the posterior's width is not tested: along training the width changes "
    "together with the decoder, so that no order can be fitted.",
)
