"""Corollary 3.1 of allen2024: β < 1 against posterior collapse under a likelihood that models the data itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.data import ArrayWorld
from unseam.drawing import COLOURS, panels
from unseam.geometry import gaussian_kl
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Order, Orders
from unseam.papers.plots import Figure, Tables, band, curve, finish, logarithmic, reference
from unseam.papers.tables import columns_of, concatenate, table_of
from unseam.papers.trainings import combinations, train_or_resume, vae_trial
from unseam.theory import collapse_thresholds
from unseam.training import Ensemble

__all__ = ["COROLLARY31"]

LIKELIHOODS = {
    "gaussian": "Gaussian, variance fixed",
    "gaussian_pixel": "Gaussian, variance of each pixel learned",
    "bernoulli": "Bernoulli",
}
EXPRESSIVE = ("gaussian_pixel", "bernoulli")
ACTIVE = 0.01
"""Nats of KL from which a latent counts as active."""


@dataclass(frozen=True)
class Settings:
    """Pixels in groups that share a factor, and single pixels with a factor of their own.

    A likelihood with a variance, or a probability, for each pixel models single pixels without any latent: the
    paper's posterior collapse. It cannot model the groups.
    """

    groups: int = scaled(1, 2)
    group_size: int = scaled(3, 4)
    single: int = scaled(2, 6)
    loading: float = 1.5
    flip: float = 0.1
    items: int = scaled(500, 5000)
    betas: tuple[float, ...] = scaled(
        (0.3, 1.0, 1.5),
        (0.1, 0.3, 0.6, 0.9, 1.0, 1.1, 1.6, 2.5, 4.0),
        (0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.6, 2.5, 4.0),
    )
    seeds: int = scaled(2, 3, 20)
    width: int = scaled(8, 32)
    steps: int = scaled(120, 3000, 6000)
    batch_size: int = scaled(50, 100, 200)
    learning_rate: float = scaled(2e-2, 2e-3)
    points: int = scaled(100, 1000)


def measure(settings: Settings, place: Workplace) -> Tables:
    """Active latents of every model, and Var[x|z] over Var[x]."""
    widths, latent = (settings.width,), settings.groups + settings.single
    first = vae_trial("mixture", settings, widths, latent=latent, encoder_activation="tanh")
    shared = ["shared"] * settings.groups + ["single"] * settings.single

    def trained(likelihood: str) -> Tables:
        world = _groups(settings, likelihood)
        trials = combinations(first, likelihood=[likelihood], beta=settings.betas, seed=range(settings.seeds))
        active, left = _count_active(train_or_resume(trials, place, likelihood, world=world), world, settings)
        found = columns_of(trials, "beta", "seed") | {"active": active, "variance left": left}
        values = {"factor": shared, "threshold": _thresholds(settings, likelihood, world)}
        kind = {"likelihood": likelihood}
        return {"members": table_of(kind | found), "thresholds": table_of(kind | values)}

    return concatenate(trained(likelihood) for likelihood in LIKELIHOODS)


def _groups(settings: Settings, likelihood: str) -> ArrayWorld:
    """Pixels that are loading · s plus unit noise, s normal; or s itself, fair and binary, flipped now and then."""
    draw, count = torch.Generator().manual_seed(0), settings.groups + settings.single
    shared = torch.arange(settings.groups).repeat_interleave(settings.group_size)
    owners = torch.cat([shared, settings.groups + torch.arange(settings.single)])
    if likelihood == "bernoulli":
        factors = (torch.rand(settings.items, count, generator=draw) < 0.5).float()
        x = factors[:, owners]
        x = torch.where(torch.rand(x.shape, generator=draw) < settings.flip, 1 - x, x)
    else:
        factors = torch.randn(settings.items, count, generator=draw)
        x = settings.loading * factors[:, owners]
        x = x + torch.randn(x.shape, generator=draw)
    names = tuple(f"s{factor + 1}" for factor in range(count))
    options = {name: getattr(settings, name) for name in ("groups", "group_size", "single")}
    return ArrayWorld(
        x, factors, name="groups", factor_names=names, factor_sizes=(0,) * count, options=options
    )


def _count_active(ensemble: Ensemble, world: ArrayWorld, settings: Settings) -> tuple[Tensor, Tensor]:
    """Number of latents whose mean KL exceeds the threshold, and mean Var[x|z] / Var[x], for each member."""
    x = world.images(torch.arange(min(settings.points, len(world))))
    code = ensemble.encode(x)
    mean, variance = code.mean.double().cpu(), code.variance.double().cpu()
    kl = gaussian_kl(mean, variance).mean(1)
    output = ensemble.decode(code.mean).double().cpu()
    likelihood = ensemble[0].likelihood.double().cpu()
    left = likelihood.variance(output.flatten(0, 1)).unflatten(0, output.shape[:2])
    return (kl > ACTIVE).sum(-1), (left.mean(1) / x.double().var(0, correction=0)).mean(-1)


def _thresholds(settings: Settings, likelihood: str, world: ArrayWorld) -> Tensor:
    """β below which each latent is active by linear theory, largest first: factors of groups before single ones."""
    covariance = torch.cov(world.images(torch.arange(len(world))).double().mT, correction=0)
    # a likelihood with a parameter per pixel competes with latents for that pixel alone: eigenvalues of correlations
    weight = 1 / covariance.diagonal() if likelihood in EXPRESSIVE else 1.0
    return collapse_thresholds(covariance, weight=weight)[: settings.groups + settings.single]


def _counts(tables: Tables) -> Iterator[tuple[str, int, int, dict[float, Any]]]:
    """Name, latents, shared factors, and active latents per seed by β, of each expressive likelihood."""
    members, factors = tables["members"], tables["thresholds"].groupby("likelihood")["factor"]
    latents, shared = int(factors.size().max()), int(factors.apply(lambda own: (own == "shared").sum()).max())
    for likelihood in EXPRESSIVE:
        own = members[members["likelihood"] == likelihood]
        counts = {float(beta): own[own["beta"] == beta]["active"].to_numpy() for beta in own["beta"].unique()}
        yield LIKELIHOODS[likelihood], latents, shared, counts


def _collapse_cases(tables: Tables) -> Iterator[Bound]:
    wrong = {LIKELIHOODS["gaussian"]: _fixed(tables)}
    for name, latents, shared, counts in _counts(tables):
        said = f"fewer than {latents} ({shared} if collapse is complete)"
        words = f"{name}: active latents at β = 1, of {latents}"
        yield Bound(words, said, counts[1.0], most=latents - 0.5, wrong=wrong)


def _recovery_cases(tables: Tables) -> Iterator[Bound]:
    """The best β is chosen on every second seed and judged on the others."""
    for name, latents, _, counts in _counts(tables):
        below = {beta: active for beta, active in counts.items() if beta < 1}
        best = max(below, key=lambda beta: below[beta][::2].mean())
        words = f"{name}: active latents at the best β < 1 of the other half of the seeds, of {latents}"
        note, wrong = f"β = {best:g}", {"β = 1": counts[1.0]}
        yield Bound(words, f"{latents}", below[best][1::2], least=latents - 0.5, note=note, wrong=wrong)


def _gain_cases(tables: Tables) -> Iterator[Order]:
    for name, _, _, counts in _counts(tables):
        below = np.mean([active for beta, active in counts.items() if beta < 1], 0)
        words = f"{name}: active latents at β = 1 less those at β < 1, mean over those β"
        yield Order(words, counts[1.0], below, paired=True)


def _control_cases(tables: Tables) -> Iterator[Bound]:
    name, latents, _, counts = next(_counts(tables))
    words = f"{LIKELIHOODS['gaussian']}: fewest active latents at β ≤ 1, of {latents}"
    wrong = {name: counts[1.0]}
    yield Bound(words, f"{latents}", _fixed(tables), least=latents - 0.5, wrong=wrong)


def _fixed(tables: Tables) -> pd.Series[float]:
    """Fewest active latents per seed at β ≤ 1 under a Gaussian of fixed variance."""
    members = tables["members"]
    own = members[(members["likelihood"] == "gaussian") & (members["beta"] <= 1)]
    return own.groupby("seed")["active"].min()


def plot(tables: Tables) -> Figure:
    """Active latents against β for each likelihood; linear theory as a line."""
    members, thresholds = tables["members"], tables["thresholds"]
    grid = np.geomspace(members["beta"].min(), members["beta"].max(), 400)
    titles = [*LIKELIHOODS.values(), "Var[x|z] / Var[x], same colours"]
    figure, axes = panels(titles, rows=2, width=3.4, height=2.3)
    for panel, likelihood, colour in zip(axes, LIKELIHOODS, COLOURS, strict=False):
        known = thresholds[thresholds["likelihood"] == likelihood]["threshold"].to_numpy()
        own = members[members["likelihood"] == likelihood]
        panel.plot(grid, (known > grid[:, None]).sum(1), color="grey", linewidth=1, label="linear theory")
        band(panel, own, "beta", "active", colour, "trained")
        finish(panel, y="active latents", ylim=(-0.3, len(known) + 0.5))
        curve(axes[3], own, "beta", "variance left", colour)
    finish(axes[0], legend="lower left")
    axes[3].set_ylim(0, 1.1)
    ticks = [beta for beta in sorted(members["beta"].unique()) if beta in (0.1, 0.3, 0.4, 1.0, 1.5, 2.5, 4.0)]
    for panel in axes:
        logarithmic(panel.xaxis, ticks)
        reference(panel, x=1.0)
        finish(panel, "β")
    return figure


COROLLARY31 = Artefact(
    key="allen2024.corollary31",
    title="β < 1 against posterior collapse",
    claims=(
        Bounds(
            "Cor. 3.1: where the likelihood can model data by itself, here single pixels, latents collapse at β = 1",
            _collapse_cases,
        ),
        Bounds("Cor. 3.1: some β < 1 prevents the collapse", _recovery_cases),
        Orders("Cor. 3.1: β < 1 mitigates the collapse", _gain_cases),
        Bounds(
            "Control: under a Gaussian of fixed variance, which can model no pixel by itself, no latent collapses",
            _control_cases,
            ours=True,
        ),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="With a learned variance per pixel, β < 1 has no optimum: the objective gains ½(1 − β) for every nat by "
    "which log Var[x|z] falls, and training stops somewhere on the way. At β = 1 every split of a single pixel's "
    "variance between latent and likelihood is equally good.",
)
