"""The map: codes of items in the plane of two latents, or the items in the plane of two factors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.explore.exhibit import Exhibit
from unseam.explore.state import State, shown, unshown
from unseam.explore.turning import rotation

__all__ = ["SIDE", "Map", "Place", "clicked", "latent_name", "map_of", "marker_of"]

SIDE = 360
"""Width and height of a map in pixels, its margins included."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 10, 10, 36
_ELLIPSES = 36


class Place(NamedTuple):
    """Where a click leads: to a point, or to the item that is nearest."""

    z: tuple[float, ...] | None
    item: int | None


class Map(NamedTuple):
    """Points on a plane with their colours, and the plane's frame."""

    points: Tensor
    """(item, 2)."""
    tints: Tensor
    """(item,), from 0 to 1."""
    ellipses: Tensor
    """Covariances (ellipse, 2, 2) of the posteriors of some items; none in the plane of factors."""
    centres: Tensor
    """Their means (ellipse, 2)."""
    frame: tuple[float, float, float, float]
    """Lowest and highest x, lowest and highest y."""
    ends: tuple[float, float, float, float]
    """The values that are written at the axes' ends, in the order of the frame."""
    labels: tuple[str, str]
    legend: str
    """What the colour says."""
    marker: tuple[float, float] | None
    """Where the current point is."""

    def holds(self, x: float, y: float) -> bool:
        """Whether a point of the plane lies in its frame."""
        left, right, low, high = self.frame
        return left <= x <= right and low <= y <= high

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point of the plane."""
        left, right, low, high = self.frame
        across = (x - left) / (right - left) * (SIDE - _LEFT - _RIGHT)
        return _LEFT + across, SIDE - _BOTTOM - (y - low) / (high - low) * (SIDE - _TOP - _BOTTOM)

    def point(self, across: float, down: float) -> tuple[float, float]:
        """The point of the plane at given pixels, or the nearest inside its frame."""
        left, right, low, high = self.frame
        x = left + (across - _LEFT) / (SIDE - _LEFT - _RIGHT) * (right - left)
        y = low + (SIDE - _BOTTOM - down) / (SIDE - _TOP - _BOTTOM) * (high - low)
        return min(max(x, left), right), min(max(y, low), high)


def map_of(exhibit: Exhibit, state: State) -> Map:
    """The map of a state.

    >>> from unseam.charts import Look
    >>> from unseam.explore.state import first_state
    >>> from unseam.explore.subject import Subject
    >>> exhibit = Exhibit([Subject("mine", lambda z: 2 * z, 2)], Look((2,), -3.0, 3.0))
    >>> found = map_of(exhibit, first_state(exhibit))
    >>> found.labels, found.marker, found.point(*found.place(1.0, 2.0))
    (('z0', 'z1'), (0.0, 0.0), (1.0, 2.0))
    """
    codes = exhibit.codes(state.member)
    tints, legend = _tints(exhibit, state)
    if state.space == "factors":
        return _factor_map(exhibit, state, tints, legend)
    first, second = state.plane
    matrix = _matrix(state)
    mean = codes.mean @ matrix.mT
    pair = [first, second]
    chosen = torch.arange(0, len(mean), max(1, len(mean) // _ELLIPSES))[:_ELLIPSES]
    spread = (matrix @ codes.covariance[chosen] @ matrix.mT)[:, pair][:, :, pair]
    limit = codes.limit
    return Map(
        points=mean[:, pair],
        tints=tints,
        ellipses=spread,
        centres=mean[chosen][:, pair],
        frame=(-limit, limit, -limit, limit),
        ends=(-limit, limit, -limit, limit),
        labels=(latent_name(first, state), latent_name(second, state)),
        legend=legend,
        marker=marker_of(exhibit, state),
    )


def marker_of(exhibit: Exhibit, state: State) -> tuple[float, float] | None:
    """Where the present point is on the map; in the plane of factors, the item that was chosen.

    >>> from unseam.explore.state import State
    >>> from unseam.explore import exhibit_decoder
    >>> marker_of(exhibit_decoder(lambda z: 2 * z, latent=2), State(0, (1.0, 2.0), plane=(1, 0)))
    (2.0, 1.0)
    """
    first, second = state.plane
    if state.space == "latents":
        here = shown(state)
        return here[first], here[second]
    if state.item is None:
        return None
    found = exhibit.item_factors(state.item)
    return found[first], found[second]


def latent_name(latent: int, state: State | None = None) -> str:
    """What a latent is called on the page, counted from 0; primed where the axes are turned away from it.

    >>> latent_name(0)
    'z0'
    """
    turned = state is not None and state.turn.degrees != 0 and latent in (state.turn.first, state.turn.second)
    return f"z{latent}{'′' if turned else ''}"


def clicked(exhibit: Exhibit, state: State, across: float, down: float) -> Place:
    """Where a click on the map leads.

    >>> from unseam.charts import Look
    >>> from unseam.explore.state import first_state
    >>> from unseam.explore.subject import Subject
    >>> exhibit = Exhibit([Subject("mine", lambda z: 2 * z, 2)], Look((2,), -3.0, 3.0))
    >>> state = first_state(exhibit)
    >>> clicked(exhibit, state, *map_of(exhibit, state).place(1.0, 2.0))
    Place(z=(1.0, 2.0), item=None)
    """
    found = map_of(exhibit, state)
    x, y = found.point(across, down)
    first, second = state.plane
    if state.space == "latents":
        values = list(shown(state))
        values[first], values[second] = x, y
        return Place(unshown(state, tuple(values)), None)
    sizes = exhibit.grid
    if sizes:
        start = state.item if state.item is not None else len(exhibit.index) and int(exhibit.index[0])
        factors = [round(value) for value in exhibit.item_factors(int(start))]
        factors[first], factors[second] = round(x), round(y)
        return Place(None, exhibit.item_at(factors))
    left, right, low, high = found.frame
    away = exhibit.factors[:, [first, second]].double() - torch.tensor([x, y], dtype=torch.float64)
    near = (away / torch.tensor([right - left, high - low])).square().sum(1).argmin()
    return Place(None, int(exhibit.index[near]))


def _matrix(state: State) -> Tensor:
    latent = len(state.z)
    if latent < 2 or state.turn.degrees == 0:
        return torch.eye(latent, dtype=torch.float64)
    return rotation(latent, state.turn)


def _tints(exhibit: Exhibit, state: State) -> tuple[Tensor, str]:
    """Colours of the items from 0 to 1, and what they stand for."""
    codes, names = exhibit.codes(state.member), exhibit.factor_names
    if state.colour < len(names) and len(codes.mean):
        values = exhibit.factors[:, state.colour].double()
        return _unit(values), names[state.colour]
    latent = min(max(state.colour - len(names), 0), len(state.z) - 1)
    values = (codes.mean @ _matrix(state).mT)[:, latent]
    return _unit(values), latent_name(latent, state)


def _unit(values: Tensor) -> Tensor:
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low).clamp(min=1e-12)


def _factor_map(exhibit: Exhibit, state: State, tints: Tensor, legend: str) -> Map:
    pair = list(state.plane)
    places = exhibit.factors[:, pair].double()
    low, high = places.amin(0), places.amax(0)
    margin = (high - low).clamp(min=1e-6) * 0.06
    # items that differ in other factors alone lie on one another: their mean is shown
    points, where = places.unique(dim=0, return_inverse=True)
    total = torch.zeros(len(points), dtype=torch.float64).index_add(0, where, tints.double())
    none = torch.zeros(0, 2, dtype=torch.float64)
    return Map(
        points=points,
        tints=total / where.bincount(minlength=len(points)),
        ellipses=none[:, :, None] * none[:, None],
        centres=none,
        frame=_corners(low - margin, high + margin),
        ends=_corners(low, high),
        labels=(exhibit.factor_names[pair[0]], exhibit.factor_names[pair[1]]),
        legend=legend,
        marker=marker_of(exhibit, state),
    )


def _corners(low: Tensor, high: Tensor) -> tuple[float, float, float, float]:
    return float(low[0]), float(high[0]), float(low[1]), float(high[1])
