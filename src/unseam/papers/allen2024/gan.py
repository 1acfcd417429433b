"""What allen2024 says of GANs: whether a plain GAN's generator is column-orthogonal, and its latents disentangled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from unseam.data import ArrayWorld, load
from unseam.drawing import COLOURS, panels
from unseam.geometry import column_cosine, distance_to_orthogonality, hadamard_gap, jacobian
from unseam.independence import coupling
from unseam.inputs import Decoder
from unseam.inspection import inspect
from unseam.metrics import mcc
from unseam.papers.allen2024._members import angles_to, square_trial
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Order, Orders
from unseam.papers.draws import orthonormal
from unseam.papers.plots import Figure, Tables, categories, finish, legend_below
from unseam.papers.tables import of_tables, table_of
from unseam.papers.trainings import combinations, train_or_resume
from unseam.training.streams import minibatches, normals

__all__ = ["GAN"]

KINDS = ("GAN", "VAE", "untrained", "true generator")
FITS = 0.1
"""A generator fits whose sliced Wasserstein distance to the data is at most this many of their standard deviations."""
ALIGNED = 10.0
"""Degrees within which directions count as those of the factors; random ones are 22.5 away."""
AT_ONCE = 100
"""Steps whose noise and minibatches are drawn together."""


@dataclass(frozen=True)
class Settings:
    """GANs and VAEs with the same generator network on the stretched square, world ``linear``."""

    ratio: float = 2.0
    items: int = scaled(500, 10_000)
    seeds: int = scaled(2, 10, 50)
    width: int = scaled(10, 40)
    """Of two hidden layers with tanh: the generator, and the VAE's decoder."""
    discriminator: int = scaled(16, 64)
    steps: int = scaled(60, 6000, 20_000)
    batch_size: int = scaled(128, 128, 256)
    learning_rate: float = 1e-3
    penalty: float = 1.0
    """Weight of the discriminator's squared gradient at data."""
    vae_steps: int = scaled(60, 4000, 8000)
    variance: float = 2e-3
    points: int = scaled(60, 1000, 2000)
    rotations: int = scaled(2, 16)


class Subject(NamedTuple):
    """A decoder and the seed that it was trained from."""

    kind: str
    seed: int
    decoder: Decoder


def measure(settings: Settings, place: Workplace) -> Tables:
    """Orthogonality of each decoder in its own axes and in random ones, and how its latents follow the factors."""
    world = load("linear", size=settings.items, ratio=settings.ratio).to(place.device)
    assert isinstance(world, ArrayWorld)
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(settings.points, 2, generator=draw).to(place.device)
    rotations = torch.stack([orthonormal(2, 2, generator=draw) for _ in range(settings.rotations)]).to(z)
    first = square_trial(settings, settings.ratio, settings.vae_steps)
    trials = combinations(first, seed=range(settings.seeds))
    gans, vaes = _gans(settings, world), train_or_resume(trials, place, "vae")
    subjects = [*gans, *(Subject(KINDS[1], seed, vaes[seed].decode) for seed in range(settings.seeds))]
    subjects.append(Subject(KINDS[3], 0, _truth(world)))
    measured = [
        {"kind": kind, "seed": seed} | _measure_decoder(decoder, z, rotations, world)
        for kind, seed, decoder in subjects
    ]
    grids = [_grid(subject, world) for subject in subjects if subject.seed == 0]
    return {"decoders": pd.DataFrame(measured), "grids": pd.concat(grids, ignore_index=True)}


def _gans(settings: Settings, world: ArrayWorld) -> list[Subject]:
    generator = _network(settings.seeds, (2, settings.width, settings.width, *world.shape), 0, world.device)
    fresh = [layer.clone() for layer in generator]
    seeds = torch.arange(settings.seeds, device=world.device)
    train_gan(generator, world.images(torch.arange(len(world))), seeds, settings)
    return [
        Subject(kind, seed, _member(layers, seed))
        for kind, layers in ((KINDS[0], generator), (KINDS[2], fresh))
        for seed in range(settings.seeds)
    ]


def train_gan(generator: list[Tensor], x: Tensor, seeds: Tensor, settings: Settings) -> None:
    """Train generators, weights and biases (seed, ...) in turn, in place, each against a discriminator of its own.

    The non-saturating loss of Goodfellow et al. (2014) with the gradient penalty R1 of Mescheder et al. (2018), by
    Adam with a learning rate that falls linearly to zero; one update of each network per step. Minibatches of x (item,
    data) and noise are functions of seed and step.
    """
    sizes = (x.shape[1], settings.discriminator, settings.discriminator, 1)
    critic = _network(len(seeds), sizes, 1, x.device)
    optimisers = [
        torch.optim.Adam([layer.requires_grad_() for layer in layers], betas=(0.5, 0.99))
        for layers in (critic, generator)
    ]
    for step in range(settings.steps):
        if step % AT_ONCE == 0:
            ahead = torch.arange(step, min(step + AT_ONCE, settings.steps), device=x.device)
            noise = normals(seeds, ahead, (2, settings.batch_size, 2))
            items = minibatches(seeds, ahead, settings.batch_size, len(x))
        for_critic, for_generator = noise[step % AT_ONCE].unbind(1)
        for optimiser in optimisers:
            optimiser.zero_grad()
            optimiser.param_groups[0]["lr"] = settings.learning_rate * (1 - step / settings.steps)
        real = x[items[step % AT_ONCE]].requires_grad_()
        true = _forward(critic, real, LEAKY)[..., 0]
        false = _forward(critic, _forward(generator, for_critic).detach(), LEAKY)[..., 0]
        (slope,) = torch.autograd.grad(true.sum(), real, create_graph=True)
        penalty = settings.penalty / 2 * slope.square().sum(-1)
        # summed over seeds, so that each has the gradient of its own mean
        loss = (functional.softplus(-true) + functional.softplus(false) + penalty).mean(1).sum()
        loss.backward(inputs=critic)
        optimisers[0].step()
        fake = _forward(critic, _forward(generator, for_generator), LEAKY)[..., 0]
        functional.softplus(-fake).mean(1).sum().backward(inputs=generator)
        optimisers[1].step()
    for layer in generator:
        layer.requires_grad_(False)


LEAKY = partial(functional.leaky_relu, negative_slope=0.2)
"""Of the discriminator."""


def _network(members: int, sizes: Sequence[int], stream: int, device: torch.device) -> list[Tensor]:
    """Weights (member, input, output) and biases (member, 1, output) in turn, uniform on ±1/√input as in torch."""
    layers = []
    for member in range(members):
        draw = torch.Generator().manual_seed(2 * member + stream)
        shapes = [(i, shape) for i, o in pairwise(sizes) for shape in ((i, o), (1, o))]
        layers.append([1 / math.sqrt(i) * (2 * torch.rand(shape, generator=draw) - 1) for i, shape in shapes])
    return [torch.stack(layer).to(device) for layer in zip(*layers, strict=True)]


def _forward(
    layers: Sequence[Tensor], y: Tensor, activation: Callable[[Tensor], Tensor] = torch.tanh
) -> Tensor:
    for place, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
        y = (activation(y) if place else y) @ weight + bias
    return y


def _member(layers: Sequence[Tensor], seed: int) -> Decoder:
    own = [layer[seed].detach() for layer in layers]
    return lambda z: _forward([layer.to(z) for layer in own], z)


def _truth(world: ArrayWorld) -> Decoder:
    """The generator of the data from a normal prior, whose Jacobian is column-orthogonal: z ↦ A Φ(z)."""
    assert world.generator is not None
    make = world.generator
    return lambda z: make(torch.special.ndtr(z))


@torch.no_grad()
def _measure_decoder(decoder: Decoder, z: Tensor, rotations: Tensor, world: ArrayWorld) -> dict[str, float]:
    """The decoder in its own axes, in random ones (means over rotations), and what depends on no axes."""
    found = inspect(decoder, z, active=torch.ones(z.shape[1], dtype=torch.bool))
    assert found.pullback is not None and found.right_vectors is not None and world.mixing is not None
    factors = _factors(decoder(z), world)
    # in the coordinates u = Rᵀz the metric is RᵀGR and its eigenvectors are RᵀV
    axes = torch.cat([torch.eye(z.shape[1]).to(z)[None], rotations])[:, None]
    metric, vectors = axes.mT @ found.pullback @ axes, axes.mT @ found.right_vectors
    measured = {
        "cosine": column_cosine(metric).mean(1),
        "Hadamard gap": hadamard_gap(metric).mean(1),
        "DtO": distance_to_orthogonality(vectors.flatten(0, 1)).unflatten(0, vectors.shape[:2]).mean(1),
        "MCC": mcc(z @ axes[:, 0], factors).score,
    }
    row = {name: float(values[0]) for name, values in measured.items()}
    row |= {f"{name}, random axes": float(values[1:].mean()) for name, values in measured.items()}
    left = torch.linalg.svd(jacobian(decoder, z).double().cpu(), full_matrices=False).U
    return row | {
        "coupling": float(coupling(decoder, z).off_diagonal),
        "angle of left singular vectors": float(
            angles_to(left, functional.normalize(world.mixing, dim=0)).mean()
        ),
        "distance": _sliced_distance(decoder, world),
        "folded": _folded_share(decoder, z, world),
        "outside": float(((factors < 0) | (factors > 1)).any(1).double().mean()),
    }


def _factors(x: Tensor, world: ArrayWorld) -> Tensor:
    """Factors (batch, 2) of points, by least squares on the plane of the data."""
    assert world.mixing is not None
    return x @ torch.linalg.pinv(world.mixing).mT.to(x)


def _sliced_distance(decoder: Decoder, world: ArrayWorld, most: int = 4096, directions: int = 64) -> float:
    """Mean Wasserstein distance to the data over directions, over their root mean square deviation."""
    draw = torch.Generator().manual_seed(1)
    count = min(most, len(world))
    data = world.images(torch.randperm(len(world), generator=draw)[:count])
    x = decoder(torch.randn(count, 2, generator=draw).to(data))
    axes = functional.normalize(torch.randn(x.shape[1], directions, generator=draw), dim=0).to(data)
    apart = ((x @ axes).sort(0).values - (data @ axes).sort(0).values).abs().mean()
    return float(apart / data.std(0).square().mean().sqrt())


def _folded_share(decoder: Decoder, z: Tensor, world: ArrayWorld) -> float:
    """Share of points at which the map from z to the factors has the orientation that fewer points have."""
    slopes = _factors(jacobian(decoder, z).mT, world).mT
    positive = float((torch.linalg.det(slopes.double()) > 0).double().mean())
    return min(positive, 1 - positive)


@torch.no_grad()
def _grid(subject: Subject, world: ArrayWorld) -> pd.DataFrame:
    """Factors along lines of constant latent, at quantiles of the prior."""
    across = torch.special.ndtri(torch.linspace(0.05, 0.95, 7))
    along = torch.special.ndtri(torch.linspace(0.02, 0.98, 25))
    lines = torch.cartesian_prod(across, along).unflatten(0, (len(across), len(along)))
    both = torch.stack([lines, lines.flip(-1)])
    image = _factors(subject.decoder(both.flatten(0, 2).to(world.device)), world).cpu()
    where = torch.cartesian_prod(*(torch.arange(size) for size in both.shape[:3]))
    names = ("latent", "line", "node", "w1", "w2")
    return table_of({"kind": subject.kind} | dict(zip(names, (*where.mT, *image.mT), strict=True)))


def _fitting(tables: Tables) -> tuple[pd.DataFrame, pd.DataFrame]:
    table = tables["decoders"]
    fit = table[table["distance"] <= FITS]
    return fit[fit["kind"] == KINDS[0]], fit[fit["kind"] == KINDS[1]]


def _premise_cases(tables: Tables) -> Iterator[Bound]:
    gans, fresh = (tables["decoders"][tables["decoders"]["kind"] == kind] for kind in (KINDS[0], KINDS[2]))
    words = f"GAN: share of seeds that fit the data, within {FITS:g} standard deviations"
    share = (int((gans["distance"] <= FITS).sum()), len(gans))
    wrong = {"untrained generators": fresh["distance"] <= FITS}
    yield Bound(words, "most: at least 0.5", share=share, least=0.5, wrong=wrong)


@of_tables
def _axes_cases(tables: Tables, who: int) -> Iterator[Order]:
    """Measures in the decoder's own axes against random ones, which a normal prior cannot tell apart."""
    own = _fitting(tables)[who]
    words = f"{KINDS[who]}: mean |cos| between columns, own axes less random axes"
    yield Order(words, own["cosine"], own["cosine, random axes"], paired=True)
    words = f"{KINDS[who]}: MCC of latents with factors, random axes less own axes"
    yield Order(words, own["MCC, random axes"], own["MCC"], paired=True)


def _vae_cases(tables: Tables) -> Iterator[Bound]:
    gans, vaes = _fitting(tables)
    random, best = gans["cosine, random axes"].mean(), vaes["cosine"].mean()
    part = (random - gans["cosine"]) / (random - best)
    words = "GAN: fraction of the way from random axes to the VAE that its mean |cos| has gone"
    said, wrong = "at least 0.5 (1: as orthogonal as a VAE)", {"random axes": [0.0]}
    yield Bound(words, said, part, least=0.5, wrong=wrong)


def _svd_cases(tables: Tables) -> Iterator[Bound]:
    angle = _fitting(tables)[0]["angle of left singular vectors"]
    words = "GAN: angle of the Jacobian's left singular vectors to the factors' directions, degrees"
    wrong = {"random directions": [22.5]}
    yield Bound(words, f"at most {ALIGNED:g} (0)", angle, most=ALIGNED, wrong=wrong)


def plot(tables: Tables) -> Figure:
    """Lines of constant latent in the plane of the factors, and cosines and MCC in own and in random axes."""
    table, grids = tables["decoders"], tables["grids"]
    shown = (KINDS[3], KINDS[1], KINDS[0])
    titles = [f"{kind}, first seed" if kind != KINDS[3] else kind for kind in shown]
    figure, axes = panels([*titles, "mean |cos| of columns", "MCC"], width=2.5, height=2.5)
    for panel, kind in zip(axes, shown, strict=False):
        for _, line in grids[grids["kind"] == kind].groupby(["latent", "line"]):
            panel.plot(line["w1"], line["w2"], color=COLOURS[line["latent"].iloc[0]], linewidth=0.9)
        finish(panel, "first factor", xlim=(-0.15, 1.15), ylim=(-0.15, 1.15), xticks=[0, 1], yticks=[0, 1])
        panel.set_aspect("equal")
    finish(axes[0], y="second factor")
    groups = {kind: table[table["kind"] == kind] for kind in KINDS}
    for panel, measure in zip(axes[3:], ("cosine", "MCC"), strict=True):
        rows = {kind: [own[measure], own[f"{measure}, random axes"]] for kind, own in groups.items()}
        categories(panel, rows, ("own axes", "random axes"), (COLOURS[0], COLOURS[4]))
        panel.set_xlim(-0.03, 1.03)
    legend_below(figure, axes[3:4], 2, "lower right")
    return figure


GAN = Artefact(
    key="allen2024.gan",
    title="GANs: is a plain generator column-orthogonal?",
    claims=(
        Orders(
            "§1: “a related phenomenon is observed” in GANs: a generator prefers its own axes", _axes_cases(0)
        ),
        Bounds("Abstract: disentanglement arises in GANs as in VAEs", _vae_cases),
        Bounds("§3: a factor is “identifiable from the SVD of J”", _svd_cases),
        Bounds("Premise: GANs fit the data", _premise_cases, ours=True),
        Orders("Control: VAEs with the same decoder prefer their own axes", _axes_cases(1), ours=True),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="Plain GANs (non-saturating loss, R1 penalty) with the decoder of a VAE on the stretched square, whose true "
    "generator is column-orthogonal. Only seeds that fit the data are judged.",
)
