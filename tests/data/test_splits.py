"""Parts of a data set are disjoint, complete, and a function of size and seed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unseam.data import split


@given(
    n=st.integers(1, 500), weights=st.lists(st.integers(0, 9), min_size=1, max_size=5), seed=st.integers(0, 9)
)
def test_parts_are_disjoint_and_complete(n, weights, seed):
    total = sum(weights) or 1
    fractions = [weight / total for weight in weights] if sum(weights) else [1.0]
    parts = split(n, fractions, seed=seed)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(n))
    assert all(abs(len(part) - n * fraction) <= 1 for part, fraction in zip(parts, fractions, strict=True))


@pytest.mark.parametrize(
    ("n", "sizes"), [(10, (8, 1, 1)), (737_280, (589_824, 73_728, 73_728)), (1, (1, 0, 0))]
)
def test_default_is_eighty_ten_ten(n, sizes):
    assert tuple(len(part) for part in split(n)) == sizes


def test_same_seed_same_parts_and_the_global_generator_is_untouched():
    before = torch.get_rng_state()
    first, again, other = split(100, seed=1), split(100, seed=1), split(100, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("fractions", [(0.8, 0.1), (1.2, -0.2), ()])
def test_fractions_must_add_up(fractions):
    with pytest.raises(ValueError, match="fractions must be non-negative and add up to 1"):
        split(10, fractions)


def test_there_must_be_something_to_split():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        split(0)
