"""The demo: a β-VAE, its full-covariance control and an autoencoder on a small world, compared over seeds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from unseam.inspection import Inspection
from unseam.metrics import disentanglement_score
from unseam.report import SCORES, Study, run_studies, write
from unseam.run import Run
from unseam.training import train
from unseam.trial import Trial

__all__ = ["DEMO", "SCORES", "Demo", "Model", "run_demo"]

DEMO = Trial(
    world="sprites",
    world_options={  # type: ignore[arg-type]
        "resolution": 24,
        "shapes": ["ellipse"],
        "scales": 8,
        "orientations": 1,
        "positions": 16,
        "span": 0.5,
        "softness": 1.0,
    },
    encoder_widths=(128, 128),
    decoder_widths=(128,),
    latent=5,
    beta=2.0,
    learning_rate=3e-3,
    batch_size=64,
)


@dataclass(frozen=True)
class Model:
    """One of the demo's three kinds of model, measured over its seeds."""

    name: str
    members: tuple[int, ...]
    found: tuple[Inspection, ...]
    disentanglement: list[float]
    """For each seed, the score of rolinek2019 (Eq. S70): how much better the best latent predicts a factor than the
    second best, mean over factors."""
    scores: pd.DataFrame
    """Rows of :func:`unseam.metrics.evaluate`, one per seed and metric."""

    @property
    def dto(self) -> list[float]:
        """For each seed, DtO over active latents as a fraction of that of random rotations of as many."""
        return [_or_nan(found.dto_of_chance) for found in self.found]

    @property
    def cosine(self) -> list[float]:
        """For each seed, mean ``|cos|`` over active latents."""
        return [_or_nan(found.cosine) for found in self.found]

    def score(self, metric: str) -> list[float]:
        """For each seed, its score by a metric."""
        return [float(value) for value in self.scores.loc[self.scores["metric"] == metric, "score"]]


@dataclass(frozen=True)
class Demo:
    """What the demo found, and the report that shows it."""

    models: tuple[Model, ...]
    page: Path
    seconds: float
    about: dict[str, Any]
    world: str

    def summary(self) -> str:
        """The result in a few lines of plain words."""
        return "\n".join([f"Trained on {self.world}.", *_sentences(self.models), f"{self.seconds:.0f} s."])

    def rows(self) -> list[dict[str, str]]:
        """One row per quantity, one column per model: means and standard deviations over seeds."""
        seeds = len(self.models[0].members)
        quantities: dict[str, list[str]] = {
            "active latents": [_range(model) for model in self.models],
            "DtO, fraction of chance": [_spread(model.dto) for model in self.models],
            "mean |cos|": [_spread(model.cosine) for model in self.models],
            "disentanglement score": [_spread(model.disentanglement) for model in self.models],
        } | {
            f"{title}, active latents": [_spread(model.score(metric)) for model in self.models]
            for metric, title in SCORES.items()
        }
        return [
            {f"over {seeds} seed{'s' * (seeds > 1)}": quantity}
            | dict(zip([model.name for model in self.models], cells, strict=True))
            for quantity, cells in quantities.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """All numbers as JSON values."""
        return {
            "page": str(self.page),
            "seconds": self.seconds,
            "world": self.world,
            "models": [
                {
                    "name": model.name,
                    "members": list(model.members),
                    "dto_of_chance": _numbers(model.dto),
                    "cosine": _numbers(model.cosine),
                    "disentanglement": _numbers(model.disentanglement),
                    "scores": {metric: _numbers(model.score(metric)) for metric in SCORES},
                    "inspections": [found.to_dict() for found in model.found],
                }
                for model in self.models
            ],
            "about": self.about,
        }


def run_demo(
    out: Path, *, seeds: int = 3, steps: int = 3000, progress: bool | None = None, trial: Trial = DEMO
) -> Demo:
    """Train the three models, measure them, and write their report into the run's folder.

    A folder that already holds this demo's run is used as it is, or gone on with.

    Args:
        out: folder of the run.
        seeds: of each model.
        steps: updates of each model.
        progress: as in :func:`unseam.train`.
        trial: what all three share.
    """
    start = time.monotonic()
    if seeds < 1 or steps < 1:
        raise ValueError(f"seeds and steps must be at least 1, got {seeds} and {steps}")
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"posterior": "full"},
        {"posterior": "point", "objective": "autoencoder", "beta": 1.0},
    )
    trials = [
        dataclasses.replace(trial, **change, steps=steps, seed=seed)
        for change in kinds
        for seed in range(seeds)
    ]
    ensemble = train(trials, out=out, resume=True, progress=progress, device="cpu")
    run = Run.of(ensemble, path=Path(out))
    studies = run_studies(run, seeds=seeds)
    models = tuple(_measure(study, tuple(study.about["members"]), run) for study in studies)
    world = run.world
    named = ", ".join(world.factor_names)
    described = f"{world.name}, a twin of {world.twin_of}: {len(world)} pictures with factors {named}"
    about = ensemble.about | {"trials": [one.to_dict() for one in trials]}
    page = write(
        studies,
        Path(out) / "report.html",
        title="Why does a VAE disentangle?",
        lead="The same networks were trained three ways on small pictures of an ellipse whose size and place are "
        "known: with a diagonal posterior, with a full one, and without any. Look at what that does to their axes. "
        f"The world is {described}.",
        about=about,
    )
    seconds = time.monotonic() - start
    return Demo(models, page, seconds, about | {"seconds": round(seconds, 1)}, described)


def _measure(study: Study, members: tuple[int, ...], run: Run) -> Model:
    """A model with its disentanglement score on all items of the world."""
    codes = run.codes(members, index=torch.arange(len(run.world)))
    # positions and sizes on a grid are regressed: how far off a prediction is matters, not only whether it is
    smooth = [False] * len(codes.discrete)
    score = disentanglement_score(codes.mean, codes.factors, discrete=smooth).score
    assert study.match is not None
    return Model(study.name, members, study.inspections, score.double().tolist(), study.match.scores)


def _sentences(models: Sequence[Model]) -> list[str]:
    """What the numbers say, whatever they are."""
    first, *rest = models
    said = []
    quantities: tuple[tuple[str, list[list[float]], Callable[[list[float]], float]], ...] = (
        ("orthogonal axes (mean |cos| over active latents, 0 is best)", [m.cosine for m in models], min),
        ("axis-aligned factors (disentanglement score, 1 is best)", [m.disentanglement for m in models], max),
    )
    for what, values, better in quantities:
        if any(np.isnan(value).all() for value in values):
            said.append("A model has fewer than two active latents: what compares them is undefined.")
            continue
        means = [float(np.nanmean(value)) for value in values]
        others = ", ".join(f"{mean:.2f} for the {m.name}" for mean, m in zip(means[1:], rest, strict=True))
        wins = better(means) == means[0]
        sign = 1 if better is min else -1
        ours = [sign * value for value in values[0]]
        clear = wins and all(max(ours) < min(sign * value for value in theirs) for theirs in values[1:])
        # a claim about seeds needs seeds
        several = min(len(value) for value in values) > 1
        word = (
            "" if not several else ", in every seed" if clear else ", on average" if wins else " on average"
        )
        verb = "has the most" if wins else "does not have the most"
        said.append(f"The {first.name} {verb} {what}{word}: {means[0]:.2f} against {others}.")
    return said


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _range(model: Model) -> str:
    """Number of active latents, from the seed with the fewest to the one with the most."""
    counts = [int(found.active.sum()) for found in model.found if found.active is not None]
    return "–".join(map(str, sorted({min(counts), max(counts)}))) if counts else "–"


def _spread(values: list[float]) -> str:
    """Mean and sample standard deviation, which a single seed does not have."""
    seen = np.array(values)[~np.isnan(values)]
    if not len(seen):
        return "–"
    count = f" (n = {len(seen)})" if len(seen) < len(values) else ""
    return f"{seen.mean():.2f}" + (f" ± {seen.std(ddof=1):.2f}" if len(seen) > 1 else "") + count


def _numbers(values: list[float]) -> dict[str, Any]:
    """Every seed's number with their mean and standard deviation, as JSON has them."""
    seen = [value for value in values if not np.isnan(value)]
    return {
        "seeds": [None if np.isnan(value) else value for value in values],
        "n": len(seen),
        "mean": float(np.mean(seen)) if seen else None,
        "std": float(np.std(seen, ddof=1)) if len(seen) > 1 else None,
    }
