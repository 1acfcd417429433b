"""Small drawings as SVG, in colours that the page's style sheet gives for light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import torch

from unseam.explore.local import Local
from unseam.explore.maps import SIDE, Map

__all__ = [
    "Curve",
    "cosine_svg",
    "curves_svg",
    "map_svg",
    "marker_svg",
    "ramp",
    "spectrum_svg",
    "tint",
]

_CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
# From low to high through Okabe and Ito's colours, each lighter or warmer than the one before.
_RAMP = ((0, 114, 178), (86, 180, 233), (240, 228, 66), (230, 159, 0), (213, 94, 0))
_WIDTH = 360


class Curve(NamedTuple):
    """One line of a drawing: its name, its heights, its colour and how its values are written."""

    name: str
    values: tuple[float | None, ...]
    colour: int
    form: str = ".2f"


def tint(value: float) -> str:
    """A colour for a value from 0 to 1.

    >>> tint(0.0), tint(0.5), tint(1.0)
    ('#0072b2', '#f0e442', '#d55e00')
    """
    place = min(max(value, 0.0), 1.0) * (len(_RAMP) - 1)
    left = min(int(place), len(_RAMP) - 2)
    part = place - left
    mixed = (round(a + part * (b - a)) for a, b in zip(_RAMP[left], _RAMP[left + 1], strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def ramp() -> str:
    """The colours from low to high as a CSS background.

    >>> ramp()[:39]
    'linear-gradient(90deg, #0072b2, #56b4e9'
    """
    return f"linear-gradient(90deg, {', '.join(tint(k / (len(_RAMP) - 1)) for k in range(len(_RAMP)))})"


def cosine_svg(found: Local, names: Sequence[str]) -> str:
    """The matrix of ``|cos|`` between columns of the Jacobian: pale where orthogonal.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.local import local_view
    >>> found = local_view(exhibit_decoder(lambda z: 2 * z, latent=2), 0, torch.zeros(2))
    >>> cosine_svg(found, ["z0", "z1"]).count("<rect")
    4
    """
    count, edge, side = len(names), 30, 200
    cell = (side - edge) / count
    gap = min(1.0, 0.1 * cell)
    parts = []
    for row in range(count):
        middle = edge + (row + 0.5) * cell
        if row % _every(count) == 0:
            parts.append(_text(edge - 5, middle + 4, names[row], "end"))
            parts.append(_text(middle, edge - 8, names[row], "middle"))
        for column in range(count):
            value = found.cosines[row][column]
            x, y = edge + column * cell, edge + row * cell
            fill = "var(--faint)" if row == column else "var(--blue)"
            opacity = 1.0 if row == column else 0.06 + 0.94 * value
            parts.append(
                f'<rect x="{x + gap:.1f}" y="{y + gap:.1f}" width="{cell - 2 * gap:.1f}" '
                f'height="{cell - 2 * gap:.1f}" rx="{2 * gap:.1f}" '
                f'fill="{fill}" fill-opacity="{opacity:.2f}"><title>|cos| of {escape(names[row])} and '
                f"{escape(names[column])}: {value:.2f}</title></rect>"
            )
            if row != column and count <= 6:
                kind = "on" if opacity > 0.7 else "value"
                parts.append(
                    _text(
                        x + cell / 2,
                        y + cell / 2 + 4,
                        f"{value:.2f}"[1:] if value < 1 else "1",
                        "middle",
                        kind,
                    )
                )
    return _svg(side, side, parts, f"Mean |cos| between columns {found.cosine:.2f}")


def spectrum_svg(found: Local) -> str:
    """Singular values as bars, each with the share of every latent in its singular vector.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.local import local_view
    >>> found = local_view(exhibit_decoder(lambda z: 2 * z, latent=2), 0, torch.zeros(2))
    >>> "s1: 2" in spectrum_svg(found)
    True
    """
    count, width, height = len(found.singular_values), 200, 200
    top = max(found.singular_values) or 1.0
    step = (width - 24) / count
    parts = [f'<line x1="20" x2="{width}" y1="{height - 22}" y2="{height - 22}" class="axis"/>']
    for k, value in enumerate(found.singular_values):
        tall = (height - 46) * value / top
        x = 22 + k * step
        parts.append(
            f'<rect x="{x + 0.12 * step:.1f}" y="{height - 22 - tall:.1f}" width="{0.76 * step:.1f}" '
            f'height="{max(tall, 0.5):.1f}" rx="2" fill="var(--vermilion)"><title>s{k + 1}: {value:.3g}</title></rect>'
        )
        if k % _every(count) == 0:
            parts.append(_text(x + step / 2, height - 8, f"v{k + 1}", "middle"))
        if count <= 8:
            parts.append(_text(x + step / 2, height - 27 - tall, f"{value:.2g}", "middle"))
    return _svg(
        width, height, parts, "Singular values " + ", ".join(f"{s:.3g}" for s in found.singular_values)
    )


def curves_svg(
    places: Sequence[float], curves: Sequence[Curve], here: float, *, label: str, log: bool = False
) -> str:
    """Small multiples over one dial: a row for each curve, with a line where the dial stands.

    Args:
        places: where the curves were measured, ascending.
        curves: what was measured there; ``None`` where it could not be.
        here: where the dial stands.
        label: of the dial.
        log: whether the dial is logarithmic.

    >>> curves_svg([0.0, 90.0], [Curve("DtO", (0.0, 1.0), 0)], 45.0, label="angle").count("<path")
    1
    """
    row, left, right = 46, 104, 46
    height = row * len(curves) + 26
    positions = [math.log(place) if log else place for place in places]
    low, high = positions[0], positions[-1]
    span = (high - low) or 1.0

    def across(place: float) -> float:
        position = math.log(place) if log else place
        return left + (position - low) / span * (_WIDTH - left - right)

    parts = [
        f'<line x1="{across(here):.1f}" x2="{across(here):.1f}" y1="4" y2="{height - 24}" class="here"/>'
    ]
    for k, curve in enumerate(curves):
        parts += _row(curve, [across(place) for place in places], 6 + k * row, row - 12, across(here))
    for place in (places[0], places[-1]):
        parts.append(_text(across(place), height - 8, f"{place:g}", "middle"))
    parts.append(_text(left + (_WIDTH - left - right) / 2, height - 8, label, "middle"))
    return _svg(_WIDTH, height, parts, f"{', '.join(curve.name for curve in curves)} over {label}")


def map_svg(found: Map) -> str:
    """A map: axes, posterior ellipses, and a dot for each item.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.maps import map_of
    >>> from unseam.explore.state import first_state
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> "z0" in map_svg(map_of(exhibit, first_state(exhibit)))
    True
    """
    left, right, low, high = found.frame
    (x0, y0), (x1, y1) = found.place(left, low), found.place(right, high)
    parts = [f'<rect x="{x0}" y="{y1}" width="{x1 - x0}" height="{y0 - y1}" class="plane"/>']
    if found.ends == found.frame:  # latents have an origin
        across, down = found.place(0.0, 0.0)
        parts.append(f'<path d="M{x0} {down}H{x1}M{across} {y1}V{y0}" class="grid"/>')
    parts += [
        _ellipse(found, centre, spread)
        for centre, spread in zip(found.centres, found.ellipses, strict=True)
        if found.holds(*centre.tolist())
    ]
    for (x, y), value in zip(found.points.tolist(), found.tints.tolist(), strict=True):
        if found.holds(x, y):
            across, down = found.place(x, y)
            parts.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="2.6" fill="{tint(value)}"/>')
    for k, value in enumerate(found.ends[:2]):
        parts.append(_text(found.place(value, low)[0], SIDE - 20, f"{value:.3g}", ("start", "end")[k]))
    for k, value in enumerate(found.ends[2:]):
        parts.append(_text(x0 - 5, found.place(left, value)[1] + 9 * k, f"{value:.3g}", "end"))
    parts.append(_text((x0 + x1) / 2, SIDE - 8, found.labels[0], "middle", "axis-name"))
    middle = (y0 + y1) / 2
    parts.append(
        f'<text x="14" y="{middle:.0f}" transform="rotate(-90 14 {middle:.0f})" text-anchor="middle" '
        f'class="axis-name">{escape(found.labels[1])}</text>'
    )
    return "".join(parts)


def marker_svg(found: Map) -> str:
    """The current point on a map, or nothing where it has no place there.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.maps import map_of
    >>> from unseam.explore.state import first_state
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> marker_svg(map_of(exhibit, first_state(exhibit))).startswith("<g")
    True
    """
    if found.marker is None:
        return ""
    across, down = found.place(*found.point(*found.place(*found.marker)))
    return (
        f'<g class="marker"><circle cx="{across:.1f}" cy="{down:.1f}" r="8"/>'
        f'<path d="M{across - 13:.1f} {down:.1f}h9m8 0h9M{across:.1f} {down - 13:.1f}v9m0 8v9"/></g>'
    )


def _every(count: int) -> int:
    """How many names stand between two that are written, so that they do not lie on one another."""
    return -(-count // 6) if count > 8 else 1


def _row(curve: Curve, across: Sequence[float], top: float, tall: float, here: float) -> list[str]:
    """One small multiple: name, line, dots, and the value nearest to where the dial stands."""
    known = [(x, value) for x, value in zip(across, curve.values, strict=True) if value is not None]
    parts = [_text(8, top + tall / 2 + 4, curve.name, "start")]
    if not known:
        return [*parts, _text(_WIDTH / 2, top + tall / 2 + 4, "not measured", "middle")]
    low, high = min(0.0, *(value for _, value in known)), max(value for _, value in known)
    span = (high - low) or 1.0
    spots = [(x, top + tall * (1 - (value - low) / span)) for x, value in known]
    colour = _CATEGORIES[curve.colour % len(_CATEGORIES)]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
    parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>' for x, y in spots]
    _, value = min(known, key=lambda one: abs(one[0] - here))
    return [*parts, _text(_WIDTH - 4, top + tall / 2 + 4, format(value, curve.form), "end", "value")]


def _ellipse(found: Map, centre: torch.Tensor, spread: torch.Tensor) -> str:
    """One standard deviation of a posterior, in pixels of the map."""
    values, vectors = torch.linalg.eigh(spread)
    left, right, low, high = found.frame
    (x0, y0), (x1, y1) = found.place(left, low), found.place(right, high)
    scale_x, scale_y = (x1 - x0) / (right - left), (y0 - y1) / (high - low)
    longest = vectors[:, 1].tolist()
    angle = -math.degrees(math.atan2(longest[1] * scale_y, longest[0] * scale_x))
    radii = (values.clamp(min=0.0).sqrt() * (scale_x + scale_y) / 2).tolist()
    across, down = found.place(*centre.tolist())
    return (
        f'<ellipse cx="{across:.1f}" cy="{down:.1f}" rx="{radii[1]:.1f}" ry="{radii[0]:.1f}" '
        f'transform="rotate({angle:.1f} {across:.1f} {down:.1f})" class="posterior"/>'
    )


def _text(x: float, y: float, text: str, anchor: str, kind: str = "ink") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )
