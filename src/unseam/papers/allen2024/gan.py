"""What allen2024 says of GANs: whether a plain GAN's generator is column-orthogonal, and its latents disentangled."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from unseam.data import ArrayWorld, load
from unseam.drawing import COLOURS, panels
from unseam.geometry import column_cosine, distance_to_orthogonality, hadamard_gap, jacobian
from unseam.independence import coupling
from unseam.inspection import inspect
from unseam.metrics import mcc
from unseam.papers.allen2024._members import aligned, finding, orthonormal, trained
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.training.streams import minibatches, normals
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["GAN"]

KINDS = ("GAN", "VAE", "untrained", "true generator")
MEASURES = ("cosine", "Hadamard gap", "DtO", "MCC")
FITS = 0.1
"""A generator fits whose sliced Wasserstein distance to the data is at most this many of their standard deviations."""
ALIGNED = 10.0
"""Degrees within which directions count as those of the factors; random ones are 22.5 away."""
SLOPE = 0.2
"""Of the discriminator's leaky ReLU."""
AT_ONCE = 100
"""Steps whose noise and minibatches are drawn together."""

Decoder = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Settings:
    """GANs and VAEs with the same generator network on the stretched square, world ``linear``."""

    ratio: float = 2.0
    items: int = 10_000
    seeds: int = 10
    width: int = 40
    """Of two hidden layers with tanh: the generator, and the VAE's decoder."""
    discriminator: int = 64
    steps: int = 6000
    batch_size: int = 128
    learning_rate: float = 1e-3
    penalty: float = 1.0
    """Weight of the discriminator's squared gradient at data."""
    vae_steps: int = 4000
    variance: float = 2e-3
    points: int = 1000
    rotations: int = 16


class Subject(NamedTuple):
    """A decoder and the seed that it was trained from."""

    kind: str
    seed: int
    decoder: Decoder


def measure(settings: Settings, place: Workplace) -> Tables:
    """Orthogonality of each decoder in its own axes and in random ones, and how its latents follow the factors."""
    import pandas as pd

    world = load("linear", size=settings.items, ratio=settings.ratio).to(place.device)
    assert isinstance(world, ArrayWorld)
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(settings.points, 2, generator=draw).to(place.device)
    rotations = torch.stack([orthonormal(2, 2, draw) for _ in range(settings.rotations)]).to(z)
    subjects = [*_gans(settings, world), *_vaes(settings, place), Subject(KINDS[3], 0, _truth(world))]
    measured = pd.DataFrame([_measured(subject.decoder, z, rotations, world) for subject in subjects])
    measured.insert(0, "seed", [subject.seed for subject in subjects])
    measured.insert(0, "kind", [subject.kind for subject in subjects])
    grids = [_grid(subject, world) for subject in subjects if subject.seed == 0]
    return {"decoders": measured, "grids": pd.concat(grids, ignore_index=True)}


def _gans(settings: Settings, world: ArrayWorld) -> list[Subject]:
    """Every seed's generator as it was initialised, and as trained."""
    seeds = torch.arange(settings.seeds, device=world.device)
    generator = _network(settings.seeds, (2, settings.width, settings.width, *world.shape), 0, world.device)
    fresh = [layer.clone() for layer in generator]
    x = world.images(torch.arange(len(world)))
    train_gan(generator, x, seeds, settings)
    return [
        Subject(kind, seed, _member(layers, seed))
        for kind, layers in ((KINDS[0], generator), (KINDS[2], fresh))
        for seed in range(settings.seeds)
    ]


def train_gan(generator: list[Tensor], x: Tensor, seeds: Tensor, settings: Settings) -> None:
    """Train generators in place, one per seed, each against a discriminator of its own.

    The non-saturating loss of Goodfellow et al. (2014) with the gradient penalty R1 of Mescheder et al. (2018), by
    Adam with a learning rate that falls linearly to zero; one update of each network per step. Minibatches and noise
    are functions of seed and step.

    Args:
        generator: weights and biases (seed, ...) in turn.
        x: data (item, data).
        seeds: (seed,).
        settings: batch size, steps, learning rate, penalty, and the discriminator's width.
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
        true = _score(critic, real)
        false = _score(critic, _generated(generator, for_critic).detach())
        (slope,) = torch.autograd.grad(true.sum(), real, create_graph=True)
        penalty = settings.penalty / 2 * slope.square().sum(-1)
        # summed over seeds, so that each has the gradient of its own mean
        loss = (functional.softplus(-true) + functional.softplus(false) + penalty).mean(1).sum()
        loss.backward(inputs=critic)
        optimisers[0].step()
        fake = _score(critic, _generated(generator, for_generator))
        functional.softplus(-fake).mean(1).sum().backward(inputs=generator)
        optimisers[1].step()
    for layer in generator:
        layer.requires_grad_(False)


def _network(members: int, sizes: Sequence[int], stream: int, device: torch.device) -> list[Tensor]:
    """Weights (member, input, output) and biases (member, 1, output) in turn, uniform on ±1/√input as in torch."""
    layers: list[list[Tensor]] = []
    for member in range(members):
        draw = torch.Generator().manual_seed(2 * member + stream)
        own = []
        for inputs, outputs in pairwise(sizes):
            bound = 1 / math.sqrt(inputs)
            own += [
                bound * (2 * torch.rand(shape, generator=draw) - 1)
                for shape in ((inputs, outputs), (1, outputs))
            ]
        layers.append(own)
    return [torch.stack(layer).to(device) for layer in zip(*layers, strict=True)]


def _through(layers: Sequence[Tensor], y: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    for place, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
        y = (activation(y) if place else y) @ weight + bias
    return y


def _generated(layers: Sequence[Tensor], z: Tensor) -> Tensor:
    return _through(layers, z, torch.tanh)


def _score(layers: Sequence[Tensor], x: Tensor) -> Tensor:
    return _through(layers, x, lambda y: functional.leaky_relu(y, SLOPE))[..., 0]


def _member(layers: Sequence[Tensor], seed: int) -> Decoder:
    own = [layer[seed].detach() for layer in layers]
    return lambda z: _generated([layer.to(z) for layer in own], z)


def _vaes(settings: Settings, place: Workplace) -> list[Subject]:
    trial = Trial(
        world="linear",
        world_options=(("size", settings.items), ("ratio", settings.ratio)),
        likelihood="gaussian",
        likelihood_variance=settings.variance,
        latent=2,
        encoder_widths=(settings.width, settings.width),
        decoder_widths=(settings.width, settings.width),
        encoder_activation="tanh",
        steps=settings.vae_steps,
        batch_size=settings.batch_size,
        learning_rate=2e-3,
        precision="float32",
    )
    trials = [dataclasses.replace(trial, seed=seed) for seed in range(settings.seeds)]
    ensemble = trained(trials, place, "vae")
    return [Subject(KINDS[1], seed, ensemble[seed].decode) for seed in range(settings.seeds)]


def _truth(world: ArrayWorld) -> Decoder:
    """The generator of the data from a normal prior, whose Jacobian is column-orthogonal: z ↦ A Φ(z)."""
    assert world.generator is not None
    make = world.generator
    return lambda z: make(torch.special.ndtr(z))


@torch.no_grad()
def _measured(decoder: Decoder, z: Tensor, rotations: Tensor, world: ArrayWorld) -> dict[str, float]:
    """The decoder in its own axes, in random ones (means over rotations), and what depends on no axes."""
    found = inspect(decoder, z, active=torch.ones(z.shape[1], dtype=torch.bool))
    assert found.pullback is not None and found.right_vectors is not None
    factors = _factors(decoder(z), world)
    # in the coordinates u = Rᵀz the metric is RᵀGR and its eigenvectors are RᵀV
    axes = torch.cat([torch.eye(z.shape[1]).to(z)[None], rotations])[:, None]
    metric, vectors = axes.mT @ found.pullback @ axes, axes.mT @ found.right_vectors
    measured = (
        column_cosine(metric).mean(1),
        hadamard_gap(metric).mean(1),
        distance_to_orthogonality(vectors.flatten(0, 1)).unflatten(0, vectors.shape[:2]).mean(1),
        mcc(z @ axes[:, 0], factors).score,
    )
    row = {name: float(values[0]) for name, values in zip(MEASURES, measured, strict=True)}
    row |= {
        f"{name}, random axes": float(values[1:].mean())
        for name, values in zip(MEASURES, measured, strict=True)
    }
    return row | {
        "coupling": float(coupling(decoder, z).off_diagonal),
        "angle of left singular vectors": _angle(decoder, z, world),
        "distance": _sliced(decoder, world),
        "folded": _folded(decoder, z, world),
        "outside": float(((factors < 0) | (factors > 1)).any(1).double().mean()),
    }


def _factors(x: Tensor, world: ArrayWorld) -> Tensor:
    """Factors (batch, 2) of points, by least squares on the plane of the data."""
    assert world.mixing is not None
    return x @ torch.linalg.pinv(world.mixing).mT.to(x)


def _angle(decoder: Decoder, z: Tensor, world: ArrayWorld) -> float:
    """Mean angle in degrees of the Jacobian's left singular vectors to the directions of the factors."""
    assert world.mixing is not None
    sides = functional.normalize(world.mixing, dim=0)
    left = torch.linalg.svd(jacobian(decoder, z).double().cpu(), full_matrices=False).U
    cosine = (aligned(left, sides) * sides).sum(-2).clamp(-1, 1)
    return float(torch.rad2deg(cosine.acos()).mean())


def _sliced(decoder: Decoder, world: ArrayWorld, most: int = 4096, directions: int = 64) -> float:
    """Mean Wasserstein distance to the data over directions, over their root mean square deviation."""
    draw = torch.Generator().manual_seed(1)
    count = min(most, len(world))
    data = world.images(torch.randperm(len(world), generator=draw)[:count])
    x = decoder(torch.randn(count, 2, generator=draw).to(data))
    axes = functional.normalize(torch.randn(x.shape[1], directions, generator=draw), dim=0).to(data)
    apart = ((x @ axes).sort(0).values - (data @ axes).sort(0).values).abs().mean()
    return float(apart / data.std(0).square().mean().sqrt())


def _folded(decoder: Decoder, z: Tensor, world: ArrayWorld) -> float:
    """Share of points at which the map from z to the factors has the orientation that fewer points have."""
    slopes = _factors(jacobian(decoder, z).mT, world).mT
    positive = float((torch.linalg.det(slopes.double()) > 0).double().mean())
    return min(positive, 1 - positive)


@torch.no_grad()
def _grid(subject: Subject, world: ArrayWorld) -> pd.DataFrame:
    """Factors along lines of constant latent, at quantiles of the prior."""
    import pandas as pd

    across = torch.special.ndtri(torch.linspace(0.05, 0.95, 7))
    along = torch.special.ndtri(torch.linspace(0.02, 0.98, 25))
    lines = torch.cartesian_prod(across, along).unflatten(0, (len(across), len(along)))
    both = torch.stack([lines, lines.flip(-1)])
    image = _factors(subject.decoder(both.flatten(0, 2).to(world.device)), world).cpu()
    where = torch.cartesian_prod(*(torch.arange(size) for size in both.shape[:3]))
    columns = dict(zip(("latent", "line", "node"), where.unbind(1), strict=True))
    columns |= {"w1": image[:, 0], "w2": image[:, 1]}
    return pd.DataFrame({"kind": subject.kind} | {name: part.numpy() for name, part in columns.items()})


def judge(tables: Tables) -> Judgement:
    """Whether GANs that fit the data prefer their axes, as VAEs with the same decoder do."""
    table = tables["decoders"]
    fit = table[table["distance"] <= FITS]
    gans, vaes = fit[fit["kind"] == KINDS[0]], fit[fit["kind"] == KINDS[1]]
    share = len(gans) / max(1, int((table["kind"] == KINDS[0]).sum()))
    found = [
        Finding(
            f"GAN: share of seeds that fit the data, within {FITS:g} standard deviations",
            "the premise",
            share,
            None,
            None,
            "reproduced" if share >= 0.5 else "not reproduced",
            _fits(table),
        )
    ]
    if len(gans) < 2:
        return Judgement(tuple(found))
    angle = torch.tensor(gans["angle of left singular vectors"].to_numpy())
    found += [
        _prefers(gans, "GAN", "cosine", "below 0: “a related phenomenon is observed” in GANs", -1),
        _prefers(gans, "GAN", "MCC", "above 0: “a related phenomenon is observed” in GANs", 1),
        _between(gans, vaes),
        finding(
            "GAN: mean angle of the Jacobian's left singular vectors to the factors' directions, degrees",
            "0: a factor is “identifiable from the SVD of J”",
            angle,
            bool(angle.mean() <= ALIGNED),
            "22.5 for random directions",
        ),
        _prefers(vaes, "VAE (control)", "cosine", "below 0: its Jacobian is column-orthogonal", -1),
        _prefers(vaes, "VAE (control)", "MCC", "above 0: it disentangles", 1),
    ]
    return Judgement(tuple(found), _note(table))


def _prefers(own: pd.DataFrame, who: str, measure: str, published: str, sign: int) -> Finding:
    """A measure in the decoder's own axes less its mean over random ones, which the prior cannot tell apart."""
    more = torch.tensor((own[measure] - own[f"{measure}, random axes"]).to_numpy())
    words = "mean |cos| between columns" if measure == "cosine" else "MCC of latents with factors"
    found = finding(
        f"{who}: {words} less that in random axes",
        published,
        more,
        False,
        f"{own[measure].mean():.3g} in its own axes, {own[f'{measure}, random axes'].mean():.3g} in random ones",
    )
    end = found.upper if sign < 0 else found.lower
    holds = end is not None and sign * end > 0
    return found._replace(verdict="reproduced" if holds else "not reproduced")


def _between(gans: pd.DataFrame, vaes: pd.DataFrame) -> Finding:
    """Where GANs lie between random axes (0) and VAEs (1)."""
    random, best = gans["cosine, random axes"].mean(), vaes["cosine"].mean()
    part = torch.tensor(((random - gans["cosine"]) / (random - best)).to_numpy())
    return finding(
        "GAN: part of the way, from random axes to the VAE, that its mean |cos| between columns has gone",
        "1: as orthogonal as a VAE",
        part,
        bool(part.mean() >= 0.5),
    )


def _fits(table: pd.DataFrame) -> str:
    mean = table.groupby("kind", sort=False)["distance"].mean()
    return "mean distances: " + ", ".join(f"{kind} {value:.2g}" for kind, value in mean.items())


def _note(table: pd.DataFrame) -> str:
    mean = table.groupby("kind", sort=False).mean(numeric_only=True)
    said = "; ".join(
        f"{kind}: {row['cosine']:.3g}, {row['Hadamard gap']:.3g}, {row['DtO']:.3g}, {row['MCC']:.3g}, "
        f"{row['coupling']:.3g}, {row['folded']:.2g}"
        for kind, row in mean.iterrows()
    )
    return (
        "Means over seeds of |cos| between columns, Hadamard gap (nats), DtO, MCC with the factors, coupling, and "
        f"share of points where the generator is folded over: {said}."
    )


def draw(tables: Tables) -> Figure:
    """Lines of constant latent in the plane of the factors, and cosines and MCC in own and in random axes."""
    table, grids = tables["decoders"], tables["grids"]
    shown = (KINDS[3], KINDS[1], KINDS[0])
    titles = [
        *(f"{kind}, first seed" if kind != KINDS[3] else kind for kind in shown),
        "mean |cos| of columns",
        "MCC",
    ]
    figure, axes = panels(titles, width=2.5, height=2.5)
    for panel, kind in zip(axes, shown, strict=False):
        own = grids[grids["kind"] == kind]
        for _, line in own.groupby(["latent", "line"]):
            panel.plot(line["w1"], line["w2"], color=COLOURS[line["latent"].iloc[0]], linewidth=0.9)
        panel.set(xlim=(-0.15, 1.15), ylim=(-0.15, 1.15), aspect="equal", xticks=[0, 1], yticks=[0, 1])
        panel.set_xlabel("first factor", fontsize=8)
    axes[0].set_ylabel("second factor", fontsize=8)
    for panel, measure in zip(axes[3:], ("cosine", "MCC"), strict=True):
        for place, kind in enumerate(KINDS):
            own = table[table["kind"] == kind]
            for shift, column, colour, label in (
                (-0.12, measure, COLOURS[0], "own axes"),
                (0.12, f"{measure}, random axes", COLOURS[4], "random axes"),
            ):
                panel.plot(
                    own[column],
                    [place + shift] * len(own),
                    "o",
                    color=colour,
                    markersize=3.5,
                    alpha=0.6,
                    label=label if place == 0 else None,
                )
        panel.set_yticks(range(len(KINDS)), KINDS, fontsize=7)
        panel.set_ylim(len(KINDS) - 0.5, -0.5)
        panel.set_xlim(-0.03, 1.03)
    figure.legend(
        *axes[3].get_legend_handles_labels(), fontsize=7, frameon=False, loc="outside lower right", ncols=2
    )
    return figure


GAN = Artefact(
    key="allen2024.gan",
    title="GANs: is a plain generator column-orthogonal?",
    claim="“Disentanglement arises in several generative paradigms, including VAEs, GANs and diffusion models” "
    "(abstract); “a related phenomenon is observed in samples from a GAN, which, in common with a VAE, applies a "
    "deterministic neural network function to samples of independently distributed latent variables” (§1); a factor "
    "along left singular vectors “is identifiable from the SVD of J” (§3).",
    criterion="Plain GANs (non-saturating loss, R1 penalty) with the decoder of a VAE, on the stretched square, whose "
    "true generator is column-orthogonal. At least half of the seeds fit the data. Over those that do, the mean |cos| "
    "between the Jacobian's columns is lower, and the MCC of latents with factors higher, than in random axes of the "
    "same generator (95 % intervals off zero; a normal prior cannot tell these apart); the mean |cos| has gone at "
    "least half of the way from random axes to the VAE's; left singular vectors lie within 10° of the factors' "
    "directions on average. VAEs, the control, have the first two.",
    presets={
        "smoke": Settings(
            items=500, seeds=2, width=10, discriminator=16, steps=60, vae_steps=60, points=60, rotations=2
        ),
        "laptop": Settings(),
        "full": Settings(seeds=50, steps=20_000, batch_size=256, vae_steps=8000, points=2000),
    },
    measure=measure,
    judge=judge,
    draw=draw,
)
