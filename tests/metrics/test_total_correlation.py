"""Dependence of codes on each other."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.metrics import mutual_info_score

from unseam.metrics import (
    PairwiseInformationSettings,
    TotalCorrelationSettings,
    mean_pairwise_information,
    total_correlation,
    wasserstein_correlation,
)
from unseam.metrics.intervals import groups

METRICS = pytest.mark.parametrize(
    "metric", [total_correlation, wasserstein_correlation, mean_pairwise_information]
)


@pytest.fixture
def codes(generator):
    mixing = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64)
    return torch.randn(2, 500, 3, generator=generator, dtype=torch.float64) @ mixing + 100


def test_total_correlation_of_a_covariance(codes):
    covariance = [np.cov(member.T.numpy()) for member in codes]
    expected = [np.log(np.diag(c)).sum() / 2 - np.linalg.slogdet(c)[1] / 2 for c in covariance]
    found = total_correlation(codes)
    assert found.score.tolist() == pytest.approx(expected, rel=1e-10)
    for member in range(2):
        expected = torch.as_tensor(np.corrcoef(codes[member].T.numpy()))
        torch.testing.assert_close(found.correlation[member], expected)


@pytest.mark.parametrize("angle", [0.0, 0.3, 1.0])
def test_two_codes_with_a_known_correlation(angle):
    """Four points whose second moments are exact."""
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    rotated = torch.stack([square[:, 0], math.sin(angle) * square[:, 0] + math.cos(angle) * square[:, 1]], 1)
    expected = -math.log(math.cos(angle))
    assert total_correlation(rotated).score.item() == pytest.approx(expected, abs=1e-12)
    # Variances 4/3 and correlation s: eigenvalues (4/3)(1 ± s) of the covariance.
    s = math.sin(angle)
    distance = 4 / 3 * (4 - 2 * math.sqrt(1 + s) - 2 * math.sqrt(1 - s))
    found = wasserstein_correlation(rotated)
    assert found.score.item() == pytest.approx(distance, abs=1e-12)
    assert found.normalised.item() == pytest.approx(distance / (8 / 3), abs=1e-12)


def test_wasserstein_against_a_matrix_root(codes):
    found = wasserstein_correlation(codes)
    for member in range(2):
        covariance = np.cov(codes[member].T.numpy())
        root = scipy.linalg.sqrtm(np.diag(np.diag(covariance)) @ covariance)
        expected = 2 * np.trace(covariance) - 2 * np.trace(root).real
        assert found.score[member].item() == pytest.approx(expected, rel=1e-9)
        assert found.normalised[member].item() == pytest.approx(expected / np.trace(covariance), rel=1e-9)


def test_pairs_against_scikit_learn(codes):
    found = mean_pairwise_information(codes, preset=PairwiseInformationSettings(bins=9))
    for member in range(2):
        cut = [np.digitize(c, np.histogram(c, 9)[1][:-1]) for c in codes[member].T.numpy()]
        table = np.array([[mutual_info_score(a, b) for b in cut] for a in cut])
        torch.testing.assert_close(found.information[member], torch.as_tensor(table), rtol=0, atol=1e-12)
        expected = (table.sum() - np.trace(table)) / 6
        assert found.score[member].item() == pytest.approx(expected, abs=1e-12)


@METRICS
def test_the_error_is_that_of_leaving_out_groups(codes, metric):
    # The outermost points four times over, so that no group moves the bins of the rest.
    codes = codes.clamp(codes.quantile(0.05, 1, keepdim=True), codes.quantile(0.95, 1, keepdim=True))
    found = metric(codes)
    group = groups(500, torch.Generator().manual_seed(0))
    rest = torch.stack([metric(codes[:, group != left]).score for left in range(20)])
    error = ((rest - rest.mean(0)).square().sum(0) * 19 / 20).sqrt()
    torch.testing.assert_close(found.interval.error, error, rtol=1e-6, atol=1e-12)


@METRICS
def test_factors_are_not_used(codes, metric):
    table = torch.zeros(3, 1)
    assert torch.equal(metric(codes, table).score, metric(codes, None).score)


@METRICS
def test_a_member_is_the_same_alone(codes, metric):
    stacked = metric(codes)
    for member in range(2):
        alone = metric(codes[member])
        torch.testing.assert_close(alone.score, stacked.score[member])
        torch.testing.assert_close(alone.interval.error, stacked.interval.error[member])


@METRICS
def test_invariant_to_order_and_sign(codes, metric):
    torch.testing.assert_close(metric(-codes[..., [2, 0, 1]]).score, metric(codes).score)


@pytest.mark.parametrize("metric", [total_correlation, mean_pairwise_information])
def test_invariant_to_scale(codes, metric):
    scale = torch.tensor([1e-4, 1.0, 1e3], dtype=torch.float64)
    torch.testing.assert_close(metric(codes * scale).score, metric(codes).score)


def test_a_common_scale_is_squared(codes):
    torch.testing.assert_close(
        wasserstein_correlation(3 * codes).score, 9 * wasserstein_correlation(codes).score
    )


@METRICS
def test_constant_codes_add_nothing(codes, metric):
    dead = torch.full((2, 500, 1), 0.1, dtype=torch.float64)
    with_it = metric(torch.cat([codes, dead], 2))
    expected = metric(codes).score * (0.5 if metric is mean_pairwise_information else 1)  # 3 of 6 pairs
    torch.testing.assert_close(with_it.score, expected)
    assert not metric(dead).score.any()
    assert not metric(dead).interval.error.any()


@METRICS
def test_one_code_depends_on_nothing(codes, metric):
    torch.testing.assert_close(metric(codes[..., :1]).score, torch.zeros(2).double(), rtol=0, atol=1e-10)


def test_a_duplicated_code_stays_finite(codes):
    """Eigenvalues 2 and 0, of which rounding leaves between the least that counts, 2 ε, and 16 ε."""
    found = total_correlation(codes[..., [0, 0]]).score
    eps = torch.finfo(torch.float64).eps
    assert (found <= -math.log(2 * 2 * eps) / 2 + 1e-12).all()
    assert (found >= -math.log(2 * 16 * eps) / 2).all()


@METRICS
def test_one_point_is_too_few(codes, metric):
    with pytest.raises(ValueError, match="codes must have at least 2 points for a score, got 1"):
        metric(codes[:, :1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@METRICS
def test_a_device_gives_the_same(codes, metric):
    found, expected = metric(codes.cuda()), metric(codes)
    torch.testing.assert_close(found.score.cpu(), expected.score, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.interval.error.cpu(), expected.interval.error, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TotalCorrelationSettings(points=0), "points must be at least 1, got 0"),
        (lambda: PairwiseInformationSettings(bins=0), "bins must be at least 1, got 0"),
        (lambda: total_correlation(torch.full((3, 2), torch.nan)), "codes must be finite, got 6 entries"),
        (lambda: wasserstein_correlation(torch.zeros(3)), "codes must have shape"),
        (
            lambda: mean_pairwise_information(torch.zeros(3, 2) * 1j),
            "codes must be real, got torch.complex64",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("size", range(3, 12))
def test_codes_that_are_not_correlated_have_no_negative_total_correlation(size):
    """Rounding must not make a zero negative, nor a negative zero that prints a sign."""
    plane = torch.cartesian_prod(torch.arange(float(size)), torch.arange(4.0), torch.arange(3.0)).double()
    score = total_correlation(plane / 3).score.item()
    assert score >= 0
    assert math.copysign(1, score) == 1
