"""Codes of any finite size, far from 0, and few: scores stay what they are, or say that they have no interval."""

import math

import pytest
import torch

from unseam.metrics import (
    BetaVaeSettings,
    DciSettings,
    FactorVaeSettings,
    MccSettings,
    MigSettings,
    SapSettings,
    beta_vae_score,
    dci,
    disentanglement_score,
    evaluate,
    explicitness,
    factor_vae_score,
    irs,
    mcc,
    mean_pairwise_information,
    mig,
    mig_sup,
    modularity,
    r2,
    sap,
    total_correlation,
    udr,
    wasserstein_correlation,
)
from unseam.metrics._inputs import centre_distant, scale_by_power, scale_exponent

BINNED = DciSettings(train=200, test=100, rounds=5, splits="binned", precision="float32")
INVARIANT = {
    "mig": (mig, "dlib"),
    "mig (knn)": (mig, MigSettings(information="knn")),
    "modularity": (modularity, "dlib"),
    "dci (binned)": (dci, BINNED),
    "irs": (irs, "dlib"),
    "disentanglement_score": (disentanglement_score, "dlib"),
    "mcc": (mcc, "dlib"),
    "mcc (spearman)": (mcc, MccSettings(correlation="spearman")),
    "r2": (r2, "dlib"),
    "total_correlation": (total_correlation, "dlib"),
    "mean_pairwise_information": (mean_pairwise_information, "dlib"),
}
# With a penalty or threshold, or scikit-learn's limits, that only small codes feel.
UPWARDS = {
    "mig_sup": (mig_sup, "dlib"),
    "dci (exact)": (dci, DciSettings(train=200, test=100, rounds=3)),
    "factor_vae_score": (factor_vae_score, FactorVaeSettings(train=200, test=100)),
    "sap": (sap, SapSettings(train=200, test=100)),
    "explicitness": (explicitness, "dlib"),
    "beta_vae_score": (beta_vae_score, BetaVaeSettings(train=200, test=100)),
}
LARGE = [2.0**531, 1e200, 1e307]
SMALL = [2.0**-664, 1e-200]


def each(cases):
    return pytest.mark.parametrize(("metric", "preset"), cases.values(), ids=cases.keys())


@pytest.fixture
def factors(generator):
    return torch.stack([torch.randint(size, (300,), generator=generator) for size in (3, 5)], 1)


@pytest.fixture
def codes(factors, generator):
    noise = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    mixed = factors.double() @ torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.4, 1.0]], dtype=torch.float64)
    return mixed - mixed.mean(0) + 0.3 * noise


@pytest.mark.parametrize("size", LARGE + SMALL)
@each(INVARIANT)
def test_codes_of_any_size_score_the_same(metric, preset, codes, factors, size):
    expected, found = (metric(z, factors, preset=preset) for z in (codes, codes * size))
    torch.testing.assert_close(found.score, expected.score, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.interval.error, expected.interval.error, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("size", LARGE)
@each(UPWARDS)
def test_beyond_a_penalty_larger_codes_score_the_same(metric, preset, codes, factors, size):
    expected, found = (metric(z, factors, preset=preset) for z in (codes * 1e6, codes * size))
    torch.testing.assert_close(found.score, expected.score, rtol=1e-6, atol=1e-9)


def test_one_code_of_another_size_changes_no_other(codes, factors):
    sizes = torch.tensor([1.0, 1e200, 1e-200], dtype=torch.float64)
    for metric in (mig, mcc, total_correlation):
        torch.testing.assert_close(metric(codes * sizes, factors).score, metric(codes, factors).score)


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_single_precision(codes, factors, size):
    expected, found = (mcc((codes * c).float(), factors).score for c in (1.0, size))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def test_small_codes_in_the_proportions_that_a_penalty_sees(codes, factors):
    expected, found = (explicitness(codes * size, factors).score for size in (1e-10, 1e-200))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("size", [2.0**200, 2.0**-200])
def test_what_has_the_codes_units_keeps_them(codes, factors, size):
    assert torch.equal(irs(codes * size, factors).deviation, irs(codes, factors).deviation * size)
    ordinary, extreme = (wasserstein_correlation(codes * c) for c in (1.0, size))
    torch.testing.assert_close(extreme.score / size / size, ordinary.score, rtol=1e-9, atol=0)
    torch.testing.assert_close(extreme.interval.error / size / size, ordinary.interval.error)
    torch.testing.assert_close(extreme.normalised, ordinary.normalised)
    settings = BetaVaeSettings(train=200, test=100)
    expected, found = (
        beta_vae_score(codes * c, factors, preset=settings).differences for c in (2.0**30, 2.0**200)
    )
    torch.testing.assert_close(found, expected * 2.0**170)


def test_a_squared_distance_that_overflows_is_refused(codes):
    with pytest.raises(ValueError, match="codes must be below 1e150 for a squared distance"):
        wasserstein_correlation(codes * 1e160)


def test_agreement_of_members_of_any_size(codes, factors):
    both = torch.stack([codes, -codes.flip(1)])
    expected, found = (udr(both * size, torch.ones(2, 3)).score for size in (1.0, 1e200))
    torch.testing.assert_close(found, expected)
    table = evaluate(both * 1e200, factors, ["udr"], variance=torch.ones_like(both))
    torch.testing.assert_close(torch.tensor(table["score"].to_numpy()), expected)


def test_factors_of_any_size(codes, factors):
    for metric in (mcc, r2, mig):
        expected, found = (metric(codes, factors.double() * size).score for size in (1.0, 1e200))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "preset", [BINNED, DciSettings(train=200, test=100, rounds=5)], ids=["binned", "exact"]
)
def test_trees_read_codes_far_from_zero(codes, factors, preset):
    """Single precision has steps of 8 at 1e8; in double precision all but 1e-8 is left."""
    expected, found = (dci(codes + shift, factors, preset=preset) for shift in (0.0, 1e8))
    assert expected.score > 0.2
    torch.testing.assert_close(found.score, expected.score, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.informativeness, expected.informativeness, rtol=0, atol=0.02)


def test_ordinary_codes_stay_as_they_are(codes):
    assert centre_distant(codes) is codes
    assert scale_by_power(codes, scale_exponent(codes)) is codes
    assert torch.equal(
        centre_distant(codes * torch.tensor([1.0, 30.0, 0.1]) + 1), codes * torch.tensor([1.0, 30.0, 0.1]) + 1
    )


@pytest.mark.parametrize("exponent", [-1074, -1022, -600, -41, -40, 0, 40, 41, 600, 1023])
def test_powers_of_two_are_exact(exponent):
    value = torch.tensor([[math.ldexp(1.0, exponent)], [0.0]], dtype=torch.float64)
    found = scale_exponent(value)
    shift = int(found)
    assert shift == min(max(min(exponent + 1, 40), -40) - exponent - 1, 1000)
    assert scale_by_power(value, found)[0].item() == math.ldexp(1.0, exponent + shift)
    assert int(scale_exponent(value, small=False)) == min(shift, 0)


@pytest.mark.parametrize("points", [2, 3, 5, 19])
@each({**INVARIANT, **UPWARDS})
def test_too_few_points_have_no_interval(metric, preset, codes, factors, points):
    found = metric(codes[:points], factors[:points], preset=preset)
    assert found.score.isfinite()
    assert all(part.isnan() for part in found.interval)


@each({**INVARIANT, **UPWARDS})
def test_one_point_is_refused(metric, preset, codes, factors):
    with pytest.raises(ValueError, match="codes must have at least 2 points"):
        metric(codes[:1], factors[:1], preset=preset)
