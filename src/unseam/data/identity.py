"""What tells one data set from another: size, shape, type and a digest of its values."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseam import choices
from unseam.data.array import ArrayWorld
from unseam.data.world import World

__all__ = ["Identity", "data_difference", "identify_data"]

# Bytes of a table up to which every item is digested, at 1.5 GB/s and more: about as long as one pass over them.
WHOLE = 4 << 30
# Items that are digested of a larger table, and of a world that is rendered, whose items take longer.
STORED, RENDERED = 1024, 256
# Bytes up to which the means are of every item that is digested, and of one part of them.
AVERAGED = 64 << 20
# 1/φ: multiples of it modulo 1 are spread evenly, however many there are, and fall into step with no grid of factors.
GOLDEN = (math.sqrt(5) - 1) / 2
PARTS = 16
# Processors round the same drawing differently in the last bits of single precision; other data are further off.
ROUNDING = 1e-4


class Identity(NamedTuple):
    """What is recorded of data, as JSON values."""

    name: str
    items: int
    shape: list[int]
    dtype: str
    twin_of: str | None
    options: dict[str, Any]
    factors: list[str]
    """Their names."""
    read: int
    """Number of items that the digests are of: all, or a sample."""
    digest: str
    """SHA-256 of those items."""
    factor_digest: str
    """SHA-256 of their factors."""
    sketch: list[float]
    """Means of parts of those items, or of a sample of them: the same up to rounding wherever data are drawn again."""
    path: str | None
    """File of a memory map."""


def identify_data(world: World, *, read: int | None = None) -> Identity:
    """What tells a world from others.

    The digest is of every item where the table of a world takes at most 4 GiB, else of 1024 items, and of 256 where
    items are rendered: those at ⌊n · frac(k/φ)⌋ of n, which lie all over the data. Identities of earlier versions are
    of 1024 items from 64 MiB on; ``read`` says of how many.

    Args:
        world: the data.
        read: number of items to digest instead, as an earlier identity has it.

    >>> from unseam.data import load
    >>> one, same, other = (identify_data(load("linear", size=10, seed=seed)) for seed in (0, 0, 1))
    >>> one == same, one.digest == other.digest
    (True, False)
    """
    items = len(world)
    count = _count(world) if read is None else max(1, min(read, items))
    index = torch.arange(items) if count == items else _scattered(items, count)
    values, factors = hashlib.sha256(), hashlib.sha256()
    each = math.prod(world.shape) * 4
    size = count * math.prod(world.shape) * world.dtype.itemsize
    few = index if count <= STORED or size <= AVERAGED else _scattered(items, STORED)
    sketch = []
    for part in _parts(index, each):
        drawn = _stored(world, part, whole=count == items)
        values.update(drawn.contiguous().numpy())
        factors.update(world.factors[part.to(world.factors.device)].cpu().contiguous().numpy())
        if few is index:
            sketch.append(_average(drawn))
    if few is not index:
        sketch = [_average(_stored(world, part)) for part in _parts(few, each)]
    table = world.table if isinstance(world, ArrayWorld) else None
    path = str(table.filename) if isinstance(table, np.memmap) and table.filename else None
    return Identity(
        world.name,
        items,
        list(world.shape),
        str(world.dtype).removeprefix("torch."),
        world.twin_of,
        json.loads(json.dumps(dict(world.options), default=str)),
        list(world.factor_names),
        count,
        values.hexdigest(),
        factors.hexdigest(),
        sketch,
        path,
    )


def data_difference(recorded: Mapping[str, Any], found: Identity) -> str:
    """How data differ from those that a record describes, in words; empty where they are the same.

    Of records without a digest, as earlier versions wrote them, only what they hold is compared. A world that this
    package draws again from the same options may differ in its last bits on another processor.

    Args:
        recorded: fields of :class:`Identity`, as read from JSON.
        found: the data at hand, with as many items ``read``.

    >>> from unseam.data import load
    >>> one, longer, other = (load("linear", size=n, seed=seed) for n, seed in ((10, 0), (11, 0), (10, 1)))
    >>> recorded = identify_data(one)._asdict()
    >>> data_difference(recorded, identify_data(longer))
    'items 10 then, 11 now'
    >>> data_difference(recorded, identify_data(other))[:20]
    'other values (digest'
    """
    digested = "digest" in recorded
    for key in ("items", "shape", "dtype") if digested else ("name", "items", "shape", "dtype"):
        if key in recorded and recorded[key] != getattr(found, key):
            return f"{key} {recorded[key]} then, {getattr(found, key)} now"
    if not digested or found.digest == recorded["digest"] or _drawn_alike(recorded, found):
        return ""
    return f"other values (digest {str(recorded['digest'])[:12]} then, {found.digest[:12]} now)"


def _count(world: World) -> int:
    if not isinstance(world, ArrayWorld):
        return min(len(world), RENDERED)
    return len(world) if world.nbytes <= WHOLE else min(len(world), STORED)


def _scattered(items: int, count: int) -> Tensor:
    turns = torch.arange(1, count + 1, dtype=torch.float64) * GOLDEN
    return (turns % 1 * items).long().clamp(max=items - 1)


def _parts(index: Tensor, each: int) -> list[Tensor]:
    """An index in parts of at most so many items that they fit beside the data."""
    return [part for part in index.tensor_split(max(PARTS, len(index) * each // AVERAGED)) if len(part)]


def _average(items: Tensor) -> float:
    # weighted by position, or a picture that moved would look the same
    weights = torch.linspace(0.5, 1.0, items[0].numel(), dtype=torch.float64)
    return float((items.flatten(1).double().nanmean(0) * weights).nanmean())


def _stored(world: World, index: Tensor, *, whole: bool = False) -> Tensor:
    """Items as a table of them holds them, bytes where those lose nothing, on the host; ``whole`` ones in a row."""
    if isinstance(world, ArrayWorld):
        if not whole:
            return world.rows(index.to(world.device)).cpu()
        rows = world.table[int(index[0]) : int(index[-1]) + 1]  # twice as fast as by index
        return rows.cpu() if isinstance(rows, Tensor) else torch.from_numpy(np.array(rows))
    index = index.to(world.device)
    drawn = world.images(index).cpu()
    return drawn if world.dtype == torch.float32 else (drawn * 255).round().to(torch.uint8)


def _drawn_alike(recorded: Mapping[str, Any], found: Identity) -> bool:
    """Whether both were drawn by this package from the same options, with the same values up to rounding."""
    own = choices.built_in(choices.World).get(found.name)
    if own is None or own.from_file:
        return False
    if any(recorded.get(key) != getattr(found, key) for key in ("name", "options", "read")):
        return False
    before, now = (torch.tensor(s, dtype=torch.float64) for s in (recorded.get("sketch", []), found.sketch))
    return before.shape == now.shape and torch.allclose(before, now, rtol=ROUNDING, atol=ROUNDING)
