"""Modularity."""

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score

from unseam.metrics import ModularitySettings, modularity

GRID = torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(3))


def test_perfect_codes():
    assert modularity(GRID.double(), GRID).score.item() == pytest.approx(1.0, abs=1e-12)


def test_a_code_of_two_bits_of_three():
    """Equal information on two of three factors, none on the third: 1 − 1/2."""
    both = (2 * GRID[:, :1] + GRID[:, 1:2]).double()
    assert modularity(both, GRID).score.item() == pytest.approx(0.5, abs=1e-12)


def test_by_hand(generator):
    factors = GRID.repeat(40, 1)
    noise = torch.randn(2, len(factors), 3, generator=generator, dtype=torch.float64)
    codes = noise + factors + factors.roll(1, 1) / 2
    found = modularity(codes, factors)
    for member in range(2):
        scores = []
        for column in codes[member].T.numpy():
            cut = np.digitize(column, np.histogram(column, 20)[1][:-1])
            squares = np.array([mutual_info_score(cut, factor) ** 2 for factor in factors.T.numpy()])
            scores.append(1 - (squares.sum() - squares.max()) / squares.max() / 2)
        assert found.per_code[member].tolist() == pytest.approx(scores, abs=1e-12)
        assert found.score[member].item() == pytest.approx(np.mean(scores), abs=1e-12)


def test_dead_codes_count_zero():
    codes = torch.cat([GRID.double(), torch.zeros(len(GRID), 1)], 1)
    found = modularity(codes, GRID)
    assert found.per_code[3] == 0
    assert found.score.item() == pytest.approx(0.75, abs=1e-12)
    assert modularity(codes[:, 3:], GRID).score == 0


def test_a_single_factor_is_the_only_one():
    assert modularity(GRID[:, :1].double(), GRID[:, :1]).score == 1
    assert modularity(GRID[:, :1].double(), torch.ones(len(GRID), 1).long()).score == 0


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        ModularitySettings(bins=0)


def test_constant_factors_do_not_count():
    """Two of two varying factors in one code: 0, not 1 − 1/2 for a third that never varies."""
    pair = torch.cat([GRID[:, :2], torch.ones(len(GRID), 1).long()], 1)
    both = (2 * GRID[:, :1] + GRID[:, 1:2]).double()
    assert modularity(both, pair).score.item() == pytest.approx(0.0, abs=1e-12)
