"""Mutual information gaps per factor and per code."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score

from unseam.metrics import (
    MigSettings,
    MigSupSettings,
    binned_information,
    mig,
    mig_sup,
)
from unseam.metrics._inputs import check_inputs
from unseam.metrics.intervals import groups
from unseam.metrics.mutual_information import neighbour_estimates

GRID = torch.cartesian_prod(torch.arange(3), torch.arange(4), torch.arange(5))


@pytest.fixture
def mixed(generator):
    """Factors, and codes that mix them."""
    factors = GRID.repeat(20, 1)
    noise = torch.randn(2, len(factors), 4, generator=generator, dtype=torch.float64)
    mixing = torch.tensor([[1.0, 0.5, 0.0, 0.0], [0.0, 1.0, 0.3, 0.0], [0.0, 0.0, 1.0, 0.0]])
    return factors.double() @ mixing.double() + 0.4 * noise, factors


def bins_of(values):
    return np.digitize(values, np.histogram(values, 20)[1][:-1])


def information_by_hand(codes, factors):
    columns = [bins_of(column) for column in codes.T.numpy()]
    table = [[mutual_info_score(code, factor) for factor in factors.T.numpy()] for code in columns]
    entropies = [mutual_info_score(factor, factor) for factor in factors.T.numpy()]
    return np.array(table), np.array(entropies), np.array([mutual_info_score(c, c) for c in columns])


def gap_by_hand(values):
    ordered = np.sort(values, 0)[::-1]
    return ordered[0] - ordered[1]


def test_perfect_codes():
    for score in (mig(GRID.double(), GRID), mig_sup(GRID.double(), GRID)):
        assert score.score.item() == pytest.approx(1.0, abs=1e-12)


def test_a_duplicated_code_closes_the_gap_of_its_factor():
    codes = torch.cat([GRID, GRID[:, :1]], 1).double()
    torch.testing.assert_close(mig(codes, GRID).gaps, torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64))
    assert mig_sup(codes, GRID).score.item() == pytest.approx(1.0, abs=1e-12)


def test_a_code_of_two_factors():
    """A code that tells both bits of a pair: neither factor has a second code, but the code no favourite."""
    pair = torch.cartesian_prod(torch.arange(2), torch.arange(2))
    both = (2 * pair[:, :1] + pair[:, 1:]).double()
    assert mig(both, pair).score.item() == pytest.approx(1.0)
    assert mig_sup(both, pair).score.item() == pytest.approx(0.0, abs=1e-12)


def test_mig_by_hand(mixed):
    codes, factors = mixed
    found = mig(codes, factors)
    for member in range(2):
        table, entropies, _ = information_by_hand(codes[member], factors)
        expected = gap_by_hand(table / entropies)
        assert found.gaps[member].tolist() == pytest.approx(expected, abs=1e-12)
        assert found.score[member].item() == pytest.approx(expected.mean(), abs=1e-12)
    assert found.estimators == ("binned",) * 3
    assert found.settings == MigSettings(points=len(factors))


@pytest.mark.parametrize("normalisation", ["factor", "code"])
def test_mig_sup_by_hand(mixed, normalisation):
    codes, factors = mixed
    codes = codes.clone()
    codes[1, :, 2] *= 0.01
    found = mig_sup(codes, factors, preset=MigSupSettings(normalisation=normalisation))
    assert found.active.tolist() == [[True] * 4, [True, True, False, True]]
    for member in range(2):
        table, entropies, own = information_by_hand(codes[member], factors)
        table = table / entropies if normalisation == "factor" else table / own[:, None]
        expected = gap_by_hand(table.T)[found.active[member].numpy()].mean()
        assert found.score[member].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", [mig, mig_sup])
def test_the_error_is_that_of_leaving_out_groups(mixed, metric):
    """Codes whose bins no group can move: a score without a group is the score of the rest."""
    codes, factors = mixed
    codes = codes.clamp(-1, 5)
    codes = codes.round()
    found = metric(codes, factors, generator=torch.Generator().manual_seed(3))
    group = groups(len(factors), torch.Generator().manual_seed(3))
    rest = torch.stack([metric(codes[:, group != left], factors[group != left]).score for left in range(20)])
    error = ((rest - rest.mean(0)).square().sum(0) * 19 / 20).sqrt()
    torch.testing.assert_close(found.interval.error, error)


def test_the_interval_covers_the_truth(generator):
    """Bits read through noisy channels: the true gap is known; the bias 1 / (2 · 400) of both codes cancels in it."""
    flips = torch.tensor([0.05, 0.2], dtype=torch.float64)
    capacity = math.log(2) + flips * flips.log() + (1 - flips) * (1 - flips).log()
    truth = (capacity / math.log(2)).mean()
    repeats, hits = 300, 0
    for _ in range(repeats):
        bits = torch.randint(2, (400, 2), generator=generator)
        wrong = torch.rand(400, 2, generator=generator, dtype=torch.float64) < flips
        found = mig((bits ^ wrong).double(), bits, generator=generator)
        hits += bool(found.interval.lower <= truth <= found.interval.upper)
    error = math.sqrt(0.95 * 0.05 / repeats)
    assert abs(hits / repeats - 0.95) <= 3 * error


def test_neighbours_instead_of_bins(mixed):
    codes, factors = mixed
    settings = MigSettings(information="knn", neighbours=4)
    table = torch.cat([factors.double(), codes[1, :, :1] + factors[:, :1]], 1)
    found = mig(codes[0], table, discrete=[True, True, True, False], preset=settings)
    assert found.estimators == ("knn-discrete",) * 3 + ("knn-continuous",)
    given = check_inputs(codes[0], table, discrete=[True, True, True, False])
    expected = neighbour_estimates(given, 4, None)[0, 0]
    torch.testing.assert_close(found.information, expected)
    entropies = binned_information(codes[0], factors).factor_entropy
    torch.testing.assert_close(found.normalised[:, :3], expected[:, :3] / entropies)
    torch.testing.assert_close(found.normalised[:, 3], 1 - torch.exp(-2 * expected[:, 3]))
    best = found.normalised.topk(2, 0).values
    torch.testing.assert_close(found.score, (best[0] - best[1]).mean())
    assert found.interval.error > 0


def test_neighbours_of_a_gaussian_pair_give_its_squared_correlation(generator):
    pair = torch.randn(2, 4_000, 1, generator=generator, dtype=torch.float64)
    found = mig(0.8 * pair[0] + 0.6 * pair[1], pair[0], preset=MigSettings(information="knn"))
    assert found.score.item() == pytest.approx(0.64, abs=4 * found.interval.error.item())


@pytest.mark.parametrize("information", ["binned", "knn"])
def test_constant_factors_are_left_out(mixed, information):
    codes, factors = mixed
    settings = MigSettings(information=information)
    constant = torch.ones_like(factors[:, :1])
    with_it = mig(codes, torch.cat([factors, constant], 1), preset=settings)
    torch.testing.assert_close(with_it.score, mig(codes, factors, preset=settings).score)
    assert not mig(codes, constant, preset=settings).score.any()
    assert not mig(codes, constant.double(), preset=settings).score.any()


def test_constant_codes_tell_nothing(mixed):
    _, factors = mixed
    dead = torch.full((len(factors), 2), 0.1, dtype=torch.float64)
    assert mig(dead, factors).score == 0
    assert mig_sup(dead, factors).score == 0
    assert not mig_sup(dead, factors).active.any()


def test_one_code_has_its_whole_information(mixed):
    codes, factors = mixed
    found = mig(codes[0, :, :1], factors)
    torch.testing.assert_close(found.gaps, found.normalised[0])
    one = mig_sup(codes[0], factors[:, :1])
    torch.testing.assert_close(one.gaps, one.normalised[:, 0])


def test_a_continuous_factor_counts_as_its_bins(mixed):
    codes, _ = mixed
    target = codes[1, :, :1]
    cut = torch.as_tensor(bins_of(target[:, 0].numpy()))[:, None]
    torch.testing.assert_close(mig(codes[0], target).score, mig(codes[0], cut).score)


def test_fewer_points_than_asked_are_all_used(mixed):
    codes, factors = mixed
    assert mig(codes, factors, preset=MigSettings(points=10**6)).settings.points == len(factors)
    assert mig(codes, factors, preset=MigSettings(points=100)).settings.points == 100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MigSettings(information="kde"), "information must be 'binned' or 'knn', got 'kde'"),
        (lambda: MigSettings(bins=0), "bins must be at least 1, got 0"),
        (lambda: MigSettings(points=0), "points must be at least 1, got 0"),
        (lambda: MigSettings(neighbours=0), "neighbours must be at least 1, got 0"),
        (
            lambda: MigSupSettings(normalisation="none"),
            "normalisation must be 'factor' or 'code', got 'none'",
        ),
        (lambda: MigSupSettings(bins=0), "bins must be at least 1, got 0"),
        (
            lambda: mig(GRID.double(), GRID, preset=MigSupSettings()),
            "preset must be a name or MigSettings, got MigSup",
        ),
    ],
)
def test_bad_settings_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
