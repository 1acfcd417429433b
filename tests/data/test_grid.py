"""The grid of factors against NumPy's own mixed radix."""

import numpy as np
import pytest
import torch

from unseam.data.grid import grid_factors, grid_index

SIZES = [(7,), (2, 3), (3, 6, 40, 32, 32), (10, 10, 10, 8, 4, 15), (2, 1, 5)]


@pytest.mark.parametrize("sizes", SIZES)
def test_equals_numpy(sizes):
    index = torch.randint(np.prod(sizes).item(), (200,), generator=torch.Generator().manual_seed(0))
    expected = np.stack(np.unravel_index(index.numpy(), sizes), -1)
    assert np.array_equal(grid_factors(index, sizes).numpy(), expected)
    assert np.array_equal(
        grid_index(torch.from_numpy(expected), sizes).numpy(), np.ravel_multi_index(expected.T, sizes)
    )


@pytest.mark.parametrize("sizes", [(7,), (2, 3), (4, 1, 5)])
def test_round_trip_over_the_whole_grid(sizes):
    index = torch.arange(int(np.prod(sizes)))
    factors = grid_factors(index, sizes)
    assert torch.equal(grid_index(factors, sizes), index)
    assert len(torch.unique(factors, dim=0)) == len(index)


def test_last_factor_is_fastest():
    assert grid_factors(torch.tensor([0, 1, 4]), (3, 4)).tolist() == [[0, 0], [0, 1], [1, 0]]


def test_types_and_the_empty_cases():
    factors = grid_factors(torch.tensor([3], dtype=torch.int32), (2, 2))
    assert factors.dtype == torch.int64 and grid_index(factors.short(), (2, 2)).dtype == torch.int64
    assert grid_factors(torch.zeros(0, dtype=torch.int64), (2, 2)).shape == (0, 2)
    assert grid_index(torch.zeros(0, 2, dtype=torch.int64), (2, 2)).shape == (0,)
    assert grid_factors(torch.tensor([0]), ()).shape == (1, 0)
    assert grid_index(torch.zeros(1, 0, dtype=torch.int64), ()).tolist() == [0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_stays_on_the_device():
    factors = grid_factors(torch.arange(6, device="cuda"), (2, 3))
    assert factors.is_cuda and grid_index(factors, (2, 3)).is_cuda


@pytest.mark.parametrize("index", [[6], [-1]])
def test_index_outside_the_grid(index):
    with pytest.raises(ValueError, match=r"index must lie in \[0, 6\), got values from"):
        grid_factors(torch.tensor(index), (2, 3))


def test_factor_outside_the_grid():
    with pytest.raises(ValueError, match=r"factors must lie on the grid of sizes \(2, 3\)"):
        grid_index(torch.tensor([[0, 3]]), (2, 3))
    with pytest.raises(ValueError, match=r"factors must lie on the grid of sizes \(2, 3\)"):
        grid_index(torch.tensor([[-1, 0]]), (2, 3))


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (torch.zeros(1, 3, dtype=torch.int64), r"factors must have shape \(batch, 2\), got \(1, 3\)"),
        (torch.zeros(1, 2), "factors must hold integers, got torch.float32"),
    ],
)
def test_malformed_factors(factors, message):
    with pytest.raises(ValueError, match=message):
        grid_index(factors, (2, 3))


def test_sizes_are_positive():
    with pytest.raises(ValueError, match=r"sizes must all be at least 1, got \(2, 0\)"):
        grid_factors(torch.tensor([0]), (2, 0))
