"""Members of an ensemble, as many at once as memory likes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

__all__ = ["NUMBERS_AT_ONCE", "per_chunk"]

Found = TypeVar("Found")

NUMBERS_AT_ONCE = {"cpu": 2**24, "cuda": 2**31}
"""Numbers that a step may hold, by type of device: what a processor's caches and an accelerator's memory bear."""


def per_chunk(codes: Tensor, numbers: int, measure: Callable[[Tensor], Found]) -> list[Found]:
    """What is measured of codes (member, ...), so many members at once that each may hold so many numbers."""
    most = max(1, NUMBERS_AT_ONCE.get(codes.device.type, 2**24) // max(1, numbers))
    return [measure(part) for part in codes.split(most)]
