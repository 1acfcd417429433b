"""What several tests of independence share: samples of every kind."""

import math

import pytest
import torch


@pytest.fixture(scope="session")
def draw():
    """Samples (points, components) of a kind, by its name."""

    def samples(kind, points=60, components=3, seed=0):
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(points, components, generator=generator, dtype=torch.float64)
        return {
            "uniform": lambda: uniform,
            "normal": lambda: torch.special.ndtri(uniform),
            "Cauchy": lambda: (math.pi * (uniform - 0.5)).tan(),
            "discrete": lambda: (4 * uniform).floor(),
            "rare": lambda: (uniform > 0.9).double(),
            "dependent": lambda: torch.stack(
                [uniform[:, 0], uniform[:, 0] ** 2, uniform[:, 1] * uniform[:, 0]], 1
            ),
        }[kind]()

    return samples
