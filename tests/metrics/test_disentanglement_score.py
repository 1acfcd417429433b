"""Disentanglement score of rolinek2019, and nearest neighbours in one dimension."""

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors

from unseam.metrics.disentanglement_score import (
    DisentanglementSettings,
    _most_common,
    _nearest,
    disentanglement_score,
)

F64 = {"dtype": torch.float64}
PRINTED = DisentanglementSettings(form="printed")


@pytest.fixture
def factors(generator):
    return torch.stack([torch.randint(size, (500,), generator=generator) for size in (2, 3, 5)], 1)


@pytest.fixture
def codes(factors, generator):
    return factors.double() @ torch.randn(3, 4, generator=generator, **F64) + torch.randn(
        500, 4, generator=generator, **F64
    )


def parts(batch):
    order = torch.randperm(batch, generator=torch.Generator().manual_seed(0))
    cut = round(0.8 * batch)
    return order[:cut], order[cut:]


@pytest.mark.parametrize("count", [1, 4, 5, 30])
def test_neighbours_against_scikit_learn(generator, count):
    train = torch.randn(2, 3, 30, generator=generator, **F64)
    test = 1.5 * torch.randn(2, 3, 40, generator=generator, **F64)
    found = _nearest(train, test, count)
    for i in range(2):
        for j in range(3):
            model = NearestNeighbors(n_neighbors=count).fit(train[i, j].numpy()[:, None])
            expected = torch.from_numpy(model.kneighbors(test[i, j].numpy()[:, None])[1])
            assert torch.equal(found[i, j].sort(-1).values, expected.sort(-1).values)


def test_neighbours_equally_far_away():
    train = torch.tensor([2.0, 0.0, 2.0, 0.0, 2.0])
    # Of 0 and 2 the smaller is nearer to 1, of equal ones the earlier.
    assert _nearest(train, torch.tensor([1.0, 2.0]), 3).tolist() == [[1, 3, 0], [0, 2, 4]]


def test_most_common_label():
    labels = torch.tensor([[3, 1, 3, 1, 0], [2, 2, 2, 0, 0], [4, 3, 2, 1, 9]])
    assert _most_common(labels).tolist() == [1, 2, 1]


def test_regression_against_scikit_learn(codes, generator):
    factors = codes[:, :2] + torch.randn(500, 2, generator=generator, **F64)
    found = disentanglement_score(codes, factors, preset=PRINTED)
    train, test = parts(500)
    for factor in range(2):
        truth = factors[test, factor]
        for code in range(4):
            model = KNeighborsRegressor().fit(
                codes[train, code : code + 1].numpy(), factors[train, factor].numpy()
            )
            error = torch.from_numpy(model.predict(codes[test, code : code + 1].numpy())) - truth
            spread = truth.std(correction=0)
            expected = (spread - error.square().mean().sqrt()) / spread
            torch.testing.assert_close(found.sensitivity[code, factor], expected)
    best = found.sensitivity.sort(0).values
    torch.testing.assert_close(found.gaps, best[-1] - best[-2])
    torch.testing.assert_close(found.score, found.gaps.mean())


def test_classification_against_scikit_learn(codes, factors):
    found = disentanglement_score(codes, factors, preset=PRINTED)
    normalised = disentanglement_score(codes, factors)
    train, test = parts(500)
    for factor in range(3):
        truth = factors[test, factor]
        constant = truth.bincount().max().double() / 100
        for code in range(4):
            model = KNeighborsClassifier().fit(
                codes[train, code : code + 1].numpy(), factors[train, factor].numpy()
            )
            accuracy = model.score(codes[test, code : code + 1].numpy(), truth.numpy())
            assert found.sensitivity[code, factor].item() == pytest.approx(accuracy / constant.item())
            expected = max(0.0, (accuracy - constant.item()) / (1 - constant.item()))
            assert normalised.sensitivity[code, factor].item() == pytest.approx(expected)


def test_forms_of_regression_differ_below_zero(codes):
    factors = codes.flip(0)[:, :2]
    printed = disentanglement_score(codes, factors, preset=PRINTED).sensitivity
    assert printed.min() < 0
    torch.testing.assert_close(disentanglement_score(codes, factors).sensitivity, printed.clamp(min=0))


def test_perfect_codes(factors, generator):
    many = factors.repeat(4, 1)
    assert disentanglement_score(many.double(), many).score > 0.9
    fine = torch.rand(2000, 2, generator=generator, **F64)
    found = disentanglement_score(fine, fine)
    # Five neighbours among 1 600 miss by about 5 / 1600 / 12^½ of the standard deviation 12^-½.
    assert found.sensitivity.diagonal().min() > 1 - 5 / 1600 * 4
    assert found.score > 0.95


def test_three_equal_shapes_score_two_as_printed():
    shapes = torch.arange(3).repeat(100)[:, None]
    codes = torch.cat([shapes.double(), torch.zeros(300, 1, **F64)], 1)
    train, test = parts(300)
    counts = shapes[test, 0].bincount(minlength=3).double()
    guess = _most_common(shapes[train[:5], 0])
    expected = (60 - counts[guess]) / counts.max()
    torch.testing.assert_close(disentanglement_score(codes, shapes, preset=PRINTED).score, expected)
    assert disentanglement_score(codes, shapes).score == 1


def test_random_codes_score_little(generator):
    factors = torch.rand(1000, 2, generator=generator, **F64)
    # Squared errors of a mean of five are 6/5 of the variance: below 0 as printed, 0 when normalised.
    found = disentanglement_score(torch.rand(1000, 3, generator=generator, **F64), factors)
    assert found.score == 0


@pytest.mark.parametrize("form", ["normalised", "printed"])
def test_order_sign_and_scale_of_codes_do_not_matter(codes, factors, form):
    settings = DisentanglementSettings(form=form)
    moved = codes[:, [2, 0, 3, 1]] * torch.tensor([1e-5, -1.0, -30.0, 1.0], **F64)
    found, expected = (disentanglement_score(given, factors, preset=settings) for given in (moved, codes))
    torch.testing.assert_close(found.sensitivity, expected.sensitivity[[2, 0, 3, 1]])
    torch.testing.assert_close(found.score, expected.score)


@pytest.mark.parametrize("discrete", [None, (True, False, True)])
def test_a_member_scores_the_same_alone(codes, factors, generator, discrete):
    stack = torch.stack([codes, torch.randn(codes.shape, generator=generator, **F64), codes**3])
    together = disentanglement_score(stack, factors, discrete=discrete)
    assert together.sensitivity.shape == (3, 4, 3)
    for member in range(3):
        alone = disentanglement_score(stack[member], factors, discrete=discrete)
        torch.testing.assert_close(alone.score, together.score[member], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            alone.interval.error, together.interval.error[member], rtol=1e-9, atol=1e-12
        )


def test_interval_without_each_group_by_hand(codes, factors):
    given = factors[:, :1].double()
    found = disentanglement_score(codes, given)
    source = torch.Generator().manual_seed(0)
    order = torch.randperm(500, generator=source)
    train, test = order[:400], order[400:]
    torch.randperm(400, generator=source)
    group = torch.randperm(100, generator=source) % 20
    guess = given[train, 0][_nearest(codes[train].T, codes[test].T, 5)].mean(-1)
    scores = []
    for left in range(20):
        kept = group != left
        truth = given[test, 0][kept]
        error = (guess[:, kept] - truth).square().mean(1).sqrt()
        best = (1 - error / truth.std(correction=0)).clamp(min=0).sort().values
        scores.append(best[-1] - best[-2])
    torch.testing.assert_close(found.interval.error, torch.stack(scores).var(correction=0).mul(19).sqrt())


@pytest.mark.parametrize("form", ["normalised", "printed"])
@pytest.mark.parametrize("kind", [torch.long, torch.float64])
def test_a_constant_factor_has_no_gap(codes, form, kind):
    factors = torch.full((500, 1), 3, dtype=kind)
    found = disentanglement_score(codes, factors, preset=DisentanglementSettings(form=form))
    assert found.score == 0
    assert found.interval.error == 0


def test_constant_factors_are_left_out_of_the_mean(codes, factors):
    still = torch.cat([factors, torch.full((500, 1), 3)], 1)
    torch.testing.assert_close(
        disentanglement_score(codes, still).score, disentanglement_score(codes, factors).score
    )


def test_one_code_stands_against_zero(codes, factors):
    found = disentanglement_score(codes[:, :1], factors)
    torch.testing.assert_close(found.gaps, found.sensitivity[0])


def test_fewer_points_than_neighbours():
    found = disentanglement_score(torch.tensor([[0.0], [1.0]], **F64), torch.tensor([[0.0], [1.0]]))
    assert found.settings == DisentanglementSettings(points=2, neighbours=1)
    assert found.score == 0


def test_values_that_occur_once_are_never_right():
    factors = torch.arange(100)[:, None]
    assert disentanglement_score(factors.double(), factors).score == 0


def test_fewer_points_are_drawn(codes, factors):
    settings = DisentanglementSettings(points=50)
    assert disentanglement_score(codes, factors, preset=settings).settings == settings
    assert disentanglement_score(codes, factors).settings.points == 500


def test_scores_of_single_precision_are_double(codes, factors):
    assert disentanglement_score(codes.float(), factors).score.dtype == torch.float64


@pytest.mark.parametrize(
    "change, message",
    [
        ({"points": 1}, "points must be at least 2, got 1"),
        ({"train_share": 1.0}, r"train_share must lie in \(0, 1\), got 1.0"),
        ({"neighbours": 0}, "neighbours must be at least 1, got 0"),
        ({"form": "both"}, "form must be 'normalised' or 'printed', got 'both'"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        DisentanglementSettings(**change)
