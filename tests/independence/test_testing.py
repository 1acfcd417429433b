"""Permutation tests of independence: exact at their level, with power, and clear about bad input."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from unseam.independence import (
    Dcor,
    GaussianTc,
    Hsic,
    NeighbourTc,
    distance_correlation,
    hsic,
    independence_test,
    testing,
)
from unseam.independence._samples import Measured, as_stack

METHODS = {"hsic": Hsic(), "dcor": Dcor(), "tc": NeighbourTc(neighbours=3), "Gaussian tc": GaussianTc()}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(points, components, seed=0):
    return torch.randn(points, components, generator=generator(seed), dtype=torch.float64)


def discrete(points, components, seed=0):
    return (3 * torch.rand(points, components, generator=generator(seed), dtype=torch.float64)).floor()


# Level


@pytest.mark.parametrize("method", [Hsic(), Dcor(), GaussianTc()], ids=["hsic", "dcor", "Gaussian tc"])
@pytest.mark.parametrize("draw", [normal, discrete])
def test_p_value_is_that_of_all_orders(method, draw):
    """Five points have 120 orders: the exact p-value is the share of those not below the statistic."""
    samples = draw(5, 2, seed=1)
    state = method.prepare(as_stack(samples), generator())
    second = torch.tensor(list(itertools.permutations(range(5))))
    orders = torch.stack([torch.arange(5).expand_as(second), second], 1)
    values = method.measure(state, orders).joint[0]
    exact = float((values >= values[0] - 1e-9).double().mean())
    assert 0.02 < exact < 0.98
    permutations = 2000
    found = independence_test(samples, method=method, generator=generator(), permutations=permutations)
    # The observed order counts once more: 1/(B + 1) at most.
    error = math.sqrt(exact * (1 - exact) / permutations)
    assert abs(float(found.p_value) - exact) < 4 * error + 1 / permutations


@each_method
@pytest.mark.parametrize("draw", [normal, discrete])
def test_rejection_rate_is_the_level(method, draw):
    """Within what 120 tests at level 1/4 leave to chance in 1 of 10 000 cases; with ties it may be lower."""
    tests, level = 120, 0.25
    p_values = torch.stack(
        [
            torch.stack([found.p_value, found.joint_p_value, found.pairwise_p_value[0, 2]])
            for found in (
                independence_test(
                    draw(12, 3, seed), method=method, generator=generator(seed), permutations=19
                )
                for seed in range(tests)
            )
        ]
    )
    rejected = (p_values <= level + 1e-9).sum(0)
    low, high = stats.binom.ppf([1e-4, 1 - 1e-4], tests, level)
    assert (rejected <= high).all(), rejected
    if draw is normal:
        assert (rejected >= low).all(), rejected


# Power


def circle(points):
    angle = torch.arange(points, dtype=torch.float64) * 2 * math.pi / points
    return torch.stack([angle.cos(), angle.sin()], 1)


def square(points):
    x = normal(points, 2)
    return torch.stack([x[:, 0], x[:, 0] ** 2 + x[:, 1]], 1)


def scale(points):
    x = normal(points, 2)
    return torch.stack([x[:, 0], x[:, 1] * (2 * x[:, 0]).exp()], 1)


def parity(points):
    """Every combination of two bits and their sum modulo two equally often: no pair shows anything."""
    bits = torch.tensor([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]], dtype=torch.float64)
    return bits.repeat(points // 4, 1)


@pytest.mark.parametrize("method", ["hsic", "dcor", "tc"])
@pytest.mark.parametrize("draw", [circle, square, scale, parity])
def test_dependence_is_found(method, draw):
    found = independence_test(draw(200), method=method, generator=generator(), permutations=39)
    least = min(float(found.joint_p_value), float(found.pairwise_adjusted.min()))
    assert least == pytest.approx(1 / 40)
    assert float(found.p_value) <= 2 / 40 + 1e-9


@pytest.mark.parametrize("method", ["hsic", "dcor"])
def test_parity_shows_in_no_pair(method):
    found = independence_test(parity(200), method=method, generator=generator(), permutations=39)
    assert float(found.joint_p_value) == pytest.approx(1 / 40)
    assert (found.pairwise_p_value == 1).all()
    assert float(found.pairwise.abs().max()) < 1e-6


def test_the_gaussian_statistic_sees_correlations_only():
    found = independence_test(circle(100), method=GaussianTc(), generator=generator(), permutations=39)
    assert found.pairwise_p_value[0, 1] > 0.5
    line = torch.stack([circle(100)[:, 0], circle(100)[:, 0] + circle(100)[:, 1]], 1)
    found = independence_test(line, method=GaussianTc(), generator=generator(), permutations=39)
    assert float(found.p_value) == pytest.approx(1 / 40)


def test_the_dependent_pair_is_named():
    samples = normal(150, 5)
    samples[:, 3] = samples[:, 1].abs() + 0.3 * samples[:, 3]
    found = independence_test(samples, generator=generator(), permutations=99)
    pairs = (found.pairwise_adjusted < 0.05).triu().nonzero().tolist()
    assert pairs == [[1, 3]]


# What comes back


@each_method
def test_fields_agree_with_each_other(method):
    samples = normal(40, 4)
    samples[:, 1] += 0.4 * samples[:, 0]
    found = independence_test(samples, method=method, generator=generator(), permutations=59)
    assert found.pairwise.shape == (4, 4)
    for matrix in (found.pairwise, found.pairwise_p_value, found.pairwise_adjusted):
        torch.testing.assert_close(matrix, matrix.mT, rtol=0, atol=0)
    assert (found.pairwise.diagonal() == 0).all()
    assert (found.pairwise_p_value.diagonal() == 1).all()
    assert (found.pairwise_adjusted >= found.pairwise_p_value).all()
    smaller = min(found.joint_p_value, found.pairwise_adjusted.min())
    assert smaller <= found.p_value <= 2 * smaller
    counts = found.pairwise_p_value * 60
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-9)
    assert counts.min() >= 1
    assert found.settings.statistic == method
    assert (found.settings.permutations, found.settings.points) == (59, 40)


@each_method
def test_two_components_are_one_pair(method):
    samples = normal(30, 2)
    found = independence_test(samples, method=method, generator=generator(), permutations=39)
    p_values = [
        found.p_value,
        found.joint_p_value,
        found.pairwise_p_value[0, 1],
        found.pairwise_adjusted[1, 0],
    ]
    assert len({float(p) for p in p_values}) == 1
    assert found.statistic == found.pairwise[0, 1]


def test_pairwise_statistics_are_those_of_the_functions():
    samples = normal(40, 3)
    off = ~torch.eye(3, dtype=torch.bool)
    found = independence_test(samples, method="hsic", generator=generator(), permutations=1)
    torch.testing.assert_close(found.pairwise[off], hsic(samples)[off], rtol=1e-10, atol=0)
    found = independence_test(samples, method="dcor", generator=generator(), permutations=1)
    expected = distance_correlation(samples).correlation
    torch.testing.assert_close(found.pairwise[off], expected[off], rtol=1e-10, atol=0)


@each_method
def test_a_set_gives_the_same_alone(method):
    stack = torch.stack([normal(30, 3), discrete(30, 3), normal(30, 3, 5).exp()])
    together = independence_test(stack, method=method, generator=generator(3), permutations=19)
    assert together.p_value.shape == (3,)
    assert together.pairwise.shape == (3, 3, 3)
    for number, samples in enumerate(stack):
        alone = independence_test(samples, method=method, generator=generator(3), permutations=19)
        for one, all_of_them in zip(alone[:-1], together[:-1], strict=True):
            torch.testing.assert_close(one, all_of_them[number], rtol=1e-9, atol=1e-12)


@each_method
def test_memory_does_not_change_the_result(method, monkeypatch):
    stack = torch.stack([normal(30, 3), discrete(30, 3)])
    expected = independence_test(stack, method=method, generator=generator(), permutations=19)
    numbers = method.numbers(3, 30)
    for at_once in (1, 3 * numbers):
        monkeypatch.setitem(testing.AT_ONCE, "cpu", at_once)
        found = independence_test(stack, method=method, generator=generator(), permutations=19)
        for one, other in zip(found[:-1], expected[:-1], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_memory_is_bounded(monkeypatch):
    """No more orders at once than the budget holds."""
    seen = []

    class Watched(Absolute):
        def measure(self, state, order):
            seen.append(state.shape[0] * len(order))
            return super().measure(state, order)

    monkeypatch.setitem(testing.AT_ONCE, "cpu", 10 * Absolute().numbers(2, 20))
    stack = torch.stack([normal(20, 2, seed) for seed in range(25)])
    independence_test(stack, method=Watched(), generator=generator(), permutations=30)
    assert max(seen) <= 10
    assert sum(seen) == 25 * 31


class Absolute:
    """The absolute covariance of the first two components, as a statistic of one's own."""

    def prepare(self, samples, generator):
        return samples.values - samples.values.mean(-1, keepdim=True)

    def measure(self, state, order):
        first, second = (state[:, c][:, order[:, c]] for c in (0, 1))
        found = (first * second).mean(-1).abs()
        return Measured(found, found[..., None])

    def numbers(self, component, batch):
        return batch


def test_a_statistic_of_ones_own():
    samples = normal(50, 2)
    samples[:, 1] += samples[:, 0]
    found = independence_test(samples, method=Absolute(), generator=generator(), permutations=99)
    assert float(found.p_value) == pytest.approx(0.01)
    expected = torch.cov(samples.T, correction=0)[0, 1]
    torch.testing.assert_close(found.statistic, expected, rtol=1e-12, atol=0)


def test_the_generator_decides():
    samples = normal(30, 3)
    state = generator(7)
    first = independence_test(samples, generator=state, permutations=19)
    second = independence_test(samples, generator=state, permutations=19)
    again = independence_test(samples, generator=generator(7), permutations=19)
    assert torch.equal(first.pairwise_p_value, again.pairwise_p_value)
    assert not torch.equal(first.pairwise_p_value, second.pairwise_p_value)
    with pytest.raises(TypeError, match="generator"):
        independence_test(samples)


@pytest.mark.parametrize("method", ["hsic", "dcor", "tc"])
def test_types_in_and_out(method):
    samples = normal(30, 2)
    options = {"method": method, "permutations": 9}
    expected = independence_test(samples, generator=generator(), **options)
    assert expected.p_value.dtype == torch.float64
    found = independence_test(samples.numpy(), generator=generator(), **options)
    assert torch.equal(found.statistic, expected.statistic)
    found = independence_test(samples.float(), generator=generator(), **options)
    assert {part.dtype for part in found[:-1]} == {torch.float32}
    found = independence_test(np.arange(40).reshape(20, 2) % 7, generator=generator(), **options)
    assert found.p_value.dtype == torch.float64


def test_many_points_are_sampled():
    samples = normal(300, 2)
    found = independence_test(samples, generator=generator(), permutations=9, points=100)
    assert found.settings.points == 100
    every = independence_test(samples, generator=generator(), permutations=9, points=None)
    assert every.settings.points == 300
    assert found.statistic != every.statistic


# Bad and degenerate input


@each_method
def test_a_constant_component_is_independent_of_all(method):
    samples = normal(40, 3)
    samples[:, 2] = samples[:, 0] + 0.1 * samples[:, 2]
    samples[:, 1] = 0.1
    found = independence_test(samples, method=method, generator=generator(), permutations=39)
    assert (found.pairwise[1] == 0).all()
    assert (found.pairwise_p_value[1] == 1).all()
    assert (found.pairwise_adjusted[1] == 1).all()
    assert float(found.pairwise_p_value[0, 2]) == pytest.approx(1 / 40)
    assert float(found.p_value) == pytest.approx(1 / 40)


@each_method
def test_constant_components_alone_show_nothing(method):
    samples = torch.full((20, 3), 0.1, dtype=torch.float64)
    samples[:, 0] = normal(20, 1)[:, 0]
    found = independence_test(samples, method=method, generator=generator(), permutations=9)
    assert (found.p_value, found.joint_p_value, found.statistic) == (1, 1, 0)


def with_entry(value):
    samples = normal(10, 2)
    samples[3, 1] = value
    return samples


@pytest.mark.parametrize(
    "samples, message",
    [
        (normal(10, 1), "samples must have at least two components, got 1"),
        (normal(3, 2), "samples must have at least 4 points, got 3"),
        (normal(10, 2)[:, 0], "samples must have shape (batch, component) or (set, batch, component), got shape (10,)"),
        (normal(10, 2)[None, None], "samples must have shape (batch, component) or (set, batch, component), "
         "got shape (1, 1, 10, 2)"),
        (normal(0, 2), "samples must have shape (batch, component) or (set, batch, component), got shape (0, 2)"),
        (with_entry(math.nan), "samples must be finite, got 1 entries that are NaN or infinite"),
        (with_entry(math.inf), "samples must be finite, got 1 entries that are NaN or infinite"),
        (torch.complex(normal(10, 2), normal(10, 2)), "samples must be real, got torch.complex128"),
    ],
)  # fmt: skip
def test_bad_samples(samples, message):
    with pytest.raises(ValueError) as error:
        independence_test(samples, generator=generator())
    assert str(error.value) == message


@pytest.mark.parametrize(
    "options, message",
    [
        ({"method": "mic"}, "method must be one of hsic, dcor, tc or a statistic, got 'mic'"),
        ({"permutations": 0}, "permutations must be at least 1, got 0"),
        ({"points": 3}, "points must be at least 4, got 3"),
        (
            {"method": NeighbourTc(20)},
            "neighbours must be fewer than the points, got 20 neighbours of 20 points",
        ),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError) as error:
        independence_test(normal(20, 2), generator=generator(), **options)
    assert str(error.value) == message


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@each_method
def test_a_cuda_device_gives_the_same_numbers(method):
    samples = normal(400, 3)
    samples[:, 2] += samples[:, 0] ** 2
    here = independence_test(samples, method=method, generator=generator(), permutations=49)
    there = independence_test(samples.cuda(), method=method, generator=generator(), permutations=49)
    for found, expected in zip(there[:-1], here[:-1], strict=True):
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_statistics_on_a_cuda_device():
    samples = normal(300, 3)
    torch.testing.assert_close(hsic(samples.cuda()).cpu(), hsic(samples), rtol=1e-9, atol=1e-12)
    for found, expected in zip(
        distance_correlation(samples.cuda()), distance_correlation(samples), strict=True
    ):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-9, atol=1e-12)


def test_the_smaller_of_both_p_values_is_ranked_among_those_of_every_order():
    counts = torch.randint(1, 21, (2, 3, 20), generator=generator()).double()
    first, second = counts / 20
    pairs = torch.stack([torch.minimum(first, second), first + second], -1).tolist()
    wanted = [
        sum(order <= every[0] for order in every) / len(every) for every in pairs
    ]  # by the sum where equal
    assert testing._combined_p_value(first, second).tolist() == pytest.approx(wanted)


def test_one_dependent_pair_among_many_components_lowers_the_p_value():
    z = normal(120, 12)
    z[:, -1] += 0.25 * z[:, 0]
    found = independence_test(z, method=GaussianTc(), permutations=199, generator=generator())
    assert found.pairwise_adjusted.min() <= found.p_value < found.joint_p_value
