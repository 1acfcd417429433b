"""What the procedural worlds share: values of a factor, and checks of what a renderer is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from unseam.data.world import check_room

__all__ = ["check_pose", "check_rendering", "codes", "spread"]


def spread(name: str, count: int, first: float, last: float, *, alone: float) -> Tensor:
    """Values of a factor, float32 (count,): evenly from ``first`` to ``last``, or ``alone`` if just one.

    >>> spread("scales", 3, 0.5, 1.0, alone=1.0)
    tensor([0.5000, 0.7500, 1.0000])
    """
    if count < 1:
        raise ValueError(f"{name} must be at least 1, got {count}")
    if count == 1:
        return torch.tensor([alone], dtype=torch.float32)
    check_room(name, count)
    return torch.linspace(first, last, count, dtype=torch.float64).float()


def codes(chosen: Sequence[str], known: Sequence[str]) -> Tensor:
    """Places of the chosen names among the known ones, int64.

    >>> codes(("heart", "square"), ("square", "ellipse", "heart"))
    tensor([2, 0])
    """
    wrong = isinstance(chosen, str) or not chosen or len(set(chosen)) < len(chosen)
    if wrong or not set(chosen) <= set(known):
        raise ValueError(f"shapes must be different names out of {tuple(known)}, got {chosen!r}")
    return torch.tensor([known.index(name) for name in chosen])


def check_rendering(resolution: int, softness: float | None = None) -> None:
    """Check the side of an image in pixels and the width of its edges.

    >>> check_rendering(64, 0.5)
    """
    if resolution < 8:
        raise ValueError(f"resolution must be at least 8 pixels, got {resolution}")
    check_room("resolution", resolution, (resolution,))
    if softness is not None and not softness > 0:
        raise ValueError(f"softness must be positive, or None for hard edges, got {softness}")


def check_pose(shape: Tensor, known: Sequence[str], pose: Mapping[str, Tensor]) -> list[Tensor]:
    """Return ``shape`` as int64 and the numbers of ``pose`` as tensors, all (batch,) and of one dtype.

    >>> check_pose(torch.tensor([0]), ("square",), {"scale": torch.tensor([0.5])})
    [tensor([0]), tensor([0.5000])]
    """
    shape = torch.as_tensor(shape)
    numbers = {name: torch.as_tensor(number) for name, number in pose.items()}
    if shape.ndim != 1 or shape.dtype.is_floating_point or shape.dtype == torch.bool:
        raise ValueError(f"shape must be integers (batch,), got {shape.dtype} of shape {tuple(shape.shape)}")
    dtypes = {number.dtype for number in numbers.values()}
    if len(dtypes) > 1 or not next(iter(dtypes)).is_floating_point:
        raise ValueError(
            f"{', '.join(numbers)} must share a floating-point dtype, got {sorted(map(str, dtypes))}"
        )
    for name, number in numbers.items():
        if number.shape != shape.shape:
            raise ValueError(
                f"{name} must have the shape of shape, {tuple(shape.shape)}, got {tuple(number.shape)}"
            )
    if _outside(shape, len(known)):
        raise ValueError(f"shape must lie in [0, {len(known)}) for {tuple(known)}, got {shape.tolist()}")
    return [shape.long(), *numbers.values()]


def _outside(shape: Tensor, count: int) -> bool:
    if shape.device.type != "cpu":
        return False
    try:
        return bool(((shape < 0) | (shape >= count)).any())
    except RuntimeError:
        # Under vmap the values of a mapped tensor cannot be read.
        return False
