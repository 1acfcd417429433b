"""Proposition 1 of rolinek2019: orthogonal columns and right singular vectors along the axes, one from the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unseam.geometry import distance_to_orthogonality
from unseam.papers.rolinek2019._draws import normal, orthogonal
from unseam.papers.rolinek2019._findings import table_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ORTHOGONAL",
    "PERMUTED",
    "REPEATED",
    "TURNED",
    "axis_checks",
    "largest_cosine",
    "lengths_and_distance",
    "right_vectors",
]

ORTHOGONAL, PERMUTED, TURNED, REPEATED = "orthogonal columns", "|V| a permutation", "turned", "repeated value"
# Ratio of neighbouring singular values at least, where they are to be distinct.
_APART = 1.1


def axis_checks(latent: int, matrices: int, generator: torch.Generator) -> pd.DataFrame:
    """Largest cosine between columns and distance of V from a signed permutation, for random matrices of four kinds."""
    import pandas as pd

    frame = orthogonal(matrices, latent + 2, latent, generator=generator)
    scales = _distinct(matrices, latent, generator)
    columns = frame * scales[:, None]
    permutation = _signed_permutations(matrices, latent, generator)
    # angles from barely to fully turned
    size = 10 ** (-4 * torch.rand(matrices, 1, 1, generator=generator, dtype=torch.float64))
    skew = normal(matrices, latent, latent, generator=generator)
    turned = columns @ torch.linalg.matrix_exp(size * (skew - skew.mT) / latent)
    parts = {
        ORTHOGONAL: _measured(columns, right_vectors(columns)),
        PERMUTED: _measured(frame @ (scales[..., None] * permutation.mT), permutation),
        TURNED: _measured(turned, right_vectors(turned)),
        REPEATED: _repeated(frame, scales, generator),
    }
    tables = [table_of(part).assign(kind=kind, latent=latent) for kind, part in parts.items()]
    return pd.concat(tables, ignore_index=True)


def _repeated(frame: Tensor, scales: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Orthogonal columns, two of them of one length, with an SVD whose V is turned among the two."""
    scales = torch.cat([scales[:, :1], scales[:, :1], scales[:, 2:]], 1)
    turn = torch.eye(scales.shape[1], dtype=torch.float64).repeat(len(scales), 1, 1)
    turn[:, :2, :2] = orthogonal(len(scales), 2, 2, generator=generator)
    columns = frame * scales[:, None]
    rebuilt = (frame @ turn * scales[:, None]) @ turn.mT
    missed = torch.linalg.matrix_norm(rebuilt - columns) / torch.linalg.matrix_norm(columns)
    return _measured(columns, turn) | {"missed": missed}


def _measured(columns: Tensor, right: Tensor) -> dict[str, Tensor]:
    return {"cosine": largest_cosine(columns), "dto": distance_to_orthogonality(right)}


def right_vectors(columns: Tensor) -> Tensor:
    """V (..., latent, latent) of matrices (..., data, latent)."""
    return torch.linalg.svd(columns, full_matrices=False).Vh.mT


def largest_cosine(columns: Tensor) -> Tensor:
    """Largest absolute cosine between two columns (...)."""
    unit = torch.nn.functional.normalize(columns, dim=-2)
    return (unit.mT @ unit).abs().tril(-1).amax((-2, -1))


def lengths_and_distance(cosines: tuple[float, ...], gaps: int, generator: torch.Generator) -> pd.DataFrame:
    """DtO of two columns that are not quite orthogonal, against how different their lengths are; closed form beside.

    V is turned by θ with tan 2θ = 2 cos α ‖c_1‖‖c_2‖ / (‖c_1‖² − ‖c_2‖²) and lies 2√2 sin(θ/2) from the identity.
    """
    import pandas as pd

    gap = torch.logspace(-4, 1, gaps, dtype=torch.float64)
    tables = []
    for cosine in cosines:
        longer = 1 + gap
        shape = torch.zeros(gaps, 2, 2, dtype=torch.float64)
        shape[:, 0, 0], shape[:, 0, 1], shape[:, 1, 1] = longer, cosine, (1 - cosine**2) ** 0.5
        columns = orthogonal(gaps, 4, 2, generator=generator) @ shape
        angle = torch.atan2(2 * cosine * longer, longer.square() - 1) / 2
        distance = distance_to_orthogonality(right_vectors(columns))
        exact = 2 * 2**0.5 * torch.sin(angle / 2)
        tables.append(table_of({"gap": gap, "dto": distance, "closed form": exact}).assign(cosine=cosine))
    return pd.concat(tables, ignore_index=True)


def _distinct(matrices: int, latent: int, generator: torch.Generator) -> Tensor:
    """Singular values (matrix, latent) apart by a tenth at least, in random order."""
    steps = _APART + torch.rand(matrices, latent, generator=generator, dtype=torch.float64)
    order = torch.rand(matrices, latent, generator=generator).argsort(1)
    return (steps.cumprod(1) / steps.prod(1, keepdim=True).sqrt()).gather(1, order)


def _signed_permutations(matrices: int, latent: int, generator: torch.Generator) -> Tensor:
    order = torch.rand(matrices, latent, generator=generator).argsort(1)
    signs = torch.randint(2, (matrices, 1, latent), generator=generator) * 2.0 - 1
    return torch.eye(latent, dtype=torch.float64)[order] * signs
