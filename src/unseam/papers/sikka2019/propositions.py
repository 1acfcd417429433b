"""Propositions 1 to 3 and §IV-A of sikka2019 on the exactly solvable model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.papers.sikka2019.mixing import example_mixing
from unseam.theory import linear_beta_vae

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["PROPOSITIONS"]


@dataclass(frozen=True)
class Settings:
    """Random mixing matrices and the β at which each proposition is checked."""

    matrices: int = 200
    data: int = 30
    most_sources: int = 6
    betas: int = 400
    lowest: float = 0.05
    highest: float = 1000.0
    seed: int = 0


def measure(settings: Settings, place: Workplace) -> Tables:
    """Check each proposition on the paper's mixing matrix and on random ones, over all β at once."""
    import pandas as pd

    draw = torch.Generator().manual_seed(settings.seed)
    beta = torch.logspace(
        math.log10(settings.lowest), math.log10(settings.highest), settings.betas, dtype=torch.float64
    )
    rows = []
    for matrix in range(settings.matrices + 1):
        sources = 2 if matrix == 0 else int(torch.randint(1, settings.most_sources + 1, (), generator=draw))
        shape = (settings.data, sources)
        mixing = (
            example_mixing()
            if matrix == 0
            else torch.randn(shape, generator=draw, dtype=torch.float64)
            * torch.rand(1, generator=draw).item()
            * 3
        )
        rows.append({"matrix": matrix, "sources": sources} | _checks(mixing, beta))
    return {"matrices": pd.DataFrame(rows)}


def _checks(mixing: torch.Tensor, beta: torch.Tensor) -> dict[str, float]:
    """Largest violation of each proposition, and where the extrema lie."""
    found = linear_beta_vae(mixing, beta)
    at_one = linear_beta_vae(mixing, 1.0)
    step = 1e-5
    above, below = (linear_beta_vae(mixing, beta * (1 + sign * step)).objective for sign in (1, -1))
    slope = (above - below) / (2 * step * beta)
    # within a step of an eigenvalue the difference quotient straddles a kink of the second derivative
    return {
        "objective rises by": float(found.objective.diff().max()),
        "slope misses -KL by": float((slope + found.kl).abs().max()),
        "KL rises by": float(found.kl.diff().max()),
        "reconstruction rises by": float(found.reconstruction.diff().max()),
        "ELBO above that at 1 by": float((found.elbo - at_one.elbo).max()),
        "fixed decoder: MIE below that at 1 by": _fixed_decoder(mixing, beta),
    }


def _fixed_decoder(mixing: torch.Tensor, beta: torch.Tensor) -> float:
    """How far below its value at β = 1 the model inference error falls when only the encoder is trained.

    With the decoder D fixed, the best encoder at β has W = (DᵀD + βI)⁻¹Dᵀ and e^b = β / ([DᵀD]_ii + β).
    """
    decoder = mixing
    latent = decoder.shape[1]
    gram = decoder.mT @ decoder
    identity = torch.eye(latent, dtype=torch.float64)
    precision = gram + identity
    # Σ_x = A Aᵀ + I, met only between Aᵀ and A
    middle = gram @ gram + gram

    def error(weights: torch.Tensor) -> torch.Tensor:
        scale = weights[:, None, None]
        # W = (gram + βI)⁻¹ Aᵀ and F = (gram + I)⁻¹ Aᵀ: compare what multiplies Aᵀ
        gain = torch.linalg.inv(gram + scale * identity)
        apart = torch.linalg.inv(precision) - gain
        variance = weights[:, None] / (gram.diagonal() + weights[:, None])
        shift = torch.einsum("bij,jk,bkl,il->b", apart, middle, apart, precision)
        trace = (precision.diagonal() * variance).sum(-1)
        return (trace - variance.log().sum(-1) - torch.logdet(precision) + shift - latent) / 2

    return float((error(torch.ones(1, dtype=torch.float64)) - error(beta)).max())


RULES = {
    "objective rises by": ("Prop. 1: L* never rises with β", "≤ 0"),
    "slope misses -KL by": ("Prop. 1: dL*/dβ = −KL (Eq. 10)", "0"),
    "KL rises by": ("Prop. 2: KL never rises with β", "≤ 0"),
    "reconstruction rises by": ("Prop. 2: reconstruction never rises with β (Eq. 13)", "≤ 0"),
    "ELBO above that at 1 by": ("Prop. 3: ELBO* is largest at β = 1", "≤ 0"),
    "fixed decoder: MIE below that at 1 by": ("§IV-A: with a fixed decoder MIE is least at β = 1", "≤ 0"),
}


def judge(tables: Tables) -> Judgement:
    """The worst violation of each proposition over all mixing matrices."""
    table = tables["matrices"]
    found = []
    for column, (words, published) in RULES.items():
        worst = float(table[column].max())
        # rounding of terms of a few hundred nats, and of a difference quotient with a step of 1e-5
        allowed = 1e-4 if column.startswith("slope") else 1e-9
        found.append(
            Finding(
                f"{words}, worst of {len(table)} mixing matrices",
                published,
                worst,
                None,
                None,
                "reproduced" if worst <= allowed else "not reproduced",
            )
        )
    return Judgement(tuple(found))


def draw(tables: Tables) -> Figure:
    """Worst violation of each proposition over mixing matrices, on a logarithmic scale of nats."""
    table = tables["matrices"]
    figure, (axes,) = panels(["Largest violation over β of each proposition"], width=6.4, height=2.6)
    for place, column in enumerate(RULES):
        values = np.maximum(np.abs(np.maximum(table[column].to_numpy(dtype=float), 0.0)), 1e-16)
        axes.plot(values, [place] * len(values), "|", color=COLOURS[0], markersize=9, alpha=0.6)
    axes.set_yticks(range(len(RULES)), [words for words, _ in RULES.values()], fontsize=7.5)
    axes.set_xscale("log")
    axes.set_xlim(5e-17, 1.0)
    axes.invert_yaxis()
    axes.set_xlabel("nats (1e-16: none)", fontsize=8)
    return figure


PROPOSITIONS = Artefact(
    key="sikka2019.propositions",
    title="Propositions 1–3 and §IV-A",
    claim="The objective, KL and reconstruction never rise with β, the ELBO is largest at β = 1, and with a fixed "
    "decoder the model inference error is least at β = 1.",
    criterion="Each inequality holds up to rounding on the paper's mixing matrix and on random ones.",
    presets={"smoke": Settings(matrices=10, betas=60), "laptop": Settings(), "full": Settings(matrices=2000)},
    measure=measure,
    judge=judge,
    draw=draw,
)
