"""The entropy form of the mutual information gap."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from unseam.metrics import MigEntropySettings, mig_entropy

GRID = torch.cartesian_prod(torch.arange(2), torch.arange(3))


def density(means, deviations):
    """Density of an equal mixture of Gaussians, and where it is not zero."""
    low, high = (means - 9 * deviations).min(), (means + 9 * deviations).max()
    return lambda z: stats.norm.pdf(z, means, deviations).mean(), low, high


def moments_by_quadrature(p, low, high, term):
    """First and second moment of a term under a density."""
    integrals = (lambda z: p(z) * term(z), lambda z: p(z) * term(z) ** 2)
    return np.array([integrate.quad(f, low, high, limit=500, epsabs=1e-9)[0] for f in integrals])


def entropy_by_quadrature(mean, deviation):
    """H(z) and the standard deviation of −log q(z)."""
    q, low, high = density(mean, deviation)
    first, second = moments_by_quadrature(q, low, high, lambda z: -math.log(q(z)))
    return first, math.sqrt(second - first**2)


def information_by_quadrature(mean, deviation, column):
    """I(z; v) and the standard deviation of log q(z|v) − log q(z)."""
    q, *_ = density(mean, deviation)
    moments = np.zeros(2)
    for value in np.unique(column):
        own = column == value
        p, low, high = density(mean[own], deviation[own])
        moments += own.mean() * moments_by_quadrature(p, low, high, lambda z, p=p: math.log(p(z) / q(z)))
    return moments[0], math.sqrt(moments[1] - moments[0] ** 2)


@pytest.fixture
def posterior(generator):
    """Few points, repeated, so that the mixtures can be integrated and the samples are many."""
    mean = GRID.double() @ torch.tensor([[2.0, 0.5, 0.0], [0.3, 1.0, 0.0]]).double()
    variance = 0.2 + torch.rand(mean.shape, generator=generator, dtype=torch.float64)
    return mean, variance


def test_narrow_posteriors_on_a_grid():
    found = mig_entropy(GRID.double(), GRID, variance=torch.full(GRID.shape, 1e-6))
    torch.testing.assert_close(found.gaps, torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(found.score, torch.ones((), dtype=torch.float64))


def test_against_quadrature(posterior):
    """Within four standard errors of 2 400 samples."""
    mean, variance = posterior
    repeats = 400
    found = mig_entropy(
        mean.repeat(repeats, 1), GRID.repeat(repeats, 1), variance=variance.repeat(repeats, 1)
    )
    mean, deviation = mean.numpy(), variance.sqrt().numpy()
    exact = np.zeros((3, 2))
    for j in range(3):
        truth, spread = entropy_by_quadrature(mean[:, j], deviation[:, j])
        assert found.code_entropy[j].item() == pytest.approx(truth, abs=4 * spread / math.sqrt(6 * repeats))
        for k in range(2):
            exact[j, k], spread = information_by_quadrature(mean[:, j], deviation[:, j], GRID[:, k].numpy())
            error = spread / math.sqrt(6 * repeats)
            assert found.information[j, k].item() == pytest.approx(exact[j, k], abs=4 * error)
    ordered = np.sort(exact / np.log([2, 3]), 0)
    truth = (ordered[-1] - ordered[-2]).mean()
    assert found.score.item() == pytest.approx(truth, abs=4 * found.interval.error.item())


def test_posteriors_that_do_not_move_tell_nothing(generator):
    found = mig_entropy(torch.zeros(60, 2).double(), GRID.repeat(10, 1), variance=torch.ones(60, 2).double())
    assert found.score.abs() < 1e-12
    expected = math.log(2 * math.pi * math.e) / 2
    # −log of a standard normal density has variance 1/2.
    assert found.code_entropy.tolist() == pytest.approx([expected] * 2, abs=4 * math.sqrt(0.5 / 60))


def test_invariant_to_order_sign_and_scale(posterior):
    mean, variance = posterior
    order = [2, 0, 1]
    scale = torch.tensor([10.0, 0.5, 3.0], dtype=torch.float64)
    expected = mig_entropy(mean, GRID, variance=variance)
    scaled = mig_entropy(mean * scale, GRID, variance=variance * scale**2)
    torch.testing.assert_close(scaled.score, expected.score)
    torch.testing.assert_close(scaled.code_entropy, expected.code_entropy + scale.log())
    # Noise belongs to the place of a code, so a permuted estimate differs by its error only.
    many = GRID.repeat(300, 1)
    first = mig_entropy(mean.repeat(300, 1), many, variance=variance.repeat(300, 1))
    moved = mig_entropy(-mean[:, order].repeat(300, 1), many, variance=variance[:, order].repeat(300, 1))
    error = math.hypot(first.interval.error.item(), moved.interval.error.item())
    assert moved.score.item() == pytest.approx(first.score.item(), abs=4 * error)


def test_a_member_is_the_same_alone(posterior):
    mean, variance = posterior
    stack, spread = (
        torch.stack([mean, -mean + 1, mean.flip(1)]),
        torch.stack([variance, variance / 2, variance]),
    )
    settings = MigEntropySettings(samples=4, mixture=5)
    stacked = mig_entropy(stack, GRID, variance=spread, preset=settings)
    for member in range(3):
        alone = mig_entropy(stack[member], GRID, variance=spread[member], preset=settings)
        torch.testing.assert_close(alone.score, stacked.score[member])
        assert alone.interval.error.isnan() and stacked.interval.error[member].isnan()  # of four samples
    assert stacked.settings == settings


def test_excluded_and_constant_factors_do_not_count(posterior):
    mean, variance = posterior
    both = mig_entropy(mean, GRID, variance=variance)
    first = mig_entropy(mean, GRID, variance=variance, preset=MigEntropySettings(excluded=(1,)))
    torch.testing.assert_close(first.score, both.gaps[0])
    assert first.gaps[1] == 0
    extra = torch.cat([GRID, torch.ones(6, 1).long()], 1)
    torch.testing.assert_close(mig_entropy(mean, extra, variance=variance).score, both.score)
    assert mig_entropy(mean, extra[:, 2:], variance=variance).score == 0


def test_one_code_has_its_whole_information(posterior):
    mean, variance = posterior
    found = mig_entropy(mean[:, :1], GRID, variance=variance[:, :1])
    torch.testing.assert_close(found.gaps, found.information[0] / torch.tensor([2, 3]).double().log())


def test_values_that_occur_once_and_continuous_factors(posterior):
    mean, variance = posterior
    once = mig_entropy(mean, torch.arange(6)[:, None], variance=variance)
    assert once.score.isfinite()
    binned = mig_entropy(
        mean, torch.linspace(0, 1, 6)[:, None], variance=variance, preset=MigEntropySettings(bins=6)
    )
    torch.testing.assert_close(binned.score, once.score)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variance": None}, "variance must hold the posterior's variances for the entropy form, got none"),
        ({"variance": torch.zeros(6, 3)}, "variance must be positive for the entropy form, got zeros"),
        ({"preset": MigEntropySettings(excluded=(2,))}, "excluded must name factors below 2, got 2"),
    ],
)
def test_bad_input_is_named(posterior, change, message):
    mean, variance = posterior
    with pytest.raises(ValueError, match=message):
        mig_entropy(mean, GRID, **({"variance": variance} | change))


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        MigEntropySettings(samples=0)


def test_information_is_divided_by_the_logarithm_in_double_precision(posterior, generator):
    mean, variance = (table.repeat(20, 1)[:, :1] for table in posterior)
    factor = GRID.repeat(20, 1)[:, 1:]
    found = mig_entropy(mean, factor, variance=variance)
    # Single precision would be off by 1e-8.
    assert found.gaps.item() == pytest.approx(found.information.item() / math.log(3), rel=1e-14)
