"""One update of every member of a stack; on CUDA captured once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam.data import ArrayWorld, World
from unseam.models._fused import can_fuse, fused_update
from unseam.training.adam import Adam
from unseam.training.optimisers import Optimiser
from unseam.training.stack import ALIGNED, Block, Stack

__all__ = ["Step", "make_step", "precision", "update"]

# (index (member, batch), noise (member, batch, latent), keys or None) -> the objective's terms, each (member,)
Step = Callable[[Tensor, Tensor, Tensor | None], NamedTuple]

WARM_UP = 3
# Parameters that the dozen passes of an update find again in a processor's caches: 1 MiB as float32.
CACHED = 1 << 18
# Values of a parameter from which the members of a stack are copied one at a time.
LARGE = 1 << 14
# Parameters from which a GPU updates each by itself: copying gradients together then takes longer than launches.
GATHERED = 1 << 25


def update(stack: Stack, x: Tensor, noise: Tensor, keys: Tensor | None) -> NamedTuple:
    """One update of every member, in place; returns each member's terms before the update.

    A member whose loss, gradient, parameters or optimiser state would not be finite stops there: its parameters and
    buffers stay as they were before the step, and every other member goes on as if it were not in the stack.

    Args:
        stack: the members; ``flat``, ``state``, ``alive``, ``stopped_at``, ``stopped_by`` and ``clock`` change.
        x: (member, batch, *shape).
        noise: (member, batch, latent).
        keys: (member, batch, latent) or ``None``.

    >>> from unseam.training import Trial, stack_trials
    >>> stack = stack_trials([Trial(world="linear", likelihood="gaussian", latent=2)], (3,), size=4)
    >>> update(stack, torch.ones(1, 4, 3), torch.zeros(1, 4, 2), None).loss.shape
    torch.Size([1])
    """
    buffers = {name: value.clone() for name, value in stack.buffers.items()}
    with torch.enable_grad(), _autocast(stack):
        terms = stack.terms(x, noise, keys)
    loss: Tensor = terms.loss  # type: ignore[attr-defined]
    gradients = torch.autograd.grad(loss.sum(), list(stack.parameters.values()), materialize_grads=True)
    with torch.no_grad():
        stack.clock.add_(1)
        at_once = _rows_at_once(stack)
        for start in range(0, len(stack), at_once):
            _advance(stack, slice(start, start + at_once), loss, gradients)
        for name, before in buffers.items():
            sound = stack.alive.view(-1, *[1] * (before.ndim - 1))
            stack.buffers[name].copy_(torch.where(sound, stack.buffers[name], before))
        return type(terms)(*(value.detach() for value in terms))


def _advance(stack: Stack, rows: slice, loss: Tensor, gradients: Sequence[Tensor]) -> None:
    """Update some members, and stop those that would no longer be finite where they are."""
    own = [value[rows] for value in gradients]
    alive = stack.alive[rows]
    fused = can_fuse(stack.flat) and all(block.update.fused() for block in stack.blocks)
    advance = _advance_fused if fused else _advance_eagerly
    finite = loss[rows].isfinite()
    sound = advance(stack, rows, own, alive & finite)
    stopped, cause = stack.stopped_at[rows], stack.stopped_by[rows]
    stopped.copy_(torch.where(alive & ~sound, stack.clock.long(), stopped))
    cause.copy_(torch.where(alive & ~sound, 1 + finite.long(), cause))
    alive.copy_(sound)


def _gathered(gradients: Sequence[Tensor]) -> Tensor:
    """Gradients (member, parameter) as parameters lie in a stack's ``flat``, zero between them."""
    parts: list[Tensor] = []
    for value in gradients:
        own = value.flatten(1) if value.ndim > 1 else value[:, None]
        parts += [own, own.new_zeros(1, -own.shape[1] % ALIGNED).expand(len(own), -1)]
    return torch.cat(parts, 1)


def _gathered_on_host(stack: Stack, gradients: Sequence[Tensor]) -> Tensor:
    """The same with one copy of each gradient, however it lies."""
    gathered = stack.flat.new_zeros(len(gradients[0]), stack.flat.shape[1])
    for parameter, value in zip(stack.parameters.values(), gradients, strict=True):
        columns = gathered[:, (start := int(parameter.storage_offset())) : start + value[0].numel()]
        if value[0].numel() < LARGE:
            columns.unflatten(1, value.shape[1:] or (1,)).copy_(value if value.ndim > 1 else value[:, None])
            continue
        for row, own in zip(columns, value, strict=True):  # torch is fast at transposing single matrices only
            row.view(own.shape).copy_(own)
    return gathered


def _advance_eagerly(stack: Stack, rows: slice, gradients: Sequence[Tensor], sound: Tensor) -> Tensor:
    """Update the sound members, and return which of them are still finite."""
    flat = stack.flat[rows]
    gradient = _gathered_on_host(stack, gradients) if flat.device.type == "cpu" else _gathered(gradients)
    before = flat.clone()
    states = {name: value[rows] for name, value in stack.state.items()}
    sound = sound & _finite(gradient)
    if not _surely_all(sound):
        gradient.masked_fill_(~sound[:, None], 0.0)
    for start, stop, apply, rate in stack.blocks:
        state = {name: value[:, start:stop] for name, value in states.items()}
        apply(flat[:, start:stop], gradient[:, start:stop], state, rate[rows] * sound[:, None], stack.clock)
    for value in (flat, *states.values()):
        sound &= _finite(value)
    if not _surely_all(sound):
        flat.copy_(torch.where(sound[:, None], flat, before))
    return sound


def _surely_all(sound: Tensor) -> bool:
    """Whether all members are known to be sound, without waiting for a device."""
    return sound.device.type == "cpu" and bool(sound.all())


def _advance_fused(stack: Stack, rows: slice, gradients: Sequence[Tensor], sound: Tensor) -> Tensor:
    """The same with fused kernels: all blocks are checked before any is written."""
    seen = sound.int()
    still = seen.clone()
    pieces = _pieces(stack, gradients)
    corrections = {block.update: bias_corrections(block.update, stack.clock) for block in stack.blocks}
    calm = stack.calm[rows]
    for write in (False, True):
        if write:
            calm.fill_(1)
        for (start, stop, apply, rate), gradient in pieces:
            state = {name: value[rows, start:stop] for name, value in stack.state.items()}
            flat = stack.flat[rows, start:stop]
            flags = (still if write else seen, still, calm)
            constants = apply.fused()
            assert constants is not None
            fused_update(
                constants, flat, gradient, state, rate[rows], corrections[apply], *flags, write=write
            )
    return still.bool()


def bias_corrections(optimiser: Optimiser, clock: Tensor) -> Tensor:
    """Adam's 1 − βⁿ at the n-th update, on the device; unused by the others."""
    if not isinstance(optimiser, Adam):
        return clock
    return torch.stack([1 - decay**clock for decay in optimiser.betas]).float()


def _pieces(stack: Stack, gradients: Sequence[Tensor]) -> list[tuple[Block, Tensor]]:
    """Columns to update together, with their gradients (member, column): blocks, or where they are large parameters."""
    if stack.flat.numel() < GATHERED:
        gradient = _gathered(gradients)
        return [(block, gradient[:, block.start : block.stop]) for block in stack.blocks]
    pieces = []
    for parameter, gradient in zip(stack.parameters.values(), gradients, strict=True):
        start = int(parameter.storage_offset())
        block = next(block for block in stack.blocks if block.start <= start < block.stop)
        columns = gradient.reshape(len(gradient), -1)
        pieces.append((block._replace(start=start, stop=start + columns.shape[1]), columns))
    return pieces


def _rows_at_once(stack: Stack) -> int:
    """Members whose parameters are updated together: on a host as many as its caches hold."""
    return len(stack) if stack.device.type == "cuda" else max(1, CACHED // stack.flat.shape[1])


def _finite(rows: Tensor) -> Tensor:
    """Which rows (member, parameter) hold finite numbers only."""
    # lengths take a single pass, and overflow only where numbers are huge
    finite = torch.linalg.vector_norm(rows, dim=1).isfinite() if rows.device.type == "cpu" else None
    return finite if finite is not None and _surely_all(finite) else rows.abs().amax(dim=1).isfinite()


def make_step(stack: Stack, world: World) -> Step:
    """The update as a function of indices and noise, captured as a CUDA graph where the stack is on CUDA.

    The graph includes drawing the items, unless the world is streamed from the host.

    >>> from unseam.data import load
    >>> from unseam.training import Trial, stack_trials
    >>> world = load("linear", size=8)
    >>> stack = stack_trials([Trial(world="linear", likelihood="gaussian", latent=2)], world.shape, size=8)
    >>> make_step(stack, world)(torch.arange(8)[None], torch.zeros(1, 8, 2), None)._fields
    ('loss', 'reconstruction', 'kl')
    """

    def items(index: Tensor) -> Tensor:
        drawn = world.images(index.flatten()).unflatten(0, index.shape)
        return drawn.to(stack.flat.dtype)

    def eager(index: Tensor, noise: Tensor, keys: Tensor | None) -> NamedTuple:
        return update(stack, items(index), noise, keys)

    if stack.device.type != "cuda":
        return eager
    streamed = isinstance(world, ArrayWorld) and not world.resident
    if not streamed:
        return _Captured(stack, eager)
    captured = _Captured(stack, lambda x, noise, keys: update(stack, x, noise, keys))
    return lambda index, noise, keys: captured(items(index), noise, keys)


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Arithmetic of float32 products on CUDA inside the block: TF32 unless ``name`` asks for more.

    >>> with precision("tf32"):
    ...     torch.backends.cuda.matmul.fp32_precision
    'tf32'
    """
    switches: tuple[Any, ...] = (torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv"))  # noqa: B009
    before = [switch.fp32_precision for switch in switches]
    benchmark = torch.backends.cudnn.benchmark
    try:
        for switch in switches:
            switch.fp32_precision = "tf32" if name in ("tf32", "bf16") else "ieee"
        torch.backends.cudnn.benchmark = True
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value
        torch.backends.cudnn.benchmark = benchmark


class _Captured:
    """A step captured on its first call: three eager warm-ups are undone, then one capture, then replays."""

    def __init__(self, stack: Stack, step: Step) -> None:
        self.stack, self.step = stack, step
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, first: Tensor, noise: Tensor, keys: Tensor | None) -> NamedTuple:
        with torch.cuda.device(self.stack.device):
            return self._replay(first, noise, keys)

    def _replay(self, first: Tensor, noise: Tensor, keys: Tensor | None) -> NamedTuple:
        if self.graph is None:
            self._capture(first, noise, keys)
        for static, given in zip(self.given, (first, noise, keys), strict=True):
            if static is not None and given is not None:
                static.copy_(given)
        assert self.graph is not None
        self.graph.replay()
        return self.terms

    def _capture(self, first: Tensor, noise: Tensor, keys: Tensor | None) -> None:
        self.given = (first.clone(), noise.clone(), None if keys is None else keys.clone())
        saved = [value.detach().clone() for value in self._mutable()]
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    self.step(*self.given)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.terms = self.step(*self.given)
            self.graph = graph
        finally:
            with torch.no_grad():
                for value, before in zip(self._mutable(), saved, strict=True):
                    value.copy_(before)

    def _mutable(self) -> list[Tensor]:
        stack = self.stack
        tensors = [stack.flat, *stack.state.values(), *stack.buffers.values()]
        return [*tensors, stack.alive, stack.stopped_at, stack.stopped_by, stack.calm, stack.clock]


def _autocast(stack: Stack) -> torch.autocast | nullcontext[None]:
    if stack.trials[0].precision == "bf16":
        return torch.autocast(stack.device.type, dtype=torch.bfloat16)
    return nullcontext()
