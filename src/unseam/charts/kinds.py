"""The kinds of chart, from plain numbers to SVG with a tooltip on every mark."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unseam.charts.canvas import Canvas, Scale, decimals, shade, significant

__all__ = [
    "Band",
    "Bar",
    "Curve",
    "Dot",
    "Spot",
    "bands",
    "bars",
    "cloud",
    "columns",
    "curves",
    "dots",
    "legend",
    "matrix",
    "scatter",
]

ROW = 24.0
AXIS = 22.0  # room for an axis with its numbers
LETTER = 6.6  # width of one in a chart's text


class Bar(NamedTuple):
    """One row of a bar chart."""

    label: str
    value: float
    cls: str = "c0"


class Dot(NamedTuple):
    """One mark, with its interval where it has one."""

    value: float
    cls: str = "c0"
    name: str = ""
    lower: float | None = None
    upper: float | None = None


class Curve(NamedTuple):
    """One line of small multiples: its name, its heights, its class and the number of its decimals."""

    name: str
    values: tuple[float | None, ...]
    cls: str = "c0"
    digits: int = 2


class Band(NamedTuple):
    """One line with its interval at each place."""

    name: str
    places: tuple[float, ...]
    values: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    cls: str = "c0"


class Spot(NamedTuple):
    """One mark of a cloud: where it is, what it says, what a click copies."""

    x: float
    y: float
    title: str
    cls: str = "c0"
    ring: bool = False
    copy: str = ""


def bars(
    rows: Sequence[Bar], unit: str, label: str, *, top: float, width: float = 300.0, height: float = math.inf
) -> str:
    """Horizontal bars from zero to ``top``, each with its number; thinner ones where they would exceed ``height``.

    >>> bars([Bar("z0", 2.0)], "nats", "KL", top=4.0).count("<rect")
    1
    """
    left = _room([row.label for row in rows])
    tall = min(ROW, height / len(rows))
    every = math.ceil(14 / tall)
    edge = max(0.0, (14 - tall) / 2)  # the first label is taller than a thin bar
    canvas = Canvas(width, edge + tall * len(rows) + AXIS)
    across = Scale(0, top, left, width - 60)
    for place, row in enumerate(rows):
        y = edge + tall * (place + 0.5)
        long = max(across(row.value) - left, 1.0)
        title = f"{row.label}: {significant(row.value, 4)} {unit}"
        canvas.add(
            "rect", "", title, x=left, y=y - tall / 3, width=long, height=2 * tall / 3, cls=f"fill {row.cls}"
        )
        if place % every == 0:
            shown = decimals(row.value) if abs(row.value) < 9.995 else significant(row.value)
            canvas.text(left - 8, y, row.label, anchor="end")
            canvas.text(left + long + 6, y, shown, cls="soft")
    canvas.text(left, canvas.height - 11, unit, cls="soft")
    return canvas.svg(label)


def matrix(
    values: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    *,
    top: float = 1.0,
    numbers: bool = True,
    size: float | None = None,
) -> str:
    """Cells, darker for larger values, with their numbers where asked; ``size`` is the width of all columns together.

    >>> matrix(np.array([[0.996]]), ["z0"], ["x"], "|cos|").count(">1.00<")
    1
    """
    left, head = _room(rows), AXIS
    longest = max((LETTER * len(column) + 8 for column in columns), default=0.0)
    wide = max(40.0 if numbers else 22.0, longest) if size is None else size / len(columns)
    tall = (28.0 if numbers else 22.0) if size is None else wide
    gap = min(2.0, 0.1 * wide)
    across, down = math.ceil(longest / wide), math.ceil(12 / tall)
    canvas = Canvas(left + wide * len(columns) + 1, head + tall * len(rows) + 1)
    for place, column in enumerate(columns):
        if place % across == 0:
            canvas.text(left + wide * (place + 0.5), head / 2, column, anchor="middle", cls="soft")
    for line, row in enumerate(rows):
        if line % down == 0:
            canvas.text(left - 8, head + tall * (line + 0.5), row, anchor="end", cls="soft")
        for place, column in enumerate(columns):
            value = float(values[line, place])
            x, y = left + wide * place, head + tall * line
            title, cls = f"{row}, {column}: {decimals(value, 3)}", shade(value / top)
            canvas.add(
                "rect", "", title, x=x, y=y, width=wide - gap, height=tall - gap, rx=min(3.0, gap), cls=cls
            )
            if numbers:
                x, y = x + (wide - gap) / 2, y + (tall - gap) / 2
                canvas.text(x, y, decimals(value), anchor="middle", cls=cls)
    return canvas.svg(label)


def dots(rows: Mapping[str, Sequence[Dot]], label: str, *, axis: str, high: float | None = None) -> str:
    """Rows of dots on one scale from zero, with intervals.

    >>> dots({"MIG": [Dot(0.5, lower=0.4, upper=0.6)]}, "scores", axis="score", high=1.0).count("<circle")
    1
    """
    left = _room(list(rows)) + 6
    ends = [dot.value if dot.upper is None else dot.upper for row in rows.values() for dot in row]
    lows = [dot.value if dot.lower is None else dot.lower for row in rows.values() for dot in row]
    heights = [max(ROW, 10.0 * len(row) + 12) for row in rows.values()]
    bottom = sum(heights)
    canvas = Canvas(max(330.0, left + 150), bottom + 2 * AXIS - 6)
    right = canvas.width - 14
    scale = Scale(min(0.0, *lows, 0.0), high or 1.04 * max([*ends, 1e-9]), left, right)
    for tick in scale.ticks():
        canvas.line(scale(tick), 0, scale(tick), bottom, "grid")
        canvas.text(scale(tick), bottom + 10, significant(tick), anchor="middle", cls="soft")
    y = 0.0
    for (name, row), height in zip(rows.items(), heights, strict=True):
        if y:
            canvas.line(0, y, right, y, "grid")
        canvas.text(left - 8, y + height / 2, name, anchor="end")
        for place, dot in enumerate(row):
            centre = y + height / 2 + 10 * (place - (len(row) - 1) / 2)
            tip = f"{name}{', ' if dot.name else ''}{dot.name}: {significant(dot.value)}"
            if dot.lower is not None and dot.upper is not None:
                canvas.line(scale(dot.lower), centre, scale(dot.upper), centre, f"range {dot.cls}")
                tip += f" [{significant(dot.lower)}, {significant(dot.upper)}]"
            canvas.add("circle", "", tip, cx=scale(dot.value), cy=centre, r=4.5, cls=f"fill {dot.cls}")
        y += height
    canvas.text((left + right) / 2, bottom + 28, axis, anchor="middle", cls="soft")
    return canvas.svg(label)


def scatter(
    groups: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64], str]],
    label: str,
    *,
    across: str,
    along: str,
) -> str:
    """Points of two positive quantities that should be equal, with the line where they are.

    Args:
        groups: by name: expected values, measured ones, and the class of their marks.
        label: what the chart shows, for those who cannot see it.
        across: name of the horizontal axis, that of expected values.
        along: name of the vertical axis.

    >>> one = np.ones(3)
    >>> scatter({"z0": (one, one, "c0")}, "precisions", across="expected", along="measured").count("<circle")
    3
    """
    canvas = Canvas(310, 290)
    every = np.concatenate([np.concatenate(pair[:2]) for pair in groups.values()])
    low, high = 0.9 * float(every.min()), 1.1 * float(every.max())
    x, y = Scale(low, high, 52, 300, log=True), Scale(low, high, 240, 18, log=True)
    for tick in x.ticks():
        canvas.line(x(tick), 18, x(tick), 240, "grid")
        canvas.line(52, y(tick), 300, y(tick), "grid")
        canvas.text(x(tick), 252, significant(tick), anchor="middle", cls="soft")
        canvas.text(46, y(tick), significant(tick), anchor="end", cls="soft")
    for name, (right, up, cls) in groups.items():
        for a, b in zip(right, up, strict=True):
            title = f"{name}: {significant(b)} where {significant(a)} is expected"
            canvas.add("circle", "", title, cx=x(float(a)), cy=y(float(b)), r=2.4, cls=f"fill thin {cls}")
    canvas.line(x(low), y(low), x(high), y(high), "rule")
    canvas.text(176, 274, across, anchor="middle", cls="soft")
    canvas.text(8, 8, along, cls="soft")
    return canvas.svg(label)


def bands(rows: Sequence[Band], label: str, *, across: str, along: str, log: bool = False) -> str:
    """Lines of means over one axis, each in the band of its interval.

    >>> row = Band("VAE", (1.0, 2.0), (0.5, 0.4), (0.4, 0.3), (0.6, 0.5))
    >>> bands([row], "DtO along β", across="β", along="DtO").count("<poly")
    2
    """
    places = [place for row in rows for place in row.places]
    ends = [end for row in rows for end in (*row.lower, *row.upper, *row.values)]
    canvas, x, y = _plane(places, ends, across, along, log)
    for row in rows:
        spots = [(x(place), y(value)) for place, value in zip(row.places, row.values, strict=True)]
        edge = [(x(place), y(value)) for place, value in zip(row.places, row.upper, strict=True)]
        edge += [(x(place), y(value)) for place, value in zip(row.places, row.lower, strict=True)][::-1]
        for tag, line, cls in (("polygon", edge, "band"), ("polyline", spots, "curve")):
            canvas.add(tag, points=" ".join(f"{a:.1f},{b:.1f}" for a, b in line), cls=f"{cls} {row.cls}")
        for spot, place, *heights in zip(spots, row.places, row.values, row.lower, row.upper, strict=True):
            mean, low, high = map(significant, heights)
            tip = f"{row.name}, {across} {significant(place)}: {mean} [{low}, {high}]"
            canvas.add("circle", "", tip, cx=spot[0], cy=spot[1], r=3, cls=f"fill {row.cls}")
    return canvas.svg(label)


def cloud(spots: Sequence[Spot], label: str, *, across: str, along: str) -> str:
    """Marks of two quantities; those with a ring stand out.

    >>> cloud([Spot(0.0, 1.0, "one", ring=True)], "scores", across="loss", along="MIG").count("<circle")
    2
    """
    canvas, x, y = _plane([spot.x for spot in spots], [spot.y for spot in spots], across, along, False)
    for spot in spots:
        if spot.ring:
            canvas.add("circle", cx=x(spot.x), cy=y(spot.y), r=6, cls="ring c5")
        at = {"cx": x(spot.x), "cy": y(spot.y)}
        canvas.add("circle", "", spot.title, **at, r=3, cls=f"fill thin {spot.cls}", data_copy=spot.copy)
    return canvas.svg(label)


def _plane(
    places: Sequence[float], heights: Sequence[float], across: str, along: str, log: bool
) -> tuple[Canvas, Scale, Scale]:
    """An empty plane with its axes around all values."""
    canvas = Canvas(330, 230)
    low, high = min(heights), max(heights)
    room = 0.05 * ((high - low) or abs(high) or 1.0)
    x = Scale(min(places), max(places), 56, 318, log=log)
    y = Scale(low - room, high + room, 186, 22)
    for tick in x.ticks():
        canvas.line(x(tick), 22, x(tick), 186, "grid")
        canvas.text(x(tick), 198, significant(tick), anchor="middle", cls="soft")
    for tick in y.ticks():
        canvas.line(56, y(tick), 318, y(tick), "grid")
        canvas.text(50, y(tick), significant(tick), anchor="end", cls="soft")
    canvas.text(187, 217, across, anchor="middle", cls="soft")
    canvas.text(4, 8, along, cls="soft")
    return canvas, x, y


def columns(
    marks: Mapping[str, Sequence[Dot]], label: str, *, across: str, along: str, rule: Dot | None = None
) -> str:
    """Columns of positive values on a logarithmic scale; ``rule`` is a horizontal line with its name.

    >>> columns({"1": [Dot(2.0)], "2": [Dot(0.5)]}, "thresholds", across="latent", along="β").count("<circle")
    2
    """
    wide = max(22.0, min(48.0, 276 / len(marks)))
    canvas = Canvas(max(200.0, 58 + wide * len(marks), 58 + 6.6 * len(across)), 230)
    values = [dot.value for column in marks.values() for dot in column]
    values += [rule.value] if rule is not None else []
    top = max(values) * 1.3 or 1.0
    y = Scale(max(min(values) * 0.75, top * 1e-5, 1e-30), top, 180, 22, log=True)
    for tick in y.ticks(4):
        canvas.line(50, y(tick), canvas.width, y(tick), "grid")
        canvas.text(44, y(tick), significant(tick), anchor="end", cls="soft")
    for place, (name, column) in enumerate(marks.items()):
        centre = 54 + wide * (place + 0.5)
        canvas.text(centre, 194, name, anchor="middle", cls="soft")
        radius = 4.5 if len(column) == 1 else 2.4
        for k, dot in enumerate(column):
            shift = wide * 0.6 * ((k + 0.5) / len(column) - 0.5)
            tip = f"{dot.name}: {significant(dot.value)}"
            canvas.add("circle", "", tip, cx=centre + shift, cy=y(dot.value), r=radius, cls=dot.cls)
    if rule is not None:
        canvas.line(50, y(rule.value), canvas.width, y(rule.value), "now")
        canvas.text(canvas.width - 4, y(rule.value) - 9, rule.name, anchor="end")
    canvas.text(54, 214, across, cls="soft")
    canvas.text(0, 8, along, cls="soft")
    return canvas.svg(label)


def curves(
    places: Sequence[float], rows: Sequence[Curve], here: float, *, label: str, log: bool = False
) -> str:
    """Small multiples over one dial: a row for each curve, its value at the current position, and a line there.

    Args:
        places: where the curves were measured, ascending.
        rows: what was measured there; ``None`` where it could not be.
        here: current position of the dial.
        label: of the dial.
        log: whether the dial is logarithmic.

    >>> curves([0.0, 90.0], [Curve("DtO", (0.0, 1.0))], 45.0, label="angle").count("<polyline")
    1
    """
    tall, left, right = 46.0, 104.0, 314.0
    canvas = Canvas(360, tall * len(rows) + 26)
    across = Scale(places[0], places[-1], left, right, log=log)
    canvas.line(across(here), 4, across(here), canvas.height - 24, "rule")
    for k, curve in enumerate(rows):
        top = 6 + k * tall
        middle = top + tall / 2 - 6
        canvas.text(8, middle, curve.name, cls="soft")
        known = [
            (place, value) for place, value in zip(places, curve.values, strict=True) if value is not None
        ]
        if not known:
            canvas.text((left + right) / 2, middle, "not measured", anchor="middle", cls="soft")
            continue
        heights = [value for _, value in known]
        y = Scale(min(0.0, *heights), max(heights), top + tall - 12, top)
        spots = [(across(place), y(value)) for place, value in known]
        line = " ".join(f"{spot[0]:.1f},{spot[1]:.1f}" for spot in spots)
        canvas.add("polyline", points=line, cls=f"curve {curve.cls}")
        for spot, (place, value) in zip(spots, known, strict=True):
            tip = f"{curve.name} at {significant(place)}: {decimals(value, curve.digits)}"
            canvas.add("circle", "", tip, cx=spot[0], cy=spot[1], r=2.4, cls=f"fill {curve.cls}")
        _, value = min(known, key=lambda one: abs(across(one[0]) - across(here)))
        canvas.text(356, middle, decimals(value, curve.digits), anchor="end")
    for place in (places[0], places[-1]):
        canvas.text(across(place), canvas.height - 12, significant(place), anchor="middle", cls="soft")
    canvas.text((left + right) / 2, canvas.height - 12, label, anchor="middle", cls="soft")
    return canvas.svg(f"{', '.join(curve.name for curve in rows)} over {label}")


def legend(names: Sequence[tuple[str, str]]) -> str:
    """What each colour stands for: names with their classes.

    >>> legend([("AE", "c1")])
    '<p class="legend"><span class="c1"><i></i>AE</span></p>'
    """
    marks = "".join(f'<span class="{cls}"><i></i>{html.escape(name)}</span>' for name, cls in names)
    return f'<p class="legend">{marks}</p>'


def _room(labels: Sequence[str]) -> float:
    return 14 + LETTER * max((len(label) for label in labels), default=0)
