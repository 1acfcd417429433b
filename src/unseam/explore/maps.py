"""The map: codes of items in the plane of two latents, or the items in the plane of two factors."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam.charts import significant, tint
from unseam.explore.exhibit import Exhibit
from unseam.explore.rotation import rotation_matrix
from unseam.explore.state import State, displayed_point, model_point
from unseam.explore.walking import Walk
from unseam.inspection import words

__all__ = [
    "RAMP",
    "Map",
    "Place",
    "curve_of",
    "ellipse_items",
    "find_place",
    "item_notes",
    "latent_name",
    "map_of",
    "marker_of",
]

RAMP = 20
"""Steps of the colours that a page interpolates: a multiple of the colours between which :func:`tint` does."""

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
    cyclic: bool
    """Whether the colours go once round."""
    notes: list[str]
    """What is said of each point; nothing where it stands for several items."""
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
    """What the colour stands for."""
    marker: tuple[float, float] | None
    """Where the current point is."""

    def data(self) -> dict[str, Any]:
        """What ``plane.js`` draws, as JSON values."""
        spread = [[one[0][0], one[0][1], one[1][1]] for one in self.ellipses.tolist()]
        return {
            "points": _rounded(self.points),
            "tints": _rounded(self.tints),
            "ramp": [tint(k / RAMP, cyclic=self.cyclic) for k in range(RAMP + 1)],
            "notes": self.notes,
            "ellipses": [[*centre, one] for centre, one in zip(_rounded(self.centres), spread, strict=True)],
            "frame": self.frame,
            "ends": self.ends,
            "labels": self.labels,
            "cross": self.ends == self.frame,  # latents have an origin
        }


def map_of(exhibit: Exhibit, state: State) -> Map:
    """The map of a state.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.state import first_state
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> found = map_of(exhibit, first_state(exhibit))
    >>> found.labels, found.marker, found.frame
    (('z0', 'z1'), (0.0, 0.0), (-3.0, 3.0, -3.0, 3.0))
    """
    codes = exhibit.codes(state.member)
    tints, legend, cyclic = _tints(exhibit, state)
    if state.space == "factors":
        return _factor_map(exhibit, state, tints, legend, cyclic)
    pair = list(state.plane)
    matrix = rotation_matrix(len(state.z), state.rotation)
    mean = codes.mean @ matrix.mT
    chosen = ellipse_items(len(mean))
    limit = codes.limit
    return Map(
        points=mean[:, pair],
        tints=tints,
        cyclic=cyclic,
        notes=item_notes(exhibit) if len(mean) else [],
        ellipses=(matrix @ codes.covariance[chosen] @ matrix.mT)[:, pair][:, :, pair],
        centres=mean[chosen][:, pair],
        frame=(-limit, limit, -limit, limit),
        ends=(-limit, limit, -limit, limit),
        labels=(latent_name(pair[0], state), latent_name(pair[1], state)),
        legend=legend,
        marker=marker_of(exhibit, state),
    )


def marker_of(exhibit: Exhibit, state: State) -> tuple[float, float] | None:
    """Where the current point is on the map; in the plane of factors, the item that was chosen.

    >>> from unseam.explore import exhibit_decoder
    >>> marker_of(exhibit_decoder(lambda z: 2 * z, latent=2), State(0, (1.0, 2.0), plane=(1, 0)))
    (2.0, 1.0)
    """
    first, second = state.plane
    if state.space == "latents":
        here = displayed_point(state)
        return here[first], here[second]
    if state.item is None:
        return None
    found = exhibit.item_factors(state.item)
    return found[first], found[second]


def curve_of(state: State, walk: Walk | None) -> list[tuple[float, float]]:
    """Points of a traced curve on the map of latents; none without one, and none in the plane of factors."""
    if walk is None or state.space != "latents":
        return []
    nodes = walk.nodes @ rotation_matrix(len(state.z), state.rotation).mT
    return [(x, y) for x, y in _rounded(nodes[:, list(state.plane)])]


def latent_name(latent: int, state: State | None = None) -> str:
    """What a latent is called on the page, counted from 0; primed where the axes are rotated away from it.

    >>> latent_name(0)
    'z0'
    """
    rotated = state is not None and state.rotation.degrees != 0 and latent in state.rotation[:2]
    return words.latent_name(latent) + "′" * rotated


def item_notes(exhibit: Exhibit) -> list[str]:
    """For each item that is shown its number and its factors, in words."""

    def write() -> list[str]:
        named = exhibit.factor_names
        rows = zip(exhibit.index.tolist(), exhibit.factors.tolist(), strict=True)
        return [
            ", ".join(
                [
                    f"item {k}",
                    *(f"{name} {significant(value)}" for name, value in zip(named, row, strict=True)),
                ]
            )
            for k, row in rows
        ]

    return exhibit.once("notes", write)


def ellipse_items(count: int) -> Tensor:
    """Places of the items, out of so many, whose posteriors are drawn."""
    return torch.arange(0, count, max(1, count // _ELLIPSES))[:_ELLIPSES]


def find_place(exhibit: Exhibit, state: State, x: float, y: float) -> Place:
    """Where a point of the map leads.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.state import first_state
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> find_place(exhibit, first_state(exhibit), 1.0, 2.0)
    Place(z=(1.0, 2.0), item=None)
    """
    found = map_of(exhibit, state)
    left, right, low, high = found.frame
    x, y = min(max(x, left), right), min(max(y, low), high)
    first, second = state.plane
    if state.space == "latents":
        values = list(displayed_point(state))
        values[first], values[second] = x, y
        return Place(model_point(state, tuple(values)), None)
    if exhibit.grid:
        start = state.item if state.item is not None else len(exhibit.index) and int(exhibit.index[0])
        factors = [round(value) for value in exhibit.item_factors(int(start))]
        sizes = exhibit.grid
        factors[first], factors[second] = (
            min(max(round(value), 0), sizes[axis] - 1) for value, axis in ((x, first), (y, second))
        )
        return Place(None, exhibit.item_at(factors))
    away = exhibit.factors[:, [first, second]].double() - torch.tensor([x, y], dtype=torch.float64)
    near = (away / torch.tensor([right - left, high - low])).square().sum(1).argmin()
    return Place(None, int(exhibit.index[near]))


def _tints(exhibit: Exhibit, state: State) -> tuple[Tensor, str, bool]:
    """Colours of the items from 0 to 1, what they stand for, and whether they go once round."""
    codes, names = exhibit.codes(state.member), exhibit.factor_names
    if state.colour < len(names) and len(codes.mean) and exhibit.world is not None:
        values, legend = exhibit.factors[:, state.colour].double(), names[state.colour]
        if exhibit.cyclic[state.colour]:
            return values / exhibit.world.factor_sizes[state.colour], legend, True
    else:
        latent = min(max(state.colour - len(names), 0), len(state.z) - 1)
        values = (codes.mean @ rotation_matrix(len(state.z), state.rotation).mT)[:, latent]
        legend = latent_name(latent, state)
    if len(values):
        values = (values - values.min()) / (values.max() - values.min()).clamp(min=1e-12)
    return values, legend, False


def _factor_map(exhibit: Exhibit, state: State, tints: Tensor, legend: str, cyclic: bool) -> Map:
    pair = list(state.plane)
    places = exhibit.factors[:, pair].double()
    low, high = places.amin(0), places.amax(0)
    margin = (high - low).clamp(min=1e-6) * 0.06
    # items that differ in other factors alone coincide: their mean is shown, of a cyclic colour that on the circle
    points, where = places.unique(dim=0, return_inverse=True)
    angle = 2 * torch.pi * tints.double() if cyclic else None
    parts = [tints.double()] if angle is None else [angle.sin(), angle.cos()]
    sums = [torch.zeros(len(points), dtype=torch.float64).index_add(0, where, part) for part in parts]
    if cyclic:
        mean = torch.atan2(*sums).remainder(2 * torch.pi) / (2 * torch.pi)
    else:
        mean = sums[0] / where.bincount(minlength=len(points))
    none = torch.zeros(0, 2, dtype=torch.float64)
    return Map(
        points=points,
        tints=mean,
        cyclic=cyclic,
        notes=[],
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


def _rounded(values: Tensor) -> list[Any]:
    """As lists, to what a screen can show."""
    return (values.double() * 1e4).round().div(1e4).tolist()
