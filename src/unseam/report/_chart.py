"""Small SVG charts that take the page's fonts and colours, with a tooltip on every mark."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

__all__ = ["LEVELS", "Canvas", "Scale", "contrast", "number", "ramps", "shade", "short"]

LEVELS = 11
"""Shades of a heat map."""

# From the page to its strongest shade, on light and on dark paper.
_RAMPS = {"light": ((244, 247, 250), (0, 84, 138)), "dark": ((31, 38, 46), (140, 208, 247))}


class Canvas:
    """Marks on a plane of so many pixels."""

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

    def text(
        self, x: float, y: float, text: str, *, cls: str = "", anchor: str = "", title: str = ""
    ) -> None:
        """A text whose middle is at height y."""
        self.add("text", text, title, x=x, y=y, cls=cls, text_anchor=anchor, dominant_baseline="central")

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str = "axis") -> None:
        """A line from one point to another."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, cls=cls)

    def group(self, cls: str, draw: Callable[[], None]) -> None:
        """All that ``draw`` adds, as one group."""
        self.marks.append(f'<g class="{cls}">')
        draw()
        self.marks.append("</g>")

    def svg(self, label: str) -> str:
        """The element, named for those who cannot see it."""
        size = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        style = f'style="width:{number(self.width)}px;min-width:{number(0.75 * self.width)}px"'
        return (
            f'<svg class="chart" role="img" aria-label="{html.escape(label)}" {size} {style}>'
            f"{''.join(self.marks)}</svg>"
        )


class Scale:
    """A map from values to pixels, linear or logarithmic."""

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


def number(value: float) -> str:
    """A coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 0.05 else "0"


def short(value: float) -> str:
    """A number as an axis shows it."""
    if value != 0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, power = f"{value:.0e}".split("e")
        return f"{'' if mantissa == '1' else mantissa + '·'}10{_superscript(int(power))}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def ramps() -> str:
    """Style rules of the shades of heat maps: for each, its fill and the text that can be read on it."""
    light, dark = (_rules(*_RAMPS[paper]) for paper in ("light", "dark"))
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"


def shade(part: float) -> str:
    """Class of a value in [0, 1]."""
    return f"h{round(min(max(part, 0.0), 1.0) * (LEVELS - 1))}" if math.isfinite(part) else "none"


def contrast(first: Sequence[int], second: Sequence[int]) -> float:
    """Contrast of two colours by WCAG 2."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _rules(low: Sequence[int], high: Sequence[int]) -> str:
    rules = []
    for level in range(LEVELS):
        part = level / (LEVELS - 1)
        fill = [round(a + part * (b - a)) for a, b in zip(low, high, strict=True)]
        ink = max(((16, 20, 24), (255, 255, 255)), key=lambda colour: contrast(colour, fill))
        rules.append(f".h{level} rect {{ fill: {_hex(fill)}; }} .h{level} text {{ fill: {_hex(ink)}; }}")
    return "\n".join(rules)


def _luminance(colour: Sequence[int]) -> float:
    parts = [value / 255 for value in colour]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _hex(colour: Sequence[int]) -> str:
    return "#" + "".join(f"{value:02x}" for value in colour)


def _attribute(value: object) -> str:
    return number(value) if isinstance(value, float | int) else html.escape(str(value))


def _superscript(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
