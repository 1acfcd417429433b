"""Train the demo's three models, measure them, and write their report."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unseam.demo.models import SCORES, Model, measure
from unseam.demo.page import apart, sentences, table
from unseam.report import run_studies, write
from unseam.run import Run
from unseam.training import train
from unseam.trial import Trial

__all__ = ["DEMO", "Demo", "run_demo"]

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
class Demo:
    """What the demo found, and the report that shows it.

    >>> Demo((), Path("report.html"), 1.0, {}, "a world").to_dict()["seconds"]
    1.0
    """

    models: tuple[Model, ...]
    page: Path
    seconds: float
    about: dict[str, Any]
    world: str

    def summary(self) -> str:
        """The result in a few lines of plain words."""
        lines = [f"Trained on {self.world}.", *sentences(self.models), f"{self.seconds:.0f} s."]
        return "\n".join(lines)

    def rows(self) -> list[dict[str, str]]:
        """One row per quantity, one column per model: means and standard deviations over seeds."""
        return table(self.models)

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
                    "gap": _numbers(model.gaps),
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
    kinds: dict[str, dict[str, Any]] = {
        "β-VAE": {},
        "full covariance": {"posterior": "full"},
        "autoencoder": {"posterior": "point", "objective": "autoencoder"},
    }
    trials = [
        dataclasses.replace(trial, **change, steps=steps, seed=seed)
        for change in kinds.values()
        for seed in range(seeds)
    ]
    ensemble = train(trials, out=out, resume=True, progress=progress, device="cpu")
    run = Run.of(ensemble, path=Path(out))
    world = run.world
    studies = run_studies(run, seeds=seeds)
    groups = [tuple(range(k * seeds, (k + 1) * seeds)) for k in range(len(kinds))]
    models = tuple(measure(study, members, run) for study, members in zip(studies, groups, strict=True))
    named = ", ".join(world.factor_names)
    said = f"{world.name}, a twin of {world.twin_of}: {len(world)} pictures with factors {named}"
    about = ensemble.about | {"trials": [one.to_dict() for one in trials]}
    page = write(
        studies,
        Path(out) / "report.html",
        title="Why does a VAE disentangle?",
        lead="The same networks were trained three ways on small pictures of an ellipse whose size and place are "
        "known: with a diagonal posterior, with a full one, and without any. Look at what that does to their axes. "
        f"The world is {said}.",
        first=[apart(models, ensemble)],
        about=about,
    )
    seconds = time.monotonic() - start
    return Demo(models, page, seconds, about | {"seconds": round(seconds, 1)}, said)


def _numbers(values: list[float]) -> dict[str, Any]:
    """Every seed's number with their mean and standard deviation, as JSON has them."""
    seen = [value for value in values if not np.isnan(value)]
    spread = (
        {"mean": float(np.mean(seen)), "std": float(np.std(seen))} if seen else {"mean": None, "std": None}
    )
    return {"seeds": [None if np.isnan(value) else value for value in values]} | spread
