"""Ensemble: trained members, together or one by one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from unseam.models import VAE, Encoding
from unseam.training.learner import blank_learner
from unseam.training.stack import CAUSES, EARLY, Stack
from unseam.trial import Trial

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from unseam.data import World

__all__ = ["Ensemble", "empty_history"]

# Values that one evaluation may produce at once, over all members: 512 MiB as float32.
AT_ONCE = 1 << 27


@dataclass(frozen=True)
class Ensemble:
    """Members trained by :func:`unseam.train`, in the order of their trials.

    ``ensemble[i]`` is an ordinary ``nn.Module`` on the CPU or the ensemble's device; ``encode``, ``decode`` and
    ``reconstruct`` run all members at once, with ``member`` as the first axis. Measurements are made in evaluation
    mode and in full precision: each member's own type, all of them returned in the widest.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> ensemble = unseam.train([trial, trial], world=unseam.data.load("linear", size=10))
    >>> ensemble.encode(torch.zeros(5, 3)).mean.shape
    torch.Size([2, 5, 2])
    """

    trials: tuple[Trial, ...]
    shape: tuple[int, ...]
    stacks: tuple[Stack, ...] = field(repr=False)
    positions: tuple[tuple[int, ...], ...] = field(repr=False)
    history: pd.DataFrame = field(repr=False, compare=False)
    about: dict[str, Any] = field(repr=False, compare=False)
    observed: Mapping[str, pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)
    """What was measured along the way, by name, with a column ``step`` (see ``observe`` of :func:`unseam.train`)."""
    world: World | None = field(default=None, repr=False, compare=False)
    """The data that the members were trained on, where they were given to :func:`unseam.train`; not saved."""

    def __len__(self) -> int:
        return len(self.trials)

    def __iter__(self) -> Iterator[VAE]:
        return (self[member] for member in range(len(self)))

    @overload
    def __getitem__(self, member: int) -> VAE: ...
    @overload
    def __getitem__(self, member: slice) -> list[VAE]: ...
    def __getitem__(self, member: int | slice) -> VAE | list[VAE]:
        """One member as an ordinary module, in evaluation mode."""
        if isinstance(member, slice):
            return [self[position] for position in range(*member.indices(len(self)))]
        stack, row = self._find(member)
        module = blank_learner(stack.trials[row], self.shape, size=stack.template.size).to(stack.device)
        module.load_state_dict(stack.member_state(row))
        return module.model.eval()

    @property
    def device(self) -> torch.device:
        """Device of the members."""
        return self.stacks[0].device

    @property
    def stopped(self) -> dict[int, int]:
        """Members that diverged, with the step at which each stopped."""
        causes = self._causes()
        return {m: at for m, at in self._each("stopped_at").items() if at >= 0 and causes[m] != EARLY}

    @property
    def stopped_early(self) -> dict[int, int]:
        """Members whose training a callback ended, with the step at which each stopped."""
        causes = self._causes()
        return {m: at for m, at in self._each("stopped_at").items() if causes[m] == EARLY}

    @property
    def stopped_by(self) -> dict[int, str]:
        """What was no longer finite of each member that diverged: ``its loss``, or ``its update``, where recorded.

        The update is the gradient, and the weights and the optimiser's state that it leads to.
        """
        return {member: cause for member, cause in self._causes().items() if cause not in ("", EARLY)}

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps that each member's stack has been trained for."""
        done = {
            p: s.step for s, positions in zip(self.stacks, self.positions, strict=True) for p in positions
        }
        return tuple(done[member] for member in range(len(self)))

    def _causes(self) -> dict[int, str]:
        return {member: CAUSES[cause] for member, cause in self._each("stopped_by").items()}

    def _each(self, name: str) -> dict[int, int]:
        """A whole number per member, from the stacks."""
        return {
            position: int(value)
            for stack, positions in zip(self.stacks, self.positions, strict=True)
            for position, value in zip(positions, getattr(stack, name).tolist(), strict=True)
        }

    def encode(self, x: Tensor | np.ndarray) -> Encoding:
        """Posterior mean (member, batch, latent) and variance (or covariance) of every member.

        Args:
            x: (batch, *shape), the same items for every member.
        """
        x = self._check(x, self.shape, "x")
        return Encoding(*self._gather("encode", x, width=self._latent()))

    def decode(self, z: Tensor | np.ndarray) -> Tensor:
        """The likelihood's parameter (member, batch, *data) of every member.

        Args:
            z: (batch, latent), or (member, batch, latent) with points of its own for each member.
        """
        self._check_outputs()
        z = torch.as_tensor(z)
        own = z.ndim == 3
        if own and len(z) != len(self):
            raise ValueError(f"z must hold points for {len(self)} members, got shape {tuple(z.shape)}")
        points = self._check(z.flatten(0, 1) if own else z, (self._latent(),), "z")
        points = points.unflatten(0, z.shape[:2]) if own else points
        return self._gather("decode", points, width=_numel(self.shape), own=own)[0]

    def reconstruct(self, x: Tensor | np.ndarray) -> Tensor:
        """Mean of p(x | z) at the posterior mean (member, batch, *shape) of every member."""
        x = self._check(x, self.shape, "x")
        return self._gather("reconstruct", x, width=_numel(self.shape))[0]

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Tensor:
        """E[x|z] (member, n, *shape) of every member at ``n`` draws z of the prior, the same for all members.

        Args:
            n: number of draws.
            generator: of the draws; by default a new one of seed 0.
        """
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        if not isinstance(n, int) or n < 1:
            raise ValueError(f"n must be a whole number of at least 1, got {n!r}")
        z = torch.randn(n, self._latent(), generator=generator, device=generator.device)
        return self._gather("generate", z.to(self.device, self._dtype()), width=_numel(self.shape))[0]

    def _find(self, member: int) -> tuple[Stack, int]:
        wanted = member + len(self) if member < 0 else member
        for stack, positions in zip(self.stacks, self.positions, strict=True):
            if wanted in positions:
                return stack, positions.index(wanted)
        raise IndexError(f"member {member} is not among the ensemble's {len(self)}")

    def _latent(self) -> int:
        latents = {trial.latent for trial in self.trials}
        if len(latents) > 1:
            raise ValueError(
                f"members must share their number of latents to be run at once, got {sorted(latents)}"
            )
        return latents.pop()

    def _check_outputs(self) -> None:
        """Refuse members whose decoders return parameters of different shapes."""
        shapes: dict[tuple[int, ...], int] = {}
        for stack, positions in zip(self.stacks, self.positions, strict=True):
            shapes.setdefault(tuple(stack.template.model.likelihood.output_shape(self.shape)), positions[0])
        if len(shapes) > 1:
            found = ", ".join(
                f"{shape} of member {member} ({self.trials[member].likelihood})"
                for shape, member in shapes.items()
            )
            raise ValueError(
                f"members must share the shape of their likelihood's parameter to be decoded at once, got {found}: "
                f"decode them one by one, or reconstruct"
            )

    def _check(self, value: Tensor | np.ndarray, shape: tuple[int, ...], name: str) -> Tensor:
        value = torch.as_tensor(value)
        if tuple(value.shape[1:]) != shape or not len(value):
            expected = ", ".join(("batch", *map(str, shape)))
            raise ValueError(
                f"{name} must have shape ({expected}) and hold something, got {tuple(value.shape)}"
            )
        if not value.dtype.is_floating_point:
            raise ValueError(f"{name} must hold floating point numbers, got {value.dtype}")
        return value.to(self.device, self._dtype())

    def _dtype(self) -> torch.dtype:
        """The widest type among the members."""
        return functools.reduce(torch.promote_types, (stack.flat.dtype for stack in self.stacks))

    def _gather(self, method: str, given: Tensor, *, width: int, own: bool = False) -> tuple[Tensor, ...]:
        """Run a method of all members on all points, a bounded number of values at a time."""
        rows = max(1, AT_ONCE // (len(self) * max(width, _numel(self.shape))))
        parts = []
        for stack, positions in zip(self.stacks, self.positions, strict=True):
            mine = (given[list(positions)] if own else given).to(stack.flat.dtype)
            chunks = [_run(stack, method, part, own=own) for part in mine.split(rows, dim=1 if own else 0)]
            parts.append([torch.cat(pieces, dim=1).to(given.dtype) for pieces in zip(*chunks, strict=True)])
        order = torch.tensor([p for positions in self.positions for p in positions]).argsort().to(self.device)
        return tuple(torch.cat(_alike(pieces))[order] for pieces in zip(*parts, strict=True))


def empty_history() -> pd.DataFrame:
    """A history without records.

    >>> list(empty_history())
    ['member', 'step', 'alive']
    """
    import pandas as pd

    kinds = {"member": int, "step": int, "alive": bool}
    return pd.DataFrame({name: [] for name in kinds}).astype(kinds)


def _run(stack: Stack, method: str, given: Tensor, *, own: bool) -> tuple[Tensor, ...]:
    """One method of every member of a stack; in evaluation mode, without gradients."""
    training = stack.template.training

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], given: Tensor) -> Any:
        return functional_call(_Method(stack.template.model, method), (parameters, buffers), (given,))

    strip = len("model.")
    parameters, buffers = (
        {f"module.{name[strip:]}": value for name, value in named.items() if name.startswith("model.")}
        for named in (stack.parameters, stack.buffers)
    )
    stack.template.eval()
    try:
        with torch.no_grad():
            result = vmap(one, in_dims=(0, 0, 0 if own else None))(parameters, buffers, given)
    finally:
        stack.template.train(training)
    return tuple(result) if isinstance(result, tuple) else (result,)


class _Method(torch.nn.Module):
    """A method of a module as the forward of another, for ``functional_call``."""

    def __init__(self, module: VAE, method: str) -> None:
        super().__init__()
        self.module, self.method = module, method

    def forward(self, given: Tensor) -> Any:
        return getattr(self.module, self.method)(given)


def _alike(pieces: tuple[Tensor, ...]) -> list[Tensor]:
    """Variances as covariances where any member has a covariance."""
    if len({piece.ndim for piece in pieces}) == 1:
        return list(pieces)
    return [piece.diag_embed() if piece.ndim == 3 else piece for piece in pieces]


def _numel(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
