"""Where one word of a verdict gives way to the next, and how its parts are listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from unseam.inspection.result import Inspection

# Fractions of what random rotations have: words for how far DtO lies below chance.
NEARLY, CLEARLY = 0.25, 0.75
AGREES, ROUGHLY = 0.1, 0.3
MANY_DEGENERATE = 0.1
POLARISED = 0.03  # rolinek2019 §5.2
SQUARE = 0.05  # nats of Hadamard gap: below, axes are at right angles whatever DtO says
MOST_LISTED = 20


def is_square(found: Inspection) -> bool:
    """Whether the axes are at right angles, though perhaps so alike in length that DtO cannot tell."""
    return found.hadamard_gap is not None and found.hadamard_gap < SQUARE


def positions(mask: Tensor) -> list[int]:
    """Which entries hold."""
    found: list[int] = mask.nonzero().flatten().tolist()
    return found


def listed(which: Sequence[int]) -> str:
    """Positions, of many only the first."""
    shown = ", ".join(map(str, which[:MOST_LISTED]))
    return shown if len(which) <= MOST_LISTED else f"{shown}, …"


def named(which: Sequence[int]) -> str:
    """Latents by their positions."""
    return f"latent {which[0]}" if len(which) == 1 else f"latents {listed(which)}"


def joined(parts: Sequence[str]) -> str:
    """Parts with commas, and an "and" before the last."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
