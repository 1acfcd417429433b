"""HSIC against its definition with Gram matrices, closed forms and invariances."""

import math

import pytest
import torch

from unseam.independence import Hsic, hsic, median_distance
from unseam.independence._samples import as_stack

POINTS = 60
# What the incomplete factors may leave out of each trace is 1e-6 of it, and HSIC is bilinear in them.
TRUNCATION = 2e-6


def grams(samples):
    """Kernel matrices (component, batch, batch) by their definition."""
    distances = (samples.T[:, :, None] - samples.T[:, None, :]).abs()
    matrices = []
    for distance in distances:
        positive = distance[distance > 0]
        # All ordered pairs, each distance twice: the lower median is the same.
        median = positive.sort().values[(len(positive) // 2 + 1) // 2 * 2 - 1]
        matrices.append((-(distance**2) / (2 * median**2)).exp())
    return torch.stack(matrices)


@pytest.mark.parametrize("kind", ["uniform", "normal", "Cauchy", "discrete", "rare"])
def test_hsic_is_its_definition(draw, kind):
    samples = draw(kind)
    samples[:, 1] += samples[:, 0] ** 2
    kernels = grams(samples)
    centre = torch.eye(POINTS, dtype=torch.float64) - 1 / POINTS
    centred = centre @ kernels @ centre
    expected = torch.einsum("iab,jab->ij", centred, centred) / POINTS**2
    torch.testing.assert_close(hsic(samples, rank=POINTS), expected, rtol=0, atol=TRUNCATION)


def test_hsic_of_two_values_is_their_squared_covariance():
    """The kernel of two values is affine in their indicator, so HSIC is (1 − e^{-1/2})² Cov(s, t)² / 4, s, t = ±1."""
    s = torch.tensor([1.0, 1, 1, -1, -1, -1, 1, -1, 1, 1], dtype=torch.float64)
    t = torch.tensor([1.0, 1, 1, -1, -1, 1, 1, -1, -1, -1], dtype=torch.float64)
    covariance = (s * t).mean() - s.mean() * t.mean()
    expected = (1 - math.exp(-0.5)) ** 2 * covariance**2 / 4
    found = hsic(torch.stack([s, t], dim=1))[0, 1]
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


def test_a_few_columns_suffice(draw):
    samples = draw("normal", points=500)
    exact = hsic(samples, rank=500)
    errors = [float((hsic(samples, rank=rank) - exact).abs().max()) for rank in (2, 4, 8, 16)]
    assert errors == sorted(errors, reverse=True)
    assert float((hsic(samples) - exact).abs().max()) < TRUNCATION


def test_hsic_does_not_depend_on_shift_scale_sign_and_order(draw):
    samples = draw("normal")
    expected = hsic(samples)
    moved = samples * torch.tensor([3.0, -0.01, 1e4], dtype=torch.float64) + 5
    # A shift of 5 in a component of spread 0.01 costs a thousandfold rounding.
    torch.testing.assert_close(hsic(moved), expected, rtol=0, atol=1e-11)
    order = [2, 0, 1]
    torch.testing.assert_close(hsic(samples[:, order]), expected[order][:, order], rtol=1e-12, atol=0)
    torch.testing.assert_close(hsic(samples.flip(0)), expected, rtol=0, atol=TRUNCATION)


def test_a_set_gives_the_same_alone(draw):
    stack = torch.stack([draw("normal"), draw("discrete"), draw("Cauchy")])
    for alone, together in zip(stack, hsic(stack), strict=True):
        torch.testing.assert_close(hsic(alone), together, rtol=1e-12, atol=1e-17)


def test_a_constant_component_has_none(draw):
    samples = draw("normal")
    samples[:, 1] = 0.1
    found = hsic(samples)
    assert found[1].abs().max() < 1e-30
    assert found[0, 0] > 0


@pytest.mark.parametrize("kind", ["normal", "Cauchy", "discrete", "rare"])
@pytest.mark.parametrize("points", [4, 5, 60, 61])
def test_median_distance_is_the_median_of_positive_distances(draw, kind, points):
    samples = draw(kind, points=points, seed=3)
    samples[0] += 1  # no component is constant
    found = median_distance(samples)
    for component, value in zip(samples.T, found, strict=True):
        distances = torch.pdist(component[:, None])
        positive = distances[distances > 0].sort().values
        expected = positive[(len(positive) - 1) // 2]
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)


def test_joint_statistic_is_dhsic(draw):
    """Over many frequencies, the mean is dHSIC by its three sums of kernel products (Pfister et al. 2018, Eq. 8)."""
    samples = draw("normal")
    samples[:, 2] = samples[:, 2].abs() * (samples[:, 0] * samples[:, 1]).sign()
    kernels = grams(samples)
    expected = kernels.prod(0).mean() + kernels.mean((1, 2)).prod() - 2 * kernels.mean(2).prod(0).mean()
    statistic = Hsic(frequencies=500)
    order = torch.arange(POINTS).expand(1, 3, -1)
    found = torch.stack(
        [
            statistic.measure(
                statistic.prepare(as_stack(samples), torch.Generator().manual_seed(seed)), order
            ).joint[0, 0]
            for seed in range(30)
        ]
    )
    error = found.std() / math.sqrt(len(found))
    assert error < 0.05 * expected
    assert abs(found.mean() - expected) < 4 * error


def test_float32_comes_back(draw):
    assert hsic(draw("normal").float()).dtype == torch.float32
    assert median_distance(draw("normal").numpy()).dtype == torch.float64


@pytest.mark.parametrize("options, message", [({"rank": 0}, "rank must be at least 1, got 0"),
                                              ({"frequencies": 0}, "frequencies must be at least 1, got")])  # fmt: skip
def test_parameters_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Hsic(**options)


def test_rank_is_checked(draw):
    with pytest.raises(ValueError, match="rank must be at least 1, got -1"):
        hsic(draw("normal"), rank=-1)
