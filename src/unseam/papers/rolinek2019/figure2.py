"""Figure 2 of rolinek2019: least product of column norms at a fixed volume means orthogonal columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Bound, Bounds, Identities, Identity, Order, Orders
from unseam.papers.rolinek2019._descent import Descent, descend
from unseam.papers.rolinek2019._draws import cayley, largest_cosine, orthogonal, plane_rotations
from unseam.papers.rolinek2019.figure1 import LINEAR_PRESETS, trained
from unseam.papers.rolinek2019.figure1 import Settings as Models
from unseam.papers.rolinek2019.linear_models import ALIGNED, decoders

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Tables = Mapping[str, pd.DataFrame]

__all__ = ["FIGURE2"]

# Share up to which two numbers are one; cosine up to which columns found by descent are orthogonal.
SAME, COSINE = 1e-9, 1e-4
VOLUMES = 0.05
"""Share by which mean volumes of two kinds of trained models may differ and still count as maintained."""
DISTINCT, EQUAL = "distinct", "equal"


@dataclass(frozen=True)
class Settings:
    """Random matrices with distinct and with equal singular values, rotated; and the trained models of Figure 1."""

    models: Models
    latents: tuple[int, ...] = (2, 3, 4, 5, 6)
    matrices: int = 50
    rotations: int = 20
    """Of each matrix: compared with one another, and starts of descents."""
    iterations: int = 200
    seed: int = 0


def measure(settings: Settings, place: Workplace) -> Tables:
    """Volume and product of norms of rotated matrices, the least product over rotations, and trained decoders."""
    import pandas as pd

    random = torch.Generator().manual_seed(settings.seed)
    rows = [
        _rotated(latent, kind, settings, random, place)
        for latent in settings.latents
        for kind in (DISTINCT, EQUAL)
    ]
    return {"matrices": pd.DataFrame(rows), **trained(settings.models, place)}


def _rotated(
    latent: int, kind: str, settings: Settings, random: torch.Generator, place: Workplace
) -> dict[str, Any]:
    """Extremes over all matrices M of one size and all rotations V of M Vᵀ; least products by descent over V."""
    count, many = settings.matrices, settings.rotations
    frame = orthogonal(count, latent + 2, latent, generator=random)
    steps = 1.1 + torch.rand(count, latent, generator=random, dtype=torch.float64)
    scale = (
        steps.cumprod(1) / steps.prod(1, keepdim=True).sqrt() if kind == DISTINCT else torch.ones_like(steps)
    )
    own = (frame * scale[:, None]).repeat_interleave(many, 0).to(place.device)
    start = orthogonal(count * many, latent, latent, generator=random).to(place.device)
    log_product, log_volume = _log_product(own @ start.mT), _log_volume(own @ start.mT)
    done = Descent(start, log_product, torch.zeros_like(log_product), log_product[None])
    # The product bends so sharply where singular values are far apart that even a hundredth of a gradient step in
    # radians, the least that a descent tries, can climb: descend in radians, then in tenths from there.
    for unit in (1.0, 0.1) if kind == DISTINCT else ():
        done = descend(
            lambda at: _log_product(own @ at.mT),
            done.place,
            iterations=settings.iterations,
            move=partial(_move, unit=unit),
            dimension=latent * (latent - 1) // 2,
        )
    end = own @ done.place.mT

    def spread(values: Tensor) -> float:
        each = values.view(count, many)
        return float((each.amax(1) - each.amin(1)).expm1().max())

    return {
        "singular values": kind,
        "latent": latent,
        "matrices": count,
        "rotations": many,
        "spread of volume": spread(log_volume),
        "spread of product": spread(log_product),
        "least product over volume less 1": float((log_product - log_volume).expm1().min()),
        "descended, largest product over volume less 1": float((done.value - _log_volume(end)).expm1().max()),
        "descended, largest cosine": float(largest_cosine(end).max()),
        "descended, largest slope": float(done.slope.max()),
    }


def _move(place: Tensor, step: Tensor, *, unit: float) -> Tensor:
    """Rotations (member, latent, latent), each rotated further by a step in these units of a radian."""
    return cayley(unit * step, place.shape[-1]) @ place


def _log_product(matrix: Tensor) -> Tensor:
    """Σ_j log ‖c_j‖ (...), the logarithm of Eq. 27's col_Π."""
    return matrix.square().sum(-2).log().sum(-1) / 2


def _log_volume(matrix: Tensor) -> Tensor:
    """½ log det MᵀM (...): volume of the image of the unit cube (Eq. 28)."""
    return torch.logdet(matrix.mT @ matrix) / 2


def _matrix_cases(tables: Tables) -> Iterator[Identity]:
    matrices = tables["matrices"]
    distinct = matrices[matrices["singular values"] == DISTINCT]
    cases = int((distinct["matrices"] * distinct["rotations"]).sum())
    volume = float(matrices["spread of volume"].max())
    yield Identity(
        "largest relative change of the volume of M Vᵀ over rotations V", "0", volume, SAME, n=cases
    )
    below = max(0.0, -float(distinct["least product over volume less 1"].min()))
    yield Identity("Eq. 28: product of norms below the volume, relative", "0", below, SAME, n=cases)
    excess = float(distinct["descended, largest product over volume less 1"].max())
    yield Identity("Eq. 27: least product over V above the volume, relative, every start", "0", excess, SAME)
    cosine = float(distinct["descended, largest cosine"].max())
    yield Identity("Eq. 27: largest cosine between columns there", "0: w₁ ⊥ w₂", cosine, COSINE)


def _equal_cases(tables: Tables) -> Iterator[Identity]:
    matrices = tables["matrices"]
    flat = float(matrices[matrices["singular values"] == EQUAL]["spread of product"].max())
    yield Identity("equal singular values: largest relative change of the product over V", "0", flat, SAME)


def _ratios(tables: Tables) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """Volumes, and products of norms over volume, per trained model by column."""
    models = tables["models"]
    matrix = {column: decoders(models[models["column"] == column]) for column in ("β-VAE", "β-VAE_Σ", "AE")}
    volume = {name: _volume(own) for name, own in matrix.items()}
    return volume, {name: np.linalg.norm(own, axis=1).prod(1) / volume[name] for name, own in matrix.items()}


def _volume(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt(np.linalg.det(matrix.transpose(0, 2, 1) @ matrix))


def _trained_cases(tables: Tables) -> Iterator[Bound]:
    volume, ratio = _ratios(tables)
    relative = {name: own / np.median(volume["β-VAE_Σ"]) for name, own in volume.items()}
    words = "trained decoders: volume of β-VAEs over that with full covariance, median"
    said = f"1, maintained: within {100 * VOLUMES:g} %"
    wrong = {"autoencoder": relative["AE"]}
    yield Bound(words, said, relative["β-VAE"], 1 - VOLUMES, 1 + VOLUMES, wrong=wrong)
    tilt = {name: np.degrees(np.arccos(np.minimum(1, 1 / own))) for name, own in ratio.items()}
    words = "trained β-VAEs: angle of w₂ with the perpendicular of w₁, median, degrees"
    wrong = {"full covariance": tilt["β-VAE_Σ"], "autoencoder": tilt["AE"]}
    yield Bound(words, f"0, w₁ ⊥ w₂: at most {ALIGNED:g}", tilt["β-VAE"], most=ALIGNED, wrong=wrong)


def _order_cases(tables: Tables) -> Iterator[Order]:
    _, ratio = _ratios(tables)
    for column, words in (("β-VAE_Σ", "full covariance"), ("AE", "autoencoder")):
        yield Order(f"product of norms over volume, β-VAE less {words}", ratio["β-VAE"], ratio[column])


def plot(tables: Tables) -> Figure:
    """Columns of one decoder under rotations, product and volume against the angle, and all trained decoders."""
    models = tables["models"]
    titles = ["columns w₁, w₂ of one decoder, rotated", "against the rotation", "trained decoders"]
    figure, axes = panels(titles, width=3.0, height=2.7)
    own = decoders(models[models["column"] == "β-VAE_Σ"])[0]
    _, scale, _ = np.linalg.svd(own)
    degrees = np.linspace(0, 90, 91)
    rotated = np.diag(scale) @ plane_rotations(torch.tensor(np.radians(degrees))).numpy()
    product = np.linalg.norm(rotated, axis=1).prod(1)
    _draw_columns(axes[0], rotated, degrees)
    axes[1].plot(degrees, product, color=COLOURS[0], label="‖w₁‖‖w₂‖")
    axes[1].plot(degrees, _volume(rotated), color=COLOURS[1], label="volume")
    axes[1].set_xlabel("rotation from orthogonal columns, degrees", fontsize=8)
    axes[1].set_xticks(range(0, 91, 45))
    axes[1].set_ylim(bottom=0)
    axes[1].legend(fontsize=7, frameon=False, loc="lower center")
    words = {"β-VAE": "β-VAE", "β-VAE_Σ": "full\ncovariance", "AE": "autoencoder"}
    for spot, (column, colour) in enumerate(zip(words, COLOURS, strict=False)):
        matrix = decoders(models[models["column"] == column])
        ratio = np.linalg.norm(matrix, axis=1).prod(1) / _volume(matrix)
        jitter = 0.06 * (np.arange(len(ratio)) % 5 - 2)
        axes[2].plot(spot + jitter, ratio, "o", color=colour, markersize=3.5, alpha=0.7)
    axes[2].axhline(1, color="0.6", linewidth=0.8, zorder=0)
    axes[2].set_xticks(range(len(words)), list(words.values()))
    axes[2].set_xlim(-0.5, len(words) - 0.5)
    axes[2].set_ylabel("‖w₁‖‖w₂‖ over volume", fontsize=8)
    return figure


def _draw_columns(panel: Any, rotated: NDArray[np.float64], degrees: NDArray[np.float64]) -> None:
    for angle, colour in zip((0, 15, 30, 45), COLOURS, strict=False):
        matrix = rotated[int(np.flatnonzero(degrees == angle)[0])]
        corners = np.stack([np.zeros(2), matrix[:, 0], matrix.sum(1), matrix[:, 1], np.zeros(2)])
        panel.plot(*corners.T, color=colour, linewidth=1.0, label=f"{angle}°")
        panel.fill(*corners.T, color=colour, alpha=0.12, linewidth=0)
    panel.set(aspect="equal", xticks=[], yticks=[])
    panel.spines[["left", "bottom"]].set_visible(False)
    panel.legend(
        fontsize=7, frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.02), handlelength=1
    )


FIGURE2 = Artefact(
    key="rolinek2019.figure2",
    title="Figure 2: column norms, volume and orthogonality",
    claims=(
        Identities(
            "Figure 2: rotations V maintain the volume that the columns of M Vᵀ span, and minimising the product "
            "of their "
            "norms over V results in orthogonal columns, where the bound (28) is tight",
            _matrix_cases,
        ),
        Bounds(
            "Figure 2, on trained linear models: the volume is maintained and columns are orthogonal",
            _trained_cases,
            statistic="median",
        ),
        Orders(
            "Figure 2, on trained linear models: the product of norms is least under a diagonal posterior",
            _order_cases,
        ),
        Identities(
            "Control: with equal singular values no rotation changes the product", _equal_cases, ours=True
        ),
    ),
    presets={
        "smoke": Settings(LINEAR_PRESETS["smoke"], latents=(2, 3), matrices=5, rotations=4, iterations=60),
        "laptop": Settings(LINEAR_PRESETS["laptop"]),
        "full": Settings(LINEAR_PRESETS["full"], matrices=100, rotations=20),
    },
    measure=measure,
    plot=plot,
)
