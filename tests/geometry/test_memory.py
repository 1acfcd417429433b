"""How many points go at once."""

import pytest
import torch

from unseam.geometry import memory
from unseam.geometry.memory import points_at_once

CPU = torch.device("cpu")


@pytest.fixture
def free(monkeypatch):
    """Set how many bytes are free."""
    return lambda size: monkeypatch.setattr(memory, "free_memory", lambda device: size)


def test_half_of_what_is_free_is_used(free):
    free(2 * 10 * memory.COPIES * 6 * 100 * 4)
    assert points_at_once(5, 100, torch.float32, CPU) == 10
    assert points_at_once(5, 100, torch.float64, CPU) == 5
    assert points_at_once(11, 100, torch.float32, CPU) == 5
    assert points_at_once(5, 200, torch.float32, CPU) == 5


def test_one_point_goes_however_little_is_free(free):
    free(0)
    assert points_at_once(16_384, 10**6, torch.float64, CPU) == 1


def test_no_more_than_is_fast(free):
    free(2**60)
    assert points_at_once(1, 1, torch.float32, CPU) == memory.ENOUGH["cpu"] // (memory.COPIES * 2 * 4)


def test_free_memory_of_the_host(tmp_path):
    proc, group = tmp_path / "meminfo", tmp_path / "group"
    group.mkdir()
    assert memory._free_host(proc, group) == memory.UNKNOWN
    proc.write_text("MemTotal:  8000 kB\nMemAvailable:  3000 kB\n")
    assert memory._free_host(proc, group) == 3000 * 1024
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000\n")
    assert memory._free_host(proc, group) == 3000 * 1024
    (group / "memory.max").write_text("5000\n")
    assert memory._free_host(proc, group) == 4000
    assert 1 << 20 < memory._free_host() < 1 << 50
