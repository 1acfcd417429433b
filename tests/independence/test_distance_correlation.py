"""Distance correlation against matrices of distances, closed forms and invariances."""

import math

import pytest
import torch

from unseam.independence import Dcor, distance_correlation
from unseam.independence._samples import as_stack


def naive(samples):
    """R by centred matrices of distances (Székely, Rizzo & Bakirov 2007, Defs. 3 to 5)."""
    distances = (samples.T[:, :, None] - samples.T[:, None, :]).abs()
    rows, columns = distances.mean(2, keepdim=True), distances.mean(1, keepdim=True)
    centred = distances - rows - columns + distances.mean((1, 2), keepdim=True)
    return ratio(torch.einsum("iab,jab->ij", centred, centred)).clamp(min=0).sqrt()


def naive_corrected(samples):
    """Bias-corrected R² by U-centred matrices (Székely & Rizzo 2014, Eqs. 2.2 and 3.1)."""
    n = len(samples)
    distances = (samples.T[:, :, None] - samples.T[:, None, :]).abs()
    rows, columns = distances.sum(2, keepdim=True), distances.sum(1, keepdim=True)
    total = distances.sum((1, 2), keepdim=True)
    centred = distances - rows / (n - 2) - columns / (n - 2) + total / ((n - 1) * (n - 2))
    centred = centred * (1 - torch.eye(n, dtype=torch.float64))
    return ratio(torch.einsum("iab,jab->ij", centred, centred))


def ratio(covariance):
    """0 where a component has no variance; entries are of order 1 and more, or nothing but rounding."""
    covariance = torch.where(covariance.abs() > 1e-12, covariance, 0.0)
    spread = covariance.diagonal().sqrt()
    return (covariance / (spread[:, None] * spread)).nan_to_num(0.0)


@pytest.mark.parametrize("kind", ["uniform", "normal", "discrete", "dependent"])
@pytest.mark.parametrize("points", [4, 5, 31, 32, 33, 100])
def test_distance_correlation_is_its_definition(draw, kind, points):
    samples = draw(kind, points, seed=points)
    found = distance_correlation(samples)
    # Rounding is relative to R² = 1, and R is its root.
    torch.testing.assert_close(found.correlation**2, naive(samples) ** 2, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.corrected, naive_corrected(samples), rtol=0, atol=1e-11)


def test_heavy_tails_keep_their_digits(draw):
    samples = draw("Cauchy", 200)
    torch.testing.assert_close(distance_correlation(samples).correlation, naive(samples), rtol=1e-9, atol=0)


def test_two_values_have_the_correlation_itself():
    """The distance of two values is affine in their product, so R is the absolute correlation."""
    s = torch.tensor([1.0, 1, 1, -1, -1, -1, 1, -1, 1, 1], dtype=torch.float64)
    t = torch.tensor([1.0, 1, 1, -1, -1, 1, 1, -1, -1, -1], dtype=torch.float64)
    expected = torch.corrcoef(torch.stack([s, t]))[0, 1].abs()
    found = distance_correlation(torch.stack([s, t], dim=1)).correlation[0, 1]
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


def test_a_straight_line_has_one_at_many_points():
    """At 20 000 points a single matrix of distances would take 3.2 GB."""
    x = torch.randn(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = distance_correlation(torch.stack([x, 2 - 3 * x], dim=1))
    torch.testing.assert_close(found.correlation, torch.ones(2, 2, dtype=torch.float64), rtol=0, atol=1e-10)


def test_corrected_is_zero_on_average_for_independent_components(draw):
    samples = torch.stack([draw("normal", 20, 2, seed) for seed in range(400)])
    found = distance_correlation(samples).corrected[:, 0, 1]
    assert abs(found.mean()) < 4 * found.std() / math.sqrt(len(found))
    assert found.min() < 0


def test_correlation_does_not_depend_on_shift_scale_sign_and_order(draw):
    samples = draw("dependent")
    expected = distance_correlation(samples).correlation
    moved = samples * torch.tensor([3.0, -0.01, 1e4], dtype=torch.float64) + 5
    torch.testing.assert_close(distance_correlation(moved).correlation, expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(
        distance_correlation(samples.flip(0)).correlation, expected, rtol=0, atol=1e-12
    )
    order = [2, 0, 1]
    again = distance_correlation(samples[:, order]).correlation
    torch.testing.assert_close(again, expected[order][:, order], rtol=0, atol=1e-12)


def test_a_set_gives_the_same_alone(draw):
    stack = torch.stack([draw("normal"), draw("discrete"), draw("dependent")])
    for alone, together in zip(stack, distance_correlation(stack).correlation, strict=True):
        torch.testing.assert_close(distance_correlation(alone).correlation, together, rtol=1e-12, atol=0)


def test_a_constant_component_has_none(draw):
    samples = draw("normal")
    samples[:, 1] = 0.1
    found = distance_correlation(samples)
    for matrix in found:
        assert (matrix[1] == 0).all()
        assert (matrix[:, 1] == 0).all()
        assert matrix[0, 0] == 1


def test_joint_statistic_is_each_component_against_all_later(draw):
    """Matteson & Tsay 2017, with the directions that were drawn."""
    samples = draw("dependent", 40, 3)
    samples = torch.cat([samples, draw("normal", 40)[:, :1]], 1)
    statistic = Dcor(directions=5)
    state = statistic.prepare(as_stack(samples), torch.Generator().manual_seed(0))
    order = torch.arange(40).expand(1, 4, -1)
    found = statistic.measure(state, order)
    distances = (samples.T[:, :, None] - samples.T[:, None, :]).abs()
    rows, columns = distances.mean(2, keepdim=True), distances.mean(1, keepdim=True)
    centred = distances - rows - columns + distances.mean((1, 2), keepdim=True)
    scaled = samples / centred.square().mean((1, 2)).sqrt()
    squares = []
    for first in range(3):
        mixed = [scaled[:, first + 1 :] @ u[first, first + 1 :] for u in state.directions]
        each = [naive(torch.stack([samples[:, first], y], 1))[0, 1] ** 2 for y in mixed]
        squares.append(torch.stack(each).mean())
    expected = torch.stack(squares).mean().sqrt()
    torch.testing.assert_close(found.joint[0, 0], expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(
        state.directions.square().sum(-1)[:, :3], torch.ones(5, 3, dtype=torch.float64)
    )


def test_two_components_have_their_distance_correlation_as_joint_statistic(draw):
    samples = draw("dependent")[:, :2]
    statistic = Dcor()
    state = statistic.prepare(as_stack(samples), torch.Generator().manual_seed(0))
    found = statistic.measure(state, torch.arange(len(samples)).expand(1, 2, -1))
    expected = distance_correlation(samples).correlation[0, 1]
    torch.testing.assert_close(found.joint[0, 0], expected, rtol=1e-12, atol=0)


def test_float32_comes_back(draw):
    assert distance_correlation(draw("normal").float()).corrected.dtype == torch.float32


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="directions must be at least 1, got 0"):
        Dcor(directions=0)


def test_many_components_are_taken_by_parts(draw):
    """Twelve components have 66 pairs, more than are looked at together."""
    samples = draw("uniform", 20, 12)
    found = distance_correlation(samples).correlation
    torch.testing.assert_close(found**2, naive(samples) ** 2, rtol=0, atol=1e-12)
