"""Disentanglement, completeness and informativeness."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

from unseam.metrics._inputs import ratio
from unseam.metrics.dci import DciSettings, _purity, dci
from unseam.metrics.validation import encoders, worlds

F64 = {"dtype": torch.float64}
EXACT = DciSettings(rounds=10)
BINNED = DciSettings(splits="binned", rounds=10)
both = pytest.mark.parametrize("settings", [EXACT, BINNED], ids=["exact", "binned"])


@pytest.fixture
def factors(generator):
    return torch.stack([torch.randint(size, (600,), generator=generator) for size in (2, 3, 5)], 1)


@pytest.fixture
def codes(factors, generator):
    return factors.double() @ torch.randn(3, 4, generator=generator, **F64) + torch.randn(
        600, 4, generator=generator, **F64
    )


def halves(batch):
    order = torch.randperm(batch, generator=torch.Generator().manual_seed(0))
    cut = round(batch * 2 / 3)
    return order[:cut], order[cut:]


@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (4, 1), (6, 6)])
def test_scores_of_an_importance_matrix_against_scipy(shape, generator):
    matrix = torch.rand(shape, generator=generator, **F64)
    matrix[0] *= torch.arange(shape[1]) % 2 == 0
    expected = 0.0
    for row in matrix.numpy():
        purity = 1 - (entropy(row, base=shape[1]) if shape[1] > 1 else 0.0)
        expected += row.sum() / matrix.sum().item() * purity
    assert ratio((_purity(matrix) * matrix.sum(-1)).sum(-1), matrix.sum()).item() == pytest.approx(expected)


def test_closed_forms_of_importance_matrices():
    eye = torch.eye(3, **F64)
    for matrix, expected in ((eye, 1.0), (torch.ones(3, 3, **F64), 0.0), (0 * eye, 0.0)):
        assert ratio((_purity(matrix) * matrix.sum(-1)).sum(-1), matrix.sum()).item() == pytest.approx(
            expected, abs=1e-12
        )


def test_exact_splits_are_scikit_learn_s(codes, factors):
    found = dci(codes, factors, preset=EXACT)
    train, test = halves(600)
    accuracy = []
    for factor in range(3):
        model = GradientBoostingClassifier(n_estimators=10, random_state=0)
        model.fit(codes[train].numpy(), factors[train, factor].numpy())
        np.testing.assert_allclose(found.importance[:, factor], model.feature_importances_)
        accuracy.append(model.score(codes[test].numpy(), factors[test, factor].numpy()))
    assert found.informativeness.item() == pytest.approx(np.mean(accuracy))


def test_exact_regression_is_scikit_learn_s(codes, factors):
    found = dci(codes, factors.double(), preset=EXACT)
    train, test = halves(600)
    explained = []
    for factor in range(3):
        model = GradientBoostingRegressor(n_estimators=10, random_state=0)
        model.fit(codes[train].numpy(), factors[train, factor].double().numpy())
        np.testing.assert_allclose(found.importance[:, factor], model.feature_importances_)
        explained.append(model.score(codes[test].numpy(), factors[test, factor].numpy()))
    assert found.informativeness.item() == pytest.approx(np.mean(explained))


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_binned_splits_find_nearly_the_same(codes, factors, kind):
    given = factors if kind == "classes" else factors.double()
    exact, binned = (dci(codes, given, preset=settings) for settings in (EXACT, BINNED))
    assert abs(exact.score - binned.score) < 0.02
    assert abs(exact.completeness - binned.completeness) < 0.02
    assert abs(exact.informativeness - binned.informativeness) < 2 * exact.informativeness_interval.error


@both
def test_perfect_codes(factors, settings):
    settings = dataclasses.replace(settings, rounds=30)
    found = dci(factors.double(), factors, preset=settings)
    torch.testing.assert_close(found.informativeness, torch.tensor(1.0, **F64))
    assert found.score > 0.99
    assert found.completeness > 0.99


@both
def test_duplicated_codes_are_disentangled_but_incomplete(factors, generator, settings):
    noise = 0.2 * torch.randn(2, 600, 3, generator=generator, **F64)
    found = dci(torch.cat([factors + noise[0], factors + noise[1]], 1), factors, preset=settings)
    assert found.score > 0.9
    assert found.completeness < 0.8


@both
def test_mixed_codes_are_entangled(factors, settings):
    unit = factors.double() / factors.double().std(0)
    mixed = unit @ torch.tensor([[1.0, 1, 1], [1, -2, 1], [1, 1, -2]], **F64)
    found = dci(mixed, factors, preset=settings)
    assert found.score < 0.5
    assert found.completeness < 0.5


@both
def test_order_sign_and_scale_of_codes_do_not_matter(codes, factors, settings):
    """One split a tree, searched everywhere: deeper nodes have few points, and splits that are equally good."""
    settings = dataclasses.replace(settings, depth=1, candidates=10**6)
    moved = codes[:, [2, 0, 3, 1]] * torch.tensor([2.0, -1.0, -0.25, 1.0], **F64)
    found, expected = (dci(given, factors, preset=settings) for given in (moved, codes))
    torch.testing.assert_close(found.importance, expected.importance[[2, 0, 3, 1]], rtol=1e-9, atol=1e-12)


@both
def test_a_member_scores_the_same_alone(codes, factors, generator, settings):
    stack = torch.stack([codes, torch.randn(codes.shape, generator=generator, **F64)])
    together = dci(stack, factors, discrete=[True, True, False], preset=settings)
    assert together.score.shape == (2,)
    assert together.importance.shape == (2, 4, 3)
    for member in range(2):
        alone = dci(stack[member], factors, discrete=[True, True, False], preset=settings)
        torch.testing.assert_close(alone.score, together.score[member])
        torch.testing.assert_close(alone.informativeness, together.informativeness[member])
        torch.testing.assert_close(alone.interval.error, together.interval.error[member])


@both
def test_dead_codes_and_constant_factors(codes, factors, settings):
    dead = torch.cat([codes, torch.ones(600, 1, **F64)], 1)
    still = torch.cat([factors, torch.full((600, 1), 2)], 1)
    found = dci(dead, still, preset=settings)
    assert (found.importance[4] == 0).all()
    assert (found.importance[:, 3] == 0).all()
    assert found.code_disentanglement[4] == 0
    assert found.factor_completeness[3] == 0
    nothing = dci(torch.ones(600, 2, **F64), factors, preset=settings)
    assert nothing.score == 0
    assert nothing.completeness == 0
    torch.testing.assert_close(found.informativeness, dci(dead, factors, preset=settings).informativeness)
    assert dci(codes, torch.ones(600, 1), preset=settings).informativeness == 0


def test_splits_that_gain_nothing_do_not_count_below_zero(generator):
    """scikit-learn's importances of codes that know nothing come out a rounding error below 0."""
    factors = torch.randint(3, (600, 2), generator=generator)
    codes = torch.cat([factors, torch.randn(600, 4, generator=generator)], 1).double()
    found = dci(codes, factors)
    assert (found.importance >= 0).all()
    torch.testing.assert_close(found.score, torch.tensor(1.0, **F64))


@both
def test_one_code_and_one_factor(codes, factors, settings):
    assert dci(codes, factors[:, :1], preset=settings).score == 1
    assert dci(codes[:, :1], factors, preset=settings).completeness == 1


@both
def test_classes_unseen_in_training_are_wrong(settings):
    factors = torch.arange(12)[:, None]
    found = dci(factors.double(), factors, preset=settings)
    assert found.informativeness == 0


@both
def test_two_points_are_enough(settings):
    found = dci(torch.tensor([[0.0], [1.0]], **F64), torch.tensor([[0], [1]]), preset=settings)
    assert found.settings == dataclasses.replace(settings, train=1, test=1)
    assert found.score.isfinite() and found.interval.error.isnan()


def test_error_covers_the_spread_over_independent_points():
    """The interval keeps the trees: it may be wider than the spread of the score, not much narrower."""
    scores, errors = [], []
    for seed in range(12):
        source = torch.Generator().manual_seed(seed)
        factors = torch.stack([torch.randint(size, (400,), generator=source) for size in (2, 4)], 1)
        codes = factors.double() @ torch.tensor([[1.0, 0.5], [0.2, 1.0]], **F64)
        codes += 0.4 * torch.randn(400, 2, generator=source, **F64)
        found = dci(codes, factors, preset=BINNED)
        scores.append(found.score)
        errors.append(found.interval.error)
    spread, error = torch.stack(scores).std(), torch.stack(errors).square().mean().sqrt()
    # A standard deviation of 12 draws is itself known to one part in (2 · 11)^½.
    assert spread < error * (1 + 3 / 22**0.5)
    assert error < 4 * spread


def test_settings_say_how_many_points_were_used(codes, factors):
    assert dci(codes, factors, preset=BINNED).settings == dataclasses.replace(BINNED, train=400, test=200)


@both
def test_scores_of_single_precision_are_double(codes, factors, settings):
    assert dci(codes.float(), factors, preset=settings).score.dtype == torch.float64


@pytest.mark.parametrize(
    "change, message",
    [
        ({"precision": "float16"}, "precision must be 'float32' or 'float64', got 'float16'"),
        ({"splits": "fuzzy"}, "splits must be 'exact' or 'binned', got 'fuzzy'"),
        ({"bins": 1}, "bins must be at least 2, got 1"),
        ({"candidates": -1}, "candidates must not be negative, got -1"),
        ({"depth": 8}, "depth must be from 1 to 7, got 8"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"rate": 0.0}, "rate must be positive, got 0.0"),
        ({"train": 0}, "train must be at least 1, got 0"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(BINNED, **change)


def test_constant_factors_do_not_count():
    """A code that both of two varying factors need equally is not choosier for a third that never varies."""
    bits = torch.cartesian_prod(torch.arange(2), torch.arange(2)).repeat(60, 1)
    both_bits = (bits[:, :1] + 2 * bits[:, 1:]).double()
    table = torch.cat([bits, torch.ones(240, 1).long()], 1)
    found = dci(both_bits, table, preset=BINNED)
    assert found.importance.shape == (1, 3)
    # Each factor's importances add up to one, so those of the only code are even.
    assert found.score.item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("world", "encoder"),
    [
        ("uniform", "rotated 30°"),
        ("uniform", "noisy 1"),
        ("uniform", "merged"),
        ("correlated", "noisy 0.3"),
        ("imbalanced", "with noise codes"),
        ("continuous", "rotated 45°"),
    ],
)
def test_fast_is_close_to_exact_on_the_validation_grid(world, encoder):
    """Documented: the same algorithm but for which values a split is looked for among; rounds cut for both."""
    draw = {one.name: one.draw for one in worlds()}[world]
    encode = {one.name: one.encode for one in encoders()}[encoder]
    factors = draw(1200, torch.Generator().manual_seed(0))
    codes = encode(factors, torch.Generator().manual_seed(1))
    exact, fast = (
        dci(codes, factors, preset=dataclasses.replace(DciSettings.resolve(name), rounds=30))
        for name in ("dlib", "fast")
    )
    for ours, theirs in ((fast.score, exact.score), (fast.completeness, exact.completeness)):
        assert abs(ours - theirs) < 0.02
    assert abs(fast.informativeness - exact.informativeness) < 0.02


def test_both_scores_are_entropies_of_the_importances(codes, factors):
    """Rows weighted by what a code is used for, columns by 1, those of a constant factor by 0."""
    found = dci(codes, torch.cat([factors, torch.full((600, 1), 2)], 1))
    importance = found.importance.numpy()[:, :3]
    rows, columns = (1 - entropy(part, base=part.shape[0]) for part in (importance.T, importance))
    assert found.score.item() == pytest.approx(np.average(rows, weights=importance.sum(1)))
    assert found.completeness.item() == pytest.approx(columns.mean())
    assert found.code_disentanglement.tolist() == pytest.approx(rows)
    assert found.factor_completeness.tolist() == pytest.approx([*columns, 0.0])
    assert abs(found.score - found.completeness) > 1e-3
