"""Explicitness: areas under the curve of regressions one-vs-rest."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from unseam.metrics.explicitness import ExplicitnessSettings, _area_without, explicitness

F64 = {"dtype": torch.float64}


@pytest.fixture
def factors(generator):
    return torch.stack([torch.randint(size, (600,), generator=generator) for size in (2, 3, 5)], 1)


@pytest.fixture
def codes(factors, generator):
    return factors.double() @ torch.randn(3, 4, generator=generator, **F64) + torch.randn(
        600, 4, generator=generator, **F64
    )


def expected_areas(codes, factors, seed=0):
    order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed))
    cut = round(len(codes) * 2 / 3)
    train, test = order[:cut], order[cut:]
    areas = []
    for column in factors.T:
        found = []
        for value in column.unique():
            model = LogisticRegression(tol=1e-8, max_iter=10_000)
            model.fit(codes[train].numpy(), (column[train] == value).numpy())
            scores = model.decision_function(codes[test].numpy())
            found.append(roc_auc_score((column[test] == value).numpy(), scores))
        areas.append(np.mean(found))
    return torch.tensor(areas, **F64)


def test_against_scikit_learn(codes, factors):
    found = explicitness(codes, factors)
    torch.testing.assert_close(found.areas, expected_areas(codes, factors))
    torch.testing.assert_close(found.score, found.areas.mean())


def test_areas_without_each_group(generator):
    scores = torch.randn(2, 3, 200, generator=generator, **F64).round(decimals=1)  # with ties
    positive = torch.rand(3, 200, generator=generator) < torch.tensor([[0.5], [0.1], [0.9]])
    group = torch.randperm(200, generator=generator) % 20
    areas, valid = _area_without(scores, positive, group)
    assert valid.all()
    for member in range(2):
        for value in range(3):
            for variant in range(21):
                kept = group != variant - 1
                expected = roc_auc_score(positive[value, kept], scores[member, value, kept])
                assert areas[variant, member, value].item() == pytest.approx(expected)


def test_an_area_needs_both_sides():
    scores = torch.zeros(1, 3, 4, **F64)
    positive = torch.tensor([[True] * 4, [False] * 4, [True, False, False, False]])
    areas, valid = _area_without(scores, positive, torch.arange(4))
    assert valid[0, 0].tolist() == [False, False, True]
    assert valid[:, 0, 2].tolist() == [True, False, True, True, True]
    torch.testing.assert_close(areas, torch.full((5, 1, 3), 0.5, **F64))


def test_separable_codes_are_explicit(factors):
    hot = torch.cat([torch.nn.functional.one_hot(column) for column in factors.T], 1).double()
    torch.testing.assert_close(explicitness(hot, factors).score, torch.tensor(1.0, **F64))


def test_random_codes_are_at_chance(factors, generator):
    found = explicitness(torch.randn(600, 3, generator=generator, **F64), factors[:, :1])
    # The variance of an area of n against m points without any information is (n + m + 1) / (12 n m).
    assert (found.score - 0.5).abs() < 4 * (201 / (12 * 100 * 100)) ** 0.5


def test_order_sign_shift_and_rotation_do_not_matter(codes, factors, generator):
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator, **F64)).Q
    expected = explicitness(codes, factors)
    for moved in (codes[:, [2, 0, 3, 1]], -codes, codes + 30.0, codes @ rotation):
        torch.testing.assert_close(explicitness(moved, factors).areas, expected.areas, rtol=0, atol=1e-4)


def test_a_member_scores_the_same_alone(codes, factors, generator):
    stack = torch.stack([codes, torch.randn(codes.shape, generator=generator, **F64), codes**3])
    together = explicitness(stack, factors)
    assert together.areas.shape == (3, 3)
    for member in range(3):
        alone = explicitness(stack[member], factors)
        torch.testing.assert_close(alone.score, together.score[member], rtol=0, atol=1e-6)
        torch.testing.assert_close(alone.interval.error, together.interval.error[member], rtol=0, atol=1e-6)


def test_continuous_factors_are_binned(generator):
    factors = torch.rand(900, 1, generator=generator, **F64)
    settings = ExplicitnessSettings(bins=4)
    by_hand = ((factors - factors.min()) / (factors.max() - factors.min()) * 4).long().clamp(max=3)
    found = explicitness(factors, factors, preset=settings)
    torch.testing.assert_close(found.areas, explicitness(factors, by_hand).areas)
    torch.testing.assert_close(found.areas, expected_areas(factors, by_hand))


def test_constant_codes_and_factors_are_at_chance(codes, factors):
    half = torch.tensor(0.5, **F64)
    torch.testing.assert_close(explicitness(torch.ones(600, 2, **F64), factors).score, half)
    torch.testing.assert_close(explicitness(codes, torch.zeros(600, 1, dtype=torch.long)).score, half)


def test_constant_factors_are_left_out_of_the_mean(codes, factors):
    still = torch.cat([factors, torch.full((600, 1), 3)], 1)
    torch.testing.assert_close(explicitness(codes, still).score, explicitness(codes, factors).score)


def test_values_that_occur_once_are_left_out(codes, factors):
    rare = factors[:, :1].clone()
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))
    rare[order[0]], rare[order[-1]] = 7, 8  # one only to train on, one only to test on
    found = explicitness(codes, rare)
    assert 0.5 < found.score < 1
    assert torch.isfinite(found.interval.error)


def test_large_separable_codes_end(factors):
    found = explicitness(1e6 * factors[:, :1].double(), factors[:, :1])
    torch.testing.assert_close(found.score, torch.tensor(1.0, **F64))


def test_settings_say_how_many_points_were_used(codes, factors):
    assert explicitness(codes, factors).settings == ExplicitnessSettings(train=400, test=200)


def test_scores_of_single_precision_are_double(codes, factors):
    assert explicitness(codes.float(), factors).score.dtype == torch.float64


@pytest.mark.parametrize(
    "change, message",
    [
        ({"test": 0}, "test must be at least 1, got 0"),
        ({"penalty": -1.0}, "penalty must be positive, got -1.0"),
        ({"bins": 0}, "bins must be at least 1, got 0"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        ExplicitnessSettings(**change)
