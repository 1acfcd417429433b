"""Eqs. 2 to 4, Cor. 1.1 of allen2024: a diagonal posterior finds the principal axes, a full one any rotation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from unseam.data import load
from unseam.drawing import panels
from unseam.geometry import distance_to_orthogonality, right_basis
from unseam.papers.allen2024._members import (
    align_columns,
    decoder_matrices,
    relative_distance,
    rotate_columns,
)
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds
from unseam.papers.draws import Seeded, orthonormal
from unseam.papers.plots import Figure, Tables, categories, finish, logarithmic, reference
from unseam.papers.tables import table_of
from unseam.papers.trainings import combinations, train_or_resume, vae_trial
from unseam.theory import LinearVAE, linear_vae, ppca_em
from unseam.training import Ensemble

__all__ = ["LINEAR_VAE"]

KINDS = ("linear VAE, diagonal", "linear VAE, full", "EM, diagonal", "EM, exact")
CLOSE, FAR = 0.05, 0.25


@dataclass(frozen=True)
class Settings(Seeded):
    """Data x = U S Vᵀ z + ε of Eq. 2, on which linear VAEs are trained and EM is run."""

    data: int = scaled(4, 12)
    scales: tuple[float, ...] = scaled((3.0, 1.5), (6.0, 3.0, 1.5))
    items: int = scaled(1000, 10_000, 20_000)
    seeds: int = scaled(3, 8, 100)
    steps: int = scaled(200, 16_000)
    batch_size: int = scaled(100, 200, 500)
    learning_rate: float = scaled(3e-2, 5e-3)
    em_seeds: int = scaled(3, 10)
    em_steps: int = scaled(200, 2000)


def measure(settings: Settings, place: Workplace) -> Tables:
    """Distance of every decoder from U(S − σ²I)^½, up to signed permutations and up to rotations."""
    draw = settings.generator()
    latent, scales = len(settings.scales), torch.tensor(settings.scales, dtype=torch.float64)
    truth = orthonormal(settings.data, latent, generator=draw) * scales
    # the rotation of the latents leaves the distribution of x unchanged
    mixing = truth @ orthonormal(latent, latent, generator=draw).mT
    world = load("mixture", mixing=mixing.tolist(), size=settings.items)
    x = world.images(torch.arange(settings.items)).double()
    centred = x - x.mean(0)
    covariance = centred.mT @ centred / len(x)
    best = linear_vae(covariance, latent, noise=1.0)
    members, overlaps = [], []
    for kind, posterior in zip(KINDS[:2], ("diagonal", "full"), strict=True):
        first = vae_trial("mixture", settings, posterior=posterior, latent=latent)
        trials = combinations(first, seed=range(settings.seeds))
        ensemble = train_or_resume(trials, place, posterior, world=world)
        weights, offset = decoder_matrices(ensemble)
        members.append(_rows(kind, weights, best, best.elbo - _elbo(ensemble, weights, offset, x)))
        # |cos| between the columns of the first decoder and the principal axes
        target = best.weights.double()
        unit, found = (normalize(one, dim=0) for one in (target, align_columns(weights[0], target)))
        axis, column = torch.cartesian_prod(*(torch.arange(latent),) * 2).mT
        cosine = (unit.mT @ found).abs().flatten()
        overlaps.append(table_of({"kind": kind, "axis": axis, "column": column, "cosine": cosine}))
    for kind, diagonal in zip(KINDS[2:], (True, False), strict=True):
        draws = [torch.Generator().manual_seed(seed) for seed in range(settings.em_seeds)]
        options = {"noise": 1.0, "diagonal": diagonal, "steps": settings.em_steps}
        paths = [ppca_em(covariance, latent, generator=each, **options) for each in draws]  # type: ignore[arg-type]
        weights = torch.stack([path.solution.weights.double() for path in paths])
        lost = torch.tensor([best.elbo - float(path.bounds[-1]) for path in paths])
        members.append(_rows(kind, weights, best, lost))
    tables = {"members": members, "overlaps": overlaps}
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}


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
    target = best.weights.double()
    columns = {
        "signed permutation": relative_distance(align_columns(weights, target), target),
        "rotation": relative_distance(rotate_columns(weights, target), target),
        "dto": distance_to_orthogonality(right_basis(weights.mT @ weights).right_vectors),
        "elbo lost": lost,
    }
    return table_of({"kind": kind, "seed": range(len(weights))} | columns)


def _cases(
    tables: Tables,
    *,
    kinds: Iterable[int],
    up_to: str = "signed permutation",
    wrong: int = -1,
    **bounds: float,
) -> Iterator[Bound]:
    said = f"0, within {CLOSE:g}" if "most" in bounds else f"any, on average at least {FAR:g}"
    runs = [tables["members"][tables["members"]["kind"] == kind][up_to] for kind in KINDS]
    other = {} if wrong < 0 else {KINDS[wrong]: runs[wrong]}
    for kind in kinds:
        own, words = runs[kind], f"{KINDS[kind]}: distance from U(S − σ²I)^½ up to a {up_to}"
        note = f"from {own.min():.3g} to {own.max():.3g}"
        yield Bound(words, said, own, note=note, wrong=other, **bounds)  # type: ignore[arg-type]


def plot(tables: Tables) -> Figure:
    """Cosines of one decoder's columns with the principal axes, and distances of all decoders."""
    members, overlaps = tables["members"], tables["overlaps"]
    titles = ["diagonal posterior", "full posterior", "distance from U(S − σ²I)^½"]
    figure, axes = panels(titles, width=3.2, height=2.6)
    for panel, (_, own) in zip(axes, overlaps.groupby("kind", sort=False), strict=False):
        cosines = own.pivot(index="axis", columns="column", values="cosine").to_numpy()
        image = panel.imshow(cosines, vmin=0, vmax=1, cmap="Blues")
        finish(panel, "column of the decoder", "principal axis")
        panel.set_xticks(range(len(cosines)), range(1, len(cosines) + 1))
        panel.set_yticks(range(len(cosines)), range(1, len(cosines) + 1))
    figure.colorbar(image, ax=axes[1], shrink=0.8).set_label("|cos|", fontsize=8)
    shown = ["signed permutation", "rotation"]
    groups = members.groupby("kind", sort=False)[shown]
    rows = {str(kind): [own[column].clip(lower=1e-10) for column in shown] for kind, own in groups}
    categories(axes[2], rows, [f"up to a {column}" for column in shown])
    logarithmic(axes[2].xaxis)
    reference(axes[2], x=CLOSE)
    finish(axes[2], "relative Frobenius distance", legend="upper left")
    return figure


LINEAR_VAE = Artefact(
    key="allen2024.linear_vae",
    title="Linear VAEs recover U(S − σ²I)^½; with a full covariance they stay rotated",
    claims=(
        Bounds(
            "Cor. 1.1: a diagonal posterior restricts a linear VAE to U(S − σ²I)^½ up to order and sign of latents",
            partial(_cases, kinds=(0, 2), wrong=1, most=CLOSE),
        ),
        Bounds(
            "Eqs. 2–4: PPCA and a full posterior leave it at any rotation",
            partial(_cases, kinds=(1, 3), wrong=0, least=FAR),
        ),
        Bounds(
            "Eqs. 2–4: every optimum is U(S − σ²I)^½ up to a rotation",
            partial(_cases, kinds=range(4), up_to="rotation", most=CLOSE),
        ),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
)
