"""The map: codes of items in the plane of two latents, or the items in the plane of two factors."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.charts import Canvas, significant, tint
from unseam.explore.exhibit import Exhibit
from unseam.explore.rotation import rotation_matrix
from unseam.explore.state import State, displayed_point, model_point

__all__ = [
    "SIDE",
    "Map",
    "Place",
    "find_place",
    "latent_name",
    "map_of",
    "marker_of",
]

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
    """What the colour stands for."""
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

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.state import first_state
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> found = map_of(exhibit, first_state(exhibit))
    >>> found.labels, found.marker, found.point(*found.place(1.0, 2.0))
    (('z0', 'z1'), (0.0, 0.0), (1.0, 2.0))
    """
    codes = exhibit.codes(state.member)
    tints, legend = _tints(exhibit, state)
    if state.space == "factors":
        return _factor_map(exhibit, state, tints, legend)
    pair = list(state.plane)
    matrix = rotation_matrix(len(state.z), state.rotation)
    mean = codes.mean @ matrix.mT
    chosen = torch.arange(0, len(mean), max(1, len(mean) // _ELLIPSES))[:_ELLIPSES]
    limit = codes.limit
    return Map(
        points=mean[:, pair],
        tints=tints,
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


def latent_name(latent: int, state: State | None = None) -> str:
    """What a latent is called on the page, counted from 0; primed where the axes are rotated away from it.

    >>> latent_name(0)
    'z0'
    """
    rotated = state is not None and state.rotation.degrees != 0 and latent in state.rotation[:2]
    return f"z{latent}{'′' if rotated else ''}"


def find_place(exhibit: Exhibit, state: State, across: float, down: float) -> Place:
    """Where a click on the map, at given pixels, leads.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.state import first_state
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> state = first_state(exhibit)
    >>> find_place(exhibit, state, *map_of(exhibit, state).place(1.0, 2.0))
    Place(z=(1.0, 2.0), item=None)
    """
    found = map_of(exhibit, state)
    x, y = found.point(across, down)
    first, second = state.plane
    if state.space == "latents":
        values = list(displayed_point(state))
        values[first], values[second] = x, y
        return Place(model_point(state, tuple(values)), None)
    if exhibit.grid:
        start = state.item if state.item is not None else len(exhibit.index) and int(exhibit.index[0])
        factors = [round(value) for value in exhibit.item_factors(int(start))]
        factors[first], factors[second] = round(x), round(y)
        return Place(None, exhibit.item_at(factors))
    left, right, low, high = found.frame
    away = exhibit.factors[:, [first, second]].double() - torch.tensor([x, y], dtype=torch.float64)
    near = (away / torch.tensor([right - left, high - low])).square().sum(1).argmin()
    return Place(None, int(exhibit.index[near]))


def map_svg(found: Map) -> str:
    """SVG marks of a map: axes, posterior ellipses, and a dot for each item."""
    canvas = Canvas(SIDE, SIDE)
    left, right, low, high = found.frame
    (x0, y0), (x1, y1) = found.place(left, low), found.place(right, high)
    canvas.add("rect", x=x0, y=y1, width=x1 - x0, height=y0 - y1, cls="plane")
    if found.ends == found.frame:  # latents have an origin
        across, down = found.place(0.0, 0.0)
        canvas.line(x0, down, x1, down, "grid")
        canvas.line(across, y1, across, y0, "grid")
    for centre, spread in zip(found.centres, found.ellipses, strict=True):
        if found.holds(*centre.tolist()):
            _draw_ellipse(canvas, found, centre, spread)
    for (x, y), value in zip(found.points.tolist(), found.tints.tolist(), strict=True):
        if found.holds(x, y):
            across, down = found.place(x, y)
            canvas.add("circle", cx=across, cy=down, r=2.6, fill=tint(value))
    for k, value in enumerate(found.ends[:2]):
        canvas.text(found.place(value, low)[0], SIDE - 24, significant(value), anchor=("start", "end")[k])
    for k, value in enumerate(found.ends[2:]):
        canvas.text(x0 - 5, found.place(left, value)[1] + 9 * k - 4, significant(value), anchor="end")
    canvas.text((x0 + x1) / 2, SIDE - 12, found.labels[0], anchor="middle", cls="axis-name")
    middle, name = (y0 + y1) / 2, {"text_anchor": "middle", "cls": "axis-name"}
    canvas.add("text", found.labels[1], x=14, y=middle, transform=f"rotate(-90 14 {middle:.0f})", **name)
    return "".join(canvas.marks)


def marker_svg(found: Map) -> str:
    """SVG marks of the current point on a map, or nothing where it has no place there."""
    if found.marker is None:
        return ""
    across, down = found.place(*found.point(*found.place(*found.marker)))
    return (
        f'<g class="marker"><circle cx="{across:.1f}" cy="{down:.1f}" r="8"/>'
        f'<path d="M{across - 13:.1f} {down:.1f}h9m8 0h9M{across:.1f} {down - 13:.1f}v9m0 8v9"/></g>'
    )


def _draw_ellipse(canvas: Canvas, found: Map, centre: Tensor, spread: Tensor) -> None:
    """One standard deviation of a posterior."""
    values, vectors = torch.linalg.eigh(spread)
    (x0, y0), (x1, y1) = found.place(0.0, 0.0), found.place(1.0, 1.0)
    longest = vectors[:, 1].tolist()
    angle = -math.degrees(math.atan2(longest[1] * (y0 - y1), longest[0] * (x1 - x0)))
    short, long = (values.clamp(min=0.0).sqrt() * (x1 - x0 + y0 - y1) / 2).tolist()
    across, down = found.place(*centre.tolist())
    placed = f"rotate({angle:.1f} {across:.1f} {down:.1f})"
    canvas.add("ellipse", cx=across, cy=down, rx=long, ry=short, transform=placed, cls="posterior")


def _tints(exhibit: Exhibit, state: State) -> tuple[Tensor, str]:
    """Colours of the items from 0 to 1, and what they stand for."""
    codes, names = exhibit.codes(state.member), exhibit.factor_names
    if state.colour < len(names) and len(codes.mean):
        values, legend = exhibit.factors[:, state.colour].double(), names[state.colour]
    else:
        latent = min(max(state.colour - len(names), 0), len(state.z) - 1)
        values = (codes.mean @ rotation_matrix(len(state.z), state.rotation).mT)[:, latent]
        legend = latent_name(latent, state)
    if len(values):
        values = (values - values.min()) / (values.max() - values.min()).clamp(min=1e-12)
    return values, legend


def _factor_map(exhibit: Exhibit, state: State, tints: Tensor, legend: str) -> Map:
    pair = list(state.plane)
    places = exhibit.factors[:, pair].double()
    low, high = places.amin(0), places.amax(0)
    margin = (high - low).clamp(min=1e-6) * 0.06
    # items that differ in other factors alone coincide: their mean is shown
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
