"""Total correlation against closed forms, a naive count of neighbours and scikit-learn."""

import math

import numpy as np
import pytest
import torch
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_regression

from unseam.independence import (
    GaussianTc,
    NeighbourTc,
    gaussian_total_correlation,
    independence_test,
    neighbour_total_correlation,
)
from unseam.independence._samples import as_stack, centred


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def correlation(components, rho):
    return torch.full((components, components), rho, dtype=torch.float64).fill_diagonal_(1.0)


def nats(components, rho):
    """Total correlation of a Gaussian whose components all correlate by rho."""
    return -0.5 * math.log((1 - rho) ** (components - 1) * (1 + (components - 1) * rho))


def normal_scores(points, components, seed=0):
    """Samples whose components are normal scores already."""
    keys = torch.rand(points, components, generator=generator(seed), dtype=torch.float64)
    ranks = (keys + keys[:, :1]).argsort(0).argsort(0)
    return torch.special.ndtri((ranks.double() + 0.5) / points)


@pytest.mark.parametrize("components, rho", [(2, 0.0), (2, 0.9), (5, 0.5), (3, -0.4)])
def test_gaussian_total_correlation_is_the_closed_form(components, rho):
    """Samples whose own correlations are exactly those wanted."""
    samples = normal(100, components)
    samples = samples - samples.mean(0)
    white = torch.linalg.solve_triangular(
        torch.linalg.cholesky(samples.T @ samples), samples.T, upper=False
    ).T
    coloured = white @ torch.linalg.cholesky(correlation(components, rho)).T
    coloured = coloured * torch.arange(1, components + 1) + 3
    found = gaussian_total_correlation(coloured)
    torch.testing.assert_close(
        found, torch.tensor(nats(components, rho), dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_gaussian_total_correlation_ignores_a_constant_component():
    samples = normal(50, 3)
    expected = gaussian_total_correlation(samples)
    constant = torch.cat([samples, torch.full((50, 1), 0.5, dtype=torch.float64)], 1)
    torch.testing.assert_close(gaussian_total_correlation(constant), expected, rtol=1e-12, atol=0)


def test_gaussian_total_correlation_of_a_copy_is_finite():
    x = normal(50, 1)
    found = gaussian_total_correlation(torch.cat([x, 2 * x], 1))
    assert found > 10
    assert found.isfinite()


@pytest.mark.parametrize("components, rho", [(2, 0.0), (2, 0.6), (2, 0.9), (3, 0.5), (5, 0.3)])
def test_neighbours_find_the_closed_form(components, rho):
    """Bias below the standard deviation of a single estimate."""
    samples = normal(10, 1000, components) @ torch.linalg.cholesky(correlation(components, rho)).T
    found = neighbour_total_correlation(samples, generator=generator())
    assert found.std() < 0.1
    assert abs(found.mean() - nats(components, rho)) < found.std()


def neighbourhoods(samples, k):
    """Distances (batch, batch, component) to others, and that of the k-th neighbour (batch, 1, 1)."""
    distances = (samples[:, None] - samples[None]).abs()
    distances[range(len(samples)), range(len(samples))] = math.inf
    return distances, distances.amax(-1).kthvalue(k, dim=1).values[:, None, None]


@pytest.mark.parametrize("components", [2, 3])
def test_neighbours_are_counted_as_in_the_definition(components):
    points, k = 80, 4
    samples = normal_scores(points, components)
    distances, reach = neighbourhoods(samples, k)
    # Scores are symmetric about zero, so many distances are equal but for rounding.
    inside = (distances < reach - 1e-9).sum(1)
    mean = digamma(inside.numpy() + 1).sum(1).mean()
    expected = digamma(k) + (components - 1) * digamma(points) - mean
    found = neighbour_total_correlation(samples, generator=generator(), neighbours=k)
    assert float(found) == pytest.approx(expected, abs=1e-12)


def test_scikit_learn_agrees():
    """Up to its noise of 1e-10, which decides whether points at the very distance of the k-th neighbour count."""
    points, k = 300, 3
    samples = normal_scores(points, 2)
    expected = mutual_info_regression(
        samples[:, :1].numpy(), samples[:, 1].numpy(), n_neighbors=k, random_state=0
    )[0]
    found = neighbour_total_correlation(samples, generator=generator())
    distances, reach = neighbourhoods(samples, k)
    ties = int(((distances - reach).abs() < 1e-9).sum()) - points  # the neighbour itself is no tie
    # A count of at least k that is one more changes its digamma by at most 1/k.
    tolerance = ties / (k * points) + 1e-9
    assert tolerance < 0.01
    assert float(found) == pytest.approx(expected, abs=tolerance)


def test_increasing_maps_change_nothing():
    samples = normal(200, 3)
    samples[:, 1] += samples[:, 0]
    mapped = torch.stack([samples[:, 0].exp(), samples[:, 1] ** 3, 5 * samples[:, 2]], 1)
    found = [neighbour_total_correlation(given, generator=generator(4)) for given in (samples, mapped)]
    assert found[0] == found[1]


def test_discrete_components_have_the_total_correlation_of_their_table():
    """Two equal bits share log 2, less for neighbourhoods that reach over the edges of the squares they fill."""
    points, k = 1000, 3
    bit = (torch.rand(20, points, 1, generator=generator(), dtype=torch.float64) < 0.5).double()
    found = torch.stack(
        [
            neighbour_total_correlation(one.expand(-1, 2), generator=generator(seed))
            for seed, one in enumerate(bit)
        ]
    )
    # In ranks, two squares of side 1/2 and density 2; k points fill a square of side (k / 2n)^½, half of which
    # reaches over the two inner edges from 2 (k / 2n)^½ of all points.
    reaching = 2 * math.sqrt(k / (2 * points))
    assert reaching < 0.1
    error = found.std() / math.sqrt(len(found))
    assert -reaching * math.log(2) - 4 * error < found.mean() - math.log(2) < 4 * error


def test_ties_are_broken_at_random_by_the_generator():
    samples = (4 * torch.rand(100, 2, generator=generator(), dtype=torch.float64)).floor()
    first, again, other = (
        neighbour_total_correlation(samples, generator=generator(seed)) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("statistic", [NeighbourTc(3), GaussianTc()])
def test_statistics_measure_every_order(statistic):
    samples = normal(2, 60, 3)
    samples[..., 1] += samples[..., 0]
    orders = torch.stack(
        [torch.arange(60).expand(3, 60), torch.rand(3, 60, generator=generator()).argsort(-1)]
    )
    found = statistic.measure(statistic.prepare(as_stack(samples), generator()), orders)
    for number, order in enumerate(orders):
        mixed = torch.stack([samples[..., c].index_select(1, order[c]) for c in range(3)], -1)
        for columns, expected in [((0, 1, 2), found.joint[:, number]), ((1, 2), found.pairs[:, number, 2])]:
            part = mixed[..., list(columns)]
            alone = (
                gaussian_total_correlation(part)
                if isinstance(statistic, GaussianTc)
                else neighbour_total_correlation(part, generator=generator())
            )
            torch.testing.assert_close(alone, expected, rtol=1e-10, atol=1e-12)


def test_a_set_gives_the_same_alone():
    stack = normal(3, 50, 2).round(decimals=1)
    together = neighbour_total_correlation(stack, generator=generator())
    alone = torch.stack([neighbour_total_correlation(one, generator=generator()) for one in stack])
    assert torch.equal(alone, together)


def test_float32_comes_back():
    samples = normal(50, 2).float()
    assert gaussian_total_correlation(samples).dtype == torch.float32
    assert neighbour_total_correlation(samples, generator=generator()).dtype == torch.float32
    assert gaussian_total_correlation(np.ones((5, 2))).dtype == torch.float64


def test_more_neighbours_than_points():
    with pytest.raises(
        ValueError, match="neighbours must be fewer than the points, got 5 neighbours of 5 points"
    ):
        neighbour_total_correlation(normal(5, 2), generator=generator(), neighbours=5)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="neighbours must be at least 1, got 0"):
        NeighbourTc(neighbours=0)


@pytest.mark.parametrize("size", [1e12, 1e160, 1e200, 1e307, 1e-12, 1e-200, 1e-310])
def test_components_of_any_size(size):
    """Squares of these overflow or vanish, or are lost beside 1."""
    samples = normal(200, 3)
    samples[:, 1] += samples[:, 0]
    scale = torch.tensor([size, 1.0, size], dtype=torch.float64)
    expected, found = (gaussian_total_correlation(x) for x in (samples, samples * scale))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    tested = independence_test(samples * scale, method=GaussianTc(), generator=generator())
    assert tested.p_value < 0.01


def test_centred_components_keep_their_digits():
    values = as_stack(normal(50, 3) * torch.tensor([1e-9, 3.0, 0.0]) + torch.tensor([0.0, 5.0, 0.1])).values
    found = centred(values)
    largest = found.abs().amax(-1)[0]
    assert ((largest[:2] >= 0.5) & (largest[:2] < 1)).all() and largest[2] == 0
    away = values - values.mean(-1, keepdim=True)
    power = torch.frexp(away.abs().amax(-1, keepdim=True)).exponent
    assert torch.equal(torch.ldexp(found, power)[:, :2], away[:, :2])


def test_what_is_no_generator_is_named():
    with pytest.raises(ValueError, match="generator must be a torch.Generator .*, got 3"):
        neighbour_total_correlation(normal(50, 2), generator=3)
