"""What one explorer shows: models, the items of their world, and what the models make of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from unseam.charts import Look
from unseam.data import World, grid_factors, grid_index
from unseam.explore.subject import Subject
from unseam.geometry import active_latents, haar_dto, pullback

__all__ = ["Codes", "Exhibit"]

T = TypeVar("T")

# RMS column norm, of the largest, from which a latent counts as alive where no encoder can say.
_ALIVE = 0.01
# Points of N(0, I) at which a decoder without an encoder is looked at.
_PROBES = 64


class Codes(NamedTuple):
    """Where a model puts the items of the world."""

    mean: Tensor
    """(item, latent), in double precision on the host."""
    covariance: Tensor
    """(item, latent, latent)."""
    alive: tuple[int, ...]
    """Latents that carry information, the most informative first."""
    limit: float
    """Magnitude that no slider needs to pass."""


class Exhibit:
    """Models side by side, with what is computed of each at most once, whichever thread asks.

    Args:
        subjects: the models.
        look: how their data are shown.
        world: whose items they encode, or ``None``.
        index: items of the world that stand for all of it (item,).
        title: what is explored.
        source: Python expression that a snippet loads the models by.
        betas: for each subject the position of those that differ from it in β (and seed) alone.

    >>> from unseam.charts import Look
    >>> exhibit = Exhibit([Subject("mine", lambda z: 2 * z, 2)], Look((2,), -6.0, 6.0))
    >>> exhibit.codes(0).alive, exhibit.codes(0).limit
    ((0, 1), 3.0)
    """

    def __init__(
        self,
        subjects: list[Subject],
        look: Look,
        *,
        world: World | None = None,
        index: Tensor | None = None,
        title: str = "decoder",
        source: str | None = None,
        betas: tuple[tuple[int, ...], ...] | None = None,
    ) -> None:
        self.subjects, self.look, self.world = subjects, look, world
        self.index = torch.arange(0) if index is None else index
        self.title, self.source = title, source
        self.betas = betas if betas is not None else tuple((k,) for k in range(len(subjects)))
        self._found: dict[object, object] = {}
        self._locks: dict[object, threading.Lock] = {}

    def once(self, key: object, compute: Callable[[], T]) -> T:
        """What ``compute`` returns, computed by the first who asks for the key."""
        # one lock a key: who waits for one number does not keep others from theirs
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._found:
                self._found[key] = compute()
            return self._found[key]  # type: ignore[return-value]

    @property
    def items(self) -> Tensor:
        """The items that stand for the world (item, *data)."""
        world = self._inhabited()
        return self.once("items", lambda: world.images(self.index.to(world.device)).cpu())

    @property
    def factors(self) -> Tensor:
        """Factors of those items (item, factor)."""
        world = self._inhabited()
        return self.once("factors", lambda: world.factors[self.index.to(world.factors.device)].cpu())

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the world's factors, none where there is no world."""
        return () if self.world is None else self.world.factor_names

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of values of each factor where every combination is one item, in order, else nothing."""
        return self.once("grid", self._grid)

    def item(self, index: int) -> Tensor:
        """One item of the world (*data)."""
        world = self._inhabited()
        if not 0 <= index < len(world):
            raise ValueError(f"item must lie in [0, {len(world)}), got {index}")
        return world.images(torch.tensor([index], device=world.device))[0].cpu()

    def item_factors(self, index: int) -> list[float]:
        """Factors of one item."""
        return [float(value) for value in self._inhabited().factors[index]]

    def item_at(self, factors: list[int]) -> int:
        """The item with the given positions on the grid of factors."""
        return int(grid_index(torch.tensor([factors]), self.grid)[0])

    def codes(self, member: int) -> Codes:
        """Codes of the items by one model; without an encoder, only who is alive."""
        return self.once(("codes", member), lambda: self._encode(self.subjects[member]))

    def random_dto(self, latent: int) -> float:
        """DtO of random rotations of so many latents."""
        generator = torch.Generator().manual_seed(0)
        return self.once(("haar", latent), lambda: haar_dto(latent, samples=2000, generator=generator).mean)

    def encodes(self, member: int) -> bool:
        """Whether one model can encode items of a world."""
        return self.world is not None and self.subjects[member].encoder is not None

    def _grid(self) -> tuple[int, ...]:
        if self.world is None or math.prod(self.world.factor_sizes) != len(self.world):
            return ()
        # in the order of the grid, or an item could not be found by its factors
        factors, sizes = self.world.factors.cpu(), self.world.factor_sizes
        found = torch.equal(factors, grid_factors(torch.arange(len(self.world)), sizes).to(factors.dtype))
        return sizes if found else ()

    def _encode(self, subject: Subject) -> Codes:
        if self.world is None or subject.encoder is None:
            return self._probed(subject)
        parts = [subject.encode(part) for part in self.items.split(256)]
        mean, covariance = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        spread = float(mean.abs().quantile(0.995)) if mean.numel() < 1 << 24 else float(mean.abs().max())
        if not bool(covariance.diagonal(dim1=-2, dim2=-1).any()):  # points have no KL: what moves is alive
            information = mean.var(0, correction=0)
            alive = information > _ALIVE * information.max()
        else:
            found = active_latents(mean, covariance)
            information, alive = found.value, found.active
        return Codes(mean, covariance, _ordered(information, alive), float(max(3, math.ceil(spread))))

    def _probed(self, subject: Subject) -> Codes:
        generator = torch.Generator().manual_seed(0)
        z = torch.randn(_PROBES, subject.latent, generator=generator, dtype=torch.float64)
        metric = pullback(subject.decoder, subject.points(z), likelihood=subject.likelihood)
        norms = metric.diagonal(dim1=-2, dim2=-1).mean(0).sqrt().double().cpu()
        empty = torch.zeros(0, subject.latent, dtype=torch.float64)
        return Codes(empty, torch.diag_embed(empty), _ordered(norms, norms >= _ALIVE * norms.max()), 3.0)

    def _inhabited(self) -> World:
        if self.world is None:
            raise ValueError("there is no world whose items could be shown")
        return self.world


def _ordered(value: Tensor, alive: Tensor) -> tuple[int, ...]:
    order = value.argsort(descending=True, stable=True).tolist()
    return tuple(k for k in order if bool(alive[k]))
