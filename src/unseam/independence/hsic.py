"""Hilbert–Schmidt independence criterion: what a Gaussian kernel sees of a dependence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.independence._samples import Measured, Samples, as_stack, in_order
from unseam.inputs import Array, check_count

__all__ = ["Hsic", "hsic", "median_distance"]

# Share of a kernel matrix's trace that its factor may leave out: HSIC is then exact to twice that.
ENOUGH = 1e-6
# Halvings that take an interval of distances below the spacing of doubles.
HALVINGS = 64


def hsic(samples: Array, *, rank: int = 32) -> Tensor:
    r"""Hilbert–Schmidt independence criterion of every pair of components.

    .. math:: \mathrm{HSIC}_{ij} = \frac{1}{n^2} \operatorname{tr}\, K_i H K_j H, \qquad H = I - \frac{1}{n} 1 1^\top,
              \qquad K_i(a, b) = \exp\Bigl( -\frac{(x_{ai} - x_{bi})^2}{2 \sigma_i^2} \Bigr)

    (Gretton et al. 2005, 2008: the biased V-statistic), σ_i the :func:`median_distance` of component i. In the limit
    of many points it is zero exactly for independent pairs. No n × n matrix is built: K_i is replaced by its
    incomplete Cholesky factor with the greatest remaining diagonal entry as the next pivot (Fine & Scheinberg
    2001), which stops when 10⁻⁶ of the trace is left or at ``rank`` columns, so a pair costs n · rank² operations. A
    normal or uniform component needs about 16 columns; in heavy tails every far outlier would need a column of its own,
    and those beyond ``rank`` are treated as lying nowhere in particular.

    Args:
        samples: (batch, component) or (set, batch, component).
        rank: columns of a component's factor, at most.

    Returns:
        HSIC (..., component, component), symmetric, the diagonal included; 0 for a constant component.

    >>> x = torch.linspace(-1, 1, 101, dtype=torch.float64)
    >>> found = hsic(torch.stack([x, x**2, x[torch.arange(101) * 37 % 101]], dim=1))
    >>> bool(found[0, 1] > 10 * found[0, 2])
    True
    """
    given = as_stack(samples)
    check_count("rank", rank)
    features = _centred_features(_scale(given.values), rank)
    component, batch, width = features.shape[1:]
    side_by_side = features.transpose(1, 2).flatten(-2)
    blocks = (side_by_side.mT @ side_by_side).view(-1, component, width, component, width)
    return given.back(blocks.square().sum((2, 4)) / batch**2)


def median_distance(samples: Array) -> Tensor:
    r"""Median distance between points that differ, component by component.

    Found by bisection on the sorted values, with n log n operations per halving. Pairs of equal values do not count, so
    discrete components have a positive median too. Scales with the component.

    Args:
        samples: (batch, component) or (set, batch, component).

    Returns:
        The median (..., component): the smallest distance that half of the pairs do not exceed; 1 for a constant
        component.

    >>> median_distance(torch.tensor([[0.0, 1.0], [0.0, 1.0], [3.0, 1.0], [4.0, 1.0]]))
    tensor([3., 1.])
    """
    given = as_stack(samples)
    return given.back(_median_distance(given.values))


@dataclass(frozen=True)
class Hsic:
    r"""HSIC of pairs, and of all components together, as a statistic for ``independence_test``.

    The joint statistic of two components is their :func:`hsic`; of more it is dHSIC (Pfister et al. 2018), zero in
    the limit exactly if all components are mutually independent, in the form

    .. math:: \mathbb{E}_w \Bigl| \hat\varphi(w) - \prod_i \hat\varphi_i(w_i) \Bigr|^2, \qquad
              w_i \sim \mathcal N(0, \sigma_i^{-2})

    with the empirical characteristic functions of all and of single components, the mean taken over a fixed number of
    random frequencies (Rahimi & Recht 2007). An order of n points costs n · frequencies · component operations.

    >>> from unseam.independence import independence_test
    >>> x = torch.linspace(-1, 1, 64)
    >>> generator = torch.Generator().manual_seed(0)
    >>> independence_test(torch.stack([x, x**2], 1), method=Hsic(rank=16), generator=generator).p_value  # 1/200
    tensor(0.0050)
    """

    rank: int = 32
    """Columns of the factor of a component's kernel matrix, at most."""
    frequencies: int = 128
    """Frequencies w, for three and more components."""

    def __post_init__(self) -> None:
        check_count("rank", self.rank)
        check_count("frequencies", self.frequencies)

    def prepare(self, samples: Samples, generator: torch.Generator) -> HsicState:
        """What does not depend on the order of the points: features, scaled samples, frequencies."""
        scaled = _scale(samples.values)
        shape = (scaled.shape[1], self.frequencies)
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
        frequencies = drawn.to(scaled.device)
        features = _centred_features(scaled, self.rank)
        return HsicState(features, scaled, frequencies, _product(scaled, frequencies))

    def measure(self, state: HsicState, order: Tensor) -> Measured:
        """The statistics of the points in the given orders (order, component, batch)."""
        features = in_order(state.features, order)
        component, batch, width = features.shape[-3:]
        rows = []
        for first in range(component - 1):
            rest = features[:, :, first + 1 :].transpose(2, 3).flatten(-2)
            blocks = features[:, :, first].mT @ rest
            rows.append(blocks.unflatten(-1, (-1, width)).square().sum((-3, -1)))
        found = torch.cat(rows, dim=-1) / batch**2
        joint = found[..., 0] if component == 2 else _joint(state, order)
        return Measured(joint, found)

    def numbers(self, component: int, batch: int) -> int:
        """Numbers that one order of one set needs in memory."""
        joint = 0 if component == 2 else 3 * self.frequencies
        return batch * max(2 * component * min(self.rank, batch), joint)


class HsicState(NamedTuple):
    """What of a set of samples does not depend on the order of its points."""

    features: Tensor
    """Centred factors of the kernel matrices (set, component, batch, rank)."""
    scaled: Tensor
    """Samples in units of their median distance (set, component, batch)."""
    frequencies: Tensor
    """(component, frequency)."""
    product: Tensor
    """Product over components of their characteristic functions (set, frequency), complex."""


def _joint(state: HsicState, order: Tensor) -> Tensor:
    """Mean squared distance of the joint characteristic function from the product of the single ones."""
    phases = in_order(state.scaled, order).mT @ state.frequencies
    real = phases.cos().mean(-2) - state.product.real[:, None]
    imaginary = phases.sin().mean(-2) - state.product.imag[:, None]
    return (real.square() + imaginary.square()).mean(-1)


def _product(scaled: Tensor, frequencies: Tensor) -> Tensor:
    product = torch.ones((), dtype=torch.complex128, device=scaled.device)
    for component, frequency in enumerate(frequencies):
        phases = scaled[:, component, :, None] * frequency
        product = product * torch.complex(phases.cos().mean(1), phases.sin().mean(1))
    return product


def _centred_features(scaled: Tensor, rank: int) -> Tensor:
    """Centred incomplete Cholesky factors (set, component, batch, rank) of the Gaussian kernel matrices."""
    width = min(rank, scaled.shape[-1])
    factor = scaled.new_zeros(*scaled.shape, width)
    left = torch.ones_like(scaled)
    for step in range(width):
        # Each component stops by itself, so that its factor is the same alone as among others.
        done = left.mean(-1, keepdim=True) <= ENOUGH
        if bool(done.all()):
            return _centre(factor[..., :step])
        pivot = left.argmax(-1, keepdim=True)
        size = torch.where(done, 1.0, left.gather(-1, pivot))
        kernel = (-(scaled - scaled.gather(-1, pivot)).square() / 2).exp()
        row = factor[..., :step].gather(-2, pivot[..., None].expand(*pivot.shape, step))
        column = (kernel - (factor[..., :step] @ row.mT)[..., 0]) / size.sqrt()
        column = torch.where(done, 0.0, column)
        factor[..., step] = column
        left = (left - column.square()).clamp(min=0.0)
    return _centre(factor)


def _centre(factor: Tensor) -> Tensor:
    return factor - factor.mean(-2, keepdim=True)


def _scale(values: Tensor) -> Tensor:
    return values / _median_distance(values)[..., None]


def _median_distance(values: Tensor) -> Tensor:
    """Median distance (set, component) between values (set, component, batch) that differ."""
    ascending = values.sort(-1).values
    batch = values.shape[-1]
    position = torch.arange(batch, device=values.device)

    def within(distance: Tensor) -> Tensor:
        """Pairs no farther apart than ``distance``."""
        reach = torch.searchsorted(ascending, ascending + distance[..., None], right=True)
        return (reach - 1 - position).sum(-1)

    low = torch.zeros_like(ascending[..., 0])
    high = ascending[..., -1] - ascending[..., 0]
    constant = high == 0
    half = (within(low) + batch * (batch - 1) // 2 + 1) // 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = within(middle) >= half
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where(constant, 1.0, high)
