"""Latent traversals of allen2024's post: images that vary in one factor as a single latent is varied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.data import World, grid_index, load
from unseam.drawing import panels
from unseam.geometry import active_latents
from unseam.models import VAE
from unseam.papers.allen2024._members import SpriteSettings, sprite_trial
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Order, Orders
from unseam.papers.draws import orthonormal
from unseam.papers.plots import Figure, Tables, categories, finish, pictures, reference
from unseam.papers.tables import from_text, to_text
from unseam.papers.trainings import combinations, train_or_resume
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
    scales: int = scaled(3, 6)
    latent: int = scaled(3, 5)
    seeds: int = scaled(2, 4, 20)
    steps: int = scaled(60, 5000, 20_000)
    batch_size: int = scaled(64, 64, 128)
    learning_rate: float = 1e-3
    starts: int = scaled(4, 16, 64)
    """Items through whose posterior means traversals pass."""
    frames: int = scaled(9, 9, 17)
    reach: float = 2.0
    """Traversals go from minus to plus this many standard deviations of the prior."""
    rotations: int = scaled(2, 8, 4)
    shown: int = scaled(5, 7)
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
        middle = grid_index(torch.tensor([[size // 2 for size in world.factor_sizes]]), world.factor_sizes)
        for member, trial in enumerate(trials):
            model = ensemble[member]
            with torch.no_grad():
                mean, variance = model.encode(world.images(torch.arange(len(world))).to(ensemble.device))
            used = active_latents(mean, variance).active.nonzero().flatten().cpu()
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
                seen = read(_decode(model, z)).unflatten(0, z.shape[:3])
                table = pd.DataFrame(seen.var(2, correction=0).mean(1).cpu().numpy(), columns=list(FACTORS))
                latents = used.tolist() if number == 0 else [-1] * len(table)
                rows.append(table.assign(axes=kind, rotation=number, latent=latents, **who))
            if trial.seed == 0 and (diagonal or (span, trial.beta) == settings.cases[0]):
                z = traversal(mean[middle], bases[0][1], settings.reach, settings.shown)
                pictures.append(_pictures(model, z[:, 0], used).assign(axes=bases[0][0], **who))
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
    images of a world, and none of them from an image of less than a tenth of the least mass in it.
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


def traversal(starts: Tensor, basis: Tensor, reach: float, frames: int) -> Tensor:
    """Points (axis, start, frame, latent) whose coordinate along each column of a basis runs evenly over ±reach.

    Coordinates along the other columns of the orthonormal basis (latent, axis) are those of the starts (start, latent).

    >>> traversal(torch.tensor([[0.5, 3.0]]), torch.eye(2), 1.0, 3)[0, 0]
    tensor([[-1.,  3.],
            [ 0.,  3.],
            [ 1.,  3.]])
    """
    columns = basis.to(starts)
    away = torch.linspace(-reach, reach, frames).to(starts) - (starts @ columns).mT[..., None]
    return starts[:, None] + away[..., None] * columns.mT[:, None, None]


@torch.no_grad()
def _decode(model: VAE, z: Tensor) -> Tensor:
    """Mean images (point, ...) of points (..., latent)."""
    return model.likelihood.mean(model.decode(z.flatten(0, -2)))


def _pictures(model: VAE, z: Tensor, used: Tensor) -> pd.DataFrame:
    """One row per frame of traversals (axis, frame, latent): its pixels as digits of sixteen greys, after a letter."""
    latents, frames = used.repeat_interleave(z.shape[1]).tolist(), list(range(z.shape[1])) * len(used)
    pixels = ["p" + text for text in to_text(_decode(model, z).cpu(), GREYS)]
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
        own, parts = (
            table[(table["span"] == span) & (table["β"] == beta) & (table["axes"] == kind)]
            for table in (images, axes[axes["seed"] == 0])
        )
        # one row per latent, sorted by the factor that it changes most and labelled by it
        changes = parts.set_index("latent")[list(FACTORS)]
        main, still = changes.idxmax(axis=1), changes.max(axis=1) < STILL
        order = sorted(main.index, key=lambda latent: (bool(still[latent]), FACTORS.index(main[latent])))
        labels = [f"$z_{latent}$: {'none' if still[latent] else main[latent]}" for latent in order]
        frames = [from_text(own[own["latent"] == latent]["pixels"].str[1:], GREYS) for latent in order]
        if frames:
            pictures(panel, np.stack(frames), labels)
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
    # as large a variance as at 16 pixels, for squared distances that grow with the number of pixels
    presets=presets_of(
        Settings, smoke={"positions": 6, "width": 16}, full={"variance": 0.1125, "width": 256}
    ),
    measure=measure,
    plot=plot,
    note="Scale and position are read off decoded images by their moments; a change is the variance of one of them "
    "along a traversal, in units of its variance over the data. Twin of dSprites: soft upright ellipses; a span of 1 "
    "is dSprites' range of positions.",
)
