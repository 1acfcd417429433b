"""Total correlation of samples: how many nats all components share, Gaussian or by nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.geometry import hadamard_gap
from unseam.independence._samples import Measured, Samples, as_stack, centred, in_order, pairs, random_ranks
from unseam.inputs import Array, check_count

__all__ = ["GaussianTc", "NeighbourTc", "gaussian_total_correlation", "neighbour_total_correlation"]


def gaussian_total_correlation(samples: Array) -> Tensor:
    r"""Total correlation of the Gaussian with the samples' covariance Σ.

    .. math:: \mathrm{TC} = \frac{1}{2} \Bigl( \sum_i \log \Sigma_{ii} - \log \det \Sigma \Bigr)

    (Watanabe 1960). For Gaussian samples this is the total correlation, with a bias of about d(d − 1)/(4n); for others
    it sees correlations and nothing else, so it may be smaller or larger. It is the Hadamard gap of the centred
    samples' columns and bounded as that is where components are linearly dependent. Unchanged by the scale of each
    component, whatever it is.

    Args:
        samples: (batch, component) or (set, batch, component).

    Returns:
        Total correlation (...) in nats; a constant component adds nothing.

    >>> x = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    >>> gaussian_total_correlation(x)
    tensor(0.)
    """
    given = as_stack(samples)
    return given.back(hadamard_gap(_gram(centred(given.values))))


def neighbour_total_correlation(samples: Array, *, generator: torch.Generator, neighbours: int = 3) -> Tensor:
    r"""Total correlation of continuous or discrete samples by distances to nearest neighbours.

    .. math:: \mathrm{TC} = \psi(k) + (d - 1)\, \psi(n)
              - \frac{1}{n} \sum_a \sum_i \psi(n_{ai} + 1)

    the multi-information of Kraskov, Stögbauer & Grassberger 2004 (the estimator I⁽¹⁾, Eqs. 8 and 23): n_ai is the
    number of points closer to point a in component i than its k-th neighbour is in the maximum norm. Every component is
    first replaced by its normal scores Φ⁻¹((rank + ½)/n), which leaves the total correlation as it is and the estimate
    unchanged by strictly increasing maps. Equal values are ranked at random, which leaves the total correlation of
    discrete components as it is too. It is bounded by about log(n) for each component after the first, and too small
    where components nearly determine each other.

    Args:
        samples: (batch, component) or (set, batch, component).
        generator: ranks equal values.
        neighbours: k, which trades variance (small k) for bias (large k).

    Returns:
        Total correlation (...) in nats; may be negative.

    >>> x = torch.linspace(-1, 1, 401, dtype=torch.float64)
    >>> round(float(neighbour_total_correlation(torch.stack([x, x**3], dim=1), generator=torch.Generator())), 1)
    5.1
    """
    given = as_stack(samples)
    statistic = NeighbourTc(neighbours)
    scores = statistic.prepare(given, generator).scores
    found = _multi_information(scores.swapaxes(-1, -2), neighbours)
    return given.back(torch.tensor(found, device=given.values.device))


@dataclass(frozen=True)
class NeighbourTc:
    """Total correlation by nearest neighbours as a statistic for ``independence_test``: the one named "tc".

    See :func:`neighbour_total_correlation`; more neighbours than an estimate would take make a test more powerful.
    Neighbours are found on the host, order by order.

    >>> from unseam.independence import independence_test
    >>> x = torch.linspace(-1, 1, 64)
    >>> generator = torch.Generator().manual_seed(0)
    >>> independence_test(torch.stack([x, x**2], 1), method=NeighbourTc(5), generator=generator).p_value  # 1/200
    tensor(0.0050)
    """

    neighbours: int = 10
    """k."""

    def __post_init__(self) -> None:
        check_count("neighbours", self.neighbours)

    def prepare(self, samples: Samples, generator: torch.Generator) -> NeighbourState:
        """Normal scores of the samples."""
        batch = samples.values.shape[-1]
        if self.neighbours >= batch:
            raise ValueError(
                f"neighbours must be fewer than the points, got {self.neighbours} neighbours of {batch} points"
            )
        ranks = random_ranks(samples.values, generator)
        scores = torch.special.ndtri((ranks.double() + 0.5) / batch)
        return NeighbourState(scores.cpu().numpy())

    def measure(self, state: NeighbourState, order: Tensor) -> Measured:
        """The statistics of the points in the given orders (order, component, batch)."""
        orders = order.cpu().numpy()
        component = orders.shape[1]
        # (set, order, batch, component)
        points = np.take_along_axis(state.scores[:, None], orders[None], -1).swapaxes(-1, -2)
        found = [
            _multi_information(points[..., couple], self.neighbours)
            for couple in pairs(component, torch.device("cpu")).numpy().T
        ]
        joint = found[0] if component == 2 else _multi_information(points, self.neighbours)
        return Measured(
            torch.tensor(joint, device=order.device), torch.tensor(np.stack(found, -1), device=order.device)
        )

    def numbers(self, component: int, batch: int) -> int:
        """Numbers that one order of one set needs in memory."""
        return 6 * component * batch


@dataclass(frozen=True)
class GaussianTc:
    """Gaussian total correlation as a statistic for ``independence_test``: powerful for correlations, blind to others.

    >>> from unseam.independence import independence_test
    >>> x = torch.linspace(-1, 1, 64)
    >>> generator = torch.Generator().manual_seed(0)
    >>> independence_test(torch.stack([x, x**3], 1), method=GaussianTc(), generator=generator).p_value  # 1/200
    tensor(0.0050)
    """

    def prepare(self, samples: Samples, generator: torch.Generator) -> Tensor:
        """Samples of mean 0, components of like size."""
        return centred(samples.values)

    def measure(self, state: Tensor, order: Tensor) -> Measured:
        """The statistics of the points in the given orders (order, component, batch)."""
        values = in_order(state, order)
        covariance = _gram(values - values.mean(-1, keepdim=True))
        couples = pairs(order.shape[1], order.device).T
        each = covariance[..., couples[:, :, None], couples[:, None, :]]
        return Measured(hadamard_gap(covariance), hadamard_gap(each))

    def numbers(self, component: int, batch: int) -> int:
        """Numbers that one order of one set needs in memory."""
        return 2 * component * batch + 8 * component**2


class NeighbourState(NamedTuple):
    """What of a set of samples does not depend on the order of its points."""

    scores: NDArray[np.float64]
    """Normal scores (set, component, batch), on the host."""


def _gram(values: Tensor) -> Tensor:
    """Covariance matrices (..., component, component) of values (..., component, batch) of mean 0."""
    return values @ values.mT / values.shape[-1]


def _multi_information(points: NDArray[np.float64], neighbours: int) -> NDArray[np.float64]:
    """Kraskov's I⁽¹⁾ (...) of normal scores (..., batch, component)."""
    from scipy.spatial import cKDTree
    from scipy.special import digamma

    batch, component = points.shape[-2:]
    reach = np.empty((*points.shape[:-1], 1))
    for place in np.ndindex(*points.shape[:-2]):
        # The point itself is its first neighbour.
        reach[place] = cKDTree(points[place]).query(points[place], k=[neighbours + 1], p=np.inf)[0]
    # A hair less, so that the neighbour at just this distance does not count, whatever the rounding.
    reach *= 1 - 1e-12
    scores = np.sort(points[(0,) * (points.ndim - 2)][:, 0])  # the same of all components
    inside = np.searchsorted(scores, points + reach, "right") - np.searchsorted(scores, points - reach)
    # The point itself is inside, so this is n + 1.
    mean = digamma(np.arange(batch + 1))[inside].sum(-1).mean(-1)
    return digamma(neighbours) + (component - 1) * digamma(batch) - mean
