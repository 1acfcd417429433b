"""Linear models of Synth. Lin., trained and stored as their matrices: what Figures 1 and 2 and Suppl. 9.2 look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.data import World
from unseam.data import place as place_world
from unseam.papers.artefact import Workplace
from unseam.papers.rolinek2019.setups import LINEAR, Column, Setup
from unseam.papers.trainings import follow
from unseam.training import Ensemble, training_index

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ALIGNED",
    "CONVERGED",
    "axis_angle",
    "decoders",
    "encoders",
    "linear_models",
]

ALIGNED = 5.0
"""Degrees within which two directions count as one; misaligned is what is more than twice as far off."""

CONVERGED = LINEAR.replace(betas=(1e-2,), batch_size=200, learning_rate=1e-2, steps=10_000, seeds=30)
"""β-VAEs whose latents stop rotating within 10 000 steps: rotations are driven by β, and Table S3's takes hundreds of
epochs. Both latents stay active, since βσ² = 0.005 is far below the data's smaller variance, 1/12."""


def linear_models(setup: Setup, column: Column, where: Workplace) -> dict[str, pd.DataFrame]:
    """Train all seeds of a column and read off their matrices; stored with the workplace's trainings.

    Returns:
        ``models``, one row per model: ``column``, ``ratio``, ``seed``, encoder ``e11`` to ``e23`` (latent, data),
        decoder ``d11`` to ``d32`` (data, latent), means ``m1``, ``m2`` and variances ``s1``, ``s2`` of the aggregate
        posterior; and ``trainings``.
    """
    world = place_world(setup.load(), where.device)
    return follow(
        setup.trials(column),
        where,
        world=world,
        measured={"column": column, "matrices": True},
        finish=lambda ensemble: {"models": _matrices_of(ensemble, column, world)},
    )


def encoders(models: pd.DataFrame) -> NDArray[np.float64]:
    """Matrices (model, latent, data) of the posterior mean."""
    return _matrices(models, "e", 2, 3)


def decoders(models: pd.DataFrame) -> NDArray[np.float64]:
    """Matrices (model, data, latent)."""
    return _matrices(models, "d", 3, 2)


def axis_angle(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angle (...) in degrees between two directions, the columns of (..., 2, 2), and an axis for each: the larger one.

    >>> turn = np.sqrt(0.5) * np.array([[1.0, -1.0], [1.0, 1.0]])
    >>> axis_angle(np.stack([np.diag([2.0, -3.0]), turn])).round(6).tolist()
    [0.0, 45.0]
    """
    along_first = np.degrees(np.arctan2(np.abs(images[..., 1, :]), np.abs(images[..., 0, :])))
    straight = np.maximum(along_first[..., 0], 90 - along_first[..., 1])
    exchanged = np.maximum(90 - along_first[..., 0], along_first[..., 1])
    return np.minimum(straight, exchanged)


def _matrices(models: pd.DataFrame, letter: str, rows: int, columns: int) -> NDArray[np.float64]:
    names = [f"{letter}{row + 1}{column + 1}" for row in range(rows) for column in range(columns)]
    return models[names].to_numpy(dtype=float).reshape(-1, rows, columns)


def _matrices_of(ensemble: Ensemble, column: Column, world: World) -> pd.DataFrame:
    import pandas as pd

    trials = ensemble.trials
    seen = training_index(trials[0], len(world))
    assert seen is not None
    parts = {
        "e": _linear_part(ensemble.encode, 3, ensemble),
        "d": _linear_part(ensemble.decode, 2, ensemble),
    }
    columns = {
        f"{letter}{row + 1}{col + 1}": matrix[:, row, col]
        for letter, matrix in parts.items()
        for row in range(matrix.shape[1])
        for col in range(matrix.shape[2])
    }
    code = ensemble.encode(world.images(seen.to(world.device)))
    spread = code.variance.diagonal(dim1=-2, dim2=-1) if code.variance.ndim == 4 else code.variance
    total = code.mean.var(1) + spread.mean(1)
    for latent in (0, 1):
        columns |= {f"m{latent + 1}": code.mean.mean(1)[:, latent], f"s{latent + 1}": total[:, latent]}
    ratio = dict(trials[0].world_options).get("ratio", 2.0)
    return pd.DataFrame(
        {"column": column, "ratio": ratio, "seed": [trial.seed for trial in trials]}
        | {name: values.cpu().double().numpy() for name, values in columns.items()}
    )


def _linear_part(apply: object, size: int, ensemble: Ensemble) -> Tensor:
    """Matrices (model, output, input) of affine maps, from the images of the origin and of the unit vectors."""
    points = torch.cat([torch.zeros(1, size), torch.eye(size)]).to(ensemble.device)
    found = apply(points)  # type: ignore[operator]
    images: Tensor = found if isinstance(found, Tensor) else found.mean
    return (images[:, 1:] - images[:, :1]).mT
