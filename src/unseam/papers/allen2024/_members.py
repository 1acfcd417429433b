"""What artefacts of trained models share: training, Taylor terms, alignment."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.data import ArrayWorld, load
from unseam.geometry import Gap, elbo_gap, likelihood_hessian, signed_permutation
from unseam.models import VAE
from unseam.papers.artefact import scaled
from unseam.papers.claims import Curve
from unseam.papers.draws import normal
from unseam.papers.measures import affine_parts
from unseam.papers.trainings import vae_trial
from unseam.training import Ensemble
from unseam.trial import Trial


@dataclass(frozen=True)
class SpriteSettings:
    """Soft ellipses of several sizes and places, which a smooth decoder can follow, and networks on them."""

    resolution: int = scaled(8, 16, 24)
    positions: int = scaled(8, 16)
    scales: int = scaled(4, 8)
    width: int = scaled(24, 64, 128)
    latent: int = scaled(3, 4, 5)
    variance: float = 0.05
    seeds: int = 5


def sprite_trial(
    settings: Any, *copied: str, scales: int | None = None, span: float = 0.5, **changes: Any
) -> Trial:
    """Small networks on the ellipses of settings with the fields of :class:`SpriteSettings`.

    ``copied`` are further fields of the settings that are the trial's too, ``scales`` the sizes of ellipses where these
    have another name, ``span`` that of the positions, as a part of dSprites', and ``changes`` fields of the trial.
    """
    options: dict[str, int | float | tuple[str | int | float, ...]] = {
        "resolution": settings.resolution,
        "shapes": ("ellipse",),
        "scales": settings.scales if scales is None else scales,
        "orientations": 1,
        "positions": settings.positions,
        "span": span,
        "softness": settings.resolution / 24,
    }
    trial = Trial(
        world="sprites",
        world_options=tuple(options.items()),
        encoder_widths=(settings.width, settings.width),
        decoder_widths=(settings.width,),
        latent=settings.latent,
        learning_rate=3e-3,
        precision="float32",
    )
    if changes.get("likelihood") == "gaussian":
        changes["likelihood_variance"] = settings.variance
    return dataclasses.replace(trial, **{name: getattr(settings, name) for name in copied}, **changes)


def square_trial(settings: Any, ratio: float, steps: int) -> Trial:
    """A VAE with two tanh layers on the stretched square, the push-forward of a normal by an orthogonal map."""
    return vae_trial(
        "linear",
        settings,
        (settings.width, settings.width),
        world_options=(("size", settings.items), ("ratio", ratio)),
        likelihood_variance=settings.variance,
        latent=2,
        encoder_activation="tanh",
        steps=steps,
        learning_rate=2e-3,
    )


def sample_images(trial: Trial, points: int, generator: torch.Generator) -> Tensor:
    """Random items of a trial's world, without replacement."""
    world = load(trial.world, **dict(trial.world_options))  # type: ignore[arg-type]
    return world.images(torch.randperm(len(world), generator=generator)[:points])


def items_and_noise(trial: Trial, points: int, samples: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random items of a trial's world, and standard normal noise (sample, item, latent) for each."""
    random = torch.Generator().manual_seed(0)
    x = sample_images(trial, points, random)
    return x.to(device), torch.randn(samples, len(x), trial.latent, generator=random).to(device)


class Expansion(NamedTuple):
    """Terms of the deterministic ELBO at each point (batch,), in nats.

    ``regularisation`` is ½⟨DᵀA²D, Σ⟩; ``residual`` is ½⟨R, Σ⟩ with R the term of Eq. 6 that A.2 drops: with the exact
    Hessian the gap is gap + residual.
    """

    gap: Gap
    regularisation: Tensor
    residual: Tensor


@torch.no_grad()
def expansion(model: VAE, x: Tensor, noise: Tensor) -> Expansion:
    """Eq. 5 at the posterior of each x, and both parts of the Hessian of Eq. 6, for a diagonal posterior."""
    code = model.encode(x)
    gap = elbo_gap(model.decode, model.likelihood, x, code.mean, code.variance, noise=noise)
    hessian = likelihood_hessian(model.decode, model.likelihood, x, code.mean)
    parts = (-hessian.gauss_newton, hessian.residual)
    return Expansion(gap, *((part.diagonal(dim1=-2, dim2=-1) * code.variance).sum(1) / 2 for part in parts))


def decoder_matrices(ensemble: Ensemble) -> tuple[Tensor, Tensor]:
    """Matrix W (member, data, latent) and offset (member, data) of decoders that are affine, from probes."""
    return affine_parts(lambda z: ensemble.decode(z).double().cpu(), ensemble.trials[0].latent)


def align_columns(weights: Tensor, target: Tensor) -> Tensor:
    """Columns of W (..., data, latent) in the order and with the signs that bring them closest to the target's.

    ‖WP − T‖² = ‖W‖² + ‖T‖² − 2 tr(PᵀWᵀT), so the best P is the signed permutation closest to WᵀT.
    """
    overlap = weights.mT @ target
    largest = overlap.abs().amax((-2, -1), keepdim=True)
    return weights @ signed_permutation(overlap / torch.where(largest == 0, 1.0, largest))


def rotate_columns(weights: Tensor, target: Tensor) -> Tensor:
    """W R (..., data, latent) with the orthogonal R that brings it closest to the target (Procrustes)."""
    left, _, right = torch.linalg.svd(weights.mT @ target)
    return weights @ (left @ right)


def angles_to(columns: Tensor, axes: Tensor) -> Tensor:
    """Angle in degrees (..., latent) of each axis (data, latent) to the column matched to it, all of unit length."""
    return torch.rad2deg((align_columns(columns, axes) * axes).sum(-2).clamp(-1, 1).acos())


def relative_distance(weights: Tensor, target: Tensor) -> Tensor:
    """Frobenius norm of the difference over that of the target (...)."""
    return torch.linalg.matrix_norm(weights - target) / torch.linalg.matrix_norm(target)


def exact_sample(covariance: Tensor, size: int, generator: torch.Generator) -> ArrayWorld:
    """Normal data of mean zero whose *empirical* covariance is the one given, so that equal eigenvalues stay equal."""
    data = len(covariance)
    draws = normal(size, data, generator=generator)
    draws = draws - draws.mean(0)
    white = torch.linalg.solve_triangular(
        torch.linalg.cholesky(draws.mT @ draws / size), draws.mT, upper=False
    )
    table = (torch.linalg.cholesky(covariance.double()) @ white).mT
    return unlabelled(table.float(), "normal", size=size, covariance=covariance.tolist())


def unlabelled(x: Tensor, name: str, **options: Any) -> ArrayWorld:
    """Data (item, data) without factors."""
    return ArrayWorld(x, torch.zeros(len(x), 0), name=name, factor_names=(), factor_sizes=(), options=options)


def last_crossing(beta: Any, values: Any, level: float) -> float:
    """β from which values stay below a level, interpolated in log β: 0 if they never reach it, ∞ if they end above.

    >>> round(last_crossing([1, 10, 100], [1.0, 0.75, 0.25], 0.5), 3)
    31.623
    """
    order = np.argsort(beta)
    logs, height = np.log(np.asarray(beta, dtype=float)[order]), np.asarray(values, dtype=float)[order]
    above = np.flatnonzero(height >= level)
    if not len(above):
        return 0.0
    if (last := above[-1]) == len(height) - 1:
        return math.inf
    share = (height[last] - level) / (height[last] - height[last + 1])
    return math.exp(logs[last] + share * (logs[last + 1] - logs[last]))


def vanishing(rows: pd.DataFrame, column: str, prefix: str, words: str) -> Curve:
    """What vanishes along training falls in logarithms all along; in units, a large start would hide every rise."""
    logs = rows.assign(log=np.log(rows[column])).pivot(index="steps", columns="seed", values="log")
    mean = np.exp(logs.mean(axis=1))
    note = (
        f"{mean.iloc[0]:.2g} after {mean.index[0]} steps, least {mean.min():.2g} after {mean.idxmin()}, "
        f"{mean.iloc[-1]:.2g} after {mean.index[-1]}"
    )
    quantity = f"{prefix}largest rise of the logarithm of the {words} along training, of its range"
    return Curve(quantity, "vanishes as training progresses", logs.to_numpy(), note=note)
