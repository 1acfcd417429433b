"""What a world is: items with known factors, drawn by index on any device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import prod
from typing import NamedTuple, Self

import torch
from torch import Tensor

from unseam.files import check_memory

__all__ = ["Sample", "World", "check_index", "check_room"]


class Sample(NamedTuple):
    """Items drawn from a world with the factors that made them."""

    x: Tensor
    factors: Tensor


class World(ABC):
    """A finite data set whose generating factors are known, one item per index.

    Attributes:
        name: the name it is loaded by.
        shape: shape of one item, e.g. ``(1, 64, 64)``.
        factor_names: one name per factor.
        factor_sizes: number of values of each factor; 0 marks a continuous one.
        dtype: ``torch.uint8`` when every value of every item is exactly k/255, so that a byte table loses
            nothing; ``torch.float32`` otherwise.
        twin_of: the published data set that this one imitates, or ``None``.
        options: the parameters it was made with, as JSON values.
        device: where items come out.
    """

    name: str
    shape: tuple[int, ...]
    factor_names: tuple[str, ...]
    factor_sizes: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    twin_of: str | None = None
    options: Mapping[str, object]
    device: torch.device

    @abstractmethod
    def __len__(self) -> int:
        """Number of items."""

    @abstractmethod
    def images(self, index: Tensor) -> Tensor:
        """Items at ``index`` (batch,), as float32 (batch, *shape) on the world's device."""

    @property
    @abstractmethod
    def factors(self) -> Tensor:
        """Factors of every item (len, factor): int64 grid positions, or float32 where any is continuous."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same world with its items on another device."""

    def sample(self, n: int, generator: torch.Generator) -> Sample:
        """Draw ``n`` items uniformly with replacement."""
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        index = torch.randint(len(self), (n,), generator=generator, device=generator.device)
        return Sample(self.images(index), self.factors[index.to(self.factors.device)])

    def __repr__(self) -> str:
        twin = f", twin of {self.twin_of}" if self.twin_of else ""
        factors = ", ".join(
            f"{name} ({size or 'continuous'})"
            for name, size in zip(self.factor_names, self.factor_sizes, strict=True)
        )
        return f"<world {self.name}{twin}: {len(self)} items of shape {self.shape}; factors {factors}>"


def check_index(index: Tensor, size: int) -> Tensor:
    """Return ``index`` as int64 after checking that it is a vector of integers below ``size``.

    The range is checked on the host only: on an accelerator the check would wait for the device.

    >>> check_index(torch.tensor([0, 2]), 3)
    tensor([0, 2])
    """
    index = torch.as_tensor(index)
    if index.dtype.is_floating_point or index.dtype.is_complex or index.dtype == torch.bool:
        raise ValueError(f"index must hold integers, got {index.dtype}")
    if index.ndim != 1:
        raise ValueError(f"index must be a vector (batch,), got shape {tuple(index.shape)}")
    if (
        index.device.type == "cpu"
        and index.numel()
        and not (0 <= int(index.min()) <= int(index.max()) < size)
    ):
        raise ValueError(
            f"index must lie in [0, {size}), got values from {int(index.min())} to {int(index.max())}"
        )
    return index.long()


def check_room(name: str, items: int, shape: tuple[int, ...] = ()) -> None:
    """Refuse more items, with eight bytes for each of their values, than memory holds, before they are drawn.

    Args:
        name: of the option that asks for them.
        items: how many.
        shape: of one item.

    >>> check_room("size", 10**12, (3,))
    Traceback (most recent call last):
    ValueError: size 1000000000000 needs 24000.0 GB of memory, but ... GB are free
    """
    check_memory(8 * items * prod(shape), f"{name} {items}")
