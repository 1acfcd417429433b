"""Interventional robustness."""

import numpy as np
import pytest
import torch

from unseam.metrics import IrsSettings, irs
from unseam.metrics.intervals import groups
from unseam.metrics.irs import _quantiles

GRID = torch.cartesian_prod(torch.arange(3), torch.arange(5))


@pytest.fixture
def factors(generator):
    return torch.stack([torch.randint(size, (700,), generator=generator) for size in (2, 6, 30)], 1)


@pytest.fixture
def codes(generator, factors):
    noise = torch.randn(2, 700, 4, generator=generator, dtype=torch.float64)
    noise[..., :3] += 2 * factors
    noise[1, :, 2] = 0.1
    return noise


def by_hand(codes, factors, quantile):
    codes, factors = codes.numpy(), factors.numpy()
    largest = np.abs(codes - codes.mean(0)).max(0)
    live = codes.std(0) > 1e-9
    robustness = np.zeros((live.sum(), factors.shape[1]))
    for k, column in enumerate(factors.T):
        held = [codes[column == value][:, live] for value in np.unique(column)]
        away = [np.quantile(np.abs(part - part.mean(0)), quantile, axis=0) for part in held]
        robustness[:, k] = 1 - np.mean(away, 0) / largest[live]
    return np.average(robustness.max(1), weights=largest[live])


def test_perfect_codes():
    found = irs(GRID.double(), GRID)
    assert found.score.item() == pytest.approx(1.0, abs=1e-12)
    torch.testing.assert_close(found.deviation, torch.tensor([1.0, 2.0], dtype=torch.float64))


def test_a_code_of_the_other_factor_alone():
    """Held at any value of the first factor, a code of the second still moves all its way."""
    found = irs(GRID[:, 1:].double(), GRID[:, :1], preset=IrsSettings(quantile=1.0))
    assert found.score.item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("quantile", [0.0, 0.3, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("bins", [None, 7])
def test_by_hand(codes, factors, quantile, bins):
    table = factors
    if bins is not None:
        edges = [np.histogram(column, bins)[1][:-1] for column in factors.T.numpy()]
        cut = [np.digitize(column, edge) for column, edge in zip(factors.T.numpy(), edges, strict=True)]
        table = torch.as_tensor(np.stack(cut, 1))
    found = irs(codes, factors, preset=IrsSettings(quantile=quantile, bins=bins))
    expected = [by_hand(codes[member], table, quantile) for member in range(2)]
    assert found.score.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("quantile", [0.5, 0.99])
def test_the_error_is_that_of_leaving_out_groups(codes, factors, quantile):
    found = irs(codes, factors, preset=IrsSettings(quantile=quantile, bins=None))
    group = groups(700, torch.Generator().manual_seed(0))
    rest = np.array([by_hand(codes[0, group != g], factors[group != g], quantile) for g in range(20)])
    error = np.sqrt(((rest - rest.mean()) ** 2).sum() * 19 / 20)
    assert found.interval.error[0].item() == pytest.approx(error, rel=1e-9)


def test_constant_codes_weigh_nothing(codes, factors):
    found = irs(codes, factors)
    assert found.deviation[1, 2] == found.per_code[1, 2] == 0
    without = irs(codes[1][:, [0, 1, 3]], factors)
    torch.testing.assert_close(found.score[1], without.score)
    assert irs(torch.full((700, 2), 0.3), factors).score == 0


def test_invariant_to_a_common_scale(codes, factors):
    torch.testing.assert_close(irs(-3 * codes + 5, factors).score, irs(codes, factors).score)


def test_a_constant_factor_holds_nothing(codes):
    found = irs(codes, torch.zeros(700, 1).long(), preset=IrsSettings(quantile=1.0))
    torch.testing.assert_close(found.score, torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)


def test_values_that_occur_once_do_not_deviate(codes):
    found = irs(codes, torch.arange(700)[:, None], preset=IrsSettings(bins=None))
    torch.testing.assert_close(found.score, torch.ones(2, dtype=torch.float64))


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"quantile must lie in \[0, 1\], got 1.5"):
        IrsSettings(quantile=1.5)
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        IrsSettings(bins=0)


def test_a_group_that_holds_the_outermost_values(generator):
    """Without it the furthest lie deeper than the ends that are searched first."""
    values = torch.randn(2, 400, generator=generator, dtype=torch.float64)
    group = torch.randint(5, (400,), generator=generator)
    group[values[0].argsort()[-90:]] = 3
    found = _quantiles(values, group, torch.arange(-1, 5), 0.98)
    for row, left in np.ndindex(2, 6):
        rest = values[row][group != left - 1].numpy()
        expected = np.quantile(np.abs(rest - rest.mean()), 0.98)
        assert found[row, left].item() == pytest.approx(expected, abs=1e-12)
