"""The kinds of chart that a report has, from plain numbers."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unseam.report._chart import Canvas, Scale, shade, short

__all__ = ["Bar", "Dot", "bars", "dots", "legend", "matrix", "ranks", "scatter"]

ROW = 24.0
SCALE = 22.0  # room of an axis with its numbers
LETTER = 6.6  # width of one at the size of a chart's text


class Bar(NamedTuple):
    """One row of a bar chart."""

    label: str
    value: float
    cls: str = "c0"


class Dot(NamedTuple):
    """One mark of a row of dots, with its interval where it has one."""

    value: float
    cls: str = "c0"
    name: str = ""
    lower: float | None = None
    upper: float | None = None


def bars(rows: Sequence[Bar], unit: str, label: str, *, top: float) -> str:
    """Horizontal bars from zero to a top, each with its number to two decimals, or three digits from 10 on."""
    left = _room([row.label for row in rows])
    canvas = Canvas(300, ROW * len(rows) + SCALE)
    across = Scale(0, top, left, 240)
    for place, row in enumerate(rows):
        y = ROW * (place + 0.5)
        canvas.text(left - 8, y, row.label, anchor="end")
        width = max(across(row.value) - left, 1.0)
        shown = f"{row.value:.2f}" if row.value < 9.995 else f"{row.value:.3g}"
        title = f"{row.label}: {row.value:.4g} {unit}"
        canvas.add("rect", "", title, x=left, y=y - 8, width=width, height=16, cls=f"fill {row.cls}")
        canvas.text(left + width + 6, y, shown, cls="soft")
    canvas.text(left, ROW * len(rows) + 11, unit, cls="soft")
    return canvas.svg(label)


def matrix(
    values: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    *,
    across: str = "",
    top: float = 1.0,
    numbers: bool = True,
) -> str:
    """Cells with their numbers, darker for larger values."""
    side = 40.0 if numbers else 22.0
    tall = 28.0 if numbers else 22.0
    left, head = _room(rows), 22.0
    wide = max(side, max((LETTER * len(column) + 8 for column in columns), default=side))
    canvas = Canvas(left + wide * len(columns) + 1, head + tall * len(rows) + (SCALE if across else 1))
    for place, column in enumerate(columns):
        canvas.text(left + wide * (place + 0.5), head / 2, column, anchor="middle", cls="soft")
    for line, row in enumerate(rows):
        canvas.text(left - 8, head + tall * (line + 0.5), row, anchor="end", cls="soft")
        for place, column in enumerate(columns):
            value = float(values[line, place])
            x, y = left + wide * place, head + tall * line
            title = f"{row}, {column}: {value:.3f}"

            def cell(x: float = x, y: float = y, value: float = value, title: str = title) -> None:
                canvas.add("rect", "", title, x=x, y=y, width=wide - 2, height=tall - 2, rx=3)
                if numbers:
                    canvas.text(
                        x + wide / 2 - 1, y + tall / 2 - 1, f"{value:.2f}", anchor="middle", title=title
                    )

            canvas.group(f"cell {shade(value / top)}", cell)
    if across:
        canvas.text(left, canvas.height - 8, across, cls="soft")
    return canvas.svg(label)


def dots(rows: Mapping[str, Sequence[Dot]], label: str, *, axis: str, high: float | None = None) -> str:
    """Rows of dots on one scale from zero, with intervals."""
    left = _room(list(rows))
    ends = [dot.value if dot.upper is None else dot.upper for row in rows.values() for dot in row]
    lows = [dot.value if dot.lower is None else dot.lower for row in rows.values() for dot in row]
    heights = [max(ROW, 10.0 * len(row) + 12) for row in rows.values()]
    bottom = sum(heights)
    canvas = Canvas(330, bottom + 2 * SCALE - 6)
    scale = Scale(min(0.0, *lows, 0.0), high or 1.04 * max([*ends, 1e-9]), left, 316)
    for tick in scale.ticks():
        canvas.line(scale(tick), 0, scale(tick), bottom, "grid")
        canvas.text(scale(tick), bottom + 10, short(tick), anchor="middle", cls="soft")
    y = 0.0
    for (name, row), height in zip(rows.items(), heights, strict=True):
        if y:
            canvas.line(0, y, 316, y, "grid")
        canvas.text(left - 8, y + height / 2, name, anchor="end")
        for place, dot in enumerate(row):
            centre = y + height / 2 + 10 * (place - (len(row) - 1) / 2)
            tip = f"{name}{', ' if dot.name else ''}{dot.name}: {short(dot.value)}"
            if dot.lower is not None and dot.upper is not None:
                canvas.line(scale(dot.lower), centre, scale(dot.upper), centre, f"range {dot.cls}")
                tip += f" [{short(dot.lower)}, {short(dot.upper)}]"
            canvas.add("circle", "", tip, cx=scale(dot.value), cy=centre, r=4.5, cls=f"fill {dot.cls}")
        y += height
    canvas.text((left + 316) / 2, bottom + 28, axis, anchor="middle", cls="soft")
    return canvas.svg(label)


def scatter(
    groups: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64], str]],
    label: str,
    *,
    across: str,
    along: str,
) -> str:
    """Points of two positive quantities that should be equal, with the line where they are."""
    canvas = Canvas(310, 290)
    every = np.concatenate([np.concatenate(pair[:2]) for pair in groups.values()])
    low, high = 0.9 * float(every.min()), 1.1 * float(every.max())
    x, y = Scale(low, high, 52, 300, log=True), Scale(low, high, 240, 18, log=True)
    for tick in x.ticks():
        canvas.line(x(tick), 18, x(tick), 240, "grid")
        canvas.line(52, y(tick), 300, y(tick), "grid")
        canvas.text(x(tick), 252, short(tick), anchor="middle", cls="soft")
        canvas.text(46, y(tick), short(tick), anchor="end", cls="soft")
    for name, (right, up, cls) in groups.items():
        for a, b in zip(right, up, strict=True):
            title = f"{name}: {short(b)} where {short(a)} is expected"
            canvas.add("circle", "", title, cx=x(float(a)), cy=y(float(b)), r=2.4, cls=f"fill thin {cls}")
    canvas.line(x(low), y(low), x(high), y(high), "rule")
    canvas.text(176, 274, across, anchor="middle", cls="soft")
    canvas.text(8, 8, along, cls="soft")
    return canvas.svg(label)


def ranks(
    values: NDArray[np.float64], marked: NDArray[np.bool_], label: str, *, across: str, along: str
) -> str:
    """One column a rank, one mark a point; rings mark points that are not to be trusted."""
    points, count = values.shape
    wide = max(26.0, min(48.0, 250 / count))
    canvas = Canvas(max(200.0, 58 + wide * count), 230)
    floor = max(float(values.max()) * 1e-5, 1e-30)
    y = Scale(max(float(values.min()) * 0.8, floor), float(values.max()) * 1.25 or 1.0, 180, 22, log=True)
    for tick in y.ticks(4):
        canvas.line(50, y(tick), canvas.width, y(tick), "grid")
        canvas.text(44, y(tick), short(tick), anchor="end", cls="soft")
    for rank in range(count):
        centre = 54 + wide * (rank + 0.5)
        canvas.text(centre, 194, str(rank + 1), anchor="middle", cls="soft")
        for point in range(points):
            shift = wide * 0.6 * ((point + 0.5) / points - 0.5)
            cls = "ring c1" if marked[point] else "fill thin c0"
            tip = f"singular value {rank + 1} at a point: {short(float(values[point, rank]))}"
            tip += ", nearly the same as another" if marked[point] else ""
            canvas.add("circle", "", tip, cx=centre + shift, cy=y(float(values[point, rank])), r=2.4, cls=cls)
    canvas.text(54, 214, across, cls="soft")
    canvas.text(0, 8, along, cls="soft")
    return canvas.svg(label)


def legend(names: Sequence[tuple[str, str]]) -> str:
    """What each colour stands for: names with their classes."""
    marks = "".join(f'<span class="{cls}"><i></i>{html.escape(name)}</span>' for name, cls in names)
    return f'<p class="legend">{marks}</p>'


def _room(labels: Sequence[str]) -> float:
    return 14 + LETTER * max((len(label) for label in labels), default=0)
