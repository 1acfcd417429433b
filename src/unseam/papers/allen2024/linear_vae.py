"""Eqs. 2 to 4, Cor. 1.1 of allen2024: a diagonal posterior finds the principal axes, a full one any rotation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unseam.data import load
from unseam.drawing import COLOURS, panels
from unseam.geometry import distance_to_orthogonality, right_basis
from unseam.papers.allen2024._members import (
    aligned,
    apart,
    decoder_matrices,
    dots,
    logarithmic,
    orthonormal,
    rotated,
    trained,
)
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.claims import Bound, Bounds
from unseam.theory import LinearVAE, linear_vae, ppca_em
from unseam.training import Ensemble
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["LINEAR_VAE"]

KINDS = ("linear VAE, diagonal", "linear VAE, full", "EM, diagonal", "EM, exact")
CLOSE, FAR = 0.05, 0.25


@dataclass(frozen=True)
class Settings:
    """Data x = U S Vᵀ z + ε of Eq. 2, on which linear VAEs are trained and EM is run."""

    data: int = 12
    scales: tuple[float, ...] = (6.0, 3.0, 1.5)
    items: int = 10_000
    seeds: int = 8
    steps: int = 8000
    batch_size: int = 200
    learning_rate: float = 5e-3
    em_seeds: int = 10
    em_steps: int = 2000
    seed: int = 0


def measure(settings: Settings, place: Workplace) -> Tables:
    """Distance of every decoder from U(S − σ²I)^½, up to signed permutations and up to rotations."""
    import pandas as pd

    draw = torch.Generator().manual_seed(settings.seed)
    latent = len(settings.scales)
    truth = orthonormal(settings.data, latent, draw) * torch.tensor(settings.scales, dtype=torch.float64)
    # the rotation of the latents leaves the distribution of x unchanged
    mixing = truth @ orthonormal(latent, latent, draw).mT
    world = load("mixture", mixing=mixing.tolist(), size=settings.items)
    x = world.images(torch.arange(settings.items)).double()
    centred = x - x.mean(0)
    covariance = centred.mT @ centred / len(x)
    best = linear_vae(covariance, latent, noise=1.0)

    kept, weights = [], {}
    for kind, posterior in zip(KINDS[:2], ("diagonal", "full"), strict=True):
        ensemble = trained(_trials(settings, posterior), place, posterior, world=world)
        weights[kind], offset = decoder_matrices(ensemble)
        lost = best.elbo - _elbo(ensemble, weights[kind], offset, x)
        kept.append(_rows(kind, weights[kind], best, lost))
    for kind, diagonal in zip(KINDS[2:], (True, False), strict=True):
        paths = [_em(covariance, latent, diagonal, settings, seed) for seed in range(settings.em_seeds)]
        weights[kind] = torch.stack([path[0] for path in paths])
        kept.append(_rows(kind, weights[kind], best, torch.tensor([best.elbo - path[1] for path in paths])))
    members = pd.concat(kept, ignore_index=True)
    overlaps = pd.concat([_overlap(kind, weights[kind][0], best) for kind in KINDS[:2]], ignore_index=True)
    return {"members": members, "overlaps": overlaps}


def _trials(settings: Settings, posterior: str) -> list[Trial]:
    first = Trial(
        world="mixture",
        likelihood="gaussian",
        posterior=posterior,
        latent=len(settings.scales),
        encoder_widths=(),
        decoder_widths=(),
        steps=settings.steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        precision="float32",
    )
    return [dataclasses.replace(first, seed=seed) for seed in range(settings.seeds)]


def _em(
    covariance: Tensor, latent: int, diagonal: bool, settings: Settings, seed: int
) -> tuple[Tensor, float]:
    path = ppca_em(
        covariance,
        latent,
        noise=1.0,
        diagonal=diagonal,
        steps=settings.em_steps,
        generator=torch.Generator().manual_seed(seed),
    )
    return path.solution.weights.double(), float(path.bounds[-1])


def _elbo(ensemble: Ensemble, weights: Tensor, offset: Tensor, x: Tensor) -> Tensor:
    """ELBO of every member, a mean over the data, exact in the latents because decoder and posterior are affine."""
    code = ensemble.encode(x.float())
    mean, variance = code.mean.double().cpu(), code.variance.double().cpu()
    covariance = variance if variance.ndim == 4 else variance.diag_embed()
    back = mean @ weights.mT + offset[:, None]
    spread = torch.einsum("mij,mnij->mn", weights.mT @ weights, covariance)
    error = (x - back).square().sum(-1) + spread
    reconstruction = -(x.shape[1] * math.log(2 * math.pi) + error) / 2
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    kl = (mean.square().sum(-1) + trace - torch.logdet(covariance) - mean.shape[-1]) / 2
    return (reconstruction - kl).mean(1)


def _rows(kind: str, weights: Tensor, best: LinearVAE, lost: Tensor) -> pd.DataFrame:
    import pandas as pd

    target = best.weights.double()
    return pd.DataFrame(
        {
            "kind": kind,
            "seed": range(len(weights)),
            "signed permutation": apart(aligned(weights, target), target).tolist(),
            "rotation": apart(rotated(weights, target), target).tolist(),
            "dto": distance_to_orthogonality(right_basis(weights.mT @ weights).right_vectors).tolist(),
            "elbo lost": lost.tolist(),
        }
    )


def _overlap(kind: str, weights: Tensor, best: LinearVAE) -> pd.DataFrame:
    """|cos| between the columns of one decoder and the principal axes."""
    import pandas as pd

    unit = torch.nn.functional.normalize(best.weights.double(), dim=0)
    found = torch.nn.functional.normalize(aligned(weights, best.weights.double()), dim=0)
    cosine = (unit.mT @ found).abs()
    axis, column = torch.meshgrid(*(torch.arange(len(cosine)),) * 2, indexing="ij")
    return pd.DataFrame(
        {
            "kind": kind,
            "axis": axis.flatten().tolist(),
            "column": column.flatten().tolist(),
            "cosine": cosine.flatten().tolist(),
        }
    )


def _distances(tables: Tables, kinds: Sequence[str], up_to: str) -> Iterator[tuple[str, pd.Series]]:
    members = tables["members"]
    for kind in kinds:
        words = "a signed permutation" if up_to == "signed permutation" else "a rotation"
        yield f"{kind}: distance from U(S − σ²I)^½ up to {words}", members[members["kind"] == kind][up_to]


def _aligned_cases(tables: Tables) -> Iterator[Bound]:
    for words, own in _distances(tables, (KINDS[0], KINDS[2]), "signed permutation"):
        yield Bound(words, "0", own, most=CLOSE, note=f"at most {own.max():.3g}")


def _rotated_cases(tables: Tables) -> Iterator[Bound]:
    others = [kind for kind in KINDS if kind not in (KINDS[0], KINDS[2])]
    for words, own in _distances(tables, others, "signed permutation"):
        yield Bound(words, "any", own, least=FAR, note=f"from {own.min():.3g} to {own.max():.3g}")


def _optimal_cases(tables: Tables) -> Iterator[Bound]:
    for words, own in _distances(tables, KINDS, "rotation"):
        yield Bound(words, "0", own, most=CLOSE, note=f"at most {own.max():.3g}")


def plot(tables: Tables) -> Figure:
    """Cosines of one decoder's columns with the principal axes, and distances of all decoders."""
    members, overlaps = tables["members"], tables["overlaps"]
    titles = ["diagonal posterior", "full posterior", "distance from U(S − σ²I)^½"]
    figure, axes = panels(titles, width=3.2, height=2.6)
    for panel, kind in zip(axes[:2], KINDS[:2], strict=True):
        own = overlaps[overlaps["kind"] == kind].pivot(index="axis", columns="column", values="cosine")
        image = panel.imshow(own.to_numpy(), vmin=0, vmax=1, cmap="Blues")
        panel.set_xlabel("column of the decoder", fontsize=8)
        panel.set_ylabel("principal axis", fontsize=8)
        panel.set_xticks(range(own.shape[1]), range(1, own.shape[1] + 1))
        panel.set_yticks(range(own.shape[0]), range(1, own.shape[0] + 1))
    figure.colorbar(image, ax=axes[1], shrink=0.8).set_label("|cos|", fontsize=8)
    for place, kind in enumerate(KINDS):
        own = members[members["kind"] == kind]
        for column, colour, shift in (
            ("signed permutation", COLOURS[0], -0.12),
            ("rotation", COLOURS[1], 0.12),
        ):
            label = column if place == 0 else None
            dots(axes[2], own[column].clip(lower=1e-10), place + shift, colour, label)
    logarithmic(axes[2].xaxis)
    axes[2].set_yticks(range(len(KINDS)), KINDS, fontsize=7.5)
    axes[2].invert_yaxis()
    axes[2].axvline(CLOSE, color="grey", linewidth=0.7, linestyle="--")
    axes[2].set_xlabel("relative Frobenius distance", fontsize=8)
    axes[2].legend(title="up to a", fontsize=7, title_fontsize=7, frameon=False, loc="upper left")
    return figure


LINEAR_VAE = Artefact(
    key="allen2024.linear_vae",
    title="Linear VAEs recover U(S − σ²I)^½; with a full covariance they stay rotated",
    claims=(
        Bounds(
            "Cor. 1.1: a diagonal posterior restricts a linear VAE to U(S − σ²I)^½ up to order and sign of latents",
            _aligned_cases,
        ),
        Bounds("Eqs. 2–4: PPCA and a full posterior leave it at any rotation", _rotated_cases),
        Bounds("Eqs. 2–4: every optimum is U(S − σ²I)^½ up to a rotation", _optimal_cases),
    ),
    presets={
        "smoke": Settings(
            data=4,
            scales=(3.0, 1.5),
            items=1000,
            seeds=3,
            steps=200,
            batch_size=100,
            learning_rate=3e-2,
            em_seeds=3,
            em_steps=200,
        ),
        "laptop": Settings(steps=16_000),
        "full": Settings(items=20_000, seeds=100, steps=16_000, batch_size=500),
    },
    measure=measure,
    plot=plot,
)
