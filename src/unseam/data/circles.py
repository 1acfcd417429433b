"""Small circles whose centres lie on a larger one (allen2024 Fig. 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unseam import choices
from unseam.data.array import ArrayWorld
from unseam.data.world import check_room

__all__ = ["circles"]

CIRCLES = choices.World("circles", "circles", "unseam.data.circles:circles")


def circles(
    *,
    size: int = 10_000,
    circles: int = 8,
    radius: float = 3.0,
    centre_radius: float = 10.0,
    noise: float = 0.0,
    seed: int = 0,
) -> ArrayWorld:
    """Points in the plane on small circles whose centres lie evenly on a larger circle.

    x = R (cos φ_j, sin φ_j) + r (cos θ, sin θ) + η with φ_j = 2π j / m, circle j and angle θ uniform and η
    ~ N(0, noise² I): the data of allen2024 Fig. 2, after Rezende & Viola (2018). The figure's sizes are not
    given. By default the variance within a circle, r²/2 = 4.5, is above its β = 3.8, and that of the whole,
    (R² + r²)/2 = 54.5, below its β = 60. Factors are the circle j (discrete) and the angle θ in [0, 2π)
    (continuous); angles are measured from the horizontal axis.

    Args:
        size: number of points.
        circles: number m of small circles.
        radius: radius r of the small circles.
        centre_radius: radius R of the circle of centres.
        noise: standard deviation of η.
        seed: seed of the factors, then of the noise.

    >>> circles(size=4).images(torch.arange(4)).shape
    torch.Size([4, 2])
    """
    _check(size, circles, radius, centre_radius, noise)
    random = torch.Generator().manual_seed(seed)
    which = torch.randint(circles, (size, 1), generator=random)
    angle = 2 * math.pi * torch.rand(size, 1, generator=random, dtype=torch.float32)
    eta = torch.randn(size, 2, generator=random, dtype=torch.float64)
    factors = torch.cat([which.float(), angle], dim=-1)
    process = _Circles(circles, float(radius), float(centre_radius))
    return ArrayWorld(
        (process(factors.double()) + noise * eta).float(),
        factors,
        name="circles",
        factor_names=("circle", "angle"),
        factor_sizes=(circles, 0),
        options={
            "size": size,
            "circles": circles,
            "radius": radius,
            "centre_radius": centre_radius,
            "noise": noise,
            "seed": seed,
        },
        generator=process,
    )


@dataclass(frozen=True)
class _Circles:
    """x = R (cos φ_j, sin φ_j) + r (cos θ, sin θ)."""

    circles: int
    radius: float
    centre_radius: float

    def __call__(self, factors: Tensor) -> Tensor:
        """Map (circle, angle) (batch, 2) to x (batch, 2), in their type and on their device."""
        factors = torch.as_tensor(factors)
        centre, angle = 2 * math.pi * factors[:, 0] / self.circles, factors[:, 1]
        return self.centre_radius * _unit(centre) + self.radius * _unit(angle)


def _unit(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def _check(size: int, circles: int, radius: float, centre_radius: float, noise: float) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    check_room("size", size, (2,))
    if circles < 1:
        raise ValueError(f"circles must be at least 1, got {circles}")
    for name, value in (("radius", radius), ("centre_radius", centre_radius)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a positive number, got {value}")
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise must be a standard deviation, at least 0, got {noise}")
