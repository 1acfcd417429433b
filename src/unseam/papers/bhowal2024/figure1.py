"""Figure 1 of bhowal2024: one latent of a trained model moves the object vertically and changes nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from unseam.data import World
from unseam.data import place as place_world
from unseam.drawing import panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024._runs import by_model, families, worlds
from unseam.papers.bhowal2024._setups import CELLS, LAPTOP, NAMES, SPRITES, Cell, Setup, smoke
from unseam.papers.claims import Bound, Bounds, Order, Orders
from unseam.papers.plots import Figure, Tables, columns, finish, pictures, where_measured
from unseam.papers.tables import concatenate
from unseam.papers.trainings import follow, measure_present
from unseam.training import Ensemble, split_items

__all__ = ["FIGURE1", "attributes", "responses_of", "vertical_latents"]

WORDS = {
    "vertical": "vertical position",
    "horizontal": "horizontal position",
    "area": "area",
    "elongation": "vertical less horizontal spread",
    "tilt": "diagonal spread",
}
ATTRIBUTES = tuple(WORDS)
MOVES, STILL = 0.5, 0.1
"""Least response of the vertical position (0.9 where its latent is uniform), and largest of another one over it."""
ENDS = (0.05, 0.95)
"""Quantiles of its posterior means between which a latent is varied."""
FRAMES = 9
BACKGROUND = 0.25


@dataclass(frozen=True)
class Settings:
    """A data set, and the models whose latents are varied around ``setup.points`` test items."""

    setup: Setup
    cells: tuple[Cell, ...] = (CELLS[0], CELLS[2])


def measure(settings: Settings, place: Workplace) -> Tables:
    """By how much each attribute of a decoded picture changes while one latent is varied and the others are fixed."""
    setup = settings.setup

    def trained() -> Tables:
        world = place_world(setup.load(), place.device)
        parts: list[Tables] = []
        for cell in settings.cells:
            named: dict[str, Any] = {"world": setup.base.world, "family": cell.family, "beta": cell.beta}
            found = follow(
                setup.trials(cell),
                place,
                world=world,
                measured={"figure": 1, "points": setup.points, "scored": setup.scored},
                finish=lambda ensemble: responses_of(ensemble, world, setup),
            )
            parts.append({name: table.assign(**named) for name, table in found.items()})
        return concatenate(parts)

    return measure_present([(NAMES[setup.base.world], trained)])


def attributes(images: Tensor) -> Tensor:
    """Positions, area and shape of a bright object (item, attribute), by moments of its picture (item, 1, y, x).

    In pixels: centre of mass (y, x), sum, difference of the variances along y and x, and twice their covariance, of
    what is brighter than :data:`BACKGROUND`, so that a decoder's faint errors far from the object do not count.

    >>> picture = torch.zeros(1, 1, 5, 5)
    >>> picture[0, 0, 1:4, 3] = 1
    >>> [round(value, 4) for value in attributes(picture)[0].tolist()]
    [2.0, 3.0, 2.25, 0.6667, 0.0]
    """
    picture = (images.double().squeeze(1) - BACKGROUND).clamp(min=0)
    area = picture.sum((1, 2)).clamp(min=1e-6)
    down, across = (torch.arange(size).to(picture) for size in picture.shape[1:])
    rows, columns = picture.sum(2), picture.sum(1)
    y, x = rows @ down / area, columns @ across / area
    spread = rows @ down.square() / area - y.square() - (columns @ across.square() / area - x.square())
    mixed = torch.einsum("iyx,y,x->i", picture, down, across) / area - y * x
    return torch.stack([y, x, area, spread, 2 * mixed], 1)


@torch.no_grad()
def responses_of(ensemble: Ensemble, world: World, setup: Setup) -> dict[str, pd.DataFrame]:
    """Responses of all latents of all members, and the traversal of the member whose vertical latent is purest.

    A response is the standard deviation of an attribute along the traversal (root mean square over items) over its
    standard deviation in the data.
    """
    test = split_items(setup.base, len(world)).test[: setup.scored].to(world.device)
    x = world.images(test)
    scale = attributes(x).std(0)
    mean = ensemble.encode(x).mean
    ends = mean.quantile(torch.tensor(ENDS).to(mean), dim=1)
    share = torch.linspace(0, 1, FRAMES).to(mean)[:, None, None]
    values = ends[0] + share * (ends[1] - ends[0])
    rows: list[dict[str, Any]] = []
    shown: list[Tensor] = []
    for member, seed in enumerate(trial.seed for trial in ensemble.trials):
        model = ensemble[member]
        z = mean[member, : setup.points].expand(FRAMES, setup.base.latent, -1, -1).clone()
        each = torch.arange(setup.base.latent)
        z[:, each, :, each] = values[:, member].mT[..., None].expand(-1, -1, z.shape[2])
        decoded = model.likelihood.mean(model.decode(z.flatten(0, 2)))
        varied = attributes(decoded).unflatten(0, z.shape[:3])
        response = varied.var(0, correction=0).mean(1).sqrt() / scale
        rows += [
            {"seed": seed, "latent": latent} | dict(zip(ATTRIBUTES, own, strict=True))
            for latent, own in enumerate(response.tolist())
        ]
        shown.append(decoded.unflatten(0, z.shape[:3])[:, int(response[:, 0].argmax()), 0, 0].cpu())
    table = pd.DataFrame(rows)
    best = int(vertical_latents(table)["impurity"].to_numpy().argmin())
    frames = shown[best].flatten(1).clamp(0, 1).numpy().round(2)
    pictures = pd.DataFrame({f"frame_{place}": frame for place, frame in enumerate(frames)})
    return {"responses": table, "pictures": pictures}


def vertical_latents(responses: pd.DataFrame) -> pd.DataFrame:
    """One row per model (seed): its latent with the largest vertical response, and the ``impurity`` of that latent.

    Impurity is the largest response of another attribute over that of the vertical position.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"seed": 0, "vertical": [0.1, 0.8], "horizontal": [0.9, 0.2], "area": 0.1})
    >>> vertical_latents(rows.assign(elongation=0.0, tilt=0.0))["impurity"].tolist()
    [0.25]
    """
    first = responses.loc[responses.groupby("seed", sort=False)["vertical"].idxmax()]
    return first.assign(impurity=_impurity(first))


def _impurity(responses: pd.DataFrame) -> pd.Series[float]:
    found: pd.Series[float] = responses[list(ATTRIBUTES[1:])].max(axis=1) / responses["vertical"]
    return found


def _vertical_cases(tables: Tables) -> Iterator[Bound]:
    """Over all models, as the paper does not say which one Figure 1 shows."""
    for model, own in by_model(tables["responses"]):
        chosen = vertical_latents(own)
        others = own.drop(chosen.index)
        quantity = f"{model}: response of the vertical position to its latent"
        published = f"it moves (at least {MOVES:g})"
        wrong = {"other latents": others["vertical"]}
        yield Bound(quantity, published, chosen["vertical"], least=MOVES, wrong=wrong)
        quantity = f"{model}: impurity of the latent of the vertical position"
        published = f"only the vertical position changes (at most {STILL:g})"
        note, wrong = f"purest model {chosen['impurity'].min():.2f}", {"other latents": _impurity(others)}
        yield Bound(quantity, published, chosen["impurity"], most=STILL, note=note, wrong=wrong)


def _order_cases(tables: Tables) -> Iterator[Order]:
    for world, part in worlds(tables["responses"]):
        found = {
            family: vertical_latents(own).set_index("seed")["impurity"] for family, own in families(part)
        }
        words = f"{NAMES[world]}: impurity of that latent in β-TCVAE less that in VAE"
        yield Order(words, found["β-TCVAE"], found["VAE"], paired=True)


@where_measured
def plot(tables: Tables) -> Figure:
    """The layout of Figure 1, a traversal per model family, then the responses of every model's vertical latent."""
    shown, responses = tables["pictures"], tables["responses"]
    ((world, _),) = worlds(responses)
    cells = list(families(shown))
    titles = [f"{family}\n{NAMES[world]}" for family, _ in cells]
    figure, axes = panels([*titles, "responses"], rows=len(cells) + 1)
    frames = [name for name in shown.columns if name.startswith("frame_")]
    side = round(len(cells[0][1]) ** 0.5)
    for panel, (_, own) in zip(axes, cells, strict=False):
        pictures(panel, own[frames].to_numpy().T.reshape(1, -1, side, side))
    chosen = {family: vertical_latents(own) for family, own in families(responses)}
    runs = {
        words.replace(" ", "\n", 1): [own[name] for own in chosen.values()] for name, words in WORDS.items()
    }
    columns(axes[-1], runs, labels=list(chosen))
    axes[-1].tick_params(axis="x", labelsize=6)
    finish(axes[-1], ylim=(0, None), legend="best")
    figure.set_size_inches(6.5, 5.5)
    return figure


FIGURE1 = Artefact(
    key="bhowal2024.figure1",
    title="Figure 1: a latent that moves an object vertically",
    claims=(
        Bounds(
            "Figure 1: varying a single latent changes only the vertical position of the object; the rest of its "
            "attributes stay constant",
            _vertical_cases,
        ),
        Orders("That latent is purer in β-TCVAE than in VAE", _order_cases, ours=True),
    ),
    presets={"smoke": Settings(smoke(SPRITES)), "full": Settings(LAPTOP[0].replace(steps=5000, seeds=8))},
    measure=measure,
    plot=plot,
    note="A latent is varied between the 5 % and 95 % quantiles of its posterior means, with the others at the means "
    "of a test item. The response of an attribute is its standard deviation along the way over that in the data; "
    "impurity is the largest response of another attribute over that of the vertical position, at most 0.1 for "
    "“only”, on average over models. Small networks, 32 pixels per side, soft edges.",
)
