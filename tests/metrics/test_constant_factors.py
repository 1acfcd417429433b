"""A constant factor says nothing: scores and their intervals are those without it."""

import pytest
import torch

from unseam.metrics import (
    MccSettings,
    MigSettings,
    MigSupSettings,
    R2Settings,
    beta_vae_score,
    binned_information,
    dci,
    disentanglement_score,
    explicitness,
    factor_vae_score,
    mcc,
    mean_pairwise_information,
    mig,
    mig_entropy,
    mig_sup,
    modularity,
    r2,
    sap,
)
from unseam.metrics.beta_vae_score import BetaVaeSettings
from unseam.metrics.dci import DciSettings
from unseam.metrics.factor_vae_score import FactorVaeSettings
from unseam.metrics.intervals import GROUPS

# Sizes, of all points or without a twentieth, where log n − (n log n) / n is not 0 in double precision.
SIZES = [23, 39, 3000, 4042]
CASES = {
    "mig": (mig, "dlib"),
    "mig (knn)": (mig, MigSettings(information="knn")),
    "mig_sup": (mig_sup, "dlib"),
    "mig_sup (code)": (mig_sup, MigSupSettings(normalisation="code")),
    "mig_entropy": (mig_entropy, "fast"),
    "modularity": (modularity, "dlib"),
    "sap": (sap, "dlib"),
    "dci": (dci, DciSettings(splits="binned", rounds=3)),
    "factor_vae_score": (factor_vae_score, FactorVaeSettings(train=200, test=100)),
    "beta_vae_score": (beta_vae_score, BetaVaeSettings(train=200, test=100)),
    "explicitness": (explicitness, "dlib"),
    "disentanglement_score": (disentanglement_score, "dlib"),
    "mcc": (mcc, "dlib"),
    "mcc (spearman)": (mcc, MccSettings(correlation="spearman")),
    "r2": (r2, R2Settings()),
}


def given(points):
    source = torch.Generator().manual_seed(points)
    factors = torch.stack([torch.randint(size, (points,), generator=source) for size in (3, 4)], 1)
    noise = torch.randn(points, 3, generator=source, dtype=torch.float64)
    codes = torch.cat([factors, factors.sum(1, keepdim=True)], 1) + 0.3 * noise
    return codes, factors


@pytest.mark.parametrize("points", SIZES)
@pytest.mark.parametrize(("metric", "preset"), CASES.values(), ids=CASES.keys())
def test_a_constant_factor_changes_nothing(metric, preset, points):
    codes, factors = given(points)
    table = torch.cat([factors, torch.full_like(factors[:, :1], 5)], 1)
    variance = torch.full_like(codes, 0.05)
    found, expected = (metric(codes, values, variance=variance, preset=preset) for values in (table, factors))
    # Sums over more columns may be rounded in another order.
    torch.testing.assert_close(found.score, expected.score, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        found.interval.error, expected.interval.error, rtol=1e-9, atol=1e-12, equal_nan=points < 3 * GROUPS
    )


@pytest.mark.parametrize("points", SIZES)
def test_entropies_of_constants_are_exactly_zero(points):
    codes, factors = given(points)
    codes[:, 1], factors[:, 0] = 0.1, 7
    found = binned_information(codes, factors, group=torch.arange(points) % 20)
    for part in (found, found.left_out):
        assert (part.factor_entropy[..., 0] == 0).all()
        assert (part.code_entropy[..., 1] == 0).all()
        assert (part.information[..., 0] == 0).all()
        assert (part.information[..., 1, :] == 0).all()
        assert (part.information[..., ::2, 1] > 0).all()


@pytest.mark.parametrize("points", SIZES)
def test_a_constant_code_tells_nothing(points):
    """Neither by its own entropy, which would be rounding, nor about other codes."""
    codes, factors = given(points)
    more = torch.cat([codes, torch.full_like(codes[:, :1], 0.1)], 1)
    settings = MigSupSettings(normalisation="code")
    found, expected = (mig_sup(z, factors, preset=settings) for z in (more, codes))
    assert (found.normalised[-1] == 0).all()
    torch.testing.assert_close(found.score, expected.score, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.interval.error, expected.interval.error, rtol=1e-9, atol=1e-12)
    assert (mean_pairwise_information(more).information[-1] == 0).all()


def test_a_factor_that_one_group_alone_changes_counts_where_it_varies():
    """Without its only other value a factor is constant, in a left-out table too."""
    factors = torch.zeros(39, 1).long()
    factors[7] = 1
    codes, _ = given(39)
    found = binned_information(codes, factors, group=torch.arange(39) % 20)
    assert found.factor_entropy > 0
    assert (found.left_out.factor_entropy == 0).squeeze(1).tolist() == [g == 7 for g in range(20)]
