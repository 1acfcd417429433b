"""Mean correlation coefficient."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from unseam.metrics import MccSettings, mcc
from unseam.metrics._tables import ranks
from unseam.metrics.intervals import groups

BOTH = pytest.mark.parametrize("correlation", ["pearson", "spearman"])
GRID = torch.cartesian_prod(torch.arange(3), torch.arange(4), torch.arange(5))


@pytest.fixture
def factors(generator):
    return torch.randint(5, (300, 3), generator=generator)


@pytest.fixture
def codes(generator, factors):
    mixing = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, 300, 4, generator=generator, dtype=torch.float64)
    return factors.double() @ mixing + noise


def by_hand(codes, factors, correlation):
    """The best of all matchings, one by one."""
    measure = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[correlation]
    table = np.array([[abs(measure(z, v)[0]) for v in factors.T.numpy()] for z in codes.T.numpy()])
    latent, factor = table.shape
    if latent >= factor:
        choices = itertools.permutations(range(latent), factor)
        return max(sum(table[j, k] for k, j in enumerate(choice)) for choice in choices) / factor
    choices = itertools.permutations(range(factor), latent)
    return max(sum(table[j, k] for j, k in enumerate(choice)) for choice in choices) / factor


@BOTH
def test_perfect_codes(correlation):
    codes = -3 * GRID[:, [2, 0, 1]].double() + 1
    found = mcc(codes, GRID, preset=MccSettings(correlation=correlation))
    assert found.score.item() == pytest.approx(1.0, abs=1e-12)
    assert found.match.tolist() == [1, 2, 0]


def test_monotone_codes_have_rank_correlation_one():
    found = mcc(GRID.double().exp(), GRID)
    assert found.spearman.item() == pytest.approx(1.0, abs=1e-12)
    assert found.score == found.pearson < 0.95


@BOTH
@pytest.mark.parametrize("latents", [1, 2, 3, 4])
def test_by_hand(codes, factors, correlation, latents):
    found = mcc(codes[..., :latents], factors, preset=MccSettings(correlation=correlation))
    expected = [by_hand(member, factors, correlation) for member in codes[..., :latents]]
    assert found.score.tolist() == pytest.approx(expected, abs=1e-12)
    assert found.score.tolist() == getattr(found, correlation).tolist()
    assert (found.match >= 0).sum(1).tolist() == [min(latents, 3)] * 2


@BOTH
def test_the_error_is_that_of_leaving_out_groups(codes, factors, correlation):
    settings = MccSettings(correlation=correlation)
    found = mcc(codes, factors, preset=settings)
    group = groups(300, torch.Generator().manual_seed(0))
    rest = [mcc(codes[:, group != left], factors[group != left], preset=settings).score for left in range(20)]
    error = ((torch.stack(rest) - torch.stack(rest).mean(0)).square().sum(0) * 19 / 20).sqrt()
    torch.testing.assert_close(found.interval.error, error)


@BOTH
def test_constants(codes, factors, correlation):
    settings = MccSettings(correlation=correlation)
    expected = mcc(codes, factors, preset=settings).score
    dead, constant = torch.full((2, 300, 1), 0.1).double(), torch.ones(300, 1).long()
    torch.testing.assert_close(mcc(torch.cat([dead, codes], 2), factors, preset=settings).score, expected)
    torch.testing.assert_close(mcc(codes, torch.cat([constant, factors], 1), preset=settings).score, expected)
    assert not mcc(dead, factors, preset=settings).score.any()
    assert not mcc(codes, constant, preset=settings).score.any()


def test_ranks_against_scipy(codes, generator):
    values = codes[0].T.round()
    keep = torch.rand(3, 300, generator=generator) < 0.7
    found = ranks(values, keep)
    for subset, row in np.ndindex(3, 4):
        expected = stats.rankdata(values[row][keep[subset]].numpy())
        assert found[subset, row][keep[subset]].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: MccSettings(correlation="kendall"),
            "correlation must be 'pearson' or 'spearman', got 'kendall'",
        ),
        (lambda: MccSettings(points=0), "points must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
