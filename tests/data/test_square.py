"""The embedded squares of rolinek2019 Suppl. 8.5."""

import math

import pytest
import torch
from scipy.spatial.transform import Rotation

from unseam.data.square import _rotation, linear, nonlinear

AXIS = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)


def test_rotation_is_orthogonal_proper_and_keeps_its_axis():
    rotation = _rotation((1.0, -1.0, 1.0), math.pi / 4)
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(3, dtype=torch.float64))
    assert torch.linalg.det(rotation).item() == pytest.approx(1.0, abs=1e-14)
    torch.testing.assert_close(rotation @ AXIS, AXIS)
    assert rotation.trace().item() == pytest.approx(1 + 2 * math.cos(math.pi / 4))


def test_rotation_agrees_with_scipy():
    expected = Rotation.from_rotvec((AXIS / AXIS.norm() * math.pi / 4).numpy()).as_matrix()
    torch.testing.assert_close(_rotation((1.0, -1.0, 1.0), math.pi / 4), torch.from_numpy(expected))


@pytest.mark.parametrize("ratio", [1.0, 1.2, 1.5, 2.0])
def test_linear_embedding_is_orthogonal_with_the_given_ratio(ratio):
    mixing = linear(size=2, ratio=ratio).mixing
    gram = mixing.T @ mixing
    torch.testing.assert_close(gram, torch.diag(torch.tensor([ratio**2, 1.0], dtype=torch.float64)))


@pytest.mark.parametrize("make", [linear, nonlinear])
def test_items_are_the_generator_of_their_factors(make):
    world = make(size=64, seed=5)
    assert torch.equal(world.images(torch.arange(64)), world.generator(world.factors.double()).float())
    assert world.factors.min() >= 0
    assert world.factors.max() <= 1


@pytest.mark.parametrize("make", [linear, nonlinear])
def test_points_fill_the_square(make):
    factors = make(size=20_000).factors.double()
    torch.testing.assert_close(factors.mean(0), torch.full((2,), 0.5, dtype=torch.float64), atol=0.01, rtol=0)
    expected = torch.eye(2, dtype=torch.float64) / 12
    torch.testing.assert_close(factors.T.cov(), expected, atol=2e-3, rtol=0)


def test_nonlinear_generator_is_a_network_of_width_ten():
    world = nonlinear(size=3, seed=2)
    network = world.generator
    assert network.weight_1.shape == (10, 2)
    assert network.weight_2.shape == (6, 10)
    assert network.weight_1.abs().max() <= 1 / math.sqrt(2)
    assert network.weight_2.abs().max() <= 1 / math.sqrt(10)
    factors = world.factors.double().requires_grad_()
    assert torch.autograd.gradcheck(network, factors)


def test_nonlinear_jacobian_in_closed_form():
    network = nonlinear(size=1, seed=1).generator
    point = torch.tensor([[0.3, 0.8]], dtype=torch.float64)
    slope = 1 - torch.tanh(point @ network.weight_1.T + network.bias_1) ** 2
    expected = network.weight_2 @ torch.diag(slope[0]) @ network.weight_1
    found = torch.autograd.functional.jacobian(network, point)[0, :, 0]
    torch.testing.assert_close(found, expected)
    assert torch.linalg.matrix_rank(expected) == 2


def test_the_network_depends_on_the_seed_and_not_on_the_size():
    assert torch.equal(nonlinear(size=2).generator.weight_1, nonlinear(size=9).generator.weight_1)
    assert not torch.equal(nonlinear(size=2).generator.weight_1, nonlinear(size=2, seed=1).generator.weight_1)


@pytest.mark.parametrize("make", [linear, nonlinear])
def test_same_seed_same_points_and_the_global_generator_is_untouched(make):
    before = torch.get_rng_state()
    assert torch.equal(make(size=10, seed=3).table, make(size=10, seed=3).table)
    assert not torch.equal(make(size=10, seed=3).table, make(size=10, seed=4).table)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("make", [linear, nonlinear])
def test_size_must_be_positive(make):
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        make(size=0)


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf, math.nan])
def test_ratio_must_be_positive(ratio):
    with pytest.raises(ValueError, match="ratio must be a positive number"):
        linear(ratio=ratio)


def test_gain_scales_every_parameter():
    one, two = nonlinear(size=1).generator, nonlinear(size=1, gain=2.0).generator
    for name in ("weight_1", "bias_1", "weight_2", "bias_2"):
        torch.testing.assert_close(getattr(two, name), 2 * getattr(one, name))


def test_gain_must_be_positive():
    with pytest.raises(ValueError, match="gain must be a positive number, got 0"):
        nonlinear(gain=0.0)
