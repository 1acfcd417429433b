"""A table gives back what was put into it, from a tensor or from a memory map."""

import numpy as np
import pytest
import torch

from unseam.data import ArrayWorld
from unseam.data.array import Posterior


def bytes_table(items: int = 7) -> torch.Tensor:
    return torch.randint(256, (items, 1, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def byte_world(table: torch.Tensor | np.ndarray, **more: object) -> ArrayWorld:
    factors = torch.arange(len(table))[:, None]
    return ArrayWorld(table, factors, name="t", factor_names=("which",), factor_sizes=(len(table),), **more)


def memory_map(table: torch.Tensor, folder) -> np.ndarray:
    np.save(folder / "table.npy", table.numpy())
    return np.load(folder / "table.npy", mmap_mode="r")


def test_bytes_stand_for_fractions_of_255_exactly():
    world = byte_world(torch.arange(256, dtype=torch.uint8).reshape(1, 256))
    expected = torch.from_numpy(np.arange(256, dtype=np.float32) / np.float32(255))
    assert torch.equal(world.images(torch.tensor([0]))[0], expected)


def test_float_tables_come_back_unchanged():
    table = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    world = ArrayWorld(table, torch.rand(5, 2), name="t", factor_names=("a", "b"), factor_sizes=(0, 0))
    index = torch.tensor([4, 0, 0, 2])
    assert torch.equal(world.images(index), table[index])
    assert world.dtype == torch.float32
    assert world.factors.dtype == torch.float32


def test_memory_map_and_tensor_give_the_same_items(tmp_path):
    table = bytes_table()
    held, mapped = byte_world(table), byte_world(memory_map(table, tmp_path))
    index = torch.tensor([6, 1, 1, 0])
    assert torch.equal(held.images(index), mapped.images(index))
    assert held.resident
    assert not mapped.resident
    assert held.nbytes == mapped.nbytes == 7 * 20
    assert held.shape == mapped.shape == (1, 4, 5)


def test_sample_pairs_items_with_their_factors():
    world = byte_world(bytes_table())
    sample = world.sample(50, torch.Generator().manual_seed(3))
    assert torch.equal(sample.x, world.images(sample.factors[:, 0]))


def test_moving_keeps_everything_that_is_known():
    matrix = torch.eye(2)
    world = ArrayWorld(
        torch.zeros(3, 2),
        torch.zeros(3, 2),
        name="known",
        factor_names=("a", "b"),
        factor_sizes=(0, 0),
        twin_of="other",
        options={"size": 3},
        generator=torch.tanh,
        posterior=lambda x: Posterior(x, matrix),
        mixing=matrix,
    )
    moved = world.to("cpu")
    for attribute in ("name", "twin_of", "options", "factor_names", "factor_sizes", "generator", "posterior"):
        assert getattr(moved, attribute) == getattr(world, attribute)
    assert moved.mixing is matrix


@pytest.mark.parametrize("mapped", [False, True])
def test_cuda_gives_the_same_items_bit_for_bit(tmp_path, mapped):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    table = torch.arange(256, dtype=torch.uint8).reshape(4, 64)
    world = byte_world(memory_map(table, tmp_path) if mapped else table)
    index = torch.tensor([3, 0, 1])
    there = world.to("cuda").images(index)
    assert there.is_cuda
    assert torch.equal(there.cpu(), world.images(index))


@pytest.mark.parametrize(
    ("table", "factors", "sizes", "message"),
    [
        (
            torch.zeros(2, 3, dtype=torch.float64),
            torch.zeros(2, 1),
            (0,),
            "table must hold uint8 .* got torch.float64",
        ),
        (torch.zeros(2), torch.zeros(2, 1), (0,), r"table must have shape \(item, \*shape\).*got \(2,\)"),
        (torch.zeros(0, 3), torch.zeros(0, 1), (0,), r"not be empty, got \(0, 3\)"),
        (torch.zeros(2, 3), torch.zeros(3, 1), (0,), r"factors must have shape .*\(2, 1\), got \(3, 1\)"),
        (
            torch.zeros(2, 3),
            torch.zeros(2, 1),
            (0, 0),
            "factor_names and factor_sizes must match, got 1 and 2",
        ),
        (
            torch.zeros(2, 3),
            torch.zeros(2, 1, dtype=torch.long),
            (0,),
            "must be floating point where .* continuous",
        ),
    ],
)
def test_bad_tables_are_named(table, factors, sizes, message):
    with pytest.raises(ValueError, match=message):
        ArrayWorld(table, factors, name="t", factor_names=("a",), factor_sizes=sizes)


def test_another_table_must_hold_the_same_items():
    with pytest.raises(ValueError, match=r"table must have shape \(7, 1, 4, 5\) .* got \(6, 1, 4, 5\)"):
        byte_world(bytes_table()).with_table(bytes_table(6), "cpu")


@pytest.mark.parametrize(
    ("index", "message"),
    [(torch.tensor([7]), r"index must lie in \[0, 7\)"), (torch.tensor([0.0]), "index must hold integers")],
)
def test_bad_indices_are_named(index, message):
    with pytest.raises(ValueError, match=message):
        byte_world(bytes_table()).images(index)
