"""Whether samples could come from independent components: permutation tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from unseam.independence._samples import Measured, Samples, as_stack, from_pairs, pairs
from unseam.independence.distance_correlation import Dcor
from unseam.independence.hsic import Hsic
from unseam.independence.total_correlation import NeighbourTc
from unseam.inputs import Array, check_count, check_generator

__all__ = ["IndependenceTest", "Statistic", "TestSettings", "independence_test"]

METHODS: dict[str, Statistic] = {"hsic": Hsic(), "dcor": Dcor(), "tc": NeighbourTc()}
# Numbers in memory at once: more are no faster, a processor's caches are full and a GPU is busy.
AT_ONCE = {"cpu": 2**22, "cuda": 2**28}

# Statistics that differ by less, relative to the greatest, may differ by rounding alone.
SLACK = torch.finfo(torch.float64).eps ** 0.5


class Statistic(Protocol):
    """A statistic that grows with dependence, computed for many orders of the points at once."""

    def prepare(self, samples: Samples, generator: torch.Generator) -> Any:
        """What does not depend on the order of the points."""

    def measure(self, state: Any, order: Tensor) -> Measured:
        """The statistics of the points in the given orders (order, component, batch)."""

    def numbers(self, component: int, batch: int) -> int:
        """Numbers that one order of one set needs in memory."""


@dataclass(frozen=True)
class TestSettings:
    """What a test was made with."""

    __test__ = False  # no test of this package's own

    statistic: Statistic
    """The statistic with its parameters."""
    permutations: int
    """Random orders B."""
    points: int
    """Points that were used."""


class IndependenceTest(NamedTuple):
    """Statistics and p-values of a test of independence."""

    statistic: Tensor
    """Of all components together, () or (set,)."""
    p_value: Tensor
    """Of mutual independence of all components, () or (set,), by the joint statistic and the pairs'."""
    joint_p_value: Tensor
    """Of mutual independence by the joint statistic alone."""
    pairwise: Tensor
    """Statistic of every pair (..., component, component); 0 on the diagonal."""
    pairwise_p_value: Tensor
    """Of independence of each pair, by itself; 1 on the diagonal."""
    pairwise_adjusted: Tensor
    """The same, adjusted for the number of pairs."""
    settings: TestSettings
    """What the test was made with."""


def independence_test(
    samples: Array,
    *,
    method: str | Statistic = "hsic",
    generator: torch.Generator,
    permutations: int = 199,
    points: int | None = 5_000,
) -> IndependenceTest:
    r"""Permutation test of mutual and of pairwise independence of components.

    .. math:: p = \frac{1 + \#\{b : T_b \ge T\}}{1 + B}

    with T the statistic and T_b the same after the values of each component have been put into an order of their
    own, at random (Davison & Hinkley 1997, §4.3; Phipson & Smyth 2010). If components are independent, p ≤ α with
    probability ⌊α(B + 1)⌋/(B + 1) where T has no ties and less where it has, at any number of points and for any
    marginals, discrete ones too.

    A statistic of all components together sees dependence that no pair shows; a statistic of each pair sees one
    dependent pair among many. P-values of each by itself are given, and for pairs also adjusted ones (Westfall & Young
    1993, single-step maxT): each pair's statistic, standardised by its mean and deviation over orders, is compared
    with the greatest of all pairs. If all components are independent, the chance that any of them is at most α is at
    most α; if some are not, this holds approximately for the other pairs. ``p_value`` takes both together: its T is the
    smaller of the joint p-value and the least adjusted one, which is compared with what it is in random orders, so it
    is at most twice that. P-values of several sets are not adjusted for their number. All sets see the same orders, so
    a set gives the same result alone.

    Args:
        samples: (batch, component), or (set, batch, component) for several sets; rows are independent draws.
        method: "hsic" (:class:`Hsic`), "dcor" (:class:`Dcor`), "tc" (:class:`NeighbourTc`), or a statistic with
            parameters of your own.
        generator: draws one seed, from which all orders, frequencies and directions follow.
        permutations: random orders B.
        points: where there are more, so many are used, drawn without replacement; ``None`` uses all.

    Returns:
        Statistics and p-values. A constant component is independent of all others: statistic 0, p-value 1.

    >>> generator = torch.Generator().manual_seed(0)
    >>> angle = 6.283 * torch.rand(100, generator=generator)
    >>> circle = torch.stack([angle.cos(), angle.sin()], dim=1)  # uncorrelated, but not independent
    >>> independence_test(circle, generator=generator).p_value
    tensor(0.0050)
    """
    statistic = _statistic(method)
    check_count("permutations", permutations)
    if points is not None:
        check_count("points", points, 4)
    check_generator(generator)
    given = as_stack(samples)
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    given = _drawn(given, points, seed)
    sets, component, batch = given.values.shape
    device = given.values.device
    budget = AT_ONCE.get(device.type, AT_ONCE["cpu"]) // max(1, statistic.numbers(component, batch))
    parts = [
        _measure(statistic, given._replace(values=values), permutations, max(1, budget // len(values)), seed)
        for values in given.values.split(max(1, min(budget, sets)))
    ]
    found = Measured(torch.cat([part.joint for part in parts]), torch.cat([part.pairs for part in parts]))
    return _result(
        _without_constants(found, given.values), given, TestSettings(statistic, permutations, batch)
    )


def _result(found: Measured, given: Samples, settings: TestSettings) -> IndependenceTest:
    component = given.values.shape[1]
    standard = _standardise(found.pairs)
    greatest = standard.amax(-1)
    joint = _p_values(found.joint)
    return IndependenceTest(
        statistic=given.back(found.joint[:, 0]),
        p_value=given.back(_combined_p_value(joint, _p_values(greatest))),
        joint_p_value=given.back(joint[:, 0]),
        pairwise=given.back(from_pairs(found.pairs[:, 0], component, 0.0)),
        pairwise_p_value=given.back(from_pairs(_p_value(found.pairs), component, 1.0)),
        pairwise_adjusted=given.back(
            from_pairs(_p_value(greatest[..., None], standard[:, :1]), component, 1.0)
        ),
        settings=settings,
    )


def _statistic(method: str | Statistic) -> Statistic:
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)} or a statistic, got {method!r}")
    return METHODS[method]


def _drawn(given: Samples, points: int | None, seed: int) -> Samples:
    """At most so many points, at random without replacement, the same of all sets."""
    batch = given.values.shape[-1]
    if points is None or batch <= points:
        return given
    index = torch.randperm(batch, generator=_stream(seed, 0))[:points]
    return given._replace(values=given.values[..., index.to(given.values.device)])


def _measure(statistic: Statistic, given: Samples, permutations: int, at_once: int, seed: int) -> Measured:
    """The statistic of the points as they came, and in every random order: (set, 1 + B)."""
    state = statistic.prepare(given, _stream(seed, 1))
    found = [
        statistic.measure(state, order)
        for order in _orders(given.values, permutations, at_once, _stream(seed, 2))
    ]
    return Measured(
        torch.cat([part.joint for part in found], 1), torch.cat([part.pairs for part in found], 1)
    )


def _orders(values: Tensor, permutations: int, at_once: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Orders (order, component, batch), at most so many at a time: the given one, then random ones.

    The first component stays, since only the orders of the others relative to it matter.
    """
    _, component, batch = values.shape
    given = torch.arange(batch, device=values.device).expand(component, batch)
    for start in range(0, permutations + 1, at_once):
        stop = min(start + at_once, permutations + 1)
        # One draw for each order, so that they do not depend on how many fit into memory.
        keys = torch.stack(
            [
                torch.rand(component - 1, batch, generator=generator, dtype=torch.float64)
                for _ in range(stop - start)
            ]
        )
        drawn = keys.to(values.device).argsort(-1)
        orders = torch.cat([given[:1].expand(len(drawn), 1, batch), drawn], dim=1)
        yield torch.cat([given[None], orders[1:]]) if start == 0 else orders


def _stream(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed + number)


def _without_constants(found: Measured, values: Tensor) -> Measured:
    """Zero for pairs with a constant component, and for the whole where fewer than two components vary."""
    varies = values.amax(-1) > values.amin(-1)
    first, second = pairs(values.shape[1], values.device)
    both = varies[:, first] & varies[:, second]
    several = varies.sum(-1) >= 2
    return Measured(
        torch.where(several[:, None], found.joint, 0.0), torch.where(both[:, None], found.pairs, 0.0)
    )


def _p_value(found: Tensor, observed: Tensor | None = None) -> Tensor:
    """p (set, ...) of statistics (set, 1 + B, ...), whose first was observed unless others are given."""
    observed = found[:, :1] if observed is None else observed
    # Orders of discrete values often give the same statistic, but for rounding: these count as not less.
    slack = SLACK * found.abs().amax(1, keepdim=True)
    return (found >= observed - slack).double().mean(1)


def _p_values(found: Tensor) -> Tensor:
    """p (set, 1 + B) of every one of the statistics (set, 1 + B) among all of them."""
    ascending = found.sort(1).values
    slack = SLACK * found.abs().amax(1, keepdim=True)
    below = torch.searchsorted(ascending, found - slack)
    return (found.shape[1] - below).double() / found.shape[1]


def _combined_p_value(first: Tensor, second: Tensor) -> Tensor:
    """p (set,) of the smaller of two p-values (set, 1 + B) of every order; of equal ones, by their sum."""
    count = first.shape[1]
    # p-values are multiples of 1/(1 + B), and the sum adds less than half of that.
    smaller = torch.minimum(first, second) + (first + second) / (4 * count)
    return _p_value(-smaller)


def _standardise(found: Tensor) -> Tensor:
    """Statistics (set, 1 + B, ...) less their mean and over their deviation; 0 where they differ by rounding alone."""
    centred = found - found.mean(1, keepdim=True)
    deviation = centred.square().mean(1, keepdim=True).sqrt()
    differs = deviation > SLACK * found.abs().amax(1, keepdim=True)
    return torch.where(differs, centred / deviation, 0.0)
