"""Propositions 1 to 4 of rolinek2019, each with its condition kept and with its condition broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unseam.papers.allen2024._members import finding
from unseam.papers.artefact import Artefact, Finding, Outcome, Workplace
from unseam.papers.rolinek2019._axes import (
    ORTHOGONAL,
    PERMUTED,
    REPEATED,
    TURNED,
    axis_checks,
    lengths_and_distance,
)
from unseam.papers.rolinek2019._bias import bias_shares, linear_splits
from unseam.papers.rolinek2019._findings import checked
from unseam.papers.rolinek2019._models import draw_curved
from unseam.papers.rolinek2019._pictures import draw_propositions
from unseam.papers.rolinek2019._rotations import best_at_angles, curved_turns, linear_turns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PROPOSITIONS"]

# Rounding of terms of a few tens of nats; error of quadrature; and a size that neither reaches.
ROUNDING, QUADRATURE, CLEAR = 1e-9, 1e-6, 1e-3
MISSES = (1.0, 0.1, 0.01)


@dataclass(frozen=True)
class Settings:
    """How many random cases each proposition is checked on."""

    latents: tuple[int, ...] = (2, 3, 4, 5, 6)
    matrices: int = 1000
    """Matrices of each kind and size (Prop. 1), and linear decoders (Prop. 4)."""
    models: int = 300
    """Linear models of each size, each at one rotation (Props. 2 and 3)."""
    curved: int = 40
    """Decoders that are not linear, by quadrature (Props. 2 and 3)."""
    shown: int = 8
    """Of them, those whose best posteriors are sought at every angle."""
    angles: int = 19
    iterations: int = 40
    decoders: int = 60
    """Decoders that are not linear (Prop. 4)."""
    noise: float = 0.25
    """Variance of the likelihood."""
    seed: int = 0


def measure(settings: Settings, place: Workplace) -> Outcome:
    """Every proposition on random cases of its own."""
    import pandas as pd

    random, device = torch.Generator().manual_seed(settings.seed), place.device
    axes = pd.concat([axis_checks(latent, settings.matrices, random) for latent in settings.latents])
    linear = pd.concat(
        [
            linear_turns(latent, settings.models, settings.noise, generator=random, device=device)
            for latent in settings.latents
        ]
    )
    model = draw_curved(settings.curved, width=16, data=5, noise=settings.noise, generator=random).to(device)
    curved = curved_turns(model, generator=random)
    angles = best_at_angles(model.first_few(settings.shown), settings.angles, iterations=settings.iterations)
    splits = linear_splits(settings.matrices, random, device)
    spreads = tuple(10 ** (power / 4) for power in range(-12, 1))
    biases = bias_shares(settings.decoders, spreads, MISSES, generator=random, device=device)
    tables = {
        "axes": _extremes(axes),
        "lengths": lengths_and_distance((0.1, 0.01, 0.001), 41, random),
        "angles": angles,
        "biases": _quartiles(biases),
    }
    found = [
        *_about_axes(axes),
        *_about_turns(linear, curved, angles),
        *_about_biases(splits, biases),
    ]
    return Outcome(tuple(found), tables)


def _extremes(axes: pd.DataFrame) -> pd.DataFrame:
    """Cosines and distances of each kind and size of matrix, from least to largest."""
    import pandas as pd

    each = axes.groupby(["kind", "latent"])
    found = {"least": each.min(), "mean": each.mean(), "largest": each.max()}
    parts = [part[["cosine", "dto"]].add_prefix(f"{name} ") for name, part in found.items()]
    return pd.concat(parts, axis=1).reset_index()


def _quartiles(biases: pd.DataFrame) -> pd.DataFrame:
    """What the bias adds in units of the stochastic loss, over decoders."""
    ratio = biases["bias"].abs() / biases["stochastic"]
    each = biases.assign(ratio=ratio).groupby(["miss", "spread"])["ratio"]
    parts = {name: each.quantile(part) for name, part in (("lower", 0.25), ("median", 0.5), ("upper", 0.75))}
    return each.mean().to_frame("mean").assign(**parts).reset_index()


def _values(column: pd.Series[float]) -> Tensor:
    return torch.tensor(column.to_numpy(dtype=float))


def _about_axes(axes: pd.DataFrame) -> list[Finding]:
    """Proposition 1 both ways, its contraposition, and a matrix that it does not cover."""
    straight, permuted, turned, repeated = (
        axes[axes["kind"] == kind] for kind in (ORTHOGONAL, PERMUTED, TURNED, REPEATED)
    )
    distance, cosine = float(straight["dto"].max()), float(permuted["cosine"].max())
    ratio = float((turned["dto"] / turned["cosine"]).min())
    missed = float(repeated[["missed", "cosine"]].to_numpy().max())
    return [
        checked(
            f"Prop. 1, (a) ⇒ (b): largest DtO of V, {len(straight)} matrices with orthogonal columns",
            "0",
            distance,
            distance <= ROUNDING,
        ),
        checked(
            "Prop. 1, (b) ⇒ (a): largest cosine between columns where |V| is a permutation",
            "0",
            cosine,
            cosine <= ROUNDING,
        ),
        checked(
            "Prop. 1: columns not orthogonal, smallest DtO over largest cosine",
            "above 0",
            ratio,
            ratio > CLEAR,
            f"cosines from {float(turned['cosine'].min()):.1g} to {float(turned['cosine'].max()):.2f}",
        ),
        finding(
            "Prop. 1, two singular values equal: DtO of a V of orthogonal columns",
            "not 0: values must be distinct",
            _values(repeated["dto"]),
            missed <= ROUNDING and float(repeated["dto"].mean()) > CLEAR,
            f"(a) without (b): UΣVᵀ misses M, and its columns a right angle, by {missed:.1g} at most",
        ),
    ]


def _about_turns(linear: pd.DataFrame, curved: pd.DataFrame, angles: pd.DataFrame) -> list[Finding]:
    """Propositions 2 and 3, and both without what they ask for."""
    found = []
    for number, name, words in (
        ("2", "evidence", "log p(x)"),
        ("3", "elbo", "ELBO, posterior turned along"),
    ):
        exact, quadrature = (float(table[name].abs().max()) for table in (linear, curved))
        found += [
            checked(
                f"Prop. {number}: largest change of {words}, {len(linear)} linear models, nats",
                "0",
                exact,
                exact <= ROUNDING,
            ),
            checked(
                f"Prop. {number}: the same, {len(curved)} tanh decoders, by quadrature",
                "0",
                quadrature,
                quadrature <= QUADRATURE,
            ),
        ]
    other = _values(linear["evidence, unequal prior"].abs())
    kept = _values(linear["diagonal, turned"] - linear["diagonal, principal"])
    each = angles.groupby("decoder")
    full, diagonal = (_values(each[kind].max() - each[kind].min()) for kind in ("full", "diagonal"))
    return [
        *found,
        finding(
            "Prop. 2, prior of unequal variances: change of log p(x), linear models, nats",
            "not 0: the prior must be symmetric",
            other,
            float(other.median()) > CLEAR,
        ),
        finding(
            "§3.1, posterior kept diagonal: ELBO lost at a random rotation, linear models, nats",
            "not 0: not invariant",
            kept,
            bool((kept > -ROUNDING).all()) and float(kept.median()) > CLEAR,
            f"against latents along V, where nothing is lost; of all models {float(kept.min()):.1g} at least",
        ),
        finding(
            "§3.1, posterior kept diagonal: ELBO between best and worst angle, tanh decoders, nats",
            "not 0: not invariant",
            diagonal,
            float(diagonal.median()) > CLEAR > float(full.max()),
            f"with a full covariance {float(full.max()):.1g} at most",
        ),
    ]


def _about_biases(splits: pd.DataFrame, biases: pd.DataFrame) -> list[Finding]:
    """Proposition 4, and by how much it is missed where the decoder bends."""
    whole = (splits["total"] - splits["deterministic"] - splits["stochastic"]).abs() / splits["total"]
    rest = biases["total"] - biases["deterministic"] - biases["stochastic"]
    explained = float(((rest - biases["bias"]).abs() / biases["total"]).max())
    found = [
        checked(
            f"Prop. 4: largest |L_rec − L̄_rec − L̂_rec| over L_rec, {len(splits)} linear decoders",
            "0",
            float(whole.max()),
            float(whole.max()) <= ROUNDING,
        ),
        checked(
            "Prop. 4, tanh decoders: the same less 2⟨Dec(μ) − x, E Dec(Enc) − Dec(μ)⟩",
            "0",
            explained,
            explained <= ROUNDING,
            "the bias is all that is missing",
        ),
    ]
    smallest, middle = biases["spread"].min(), MISSES[1]
    own = biases[(biases["miss"] == middle) & (biases["spread"] == smallest)]
    ratio = _values(rest[own.index].abs() / own["stochastic"])
    far = biases[(biases["miss"] == MISSES[0]) & (biases["spread"] == smallest)]
    more = float((rest[far.index].abs() / far["stochastic"]).mean())
    found.append(
        finding(
            f"Prop. 4, tanh decoders: |L_rec − L̄_rec − L̂_rec| over L̂_rec, σ = {smallest:.0e}",
            "0 if unbiased",
            ratio,
            float(ratio.median()) > 1e-6,
            f"x missed by {middle:g} of its spread; {more:.2g} where missed by all of it. Both are of order σ²: "
            "not less noise but better reconstruction makes the bias small",
        )
    )
    return found


PROPOSITIONS = Artefact(
    key="rolinek2019.propositions",
    title="Propositions 1–4, with and without what they ask for",
    claim="With distinct singular values, columns are orthogonal exactly if |V| is a permutation (1). Under a "
    "symmetric prior neither log-likelihood (2) nor ELBO (3) sees a rotation of the latents; a diagonal posterior does "
    "(§3.1). The reconstruction loss is its deterministic plus its stochastic part if the estimate is unbiased (4).",
    criterion="Each holds on every random case within 1e-9, or within 1e-6 nats where an expectation is by quadrature; "
    "each fails, clearly above these, once its condition is broken: two equal singular values, a prior of unequal "
    "variances, a posterior kept diagonal, a decoder that bends, where exactly the bias is missing.",
    presets={
        "smoke": Settings(
            latents=(2, 4), matrices=50, models=20, curved=4, shown=2, angles=7, iterations=25, decoders=5
        ),
        "laptop": Settings(),
        "full": Settings(
            matrices=10_000, models=5000, curved=100, shown=12, angles=31, iterations=50, decoders=200
        ),
    },
    measure=measure,
    draw=draw_propositions,
)
