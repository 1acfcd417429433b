"""Groups of points, and intervals from leaving them out."""

import pytest
import torch
from scipy import stats

from unseam.metrics.intervals import GROUPS, groups, jackknife


@pytest.mark.parametrize("batch", [1, 7, 20, 1_003])
def test_groups_are_of_equal_size(batch, generator):
    sizes = torch.bincount(groups(batch, generator))
    assert len(sizes) == min(batch, GROUPS)
    assert sizes.max() - sizes.min() <= 1


def test_groups_are_random(generator):
    assert not torch.equal(groups(100, generator), groups(100, generator))


def test_leaving_out_one_point_at_a_time_gives_the_error_of_a_mean(generator):
    values = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    left_out = (values.sum(0) - values) / 19
    found = jackknife(values.mean(0), left_out)
    torch.testing.assert_close(found.error, values.std(0) / 20**0.5)
    expected = stats.t.interval(0.95, 19, loc=values.mean(0), scale=values.std(0) / 20**0.5)
    torch.testing.assert_close(found.lower, torch.as_tensor(expected[0]))
    torch.testing.assert_close(found.upper, torch.as_tensor(expected[1]))


@pytest.mark.parametrize("count", [1, 2, GROUPS - 1])
def test_too_few_groups_give_no_interval(count):
    found = jackknife(torch.full((3,), 0.3), torch.full((count, 3), 0.3))
    assert all(part.isnan().all() and part.shape == (3,) for part in found)


def test_a_score_that_no_group_changes_is_its_own_interval():
    found = jackknife(torch.tensor(0.25), torch.full((GROUPS,), 0.25))
    assert found.lower == found.upper == torch.tensor(0.25)
