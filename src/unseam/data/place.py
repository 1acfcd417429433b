"""A world as a device should hold it: whole where it fits, streamed or rendered where not."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from unseam.data.array import ArrayWorld
from unseam.data.world import World

__all__ = ["place"]

HOST_TABLE = 4 << 30
"""Largest table built on the host by default: 4 GiB."""

BLOCK = 64 << 20
"""Bytes of a table that are filled at once: small beside the memory of any device."""


def place(world: World, device: torch.device | str, *, budget: int | None = None) -> World:
    """The same world as ``device`` should hold it.

    A world whose table (bytes where its items are exactly k/255, float32 otherwise) takes at most
    ``budget`` bytes is held whole on the device. A larger one is streamed from its memory map or host
    tensor; a procedural one renders on the device itself. Either way the items are the same.

    Args:
        world: any world.
        device: where items shall come out.
        budget: bytes that the table may take; by default half of the free memory of a CUDA device, and on a
            host half of the free memory but at most 4 GiB.

    >>> from unseam.data import load
    >>> place(load("linear", size=8), "cpu", budget=1 << 20).resident
    True
    """
    device = _full(torch.device(device))
    limit = _free(device) if budget is None else budget
    if limit < 0:
        raise ValueError(f"budget must be a number of bytes, at least 0, got {budget}")
    fits = len(world) * math.prod(world.shape) * world.dtype.itemsize <= limit
    if not isinstance(world, ArrayWorld):
        return _tabulate(world.to(device)) if fits else world.to(device)
    if world.resident and world.device == device:
        return world
    return world.with_table(_gather(world, device) if fits else world.table, device)


def _full(device: torch.device) -> torch.device:
    """The device with its index, so that it compares equal to a tensor's."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _free(device: torch.device) -> int:
    """Default budget of a device in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    return min(HOST_TABLE, _free_host() // 2)


def _free_host() -> int:
    """Free memory of the host in bytes, within the limits of the control group it may run in."""
    free = [HOST_TABLE]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        free = [int(lines["MemAvailable"].split()[0]) * 1024]
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip().isdigit():
        free.append(max(0, int(limit.read_text()) - int(used.read_text())))
    return min(free)


def _tabulate(world: World) -> ArrayWorld:
    """A procedural world rendered once into a table on its device."""
    table = torch.empty((len(world), *world.shape), dtype=world.dtype, device=world.device)
    for block in _blocks(world):
        items = world.images(block.to(world.device))
        items = items if world.dtype == torch.float32 else (items * 255).round().to(torch.uint8)
        table[int(block[0]) : int(block[-1]) + 1] = items
    return ArrayWorld(
        table,
        world.factors,
        name=world.name,
        factor_names=world.factor_names,
        factor_sizes=world.factor_sizes,
        twin_of=world.twin_of,
        options=world.options,
    )


def _gather(world: ArrayWorld, device: torch.device) -> Tensor:
    """The table of a world, whole, on a device."""
    if isinstance(world.table, Tensor):
        return world.table.to(device)
    table = torch.empty((len(world), *world.shape), dtype=world.dtype, device=device)
    for block in _blocks(world):
        start, stop = int(block[0]), int(block[-1]) + 1
        table[start:stop] = torch.from_numpy(world.table[start:stop].copy()).to(device)
    return table


def _blocks(world: World) -> tuple[Tensor, ...]:
    """Consecutive indices, as many at once as fill a block of float32."""
    rows = max(1, BLOCK // (4 * math.prod(world.shape)))
    return torch.arange(len(world)).split(rows)
