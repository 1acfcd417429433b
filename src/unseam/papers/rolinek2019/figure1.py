"""Figure 1 of rolinek2019: what each step of an encoder's singular value decomposition does to principal directions."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Scale, Workplace
from unseam.papers.rolinek2019._findings import checked
from unseam.papers.rolinek2019.cells import ORDER_RULE, order
from unseam.papers.rolinek2019.linear_models import (
    ALIGNED,
    CONVERGED,
    axis_angle,
    decoders,
    encoders,
    linear_models,
)
from unseam.papers.rolinek2019.setups import Setup, smoke

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.figure import Figure

    Tables = Mapping[str, pd.DataFrame]

__all__ = ["FIGURE1", "LINEAR_PRESETS", "Settings", "trained"]

STEPS = ("(i)", "(ii)", "(iii)")
"""Uᵀ, then Σ†, then V."""
BEYOND = (
    "Eq. 6 has minimisers beyond Example 1: all invertible maps of the latents, followed by their inverse"
)
WORDS = {"β-VAE": "β-VAE", "β-VAE_Σ": "full covariance", "AE": "autoencoder"}


@dataclass(frozen=True)
class Settings:
    """Linear models of three kinds on Synth. Lin."""

    setup: Setup


def trained(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """The matrices of all models, how they were trained, and the covariance of their data."""
    import pandas as pd

    parts = [linear_models(settings.setup, column, place) for column in settings.setup.columns]
    world = settings.setup.load()
    covariance = np.cov(world.images(torch.arange(len(world))).double().numpy().T)
    return {
        "models": pd.concat([part.models for part in parts], ignore_index=True),
        "trainings": pd.concat([part.trainings for part in parts], ignore_index=True),
        "data": pd.DataFrame(covariance, columns=["x1", "x2", "x3"]),
    }


def principal_directions(data: pd.DataFrame) -> NDArray[np.float64]:
    """The two leading eigenvectors (data, 2) of the covariance."""
    return np.linalg.eigh(data.to_numpy(dtype=float))[1][:, :0:-1]


def encoder_steps(models: pd.DataFrame, principal: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Images (model, latent, 2) of the principal directions after each step of the encoder VΣ†Uᵀ.

    Of the encoder on the plane of the data: what it does across it, where there are none, is left as it was drawn.
    """
    left, scale, right = np.linalg.svd(encoders(models) @ principal)
    scaled = scale[..., None] * right
    return dict(zip(STEPS, (right, scaled, left @ scaled), strict=True))


def decoder_steps(models: pd.DataFrame, principal: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Images (model, 2, latent) of the latent axes after each step of the decoder UΣVᵀ, backwards.

    The last are seen in the frame of the principal directions.
    """
    left, scale, right = np.linalg.svd(decoders(models), full_matrices=False)
    scaled = scale[..., None] * right
    return dict(zip(reversed(STEPS), (right, scaled, principal.T @ left @ scaled), strict=True))


def judge(tables: Tables) -> Judgement:
    """Angles between principal directions and axes after every step, and when step (iii) is trivial."""
    models, principal = tables["models"], principal_directions(tables["data"])
    found, ends = [], {}
    for column, words in WORDS.items():
        own = models[models["column"] == column]
        angles = {step: axis_angle(images) for step, images in encoder_steps(own, principal).items()}
        ends[column] = angles["(iii)"]
        found += [_preserved(f"{words}: angle after step {step}", angles[step]) for step in ("(i)", "(ii)")]
        if column == "AE":
            found[-1] = found[-1]._replace(note=f"{found[-1].note}; {BEYOND}")
        if column == "β-VAE":
            found.append(_preserved(f"{words}: angle after step (iii)", angles["(iii)"], "0: trivial"))
        elif column == "β-VAE_Σ":
            found.append(_misaligned(f"{words}: angle after step (iii)", angles["(iii)"]))
        decoded = axis_angle(decoder_steps(own, principal)["(i)"])
        quantity = f"{words}: angle between the decoder's columns and the principal directions"
        if column == "β-VAE":
            found.append(_preserved(quantity, decoded, "0"))
        elif column == "β-VAE_Σ":
            found.append(_misaligned(quantity, decoded))
    found.append(
        order("angle after step (iii), β-VAE less full covariance, degrees", ends["β-VAE"], ends["β-VAE_Σ"])
    )
    return Judgement(tuple(found))


def _preserved(quantity: str, angles: NDArray[np.float64], published: str = "0: preserved") -> Finding:
    median = float(np.median(angles))
    return checked(f"{quantity}, median, degrees", published, median, median <= ALIGNED, _range(angles))


def _misaligned(quantity: str, angles: NDArray[np.float64]) -> Finding:
    median = float(np.median(angles))
    return checked(f"{quantity}, median, degrees", "misaligned", median, median > 2 * ALIGNED, _range(angles))


def _range(angles: NDArray[np.float64]) -> str:
    return f"{angles.min():.1f} to {angles.max():.1f} over {len(angles)} models"


def draw(tables: Tables) -> Figure:
    """Data and principal directions through the steps of one encoder per row: that with the median angle."""
    models, principal = tables["models"], principal_directions(tables["data"])
    covariance = principal.T @ tables["data"].to_numpy(dtype=float) @ principal
    titles = [
        f"{words}: {step}"
        for words in WORDS.values()
        for step in ("data", "(i) rotated, Uᵀ", "(ii) scaled, Σ†", "(iii) rotated, V")
    ]
    figure, axes = panels(titles, rows=3, width=2.2, height=2.1)
    half = np.sqrt(3 * np.diag(covariance))  # of a uniform distribution
    square = half * (np.stack(np.meshgrid(*[np.linspace(-1, 1, 15)] * 2), -1).reshape(-1, 2))
    for row, column in enumerate(WORDS):
        own = models[models["column"] == column]
        steps = encoder_steps(own, principal)
        largest = np.max([axis_angle(images) for images in steps.values()], axis=0)
        median = int(np.argsort(largest)[len(largest) // 2])
        images = [np.eye(2), *(steps[step][median] for step in STEPS)]
        for panel, image in zip(axes[4 * row : 4 * row + 4], images, strict=True):
            points, arrows = square @ image.T, half[:, None] * image.T
            reach = 1.15 * np.abs(points).max()
            panel.scatter(*points.T, s=3, color="0.7", linewidths=0)
            for arrow, colour in zip(arrows, COLOURS, strict=False):
                panel.annotate(
                    "",
                    arrow,
                    (0, 0),
                    arrowprops={
                        "arrowstyle": "-|>",
                        "color": colour,
                        "linewidth": 1.6,
                        "shrinkA": 0,
                        "shrinkB": 0,
                    },
                )
            panel.spines[["left", "bottom"]].set_visible(False)
            panel.axhline(0, color="0.5", linewidth=0.5, zorder=0)
            panel.axvline(0, color="0.5", linewidth=0.5, zorder=0)
            panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
            panel.set_xlabel(f"{float(axis_angle(image[None])[0]):.1f}° from the axes", fontsize=7)
    return figure


LINEAR_PRESETS: dict[Scale, Settings] = {
    "smoke": Settings(smoke(CONVERGED)),
    "laptop": Settings(dataclasses.replace(CONVERGED, seeds=10)),
    "full": Settings(CONVERGED),
}
"""Of Figures 1 and 2, which look at the same models."""

FIGURE1 = Artefact(
    key="rolinek2019.figure1",
    title="Figure 1: the steps of an encoder's singular value decomposition",
    claim="Of an encoder VΣ†Uᵀ steps (i) Uᵀ and (ii) Σ† preserve the principal directions of the data; step (iii) V "
    "causes misalignment, and good encoders are those for which it is trivial. The same holds for the decoder UΣVᵀ "
    "in reverse order. For distinct singular values this is equivalent to orthogonal columns of the decoder.",
    criterion="Measured on linear β-VAEs, linear β-VAEs with full covariance, whose objective sees no rotation, and "
    "linear autoencoders, trained on Synth. Lin.; encoders are taken on the plane that holds the data. The angle is "
    "the larger one between the images of the two principal directions and an axis for each. Steps (i) and (ii) "
    "preserve directions where the median over models is at most 5°, of every kind of model. The same is asked of step "
    "(iii) and of the decoder's columns for β-VAEs; with full covariance both are misaligned: their medians exceed "
    f"10°. {ORDER_RULE} The equivalence is Proposition 1, which rolinek2019.propositions checks.",
    presets=LINEAR_PRESETS,
    measure=trained,
    judge=judge,
    draw=draw,
)
