"""Propositions 1 to 4 and §IV-A of sikka2019 on the exactly solvable model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Identities, Identity
from unseam.papers.sikka2019._linear import LinearTerms, example_mixing, linear_terms
from unseam.theory import linear_beta_vae

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["PROPOSITIONS"]

SCATTER = 0.1
"""Standard deviation of the logarithm of the factors that set candidate parameters apart from an optimum."""


@dataclass(frozen=True)
class Settings:
    """Random mixing matrices, and the β and parameter sets at which each proposition is checked."""

    matrices: int = 200
    data: int = 30
    most_sources: int = 6
    betas: int = 400
    candidates: int = 200
    lowest: float = 0.05
    highest: float = 1000.0
    seed: int = 0


def measure(settings: Settings, place: Workplace) -> Tables:
    """Largest violation of each proposition on the paper's mixing matrix and on random ones."""
    import pandas as pd

    draw = torch.Generator().manual_seed(settings.seed)
    ends = math.log10(settings.lowest), math.log10(settings.highest)
    beta = torch.logspace(*ends, settings.betas, dtype=torch.float64)
    rows, mixing = [], example_mixing()
    for matrix in range(settings.matrices + 1):
        if matrix:
            sources = int(torch.randint(1, settings.most_sources + 1, (), generator=draw))
            mixing = torch.randn(settings.data, sources, generator=draw, dtype=torch.float64)
            mixing = mixing * 3 * torch.rand((), generator=draw, dtype=torch.float64)
        checks = _optima(mixing, beta) | _fixed_decoder(mixing, beta)
        checks |= _candidates(mixing, beta, settings.candidates, draw)
        rows.append({name: max(0.0, worst) for name, worst in checks.items()})
    return {"matrices": pd.DataFrame(rows)}


def _optima(mixing: Tensor, beta: Tensor) -> dict[str, float]:
    """Propositions 1 to 3, on the closed form."""
    found, at_one, step = linear_beta_vae(mixing, beta), linear_beta_vae(mixing, 1.0), 1e-5
    above, below = (linear_beta_vae(mixing, beta * (1 + sign * step)).objective for sign in (1, -1))
    # within a step of an eigenvalue the difference quotient straddles a kink of the second derivative
    slope = (above - below) / (2 * step * beta)
    return {
        "objective rises by": float(found.objective.diff().max()),
        "slope misses -KL by": float((slope + found.kl).abs().max()),
        "KL rises by": float(found.kl.diff().max()),
        "reconstruction rises by": float(found.reconstruction.diff().max()),
        "ELBO above that at 1 by": float((found.elbo - at_one.elbo).max()),
    }


def _fixed_decoder(mixing: Tensor, beta: Tensor) -> dict[str, float]:
    """§IV-A and Proposition 4 when only the encoder is trained, the decoder being the mixing matrix.

    The best encoder at β has W = (DᵀD + βI)⁻¹Dᵀ and e^b = β / ([DᵀD]_ii + β).
    """
    gram = mixing.mT @ mixing

    def terms(weights: Tensor) -> LinearTerms:
        regularised = gram + weights[:, None, None] * torch.eye(len(gram), dtype=gram.dtype)
        variance = weights[:, None] / (gram.diagonal() + weights[:, None])
        return linear_terms(mixing, mixing, torch.linalg.solve(regularised, mixing.mT), variance)

    found, at_one = terms(beta), terms(torch.ones(1, dtype=torch.float64))
    return {
        "fixed decoder: MIE below that at 1 by": float((at_one.mie - found.mie).max()),
        "fixed decoder: KL rises by": float(found.kl.diff().max()),
    }


def _candidates(mixing: Tensor, beta: Tensor, count: int, draw: torch.Generator) -> dict[str, float]:
    """Proposition 4 on a finite set of parameters, of which the best for each β is found by trying all.

    The set is made of optima at random β with noise on every parameter, so that none is stationary and many are best
    for some β.
    """

    def noise(*shape: int) -> Tensor:
        return (SCATTER * torch.randn(*shape, generator=draw, dtype=torch.float64)).exp()

    position = torch.rand(count, generator=draw, dtype=torch.float64)
    near = linear_beta_vae(mixing, beta[0] * (beta[-1] / beta[0]) ** position)
    around = (part * noise(*part.shape) for part in (near.decoder, near.encoder, near.variance))
    found = linear_terms(mixing, *around)
    best = (found.reconstruction - beta[:, None] * found.kl).argmax(1)
    return {
        "candidates: KL of the best rises by": float(found.kl[best].diff().max()),
        "candidates best for some β": len(best.unique()),
    }


VIOLATIONS = {
    "objective rises by": "Prop. 1: the objective L* never increases with β",
    "slope misses -KL by": "Prop. 1, Eq. 10: dL*/dβ = −KL",
    "KL rises by": "Prop. 2: KL never increases with β",
    "reconstruction rises by": "Prop. 2, Eq. 13: the reconstruction objective never increases with β",
    "ELBO above that at 1 by": "Prop. 3: ELBO* is largest at β = 1",
    "fixed decoder: MIE below that at 1 by": "§IV-A: with a fixed decoder MIE is least at β = 1",
    "fixed decoder: KL rises by": "Prop. 4: with a fixed decoder KL never increases with β",
    "candidates: KL of the best rises by": "Prop. 4: in a finite set of parameters KL never increases with β",
}
"""What each column says if it is zero."""


def _violation(column: str) -> Callable[[Tables], list[Identity]]:
    # rounding of terms of a few hundred nats, and of a difference quotient with a step of 1e-5
    tolerance = 1e-4 if column.startswith("slope") else 1e-9

    def cases(tables: Tables) -> list[Identity]:
        table, note = tables["matrices"], ""
        if column.startswith("candidates"):
            chosen = table["candidates best for some β"]
            note = f"{chosen.min()} to {chosen.max()} parameters of a set are best for some β"
        words = f"{VIOLATIONS[column]}: largest violation, nats"
        return [Identity(words, "0", float(table[column].max()), tolerance, n=len(table), note=note)]

    return cases


def plot(tables: Tables) -> Figure:
    """Worst violation of each proposition over mixing matrices, on a logarithmic scale of nats."""
    table = tables["matrices"]
    figure, (axes,) = panels(["Largest violation over β of each proposition"], width=6.4, height=2.6)
    for place, column in enumerate(VIOLATIONS):
        exponents = np.log10(np.maximum(table[column].to_numpy(dtype=float), 1e-16))
        values = 10 ** np.unique(exponents.round(2))
        axes.plot(values, [place] * len(values), "|", color=COLOURS[0], markersize=9, alpha=0.6)
    axes.set_yticks(range(len(VIOLATIONS)), list(VIOLATIONS.values()), fontsize=7.5)
    axes.set(xscale="log", xlim=(5e-17, 1.0))
    axes.invert_yaxis()
    axes.set_xlabel("nats (1e-16: none)", fontsize=8)
    return figure


PROPOSITIONS = Artefact(
    key="sikka2019.propositions",
    title="Propositions 1–4 and §IV-A",
    claims=tuple(Identities(says, _violation(column)) for column, says in VIOLATIONS.items()),
    presets={"smoke": Settings(matrices=10, betas=60), "laptop": Settings(), "full": Settings(matrices=1000)},
    measure=measure,
    plot=plot,
    note="On the paper's mixing matrix and on random ones, up to rounding (1e-9 nats; 1e-4 for the difference quotient "
    "of Eq. 10). Proposition 4 is about any objective A − βB: here A is the reconstruction objective and B is KL, for "
    "a fixed decoder and for a finite set of random parameters.",
)
