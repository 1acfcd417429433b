"""Proposition 4 of rolinek2019: the squared error split in two, for decoders without a bias and for those with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unseam.papers.rolinek2019._draws import normal, normal_grid
from unseam.papers.rolinek2019._findings import table_of
from unseam.papers.rolinek2019._models import draw_curved

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["bias_shares", "linear_splits", "split_of"]


def linear_splits(decoders: int, generator: torch.Generator, device: torch.device) -> pd.DataFrame:
    """The split for linear decoders of two latents, at random codes, data and variances."""
    weights = normal(decoders, 7, 2, generator=generator).to(device)
    x, mean = (normal(decoders, size, generator=generator).to(device) for size in (7, 2))
    spread = torch.rand(decoders, 2, generator=generator, dtype=torch.float64).to(device)
    return split_of(lambda z: z @ weights.mT, x, mean, spread, step=0.5)


def bias_shares(
    decoders: int,
    spreads: tuple[float, ...],
    misses: tuple[float, ...],
    *,
    generator: torch.Generator,
    device: torch.device,
) -> pd.DataFrame:
    """The split for tanh decoders whose reconstructions miss x by so many times the data's own spread."""
    import pandas as pd

    model = draw_curved(decoders, width=16, data=5, noise=0.25, generator=generator).to(device)
    mean = model.code
    places, weights = normal_grid(0.5, like=mean)
    outputs = model.decode(places.expand(decoders, -1, -1))
    varied = (outputs - (outputs.mT @ weights)[:, None]).square().sum(-1) @ weights
    way = torch.nn.functional.normalize(normal(decoders, 5, generator=generator), dim=1).to(device)
    centre = model.decode(mean[:, None])[:, 0]
    tables = [
        split_of(
            model.decode,
            centre - miss * varied.sqrt()[:, None] * way,
            mean,
            torch.full_like(mean, spread),
            step=0.25,
        ).assign(miss=miss, spread=spread, decoder=range(decoders))
        for miss in misses
        for spread in spreads
    ]
    return pd.concat(tables, ignore_index=True)


def split_of(
    decode: Callable[[Tensor], Tensor], x: Tensor, mean: Tensor, spread: Tensor, *, step: float
) -> pd.DataFrame:
    """Eqs. 11, 13 and 14 (decoder,) for q = N(mean, diag spread²), and twice the inner product of error and bias.

    Expectations by the trapezoidal rule, each on its own: nothing here knows that three parts should make a whole.
    """
    place, weight = normal_grid(step, like=mean)
    centre = decode(mean[:, None])[:, 0]
    noisy = decode(mean[:, None] + spread[:, None] * place)
    bias = (noisy.mT @ weight) - centre
    parts = {
        "total": (noisy - x[:, None]).square().sum(-1) @ weight,
        "deterministic": (centre - x).square().sum(-1),
        "stochastic": (noisy - centre[:, None]).square().sum(-1) @ weight,
        "bias": 2 * ((centre - x) * bias).sum(-1),
    }
    return table_of(parts)
