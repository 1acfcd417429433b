"""Distance correlation of one-dimensional components in n log n operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.independence._samples import Measured, Samples, as_stack, from_pairs, in_order, pairs
from unseam.inputs import Array, check_count

__all__ = ["Dcor", "DistanceCorrelation", "distance_correlation"]

# Pairs of components that are looked at together, so that memory does not grow with the number of pairs.
PAIRS = 64


class DistanceCorrelation(NamedTuple):
    """Distance correlation of every pair of components."""

    correlation: Tensor
    """V-statistic R (..., component, component) in [0, 1]; 0 for a constant component."""
    corrected: Tensor
    """Bias-corrected squared correlation (..., component, component), about 0 for independent components."""


def distance_correlation(samples: Array) -> DistanceCorrelation:
    r"""Distance correlation of every pair of components.

    .. math:: R^2 = \frac{V^2(x, y)}{\sqrt{V^2(x, x)\, V^2(y, y)}}, \qquad
              V^2(x, y) = \frac{1}{n^2} \sum_{ab} A_{ab} B_{ab}

    with A and B the matrices of distances ``|x_a − x_b|`` and ``|y_a − y_b|``, rows and columns centred (Székely,
    Rizzo & Bakirov 2007); where means exist, zero in the limit exactly for independent components. R is biased
    upwards by about :math:`n^{-1/2}`; ``corrected`` is the U-statistic for R² (Székely & Rizzo 2014), which may be
    negative. Unchanged by shift, scale and sign of a component.

    No matrix of distances is built: the sum of products of distances follows from sums over the pairs of points that
    both components order alike (Huo & Székely 2016, Chaudhuri & Hu 2019), taken here level by level of a binary tree
    over the order of x, in n log n operations, for all pairs of components and sets at once.

    Args:
        samples: (batch, component) or (set, batch, component).

    >>> x = torch.linspace(-1, 1, 101, dtype=torch.float64)
    >>> found = distance_correlation(torch.stack([x, 2 - 3 * x, x**2], dim=1))
    >>> found.correlation[0]
    tensor([1.0000, 1.0000, 0.4915], dtype=torch.float64)
    """
    given = as_stack(samples)
    component = given.values.shape[1]
    state = Dcor().prepare(given, None)
    order = torch.arange(given.values.shape[-1], device=given.values.device).expand(1, component, -1)
    sums = _pair_sums(state, order)
    own = _own_sums(state.ascending, state.rows)
    first, second = pairs(component, given.values.device)
    matrices = []
    for corrected in (False, True):
        spread = _spread(own, corrected)
        squares = _ratio(_covariance(sums, corrected)[:, 0], spread[:, first] * spread[:, second])
        matrices.append(from_pairs(squares, component, 0.0) + torch.diag_embed((spread > 0).double()))
    return DistanceCorrelation(given.back(matrices[0].clamp(0, 1).sqrt()), given.back(matrices[1]))


@dataclass(frozen=True)
class Dcor:
    r"""Distance correlation of pairs, and of all components together, as a statistic for ``independence_test``.

    The joint statistic is that of Matteson & Tsay 2017, zero in the limit exactly if all components are mutually
    independent: each component against all that come after it,

    .. math:: \Bigl( \frac{1}{d-1} \sum_{k<d} \mathbb{E}_u\, R^2(x_k, \textstyle\sum_{j>k} u_j x_j) \Bigr)^{1/2}

    with u uniform on the sphere, so that several components become one (Huang & Huo 2017), components scaled to the
    same distance variance, and the mean taken over a fixed number of directions. Of two components it is their
    distance correlation. An order of n points costs d · directions · n log n operations.

    >>> from unseam.independence import independence_test
    >>> x = torch.linspace(-1, 1, 64)
    >>> generator = torch.Generator().manual_seed(0)
    >>> independence_test(torch.stack([x, x**2], 1), method=Dcor(), generator=generator).p_value  # 1/200
    tensor(0.0050)
    """

    directions: int = 8
    """Directions u, for three and more components."""

    def __post_init__(self) -> None:
        check_count("directions", self.directions)

    def prepare(self, samples: Samples, generator: torch.Generator | None) -> DcorState:
        """What does not depend on the order of the points: scaled samples, their orders, distances, directions."""
        # A value of its own as the origin: a constant component becomes exactly zero.
        values = samples.values - samples.values.median(-1, keepdim=True).values
        # In units of their range first, so that squares neither overflow nor vanish.
        values = values / _or_one(values.abs().amax(-1, keepdim=True))
        ascending = values.sort(-1).values
        rows = _rows(ascending)
        spread = _spread(_own_sums(ascending, rows), False)
        scale = _or_one(spread)[..., None]
        ranks = values.argsort(-1).argsort(-1)
        component = values.shape[1]
        directions = torch.zeros(self.directions, component, component, dtype=torch.float64)
        if generator is not None:
            directions.normal_(generator=generator)
        directions = directions.triu(1)
        directions = directions / _or_one(directions.norm(dim=-1, keepdim=True))
        return DcorState(values / scale, ranks, ascending / scale, rows / scale, directions.to(values.device))

    def measure(self, state: DcorState, order: Tensor) -> Measured:
        """The statistics of the points in the given orders (order, component, batch)."""
        component = order.shape[1]
        own = _spread(_own_sums(state.ascending, state.rows), False)
        first, second = pairs(component, order.device)
        squares = _ratio(
            _covariance(_pair_sums(state, order), False), (own[:, first] * own[:, second])[:, None]
        )
        joint = squares[..., -1]
        if component > 2:
            joint = (joint + self._several(state, order, own).sum(-1)) / (component - 1)
        return Measured(joint.clamp(min=0.0).sqrt(), squares.clamp(min=0.0).sqrt())

    def _several(self, state: DcorState, order: Tensor, own: Tensor) -> Tensor:
        """R² (set, order, component) of each component against all after it, where these are more than one."""
        several = order.shape[1] - 2
        values = in_order(state.values, order)
        # (set, order, component, direction, batch)
        mixed = torch.einsum("kcj,sojb->sockb", state.directions[:, :several], values)
        ascending, place = mixed.sort(-1)
        rows = _rows(ascending)
        spread = _spread(_own_sums(ascending, rows), False)
        ranks = in_order(state.ranks, order)[:, :, :several, None].expand_as(mixed)
        position = ranks.gather(-1, place)
        sums = _sums(
            position,
            state.ascending[:, None, :several, None].expand_as(mixed),
            state.rows[:, None, :several, None].expand_as(mixed),
            ascending,
            rows,
        )
        return _ratio(_covariance(sums, False), own[:, None, :several, None] * spread).mean(-1)

    def numbers(self, component: int, batch: int) -> int:
        """Numbers that one order of one set needs in memory."""
        lines = max(min(PAIRS, component * (component - 1) // 2), (component - 2) * self.directions)
        return 16 * lines * batch


class DcorState(NamedTuple):
    """What of a set of samples does not depend on the order of its points."""

    values: Tensor
    """Samples of mean 0 and distance variance 1 (set, component, batch)."""
    ranks: Tensor
    """Their ranks."""
    ascending: Tensor
    """The same values in ascending order."""
    rows: Tensor
    """Sum of the distances of each value, in ascending order, to all others."""
    directions: Tensor
    """(direction, component, component), zero up to the diagonal, rows of unit length."""


class Sums(NamedTuple):
    """What a distance covariance is made of, a and b the distances of two components."""

    products: Tensor
    """Σ a_ij b_ij."""
    rows: Tensor
    """Σ a_i. b_i."""
    totals: Tensor
    """a.. b.."""
    batch: int
    """Number of points."""


def _covariance(sums: Sums, corrected: bool) -> Tensor:
    """Distance covariance V², or its U-statistic; 0 where only rounding is left of it."""
    n = sums.batch
    if corrected:
        norm = n * (n - 3)
        value = sums.products - 2 / (n - 2) * sums.rows + sums.totals / ((n - 1) * (n - 2))
    else:
        norm = n**2
        value = sums.products - 2 / n * sums.rows + sums.totals / n**2
    rounding = 16 * n * torch.finfo(value.dtype).eps * sums.products
    return torch.where(value.abs() > rounding, value, 0.0) / norm


def _spread(own: Sums, corrected: bool) -> Tensor:
    """Root of the distance variance."""
    return _covariance(own, corrected).clamp(min=0.0).sqrt()


def _own_sums(ascending: Tensor, rows: Tensor) -> Sums:
    """Sums of components (..., batch) with themselves: Σ (x_i − x_j)² needs no distances."""
    n = ascending.shape[-1]
    centred = ascending - ascending.mean(-1, keepdim=True)
    return Sums(2 * n * centred.square().sum(-1), rows.square().sum(-1), rows.sum(-1).square(), n)


def _pair_sums(state: DcorState, order: Tensor) -> Sums:
    """Sums of all pairs of components (set, order, pair), points in the given orders."""
    ranks = in_order(state.ranks, order)
    point = torch.arange(ranks.shape[-1], device=order.device).expand_as(ranks)
    place = torch.empty_like(ranks).scatter_(-1, ranks, point)
    every = pairs(order.shape[1], order.device)
    found = []
    for first, second in zip(*(part.split(PAIRS) for part in every), strict=True):
        position = ranks[:, :, first].gather(-1, place[:, :, second])
        shape = position.shape
        found.append(
            _sums(
                position,
                state.ascending[:, None, first].expand(shape),
                state.rows[:, None, first].expand(shape),
                state.ascending[:, None, second].expand(shape),
                state.rows[:, None, second].expand(shape),
            )
        )
    return Sums(
        torch.cat([part.products for part in found], -1),
        torch.cat([part.rows for part in found], -1),
        torch.cat([part.totals for part in found], -1),
        found[0].batch,
    )


def _sums(position: Tensor, x: Tensor, x_rows: Tensor, y: Tensor, y_rows: Tensor) -> Sums:
    """Sums of x and y, each in its own ascending order; ``position`` is the place in x of each point of y."""
    n = position.shape[-1]
    paired = x.gather(-1, position)
    # Pairs of points contribute (x_i − x_j)(y_i − y_j), with sign: all of them, and those that x and y order alike.
    every = n * (paired * y).sum(-1) - x.sum(-1) * y.sum(-1)
    alike = _concordant_sum(position, x, y)
    rows = (x_rows.gather(-1, position) * y_rows).sum(-1)
    return Sums(2 * (2 * alike - every), rows, x_rows.sum(-1) * y_rows.sum(-1), n)


def _concordant_sum(position: Tensor, x: Tensor, y: Tensor) -> Tensor:
    r"""Σ (x_i − x_j)(y_i − y_j) over pairs of points (..., batch) that x and y order alike.

    Points stand in the order of y; ``position`` is their place in the order of x. On each level of a binary tree over
    the order of x, a node's points are split into the lower and the upper half of x; every upper point makes alike
    pairs with the lower ones before it.
    """
    lead, n = position.shape[:-1], position.shape[-1]
    levels = (n - 1).bit_length()
    size = 2**levels
    # Points at the origin, last in x and y, fill up the tree; each makes alike pairs with all others.
    beyond = torch.arange(n, size, device=position.device).expand(*lead, size - n)
    position = torch.cat([position, beyond], -1)
    x = torch.nn.functional.pad(x, (0, size - n)).gather(-1, position)
    y = torch.nn.functional.pad(y, (0, size - n))
    total = -(size - n) * (x * y).sum(-1)
    index = torch.arange(size, device=position.device)
    for level in reversed(range(levels)):
        half = 2**level
        nodes = (*lead, size // (2 * half), 2 * half)
        place = index % (2 * half) + 1
        is_upper = (position >> level) & 1
        upper_so_far = is_upper.view(nodes).cumsum(-1).flatten(-2)
        upper = is_upper.to(y.dtype)
        upper_x, upper_y = x * upper, y * upper
        lower_x, lower_y = ((x - upper_x).view(nodes).cumsum(-1), (y - upper_y).view(nodes).cumsum(-1))
        # Alike pairs of each point: lower ones before an upper one, upper ones after a lower one.
        count = upper * (place - half).to(y.dtype) + (half - upper_so_far).to(y.dtype)
        total += (x * y * count - upper_x * lower_y.flatten(-2) - upper_y * lower_x.flatten(-2)).sum(-1)
        target = (index - upper_so_far) + is_upper * ((half - place) + 2 * upper_so_far)
        position, x, y = (torch.empty_like(part).scatter_(-1, target, part) for part in (position, x, y))
    return total


def _rows(ascending: Tensor) -> Tensor:
    """Σ_j |x_i − x_j| for each x_i of values in ascending order."""
    n = ascending.shape[-1]
    before = torch.arange(n, device=ascending.device)
    sums = ascending.cumsum(-1)
    return (2 * before + 2 - n) * ascending + sums[..., -1:] - 2 * sums


def _ratio(top: Tensor, bottom: Tensor) -> Tensor:
    """A quotient that is 0 where a component is constant."""
    return torch.where(bottom > 0, top / _or_one(bottom), 0.0)


def _or_one(value: Tensor) -> Tensor:
    return torch.where(value > 0, value, 1.0)
