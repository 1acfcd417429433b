"""Mixed sources and their exact posterior (sikka2019 Eqs. 17-19)."""

import json
import math

import numpy as np
import pytest
import torch

from unseam.data.digits import digit_images
from unseam.data.mixture import mixture, source_posterior

FIGURE_1 = 0.5 * (1 + np.eye(128, 2))


def joint_gaussian(mixing: np.ndarray, noise: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Condition the joint Gaussian of (s, x) on x, in the form of sikka2019 Eq. 49."""
    covariance = mixing @ mixing.T + noise**2 * np.eye(len(mixing))
    gain = mixing.T @ np.linalg.inv(covariance)
    return x @ gain.T, np.eye(mixing.shape[1]) - gain @ mixing


@pytest.mark.parametrize("noise", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("mixing", [FIGURE_1, np.random.default_rng(0).normal(size=(6, 3))])
def test_posterior_is_the_joint_gaussian_conditioned(mixing, noise):
    world = mixture(size=20, mixing=mixing, noise=noise, seed=1)
    x = world.images(torch.arange(20)).double()
    mean, covariance = joint_gaussian(mixing, noise, x.numpy())
    found = world.posterior(x)
    torch.testing.assert_close(found.mean, torch.from_numpy(mean))
    torch.testing.assert_close(found.covariance, torch.from_numpy(covariance))


def test_posterior_at_unit_noise_is_equation_19_as_printed():
    mixing = torch.from_numpy(FIGURE_1)
    x = torch.randn(4, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    covariance = torch.linalg.inv(mixing.T @ mixing + torch.eye(2, dtype=torch.float64))
    found = source_posterior(mixing, 1.0, x)
    torch.testing.assert_close(found.covariance, covariance)
    torch.testing.assert_close(found.mean, x @ mixing @ covariance)


def test_posterior_is_calibrated_on_the_sources():
    world = mixture(size=20_000, mixing=[[1.0, 0.5], [0.5, 1.0], [0.2, 0.1]], noise=0.7)
    found = world.posterior(world.images(torch.arange(20_000)).double())
    error = world.factors.double() - found.mean
    torch.testing.assert_close(error.T.cov(), found.covariance, atol=0.01, rtol=0)


def test_data_have_the_covariance_of_equation_18():
    mixing = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    x = mixture(size=50_000, mixing=mixing).images(torch.arange(50_000)).double()
    torch.testing.assert_close(
        x.T.cov(), mixing @ mixing.T + torch.eye(2), atol=0.05, rtol=0, check_dtype=False
    )


def test_columns_are_digit_images():
    world = mixture(size=3)
    assert world.shape == (1, 28, 28)
    assert torch.equal(world.mixing.T.reshape(10, 28, 28), digit_images())
    assert torch.equal(world.generator(torch.eye(10, dtype=torch.float64))[4, 0], digit_images()[4])
    assert world.factor_sizes == (0,) * 10


def test_shipped_digits_are_ten_clean_different_pictures():
    images = digit_images()
    assert images.shape == (10, 28, 28)
    assert images.min() == 0
    assert images.max() == 1
    assert torch.linalg.matrix_rank(images.reshape(10, -1)) == 10


def test_two_digits_of_appendix_c_and_any_choice():
    assert mixture(size=1, digits=2).options["digits"] == [0, 1]
    assert torch.equal(mixture(size=1, digits=(7, 3)).mixing[:, 0], digit_images()[7].reshape(-1))


def test_float32_in_gives_float32_out():
    world = mixture(size=2)
    assert world.posterior(world.images(torch.arange(2))).mean.dtype == torch.float32


def test_options_are_json_and_make_the_world_again():
    world = mixture(size=4, mixing=[[1.0], [2.0]], noise=0.5, seed=9)
    again = mixture(**json.loads(json.dumps(world.options)))
    assert torch.equal(again.table, world.table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"digits": 11}, "digits must be a number from 1 to 10 or distinct digits"),
        ({"digits": (3, 3)}, r"digits must be .* got \(3, 3\)"),
        ({"digits": 0}, "digits must be"),
        ({"mixing": [1.0, 2.0]}, r"mixing must be a finite matrix \(data, source\), got shape \(2,\)"),
        ({"mixing": [[math.nan]]}, "mixing must be a finite matrix"),
        ({"noise": 0.0}, "noise must be a positive standard deviation, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        mixture(**options)
