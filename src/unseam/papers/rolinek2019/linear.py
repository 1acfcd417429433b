"""Figures 1 and 2 of rolinek2019 on linear models of Synth. Lin., whose matrices Suppl. 9.2 looks at too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.data import World
from unseam.data import place as place_world
from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Scale, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Identities, Identity, Order, Orders
from unseam.papers.draws import Seeded, cayley, largest_cosine, orthogonal, plane_rotations, uniform
from unseam.papers.measures import affine_parts
from unseam.papers.plots import Figure, Tables, arrow, blank, columns, finish, reference
from unseam.papers.rolinek2019._descent import Descent, descend
from unseam.papers.rolinek2019.runs import Training
from unseam.papers.rolinek2019.setups import LINEAR, Column, Setup, smoke
from unseam.papers.tables import columns_of, concatenate, table_of
from unseam.papers.trainings import follow
from unseam.training import Ensemble, training_index

__all__ = ["ALIGNED", "CONVERGED", "FIGURE1", "FIGURE2", "axis_angle", "decoders", "linear_models"]

Floats = NDArray[np.float64]

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


def encoders(models: pd.DataFrame) -> Floats:
    """Matrices (model, latent, data) of the posterior mean."""
    return _matrices(models, "e", 2, 3)


def decoders(models: pd.DataFrame) -> Floats:
    """Matrices (model, data, latent)."""
    return _matrices(models, "d", 3, 2)


def axis_angle(images: Floats) -> Floats:
    """Angle (...) in degrees between two directions, the columns of (..., 2, 2), and an axis for each: the larger one.

    >>> rotation = np.sqrt(0.5) * np.array([[1.0, -1.0], [1.0, 1.0]])
    >>> axis_angle(np.stack([np.diag([2.0, -3.0]), rotation])).round(6).tolist()
    [0.0, 45.0]
    """
    along_first = np.degrees(np.arctan2(np.abs(images[..., 1, :]), np.abs(images[..., 0, :])))
    straight = np.maximum(along_first[..., 0], 90 - along_first[..., 1])
    exchanged = np.maximum(90 - along_first[..., 0], along_first[..., 1])
    return np.minimum(straight, exchanged)


def _matrices(models: pd.DataFrame, letter: str, rows: int, columns: int) -> Floats:
    names = [f"{letter}{row + 1}{column + 1}" for row in range(rows) for column in range(columns)]
    return models[names].to_numpy(dtype=float).reshape(-1, rows, columns)


def _matrices_of(ensemble: Ensemble, column: Column, world: World) -> pd.DataFrame:
    trials = ensemble.trials
    seen = training_index(trials[0], len(world))
    assert seen is not None
    parts = {
        "e": affine_parts(lambda x: ensemble.encode(x.to(ensemble.device)).mean, 3)[0],
        "d": affine_parts(lambda z: ensemble.decode(z.to(ensemble.device)), 2)[0],
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
    who = {"column": column, "ratio": ratio} | columns_of(trials, "seed")
    return table_of(who | {name: values.double() for name, values in columns.items()})


# Figure 1: what each step of an encoder's singular value decomposition does to principal directions

STEPS = ("(i)", "(ii)", "(iii)")
"""Uᵀ, then Σ†, then V."""
BEYOND = (
    "Eq. 6 has minimisers beyond Example 1: all invertible maps of the latents, followed by their inverse"
)
WORDS = {"β-VAE": "β-VAE", "β-VAE_Σ": "full covariance", "AE": "autoencoder"}


def trained(settings: Training, place: Workplace) -> dict[str, pd.DataFrame]:
    """The matrices of all models, how they were trained, and the covariance of their data."""
    world = settings.setup.load()
    covariance = np.cov(world.images(torch.arange(len(world))).double().numpy().T)
    parts = concatenate(linear_models(settings.setup, column, place) for column in settings.setup.columns)
    return parts | {"data": pd.DataFrame(covariance, columns=["x1", "x2", "x3"])}


def principal_directions(data: pd.DataFrame) -> Floats:
    """The two leading eigenvectors (data, 2) of the covariance."""
    return np.linalg.eigh(data.to_numpy(dtype=float))[1][:, :0:-1]


def encoder_steps(models: pd.DataFrame, principal: Floats) -> dict[str, Floats]:
    """Images (model, latent, 2) of the principal directions after each step of the encoder VΣ†Uᵀ.

    Of the encoder on the plane of the data: what it does across it, where there are none, is left as it was drawn.
    """
    left, scale, right = np.linalg.svd(encoders(models) @ principal)
    scaled = scale[..., None] * right
    return dict(zip(STEPS, (right, scaled, left @ scaled), strict=True))


def decoder_steps(models: pd.DataFrame, principal: Floats) -> dict[str, Floats]:
    """Images (model, 2, latent) of the latent axes after each step of the decoder UΣVᵀ, backwards.

    The last are seen in the frame of the principal directions.
    """
    left, scale, right = np.linalg.svd(decoders(models), full_matrices=False)
    scaled = scale[..., None] * right
    return dict(zip(reversed(STEPS), (right, scaled, principal.T @ left @ scaled), strict=True))


def _angles(tables: Tables, column: str) -> dict[str, Floats]:
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


def _angle_order_cases(tables: Tables) -> Iterator[Order]:
    low, high = (_angles(tables, column)["(iii)"] for column in ("β-VAE", "β-VAE_Σ"))
    yield Order("angle after step (iii), β-VAE less full covariance, degrees", low, high)


def plot_steps(tables: Tables) -> Figure:
    """Data and principal directions through the steps of one encoder per row: the median model of each kind."""
    models, principal = tables["models"], principal_directions(tables["data"])
    covariance = principal.T @ tables["data"].to_numpy(dtype=float) @ principal
    stages = ("data", "(i) rotated, Uᵀ", "(ii) scaled, Σ†", "(iii) rotated, V")
    titles = [f"{words}: {stage}" for words in WORDS.values() for stage in stages]
    figure, axes = panels(titles, rows=3, width=2.2, height=2.1)
    half = np.sqrt(3 * np.diag(covariance))  # of a uniform distribution
    square = half * (np.stack(np.meshgrid(*[np.linspace(-1, 1, 15)] * 2), -1).reshape(-1, 2))
    shown = []
    for column in WORDS:
        steps = encoder_steps(models[models["column"] == column], principal)
        largest = np.max([axis_angle(images) for images in steps.values()], axis=0)
        median = int(np.argsort(largest)[len(largest) // 2])
        shown += [np.eye(2), *(steps[step][median] for step in STEPS)]
    for panel, image in zip(axes, shown, strict=True):
        points = square @ image.T
        reach = 1.15 * np.abs(points).max()
        panel.scatter(*points.T, s=3, color="0.7", linewidths=0)
        for end, colour in zip(half[:, None] * image.T, COLOURS, strict=False):
            arrow(panel, (0, 0), end, color=colour)
        panel.spines[["left", "bottom"]].set_visible(False)
        reference(panel, x=0, y=0, color="0.5", linewidth=0.5, linestyle="-")
        blank(panel)
        finish(panel, xlim=(-reach, reach), ylim=(-reach, reach))
        panel.set_xlabel(f"{float(axis_angle(image[None])[0]):.1f}° from the axes", fontsize=7)
    return figure


LINEAR_PRESETS: dict[Scale, Training] = {
    "smoke": Training(smoke(CONVERGED)),
    "laptop": Training(CONVERGED.replace(seeds=10)),
    "full": Training(CONVERGED),
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
        Orders("Figure 1: a diagonal posterior aligns better than a full covariance", _angle_order_cases),
    ),
    presets=LINEAR_PRESETS,
    measure=trained,
    plot=plot_steps,
    note="Linear models on Synth. Lin.; encoders are taken on the plane that holds the data. The angle is the larger "
    "one between the images of the two principal directions and an axis for each; at most 5° counts as preserved.",
)


# Figure 2: least product of column norms at a fixed volume means orthogonal columns

# Share up to which two numbers are one; cosine up to which columns found by descent are orthogonal.
SAME, COSINE = 1e-9, 1e-4
VOLUMES = 0.05
"""Share by which mean volumes of two kinds of trained models may differ and still count as maintained."""
DISTINCT, EQUAL = "distinct", "equal"


@dataclass(frozen=True)
class MatrixSettings(Seeded):
    """Random matrices with distinct and with equal singular values, rotated; and the trained models of Figure 1."""

    models: Training = scaled(LINEAR_PRESETS["smoke"], LINEAR_PRESETS["laptop"], LINEAR_PRESETS["full"])
    latents: tuple[int, ...] = scaled((2, 3), (2, 3, 4, 5, 6))
    matrices: int = scaled(5, 50, 100)
    rotations: int = scaled(4, 20)
    """Of each matrix: compared with one another, and starts of descents."""
    iterations: int = scaled(60, 200)


def measure(settings: MatrixSettings, place: Workplace) -> Tables:
    """Volume and product of norms of rotated matrices, the least product over rotations, and trained decoders."""
    random = settings.generator()
    sizes = [(latent, kind) for latent in settings.latents for kind in (DISTINCT, EQUAL)]
    rows = [_rotated(latent, kind, settings, random, place) for latent, kind in sizes]
    return {"matrices": pd.DataFrame(rows), **trained(settings.models, place)}


def _rotated(
    latent: int, kind: str, settings: MatrixSettings, random: torch.Generator, place: Workplace
) -> dict[str, Any]:
    """Extremes over all matrices M of one size and all rotations V of M Vᵀ; least products by descent over V."""
    count, many = settings.matrices, settings.rotations
    frame = orthogonal(count, latent + 2, latent, generator=random)
    steps = 1.1 + uniform(count, latent, generator=random)
    distinct = steps.cumprod(1) / steps.prod(1, keepdim=True).sqrt()
    scale = distinct if kind == DISTINCT else torch.ones_like(steps)
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
    volume, words = float(matrices["spread of volume"].max()), "largest relative change of the volume of M Vᵀ"
    yield Identity(f"{words} over rotations V", "0", volume, SAME, n=cases)
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


def _ratios(tables: Tables) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Volumes, and products of norms over volume, per trained model by column."""
    models = tables["models"]
    matrix = {column: decoders(models[models["column"] == column]) for column in ("β-VAE", "β-VAE_Σ", "AE")}
    volume = {name: _volume(own) for name, own in matrix.items()}
    return volume, {name: np.linalg.norm(own, axis=1).prod(1) / volume[name] for name, own in matrix.items()}


def _volume(matrix: Floats) -> Floats:
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


def plot_columns(tables: Tables) -> Figure:
    """Columns of one decoder under rotations, product and volume against the angle, and all trained decoders."""
    titles = ["columns w₁, w₂ of one decoder, rotated", "against the rotation", "trained decoders"]
    figure, axes = panels(titles, width=3.0, height=2.7)
    own = decoders(tables["models"][tables["models"]["column"] == "β-VAE_Σ"])[0]
    degrees = np.linspace(0, 90, 91)
    rotated = np.diag(np.linalg.svd(own)[1]) @ plane_rotations(torch.tensor(np.radians(degrees))).numpy()
    for angle, colour in zip((0, 15, 30, 45), COLOURS, strict=False):
        first, second = rotated[angle].T
        corners = np.stack([0 * first, first, first + second, second, 0 * first])
        axes[0].plot(*corners.T, color=colour, linewidth=1.0, label=f"{angle}°")
        axes[0].fill(*corners.T, color=colour, alpha=0.12, linewidth=0)
    blank(axes[0])
    axes[0].spines[["left", "bottom"]].set_visible(False)
    below = {"ncols": 4, "loc": "upper center", "bbox_to_anchor": (0.5, -0.02), "handlelength": 1}
    axes[0].legend(fontsize=7, frameon=False, **below)
    axes[1].plot(degrees, np.linalg.norm(rotated, axis=1).prod(1), color=COLOURS[0], label="‖w₁‖‖w₂‖")
    axes[1].plot(degrees, _volume(rotated), color=COLOURS[1], label="volume")
    x, ticks = "rotation from orthogonal columns, degrees", range(0, 91, 45)
    finish(axes[1], x, xticks=ticks, ylim=(0, None), legend="lower center")
    ratios = _ratios(tables)[1]
    columns(axes[2], {words.replace(" ", "\n"): [ratios[column]] for column, words in WORDS.items()})
    reference(axes[2], y=1)
    finish(axes[2], y="‖w₁‖‖w₂‖ over volume")
    return figure


FIGURE2 = Artefact(
    key="rolinek2019.figure2",
    title="Figure 2: column norms, volume and orthogonality",
    claims=(
        Identities(
            "Figure 2: rotations V maintain the volume that the columns of M Vᵀ span, and minimising the product of "
            "their norms over V results in orthogonal columns, where the bound (28) is tight",
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
    presets=presets_of(MatrixSettings),
    measure=measure,
    plot=plot_columns,
)
