"""Separated attribute predictability, and the support vector machines under it."""

import pytest
import torch
from sklearn.svm import LinearSVC

from unseam.metrics.sap import SapSettings, _fit_lines, _Lines, _predict_lines, sap

F64 = {"dtype": torch.float64}


@pytest.fixture
def factors(generator):
    return torch.stack([torch.randint(size, (600,), generator=generator) for size in (2, 3, 5)], 1)


@pytest.fixture
def codes(factors, generator):
    return factors.double() @ torch.randn(3, 4, generator=generator, **F64) + torch.randn(
        600, 4, generator=generator, **F64
    )


def reference(codes, labels):
    """scikit-learn's solution, run until it stands."""
    model = LinearSVC(C=0.01, class_weight="balanced", tol=1e-12, max_iter=10**6)
    return model.fit(codes.numpy()[:, None], labels.numpy())


@pytest.mark.parametrize("classes, scale", [(2, 1.0), (3, 1.0), (5, 0.05), (5, 20.0), (12, 1.0)])
def test_machines_against_scikit_learn(generator, classes, scale):
    share = torch.rand(classes, generator=generator, **F64) + 0.1
    labels = torch.multinomial(share, 500, replacement=True, generator=generator)
    values = torch.randn(1, 500, 3, generator=generator, **F64) + labels[:, None] * torch.tensor(
        [0.0, 0.3, -1.0]
    )
    values = scale * (values - 0.7)
    (lines,) = _fit_lines(values, [labels], penalty=0.01)
    found = _predict_lines(lines, values)
    for code in range(3):
        model = reference(values[0, :, code], labels)
        # The solver of scikit-learn ends on a gradient of its own; both objectives are strongly convex.
        torch.testing.assert_close(
            lines.weight[0, code], torch.from_numpy(model.coef_[:, 0].copy()), rtol=1e-5, atol=1e-6
        )
        torch.testing.assert_close(
            lines.intercept[0, code], torch.from_numpy(model.intercept_.copy()), rtol=1e-5, atol=1e-6
        )
        assert (found[0, code].numpy() == model.predict(values[0, :, code].numpy()[:, None])).all()


@pytest.mark.parametrize("scale, shift", [(1e-6, 0.0), (1.0, 0.0), (1e4, 0.0), (1.0, 100.0)])
def test_machines_have_no_gradient_left(generator, scale, shift):
    labels = torch.randint(3, (400,), generator=generator)
    values = scale * (torch.randn(2, 400, 2, generator=generator, **F64) + labels[:, None]) + shift
    (lines,) = _fit_lines(values, [labels], penalty=0.01)
    point = torch.stack([lines.weight, lines.intercept]).requires_grad_()
    own = torch.nn.functional.one_hot(labels, 3).T.double()
    cost = 0.01 * torch.where(own == 1, 400 / (3 * own.sum(1, keepdim=True)), 1.0)
    margin = 1 - (2 * own - 1) * (point[0, ..., None] * values.mT[:, :, None] + point[1, ..., None])
    objective = point.square().sum() / 2 + (cost * margin.clamp(min=0).square()).sum()
    (gradient,) = torch.autograd.grad(objective, [point])
    size = (cost.sum(1) * values.abs().amax().clamp(min=1)).max()
    assert gradient.abs().max() < 1e-10 * size


def test_labellings_are_fitted_on_their_own(codes, factors):
    together = _fit_lines(codes[None], list(factors.T), penalty=0.01)
    for labels, lines in zip(factors.T, together, strict=True):
        (alone,) = _fit_lines(codes[None], [labels], penalty=0.01)
        torch.testing.assert_close(lines, alone, rtol=1e-10, atol=1e-12)


def test_highest_of_parallel_lines():
    lines = _Lines(torch.zeros(1, 1, 4, **F64), torch.tensor([[[1.0, 3.0, 3.0, 2.0]]], **F64))
    assert _predict_lines(lines, torch.tensor([[[-5.0], [5.0]]], **F64)).tolist() == [[[1, 1]]]


def test_score_against_scikit_learn(codes, factors):
    settings = SapSettings(train=400, test=200)
    found = sap(codes, factors, preset=settings, generator=torch.Generator().manual_seed(3))
    order = torch.randperm(600, generator=torch.Generator().manual_seed(3))
    train, test = order[:400], order[400:]
    expected = torch.empty(4, 3, **F64)
    for code in range(4):
        for factor in range(3):
            model = reference(codes[train, code], factors[train, factor])
            guess = model.predict(codes[test, code].numpy()[:, None])
            expected[code, factor] = (guess == factors[test, factor].numpy()).mean()
    torch.testing.assert_close(found.predictability, expected)
    best = expected.sort(0).values
    torch.testing.assert_close(found.gaps, best[-1] - best[-2])
    torch.testing.assert_close(found.score, found.gaps.mean())


def test_squared_correlation_of_continuous_factors(codes, generator):
    factors = codes[:, :2].exp() + torch.randn(600, 2, generator=generator, **F64)
    found = sap(codes, factors, preset=SapSettings(train=599, test=1))
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))[:599]
    joint = torch.cat([codes, factors], 1)[order]
    torch.testing.assert_close(found.predictability, torch.corrcoef(joint.T)[:4, 4:].square())


def test_perfect_and_random_codes(generator):
    factors = torch.randint(2, (3000, 3), generator=generator)
    found = sap(factors.double(), factors)
    torch.testing.assert_close(found.predictability.diagonal(), torch.ones(3, **F64))
    # Others guess: right half of the time, within four standard errors of 1 000 test points.
    assert (found.gaps - 0.5).abs().max() < 4 * 0.5 / 1000**0.5
    noise = torch.randn(3000, 3, generator=generator, **F64)
    assert sap(noise, factors).score < 4 * (0.5 / 1000) ** 0.5


def test_duplicated_codes_have_no_gap(codes, factors):
    assert sap(torch.cat([codes, codes], 1), factors).score == 0


def test_order_and_sign_of_codes_do_not_matter(codes, factors):
    moved = codes[:, [2, 0, 3, 1]] * torch.tensor([1.0, -1.0, -1.0, 1.0])
    torch.testing.assert_close(sap(moved, factors).score, sap(codes, factors).score)
    torch.testing.assert_close(
        sap(moved, factors).predictability, sap(codes, factors).predictability[[2, 0, 3, 1]]
    )


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_a_member_scores_the_same_alone(codes, factors, generator, kind):
    given = factors if kind == "discrete" else factors.double()
    stack = torch.stack([codes, torch.randn(codes.shape, generator=generator, **F64), codes**3])
    together = sap(stack, given)
    assert together.score.shape == (3,)
    assert together.predictability.shape == (3, 4, 3)
    for member in range(3):
        alone = sap(stack[member], given)
        torch.testing.assert_close(alone.score, together.score[member], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            alone.interval.error, together.interval.error[member], rtol=1e-10, atol=1e-12
        )


def test_interval_without_each_group_by_hand(codes, factors):
    found = sap(codes, factors[:, :1])
    order = torch.randperm(600, generator=(source := torch.Generator().manual_seed(0)))
    train, test = order[:400], order[400:]
    torch.randperm(400, generator=source)
    group = torch.randperm(200, generator=source) % 20
    right = []
    for code in range(4):
        guess = reference(codes[train, code], factors[train, 0]).predict(codes[test, code].numpy()[:, None])
        right.append(torch.from_numpy(guess) == factors[test, 0])
    scores = []
    for left in range(20):
        best = torch.stack(right)[:, group != left].double().mean(1).sort().values
        scores.append(best[-1] - best[-2])
    error = torch.stack(scores).var(correction=0).mul(19).sqrt()
    torch.testing.assert_close(found.interval.error, error)


def test_settings_say_how_many_points_were_used(codes, factors):
    assert sap(codes, factors).settings == SapSettings(train=400, test=200)
    assert sap(codes, factors, preset=SapSettings(30, 20)).settings == SapSettings(30, 20)


def test_constant_code_predicts_the_most_frequent_class(generator):
    factors = torch.tensor([4, 5, 5, 5, 7])[torch.randint(5, (300, 1), generator=generator)]
    found = sap(torch.full((300, 2), 3.0, **F64), torch.cat([factors, 0 * factors], 1))
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))[200:]
    torch.testing.assert_close(found.predictability[:, 0], (factors[order, 0] == 5).double().mean().expand(2))
    # A constant factor is always right, by every code.
    torch.testing.assert_close(found.predictability[:, 1], torch.ones(2, **F64))
    assert found.score == 0


def test_constant_factors_are_left_out_of_the_mean(codes, factors):
    still = torch.cat([factors, torch.full((600, 1), 3)], 1)
    torch.testing.assert_close(sap(codes, still).score, sap(codes, factors).score)


def test_constant_code_or_factor_has_no_correlation(codes):
    flat = torch.full_like(codes[:, :1], 0.1)
    found = sap(torch.cat([codes[:, :1], flat], 1), torch.cat([codes[:, :1], flat], 1))
    torch.testing.assert_close(found.predictability, torch.tensor([[1.0, 0.0], [0.0, 0.0]], **F64))


def test_one_code_stands_against_zero(codes, factors):
    found = sap(codes[:, :1], factors)
    torch.testing.assert_close(found.gaps, found.predictability[0])


def test_classes_unseen_in_training_are_wrong():
    factors = torch.arange(30)[:, None]
    found = sap(factors.double(), factors)
    assert found.predictability.item() == 0


def test_two_points_are_enough():
    found = sap(torch.tensor([[0.0], [1.0]], **F64), torch.tensor([[0], [1]]))
    assert found.settings == SapSettings(1, 1)
    assert found.score.isfinite() and found.interval.error.isnan()


def test_scores_of_single_precision_are_double(codes, factors):
    assert sap(codes.float(), factors).score.dtype == torch.float64


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"codes": torch.zeros(1, 2)}, "codes and factors must have one row per point"),
        ({"preset": "quick"}, "preset must be one of dlib, fast, got 'quick'"),
        ({"preset": 3}, "preset must be a name or SapSettings, got int"),
        ({"codes": torch.full((600, 2), torch.nan)}, "codes must be finite"),
    ],
)
def test_bad_input(factors, arguments, message):
    with pytest.raises(ValueError, match=message):
        sap(**{"codes": torch.zeros(600, 2), "factors": factors, **arguments})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"train": 0}, "train must be at least 1, got 0"),
        ({"penalty": 0.0}, "penalty must be positive, got 0.0"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        SapSettings(**change)


def test_one_point_is_too_few():
    with pytest.raises(ValueError, match="codes must have at least 2 points to train and to test on, got 1"):
        sap(torch.zeros(1, 2), torch.zeros(1, 1))
