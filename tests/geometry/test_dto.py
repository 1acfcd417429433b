"""Distance to orthogonality and its random baselines."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from unseam.geometry import (
    distance_to_orthogonality,
    haar_dto,
    jacobian_basis,
    pullback,
    random_decoder_dto,
    restrict,
    right_basis,
    signed_permutation,
    uniform_dto,
)

F64 = {"dtype": torch.float64}


def orthogonal(points, latent, generator):
    return torch.linalg.qr(torch.randn(points, latent, latent, generator=generator, **F64)).Q


def plane(angle):
    return torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).view(-1, 2, 2)


class Scaled(nn.Module):
    """A layer that does not say how it begins."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, z):
        return z * self.scale


# The distance


def test_turns_of_the_plane():
    """‖R − I‖ = 2√2 sin(angle / 2), the angle counted from the nearest axis; exact where it is tiny."""
    angle = torch.tensor([0.0, 1e-12, 1e-5, 0.3, 0.7, 0.9, 1.5, 2.0], **F64)
    nearest = (angle - (angle / (math.pi / 2)).round() * (math.pi / 2)).abs()
    expected = 2 * math.sqrt(2) * (nearest / 2).sin()
    torch.testing.assert_close(distance_to_orthogonality(plane(angle)), expected, rtol=1e-12, atol=0)


def test_by_brute_force(generator):
    vectors = orthogonal(8, 4, generator)
    orders = torch.eye(4, **F64)[torch.tensor(list(itertools.permutations(range(4))))]
    signs = torch.tensor(list(itertools.product([1.0, -1.0], repeat=4)), **F64)
    every = (signs[:, None, :, None] * orders).reshape(-1, 4, 4)
    expected = (vectors[:, None] - every).square().sum((2, 3)).sqrt().amin(1)
    torch.testing.assert_close(distance_to_orthogonality(vectors), expected)


@pytest.mark.parametrize("latent", [2, 5, 8])
def test_is_a_sum_of_chosen_entries(generator, latent):
    vectors = orthogonal(20, latent, generator)
    chosen = (signed_permutation(vectors) * vectors).sum((1, 2))
    torch.testing.assert_close(distance_to_orthogonality(vectors), (2 * latent - 2 * chosen).sqrt())


@pytest.mark.parametrize("latent", [3, 7])
def test_invariant_to_signed_permutations_of_rows_and_columns(generator, latent):
    vectors = orthogonal(20, latent, generator)
    left, right = signed_permutation(orthogonal(2, latent, generator))
    torch.testing.assert_close(
        distance_to_orthogonality(left @ vectors @ right), distance_to_orthogonality(vectors)
    )


@pytest.mark.parametrize("latent", [3, 9])
def test_zero_for_orthogonal_columns(generator, latent):
    left = torch.linalg.qr(torch.randn(6, 20, latent, generator=generator, **F64)).Q
    columns = left * torch.rand(latent, generator=generator, **F64)
    found = distance_to_orthogonality(right_basis(columns.mT @ columns).right_vectors)
    assert found.tolist() == [0] * 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_types(generator, dtype):
    vectors = orthogonal(6, 3, generator).to(dtype)
    found = distance_to_orthogonality(vectors)
    assert found.dtype == dtype
    torch.testing.assert_close(distance_to_orthogonality(vectors.view(2, 3, 3, 3).numpy()), found.view(2, 3))


def test_what_is_no_basis_has_a_finite_distance(generator):
    """Lengths whose squares overflow; the bits of others are those of the plain norm."""
    v = torch.randn(50, 5, 5, generator=generator, dtype=torch.float32)
    plain = torch.linalg.matrix_norm(v - signed_permutation(v))
    assert torch.equal(distance_to_orthogonality(v), plain)
    huge = distance_to_orthogonality(v * 1e30)
    expected = torch.linalg.matrix_norm(v.double() * 1e30)
    torch.testing.assert_close(huge.double(), expected, rtol=1e-6, atol=0.0)


def test_over_active_latents(generator):
    """Two turned live columns beside a passive one: the restriction measures the two alone."""
    turn = plane(torch.tensor([0.4], **F64))[0]
    columns = torch.zeros(9, 3, **F64)
    columns[:2, [0, 2]] = torch.tensor([[3.0], [1.0]], **F64) * turn
    columns[:, 1] = 1e-9 * torch.randn(9, generator=generator, **F64)
    metric = (columns.T @ columns)[None]
    found = distance_to_orthogonality(right_basis(restrict(metric, [0, 2])).right_vectors)
    torch.testing.assert_close(found, torch.tensor([2 * math.sqrt(2) * math.sin(0.2)], **F64))
    everything = distance_to_orthogonality(right_basis(metric).right_vectors)
    torch.testing.assert_close(everything, found, rtol=1e-7, atol=0)


def test_bad_vectors_are_refused():
    with pytest.raises(
        ValueError, match=r"right_vectors must have shape \(..., latent, latent\), got shape \(3,\)"
    ):
        distance_to_orthogonality(torch.zeros(3))
    with pytest.raises(
        ValueError, match="right_vectors must be finite, got 1 entries that are NaN or infinite"
    ):
        distance_to_orthogonality(torch.tensor([[math.nan]]))


# Baselines


def test_haar_in_the_plane(generator):
    """The angle is uniform up to an eighth of a turn: the mean of 2√2 sin(θ/2), and of its square 8 sin²(θ/2)."""
    eighth = math.pi / 4
    mean = 4 * math.sqrt(2) * (1 - math.cos(eighth / 2)) / eighth
    square = 4 * (1 - math.sin(eighth) / eighth)
    found = haar_dto(2, samples=40_000, generator=generator)
    assert mean == pytest.approx(0.548, abs=1e-3)
    assert found.mean == pytest.approx(mean, abs=4 * found.std / math.sqrt(40_000))
    assert found.std == pytest.approx(math.sqrt(square - mean**2), rel=0.02)


@pytest.mark.parametrize(("latent", "mean"), [(2, 0.55), (5, 1.63), (6, 1.91)])
def test_haar_means(generator, latent, mean):
    found = haar_dto(latent, samples=20_000, generator=generator)
    assert found.mean == pytest.approx(mean, abs=0.005 + 4 * found.std / math.sqrt(20_000))


@pytest.mark.parametrize(
    ("data", "latent", "mean", "std", "samples"),
    [
        (3, 2, 0.80, 0.22, 20_000),
        (6, 2, 0.89, 0.15, 20_000),
        (784, 6, 2.10, 0.12, 1_000),
        (4096, 5, 1.86, 0.12, 300),
    ],
)
def test_uniform_matrices_of_the_sizes_of_table_2(generator, data, latent, mean, std, samples):
    """Its random decoders have 0.79±0.21, 0.89±0.16, 2.11±0.11 and 1.86±0.11, estimated from fewer draws.

    Expected values to two digits; the Monte-Carlo error of a mean is std/√n, of a deviation about std/√2n.
    """
    found = uniform_dto(data, latent, samples=samples, generator=generator)
    error = 4 * std / math.sqrt(samples)
    assert found.mean == pytest.approx(mean, abs=0.005 + error)
    assert found.std == pytest.approx(std, abs=0.005 + error)


@pytest.mark.parametrize("data", [3, 6])
def test_uniform_matrices_against_numpy(generator, data):
    """Singular value decompositions one library away; for two latents there are two permutations to try."""
    draws = np.random.default_rng(0).random((40_000, data, 2))
    size = np.abs(np.linalg.svd(draws, full_matrices=False)[2])
    chosen = np.maximum(size[:, 0, 0] + size[:, 1, 1], size[:, 0, 1] + size[:, 1, 0])
    expected = np.sqrt(np.maximum(4 - 2 * chosen, 0))
    found = uniform_dto(data, 2, samples=40_000, generator=generator)
    error = 4 * expected.std() * math.sqrt(2 / 40_000)
    assert found.mean == pytest.approx(expected.mean(), abs=error)
    assert found.std == pytest.approx(expected.std(), abs=error)


def test_uniform_against_a_loop(generator):
    found = uniform_dto(7, 3, samples=5, generator=generator)
    again = torch.rand(5, 7, 3, generator=torch.Generator().manual_seed(20190617), **F64)
    distances = distance_to_orthogonality(jacobian_basis(again).right_vectors)
    assert found.mean == pytest.approx(distances.mean().item(), rel=1e-10)
    assert found.std == pytest.approx(distances.std().item(), rel=1e-10)


def test_parts_change_nothing(monkeypatch):
    def draw():
        return uniform_dto(6, 2, samples=11, generator=torch.Generator().manual_seed(3))

    whole = draw()
    monkeypatch.setattr("unseam.geometry.dto._DRAWN_AT_ONCE", 36)
    assert draw() == pytest.approx(whole, rel=1e-12)


# The architecture before training


@pytest.fixture
def decoder():
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 30)).double().eval()


def test_fresh_copies_are_those_of_their_seeds(decoder, generator):
    z = torch.randn(6, 3, generator=generator, **F64)
    found = random_decoder_dto(decoder, z, seeds=3, generator=torch.Generator().manual_seed(5))
    means = []
    for seed in torch.randint(2**62, (3,), generator=torch.Generator().manual_seed(5)).tolist():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for layer in reversed(decoder):
                if not isinstance(layer, nn.Tanh):
                    layer.reset_parameters()
        basis = right_basis(pullback(decoder, z).detach())
        means.append(distance_to_orthogonality(basis.right_vectors).mean())
    assert found.mean == pytest.approx(torch.stack(means).mean().item())
    assert found.std == pytest.approx(torch.stack(means).std().item())


def test_module_and_global_generator_stay_as_they_were(decoder):
    before, state = (
        {name: value.clone() for name, value in decoder.state_dict().items()},
        torch.get_rng_state(),
    )
    random_decoder_dto(decoder, torch.zeros(2, 3, **F64), seeds=2, generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(decoder.state_dict(), before, rtol=0, atol=0)
    assert not decoder.training


def test_a_wide_linear_decoder_before_training(generator):
    """Weights from U[-a, a], which torch draws, lie further off than Haar: their kurtosis is 9/5, not 3.

    The angle of V is half that of (‖c_1‖² − ‖c_2‖², 2 c_1·c_2), for many rows a Gaussian whose components have
    variances in the ratio of kurtosis − 1 to 2; equal, so that all angles are alike, for Gaussian weights only.
    """
    ratio = math.sqrt(2 / (9 / 5 - 1))
    double = (torch.arange(2000, **F64) + 0.5) / 2000 * math.pi / 2
    density = ratio / (ratio**2 * double.cos().square() + double.sin().square())
    expected = (density * 2 * math.sqrt(2) * (double / 4).sin()).sum() / density.sum()
    layer = nn.Linear(2, 200, dtype=torch.float64)
    found = random_decoder_dto(layer, torch.zeros(1, 2, **F64), seeds=400, generator=generator)
    error = 4 * found.std / math.sqrt(400)
    assert found.mean == pytest.approx(expected.item(), abs=error)
    assert found.mean > haar_dto(2, samples=1000, generator=generator).mean + error / 2


def test_attention_is_initialised_by_its_own_rule(generator):
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, dtype=torch.float64)

        def forward(self, z):
            tokens = torch.stack([z, 2 * z])
            return self.attention(tokens, tokens.sin(), tokens.cos(), need_weights=True)[0].transpose(0, 1)

    z = torch.randn(2, 4, generator=generator, **F64)
    found = random_decoder_dto(Attending(), z, seeds=2, generator=generator)
    assert found.mean > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda **g: haar_dto(0, **g), "latent must be at least 1, got 0"),
        (
            lambda **g: haar_dto(2, samples=1, **g),
            "samples must be at least 2, got 1",
        ),
        (lambda **g: uniform_dto(0, 2, **g), "data must be at least 1, got 0"),
        (lambda **g: uniform_dto(2, 2, samples=0, **g), "samples must be at least 2"),
        (
            lambda **g: random_decoder_dto(torch.sin, torch.zeros(1, 2), **g),
            "module must be a torch.nn.Module, got",
        ),
        (
            lambda **g: random_decoder_dto(nn.Linear(2, 2), torch.zeros(1, 2), seeds=1, **g),
            "seeds must be at least 2, got 1",
        ),
        (
            lambda **g: random_decoder_dto(nn.Sequential(Scaled()), torch.zeros(1, 4), **g),
            "module must consist of layers with reset_parameters, got parameters in Scaled at '0' that has none",
        ),
    ],
)
def test_bad_baselines_are_refused(generator, call, message):
    with pytest.raises(ValueError, match=message):
        call(generator=generator)
