"""Which items of its world a trial trains on, and which it holds out."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.data import split
from unseam.trial import Trial

__all__ = ["Split", "split_items"]


class Split(NamedTuple):
    """Indices of items, on the host; every part is the whole where nothing is held out."""

    train: Tensor
    validation: Tensor
    test: Tensor


def split_items(trial: Trial, items: int) -> Split:
    """The parts of ``items`` that a trial trains on, validates on and is tested on.

    They are f : ½(1 − f) : ½(1 − f) of a permutation seeded by ``split_seed``, with f the ``train_fraction``
    (rolinek2019 Suppl. 8 with f = 0.8). With f = 1 nothing is held out.

    >>> [len(part) for part in split_items(Trial(train_fraction=0.8), 1000)]
    [800, 100, 100]
    >>> [len(part) for part in split_items(Trial(), 1000)]
    [1000, 1000, 1000]
    """
    if trial.train_fraction == 1.0:
        return Split(*[torch.arange(items)] * 3)
    rest = (1.0 - trial.train_fraction) / 2
    return Split(*split(items, (trial.train_fraction, rest, rest), seed=trial.split_seed))
