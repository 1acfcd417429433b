"""Explained shares of variance."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsRegressor

from unseam.metrics import R2Settings, r2
from unseam.metrics._inputs import check_inputs, draw_points
from unseam.metrics.intervals import groups

BATCH = 600
FORMS = ("linear", "nonlinear")
DIRECTIONS = ("factors", "codes")


@pytest.fixture
def factors(generator):
    return torch.randn(BATCH, 2, generator=generator, dtype=torch.float64)


@pytest.fixture
def codes(generator, factors):
    mixing = torch.randn(2, 2, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, BATCH, 3, generator=generator, dtype=torch.float64)
    return torch.tanh(factors @ mixing) + 0.3 * noise


def halves(codes, factors):
    """The split that the metric makes: two in three to fit on."""
    source = torch.Generator().manual_seed(0)
    draw_points(check_inputs(codes, factors), 15_000, source)
    order = torch.randperm(BATCH, generator=source)
    return order[:400].numpy(), order[400:].numpy(), groups(200, source)


def fitted(x, y, form, train, test):
    """Guesses of scikit-learn, inputs standardised by those to fit on."""
    x = (x - x[train].mean(0)) / x[train].std(0)
    model = LinearRegression() if form == "linear" else KNeighborsRegressor(5)
    return model.fit(x[train], y[train]).predict(x[test]).reshape(len(test), -1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_against_scikit_learn(codes, factors, form, direction):
    found = r2(codes, factors, preset=R2Settings(form=form, direction=direction))
    train, test, group = halves(codes, factors)
    assert found.settings == R2Settings(train=400, test=200, form=form, direction=direction)
    for member in range(2):
        x, y = codes[member].numpy(), factors.numpy()
        if direction == "codes":
            x, y = y, x
        guess = fitted(x, y, form, train, test)
        expected = r2_score(y[test], guess, multioutput="raw_values")
        share = getattr(found, form if direction == "factors" else f"{form}_back")[member]
        assert share.tolist() == pytest.approx(expected, abs=1e-9)
        assert found.score[member].item() == pytest.approx(expected.mean(), abs=1e-9)
        rest = np.array([r2_score(y[test][group != g], guess[group != g]) for g in range(20)])
        error = np.sqrt(((rest - rest.mean()) ** 2).sum() * 19 / 20)
        assert found.interval.error[member].item() == pytest.approx(error, rel=1e-6)


def test_linear_codes_explain_all(factors):
    mixing = torch.tensor([[1.0, 2.0, 0.5], [-1.0, 1.0, 3.0]], dtype=torch.float64)
    found = r2(factors @ mixing + 7, factors)
    torch.testing.assert_close(found.linear, torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(found.linear_back, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(found.score, torch.ones((), dtype=torch.float64))


def test_a_curve_is_explained_by_neighbours_only():
    """A square of a symmetric variable is uncorrelated with it."""
    line = torch.linspace(-1, 1, 3_000, dtype=torch.float64)[:, None]
    found = r2(line, line**2)
    # Neighbours within ten steps of 2/3000 miss the square, of variance 4/45, by less than twice that.
    assert 1 - found.nonlinear.item() < (2 * 10 * 2 / 3_000) ** 2 * 45 / 4
    # Slope, mean and their product with the test points' covariance, each at four standard errors.
    assert abs(found.linear.item()) < 16 * (1 / 2_000 + 1 / 2_000 + 1 / 1_000 + 2 / (2_000 * 1_000) ** 0.5)


@pytest.mark.parametrize("form", FORMS)
def test_noise_explains_nothing(generator, factors, form):
    """Less than nothing: the noise of three fitted weights, or of five neighbours' mean, and of the test mean."""
    noise = torch.randn(BATCH, 2, generator=generator, dtype=torch.float64)
    found = r2(noise, factors, preset=R2Settings(form=form))
    expected = -(3 / 400 if form == "linear" else 1 / 5) - 1 / 200
    assert found.score.item() == pytest.approx(expected, abs=4 * found.interval.error.item())


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_linear_is_unchanged_by_an_invertible_map(codes, factors, direction, generator):
    mixing = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(r2(codes @ mixing, factors).linear, r2(codes, factors).linear)


def test_dependent_and_constant_inputs(codes, factors):
    expected = r2(codes, factors)
    doubled = r2(torch.cat([codes, codes[..., :1], torch.full((2, BATCH, 1), 0.1)], 2), factors)
    torch.testing.assert_close(doubled.linear, expected.linear)
    assert doubled.linear_back[:, 4].tolist() == [0.0, 0.0]
    # The mean over codes leaves out the constant one.
    back = r2(torch.cat([codes, torch.ones(2, BATCH, 1)], 2), factors, preset=R2Settings(direction="codes"))
    torch.testing.assert_close(back.score, expected.linear_back.mean(1))


def test_constants_explain_and_have_nothing(codes, factors):
    """Constant codes leave the mean of the points to fit on as the only guess."""
    train, test, _ = halves(codes, factors)
    away = (factors[test] - factors[train].mean(0)).square().sum(0)
    expected = 1 - away / (factors[test] - factors[test].mean(0)).square().sum(0)
    torch.testing.assert_close(r2(torch.full((BATCH, 2), 0.1), factors).linear, expected)
    assert not r2(codes, torch.ones(BATCH, 1)).score.any()
    assert not r2(codes, torch.ones(BATCH, 1)).interval.error.any()


def test_two_points_are_enough(codes, factors):
    found = r2(codes[:, :2], factors[:2])
    assert (found.settings.train, found.settings.test) == (1, 1)
    assert not found.score.any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: R2Settings(form="forest"), "form must be 'linear' or 'nonlinear', got 'forest'"),
        (lambda: R2Settings(direction="both"), "direction must be 'factors' or 'codes', got 'both'"),
        (lambda: R2Settings(train=0), "train must be at least 1, got 0"),
        (lambda: R2Settings(neighbours=0), "neighbours must be at least 1, got 0"),
        (
            lambda: r2(torch.zeros(1, 2), torch.zeros(1, 2)),
            "at least 2 points to train and to test on, got 1",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
