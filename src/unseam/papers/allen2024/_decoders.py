"""Decoders whose geometry is known: linear, orthogonal with and without coupling, and general ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseam.geometry import jacobian
from unseam.independence import IndependenceTest, independence_test
from unseam.inputs import Decoder


def linear(weights: Tensor) -> Decoder:
    """z ↦ Wz with W (data, latent)."""
    return lambda z: z @ weights.to(z).mT


def separable(directions: Tensor, bends: Tensor) -> Decoder:
    """Each latent runs along a curve in a plane of its own, so columns are orthogonal and norms never mix.

    z ↦ Σ_i (a_i sinh(z_i / 2) u_2i + cos(b_i z_i) u_2i+1) with orthonormal u, (data, 2 · latent), and (a, b)
    (2, latent); sinh keeps it injective.
    """
    scale, frequency = bends

    def decode(z: Tensor) -> Tensor:
        along = scale.to(z) * torch.sinh(z / 2)
        across = torch.cos(frequency.to(z) * z)
        return torch.stack([along, across], -1).flatten(1) @ directions.to(z).mT

    return decode


def polar(growth: float) -> Decoder:
    """z ↦ e^{a z_1} (cos θ, sin θ), θ = arctan z_2: injective, orthogonal everywhere, and yet coupled.

    ‖∂x/∂z_1‖ = a e^{a z_1} and ‖∂x/∂z_2‖ = e^{a z_1} / (1 + z_2²): the second depends on both latents.
    """

    def decode(z: Tensor) -> Tensor:
        radius = torch.exp(growth * z[:, 0]) / torch.sqrt(1 + z[:, 1].square())
        return torch.stack([radius, radius * z[:, 1]], 1)

    return decode


def general(inner: Tensor, outer: Tensor) -> Decoder:
    """z ↦ B (z, tanh(A z)) with A (hidden, latent), B (data, latent + hidden) of full column rank: injective."""

    def decode(z: Tensor) -> Tensor:
        return torch.cat([z, torch.tanh(z @ inner.to(z).mT)], 1) @ outer.to(z).mT

    return decode


def sheared(first: float, second: float) -> Decoder:
    """z ↦ (z_1 + a tanh z_2, z_2 + b tanh x_1): two shears of the plane, injective and not orthogonal."""

    def decode(z: Tensor) -> Tensor:
        along = z[:, 0] + first * torch.tanh(z[:, 1])
        return torch.stack([along, z[:, 1] + second * torch.tanh(along)], 1)

    return decode


def arc_coordinates(decoder: Decoder, z: Tensor, *, basis: Tensor | None = None, nodes: int = 32) -> Tensor:
    """Signed length (batch, latent) of each point along its own sub-manifolds, from where that latent is 0.

    s_i(z) = ∫_0^{z_i} ‖∂x/∂z_i‖ dt with the other latents at their values: the coordinate whose density the
    i-th factor of Eq. 13 is. Gauss–Legendre quadrature; ``basis`` V measures in coordinates Vᵀz.
    """
    rotated = z if basis is None else z @ basis.to(z)
    place, weight = (torch.from_numpy(part).to(z) for part in np.polynomial.legendre.leggauss(nodes))
    found = []
    for latent in range(z.shape[1]):
        points = rotated[None].repeat(nodes, 1, 1)
        points[..., latent] *= (place[:, None] + 1) / 2
        inner = points.flatten(0, 1)
        columns = jacobian(decoder, inner if basis is None else inner @ basis.to(z).mT).flatten(1, -2)
        direction = torch.eye(z.shape[1]).to(z)[latent] if basis is None else basis.to(z)[:, latent]
        speed = (columns @ direction).norm(dim=-1).unflatten(0, (nodes, -1))
        found.append(rotated[:, latent] * (weight[:, None] * speed).sum(0) / 2)
    return torch.stack(found, 1)


def arc_independence(arcs: Tensor, settings: Any) -> IndependenceTest:
    """Permutation tests of arc lengths (decoder, point, latent) by distance correlation, one per decoder."""
    random, count = settings.generator(), settings.permutations
    return independence_test(arcs, method="dcor", generator=random, permutations=count, points=None)
