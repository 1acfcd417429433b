"""A metric of your own: how well single latents follow single factors, by absolute correlation."""

from typing import NamedTuple

import torch
from torch import Tensor


class Score(NamedTuple):
    """``score`` (member,); intervals and settings are optional."""

    score: Tensor


def best_correlation(codes: Tensor, factors: Tensor, **_: object) -> Score:
    """Mean over factors of the largest |correlation| with a latent; codes (member, batch, latent)."""
    z, v = codes.double(), factors.double()
    z, v = z - z.mean(1, keepdim=True), v - v.mean(0)
    covariance = torch.einsum("mbl,bf->mlf", z, v)
    found = covariance.abs() / (z.norm(dim=1)[:, :, None] * v.norm(dim=0))
    return Score(found.nan_to_num().amax(1).mean(1))
