"""Boosted trees on binned codes against scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

from unseam.metrics._boosting import _decreases, _sort, _starts, boost_binned, boost_exact

F64 = {"dtype": torch.float64}
TRAIN = 800


@pytest.fixture
def factors(generator):
    return torch.stack([torch.randint(size, (1000,), generator=generator) for size in (2, 3, 5)], 1)


@pytest.fixture
def groups(generator):
    return torch.randperm(TRAIN, generator=generator) % 20


@pytest.fixture
def codes(factors, generator):
    """Three codes of six distinct values each, so that bins lose nothing and no two splits are equally good."""
    mixed = factors.double() @ torch.randn(3, 3, generator=generator, **F64)
    noisy = mixed + torch.randn(1000, 3, generator=generator, **F64)
    return (6 * noisy.argsort(0).argsort(0) // 1000).double() ** 1.5


def reference(kind, codes, target, **options):
    return kind(random_state=0, **options).fit(codes[:TRAIN].numpy(), target[:TRAIN].numpy())


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_same_trees_as_scikit_learn_where_bins_lose_nothing(codes, factors, groups, depth):
    found = boost_binned(codes[None], factors.double(), [True] * 3, groups, bins=6, rounds=20, depth=depth)
    for factor in range(3):
        model = reference(
            GradientBoostingClassifier, codes, factors[:, factor], n_estimators=20, max_depth=depth
        )
        np.testing.assert_allclose(found.importance[0, 0, :, factor], model.feature_importances_, rtol=1e-9)
        assert (found.predicted[0, :, factor].numpy() == model.predict(codes.numpy())).all()


def test_same_regression_as_scikit_learn_where_bins_lose_nothing(codes, factors, groups, generator):
    target = factors.double() + torch.randn(1000, 3, generator=generator, **F64)
    found = boost_binned(codes[None], 100 * target, [False] * 3, groups, bins=6, rounds=20)
    for factor in range(3):
        model = reference(GradientBoostingRegressor, codes, 100 * target[:, factor], n_estimators=20)
        np.testing.assert_allclose(found.importance[0, 0, :, factor], model.feature_importances_, rtol=1e-9)
        np.testing.assert_allclose(found.predicted[0, :, factor], model.predict(codes.numpy()), rtol=1e-9)


@pytest.mark.parametrize("bins", [4, 16])
def test_same_trees_as_scikit_learn_where_all_bins_are_looked_into(factors, groups, generator, bins):
    """One split a tree: deeper ones come down to a few points, and splits that are equally good."""
    codes = factors.double() @ torch.randn(3, 4, generator=generator, **F64)
    codes += 0.5 * torch.randn(1000, 4, generator=generator, **F64)
    found = boost_binned(
        codes[None], factors.double(), [True] * 3, groups, bins=bins, candidates=4 * bins, rounds=20, depth=1
    )
    for factor in range(3):
        model = reference(GradientBoostingClassifier, codes, factors[:, factor], n_estimators=20, max_depth=1)
        np.testing.assert_allclose(found.importance[0, 0, :, factor], model.feature_importances_, rtol=1e-6)
        assert (found.predicted[0, :, factor].numpy() == model.predict(codes.numpy())).mean() > 0.99


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_importances_are_close_where_some_bins_are_looked_into(generator, groups, kind):
    """Rare classes in noise: what exact splits find there, bins alone do not see."""
    factors = torch.randint(12, (1000, 1), generator=generator)
    codes = torch.cat([factors / 12, torch.zeros(1000, 2)], 1).double()
    codes += 0.3 * torch.randn(1000, 3, generator=generator, **F64)
    arguments = (codes[None], factors.double(), [kind == "classes"], groups)
    exact = boost_exact(*arguments, rounds=20).importance[0, 0]
    found = boost_binned(*arguments, bins=16, candidates=12, rounds=20).importance[0, 0]
    assert (found - exact).abs().max() < 0.03
    if kind == "classes":
        blind = boost_binned(*arguments, bins=16, rounds=20).importance[0, 0]
        assert (blind - exact).abs().max() > 0.06


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_importances_without_a_group_are_those_of_scikit_learn_trees(codes, factors, groups, kind):
    """Two implementations of the same sums, over the same trees."""
    arguments = (codes[None], factors.double(), [kind == "classes"] * 3, groups)
    ours = boost_binned(*arguments, bins=6, rounds=5)
    theirs = boost_exact(*arguments, rounds=5)
    assert ours.importance.shape == (21, 1, 3, 3)
    torch.testing.assert_close(ours.importance, theirs.importance, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(ours.predicted, theirs.predicted)
    assert (ours.importance[1:] != ours.importance[:1]).any()


@pytest.mark.parametrize("candidates", [0, 4])
def test_equal_codes_share_the_importance(factors, groups, generator, candidates):
    """One of them is drawn at each split: neither is left without."""
    codes = factors[:, 1:2].double() + 0.3 * torch.randn(1000, 1, generator=generator, **F64)
    arguments = (factors[:, 1:2].double(), [True], groups)
    options = {"bins": 16, "candidates": candidates, "rounds": 50}
    found = boost_binned(codes.expand(1000, 2)[None], *arguments, **options)
    assert (found.importance[0] > 0.25).all()
    if candidates == 0:
        assert torch.equal(found.predicted, boost_binned(codes[None], *arguments, **options).predicted)


def test_decreases_by_hand(generator):
    leaf, group = torch.randint(4, (60,), generator=generator), torch.arange(60) % 3
    residual = torch.randn(60, generator=generator, **F64)
    cell = torch.nn.functional.one_hot(leaf * 3 + group, 12).double()
    sums, counts = (residual @ cell).view(4, 3), cell.sum(0).view(4, 3)
    root, below = _decreases(sums, counts)

    def error(chosen):
        return (residual[chosen] - residual[chosen].mean()).square().sum()

    for variant in range(4):
        kept = group != variant - 1
        left, right = kept & (leaf < 2), kept & (leaf >= 2)
        torch.testing.assert_close(root[0, variant], error(kept) - error(left) - error(right))
        parts = [error(kept & (leaf == k)) for k in range(4)]
        torch.testing.assert_close(below[0, variant], error(left) - parts[0] - parts[1])
        torch.testing.assert_close(below[1, variant], error(right) - parts[2] - parts[3])


def test_a_bin_for_each_distinct_value():
    found = _starts(torch.tensor([[[1.0, 1.0, 3.0, 3.0, 7.0]]]), 4)
    assert found.tolist() == [[[0, 2, 4, 5, 5]]]


def test_bins_of_equal_size(generator):
    values = torch.randn(1, 1, 1000, generator=generator, **F64).sort(-1).values
    assert _starts(values, 8).diff(dim=-1).tolist() == [[[125] * 8]]


def test_equal_values_stay_together(generator):
    values = torch.cat([torch.zeros(600, **F64), torch.rand(400, generator=generator, **F64).sort().values])
    starts = _starts(values[None, None], 10)[0, 0]
    assert starts[1] == 600
    assert (starts.diff() >= 0).all()


def test_neighbouring_floats_are_told_apart():
    low = torch.tensor(1.0, **F64)
    high = torch.nextafter(low, low + 1)
    values = torch.stack([low, high, low, high + 1])[None, :, None]
    assert _sort(values, 3, 4).ranks.flatten().tolist() == [0, 2, 0, 2]


def test_points_to_predict_are_ranked_between_training_values():
    values = torch.tensor([0.0, 4.0, 2.0, 2.0, -9.0, 0.9, 1.1, 2.0, 2.9, 3.1, 9.0])[None, :, None]
    assert _sort(values, 4, 4).ranks.flatten().tolist() == [0, 3, 1, 1, 0, 0, 1, 1, 2, 3, 3]


def test_members_are_fitted_on_their_own(codes, factors, groups, monkeypatch):
    from unseam.metrics import _inputs

    stack = torch.stack([codes, codes.flip(1), codes**2 - codes])
    arguments = (factors.double(), [True, True, False], groups)
    monkeypatch.setitem(_inputs.NUMBERS_AT_ONCE, "cpu", 2**40)
    together = boost_binned(stack, *arguments, bins=6, rounds=4)
    monkeypatch.setitem(_inputs.NUMBERS_AT_ONCE, "cpu", 1)
    alone = boost_binned(stack, *arguments, bins=6, rounds=4)
    torch.testing.assert_close(together.importance, alone.importance)
    torch.testing.assert_close(together.predicted, alone.predicted)
    torch.testing.assert_close(together.importance[:, 1], together.importance[:, 0].flip(1))


@pytest.mark.parametrize("fit", [boost_binned, boost_exact])
def test_constant_codes_and_factors(groups, factors, fit):
    options = {"bins": 6} if fit is boost_binned else {}
    targets = torch.cat([factors[:, 1:2], torch.full((1000, 1), 4)], 1).double()
    found = fit(torch.ones(1, 1000, 2, **F64), targets, [True, True], groups, rounds=3, **options)
    assert found.importance.abs().sum() == 0
    assert (found.predicted[..., 0] == factors[:TRAIN, 1].bincount().argmax()).all()
    assert (found.predicted[..., 1] == 4).all()
    found = fit(torch.ones(1, 1000, 2, **F64), targets[:, 1:], [False], groups, rounds=3, **options)
    assert (found.predicted == 4).all()


def test_single_precision_finds_the_same_importances(codes, factors, groups):
    arguments = (factors.double(), [True] * 3, groups)
    double = boost_binned(codes[None], *arguments, bins=6, rounds=20)
    single = boost_binned(codes[None].float(), *arguments, bins=6, rounds=20)
    torch.testing.assert_close(single.importance[0], double.importance[0], rtol=1e-3, atol=1e-3)
