"""Definition 1 of rolinek2019, the polarised regime: its three parts, checked latent by latent on trained VAEs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from unseam import geometry
from unseam.data import World
from unseam.data import place as place_world
from unseam.drawing import COLOURS, panels
from unseam.models import VAE
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Bound, Bounds
from unseam.papers.draws import Seeded, normal
from unseam.papers.plots import Figure, Tables, dots, finish, reference, where_measured
from unseam.papers.rolinek2019.runs import Trainings
from unseam.papers.rolinek2019.setups import LINEAR, NAMES, NONLINEAR, SPRITES, Setup, smoke
from unseam.papers.tables import table_of
from unseam.papers.trainings import follow, measure_present
from unseam.training import Ensemble, split_items

__all__ = ["DEFINITION1"]

ALL = 0.9
"""Share of latents from which on a part of the definition holds of all."""
SMALL, POINTS = 0.1, 0.95
"""a ≪ 1 reads a < 0.1 and a ≈ 1 reads |a − 1| < 0.1, each at 95 % of unseen items."""
IGNORED = 0.01
"""What is at most a hundredth counts as zero in (c)."""
NO_LOSS = 0.03
"""Share of the KL term that passive latents may have; Table 1's limit."""
CONTROL, EXPECTED = 0.06, 0.36
"""β of Synth. Lin. at which the optimal linear VAE has a latent with σ² = βσ²/λ₂ = 0.03 · 12: neither active nor
passive."""


@dataclass(frozen=True)
class Settings(Trainings, Seeded):
    """Trainings with more latents than the data need."""

    """Of posterior samples."""


def measure(settings: Settings, where: Workplace) -> Tables:
    """Train every setup and look at all latents on unseen items."""

    def trained(setup: Setup) -> Tables:
        world = place_world(setup.load(), where.device)
        return follow(
            setup.trials("β-VAE"),
            where,
            world=world,
            measured={"definition": 1, "points": setup.points, "seed": settings.seed},
            finish=partial(_latents, world=world, setup=setup, seed=settings.seed),
        )

    return measure_present((NAMES[setup.base.world], partial(trained, setup)) for setup in settings.setups)


def _latents(ensemble: Ensemble, *, world: World, setup: Setup, seed: int) -> Tables:
    """What Definition 1 asks of every latent of every model, on test items."""
    test = split_items(ensemble.trials[0], len(world)).test
    x = world.images(test[: setup.points].to(world.device))
    mean, variance = (part.double() for part in ensemble.encode(x))
    random = torch.Generator().manual_seed(seed)
    noise, fresh = (normal(*mean.shape[1:], generator=random).to(mean.device) for _ in range(2))
    # the data set, with its map where there are several
    chosen = dict(setup.base.world_options).get("seed")
    label = NAMES[setup.base.world] + ("" if chosen is None else f", map {chosen}")
    latents, models = [], []
    for member, trial in enumerate(ensemble.trials):
        who = {"data": label, "beta": trial.beta, "seed": trial.seed}
        own, changed = _of_latents(ensemble[member].double(), mean[member], variance[member], noise, fresh)
        latents.append(table_of(who | {"latent": range(mean.shape[-1])} | own))
        models.append(who | {"changed": changed})
    return {"latents": pd.concat(latents, ignore_index=True), "models": pd.DataFrame(models)}


@torch.no_grad()
def _of_latents(
    model: VAE, mean: Tensor, variance: Tensor, noise: Tensor, fresh: Tensor
) -> tuple[dict[str, Tensor], float]:
    """What Definition 1 asks of each latent, decoders at posterior samples; and the change of outputs by passive ones.

    The latter is the root mean square change of the likelihood's mean when all passive latents are drawn afresh from
    the prior, over its standard deviation over items.
    """
    z = mean + variance.sqrt() * noise
    metric = geometry.pullback(model.decode, z)
    found = geometry.polarisation(mean, variance, small=SMALL, share=POINTS, pullback=metric)
    active = geometry.delta_kl(mean, variance).active
    assert found.influence is not None
    before, after = (model.likelihood.mean(model.decode(code)) for code in (z, torch.where(active, z, fresh)))
    change = (after - before).square().mean().sqrt() / before.var(0).mean().sqrt()
    return {
        "active": active,
        "kl": found.kl,
        "variance": variance.mean(0),
        "log_variance": variance.log().mean(0),
        "part_a": found.passive_share,
        "part_b": found.active_share,
        "column": found.influence,
    }, float(change)


def _worlds(tables: Tables, *, control: bool = False) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Data set, its latents and its models, at the judged β or at that of the control."""
    for label, own in tables["latents"].groupby("data", sort=False):
        models = tables["models"][tables["models"]["data"] == label]
        chosen, held = ((part["beta"] == CONTROL) == control for part in (own, models))
        if chosen.any():
            yield str(label), own[chosen], models[held]


def _share_cases(tables: Tables, part: str) -> Iterator[Bound]:
    """Share of passive or active latents of which a part of the definition holds; the others are wrong ones."""
    kinds = ("active", "passive") if part == "(b)" else ("passive", "active")
    for label, latents, _ in _worlds(tables):
        chosen = latents["active"] == (part == "(b)")
        holds = latents["column"] <= IGNORED
        if part != "(c)":
            holds = latents["part_a" if part == "(a)" else "part_b"] >= POINTS
        own, others = holds[chosen], holds[~chosen]
        words = f"{label}: share of {kinds[0]} latents, {PARTS[part]}"
        wrong = {f"{kinds[1]} latents": others} if len(others) else {}
        if len(own):
            share, said = (int(own.sum()), len(own)), f"all: at least {100 * ALL:g} %"
            yield Bound(words, said, share=share, least=ALL, wrong=wrong)


def _ignored_cases(tables: Tables) -> Iterator[Bound]:
    for label, _, models in _worlds(tables):
        words = f"{label}: change of outputs when passive latents are redrawn, over the outputs' SD"
        yield Bound(words, f"0: at most {100 * IGNORED:g} %", models["changed"], most=IGNORED)


def _loss_cases(tables: Tables) -> Iterator[Bound]:
    control = {label: _losses(latents) for label, latents, _ in _worlds(tables, control=True)}
    for label, latents, _ in _worlds(tables):
        quantities = {
            "passive latents' share of the KL term": (f"0: at most {100 * NO_LOSS:g} %", NO_LOSS),
            "largest mean σ² over mean −log σ² of active latents": (f"≪ 1: at most {SMALL:g}", SMALL),
        }
        each = zip(quantities.items(), _losses(latents), control.get(label, (None, None)), strict=True)
        for (words, (said, most)), own, other in each:
            wrong = {} if other is None else {f"β = {CONTROL:g}": other}
            yield Bound(f"{label}: {words}", said, own, most=most, wrong=wrong)


def _losses(latents: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float]]:
    """Per model: passive latents' share of the KL term, and the largest σ² over −log σ² of active ones."""
    passive, active = latents[~latents["active"]], latents[latents["active"]]
    ratio = (passive.groupby("seed")["kl"].sum() / latents.groupby("seed")["kl"].sum()).dropna()
    return ratio, (active["variance"] / -active["log_variance"]).groupby(active["seed"]).max()


def _control_cases(tables: Tables) -> Iterator[Bound]:
    """Models of which every latent is active or passive in the sense of (a) and (b)."""
    polarised = {
        label: _either(latents).groupby(latents["seed"]).all() for label, latents, _ in _worlds(tables)
    }
    for label, latents, _ in _worlds(tables, control=True):
        either = _either(latents)
        whole = either.groupby(latents["seed"]).all()
        wrong = {"the judged β": polarised[label]} if label in polarised else {}
        words = f"{label}, β = {CONTROL:g}: share of models in which every latent is active or passive"
        note = f"mean σ² of the others {float(latents[~either]['variance'].mean()):.3g}, closed form {EXPECTED:g}"
        share = (int(whole.sum()), len(whole))
        yield Bound(words, "less than half", share=share, most=0.5, note=note, wrong=wrong)


def _either(latents: pd.DataFrame) -> pd.Series[bool]:
    return (latents["part_a"] >= POINTS) | (latents["part_b"] >= POINTS)


@where_measured
def plot(tables: Tables) -> Figure:
    """Mean σ² against the relative size of the decoder's column: one dot per latent, one panel per data set."""
    latents = tables["latents"]
    groups = list(latents.groupby(["data", "beta"], sort=False))
    figure, axes = panels([f"{data}, β = {beta:g}" for (data, beta), _ in groups], width=3.0, height=2.6)
    left, bottom = (latents[name].min() / 2 for name in ("variance", "column"))
    for panel, (_, own) in zip(axes, groups, strict=True):
        for active, colour, words in ((True, COLOURS[0], "active"), (False, COLOURS[1], "passive")):
            part = own[own["active"] == active]
            dots(panel, part["variance"], part["column"], colour, words)
        reference(panel, x=(SMALL, 1 - SMALL), y=IGNORED, linestyle=":")
        finish(panel, "mean σ²", xscale="log", yscale="log", xlim=(left, 2), ylim=(bottom, 2))
    finish(axes[0], y="column of the Jacobian over the largest", legend="lower left")
    return figure


def _ten(setup: Setup, **changes: Any) -> Setup:
    """The setup with ten latents."""
    return setup.replace(latent=10, columns=("β-VAE",), points=500, **changes)


LINEAR_TEN = _ten(LINEAR, betas=(3e-4, CONTROL), batch_size=200, steps=40_000)
NONLINEAR_TEN = tuple(
    _ten(NONLINEAR, world_options=(("seed", seed),), betas=(1e-3,), batch_size=200, steps=20_000)
    for seed in (0, 1)
)
PARTS = {
    "(a)": "μ² ≪ 1 and σ² ≈ 1",
    "(b)": "σ² ≪ 1",
    "(c)": "column of the Jacobian at most 1 % of the largest",
}


def _artefact(name: str, title: str, presets: dict[Any, Settings]) -> Artefact:
    return Artefact(
        key=f"rolinek2019.{name}",
        title=f"Definition 1, {title}: the polarised regime, latent by latent",
        claims=(
            Bounds(
                "Definition 1 (a): passive latents have μ² ≪ 1 and σ² ≈ 1", partial(_share_cases, part="(a)")
            ),
            Bounds("Definition 1 (b): active latents have σ² ≪ 1", partial(_share_cases, part="(b)")),
            Bounds(
                "Definition 1 (c): the decoder ignores passive latents, ∂Dec(z)/∂z_j = 0",
                partial(_share_cases, part="(c)"),
            ),
            Bounds("Definition 1 (c): so redrawing them changes no output", _ignored_cases),
            Bounds("Eq. 10: passive latents have no KL loss, and σ² ≪ −log σ² for active ones", _loss_cases),
            Bounds(
                "Control: at a β between the thresholds of two latents, models are not polarised",
                _control_cases,
                ours=True,
            ),
        ),
        presets=presets,
        measure=measure,
        plot=plot,
        note="Latents are split into active and passive by the least error of Eq. 10, as for Table 1. a ≪ 1 reads "
        "a < 0.1 and a ≈ 1 reads |a − 1| < 0.1, each at 95 % of unseen items.",
    )


DEFINITION1 = (
    _artefact(
        "definition1",
        "synthetic data",
        {
            "smoke": Settings(tuple(smoke(setup, points=40) for setup in (LINEAR_TEN, NONLINEAR_TEN[0]))),
            "laptop": Settings(
                (
                    LINEAR_TEN.replace(steps=20_000, seeds=5),
                    *(setup.replace(steps=10_000, seeds=3) for setup in NONLINEAR_TEN),
                )
            ),
            "full": Settings((LINEAR_TEN, *NONLINEAR_TEN)),
        },
    ),
    _artefact(
        "definition1_sprites",
        NAMES["sprites"],
        {"smoke": Settings((smoke(_ten(SPRITES)),)), "full": Settings((_ten(SPRITES),))},
    ),
)
