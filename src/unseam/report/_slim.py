"""Figures of matplotlib as parts of a page: fewer characters, and names that no other figure has."""

from __future__ import annotations

import re

__all__ = ["slim"]

_NUMBERS = re.compile(r' (?:d|x|y)="[^"]*"')
_MARKS = re.compile(r'<use [^>]*? style="([^"]*)"/>(?:<use [^>]*? style="\1"/>)+')


def slim(svg: str, prefix: str) -> str:
    """The same figure: places to a hundredth of a point, one style for a row of equal marks, names with a prefix.

    Without it figures of one page would share names, and a page of all artefacts would be larger than one may be.
    """
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sid="([^"]*)"', lambda name: f' id="{prefix}{name[1]}"' if name[1] in used else "", svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", svg)
    svg = re.sub(r">\s+<", "><", svg)
    return _MARKS.sub(_together, _NUMBERS.sub(_short, svg))


def _short(given: re.Match[str]) -> str:
    return re.sub(r"\s+", " ", re.sub(r"(\.\d\d)\d+", r"\1", given[0])).replace(' "', '"')


def _together(marks: re.Match[str]) -> str:
    style = marks[1]
    if re.search(r"(?<!-)opacity", style):  # of a group as a whole: not the same where marks overlap
        return marks[0]
    bare = marks[0].replace(f' style="{style}"', "")
    return f'<g style="{style}">{bare}</g>'
