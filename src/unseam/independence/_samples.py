"""Checks, orders and shapes that the statistics of independence share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array, as_floating, check_generator

__all__ = ["Measured", "Samples", "as_stack", "centred", "from_pairs", "in_order", "pairs", "random_ranks"]

# Three points have 3! = 6 orders, so no p-value below 1/6; four points have 24.
FEWEST = 4


class Samples(NamedTuple):
    """Samples as every statistic wants them."""

    values: Tensor
    """(set, component, batch), float64, finite."""
    dtype: torch.dtype
    """Type that results come back in."""
    stacked: bool
    """Whether the samples came with a set axis, so that results have one too."""

    def back(self, result: Tensor) -> Tensor:
        """A result (set, ...) in the type and with the axes that the samples came with."""
        return (result if self.stacked else result[0]).to(self.dtype)


class Measured(NamedTuple):
    """A statistic of all components together and of each pair, for several orders of the points."""

    joint: Tensor
    """(set, order)."""
    pairs: Tensor
    """(set, order, pair), pairs in the order of :func:`pairs`."""


def as_stack(samples: Array) -> Samples:
    """Samples (batch, component) or (set, batch, component), or a message that says what is wrong with them."""
    given = as_floating("samples", samples, "(batch, component) or (set, batch, component)").detach()
    batch, component = given.shape[-2:]
    if component < 2:
        raise ValueError(f"samples must have at least two components, got {component}")
    if batch < FEWEST:
        raise ValueError(f"samples must have at least {FEWEST} points, got {batch}")
    stacked = given.ndim == 3
    values = (given if stacked else given[None]).mT.double().contiguous()
    return Samples(values, given.dtype, stacked)


def centred(values: Tensor) -> Tensor:
    """Values (..., component, batch) of mean 0, each component times a power of two: its largest is in [½, 1).

    No digit changes, and squares neither overflow nor vanish, nor does a component beside a larger one: for statistics
    that the scale of a component leaves as they are. What is constant is exactly 0.
    """
    constant = values.amax(-1, keepdim=True) == values.amin(-1, keepdim=True)
    values = _scale_to_unit(values)
    return _scale_to_unit(torch.where(constant, 0.0, values - values.mean(-1, keepdim=True)))


def _scale_to_unit(values: Tensor) -> Tensor:
    low, high = values.aminmax(dim=-1, keepdim=True)
    exponent = torch.frexp(torch.maximum(-low, high)).exponent
    # 2¹⁰⁰⁰ is a number, the inverse of the smallest is none.
    return values * (-exponent).clamp(max=1000).to(values.dtype).exp2()


def pairs(component: int, device: torch.device) -> Tensor:
    """The pairs i < j of components (2, pair)."""
    return torch.triu_indices(component, component, 1, device=device)


def from_pairs(values: Tensor, component: int, diagonal: float) -> Tensor:
    """Symmetric matrices (..., component, component) from the values (..., pair) above their diagonal."""
    upper, lower = pairs(component, values.device)
    shape = (*values.shape[:-1], component, component)
    matrix = torch.full(shape, diagonal, dtype=values.dtype, device=values.device)
    matrix[..., upper, lower] = values
    matrix[..., lower, upper] = values
    return matrix


def in_order(values: Tensor, order: Tensor) -> Tensor:
    """Each component's values (set, component, batch, ...) in its orders (order, component, batch).

    Returns:
        (set, order, component, batch, ...).
    """
    component = torch.arange(values.shape[1], device=values.device)[:, None]
    return values[:, component, order]


def random_ranks(values: Tensor, generator: torch.Generator) -> Tensor:
    """Ranks 0 … batch − 1 of the values (set, component, batch); equal values in random order.

    The same random numbers break the ties of every set.
    """
    check_generator(generator)
    keys = torch.rand(values.shape[1:], generator=generator, dtype=torch.float64, device=generator.device)
    shuffled = keys.argsort(-1).to(values.device).expand(values.shape)
    ascending = values.gather(-1, shuffled).argsort(dim=-1, stable=True)
    return shuffled.gather(-1, ascending).argsort(-1)
