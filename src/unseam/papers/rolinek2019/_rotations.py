"""Propositions 2 and 3 of rolinek2019: what a model loses when its latents are turned (Eqs. 8 and 9)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unseam.papers.rolinek2019._axes import right_vectors
from unseam.papers.rolinek2019._draws import normal, orthogonal, plane_turns
from unseam.papers.rolinek2019._findings import table_of
from unseam.papers.rolinek2019._models import (
    Curved,
    best_diagonal_loss,
    best_elbo,
    curved_elbo,
    curved_evidence,
    linear_elbo,
    linear_evidence,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["best_at_angles", "curved_turns", "linear_turns"]


def linear_turns(
    latent: int, count: int, noise: float, *, generator: torch.Generator, device: torch.device
) -> pd.DataFrame:
    """Linear models, any posterior of theirs, and how both change when the latents are turned."""
    data = latent + 3
    weights = normal(count, data, latent, generator=generator).to(device)
    x, mean = (normal(count, size, generator=generator).to(device) for size in (data, latent))
    covariance = torch.rand(count, latent, generator=generator, dtype=torch.float64).to(device).diag_embed()
    turn = orthogonal(count, latent, latent, generator=generator).to(device)
    turned = weights @ turn.mT
    unequal = torch.diag(2.0 ** torch.linspace(-2, 2, latent, dtype=torch.float64)).to(device)
    columns = {
        "evidence": linear_evidence(turned, x, noise) - linear_evidence(weights, x, noise),
        "evidence, unequal prior": linear_evidence(turned, x, noise, unequal)
        - linear_evidence(weights, x, noise, unequal),
        "elbo": linear_elbo(turned, x, noise, _apply(turn, mean), turn @ covariance @ turn.mT)
        - linear_elbo(weights, x, noise, mean, covariance),
        "diagonal, turned": best_diagonal_loss(turned, noise),
        "diagonal, principal": best_diagonal_loss(weights @ right_vectors(weights), noise),
    }
    return table_of(columns).assign(latent=latent)


def curved_turns(model: Curved, *, generator: torch.Generator) -> pd.DataFrame:
    """The same for tanh decoders: each at one rotation, with a random posterior."""
    count, device = len(model.x), model.x.device
    angle = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    turn = plane_turns(angle).to(device)
    mean = normal(count, 2, generator=generator).to(device)
    spread = (0.1 + 0.9 * torch.rand(count, 2, generator=generator, dtype=torch.float64)).to(device)
    # Cholesky's factor is not the turned square root, so that the two expectations have no node in common
    factor = torch.linalg.cholesky(turn @ spread.square().diag_embed() @ turn.mT)
    turned = model.turned(turn)
    return table_of(
        {
            "evidence": curved_evidence(turned, 0.1) - curved_evidence(model, 0.1),
            "elbo": curved_elbo(turned, _apply(turn, mean), factor, 0.1)
            - curved_elbo(model, mean, spread.diag_embed(), 0.1),
        }
    )


def best_at_angles(model: Curved, angles: int, *, iterations: int) -> pd.DataFrame:
    """Nats between log p(x) and the best ELBO of a full and of a diagonal posterior, at every angle of the latents."""
    count, device = len(model.x), model.x.device
    angle = torch.linspace(0, math.pi / 2, angles, dtype=torch.float64)
    turn = plane_turns(angle).repeat(count, 1, 1).to(device)
    many = model.repeat(angles).turned(turn)
    start = _apply(turn, many.code)
    evidence = curved_evidence(many, 0.1)
    best = {
        kind: best_elbo(many, start, diagonal=kind == "diagonal", step=0.4, iterations=iterations).value
        for kind in ("full", "diagonal")
    }
    about = {
        "decoder": torch.arange(count).repeat_interleave(angles),
        "angle": torch.rad2deg(angle).repeat(count),
        "evidence": evidence,
    }
    return table_of(about | {kind: evidence + loss for kind, loss in best.items()})


def _apply(turn: Tensor, vector: Tensor) -> Tensor:
    return (turn @ vector[..., None])[..., 0]
