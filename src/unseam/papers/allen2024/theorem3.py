"""Theorem 3 of allen2024: a β-VAE with likelihood variance σ² is a VAE with βσ²."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from unseam.data import World, load
from unseam.drawing import COLOURS, panels
from unseam.geometry import gaussian_kl
from unseam.papers.allen2024._members import (
    align_columns,
    decoder_matrices,
    exact_sample,
    relative_distance,
    sprite_trial,
)
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds
from unseam.papers.draws import orthonormal
from unseam.papers.plots import Figure, Tables, categories, finish, legend_below, logarithmic
from unseam.papers.tables import table_of
from unseam.papers.trainings import train_or_resume, vae_trial
from unseam.theory import linear_vae
from unseam.training import Ensemble
from unseam.trial import Trial

__all__ = ["THEOREM3"]

ROLES = ("β-VAE at σ²", "VAE at βσ²", "VAE at βσ², other seeds", "VAE at σ²")
"""A model, its equivalent from the same seeds and from others, and the control that is neither."""
OTHERS = tuple(enumerate(ROLES))[1:]
ENOUGH = 10
"""Seeds from which distances between seeds, and their mean objectives, are compared."""
SAME = 1e-3
"""Relative distance within which reconstructions count as the same."""
# Adam divides a gradient by its size, which makes it blind to the factor β but for this constant.
EPSILON = 1e-20


@dataclass(frozen=True)
class Settings:
    """Pairs of trainings that should be one, in double precision."""

    data: int = scaled(4, 8)
    scales: tuple[float, ...] = scaled((4.0, 2.5), (8.0, 4.0, 2.0))
    items: int = scaled(500, 5000)
    beta: float = 3.0
    linear_steps: int = scaled(50, 8000, 12_000)
    resolution: int = scaled(8, 12, 24)
    positions: int = scaled(6, 16)
    scale_values: int = scaled(3, 6)
    width: int = scaled(12, 48, 128)
    latent: int = scaled(2, 4, 5)
    variance: float = 0.05
    draws: int = 4
    steps: int = scaled(30, 1500, 6000)
    seeds: int = scaled(2, 3, 20)
    batch_size: int = scaled(30, 64, 128)
    points: int = scaled(30, 200)
    samples: int = scaled(2, 16)


class Form(NamedTuple):
    """One likelihood and decoder for which the theorem is tested."""

    name: str
    world: World
    roles: tuple[Trial, Trial, Trial]
    beta: float


def measure(settings: Settings, place: Workplace) -> Tables:
    """How far apart pairs of models are that start from the same seed, and from different ones."""
    rows = []
    for number, form in enumerate((*_linear(settings), *_sprites(settings))):
        first, second, control = form.roles
        trials = [
            dataclasses.replace(trial, seed=seed + shift)
            for trial, shift in ((first, 0), (second, 0), (second, settings.seeds), (control, 0))
            for seed in range(settings.seeds)
        ]
        ensemble = train_or_resume(trials, place, f"form{number}", world=form.world)
        rows.append(_compare(form, ensemble, settings))
        if number == 0:
            # distance of linear decoders from U(S − βσ²I)^½ after the best signed permutation
            weights, _ = decoder_matrices(ensemble)
            latent, noise = len(settings.scales), {"noise": 1.0, "beta": form.beta}
            target = linear_vae(_covariance(settings), latent, **noise).weights
            distance = relative_distance(align_columns(weights, target), target)
            roles = [role for role in ROLES for _ in range(settings.seeds)]
            seeds = list(range(settings.seeds)) * len(ROLES)
            optimum = table_of({"role": roles, "seed": seeds, "distance": distance})
    return {"pairs": pd.concat(rows, ignore_index=True), "optimum": optimum}


def _linear(settings: Settings) -> list[Form]:
    """Linear VAEs, by Adam, and by SGD with the learning rate adjusted by β."""
    world = exact_sample(_covariance(settings), settings.items, torch.Generator().manual_seed(1))
    trained: dict[str, Any] = {"steps": settings.linear_steps, "learning_rate": 8e-3, "epsilon": EPSILON}
    base = vae_trial("mixture", settings, latent=len(settings.scales), precision="float64", **trained)
    plain = dataclasses.replace(base, optimiser="sgd", momentum=0.9, epsilon=None, learning_rate=1e-3)
    roles = _gaussian_roles(plain, settings.beta, 1.0)
    # its gradient is β times the other's
    adjusted = dataclasses.replace(roles[0], learning_rate=plain.learning_rate / settings.beta)
    return [
        Form("linear, Gaussian", world, _gaussian_roles(base, settings.beta, 1.0), settings.beta),
        Form("linear, Gaussian, SGD", world, (adjusted, *roles[1:]), settings.beta),
    ]


def _covariance(settings: Settings) -> Tensor:
    axes = orthonormal(settings.data, len(settings.scales), generator=torch.Generator().manual_seed(0))
    scales = torch.tensor(settings.scales, dtype=torch.float64)
    return (axes * scales.square()) @ axes.mT + torch.eye(settings.data, dtype=torch.float64)


def _sprites(settings: Settings) -> list[Form]:
    """Networks on pictures; for Bernoulli pixels β = 1/κ stands for κ draws of each."""
    base = sprite_trial(settings, "steps", "batch_size", scales=settings.scale_values, precision="float64")
    base = dataclasses.replace(base, learning_rate=1e-3, epsilon=EPSILON)
    share, draws = 1 / settings.draws, settings.draws
    binomial = dataclasses.replace(base, likelihood="binomial", likelihood_draws=draws)
    roles = (dataclasses.replace(base, beta=share), binomial, base)
    gaussian = dataclasses.replace(base, likelihood="gaussian")
    gaussian_roles = _gaussian_roles(gaussian, settings.beta, settings.variance)
    world = load(base.world, **dict(base.world_options))  # type: ignore[arg-type]
    return [
        Form("network, Gaussian", world, gaussian_roles, settings.beta),
        Form(f"network, Bernoulli, κ = {draws}", world, roles, share),
    ]


def _gaussian_roles(base: Trial, beta: float, variance: float) -> tuple[Trial, Trial, Trial]:
    return (
        dataclasses.replace(base, beta=beta, likelihood_variance=variance),
        dataclasses.replace(base, beta=1.0, likelihood_variance=beta * variance),
        dataclasses.replace(base, beta=1.0, likelihood_variance=variance),
    )


def _compare(form: Form, ensemble: Ensemble, settings: Settings) -> pd.DataFrame:
    """Distances of reconstructions, which no reparametrisation of the latents changes, and the common objective."""
    draw = torch.Generator().manual_seed(2)
    x = form.world.images(torch.randperm(len(form.world), generator=draw)[: settings.points])
    noise = torch.randn(settings.samples, len(x), ensemble.trials[0].latent, generator=draw)
    back = ensemble.reconstruct(x).double().flatten(2).cpu()
    groups, objective = (
        part.unflatten(0, (len(ROLES), settings.seeds))
        for part in (back, _objective(form, ensemble, x, noise))
    )
    size = (groups[0] - groups[0].mean(1, keepdim=True)).norm(dim=(-2, -1)).mean()
    distances = [torch.cdist(groups[0].flatten(1), other.flatten(1)) / size for other in groups]
    return table_of(
        {
            "form": form.name,
            "beta": form.beta,
            "seed": range(settings.seeds),
            "same seed": distances[1].diagonal(),
            "other seeds": distances[2].mean(1),
            "other seeds of the β-VAE": _mean_of_others(distances[0]),
            "control, same seed": distances[3].diagonal(),
            "objective of the β-VAE": objective[0],
            **{f"objective less that, {role}": objective[i] - objective[0] for i, role in OTHERS},
        }
    )


def _mean_of_others(distance: Tensor) -> Tensor:
    """Mean of each row off the diagonal; undefined, so NaN, of one seed alone."""
    others = ~torch.eye(len(distance), dtype=torch.bool)
    return torch.where(others, distance, 0.0).sum(1) / others.sum(1)


def _objective(form: Form, ensemble: Ensemble, x: Tensor, noise: Tensor) -> Tensor:
    """Negative ELBO of the VAE at βσ² (member,), without constants, for all members under the same noise."""
    code = ensemble.encode(x)
    mean, variance = code.mean, code.variance
    total = torch.zeros(len(ensemble), dtype=torch.float64)
    for draw in noise.to(mean):
        output = ensemble.decode(mean + variance.sqrt() * draw).double().cpu()
        if form.roles[0].likelihood == "gaussian":
            scale = form.beta * form.roles[0].likelihood_variance
            lost = (x.double() - output).square() / (2 * scale)
        else:
            lost = (functional.softplus(output) - x.double() * output) / form.beta
        total += lost.flatten(2).sum(-1).mean(1) / len(noise)
    kl = gaussian_kl(mean, variance).sum(-1).mean(1)
    return total + kl.double().cpu()


def _optimum_cases(tables: Tables) -> Iterator[Bound]:
    runs = tables["optimum"].groupby("role")["distance"]
    wrong = {ROLES[3]: runs.get_group(ROLES[3])}
    for role in ROLES[:3]:
        words = f"linear, {role}: distance from U(S − βσ²I)^½"
        yield Bound(words, "0, within 0.05", runs.get_group(role), most=0.05, wrong=wrong)


def _control_cases(tables: Tables) -> Iterator[Bound]:
    runs = tables["optimum"].groupby("role")["distance"]
    own, wrong = runs.get_group(ROLES[3]), {role: runs.get_group(role) for role in ROLES[:3]}
    words = f"linear, {ROLES[3]}: distance from U(S − βσ²I)^½"
    yield Bound(words, "above 0.05", own, least=0.05, wrong=wrong)
    for name, part in _forms(tables):
        words, wrong = f"{name}: distance from a VAE at σ², same seed", {"a VAE at βσ²": part["same seed"]}
        yield Bound(words, f"above {SAME:g}", part["control, same seed"], least=SAME, wrong=wrong)


def _same_seed_cases(tables: Tables) -> Iterator[Bound]:
    for name, part in _forms(tables):
        note = f"{int((part['same seed'] <= SAME).sum())} of {len(part)} seeds within {SAME:g}"
        words = f"{name}: distance of reconstructions from the same seed, median"
        wrong = {"a VAE at σ²": part["control, same seed"]}
        yield Bound(words, f"0, within {SAME:g}", part["same seed"], most=SAME, note=note, wrong=wrong)


def _other_seed_cases(tables: Tables) -> Iterator[Bound]:
    for name, part in _forms(tables, ENOUGH):
        ratio = part["other seeds"] / part["other seeds of the β-VAE"]
        words = f"{name}: distance from the VAE's other seeds, over that between seeds of one model"
        wrong = {"a VAE at σ², same seed": part["control, same seed"] / part["other seeds of the β-VAE"]}
        yield Bound(words, "1, within 0.1", ratio, 0.9, 1.1, wrong=wrong)


def _objective_cases(tables: Tables) -> Iterator[Bound]:
    for name, part in _forms(tables, ENOUGH):
        second, third = (part[f"objective less that, {role}"] for role in ROLES[2:])
        words = f"{name}: objective less the VAE's from other seeds, of the difference to a VAE at σ²"
        own, wrong = (role / abs(third.mean()) for role in (second, third))
        yield Bound(words, "0, within 0.1", own, -0.1, 0.1, wrong={"a VAE at σ²": wrong})


def _forms(tables: Tables, seeds: int = 0) -> Iterator[tuple[str, pd.DataFrame]]:
    for name, part in tables["pairs"].groupby("form", sort=False):
        if len(part) >= seeds:
            yield str(name), part


def plot(tables: Tables) -> Figure:
    """Distances of reconstructions for each form, and of linear decoders from the closed form."""
    titles = ["distance of reconstructions from the β-VAE's", "linear: distance from U(S − βσ²I)^½"]
    figure, axes = panels(titles, width=4.2, height=2.8)
    shown = {
        "same seed": "VAE at βσ², same seed",
        "other seeds": "VAE at βσ², other seeds",
        "other seeds of the β-VAE": "β-VAE, other seeds",
        "control, same seed": "VAE at σ², same seed",
    }
    rows = {name: [own[column].clip(lower=1e-16) for column in shown] for name, own in _forms(tables)}
    categories(axes[0], rows, list(shown.values()), [COLOURS[place] for place in (0, 2, 4, 1)])
    legend_below(figure, axes[:1], 4, "lower left")
    linear = tables["optimum"]
    categories(axes[1], {str(role): [own] for role, own in linear.groupby("role", sort=False)["distance"]})
    for panel in axes:
        logarithmic(panel.xaxis)
        finish(panel, "relative distance")
    axes[1].set_xlim(min(1e-3, float(linear["distance"].min()) / 2), 2.0)
    return figure


THEOREM3 = Artefact(
    key="allen2024.theorem3",
    title="A β-VAE at σ² and a VAE at βσ² are the same",
    claims=(
        Bounds(
            "Theorem 3: a β-VAE at σ² and a VAE at βσ² have the same optimum, U(S − βσ²I)^½ if linear",
            _optimum_cases,
        ),
        Bounds(
            "Theorem 3: trained from one seed, both end at the same reconstructions (Bernoulli: β = 1/κ is κ draws)",
            _same_seed_cases,
            statistic="median",
        ),
        Bounds(
            "Theorem 3: from other seeds they are as far apart as two trainings of one model",
            _other_seed_cases,
        ),
        Bounds("Theorem 3: from other seeds they reach the same objective", _objective_cases),
        Bounds("Control: a VAE at σ² is another model", _control_cases, ours=True),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
)
