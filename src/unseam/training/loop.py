"""The training loop: a generator of records over one stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.data import World
from unseam.training.splits import split_items
from unseam.training.stack import Stack
from unseam.training.step import make_step, precision
from unseam.training.streams import minibatches, normals, uniforms
from unseam.trial import Trial

__all__ = ["Record", "training_index", "training_steps"]

# Random numbers are drawn for as many steps at once as keep a draw below this many values (8 MiB of hashed words on a
# host, 256 MiB on a GPU, whose time goes into launches): many steps share the cost of some hundred small operations.
DRAW = {"cpu": 1 << 20, "cuda": 1 << 25}


class Record(NamedTuple):
    """Where a stack stands: the step reached, and each term's mean since the last record, (member,) each."""

    step: int
    terms: dict[str, Tensor]
    alive: Tensor


@torch.inference_mode(False)
def training_steps(
    stack: Stack, world: World, *, every: int = 100, after_step: Callable[[], None] = lambda: None
) -> Iterator[Record]:
    """Train every member to the end of its trial, yielding a record each ``every`` steps.

    Noise and minibatches of a member are a function of its seed and the step, so the trajectory is the same
    wherever it is interrupted and whatever else is in the stack. Checkpoints, logs and plots are the caller's.

    Args:
        stack: the members; starts from ``stack.step``.
        world: on the stack's device (see :func:`unseam.data.place`).
        every: steps between records; the last record comes at the last step.
        after_step: called after every step and its record, when the stack is consistent: it may write a checkpoint, or
            raise to stop.

    >>> from unseam.data import load
    >>> from unseam.training import Trial, stack_trials
    >>> world = load("linear", size=100)
    >>> trial = Trial(world="linear", likelihood="gaussian", latent=2, steps=20, batch_size=10)
    >>> [record.step for record in training_steps(stack_trials([trial], (3,), size=100), world, every=8)]
    [8, 16, 20]
    """
    trial = stack.trials[0]
    subset = training_index(trial, len(world))
    subset = None if subset is None else subset.to(stack.device)
    advance = make_step(stack, world)
    stack.runner.train()
    draws = _draws(stack, len(world), subset)
    while stack.step < trial.steps:
        horizon = min(trial.steps, stack.step + every - stack.step % every)
        with precision(trial.precision):
            while stack.step < horizon:
                terms = advance(*next(draws))
                for name, value in terms._asdict().items():
                    total = stack.totals.get(name)
                    stack.totals[name] = value.clone() if total is None else total.add_(value)
                stack.counted += 1
                stack.step += 1
                if stack.step < horizon:
                    after_step()
        means = {name: stack.totals[name] / stack.counted for name in terms._fields}
        stack.totals, stack.counted = {}, 0
        yield Record(horizon, means, stack.alive.clone())
        after_step()


def _draws(stack: Stack, items: int, subset: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Items (member, batch), noise (member, batch, latent) and keys, if any, of every step that is left."""
    trial = stack.trials[0]
    shape = (trial.batch_size, trial.latent)
    draw = DRAW.get(stack.device.type, DRAW["cpu"])
    at_once = max(1, draw // (len(stack) * trial.batch_size * (trial.latent + 1)))
    for start in range(stack.step, trial.steps, at_once):
        steps = torch.arange(start, min(trial.steps, start + at_once), device=stack.device)
        index = minibatches(stack.seeds, steps, trial.batch_size, items if subset is None else len(subset))
        index = index if subset is None else subset[index]
        noise = normals(stack.seeds, steps, shape).to(stack.flat.dtype)
        keys = uniforms(stack.seeds, steps, shape) if stack.template.needs_keys else None
        for number in range(len(steps)):
            yield index[number], noise[number], None if keys is None else keys[number]


def training_index(trial: Trial, items: int) -> Tensor | None:
    """Which of ``items`` a trial trains on, or ``None`` for all (see :func:`split_items`).

    >>> len(training_index(Trial(train_fraction=0.8), 1000))
    800
    """
    if trial.train_fraction == 1.0:
        return None
    part = split_items(trial, items).train
    if not len(part):
        raise ValueError(f"train_fraction {trial.train_fraction} leaves nothing of {items} items to train on")
    return part
