"""A world of your own: a ring in the plane."""

import math

import torch

from unseam import choices
from unseam.data import ArrayWorld


def ring(*, size: int = 1000, radius: float = 1.0, seed: int = 0) -> ArrayWorld:
    """Points at uniform angles; the parameters are the options of ``--world-option``."""
    angle = 2 * math.pi * torch.rand(size, 1, generator=torch.Generator().manual_seed(seed))
    return ArrayWorld(
        radius * torch.cat([angle.cos(), angle.sin()], dim=1),
        angle,
        name="ring",
        factor_names=("angle",),
        factor_sizes=(0,),  # continuous
        options={"size": size, "radius": radius, "seed": seed},
    )


RING = choices.World("ring", "ring", ring)
