"""A digit moved over a canvas (sikka2019 Fig. 3)."""

import math

import pytest
import torch
import torch.nn.functional as F

from unseam.data.digits import digit_images
from unseam.data.moving_digit import DigitMover, moving_digit

MIXING = torch.tensor([[2.73, 0.73], [0.73, 2.73]], dtype=torch.float64)


def mover(scale: float = 1.5) -> DigitMover:
    return DigitMover(digit_images()[3], MIXING, 1.0, scale, 64)


def test_mixing_matrix_is_the_published_one():
    assert torch.equal(moving_digit(size=1).mixing, 2 * torch.eye(2, dtype=torch.float64) + 0.73)


def test_whole_steps_move_whole_pixels():
    home = mover(1.0).draw(torch.zeros(1, 2, dtype=torch.float64))
    torch.testing.assert_close(home[0, 0, 18:46, 18:46], digit_images()[3])
    moved = mover(1.0).draw(torch.tensor([[3.0, -5.0]], dtype=torch.float64))
    torch.testing.assert_close(moved, home.roll((-5, 3), (-2, -1)))


def test_fractions_agree_with_bilinear_resampling():
    shift = torch.tensor([[2.3, -1.6]], dtype=torch.float64)
    centre = (torch.arange(64, dtype=torch.float64) - 31.5) / 32
    rows, columns = torch.meshgrid(centre, centre, indexing="ij")
    grid = torch.stack([columns - shift[0, 0] / 32, rows - shift[0, 1] / 32], dim=-1)[None]
    home = mover(1.0).draw(torch.zeros(1, 2, dtype=torch.float64))
    expected = F.grid_sample(home, grid, mode="bilinear", align_corners=False)
    torch.testing.assert_close(mover(1.0).draw(shift), expected)


def test_coordinates_are_read_back_exactly_and_mass_is_kept():
    points = torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    images = mover().draw(points)
    torch.testing.assert_close(mover().coordinates(images), points)
    torch.testing.assert_close(images.sum((1, 2, 3)), digit_images()[3].sum().expand(50))
    assert images.min() >= 0
    assert images.max() <= 1


def test_images_are_differentiable_in_the_sources():
    sources = torch.tensor([[0.31, -0.2]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: mover()(s)[:, :, ::7, ::7], sources)


def test_posterior_of_images_is_that_of_their_coordinates():
    world = moving_digit(size=200, noise=0.8)
    x = world.images(torch.arange(200)).double()
    coordinates = world.generator.coordinates(x)
    gain = MIXING.T @ torch.linalg.inv(MIXING @ MIXING.T + 0.64 * torch.eye(2, dtype=torch.float64))
    found = world.posterior(x)
    torch.testing.assert_close(found.mean, coordinates @ gain.T)
    torch.testing.assert_close(found.covariance, torch.eye(2, dtype=torch.float64) - gain @ MIXING)
    error = world.factors.double() - found.mean
    assert (error / found.covariance.diagonal().sqrt()).pow(2).mean().item() == pytest.approx(1.0, abs=0.2)


def test_by_default_nearly_no_digit_is_cut():
    world = moving_digit(size=3000)
    spread = math.sqrt(2.73**2 + 0.73**2 + 1)
    assert world.options["scale"] == pytest.approx(18 / (4 * spread))
    mass = world.images(torch.arange(3000)).double().sum((1, 2, 3))
    cut = (mass - digit_images()[3].sum()).abs() > 1e-3
    assert cut.double().mean() < 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be at least 1"),
        ({"digit": 10}, "digit must be from 0 to 9, got 10"),
        ({"canvas": 28}, "canvas must be larger than the digit's 28 pixels, got 28"),
        ({"scale": 0.0}, "scale must be a positive number of pixels per unit"),
        ({"noise": -1.0}, "noise must be a positive standard deviation"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        moving_digit(**options)
