"""What is recorded of data: the same data are found to be the same, and others not."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from unseam.data import ArrayWorld, data_difference, identify_data, load, place
from unseam.data import identity as module

SPRITES = {"resolution": 8, "shapes": ["ellipse"], "scales": 2, "orientations": 2, "positions": 6}


def array_world(table, factors=None, **options):
    factors = torch.zeros(len(table), 0) if factors is None else factors
    count = factors.shape[1]
    return ArrayWorld(
        table, factors, name="own", factor_names=tuple("abc"[:count]), factor_sizes=(0,) * count, **options
    )


def difference(record, world):
    return data_difference(record, identify_data(world, read=record.get("read")))


def recorded(world):
    return json.loads(json.dumps(identify_data(world)._asdict()))


@pytest.fixture
def table(generator):
    return torch.rand(300, 2, 3, generator=generator)


def test_what_is_recorded(table):
    found = identify_data(array_world(table))
    assert (found.name, found.items, found.shape, found.dtype) == ("own", 300, [2, 3], "float32")
    assert (found.read, found.path, len(found.digest)) == (300, None, 64)


def test_one_changed_value_is_found(table):
    before = recorded(array_world(table))
    changed = table.clone()
    changed[123, 1, 1] += 1e-6
    assert difference(before, array_world(table.clone())) == ""
    assert difference(before, array_world(changed)).startswith("other values (digest ")
    assert difference(before, array_world(table[:-1])) == "items 300 then, 299 now"
    assert difference(before, array_world(table.flatten(1))) == "shape [2, 3] then, [6] now"
    bytes_ = (table * 255).to(torch.uint8)
    assert difference(before, array_world(bytes_)) == "dtype float32 then, uint8 now"


def test_factors_have_a_digest_of_their_own(table):
    """Training does not read them: data that are given factors later are the same data."""
    one, other = (identify_data(array_world(table, torch.full((300, 1), value))) for value in (0.0, 1.0))
    assert one.digest == other.digest and one.factor_digest != other.factor_digest


def test_a_memory_map_names_its_file(table, tmp_path):
    np.save(tmp_path / "x.npy", table.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = identify_data(array_world(mapped))
    assert found.path == str(tmp_path / "x.npy")
    assert found.digest == identify_data(array_world(table)).digest


def test_a_sample_of_large_data_is_read(table, monkeypatch):
    monkeypatch.setattr(module, "WHOLE", 1000)
    monkeypatch.setattr(module, "STORED", 40)
    before = recorded(array_world(table))
    assert before["read"] == 40
    assert difference(before, array_world(table.clone())) == ""
    assert difference(before, array_world(table.flip(0))).startswith("other values")


@pytest.mark.parametrize("kind", ["tensor", "array", "read-only map", "reversed"])
def test_one_changed_value_of_a_large_table_is_found(kind, tmp_path):
    """Above 64 MiB, of which earlier versions digested 1024 items."""
    table = torch.zeros(1_000_000, 20)
    held = {"tensor": table, "array": table.numpy(), "reversed": table.numpy()[::-1]}
    if kind == "read-only map":
        np.save(tmp_path / "x.npy", table.numpy())
        held[kind] = np.load(tmp_path / "x.npy", mmap_mode="r")
    world = array_world(held[kind])
    before, earlier = recorded(world), identify_data(world, read=1024)._asdict()
    assert world.nbytes > 64 << 20 and before["read"] == 1_000_000
    assert difference(before, array_world(table.clone())) == ""
    changed = table.clone()
    changed[sorted({*range(3000)} - {*module._scattered(1_000_000, 1024).tolist()})[-1], 7] = 1.0
    assert difference(before, array_world(changed)).startswith("other values (digest ")
    # a record of 1024 items is compared by those
    assert difference(earlier, array_world(table.clone())) == ""
    assert difference(earlier, array_world(changed)) == ""
    assert difference(earlier, array_world(table + 1)).startswith("other values")


def test_means_of_a_large_table_are_of_a_sample(table, monkeypatch):
    """They tell rounding from other data, where worlds are drawn again; more items would not tell it better."""
    world = load("mixture", size=50)
    whole = recorded(world)
    monkeypatch.setattr(module, "AVERAGED", 100)
    monkeypatch.setattr(module, "STORED", 20)
    found = recorded(world)
    assert found["digest"] == whole["digest"] and found["sketch"] != whole["sketch"]
    # a table of this size is averaged whole, as earlier versions did
    monkeypatch.setattr(module, "AVERAGED", world.nbytes)
    assert recorded(world) == whole
    near = world.with_table(world.table * (1 + 1e-7), "cpu")
    monkeypatch.setattr(module, "AVERAGED", 100)
    assert difference(found, near) == ""
    assert difference(found, world.with_table(world.table * 1.01, "cpu")).startswith("other values")


def test_samples_lie_all_over_the_data():
    index = module._scattered(737_280, 256)
    assert len(set(index.tolist())) == 256
    assert int(index.min()) >= 0 and int(index.max()) < 737_280
    counts = torch.bincount(index * 16 // 737_280, minlength=16)
    assert counts.min() >= 14 and counts.max() <= 18
    for size in (32, 1024, 40 * 1024):  # positions on the fast axes of a grid
        assert len(set((index % size).tolist())) > 0.9 * min(size, 256)


def test_a_world_is_the_same_rendered_or_in_a_table():
    world = load("sprites", **SPRITES)
    table = place(world, "cpu")
    assert difference(recorded(table), world) == difference(recorded(world), table) == ""
    moved = load("sprites", **SPRITES | {"span": 0.4})
    assert difference(recorded(world), moved).startswith("other values")


def test_records_of_earlier_versions_are_compared_by_what_they_hold():
    before = {"name": "linear", "items": 20, "options": {}}
    assert difference(before, load("linear", size=20)) == ""
    assert difference(before, load("linear", size=21)) == "items 20 then, 21 now"
    assert difference(before, load("nonlinear", size=20)) == "name linear then, nonlinear now"


def test_rounding_of_another_processor_is_no_difference():
    """What this package draws anew may differ in the last bits; the user's own data may not."""
    world = load("mixture", size=50)
    near, far = (world.with_table(world.table * scale, "cpu") for scale in (1 + 1e-7, 1.01))
    assert identify_data(near).digest != identify_data(world).digest
    assert difference(recorded(world), near) == ""
    assert difference(recorded(world), far).startswith("other values")
    other = load("mixture", size=50, seed=1)
    assert difference(recorded(world), other).startswith("other values")
    own = array_world(torch.ones(20, 3))
    assert difference(recorded(own), array_world(torch.full((20, 3), 1 + 1e-6))).startswith("other values")


@pytest.mark.parametrize("name", ["mixture", "shapes"])
@pytest.mark.slow
def test_other_instructions_of_the_processor_draw_the_same_data(name, root):
    """These two worlds differ in their last bits where torch uses no vector instructions."""
    code = (
        "import json; from unseam.data import load, identify_data;"
        f"print(json.dumps(identify_data(load({name!r}))._asdict()))"
    )
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert difference(json.loads(done.stdout), load(name)) == ""
