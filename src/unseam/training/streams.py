"""Noise and minibatches as a pure function of (seed, step), drawn for every member and many steps at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["minibatches", "normals", "uniforms"]

# SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"): the increment is
# 2^64 over the golden ratio, the two multipliers are those of its finaliser. All as signed 64-bit integers.
GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)
MULTIPLIER_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
MULTIPLIER_2 = 0x94D049BB133111EB - (1 << 64)
NOISE, KEYS, ORDER = 1, 2, 3
# Six rounds pass a χ² test of positions and of pairs of them from 100 items on; smaller sets take more.
ROUNDS, ROUNDS_BELOW_7_BITS = 6, 16


def normals(seeds: Tensor, steps: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Standard normal noise for each step and member, by the Box–Muller transform of hashed counters.

    A value is a function of (seed, step, position in ``shape``) alone: not of the other members, of the other
    steps, or of any generator's state. Float32; the largest magnitude that can occur is 6.8.

    Args:
        seeds: (member,) int64.
        steps: (step,) int64.
        shape: of one member's noise at one step, e.g. (batch, latent).

    Returns:
        (step, member, *shape).

    >>> together = normals(torch.tensor([3, 7]), torch.arange(5), (4, 2))
    >>> alone = normals(torch.tensor([7]), torch.tensor([2]), (4, 2))
    >>> together.shape, bool((together[2, 1] == alone[0, 0]).all())
    (torch.Size([5, 2, 4, 2]), True)
    """
    count = math.prod(shape)
    half = (count + 1) // 2
    bits = _bits(seeds, steps, NOISE, half)
    radius = torch.sqrt(-2.0 * torch.log(_unit(_shift(bits, 32))))
    angle = (2.0 * torch.pi) * _unit(bits & 0xFFFFFFFF)
    pairs = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=-1)
    return pairs[..., :count].unflatten(-1, shape)


def uniforms(seeds: Tensor, steps: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers in (0, 1) for each step and member; arguments and promise as for :func:`normals`.

    >>> u = uniforms(torch.tensor([0]), torch.arange(2), (1000,))
    >>> u.shape, bool((u > 0).all() and (u <= 1).all())
    (torch.Size([2, 1, 1000]), True)
    """
    bits = _bits(seeds, steps, KEYS, math.prod(shape))
    return _unit(_shift(bits, 32)).unflatten(-1, shape)


def minibatches(seeds: Tensor, steps: Tensor, batch_size: int, size: int) -> Tensor:
    """Indices of each member's minibatch at each step: every item once per epoch, in an order of its own.

    Position p of a member's endless stream of items belongs to epoch p // size and is item π(p mod size), with π
    a keyed permutation (an alternating Feistel network with cycle walking), so that no permutation is ever
    stored: the cost is that of the indices asked for, whatever ``size`` is. A batch may straddle two epochs.

    Args:
        seeds: (member,) int64.
        steps: (step,) int64.
        batch_size: items per step.
        size: number of items to draw from.

    Returns:
        (step, member, batch) int64 below ``size``.

    >>> epoch = minibatches(torch.tensor([5]), torch.arange(5), 2, 10)
    >>> epoch.flatten().sort().values.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    lane = torch.arange(batch_size, device=seeds.device)
    position = steps[:, None, None] * batch_size + lane
    epoch = torch.div(position, size, rounding_mode="floor")
    keys = _mix(_mix(seeds * GAMMA + ORDER)[None, :, None] + epoch * GAMMA)
    item = (position - epoch * size).expand(keys.shape)
    return _permute(item, keys, size)


def _permute(item: Tensor, keys: Tensor, size: int) -> Tensor:
    """Keyed permutation of [0, size), element by element."""
    bits = max(2, (size - 1).bit_length())
    found, keys = _feistel(item, keys, bits).flatten(), keys.flatten()
    outside = (found >= size).nonzero().squeeze(1)
    while len(outside):
        further = _feistel(found[outside], keys[outside], bits)
        found[outside] = further
        outside = outside[further >= size]
    return found.view(item.shape)


def _feistel(item: Tensor, keys: Tensor, bits: int) -> Tensor:
    """Keyed permutation of [0, 2^bits): each half in turn is changed by a hash of the other."""
    low = bits // 2
    rounds = ROUNDS if bits >= 7 else ROUNDS_BELOW_7_BITS
    right, left = item & ((1 << low) - 1), item >> low
    for number in range(rounds):
        if number % 2:
            left = left ^ (_mix(keys + (right * rounds + number) * GAMMA) & ((1 << (bits - low)) - 1))
        else:
            right = right ^ (_mix(keys + (left * rounds + number) * GAMMA) & ((1 << low) - 1))
    return (left << low) | right


def _bits(seeds: Tensor, steps: Tensor, stream: int, count: int) -> Tensor:
    """Hashed 64-bit integers (step, member, count)."""
    keys = _mix(_mix(seeds * GAMMA + stream)[None, :] + steps[:, None] * GAMMA)
    counters = torch.arange(1, count + 1, device=seeds.device) * GAMMA
    return _mix(keys[..., None] + counters)


def _mix(value: Tensor) -> Tensor:
    """SplitMix64's finaliser."""
    value = (value ^ _shift(value, 30)) * MULTIPLIER_1
    value = (value ^ _shift(value, 27)) * MULTIPLIER_2
    return value ^ _shift(value, 31)


def _shift(value: Tensor, by: int) -> Tensor:
    """Logical right shift of signed 64-bit integers."""
    return (value >> by) & ((1 << (64 - by)) - 1)


def _unit(word: Tensor) -> Tensor:
    """32-bit words as float32 in (0, 1]."""
    return (word.float() + 0.5) * 2.0**-32
