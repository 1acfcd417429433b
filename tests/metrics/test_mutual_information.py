"""Mutual information by bins and by neighbours."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression
from sklearn.metrics import mutual_info_score

from unseam.metrics import binned_information
from unseam.metrics._inputs import check_inputs
from unseam.metrics.mutual_information import neighbour_estimates

BATCH = 400


class Neighbours(NamedTuple):
    """What neighbours say of all points, and without each group."""

    information: torch.Tensor
    left_out: torch.Tensor


def neighbour_information(codes, factors, *, discrete=None, neighbours=3, group=None):
    """Estimates by neighbours, with a member axis where the codes have one."""
    given = check_inputs(codes, factors, discrete=discrete).rescaled()
    found = neighbour_estimates(given, neighbours, group)
    found = found if given.stacked else found[:, 0]
    return Neighbours(found[0], found[1:])


@pytest.fixture
def factors(generator):
    return torch.stack([torch.randint(size, (BATCH,), generator=generator) for size in (2, 5)], 1)


@pytest.fixture
def codes(generator, factors):
    noise = torch.randn(3, BATCH, 4, generator=generator, dtype=torch.float64)
    noise[:, :, 0] += factors[:, 1]
    noise[1, :, 2] = noise[1, :, 2].round()
    noise[2, :, 3] = 0.3
    return noise


@pytest.fixture
def group(generator):
    return torch.randperm(BATCH, generator=generator) % 7


def bins_of(values, bins=20):
    return np.digitize(values, np.histogram(values, bins)[1][:-1])


def entropy(labels):
    share = np.unique(labels, return_counts=True)[1] / len(labels)
    return -(share * np.log(share)).sum()


@pytest.mark.parametrize("bins", [2, 20])
def test_bins_against_scikit_learn(codes, factors, group, bins):
    found = binned_information(codes, factors, bins=bins, group=group)
    for member, latent in np.ndindex(3, 4):
        cut = bins_of(codes[member, :, latent].numpy(), bins)
        assert found.code_entropy[member, latent].item() == pytest.approx(entropy(cut), abs=1e-12)
        for factor in range(2):
            column = factors[:, factor].numpy()
            expected = mutual_info_score(cut, column)
            assert found.information[member, latent, factor].item() == pytest.approx(expected, abs=1e-12)
            for left in range(7):
                stay = (group != left).numpy()
                expected = mutual_info_score(cut[stay], column[stay])
                without = found.left_out.information[left, member, latent, factor]
                assert without.item() == pytest.approx(expected, abs=1e-12)


def test_entropies_of_factors(factors, codes, group):
    found = binned_information(codes, factors, group=group)
    expected = [entropy(column) for column in factors.T.numpy()]
    assert found.factor_entropy.tolist() == pytest.approx(expected, abs=1e-12)
    stay = (group != 3).numpy()
    expected = [entropy(column[stay]) for column in factors.T.numpy()]
    assert found.left_out.factor_entropy[3].tolist() == pytest.approx(expected, abs=1e-12)


def test_a_code_that_is_the_factor_tells_all_of_it(factors):
    found = binned_information(factors.double(), factors)
    torch.testing.assert_close(found.information.diagonal(), found.factor_entropy)
    torch.testing.assert_close(found.code_entropy, found.factor_entropy)
    assert found.left_out is None


def test_a_continuous_factor_is_binned(codes):
    factor = codes[0, :, :1]
    found = binned_information(codes[1], factor, bins=6)
    expected = mutual_info_score(bins_of(codes[1, :, 0].numpy(), 6), bins_of(factor[:, 0].numpy(), 6))
    assert found.information[0, 0].item() == pytest.approx(expected, abs=1e-12)


def test_more_bins_than_points(factors):
    found = binned_information(torch.tensor([[0.1], [0.5], [0.7]]), factors[:3], bins=1_000)
    torch.testing.assert_close(found.code_entropy, torch.tensor([math.log(3)], dtype=torch.float64))


def test_one_point_has_no_information(codes, factors):
    for found in (
        binned_information(codes[:, :1], factors[:1], group=torch.zeros(1, dtype=torch.int64)),
        neighbour_information(codes[:, :1], factors[:1], group=torch.zeros(1, dtype=torch.int64)),
        neighbour_information(codes[:, :1], codes[0, :1]),
    ):
        assert not found.information.any()


@pytest.mark.parametrize("estimate", [binned_information, neighbour_information])
@pytest.mark.parametrize("discrete", [True, False])
def test_a_member_is_the_same_alone(codes, factors, group, estimate, discrete):
    stacked = estimate(codes, factors, discrete=[discrete, True], group=group)
    for member in range(3):
        alone = estimate(codes[member], factors, discrete=[discrete, True], group=group)
        assert torch.equal(alone.information, stacked.information[member])


@pytest.mark.parametrize("estimate", [binned_information, neighbour_information])
@pytest.mark.parametrize("discrete", [True, False])
def test_invariant_to_order_sign_and_scale_of_codes(codes, factors, estimate, discrete):
    smooth = codes[0]
    table = factors if discrete else factors + codes[1, :, :2]
    moved = (smooth * torch.tensor([-1e-3, 1.0, -7.0, 1e4], dtype=torch.float64))[:, [2, 0, 3, 1]]
    expected = estimate(smooth, table).information[[2, 0, 3, 1]]
    torch.testing.assert_close(estimate(moved, table).information, expected, rtol=1e-9, atol=1e-12)


# scikit-learn adds noise of 1e-10: it moves no neighbour of continuous data of this size past another.


@pytest.mark.parametrize("neighbours", [1, 3, 10])
def test_discrete_factors_against_scikit_learn(codes, factors, neighbours):
    found = neighbour_information(codes[0], factors, neighbours=neighbours)
    for factor in range(2):
        expected = mutual_info_classif(
            codes[0].numpy(), factors[:, factor].numpy(), n_neighbors=neighbours, random_state=0
        )
        assert found.information[:, factor].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("neighbours", [1, 3, 10])
def test_continuous_factors_against_scikit_learn(codes, factors, neighbours):
    target = codes[0, :, 0] + 0.3 * codes[1, :, 1]
    found = neighbour_information(codes[0], target[:, None], neighbours=neighbours)
    expected = mutual_info_regression(
        codes[0].numpy(), target.numpy(), n_neighbors=neighbours, random_state=0
    )
    assert found.information[:, 0].tolist() == pytest.approx(expected, abs=1e-9)


def test_rare_values_by_brute_force(codes):
    """Small classes, for which scikit-learn rounds distances across the neighbour at the radius."""
    column = torch.arange(BATCH) // 3
    column[:5] = torch.arange(1_000, 1_005)
    code = codes[0, :, 0] + column / 50
    found = neighbour_information(code[:, None], column[:, None])
    counts = torch.unique(column, return_inverse=True, return_counts=True)
    inside = counts[2][counts[1]] > 1
    code, column, size = code[inside], column[inside], counts[2][counts[1]][inside]
    away = (code[:, None] - code).abs()
    same = torch.where(column[:, None] == column, away, torch.inf).sort(1).values
    nth = (size - 1).clamp(max=3)
    radius = same.gather(1, nth[:, None])
    nearer = (away < radius).sum(1)
    psi = [torch.digamma(torch.as_tensor(value).double()).mean() for value in (len(code), nth, size, nearer)]
    expected = psi[0] + psi[1] - psi[2] - psi[3]
    assert expected > 0
    torch.testing.assert_close(found.information[0, 0], expected)


def test_values_that_occur_once_have_no_neighbours(codes):
    assert not neighbour_information(codes[0], torch.arange(BATCH)[:, None]).information.any()


def test_gaussian_pairs(generator):
    """Twenty samples: their mean within four of its standard errors of −½ log(1 − ρ²).

    At a moderate ρ: at ρ = 0.95 the estimator itself is off by more (its docstring), and scikit-learn's alike.
    """
    correlation, found = 0.4, []
    for _ in range(20):
        pair = torch.randn(2, 800, 1, generator=generator, dtype=torch.float64)
        code = correlation * pair[0] + math.sqrt(1 - correlation**2) * pair[1]
        found.append(neighbour_information(code, pair[0]).information.item())
    expected = -math.log(1 - correlation**2) / 2
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found, ddof=1) / math.sqrt(20))


def test_a_class_that_the_code_separates(generator):
    """All nearer points are of the class, which leaves ψ(n) − ⟨ψ(n_c)⟩."""
    label = torch.randint(2, (500, 1), generator=generator)
    code = torch.rand(500, 1, generator=generator, dtype=torch.float64) + 10 * label
    sizes = torch.bincount(label[:, 0]).double()
    expected = torch.digamma(torch.tensor(500.0).double()) - (sizes / 500 * sizes.digamma()).sum()
    torch.testing.assert_close(neighbour_information(code, label).information[0, 0], expected)


def test_groups_leave_out_their_terms(codes, factors, group):
    found = neighbour_information(codes[0], factors, group=group)
    sizes = torch.bincount(group).double()
    weighted = (found.left_out * (BATCH - sizes)[:, None, None]).sum(0) / (BATCH - sizes).sum()
    alive = (found.left_out > 0).all(0)
    torch.testing.assert_close(weighted[alive], found.information[alive])
    assert not torch.equal(found.left_out[0], found.left_out[1])


def test_constants_have_no_information(codes, factors):
    constant = torch.ones(BATCH, 1, dtype=torch.int64)
    for estimate in (binned_information, neighbour_information):
        assert not estimate(codes, constant).information.any()
        assert not estimate(codes, constant.double()).information.any()
        assert not estimate(codes[2], factors).information[3].any()
        assert not estimate(codes[2], codes[0]).information[3].any()


def test_ties_are_counted_whole():
    """By hand: each code twice, so the radius is 0 and both counts are the pair's."""
    twice = torch.arange(8, dtype=torch.float64).repeat_interleave(2)[:, None]
    found = neighbour_information(twice, twice, neighbours=1).information.item()
    psi = torch.digamma(torch.tensor([16.0, 1.0, 2.0], dtype=torch.float64))
    assert found == pytest.approx((psi[0] + psi[1] - 2 * psi[2]).item())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z, v: binned_information(z, v, bins=0), "bins must be at least 1, got 0"),
        (
            lambda z, v: binned_information(z, v, group=torch.zeros(3)),
            "group must be a number from 0 on for each of",
        ),
        (
            lambda z, v: neighbour_information(z, v, group=-torch.ones(BATCH).long()),
            "group must be a number from 0",
        ),
        (lambda z, v: binned_information(z[:, :3], v), "one row per point, got 3 codes and 400 factors"),
    ],
)
def test_bad_input_is_named(codes, factors, call, message):
    with pytest.raises(ValueError, match=message):
        call(codes, factors)
