"""What all charts share: colours on light and dark paper, the format of numbers, scales, SVG elements."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from importlib.resources import files

__all__ = [
    "COLOURS",
    "Canvas",
    "Scale",
    "decimals",
    "percent",
    "significant",
    "standalone",
    "style",
    "tint",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
"""Okabe and Ito's colours, which colour-blind readers can distinguish."""

# The same on dark paper: lighter, with similar contrast to each other and to the paper; the sixth is that of the text.
_CATEGORIES = {"light": COLOURS, "dark": ("#56B4E9", "#F28E4B", "#2FC79A", "#E3A3CB", "#F0C04A")}
_PAPER = {
    "light": {"ink": "#1b1f24", "soft": "#57606a", "paper": "#ffffff", "line": "#d0d7de", "faint": "#e7ebef"},
    "dark": {"ink": "#e6edf3", "soft": "#a5b0bb", "paper": "#14181d", "line": "#3a424b", "faint": "#262d35"},
}
# Heat maps: from nearly the paper's colour to the strongest shade.
_SHADES = {"light": ((244, 247, 250), (0, 84, 138)), "dark": ((31, 38, 46), (140, 208, 247))}
_LEVELS = 11
# From low to high through Okabe and Ito's colours, each lighter or warmer than the one before.
_RAMP = ((0, 114, 178), (86, 180, 233), (240, 228, 66), (230, 159, 0), (213, 94, 0))
# Once round, for hues and angles: the last is next to the first.
_CYCLE = ((0, 114, 178), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167), (0, 114, 178))


def style(dark: str = "") -> str:
    """Style sheet of charts and of the page around them: variables for light and dark paper, and rules for marks.

    What has the class ``paper`` is light whatever the reader prefers.

    Args:
        dark: selector under which paper is dark; by default the reader's preference decides.

    >>> "--ink: #1b1f24" in style() and ".night { --ink: #e6edf3" in style(".night")
    True
    """
    there = f"{dark} {{ {_variables('dark')} }}"
    if not dark:
        there = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables('dark')} }} }}"
    return f":root, .paper {{ {_variables('light')} }}\n{there}\n{_rules()}"


def standalone(chart: str, caption: str = "") -> str:
    """A chart as an SVG file of its own, on white, below its caption.

    >>> standalone(Canvas(10, 10).svg("nothing")).startswith('<svg xmlns="http://www.w3.org/2000/svg" class="chart"')
    True
    """
    found = re.match(r'<svg (class=.*?) viewBox="0 0 (\S+) (\S+)"[^>]*>(.*)</svg>$', chart, re.DOTALL)
    assert found is not None
    room = 24 if caption else 0
    size = (max(float(found[2]), 8 + 6.6 * len(caption)), float(found[3]) + room)
    wide, tall = map(_coordinate, size)
    sheet = f"<style>:root {{ {_variables('light')} }}\nsvg {{ background: #fff; }}\n{_rules()}</style>"
    place = f'viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}"'
    title = f'<text x="4" y="16">{html.escape(caption)}</text>'
    inside = f'{sheet}{title}<g transform="translate(0 {room})">{found[4]}</g>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {found[1]} {place}>{inside}</svg>'


def shade(share: float) -> str:
    """Class of a cell in a heat map for a value in [0, 1]."""
    return f"h{round(min(max(share, 0.0), 1.0) * (_LEVELS - 1))}" if math.isfinite(share) else "none"


def tint(value: float, *, cyclic: bool = False) -> str:
    """A colour for a value from 0 (blue) to 1 (vermilion; where it is cyclic, blue again).

    >>> tint(0.0), tint(0.5), tint(1.0), tint(1.0, cyclic=True)
    ('#0072b2', '#f0e442', '#d55e00', '#0072b2')
    """
    ramp = _CYCLE if cyclic else _RAMP
    place = min(max(value, 0.0), 1.0) * (len(ramp) - 1)
    left = min(int(place), len(ramp) - 2)
    return _hex(_mix(ramp[left], ramp[left + 1], place - left))


def contrast(first: Sequence[int], second: Sequence[int]) -> float:
    """Contrast of two colours by WCAG 2."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def decimals(value: float | None, digits: int = 2) -> str:
    """A number with a fixed number of decimals and a proper minus; a dash for what is not there.

    >>> [decimals(value) for value in (0.996, -0.5, -0.001, None, float("nan"))]
    ['1.00', '−0.50', '0.00', '–', '–']
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("-", "−" if float(text) else "")


def significant(value: float, digits: int = 3) -> str:
    """A number with few significant digits, as an axis or a tooltip shows it.

    >>> [significant(value) for value in (0.0, 0.25, -1.5, 1234.0, 2e-5, 30000.0)]
    ['0', '0.25', '−1.5', '1230', '2·10⁻⁵', '3·10⁴']
    """
    value = float(f"{value:.{digits}g}")
    if value != 0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, power = f"{value:.0e}".split("e")
        raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{'' if mantissa == '1' else mantissa + '·'}10{raised}".replace("-", "−")
    return f"{value:g}".replace("-", "−")


def percent(value: float) -> str:
    """A fraction in per cent, with a decimal where it is small.

    >>> percent(0.052), percent(0.52)
    ('5.2%', '52%')
    """
    return f"{value:.1%}" if abs(value) < 0.0995 else f"{value:.0%}"


class Canvas:
    """SVG marks on a plane of so many pixels.

    >>> canvas = Canvas(20, 10)
    >>> canvas.add("circle", "", "a < b", cx=4, cy=5.04, r=2, cls="fill c0")
    >>> canvas.marks[-1]
    '<circle cx="4" cy="5" r="2" class="fill c0"><title>a &lt; b</title></circle>'
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height, self.marks = width, height, [""]

    def add(self, tag: str, text: str = "", title: str = "", **attributes: object) -> None:
        """One element; ``cls`` is its class, an underscore in other names a hyphen."""
        given = {key.replace("_", "-"): value for key, value in attributes.items() if value != ""}
        given = {("class" if key == "cls" else key): value for key, value in given.items()}
        shown = "".join(f' {key}="{_attribute(value)}"' for key, value in given.items())
        tip = f"<title>{html.escape(title)}</title>" if title else ""
        inside = f"{tip}{html.escape(text)}"
        self.marks.append(f"<{tag}{shown}>{inside}</{tag}>" if inside else f"<{tag}{shown}/>")

    def text(self, x: float, y: float, text: str, *, cls: str = "", anchor: str = "") -> None:
        """A text whose middle is at height y."""
        self.add("text", text, x=x, y=y, cls=cls, text_anchor=anchor, dominant_baseline="central")

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str = "axis") -> None:
        """A line from one point to another."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, cls=cls)

    def svg(self, label: str) -> str:
        """The whole element, with a label for those who cannot see it."""
        size = f'viewBox="0 0 {_coordinate(self.width)} {_coordinate(self.height)}"'
        room = f"width:{_coordinate(self.width)}px;min-width:{_coordinate(0.75 * self.width)}px"
        return (
            f'<svg class="chart" role="img" aria-label="{html.escape(label)}" {size} style="{room}">'
            f"{''.join(self.marks)}</svg>"
        )


class Scale:
    """A map from values to pixels, linear or logarithmic.

    >>> scale = Scale(1.0, 100.0, 0.0, 200.0, log=True)
    >>> scale(10.0), scale.ticks()
    (100.0, [1.0, 10.0, 100.0])
    """

    def __init__(self, low: float, high: float, start: float, end: float, *, log: bool = False) -> None:
        self.log = log
        self.low, self.high = low, high if high > low else low + (abs(low) or 1.0)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """Where a value lies; what is outside is drawn at the border."""
        value = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside."""
        if self.log:
            low, high = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            powers = [10.0**power for power in range(low, high + 1, max(1, -(-(high - low + 1) // count)))]
            if len(powers) > 2:
                return powers
            steps = [f * 10.0**p for p in range(low - 1, high + 1) for f in (1, 2, 5)]
            inside = [value for value in steps if self.low * 0.999 <= value <= self.high * 1.001]
            if len(inside) > 1:
                return inside
        rough = (self.high - self.low) / max(1, count)
        size = 10 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _variables(paper: str) -> str:
    """Colours of one kind of paper: text and lines, categories c0 to c5, shades h0 to h10 with the ink on each."""
    named = dict(_PAPER[paper])
    named |= {f"c{k}": colour for k, colour in enumerate((*_CATEGORIES[paper], "var(--ink)"))}
    for level in range(_LEVELS):
        fill = _mix(*_SHADES[paper], level / (_LEVELS - 1))
        ink = max(((16, 20, 24), (255, 255, 255)), key=lambda colour: contrast(colour, fill))
        named |= {f"h{level}": _hex(fill), f"i{level}": _hex(ink)}
    return " ".join(f"--{name}: {value};" for name, value in named.items())


def _rules() -> str:
    sheet = files("unseam.charts").joinpath("chart.css").read_text(encoding="utf-8")
    marks = [f".c{k} {{ --mark: var(--c{k}); }}" for k in range(len(COLOURS) + 1)]
    cells = [
        f".chart rect.h{k} {{ fill: var(--h{k}); }} .chart text.h{k} {{ fill: var(--i{k}); }}"
        for k in range(_LEVELS)
    ]
    return "\n".join([sheet, *marks, *cells])


def _mix(low: Sequence[int], high: Sequence[int], part: float) -> list[int]:
    return [round(a + part * (b - a)) for a, b in zip(low, high, strict=True)]


def _luminance(colour: Sequence[int]) -> float:
    parts = [value / 255 for value in colour]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _hex(colour: Sequence[int]) -> str:
    return "#" + "".join(f"{value:02x}" for value in colour)


def _attribute(value: object) -> str:
    return _coordinate(value) if isinstance(value, float | int) else html.escape(str(value))


def _coordinate(value: float) -> str:
    """To a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 0.05 else "0"
