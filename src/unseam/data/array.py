"""A world held as a table: a tensor on any device, or a memory map that is streamed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from unseam.data.world import World, check_index

__all__ = ["ArrayWorld", "Posterior"]


class Posterior(NamedTuple):
    """Mean and covariance of the factors given data, exact."""

    mean: Tensor
    covariance: Tensor


class ArrayWorld(World):
    """A world whose items lie in a table (item, *shape), beside their factors (item, factor).

    A byte k stands for k/255; float32 stands for itself. A tensor is held where it is and moves with
    ``to``; a NumPy array or memory map stays on the host, and the rows asked for are gathered there, pinned
    and copied (streamed) to ``device``.

    Args:
        table: items (item, *shape), uint8 or float32, as a tensor or a NumPy array / memory map.
        factors: (item, factor): integers are grid positions; floats where any factor is continuous.
        name: the name the world is loaded by.
        factor_names: one name per factor.
        factor_sizes: number of values of each factor, 0 for a continuous one.
        twin_of: the published data set that this one imitates, or ``None``.
        options: the parameters it was made with, as JSON values.
        device: where items come out; by default where the table is.
        generator: the true generator, factors (batch, factor) -> x (batch, *shape) without its noise, where one is
            known: differentiable, and float64 in gives float64 out.
        posterior: x (batch, *shape) -> :class:`Posterior` of the factors, exact, where it is known.
        mixing: the matrix A (data, factor) of a world that is linear in its factors, or ``None``.

    >>> world = ArrayWorld(torch.tensor([[0, 255], [51, 0]], dtype=torch.uint8), torch.tensor([[0], [1]]),
    ...                    name="pair", factor_names=("which",), factor_sizes=(2,))
    >>> world.images(torch.tensor([1]))
    tensor([[0.2000, 0.0000]])
    """

    def __init__(
        self,
        table: Tensor | np.ndarray,
        factors: Tensor | np.ndarray,
        *,
        name: str,
        factor_names: tuple[str, ...],
        factor_sizes: tuple[int, ...],
        twin_of: str | None = None,
        options: Mapping[str, object] | None = None,
        device: torch.device | str | None = None,
        generator: Callable[[Tensor], Tensor] | None = None,
        posterior: Callable[[Tensor], Posterior] | None = None,
        mixing: Tensor | None = None,
    ) -> None:
        self.table = table
        self.dtype = _dtype(table)
        self.shape = tuple(table.shape[1:])
        self.name, self.twin_of, self.options = name, twin_of, dict(options or {})
        self.factor_names, self.factor_sizes = tuple(factor_names), tuple(factor_sizes)
        self.generator, self.posterior, self.mixing = generator, posterior, mixing
        home = table.device if isinstance(table, Tensor) else "cpu"
        checked = _factors(factors, len(table), self.factor_names, self.factor_sizes)
        self._put(checked, device if device is not None else home)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def factors(self) -> Tensor:
        """Factors of every item (item, factor), on the world's device."""
        return self._factors

    @property
    def resident(self) -> bool:
        """Whether the table lies on the device where items come out."""
        return isinstance(self.table, Tensor) and self.table.device == self.device

    @property
    def nbytes(self) -> int:
        """Size of the table in bytes."""
        return len(self) * math.prod(self.shape) * self.dtype.itemsize

    def images(self, index: Tensor) -> Tensor:
        """Items at ``index`` (batch,), as float32 (batch, *shape) on the world's device."""
        rows = self.rows(index)
        if rows.dtype == torch.float32:
            return rows
        # By a tensor on the device: dividing by a Python number, CUDA multiplies by 1/255, rounded differently.
        return rows / self._unit

    def rows(self, index: Tensor) -> Tensor:
        """Rows of the table at ``index`` (batch,), as they are stored, on the world's device."""
        index = check_index(index, len(self))
        if isinstance(self.table, Tensor):
            picked = self.table[index.to(self.table.device)]
        else:
            picked = torch.from_numpy(np.ascontiguousarray(self.table[index.cpu().numpy()]))
        if picked.device == self.device:
            return picked
        if self.device.type == "cuda" and picked.device.type == "cpu":
            picked = picked.pin_memory()
        return picked.to(self.device, non_blocking=True)

    def to(self, device: torch.device | str) -> Self:
        """The same world with its items on another device: a tensor moves whole, a memory map is streamed."""
        device = torch.device(device)
        table = self.table.to(device) if isinstance(self.table, Tensor) else self.table
        return self.with_table(table, table.device if isinstance(table, Tensor) else device)

    def with_table(self, table: Tensor | np.ndarray, device: torch.device | str) -> Self:
        """The same world with the same items held in another table, coming out on ``device``."""
        if tuple(table.shape) != (len(self), *self.shape) or _dtype(table) != self.dtype:
            raise ValueError(
                f"table must have shape {(len(self), *self.shape)} and type {self.dtype}, "
                f"got {tuple(table.shape)} and {table.dtype}"
            )
        twin = copy.copy(self)
        twin.table = table
        twin._put(self._factors, device)
        return twin

    def _put(self, factors: Tensor, device: torch.device | str) -> None:
        """Factors and what else goes with the items, on the device where items come out."""
        self._factors = factors.to(device)
        self.device = self._factors.device
        self._unit = torch.tensor(255.0, dtype=torch.float32, device=self.device)


def _dtype(table: Tensor | np.ndarray) -> torch.dtype:
    """Type of the table's entries as a torch type, uint8 or float32."""
    kinds: dict[object, torch.dtype] = {
        torch.uint8: torch.uint8,
        torch.float32: torch.float32,
        np.dtype("uint8"): torch.uint8,
        np.dtype("float32"): torch.float32,
    }
    if table.dtype not in kinds:
        raise ValueError(f"table must hold uint8 (value times 255) or float32, got {table.dtype}")
    if table.ndim < 2 or 0 in table.shape:
        raise ValueError(f"table must have shape (item, *shape) and not be empty, got {tuple(table.shape)}")
    return kinds[table.dtype]


def _factors(
    factors: Tensor | np.ndarray, items: int, names: tuple[str, ...], sizes: tuple[int, ...]
) -> Tensor:
    """Factors as int64, or float32 where any is continuous, after checking them against names and sizes."""
    factors = torch.as_tensor(factors)
    if len(names) != len(sizes):
        raise ValueError(f"factor_names and factor_sizes must match, got {len(names)} and {len(sizes)}")
    if tuple(factors.shape) != (items, len(names)):
        raise ValueError(
            f"factors must have shape (item, factor) = {(items, len(names))}, got {tuple(factors.shape)}"
        )
    if factors.dtype.is_floating_point:
        return factors.to(torch.float32)
    if 0 in sizes:
        raise ValueError(f"factors must be floating point where a factor is continuous, got {factors.dtype}")
    return factors.long()
