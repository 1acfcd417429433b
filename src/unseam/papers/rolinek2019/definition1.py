"""Definition 1 of rolinek2019, the polarised regime: its three parts, checked latent by latent on trained VAEs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unseam import geometry
from unseam.data import MissingFileError, World, split
from unseam.data import place as place_world
from unseam.drawing import COLOURS, panels
from unseam.models import VAE
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace, not_here
from unseam.papers.rolinek2019._findings import checked, share
from unseam.papers.rolinek2019.setups import LINEAR, NAMES, NONLINEAR, SPRITES, Setup, smoke
from unseam.training import train

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Tables = Mapping[str, pd.DataFrame]

__all__ = ["DEFINITION1"]

SMALL, POINTS = 0.1, 0.95
"""a ≪ 1 reads a < 0.1 and a ≈ 1 reads |a − 1| < 0.1, each at 95 % of unseen items."""
NEARLY_ALL = 0.95
"""Share of latents for which a part must hold."""
IGNORED = 0.01
"""What is at most a hundredth counts as zero in (c)."""
NO_LOSS = 0.03
"""Share of the KL term that passive latents may have; Table 1's limit."""
CONTROL, EXPECTED = 0.06, 0.36
"""β of Synth. Lin. at which the optimal linear VAE has a latent with σ² = βσ²/λ₂ = 0.03 · 12: neither active nor
passive."""


@dataclass(frozen=True)
class Settings:
    """Trainings with more latents than the data need."""

    setups: tuple[Setup, ...]
    seed: int = 0
    """Of posterior samples."""


def measure(settings: Settings, where: Workplace) -> Tables:
    """Train every setup and look at all latents on unseen items."""
    import pandas as pd

    found: dict[str, list[pd.DataFrame]] = {"latents": [], "models": [], "trainings": []}
    missing = []
    for setup in settings.setups:
        try:
            world = place_world(setup.load(), where.device)
        except MissingFileError as error:
            missing.append({"world": NAMES[setup.world], "need": error.need})
            continue
        for name, table in _trained(setup, world, settings.seed, where).items():
            found[name].append(table)
    tables = {name: pd.concat(parts, ignore_index=True) for name, parts in found.items() if parts}
    return tables | ({"missing": pd.DataFrame(missing)} if missing else {})


def _trained(setup: Setup, world: World, seed: int, where: Workplace) -> dict[str, pd.DataFrame]:
    import pandas as pd

    label = _label(setup)
    trials = setup.trials("β-VAE", world)
    out = (
        None if where.folder is None else where.folder / f"{setup.world}{dict(setup.options).get('seed', '')}"
    )
    began = time.monotonic()
    ensemble = train(
        trials, world=world, device=where.device, out=out, resume=out is not None, progress=where.progress
    )
    seconds = round(time.monotonic() - began, 1)
    _, _, test = split(len(world), (0.8, 0.1, 0.1), seed=0)
    x = world.images(test[: setup.points].to(world.device))
    mean, variance = (part.double() for part in ensemble.encode(x))
    random = torch.Generator().manual_seed(seed)
    noise, fresh = (
        torch.randn(mean.shape[1:], generator=random, dtype=torch.float64).to(mean.device) for _ in range(2)
    )
    latents, models = [], []
    for member, trial in enumerate(trials):
        who = {"data": label, "beta": trial.beta, "seed": trial.seed}
        own, changed = _of_latents(ensemble[member].double(), mean[member], variance[member], noise, fresh)
        latents += [who | {"latent": latent} | row for latent, row in enumerate(own)]
        models.append(who | {"changed": changed})
    hardware = ensemble.about["hardware"]
    about = {
        "data": label,
        "members": len(trials),
        "steps": trials[0].steps,
        "seconds": seconds,
        "hardware": hardware.get("accelerator", hardware["processor"]),
        "torch": ensemble.about["versions"]["torch"],
    }
    return {
        "latents": pd.DataFrame(latents),
        "models": pd.DataFrame(models),
        "trainings": pd.DataFrame([about]),
    }


@torch.no_grad()
def _of_latents(
    model: VAE, mean: Tensor, variance: Tensor, noise: Tensor, fresh: Tensor
) -> tuple[list[dict[str, Any]], float]:
    """What Definition 1 asks of each latent, decoders at posterior samples; and the change of outputs by passive ones.

    The latter is the root mean square change of the likelihood's mean when all passive latents are drawn afresh from
    the prior, over its standard deviation over items.
    """
    z = mean + variance.sqrt() * noise
    metric = geometry.pullback(model.decode, z)
    found = geometry.polarisation(mean, variance, small=SMALL, share=POINTS, pullback=metric)
    active = geometry.delta_kl(mean, variance).active
    assert found.influence is not None
    columns = {
        "active": active,
        "kl": found.kl,
        "variance": variance.mean(0),
        "log_variance": variance.log().mean(0),
        "part_a": found.passive_share,
        "part_b": found.active_share,
        "column": found.influence,
    }
    before, after = (model.likelihood.mean(model.decode(code)) for code in (z, torch.where(active, z, fresh)))
    change = (after - before).square().mean().sqrt() / before.var(0).mean().sqrt()
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows], float(change)


def _label(setup: Setup) -> str:
    """The data set, with its map where there are several."""
    seed = dict(setup.options).get("seed")
    return NAMES[setup.world] + ("" if seed is None else f", map {seed}")


def judge(tables: Tables) -> Judgement:
    """All parts of the definition on each data set, and a β at which it must not hold."""
    found: list[Finding] = []
    if "latents" in tables:
        for label, own in tables["latents"].groupby("data", sort=False):
            judged = own["beta"] != CONTROL
            models = tables["models"][tables["models"]["data"] == label]
            found += _parts(str(label), own[judged], models[models["beta"] != CONTROL])
            if not judged.all():
                found.append(_control(str(label), own[~judged]))
    if "missing" in tables:
        found += [
            not_here(row["world"], MissingFileError("", row["need"]))
            for _, row in tables["missing"].iterrows()
        ]
    return Judgement(tuple(found))


def _parts(label: str, latents: pd.DataFrame, models: pd.DataFrame) -> list[Finding]:
    active, passive = latents[latents["active"]], latents[~latents["active"]]
    count = latents.groupby("seed")["active"].sum()
    found = [
        _holds(
            f"{label}, (a): passive latents with μ² ≪ 1 and σ² ≈ 1",
            (passive["part_a"] >= POINTS).tolist(),
            f"mean KL at most {passive['kl'].max():.2g} nats",
        ),
        _holds(
            f"{label}, (b): active latents with σ² ≪ 1",
            (active["part_b"] >= POINTS).tolist(),
            f"{count.min()} to {count.max()} active latents per model, mean σ² at most "
            f"{active['variance'].max():.2g}",
        ),
        _holds(
            f"{label}, (c): passive latents whose column of the Jacobian is at most 1 % of the largest",
            (passive["column"] <= IGNORED).tolist(),
            f"largest {100 * passive['column'].max():.2g} %",
        ),
    ]
    if not len(active) or not len(passive):
        return found
    total = latents.groupby("seed")["kl"].sum()
    ratio = float((active["variance"] / -active["log_variance"]).max())
    least = {
        "(c): change of outputs when passive latents are redrawn, largest over models": (
            "0: ignored",
            float(models["changed"].max()),
            IGNORED,
            "root mean square, over the outputs' standard deviation",
        ),
        "Eq. 10: share of the KL term that passive latents have, largest over models": (
            "0",
            float((passive.groupby("seed")["kl"].sum() / total).max()),
            NO_LOSS,
            "",
        ),
        "Eq. 10: mean σ² over mean −log σ², largest of active latents": ("≪ 1", ratio, SMALL, ""),
    }
    return found + [
        checked(f"{label}, {words}", published, value, value <= limit, note)
        for words, (published, value, limit, note) in least.items()
    ]


def _holds(quantity: str, each: Sequence[bool], note: str) -> Finding:
    if not each:
        return Finding(quantity, "all", None, None, None, "not reproduced", "there are none")
    return share(quantity, "all", sum(each), len(each), sum(each) >= NEARLY_ALL * len(each), note)


def _control(label: str, latents: pd.DataFrame) -> Finding:
    """Models of which every latent is active or passive in the sense of (a) and (b)."""
    either = (latents["part_a"] >= POINTS) | (latents["part_b"] >= POINTS)
    whole = either.groupby(latents["seed"]).all()
    between = float(latents[~either]["variance"].mean())
    return share(
        f"{label}, control, β = {CONTROL:g}: models in which every latent is active or passive",
        f"none: σ² = {EXPECTED:g} of the second latent",
        int(whole.sum()),
        len(whole),
        not whole.any() and abs(between / EXPECTED - 1) <= SMALL,
        f"mean σ² of those that are neither: {between:.3g}",
    )


def draw(tables: Tables) -> Figure:
    """Mean σ² against the relative size of the decoder's column: one dot per latent, one panel per data set."""
    if "latents" not in tables:
        return panels(["the data set is not installed"], width=3.6, height=1.0)[0]
    groups = list(tables["latents"].groupby(["data", "beta"], sort=False))
    titles = [f"{data}, β = {beta:g}" for (data, beta), _ in groups]
    figure, axes = panels(titles, width=3.0, height=2.6)
    for panel, (_, own) in zip(axes, groups, strict=True):
        for active, colour, words in ((True, COLOURS[0], "active"), (False, COLOURS[1], "passive")):
            part = own[own["active"] == active]
            panel.loglog(
                part["variance"], part["column"], "o", color=colour, markersize=3, alpha=0.6, label=words
            )
        panel.axhline(IGNORED, color="0.6", linewidth=0.8, linestyle=":")
        for limit in (SMALL, 1 - SMALL):
            panel.axvline(limit, color="0.6", linewidth=0.8, linestyle=":")
        panel.set_xlabel("mean σ²", fontsize=8)
        panel.set(
            xlim=(tables["latents"]["variance"].min() / 2, 2), ylim=(tables["latents"]["column"].min() / 2, 2)
        )
    axes[0].set_ylabel("column of the Jacobian over the largest", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False, loc="lower left")
    return figure


def _ten(setup: Setup, **changes: Any) -> Setup:
    """The setup with ten latents."""
    return dataclasses.replace(setup, latent=10, columns=("β-VAE",), points=500, **changes)


LINEAR_TEN = _ten(LINEAR, betas=(3e-4, CONTROL), batch_size=200, epochs=200)
NONLINEAR_TEN = tuple(
    _ten(NONLINEAR, options=(("seed", seed),), betas=(1e-3,), batch_size=200, epochs=100) for seed in (0, 1)
)
CLAIM = (
    "VAEs train into a polarised regime: latents are active or passive, where (a) passive ones have μ² ≪ 1 and "
    "σ² ≈ 1, (b) active ones have σ² ≪ 1, and (c) the decoder ignores passive ones, ∂Dec(z)/∂z_j = 0. Then passive "
    "latents have no KL loss, and σ² ≪ −log σ² for active ones."
)
CRITERION = (
    "Latents are parted as for Table 1, by the least error of Eq. 10. With a ≪ 1 for a < 0.1 and a ≈ 1 for "
    "|a − 1| < 0.1, each at 95 % of unseen items, (a) holds of at least 95 % of the passive and (b) of the active "
    "latents of all runs. (c): the column of at least 95 % of the passive latents, root mean square over posterior "
    "samples, is at most 1 % of its model's largest; and outputs of no model change by more than 1 % of their standard "
    "deviation when all passive latents are drawn afresh from the prior. Passive latents have at most 3 % of the KL "
    "term of every model, and mean σ² is below a tenth of mean −log σ² for every active latent."
)


def _artefact(name: str, title: str, presets: dict[Any, Settings], also: str = "") -> Artefact:
    return Artefact(
        key=f"rolinek2019.{name}",
        title=f"Definition 1, {title}: the polarised regime, latent by latent",
        claim=CLAIM,
        criterion=CRITERION + also,
        presets=presets,
        measure=measure,
        judge=judge,
        draw=draw,
    )


DEFINITION1 = (
    _artefact(
        "definition1",
        "synthetic data",
        {
            "smoke": Settings(tuple(smoke(setup, points=40) for setup in (LINEAR_TEN, NONLINEAR_TEN[0]))),
            "laptop": Settings(
                (
                    dataclasses.replace(LINEAR_TEN, epochs=100, seeds=5),
                    *(dataclasses.replace(setup, epochs=50, seeds=3) for setup in NONLINEAR_TEN),
                )
            ),
            "full": Settings((LINEAR_TEN, *NONLINEAR_TEN)),
        },
        " As a control, no linear VAE at β = 0.06 is polarised: the closed form puts σ² of its second latent at 0.36, "
        "and the latents that are neither have that within a tenth.",
    ),
    _artefact(
        "definition1_sprites",
        NAMES["sprites"],
        {"smoke": Settings((smoke(_ten(SPRITES)),)), "full": Settings((_ten(SPRITES),))},
    ),
)
