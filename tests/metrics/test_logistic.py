"""Logistic regressions of all members against scikit-learn's, one by one."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from unseam.metrics import _logistic
from unseam.metrics._logistic import _curvature, _minimum, _products, multinomial, one_vs_rest

F64 = {"dtype": torch.float64}


@pytest.fixture
def labels(generator):
    return torch.randint(5, (600,), generator=generator)


@pytest.fixture
def x(labels, generator):
    """Of three members, about their means: one tells classes a little, one tells nothing, one is on another scale."""
    mixed = one_hot(labels).double() @ torch.randn(5, 4, generator=generator, **F64)
    noise = torch.randn(3, 600, 4, generator=generator, **F64)
    given = torch.stack([mixed + noise[0], noise[1], 100 * (mixed + noise[2])])
    return given - given.mean(1, keepdim=True)


def reference(x, y, penalty=1.0):
    """Weights with the intercept in the last column, by the one of scikit-learn's solvers that comes closest."""
    model = LogisticRegression(C=penalty, solver="newton-cg", tol=1e-9, max_iter=10_000).fit(
        x.numpy(), y.numpy()
    )
    return np.c_[model.coef_, model.intercept_]


def centred(weights):
    """All intercepts may move together: the one choice that scikit-learn makes."""
    weights = weights.clone()
    weights[:, -1] -= weights[:, -1].mean()
    return weights


@pytest.mark.parametrize("penalty", [0.01, 1.0])
@pytest.mark.parametrize("classes", [3, 5])
def test_weights_of_all_classes_against_scikit_learn(x, labels, classes, penalty):
    y = labels % classes
    found = multinomial(x, one_hot(y).double(), penalty)
    assert found.shape == (3, classes, 5)
    for member in range(3):
        expected = reference(x[member], y, penalty)
        np.testing.assert_allclose(centred(found[member]), expected, rtol=1e-6, atol=1e-7)


def test_of_two_classes_the_second_has_the_weights(x, labels):
    found = multinomial(x, one_hot(labels % 2).double(), 1.0)
    assert (found[:, 0] == 0).all()
    for member in range(3):
        expected = reference(x[member], labels % 2)
        np.testing.assert_allclose(found[member, 1:], expected, rtol=1e-6, atol=1e-7)


def test_weights_of_each_class_against_scikit_learn(x, labels):
    found = one_vs_rest(x, one_hot(labels % 3).double(), 1.0)
    for member in range(3):
        for value in range(3):
            expected = reference(x[member], labels % 3 == value)
            np.testing.assert_allclose(found[member, value], expected[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("fit", [one_vs_rest, multinomial])
def test_no_gradient_is_left(x, labels, fit, scale):
    given = scale * x[0]
    weights = fit(given[None], one_hot(labels).double(), 1.0)[0].requires_grad_()
    scores = given @ weights[:, :-1].T + weights[:, -1]
    lost = (
        cross_entropy(scores, labels, reduction="sum")
        if fit is multinomial
        else binary_cross_entropy_with_logits(scores, one_hot(labels).double(), reduction="sum")
    )
    (gradient,) = torch.autograd.grad(lost + weights[:, :-1].square().sum() / 2, [weights])
    # Within 1e-10 nats of the least: a gradient of sqrt(2e-10 · curvature), which is at most Σ x² / 4.
    assert (gradient.norm(dim=1) < (2e-10 * (given.square().sum() + 600) / 4).sqrt()).all()


def test_scikit_learn_s_own_tolerance_changes_few_answers(x, labels):
    """Documented: as much as two in a thousand where classes can hardly be told apart."""
    found = multinomial(x, one_hot(labels).double(), 1.0)
    told = (x @ found[..., :-1].mT + found[:, None, :, -1]).argmax(-1)
    for member in range(3):
        model = LogisticRegression(max_iter=10_000).fit(x[member].numpy(), labels.numpy())
        assert (told[member].numpy() != model.predict(x[member].numpy())).mean() <= 0.002


@pytest.mark.parametrize("fit", [one_vs_rest, multinomial])
def test_separable_classes_have_finite_weights(fit):
    hot = one_hot(torch.arange(60) % 3).double()
    found = fit(1e4 * (hot - hot.mean(0))[None], hot, 1.0)
    assert found.isfinite().all()
    scores = hot @ found[0, :, :-1].T
    assert (scores.argmax(-1) == torch.arange(60) % 3).all()


@pytest.mark.parametrize("fit", [one_vs_rest, multinomial])
def test_constant_columns_leave_the_shares(labels, fit):
    hot = one_hot(labels).double()
    found = fit(torch.zeros(2, 600, 3, **F64), hot, 1.0)
    assert (found[..., :-1] == 0).all()
    share = found[0, :, -1].softmax(0) if fit is multinomial else found[0, :, -1].sigmoid()
    torch.testing.assert_close(share, hot.mean(0))


def test_sums_of_products_with_and_without_all_of_them_kept(generator):
    weight, x = (
        torch.rand(2, 3, 50, generator=generator, **F64),
        torch.randn(2, 50, 4, generator=generator, **F64),
    )
    expected = torch.einsum("msp,mpa,mpb->msab", weight, x, x)
    torch.testing.assert_close(_curvature(weight, x, _products(x)), expected)
    torch.testing.assert_close(_curvature(weight, x, None), expected)


def test_many_columns_keep_no_products(labels, generator):
    x = torch.randn(1, 600, 70, generator=generator, **F64)
    assert _products(torch.cat([x, torch.ones(1, 600, 1)], -1)) is None
    found = multinomial(x, one_hot(labels).double(), 1.0)
    expected = reference(x[0], labels)
    np.testing.assert_allclose(centred(found[0]), expected, rtol=1e-6, atol=1e-7)


def steep(weights):
    """√(1 + w²), whose full Newton step from beyond 1 goes to −w³, and its weights as scores."""
    return weights, (1 + weights.square()).sqrt().sum(-1)


def derivatives(weights, scores):
    """Of that, once the scores are known to be those of the weights."""
    assert torch.equal(scores, weights)
    root = (1 + weights.square()).sqrt()
    return weights / root, torch.diag_embed(root**-3)


def test_steps_that_gain_nothing_are_halved():
    found = _minimum(torch.tensor([[2.0], [30.0], [0.5]], **F64), steep, derivatives)
    torch.testing.assert_close(found, torch.zeros(3, 1, **F64), rtol=0, atol=1e-5)


def test_what_is_stuck_stays_and_is_warned_of(monkeypatch):
    """One halving is not enough for the second, and the first is not held up by it."""
    monkeypatch.setattr(_logistic, "_HALVINGS", 1)
    with pytest.warns(RuntimeWarning, match="a logistic regression did not converge: its objective is about"):
        found = _minimum(torch.tensor([[0.5], [3.0]], **F64), steep, derivatives)
    assert found[1].item() == 3.0
    assert abs(found[0].item()) < 1e-5


def test_too_few_steps_are_warned_of(x, labels, monkeypatch):
    monkeypatch.setattr(_logistic, "_STEPS", 2)
    with pytest.warns(RuntimeWarning, match="did not converge"):
        multinomial(x, one_hot(labels).double(), 1.0)
