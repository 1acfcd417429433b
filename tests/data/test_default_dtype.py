"""Data do not depend on torch's default type, whatever a program has set it to."""

from contextlib import contextmanager

import pytest
import torch

from unseam.data import load, place

SMALL = {
    "circles": {"size": 50},
    "linear": {"size": 50},
    "mixture": {"size": 50},
    "moving_digit": {"size": 20},
    "nonlinear": {"size": 50},
    "shapes": {"resolution": 8},
    "sprites": {"resolution": 8, "positions": 4},
}


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def drawn(name):
    world = load(name, **SMALL[name])
    index = torch.arange(20)
    table = place(world, "cpu") if len(world) < 10_000 else world
    return world.images(index), world.factors[:20], table.images(index)


def test_every_world_that_is_made_here_is_tested():
    from unseam import choices

    made = {name for name, world in choices.built_in(choices.World).items() if not world.from_file}
    assert made == set(SMALL)


@pytest.mark.parametrize("name", sorted(SMALL))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_worlds_draw_the_same_under_another_default(name, dtype):
    expected = drawn(name)
    with default_dtype(dtype):
        found = drawn(name)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_bytes_read_from_files_come_out_in_single_precision():
    from unseam.data import ArrayWorld

    with default_dtype(torch.float64):
        table = torch.arange(6, dtype=torch.uint8).reshape(3, 2)
        world = ArrayWorld(table, torch.arange(3)[:, None], name="a", factor_names=("k",), factor_sizes=(3,))
        found = world.images(torch.arange(3))
    assert found.dtype == torch.float32
    assert torch.equal(found, table.float() / torch.tensor(255.0))
