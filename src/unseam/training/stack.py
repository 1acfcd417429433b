"""Stack: the parameters, buffers and optimiser state of many members, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from unseam import choices
from unseam.models import stacked
from unseam.training.adam import Adam
from unseam.training.learner import Learner, blank_learner, learner
from unseam.training.optimisers import Optimiser
from unseam.trial import Trial

__all__ = ["CAUSES", "EARLY", "Block", "Stack", "group", "stack_trials"]

EARLY = "early stopping"
CAUSES = ("", "its loss", "its update", EARLY)
"""Why a member stopped: what was no longer finite (unknown, its loss, or its gradient, weights or optimiser state), or
a callback that ended its training."""

# FactorVAE's discriminator has decay rates of its own (Kim & Mnih 2018, Suppl. A).
DISCRIMINATOR_BETAS = (0.5, 0.9)
# Every parameter starts at a multiple of so many numbers: products of matrices read 16 bytes at once, or crawl.
ALIGNED = 64


class Block(NamedTuple):
    """Columns of the flat parameters that one optimiser updates."""

    start: int
    stop: int
    update: Optimiser
    rate: Tensor


@dataclass
class Stack:
    """Members that share every shape, trained together.

    All parameters of a member lie in one row of ``flat`` (member, parameter), so that an optimiser is a handful of
    operations on one tensor however many layers there are; ``parameters`` are views of it, with unused numbers between
    them that stay zero, and ``columns`` are those in use. ``template`` is what a
    member is; ``runner`` computes the same in the way that is fast for a training step on this device. ``calm`` says
    which members are known to be far from overflow. ``totals`` sums each term of the objective over the ``counted``
    steps since the last record.

    >>> stack = stack_trials([Trial(world="linear", likelihood="gaussian", latent=2, seed=s) for s in range(3)],
    ...                      (3,), size=100)
    >>> stack.flat.shape[0], stack.parameters["model.decoder.layers.0.weight"].shape[0]
    (3, 3)
    """

    trials: tuple[Trial, ...]
    template: Learner
    runner: nn.Module
    flat: Tensor
    parameters: dict[str, Tensor]
    columns: Tensor
    buffers: dict[str, Tensor]
    state: dict[str, Tensor]
    blocks: tuple[Block, ...]
    weights: dict[str, Tensor]
    seeds: Tensor
    alive: Tensor
    stopped_at: Tensor
    stopped_by: Tensor
    calm: Tensor
    step: int = 0
    counted: int = 0
    totals: dict[str, Tensor] = field(default_factory=dict)
    clock: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def device(self) -> torch.device:
        """Device of the members."""
        return self.flat.device

    def terms(self, x: Tensor, noise: Tensor, keys: Tensor | None) -> NamedTuple:
        """Every member's objective on its own minibatch: named terms, each (member,).

        Args:
            x: (member, batch, *shape).
            noise: (member, batch, latent).
            keys: (member, batch, latent) uniforms, for objectives that permute latents.
        """

        def one(
            parameters: dict[str, Tensor],
            buffers: dict[str, Tensor],
            weights: Mapping[str, Tensor],
            x: Tensor,
            noise: Tensor,
            keys: Tensor | None,
        ) -> NamedTuple:
            given = (x, noise, keys, self.clock, weights)
            terms: NamedTuple = functional_call(self.runner, (parameters, buffers), given)
            return terms

        members = vmap(one, in_dims=(0, 0, 0, 0, 0, None if keys is None else 0))
        terms: NamedTuple = members(self.parameters, self.buffers, self.weights, x, noise, keys)
        return terms

    def stop(self, rows: Sequence[int]) -> None:
        """End the training of members early; once none is left, that of the stack."""
        rows = [row for row in rows if self.alive[row]]
        self.stopped_at[rows] = self.step
        self.stopped_by[rows] = CAUSES.index(EARLY)
        self.alive[rows] = False
        if rows and not bool(self.alive.any()):
            self.step = self.trials[0].steps

    def member_state(self, member: int) -> dict[str, Tensor]:
        """State dict of one member's learner, copied."""
        named = {**self.parameters, **self.buffers}
        return {name: value[member].detach().clone() for name, value in named.items()}


def group(trials: Sequence[Trial]) -> list[list[int]]:
    """Positions of the trials that share a stack, in order of first appearance.

    >>> group([Trial(seed=0), Trial(latent=3), Trial(seed=1)])
    [[0, 2], [1]]
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for position, trial in enumerate(trials):
        groups.setdefault(trial.stack_key(), []).append(position)
    return list(groups.values())


@torch.inference_mode(False)
def stack_trials(
    trials: Sequence[Trial],
    shape: tuple[int, ...],
    *,
    size: int,
    device: torch.device | str = "cpu",
    products: bool | None = None,
    kernels: bool = False,
    drawn: bool = True,
) -> Stack:
    """A fresh stack of trials that differ in member fields only.

    Args:
        trials: the members.
        shape: of one item of the data.
        size: number of training items.
        device: where to train.
        products: run convolutions as batched matrix products (see :func:`unseam.models.stacked`); by default on CUDA,
            unless the objective takes the decoder's Jacobian, which needs forward mode.
        kernels: convolve without copying windows where the kernels suit a layer (see there).
        drawn: whether to draw initial weights; without, they have to be loaded.

    >>> stack_trials([Trial(latent=2)], (1, 4, 4), size=10).template.model.posterior.latent
    2
    """
    if not trials:
        raise ValueError("trials must hold at least one trial, got none")
    if any(not trial.stacks_with(trials[0]) for trial in trials):
        raise ValueError(
            "trials must differ in member fields only (seed and scalar weights) to share a stack"
        )
    template = (learner if drawn else blank_learner)(trials[0], shape, size=size)
    named = dict(template.named_parameters())
    dtype = next(iter(named.values())).dtype
    starts, width = _starts(named)
    flat = torch.zeros(len(trials), width, dtype=dtype)
    parameters = _views(flat, named, starts)

    def draw(member: int) -> dict[str, Tensor]:
        drawn = learner(trials[member], shape, size=size)
        with torch.no_grad():
            for name, value in drawn.named_parameters():
                parameters[name][member].copy_(value)
        return dict(drawn.named_buffers())

    rows = [dict(template.named_buffers())] * len(trials)
    if drawn:
        # members have generators of their own, so the order in which they are drawn does not matter
        with ThreadPoolExecutor() as pool:
            rows = list(pool.map(draw, range(len(trials))))
    flat, template = flat.to(device), template.to(device)
    if products is None:
        products = flat.device.type == "cuda" and not trials[0].objective_choice.jacobian
    blocks = _blocks(trials, template, device, dtype)
    buffers = {name: torch.stack([row[name] for row in rows]).to(device) for name in rows[0]}
    return Stack(
        trials=tuple(trials),
        template=template,
        runner=stacked(template, kernels=kernels) if products else template,
        flat=flat,
        parameters=_views(flat, named, starts),
        columns=torch.cat([start + torch.arange(named[name].numel()) for name, start in starts.items()]).to(
            device
        ),
        buffers=buffers,
        state=blocks[0].update.state(flat),
        blocks=blocks,
        weights=_weights(trials, device, dtype),
        seeds=torch.tensor([trial.seed for trial in trials], device=device),
        alive=torch.ones(len(trials), dtype=torch.bool, device=device),
        stopped_at=torch.full((len(trials),), -1, device=device),
        stopped_by=torch.zeros(len(trials), dtype=torch.int64, device=device),
        calm=torch.zeros(len(trials), dtype=torch.int32, device=device),
        clock=torch.zeros((), dtype=torch.float64, device=device),
    )


def _starts(named: Mapping[str, Tensor]) -> tuple[dict[str, int], int]:
    """First column of every parameter, and the width of all."""
    starts, width = {}, 0
    for name, value in named.items():
        starts[name] = width
        width += -(-value.numel() // ALIGNED) * ALIGNED
    return starts, width


def _views(flat: Tensor, named: Mapping[str, Tensor], starts: Mapping[str, int]) -> dict[str, Tensor]:
    """Leaves that share the memory of ``flat``, shaped as the module's parameters with members first."""
    views = {}
    for name, value in named.items():
        columns = flat[:, starts[name] : starts[name] + value.numel()]
        views[name] = columns.view(len(flat), *value.shape).detach().requires_grad_()
    return views


def _weights(trials: Sequence[Trial], device: torch.device | str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights of the objective (member,), by the names of its arguments."""
    return {
        option.argument or option.name: torch.tensor(
            [float(trial.value(option)) for trial in trials], dtype=dtype, device=device
        )
        for option in trials[0].objective_choice.options
        if option.member and option.argument is not None
    }


def _blocks(
    trials: Sequence[Trial], template: Learner, device: torch.device | str, dtype: torch.dtype
) -> tuple[Block, ...]:
    """Who updates which columns: one block, and one more for FactorVAE's discriminator."""

    def rates(name: str) -> Tensor:
        return torch.tensor([[getattr(trial, name)] for trial in trials], dtype=dtype, device=device)

    starts, width = _starts(dict(template.named_parameters()))
    split = next((start for name, start in starts.items() if name.startswith("discriminator.")), width)
    optimiser = choices.find(choices.Optimiser, trials[0].optimiser)
    update: Optimiser = optimiser.load()(**optimiser.arguments(trials[0].values(optimiser)))
    main = Block(0, split, update, rates("learning_rate"))
    if template.discriminator is None:
        return (main,)
    other = Adam(betas=DISCRIMINATOR_BETAS) if isinstance(update, Adam) else update
    return (main, Block(split, width, other, rates("discriminator_rate")))
