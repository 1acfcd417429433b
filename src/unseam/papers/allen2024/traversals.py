"""Latent traversals of allen2024's post: images that vary in one factor as a single latent is varied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.data import World, grid_index, load
from unseam.drawing import panels
from unseam.geometry import active_latents
from unseam.models import VAE
from unseam.papers.allen2024._members import SpriteSettings, sprite_trial
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Bound, Bounds, Order, Orders
from unseam.papers.draws import orthonormal
from unseam.papers.plots import Figure, Tables, categories, finish, pictures, reference
from unseam.papers.tables import from_text, to_text
from unseam.papers.trainings import combinations, train_or_resume
from unseam.training import Ensemble
from unseam.trial import Trial

__all__ = ["TRAVERSALS"]

LATENTS, ROTATED, FULL = (
    "latents, diagonal posterior",
    "random axes, diagonal posterior",
    "latents, full posterior",
)
"""What is traversed: what the post describes, and two controls."""
ONE = 0.9
"""What stands for all: of what traversals change in the main factor of each latent, and of seeds."""
FACTORS = ("scale", "x", "y")
GREYS = "0123456789abcdef"
STILL = 0.01
"""A latent that changes no factor by more has none in the figure."""


@dataclass(frozen=True)
class Settings(SpriteSettings):
    """VAEs on soft upright ellipses of several scales and positions, from the world ``sprites``, twin of dSprites."""

    cases: tuple[tuple[float, float], ...] = ((0.5, 4.0), (1.0, 4.0), (0.5, 1.0))
    """Span of the positions, as a part of dSprites', and β."""
    scales: int = 6
    latent: int = 5
    seeds: int = 4
    steps: int = 5000
    batch_size: int = 64
    learning_rate: float = 1e-3
    starts: int = 16
    """Items through whose posterior means traversals pass."""
    frames: int = 9
    reach: float = 2.0
    """Traversals go from minus to plus this many standard deviations of the prior."""
    rotations: int = 8
    shown: int = 7
    """Frames that are drawn."""


def measure(settings: Settings, place: Workplace) -> Tables:
    """How much each factor varies along each axis, read off decoded images, and images of the first seed."""
    random = torch.Generator().manual_seed(0)
    rows, pictures = [], []
    for span in dict.fromkeys(span for span, _ in settings.cases):
        trials = _trials(settings, span)
        world = load(trials[0].world, **dict(trials[0].world_options))  # type: ignore[arg-type]
        ensemble = train_or_resume(trials, place, f"span-{span:g}", world=world)
        read = Reader(world, ensemble.device)
        starts = torch.randperm(len(world), generator=random)[: settings.starts]
        for member, trial in enumerate(trials):
            model, mean, used = _encode(ensemble, member, world)
            if not len(used):
                continue
            diagonal = trial.posterior == "diagonal"
            who = {"span": span, "β": trial.beta, "seed": trial.seed}
            basis = torch.eye(settings.latent, dtype=torch.float64)[:, used]
            turns = [
                orthonormal(len(used), len(used), generator=random)
                for _ in range(settings.rotations * diagonal)
            ]
            bases = [(LATENTS if diagonal else FULL, basis), *((ROTATED, basis @ turn) for turn in turns)]
            for number, (kind, basis) in enumerate(bases):
                z = traversal(mean[starts], basis, settings.reach, settings.frames)
                table = pd.DataFrame(_changes(model, z, read).numpy(), columns=list(FACTORS))
                latents = used.tolist() if number == 0 else [-1] * len(table)
                rows.append(table.assign(axes=kind, rotation=number, latent=latents, **who))
            if trial.seed == 0 and (diagonal or (span, trial.beta) == settings.cases[0]):
                start = mean[_middle(world)][None]
                z = traversal(start, bases[0][1], settings.reach, settings.shown)[:, 0]
                pictures.append(_pictures(model, z, used).assign(axes=bases[0][0], **who))
    tables = {"axes": rows, "pictures": pictures}
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}


def _trials(settings: Settings, span: float) -> list[Trial]:
    """Every seed of every case of a span, with a diagonal and, where β is not 1, with a full posterior."""
    fields = ("steps", "batch_size", "learning_rate")
    base = sprite_trial(settings, *fields, span=span, likelihood="gaussian")
    return [
        trial
        for posterior in ("diagonal", "full")
        for own, beta in settings.cases
        if own == span and (posterior == "diagonal" or beta != 1)
        for trial in combinations(base, posterior=[posterior], beta=[beta], seed=range(settings.seeds))
    ]


class Reader:
    """Reads scale and position off images by their moments, which averages of images keep.

    The scale is the square root of the mass, the position the centre of mass; each in standard deviations over the
    world, and none of them from an image of less than a tenth of the least mass in it.

    Args:
        world: whose images, of one shape and orientation.
        device: where images to read are.
    """

    def __init__(self, world: World, device: torch.device) -> None:
        images = world.images(torch.arange(len(world))).to(device)
        self.least = images.sum((1, 2, 3)).min() / 10
        self.mean, self.deviation = torch.zeros(3, device=device), torch.ones(3, device=device)
        found = self(images)
        self.mean, self.deviation = found.mean(0), found.std(0, correction=0)

    def __call__(self, images: Tensor) -> Tensor:
        """Scale, x and y (batch, 3) of images (batch, 1, height, width)."""
        mass = images.sum((1, 2, 3)).clamp(min=self.least)
        across, down = images.sum((1, 2)), images.sum((1, 3))
        place = torch.arange(images.shape[-1]).to(images)
        found = torch.stack([mass.sqrt(), across @ place / mass, down @ place / mass], 1)
        return (found - self.mean) / self.deviation


def _encode(ensemble: Ensemble, member: int, world: World) -> tuple[VAE, Tensor, Tensor]:
    """A model, the posterior means (item, latent) of the world, and its active latents."""
    model = ensemble[member]
    with torch.no_grad():
        code = model.encode(world.images(torch.arange(len(world))).to(ensemble.device))
    return model, code.mean, active_latents(code.mean, code.variance).active.nonzero().flatten().cpu()


def traversal(starts: Tensor, basis: Tensor, reach: float, frames: int) -> Tensor:
    """Points (axis, start, frame, latent) whose coordinate along each column of a basis runs over ±reach.

    Args:
        starts: (start, latent); the coordinates along the other columns are theirs.
        basis: orthonormal columns (latent, axis).
        reach: in units of z.
        frames: points per traversal, evenly spaced.

    >>> traversal(torch.tensor([[0.5, 3.0]]), torch.eye(2), 1.0, 3)[0, 0]
    tensor([[-1.,  3.],
            [ 0.,  3.],
            [ 1.,  3.]])
    """
    columns = basis.to(starts)
    away = torch.linspace(-reach, reach, frames).to(starts) - (starts @ columns).mT[..., None]
    return starts[:, None] + away[..., None] * columns.mT[:, None, None]


@torch.no_grad()
def _changes(model: VAE, z: Tensor, read: Reader) -> Tensor:
    """Variance (axis, factor) over frames of the factors seen along traversals, mean over starts."""
    images = model.likelihood.mean(model.decode(z.flatten(0, 2)))
    return read(images).unflatten(0, z.shape[:3]).var(2, correction=0).mean(1).cpu()


def _middle(world: World) -> int:
    sizes = world.factor_sizes
    return int(grid_index(torch.tensor([[size // 2 for size in sizes]]), sizes)[0])


@torch.no_grad()
def _pictures(model: VAE, z: Tensor, used: Tensor) -> pd.DataFrame:
    """One row per frame of traversals (axis, frame, latent): its pixels as digits of sixteen greys, after a letter."""
    images = model.likelihood.mean(model.decode(z.flatten(0, 1)))
    latents, frames = used.repeat_interleave(z.shape[1]).tolist(), list(range(z.shape[1])) * len(used)
    pixels = ["p" + text for text in to_text(images.cpu(), GREYS)]
    return pd.DataFrame({"latent": latents, "frame": frames, "pixels": pixels})


def _spans(tables: Tables) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    axes = tables["axes"]
    for (span, beta), own in axes[axes["β"] > 1].groupby(["span", "β"]):
        yield f"span {span:g}, β = {beta:g}", own, axes[(axes["span"] == span) & (axes["β"] == 1)]


def _fraction_cases(tables: Tables) -> Iterator[Bound]:
    for case, own, _ in _spans(tables):
        words = f"{case}: fraction of what traversals of active latents change in one factor per latent"
        said = f"at least {ONE:g} (1 where each latent varies one factor)"
        wrong = {kind: _scores(own, kind) for kind in (ROTATED, FULL)}
        yield Bound(words, said, _scores(own, LATENTS), least=ONE, wrong=wrong)
        whole, *others = (_covered(own, kind) for kind in (LATENTS, ROTATED, FULL))
        words = f"{case}: share of seeds in which every factor is the main one of some latent"
        share, said = (int(whole.sum()), len(whole)), f"at least {ONE:g} (1)"
        yield Bound(words, said, share=share, least=ONE, wrong=dict(zip(wrong, others, strict=True)))


def _control_cases(tables: Tables) -> Iterator[Order]:
    for case, own, plain in _spans(tables):
        controls = [(own, ROTATED, ROTATED), (own, FULL, FULL), (plain, LATENTS, "β = 1")]
        for other, control, words in controls if len(plain) else controls[:2]:
            low, high = _scores(other, control).align(_scores(own, LATENTS), join="inner")
            yield Order(f"{case}: that fraction, {words} less latents", low, high, paired=True)


def _covered(axes: pd.DataFrame, kind: str) -> pd.Series[bool]:
    """Whether every factor is the main one of some axis, per seed and rotation."""
    own = axes[axes["axes"] == kind]
    main = own[list(FACTORS)].idxmax(axis=1)
    return main.groupby([own["seed"], own["rotation"]]).nunique() == len(FACTORS)


def _scores(axes: pd.DataFrame, kind: str) -> pd.Series[float]:
    """Σ_j max_k S_jk / Σ_jk S_jk per seed, with S the change of factor k along axis j; mean over rotations."""
    own = axes[axes["axes"] == kind]
    sums = own.assign(main=own[list(FACTORS)].max(axis=1), whole=own[list(FACTORS)].sum(axis=1))
    by = sums.groupby(["seed", "rotation"])[["main", "whole"]].sum()
    return (by["main"] / by["whole"]).groupby("seed").mean()


def plot(tables: Tables) -> Figure:
    """Traversals of the first seed in three cases, and the main fractions of all seeds."""
    axes, images = tables["axes"], tables["pictures"]
    cases = list(axes[axes["β"] > 1][["span", "β"]].drop_duplicates().itertuples(index=False, name=None))
    shown = [(*cases[0], LATENTS), (*cases[0], FULL), *((*case, LATENTS) for case in cases[1:])]
    titles = [f"{kind}, span {span:g}, β = {beta:g}" for span, beta, kind in shown]
    figure, places = panels([*titles, "fraction of change in the main factor"], rows=2, width=4.0, height=2.3)
    for panel, (span, beta, kind) in zip(places, shown, strict=False):
        own = [
            table[(table["span"] == span) & (table["β"] == beta) & (table["axes"] == kind)]
            for table in (images, axes[axes["seed"] == 0])
        ]
        _draw_pictures(panel, *own)
    rows = {}
    for (span, beta), part in axes.groupby(["span", "β"], sort=False):
        for kind in (LATENTS, ROTATED, FULL):
            if len(scores := _scores(part, kind)):
                what, posterior = kind.removesuffix(" posterior").split(", ")
                rows[f"{what}, {posterior}, span {span:g}, β = {beta:g}"] = [scores]
    panel = places[len(shown)]
    categories(panel, rows)
    means = [float(scores.mean()) for (scores,) in rows.values()]
    panel.plot(means, range(len(rows)), "|", color="black", markersize=9)
    reference(panel, x=ONE)
    finish(panel, "one dot per seed", xlim=(1 / len(FACTORS), 1.02))
    return figure


def _draw_pictures(panel: Any, images: pd.DataFrame, axes: pd.DataFrame) -> None:
    """One row per latent, sorted by the factor that it changes most and labelled by it."""
    changes = axes.set_index("latent")[list(FACTORS)]
    main, still = changes.idxmax(axis=1), changes.max(axis=1) < STILL
    order = sorted(main.index, key=lambda latent: (bool(still[latent]), FACTORS.index(main[latent])))
    labels = [f"$z_{latent}$: {'none' if still[latent] else main[latent]}" for latent in order]
    rows = [from_text(images[images["latent"] == latent]["pixels"].str[1:], GREYS) for latent in order]
    if rows:
        pictures(panel, np.stack(rows), labels)


TRAVERSALS = Artefact(
    key="allen2024.traversals",
    title="Latent traversals: a latent, a factor",
    claims=(
        Bounds(
            "Post: when disentangled, images vary in a specific feature by changing a single latent dimension",
            _fraction_cases,
        ),
        Orders("Controls: random axes, a full posterior, β = 1 mix factors more", _control_cases, ours=True),
    ),
    presets={
        "smoke": Settings(
            resolution=8,
            positions=6,
            scales=3,
            width=16,
            latent=3,
            seeds=2,
            steps=60,
            starts=4,
            rotations=2,
            shown=5,
        ),
        "laptop": Settings(),
        "full": Settings(
            # as large a variance as at 16 pixels, for squared distances that grow with the number of pixels
            resolution=24,
            variance=0.1125,
            width=256,
            seeds=20,
            steps=20_000,
            batch_size=128,
            starts=64,
            frames=17,
            rotations=4,
        ),
    },
    measure=measure,
    plot=plot,
    note="Scale and position are read off decoded images by their moments; a change is the variance of one of them "
    "along a traversal, in units of its variance over the data. Twin of dSprites: soft upright ellipses; a span of 1 "
    "is dSprites' range of positions.",
)
