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
    size = len(world) if subset is None else len(subset)
    advance = make_step(stack, world)
    stack.runner.train()
    while stack.step < trial.steps:
        horizon = min(trial.steps, stack.step + every - stack.step % every)
        stop = min(horizon, stack.step + _steps_at_once(stack))
        steps = torch.arange(stack.step, stop, device=stack.device)
        index = minibatches(stack.seeds, steps, trial.batch_size, size)
        index = index if subset is None else subset[index]
        shape = (trial.batch_size, trial.latent)
        noise = normals(stack.seeds, steps, shape).to(stack.flat.dtype)
        keys = uniforms(stack.seeds, steps, shape) if stack.template.needs_keys else None
        with precision(trial.precision):
            for number in range(len(steps)):
                terms = advance(index[number], noise[number], None if keys is None else keys[number])
                for name, value in terms._asdict().items():
                    total = stack.totals.get(name)
                    stack.totals[name] = value.clone() if total is None else total.add_(value)
                stack.counted += 1
                stack.step += 1
                if stack.step < horizon:
                    after_step()
        if stack.step == horizon:
            means = {name: stack.totals[name] / stack.counted for name in terms._fields}
            stack.totals, stack.counted = {}, 0
            yield Record(horizon, means, stack.alive.clone())
            after_step()


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


def _steps_at_once(stack: Stack) -> int:
    trial = stack.trials[0]
    draw = DRAW.get(stack.device.type, DRAW["cpu"])
    return max(1, draw // (len(stack) * trial.batch_size * (trial.latent + 1)))
