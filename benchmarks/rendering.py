"""Pictures a second of the procedural worlds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.timing import seconds_per_call
from unseam import data

__all__ = ["rendering"]

BATCH = {"cpu": 1024, "cuda": 32_768}


def rendering(device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per world: random pictures rendered on the device, against the same read from a table there."""
    batch = BATCH[device.type]
    soft = {"resolution": 16, "softness": 1.0}
    for name, options in (("sprites", {}), ("sprites, soft edges, 16 × 16", soft), ("shapes", {})):
        world = data.load(name.partition(",")[0], **options).to(device)
        generator = torch.Generator(device=device).manual_seed(0)
        index = torch.randint(len(world), (batch,), device=device, generator=generator)
        seconds = seconds_per_call(partial(world.images, index), device=device, calls=5)
        yield {"world": name, "batch": batch, "way": "rendered", "images/s": batch / seconds}
        if device.type == "cuda":
            table = data.place(world, device)
            seconds = seconds_per_call(partial(table.images, index), device=device, calls=5)
            yield {"world": name, "batch": batch, "way": "read from a table", "images/s": batch / seconds}
