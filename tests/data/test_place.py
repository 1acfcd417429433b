"""Wherever a world is held, its items are the same."""

import sys
from typing import Self

import numpy as np
import pytest
import torch
from torch import Tensor

from unseam.data import ArrayWorld, World, place
from unseam.data.grid import grid_factors
from unseam.data.world import check_index

MODULE = sys.modules["unseam.data.place"]


class Checker(World):
    """A procedural world of 6 grey levels by 5 positions."""

    name, shape, factor_names, factor_sizes = "checker", (1, 2, 5), ("level", "position"), (6, 5)
    dtype, twin_of, device = torch.uint8, "chess", torch.device("cpu")

    def __init__(self) -> None:
        self.options = {"levels": 6}

    def __len__(self) -> int:
        return 30

    def images(self, index: Tensor) -> Tensor:
        level, position = grid_factors(check_index(index, 30), self.factor_sizes).unbind(-1)
        picture = torch.zeros(len(index), 1, 2, 5)
        picture[torch.arange(len(index)), 0, 1, position] = (level.float() * 37) / torch.tensor(255.0)
        return picture

    @property
    def factors(self) -> Tensor:
        return grid_factors(torch.arange(30), self.factor_sizes)

    def to(self, device: torch.device | str) -> Self:
        return self


def mapped_world(folder) -> ArrayWorld:
    table = np.random.default_rng(0).integers(0, 256, (9, 1, 3, 3), dtype=np.uint8)
    np.save(folder / "table.npy", table)
    return ArrayWorld(
        np.load(folder / "table.npy", mmap_mode="r"),
        np.arange(9)[:, None],
        name="mapped",
        factor_names=("which",),
        factor_sizes=(9,),
    )


def test_procedural_worlds_become_byte_tables_where_they_fit():
    world = Checker()
    placed = place(world, "cpu", budget=30 * 10)
    assert isinstance(placed, ArrayWorld)
    assert placed.table.dtype == torch.uint8
    assert torch.equal(placed.images(torch.arange(30)), world.images(torch.arange(30)))
    assert torch.equal(placed.factors, world.factors)
    assert (placed.name, placed.twin_of, placed.options) == ("checker", "chess", {"levels": 6})


def test_tables_are_filled_block_by_block(monkeypatch):
    monkeypatch.setattr(MODULE, "BLOCK", 4 * 10 * 7)
    placed = place(Checker(), "cpu", budget=1 << 20)
    assert torch.equal(placed.images(torch.arange(30)), Checker().images(torch.arange(30)))


def test_procedural_worlds_stay_so_where_they_do_not_fit():
    assert isinstance(place(Checker(), "cpu", budget=30 * 10 - 1), Checker)


@pytest.mark.parametrize(("budget", "resident"), [(81, True), (80, False)])
def test_memory_maps_are_held_where_they_fit_and_streamed_where_not(tmp_path, budget, resident):
    world = mapped_world(tmp_path)
    placed = place(world, "cpu", budget=budget)
    assert placed.resident == resident
    assert torch.equal(placed.images(torch.tensor([8, 0, 8])), world.images(torch.tensor([8, 0, 8])))


def test_default_budget_of_a_host_is_half_its_free_memory_and_at_most_4_gib(monkeypatch):
    monkeypatch.setattr(MODULE, "free_memory", lambda device: 1000)
    assert MODULE._budget(torch.device("cpu")) == 500
    assert MODULE._budget(torch.device("cuda", 0)) == 500
    monkeypatch.setattr(MODULE, "free_memory", lambda device: 1 << 60)
    assert MODULE._budget(torch.device("cpu")) == 4 << 30
    assert MODULE._budget(torch.device("cuda", 0)) == 1 << 59


def test_a_world_that_is_there_already_is_left_alone(tmp_path):
    held = place(mapped_world(tmp_path), "cpu", budget=1 << 20)
    assert place(held, "cpu", budget=0) is held


@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_cuda_gives_the_same_items(tmp_path, budget):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    world = mapped_world(tmp_path)
    placed = place(world, "cuda", budget=budget)
    assert placed.resident == bool(budget)
    index = torch.tensor([8, 0, 8])
    assert torch.equal(placed.images(index).cpu(), world.images(index))
    assert placed.images(index.cuda()).is_cuda


def test_budget_must_be_a_size():
    with pytest.raises(ValueError, match="budget must be a number of bytes, at least 0, got -1"):
        place(Checker(), "cpu", budget=-1)
