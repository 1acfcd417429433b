"""§3.1 of allen2024: the decoder's left singular vectors against the local principal axes of the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.data import ArrayWorld
from unseam.drawing import COLOURS, panels
from unseam.geometry import jacobian
from unseam.papers.allen2024._members import align_columns
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Order, Orders
from unseam.papers.draws import Seeded, normal, orthonormal
from unseam.papers.plots import Figure, Tables, blank, curve, finish, logarithmic
from unseam.papers.tables import table_of
from unseam.papers.trainings import combinations, train_or_resume, vae_trial
from unseam.trial import Trial

__all__ = ["LOCAL_PCA"]

MODELS = {
    "diagonal": "VAE, diagonal posterior",
    "full": "VAE, full posterior",
    "autoencoder": "autoencoder",
    "untrained": "untrained decoder",
}
CLOSE = 10.0
"""Degrees within which two axes count as the same."""
JUDGED = 2.0
"""Scale of the judged neighbourhoods, in widths of the strip."""


@dataclass(frozen=True)
class Settings(Seeded):
    """A bent strip, the models trained on it, and the neighbourhoods in which its covariance is taken."""

    data: int = 6
    radius: float = 4.0
    spread: float = 0.8
    width: float = 0.5
    noise: float = 0.3
    items: int = scaled(2000, 20_000)
    hidden: int = scaled(16, 64)
    steps: int = scaled(60, 4000, 6000)
    batch_size: int = scaled(50, 200)
    learning_rate: float = 2e-3
    seeds: int = scaled(2, 5, 8)
    points: int = scaled(40, 200, 500)
    scales: tuple[float, ...] = scaled((0.5, 2.0), (0.5, 1.0, 2.0, 4.0))


class Axes(NamedTuple):
    """Principal axes of the data's covariance in a neighbourhood of each point.

    ``vectors`` (point, data, 2), the axis of larger variance first; ``ratio`` (point,) of the two variances;
    ``neighbours`` (point,), the effective number of items (Σ w)² / Σ w².
    """

    vectors: Tensor
    ratio: Tensor
    neighbours: Tensor


def measure(settings: Settings, place: Workplace) -> Tables:
    """Angles between singular vectors, or columns, of decoders at posterior means and local axes of the data."""
    draw = settings.generator()
    world, plane = _strip(settings, draw)
    table = torch.as_tensor(world.table).double()
    chosen = torch.randperm(len(table), generator=draw)[: settings.points]
    axes = {scale: _local_axes(table, chosen, scale * settings.width) for scale in settings.scales}
    everywhere = torch.linalg.eigh(table.T.cov()).eigenvectors.flip(-1)[:, :2]
    flat = (table[chosen] @ plane).mT.numpy()
    rows, shown = [], [pd.DataFrame({"kind": "item", "model": "", "x": flat[0], "y": flat[1]})]
    for model in MODELS:
        trials = _trials(settings, model)
        ensemble = train_or_resume(trials, place, model, world=world)
        x = table[chosen].float().to(ensemble.device)
        for member, trial in enumerate(trials):
            with torch.no_grad():
                mean = ensemble[member].encode(x).mean
                columns = jacobian(ensemble[member].decode, mean).double().cpu()
            for scale, own in axes.items():
                who = {"model": model, "seed": trial.seed, "scale": scale}
                rows.append(who | _angles(columns, own.vectors, everywhere))
            if trial.seed == 0:
                # the first axis of a few items, of the data and of the decoder, in the strip's plane
                few = slice(0, 24)
                left = torch.linalg.svd(columns[few], full_matrices=False).U
                for kind, vectors in (("data", axes[JUDGED].vectors[few]), ("decoder", left)):
                    ends = (table[chosen][few] @ plane, vectors[..., 0] @ plane)
                    named = {"kind": kind, "model": model}
                    values = zip(("x", "y", "dx", "dy"), torch.cat(ends, 1).mT, strict=True)
                    shown.append(table_of(named | dict(values)))
    around = [
        {"scale": scale, "items": _median(own.neighbours), "variance ratio": _median(own.ratio)}
        for scale, own in axes.items()
    ]
    tables = {"members": pd.DataFrame(rows), "neighbourhoods": pd.DataFrame(around)}
    return tables | {"shown": pd.concat(shown, ignore_index=True)}


def _strip(settings: Settings, draw: torch.Generator) -> tuple[ArrayWorld, Tensor]:
    """x = (r + w z_2) (cos a z_1, sin a z_1) in a random plane, with noise in all directions.

    Both axes rotate with z_1, so that no axes of the whole data set fit. The circles and rays cross at right angles:
    the push-forward of a normal by this map has an orthogonal Jacobian. Also returns the plane (data, 2).
    """
    z = normal(settings.items, 2, generator=draw)
    angle, distance = settings.spread * z[:, 0], settings.radius + settings.width * z[:, 1]
    plane = orthonormal(settings.data, 2, generator=draw)
    flat = distance[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    noise = normal(settings.items, settings.data, generator=draw)
    table = flat @ plane.mT + settings.noise * noise
    recorded = ("data", "radius", "spread", "width", "noise", "items")
    options = {name: getattr(settings, name) for name in recorded}
    factors: dict[str, Any] = {"factor_names": ("along", "across"), "factor_sizes": (0, 0)}
    return ArrayWorld(table.float(), z.float(), name="bent strip", options=options, **factors), plane


def _trials(settings: Settings, model: str) -> list[Trial]:
    widths, noise = (settings.hidden, settings.hidden), settings.noise**2
    options = {"likelihood_variance": noise, "latent": 2, "encoder_activation": "tanh"}
    changes: dict[str, dict[str, Any]] = {
        "diagonal": {},
        "full": {"posterior": "full"},
        "autoencoder": {"posterior": "point", "objective": "autoencoder"},
        "untrained": {"steps": 1, "learning_rate": 1e-12},
    }
    first = vae_trial("mixture", settings, widths, **options | changes[model])
    return combinations(first, seed=range(settings.seeds))


def _local_axes(table: Tensor, chosen: Tensor, scale: float) -> Axes:
    """Axes of the covariance around each chosen item, items weighted by exp(−‖x − x_i‖² / 2 scale²)."""
    weights = torch.exp(-torch.cdist(table[chosen], table).square() / (2 * scale**2))
    neighbours = weights.sum(1).square() / weights.square().sum(1)
    weights = weights / weights.sum(1, keepdim=True)
    mean = weights @ table
    second = (weights @ (table[:, :, None] * table[:, None, :]).flatten(1)).unflatten(1, (table.shape[1], -1))
    values, vectors = torch.linalg.eigh(second - mean[:, :, None] * mean[:, None, :])
    return Axes(vectors[..., -2:].flip(-1), values[:, -1] / values[:, -2], neighbours)


def _angles(columns: Tensor, axes: Tensor, everywhere: Tensor) -> dict[str, float]:
    """Medians over points, in degrees; angles to both axes are averaged."""
    left = torch.linalg.svd(columns, full_matrices=False).U
    unit = torch.nn.functional.normalize(columns, dim=-2)
    sines = torch.linalg.svdvals(left.mT @ axes)[..., -1].clamp(max=1).acos()
    return {
        "left vectors": _median(_between(left, axes)),
        "columns": _median(_between(align_columns(unit, axes), axes)),
        "plane": _median(torch.rad2deg(sines)),
        "left vectors, axes elsewhere": _median(_between(left, axes.roll(1, 0))),
        "left vectors, axes of all data": _median(_between(left, everywhere.expand_as(left))),
    }


def _between(found: Tensor, axes: Tensor) -> Tensor:
    """Mean angle in degrees (point,) between columns of the same number, whatever their signs."""
    return torch.rad2deg((found * axes).sum(-2).abs().clamp(max=1).acos()).mean(-1)


def _median(values: Tensor) -> float:
    return float(values.median())


def _of(tables: Tables, model: str, column: str) -> np.ndarray:
    """Per seed, in degrees, at the judged size of neighbourhoods."""
    rows = tables["members"]
    return rows[(rows["scale"] == JUDGED) & (rows["model"] == model)][column].to_numpy(dtype=float)


def _axis_cases(tables: Tables) -> Iterator[Bound]:
    plane = f"of their planes: {_of(tables, 'diagonal', 'plane').mean():.3g}"
    left = {"axes of all data": _of(tables, "diagonal", "left vectors, axes of all data")}
    left["an untrained decoder"] = _of(tables, "untrained", "left vectors")
    full = {"a full posterior": _of(tables, "full", "columns")}
    for column, words, note, wrong in (
        ("left vectors", "left singular vectors", plane, left),
        ("columns", "columns of the Jacobian", "", full),
    ):
        quantity = f"VAE, diagonal posterior: angle of the {words} to the local principal axes, degrees"
        runs = _of(tables, "diagonal", column)
        yield Bound(quantity, f"at most {CLOSE:g} (0)", runs, most=CLOSE, note=note, wrong=wrong)


def _control_cases(tables: Tables) -> Iterator[Order]:
    found, straight = (_of(tables, "diagonal", column) for column in ("left vectors", "columns"))
    for words, model, column, own in (
        ("the same against the axes at another item", "diagonal", "left vectors, axes elsewhere", found),
        ("the same against the axes of all data", "diagonal", "left vectors, axes of all data", found),
        ("an autoencoder", "autoencoder", "left vectors", found),
        ("an untrained decoder", "untrained", "left vectors", found),
        ("columns under a full posterior", "full", "columns", straight),
    ):
        yield Order(f"angle of the VAE less that of {words}, degrees", own, _of(tables, model, column))


def plot(tables: Tables) -> Figure:
    """First axes of the data and of three decoders on the strip, and angles over the size of neighbourhoods."""
    shown, members = tables["shown"], tables["members"]
    drawn = ("diagonal", "autoencoder", "untrained")
    titles = [MODELS[model] for model in drawn] + ["left singular vectors", "columns"]
    figure, axes = panels(titles, width=2.7, height=2.8)
    items = shown[shown["kind"] == "item"]
    arrows = (("data", 2.6, "local axis of the data"), ("decoder", 1.2, "decoder's $u_1$"))
    for panel, model in zip(axes, drawn, strict=False):
        panel.plot(items["x"], items["y"], ".", color="lightgrey", markersize=2)
        for (kind, width, label), colour in zip(arrows, COLOURS, strict=False):
            own = shown[(shown["kind"] == kind) & (shown["model"] == model)]
            ends = [(own[axis] - 0.5 * own[f"d{axis}"], own[axis] + 0.5 * own[f"d{axis}"]) for axis in "xy"]
            look = {"color": colour, "linewidth": width, "solid_capstyle": "round"}
            panel.plot(*ends, **look)[0].set_label(label)
        blank(panel)
    finish(axes[0], legend="lower left")
    for panel, column in zip(axes[3:], ("left vectors", "columns"), strict=True):
        for (model, label), colour in zip(MODELS.items(), COLOURS, strict=False):
            curve(panel, members[members["model"] == model], "scale", column, colour, label)
        logarithmic(panel.xaxis, sorted(members["scale"].unique()))
        finish(panel, "neighbourhood, widths of the strip", "angle to local axes, °", ylim=(0, 120))
        panel.set_yticks(range(0, 91, 30))
    finish(axes[3], legend="upper right")
    return figure


LOCAL_PCA = Artefact(
    key="allen2024.local_pca",
    title="The decoder's left singular vectors are local principal axes of the data",
    claims=(
        Bounds(
            "§3.1, Eq. 8: VAEs approximately perform local PCA, so that the decoder's left singular vectors, and its "
            "columns under a diagonal posterior, are the local principal axes of the data",
            _axis_cases,
        ),
        Orders("Controls are further from the local principal axes", _control_cases, ours=True),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="The text names no test: PCA is taken at its word, on a strip whose directions of variation rotate from item "
    "to item, with axes of the data weighted by a Gaussian of twice the strip's width; within 10° counts as "
    "agreement. In the limit of small neighbourhoods every direction of the tangent plane is a principal axis, and "
    "local PCA then names the plane alone.",
)
