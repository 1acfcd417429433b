"""Unit squares embedded linearly in three and non-linearly in six dimensions (rolinek2019 Suppl. 8.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unseam import choices
from unseam.data.array import ArrayWorld
from unseam.data.world import check_room

__all__ = ["linear", "nonlinear"]

LINEAR = choices.World("linear", "linear square", "unseam.data.square:linear")
NONLINEAR = choices.World("nonlinear", "nonlinear square", "unseam.data.square:nonlinear")

AXIS = (1.0, -1.0, 1.0)
"""Line about which the linear embedding is rotated (rolinek2019 Suppl. 8.5, step 3)."""


def linear(*, size: int = 50_000, ratio: float = 2.0, seed: int = 0) -> ArrayWorld:
    """Points of a unit square, stretched, laid into R^3 and rotated.

    x = R [diag(ratio, 1); 0] w with w uniform on [0, 1]^2 and R the rotation by 45° about the line through
    (1, −1, 1): rolinek2019 Suppl. 8.5, Synth. Lin. (ratio 2); ratios 1.0, 1.2 and 1.5 are Table S4.

    Args:
        size: number of points.
        ratio: stretch of the first axis.
        seed: seed of the points.

    >>> linear(size=4).images(torch.arange(4)).shape
    torch.Size([4, 3])
    """
    _check_size(size)
    if not 0 < ratio < math.inf:
        raise ValueError(f"ratio must be a positive number, got {ratio}")
    stretch = torch.tensor([[ratio, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    embedding = _Linear(_rotation(AXIS, math.pi / 4) @ stretch)
    points = torch.rand(size, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    return ArrayWorld(
        embedding(points.double()).float(),
        points,
        name="linear",
        factor_names=("w1", "w2"),
        factor_sizes=(0, 0),
        options={"size": size, "ratio": ratio, "seed": seed},
        generator=embedding,
        mixing=embedding.matrix,
    )


def nonlinear(*, size: int = 50_000, gain: float = 1.0, seed: int = 0) -> ArrayWorld:
    """Points of a unit square mapped to R^6 by a random network.

    x = W2 tanh(W1 w + b1) + b2 with w uniform on [0, 1]^2 and one hidden layer of width 10: rolinek2019
    Suppl. 8.5, Synth. Non-Lin. The paper names "biases and tanh nonlinearities" only. Here tanh stands in the
    hidden layer and the output is linear, as in the paper's other networks; weights and biases are uniform on
    ±gain/√fan-in.

    Args:
        size: number of points.
        gain: scale of the network's parameters; 1 is the usual initialisation, more bends the square more.
        seed: seed of the network, then of the points; the network does not depend on ``size``.

    >>> nonlinear(size=4).images(torch.arange(4)).shape
    torch.Size([4, 6])
    """
    _check_size(size)
    if not 0 < gain < math.inf:
        raise ValueError(f"gain must be a positive number, got {gain}")
    random = torch.Generator().manual_seed(seed)
    embedding = _Network(*_layer(2, 10, gain, random), *_layer(10, 6, gain, random))
    points = torch.rand(size, 2, generator=random, dtype=torch.float32)
    return ArrayWorld(
        embedding(points.double()).float(),
        points,
        name="nonlinear",
        factor_names=("w1", "w2"),
        factor_sizes=(0, 0),
        options={"size": size, "gain": gain, "seed": seed},
        generator=embedding,
    )


@dataclass(frozen=True)
class _Linear:
    """x = A w, with A (data, factor) in float64."""

    matrix: Tensor

    def __call__(self, factors: Tensor) -> Tensor:
        """Map factors (batch, factor) to x (batch, data), in the type and on the device of the factors."""
        factors = torch.as_tensor(factors)
        return factors @ self.matrix.to(factors).T


@dataclass(frozen=True)
class _Network:
    """x = W2 tanh(W1 w + b1) + b2, parameters in float64."""

    weight_1: Tensor
    bias_1: Tensor
    weight_2: Tensor
    bias_2: Tensor

    def __call__(self, factors: Tensor) -> Tensor:
        """Map factors (batch, 2) to x (batch, 6), in the type and on the device of the factors."""
        factors = torch.as_tensor(factors)
        hidden = torch.tanh(factors @ self.weight_1.to(factors).T + self.bias_1.to(factors))
        return hidden @ self.weight_2.to(factors).T + self.bias_2.to(factors)


def _layer(inputs: int, outputs: int, gain: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weight and bias uniform on ±gain/√inputs."""
    bound = gain / math.sqrt(inputs)
    weight = torch.rand(outputs, inputs, generator=random, dtype=torch.float64)
    bias = torch.rand(outputs, generator=random, dtype=torch.float64)
    return bound * (2 * weight - 1), bound * (2 * bias - 1)


def _rotation(axis: tuple[float, float, float], angle: float) -> Tensor:
    """Rotation matrix about an axis through the origin, counter-clockwise seen from its tip (Rodrigues)."""
    x, y, z = (component / math.hypot(*axis) for component in axis)
    cross = torch.tensor([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]], dtype=torch.float64)
    return torch.eye(3, dtype=torch.float64) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross


def _check_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    check_room("size", size, (10,))
