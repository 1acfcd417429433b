"""A world as a device should hold it: whole where it fits, streamed or rendered where not."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unseam.data.array import ArrayWorld
from unseam.data.world import World
from unseam.geometry.memory import free_memory

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
        device: where items come out.
        budget: bytes that the table may take; by default half of the free memory of a CUDA device, and on a
            host half of the free memory but at most 4 GiB.

    >>> from unseam.data import load
    >>> place(load("linear", size=8), "cpu", budget=1 << 20).resident
    True
    """
    device = _full(torch.device(device))
    limit = _budget(device) if budget is None else budget
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


def _budget(device: torch.device) -> int:
    """Bytes that a table may take by default."""
    half = free_memory(device) // 2
    return half if device.type == "cuda" else min(HOST_TABLE, half)


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
