"""Figure 1 of rolinek2019: what each step of an encoder's singular value decomposition does to principal directions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Scale, Workplace
from unseam.papers.claims import Bound, Bounds, Order, Orders
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
        **{
            name: pd.concat([part[name] for part in parts], ignore_index=True)
            for name in ("models", "trainings")
        },
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


def _angles(tables: Tables, column: str) -> dict[str, NDArray[np.float64]]:
    """Degrees per model between images of the principal directions and axes, after every step."""
    own, principal = tables["models"], principal_directions(tables["data"])
    own = own[own["column"] == column]
    found = {step: axis_angle(images) for step, images in encoder_steps(own, principal).items()}
    return found | {"decoder": axis_angle(decoder_steps(own, principal)["(i)"])}


def _preserved_cases(tables: Tables) -> Iterator[Bound]:
    for column, words in WORDS.items():
        for step in ("(i)", "(ii)"):
            note = BEYOND if column == "AE" and step == "(ii)" else ""
            angles = _angles(tables, column)[step]
            wrong = {} if column == "AE" else {"autoencoder": _angles(tables, "AE")[step]}
            quantity = f"{words}: angle after step {step}, median, degrees"
            yield Bound(quantity, f"0: at most {ALIGNED:g}", angles, most=ALIGNED, note=note, wrong=wrong)


def _last_step_cases(column: str, other: str) -> Callable[[Tables], Iterator[Bound]]:
    """The angle after step (iii) and of the decoder, small for β-VAEs alone; the other models are wrong ones."""
    said, least, most = f"0: at most {ALIGNED:g}", -math.inf, ALIGNED
    if column != "β-VAE":
        said, least, most = f"misaligned: at least {2 * ALIGNED:g}", 2 * ALIGNED, math.inf

    def cases(tables: Tables) -> Iterator[Bound]:
        for step, words in (
            ("(iii)", "angle after step (iii)"),
            ("decoder", "angle of the decoder's columns"),
        ):
            own, wrong = (_angles(tables, name)[step] for name in (column, other))
            quantity = f"{WORDS[column]}: {words}, median, degrees"
            yield Bound(quantity, said, own, least, most, wrong={WORDS[other]: wrong})

    return cases


def _order_cases(tables: Tables) -> Iterator[Order]:
    low, high = (_angles(tables, column)["(iii)"] for column in ("β-VAE", "β-VAE_Σ"))
    yield Order("angle after step (iii), β-VAE less full covariance, degrees", low, high)


def plot(tables: Tables) -> Figure:
    """Data and principal directions through the steps of one encoder per row: the median model of each kind."""
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
    "laptop": Settings(CONVERGED.replace(seeds=10)),
    "full": Settings(CONVERGED),
}
"""Of Figures 1 and 2, which look at the same models."""

FIGURE1 = Artefact(
    key="rolinek2019.figure1",
    title="Figure 1: the steps of an encoder's singular value decomposition",
    claims=(
        Bounds(
            "Figure 1: steps (i) Uᵀ and (ii) Σ† of an encoder VΣ†Uᵀ preserve the principal directions of the data",
            _preserved_cases,
            statistic="median",
        ),
        Bounds(
            "Figure 1: good encoders are those for which step (iii), V, is trivial; the same holds for the decoder",
            _last_step_cases("β-VAE", "β-VAE_Σ"),
            statistic="median",
        ),
        Bounds(
            "Figure 1: step (iii) causes misalignment, here of models whose objective is invariant to rotations",
            _last_step_cases("β-VAE_Σ", "β-VAE"),
            statistic="median",
        ),
        Orders("Figure 1: a diagonal posterior aligns better than a full covariance", _order_cases),
    ),
    presets=LINEAR_PRESETS,
    measure=trained,
    plot=plot,
    note="Linear models on Synth. Lin.; encoders are taken on the plane that holds the data. The angle is the "
    "larger one "
    "between the images of the two principal directions and an axis for each; at most 5° counts as preserved.",
)
