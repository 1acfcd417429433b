"""Whether what a decoder's derivatives add up to along a segment is what changes along it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Segments", "jumps", "segments"]

Measured = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# Segments between given points, and pieces of each.
_SEGMENTS, _PIECES = 4, 16
# Halvings of the piece that is explained worst: what is smooth on its 2⁻¹² of a segment is not taken for a jump.
_HALVINGS = 8
# Share of the changes along segments that must go unexplained before derivatives count as wrong.
_SHARE = 0.1


class Segments(NamedTuple):
    """Straight ways from some points to others, (segment, latent) both."""

    start: Tensor
    end: Tensor


def segments(points: Tensor, moving: Tensor | None = None) -> Segments:
    """A few segments between given points, along the moving latents alone where given (all by default)."""
    count = min(_SEGMENTS, len(points))
    picked = points[torch.linspace(0, len(points) - 1, count, device=points.device).round().long()]
    end = picked.roll(1, 0)
    if moving is None:
        return Segments(picked, end)
    varied = torch.zeros(points.shape[1], dtype=torch.bool, device=points.device)
    varied[moving] = True
    return Segments(picked, torch.where(varied, end, picked))


def jumps(measured: Measured, ways: Segments, floor: float) -> bool:
    """Whether quantities jump where their derivatives see nothing, by a clear share of all that they change.

    On each segment the change of a quantity is compared with the trapezoidal sum of its slopes. What is missing
    may be due to coarse pieces: so the piece that misses most is halved again and again. In the end a smooth
    quantity changes by what the mean of the slopes at both ends makes of the piece. At a jump it changes by more
    than twice that, whatever their signs; at a pole of a logarithm, log(b/a) between -a and b, it never does:
    slopes grow as fast as pieces shrink.

    Args:
        measured: map from points (point, latent) and directions (point, latent) to quantities and their
            derivatives along the directions (point, quantity); NaN where a quantity does not exist.
        ways: the segments.
        floor: rounding of the quantities.
    """
    start, direction = ways.start, ways.end - ways.start
    shares = torch.linspace(0, 1, _PIECES + 1, dtype=start.dtype, device=start.device)
    nodes = start[:, None] + shares[:, None] * direction[:, None]
    values, slopes = (
        part.unflatten(0, nodes.shape[:2])
        for part in measured(nodes.flatten(0, 1), direction.repeat_interleave(len(shares), 0))
    )
    missing = values.diff(dim=1) - (slopes[:, 1:] + slopes[:, :-1]) / (2 * _PIECES)
    there = (values + slopes).isfinite().all(1)
    lost = torch.where(there, missing.sum(1), 0.0)
    bound = max(_SHARE * _size(torch.where(there, values[:, -1] - values[:, 0], 0.0)), floor)
    if not _size(lost) > bound:
        return False
    which = lost.abs().argmax(1)
    rows = torch.arange(len(start), device=start.device)
    piece = missing[rows, :, which].nan_to_num().abs().argmax(1)
    ends = torch.stack([shares[piece], shares[piece + 1]])
    value = torch.stack([values[rows, piece, which], values[rows, piece + 1, which]])
    slope = torch.stack([slopes[rows, piece, which], slopes[rows, piece + 1, which]])
    for _ in range(_HALVINGS):
        middle = ends.mean(0)
        found = measured(start + middle[:, None] * direction, direction)
        here, rate = (part[rows, which] for part in found)
        first = _unexplained(ends[0], middle, value[0], here, slope[0], rate).nan_to_num()
        second = _unexplained(middle, ends[1], here, value[1], rate, slope[1]).nan_to_num()
        left = first >= second
        ends = torch.stack([torch.where(left, ends[0], middle), torch.where(left, middle, ends[1])])
        value = torch.stack([torch.where(left, value[0], here), torch.where(left, here, value[1])])
        slope = torch.stack([torch.where(left, slope[0], rate), torch.where(left, rate, slope[1])])
    jumped = (value[1] - value[0]).abs() > (ends[1] - ends[0]) * slope.abs().sum(0)
    return _size(torch.where(jumped[:, None], lost, 0.0)) > bound


def _unexplained(
    begin: Tensor, end: Tensor, before: Tensor, after: Tensor, first: Tensor, second: Tensor
) -> Tensor:
    """How far the change over a piece is from the mean of the slopes at its ends."""
    return (after - before - (end - begin) * (first + second) / 2).abs()


def _size(changes: Tensor) -> float:
    """Norm over quantities, root mean square over segments."""
    return float(changes.square().sum(1).mean().sqrt())
