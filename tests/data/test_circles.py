"""Small circles on a larger one (allen2024 Fig. 2)."""

import math

import pytest
import torch

from unseam.data.circles import circles


def test_points_lie_on_their_circles():
    world = circles(size=500, circles=5, radius=0.5, centre_radius=2.0)
    x, which = world.images(torch.arange(500)).double(), world.factors[:, 0].double()
    centres = 2.0 * torch.stack([(2 * math.pi * which / 5).cos(), (2 * math.pi * which / 5).sin()], dim=-1)
    offset = x - centres
    torch.testing.assert_close(offset.norm(dim=-1), torch.full((500,), 0.5).double(), atol=1e-5, rtol=0)
    angle = torch.atan2(offset[:, 1], offset[:, 0]) % (2 * math.pi)
    difference = (angle - world.factors[:, 1].double() + math.pi) % (2 * math.pi) - math.pi
    assert difference.abs().max() < 1e-5


def test_covariance_is_that_of_the_two_radii():
    x = circles(size=50_000).images(torch.arange(50_000)).double()
    expected = torch.eye(2, dtype=torch.float64) * (10**2 + 3**2) / 2
    torch.testing.assert_close(x.T.cov(), expected, atol=0.6, rtol=0)


def test_noise_spreads_the_points_around_the_generator():
    world = circles(size=20_000, noise=0.2)
    error = world.images(torch.arange(20_000)).double() - world.generator(world.factors.double())
    torch.testing.assert_close(error.T.cov(), 0.04 * torch.eye(2, dtype=torch.float64), atol=2e-3, rtol=0)


def test_factors_are_a_circle_and_an_angle():
    world = circles(size=1000, circles=3)
    assert world.factor_sizes == (3, 0)
    assert set(world.factors[:, 0].tolist()) == {0.0, 1.0, 2.0}
    assert world.factors[:, 1].min() >= 0
    assert world.factors[:, 1].max() < 2 * math.pi


def test_generator_is_differentiable_in_the_angle():
    factors = torch.tensor([[1.0, 0.4]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(circles(size=1).generator, factors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be at least 1"),
        ({"circles": 0}, "circles must be at least 1, got 0"),
        ({"radius": 0.0}, "radius must be a positive number, got 0"),
        ({"centre_radius": math.inf}, "centre_radius must be a positive number, got inf"),
        ({"noise": -0.1}, "noise must be a standard deviation, at least 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        circles(**options)
