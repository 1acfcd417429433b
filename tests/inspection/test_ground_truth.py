"""The true generator of `sprites` under the same instruments: how orthogonal its factors are."""

import math

import pytest
import torch

import unseam
from unseam.data import render_sprites


def renderer(shape):
    def draw(factors):
        scale, turn, x, y = factors.unbind(1)
        kind = torch.full((len(factors),), shape)
        pose = (0.5 + scale / 2, 2 * math.pi * turn, x, y)
        return render_sprites(kind, *pose, resolution=32, softness=0.5)

    return draw


@pytest.fixture(scope="module")
def factors():
    return torch.rand(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_jacobian_is_that_of_finite_differences(factors):
    step = 1e-6
    found = unseam.geometry.jacobian(renderer(1), factors[:5])
    for factor in range(4):
        move = torch.zeros(4, dtype=torch.float64)
        move[factor] = step
        ahead, behind = (renderer(1)(factors[:5] + sign * move) for sign in (1, -1))
        expected = ((ahead - behind) / (2 * step)).flatten(1)
        torch.testing.assert_close(found[:, :, factor], expected, rtol=1e-5, atol=1e-5)


def test_an_upright_ellipse_has_orthogonal_factors():
    """By mirror symmetry: scale is even in both axes, x odd in one, y in the other, orientation odd in both."""
    upright = torch.tensor([[0.6, 0.0, 0.5, 0.5], [0.2, 0.5, 0.5, 0.5]], dtype=torch.float64)
    found = unseam.inspect(renderer(1), upright, active=[0, 1, 2, 3])
    assert found.cosine < 1e-7
    assert found.hadamard_gap < 1e-7


def test_a_tilted_ellipse_couples_x_and_y_alone(factors):
    metric = unseam.inspect(renderer(1), factors, active=[0, 1, 2, 3]).pullback
    scale = metric.diagonal(dim1=1, dim2=2).rsqrt()
    cosine = (metric * scale[:, :, None] * scale[:, None, :]).abs().mean(0)
    assert cosine[2, 3] > 0.15
    cosine[2, 3] = cosine[3, 2] = 0
    assert cosine.fill_diagonal_(0).max() < 0.05
