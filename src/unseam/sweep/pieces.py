"""Pieces: trials cut into stacks that fit a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from unseam.geometry.memory import free_memory
from unseam.training import group
from unseam.training.learner import blank_learner
from unseam.trial import Trial

__all__ = ["MOST", "capacity", "cut", "is_split", "member_bytes"]

MOST = {"cpu": 32, "cuda": 256}
"""Members of a stack at most, by default: more make a step no more efficient, and a fault more costly."""
STATE, COPIES = 6, 4
"""Copies of the weights (two moments, gradients and intermediate results) and of each layer's output in a step."""
USED = 0.7
"""Fraction of the free memory that a stack may take."""
PROBED = 2


def member_bytes(trial: Trial, shape: tuple[int, ...]) -> int:
    """Estimate of the bytes that a member takes while it trains: weights with the optimiser's state, and layers.

    Args:
        trial: of the member.
        shape: of an item.

    >>> member_bytes(Trial(batch_size=128), (1, 64, 64)) > member_bytes(Trial(), (1, 64, 64)) > 10**7
    True
    """
    model = blank_learner(trial, shape, size=1)
    width = 0

    def count(module: Any, given: Any, out: Any) -> None:
        nonlocal width
        width += sum(part.numel() for part in (out if isinstance(out, tuple) else (out,)))

    leaves = [module for module in model.modules() if not any(module.children())]
    handles = [leaf.register_forward_hook(count) for leaf in leaves]
    kind = next(model.parameters()).dtype
    with torch.no_grad():
        z = torch.zeros(PROBED, trial.latent, dtype=kind)
        model.model.encode(torch.zeros(PROBED, *shape, dtype=kind))
        model.model.decode(z)
    for handle in handles:
        handle.remove()
    weights = sum(part.numel() for part in model.parameters())
    items = width / PROBED + 4 * torch.Size(shape).numel()
    if trial.objective_choice.jacobian:
        items *= trial.latent + 1
    return int(kind.itemsize * (STATE * weights + COPIES * trial.batch_size * items))


def capacity(trial: Trial, shape: tuple[int, ...], device: torch.device, *, share: float = 1.0) -> int:
    """How many members of a trial's stack a device holds: one at least, and no more than is of use.

    Args:
        trial: of one member.
        shape: of an item.
        device: to train on.
        share: part of its free memory that is to be used, where several processes use it.

    >>> 1 <= capacity(Trial(), (1, 64, 64), torch.device("cpu")) <= 32
    True
    """
    room = USED * share * free_memory(device)
    return max(1, min(MOST.get(device.type, 32), int(room // member_bytes(trial, shape))))


def cut(trials: Sequence[Trial], sizes: Mapping[tuple[Any, ...], int]) -> Iterator[list[Trial]]:
    """Stacks of trials that share shapes; the seeds of one model together, where they fit.

    Args:
        trials: of any shapes.
        sizes: members at most by :meth:`Trial.stack_key`.

    >>> trials = [Trial(seed=seed, beta=beta) for seed in range(3) for beta in (1.0, 4.0)]
    >>> [[trial.beta for trial in piece] for piece in cut(trials, {trials[0].stack_key(): 4})]
    [[1.0, 1.0, 1.0], [4.0, 4.0, 4.0]]
    """
    for members in group(trials):
        models: dict[Trial, list[Trial]] = {}
        for place in members:
            models.setdefault(dataclasses.replace(trials[place], seed=0), []).append(trials[place])
        size, piece = sizes[trials[members[0]].stack_key()], list[Trial]()
        for seeds in models.values():
            if piece and len(piece) + len(seeds) > size:
                yield piece
                piece = []
            piece += seeds
            while len(piece) > size:
                yield piece[:size]
                piece = piece[size:]
        if piece:
            yield piece


def is_split(piece: Sequence[Trial], trials: Sequence[Trial]) -> bool:
    """Whether a setting has seeds in a piece and others elsewhere.

    >>> trials = [Trial(seed=seed) for seed in range(3)]
    >>> is_split(trials[:2], trials), is_split(trials, trials)
    (True, False)
    """
    settings, inside = {dataclasses.replace(trial, seed=0) for trial in piece}, set(piece)
    return any(trial not in inside and dataclasses.replace(trial, seed=0) in settings for trial in trials)
