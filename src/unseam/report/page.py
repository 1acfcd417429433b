"""One self-contained HTML page: prose, figures as inline SVG, and where the numbers come from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from unseam.training.files import write_atomically

__all__ = ["Section", "write_page"]

# Part of its own width that a figure keeps: labels of 8 pt stay above 7 pixels of a phone.
_SHRUNK = 0.7


class Section(NamedTuple):
    """One part of a page.

    Attributes:
        title: heading.
        prose: paragraphs of plain text.
        svg: the figure as an ``<svg>`` element, or empty.
        alt: what the figure shows, for those who cannot see it.
        table: rows with one set of keys, or nothing.

    >>> Section("Who lives", ("Three of five.",)).title
    'Who lives'
    """

    title: str
    prose: tuple[str, ...]
    svg: str = ""
    alt: str = ""
    table: tuple[Mapping[str, str], ...] = ()


def write_page(
    path: Path, title: str, lead: str, sections: Sequence[Section], about: Mapping[str, Any]
) -> Path:
    """Write a page that opens from disk without a network.

    Args:
        path: file to write.
        title: heading of the page.
        lead: one paragraph that says what is to be seen.
        sections: its parts, in order.
        about: versions, hardware, configuration: shown folded away at the end.
    """
    from jinja2 import Environment, select_autoescape

    for section in sections:
        if section.svg and not section.alt:
            raise ValueError(f"section {section.title!r} has a figure and must have an alt text")
    source = files("unseam.report").joinpath("page.html").read_text(encoding="utf-8")
    template = Environment(autoescape=select_autoescape(default=True)).from_string(source)
    details = json.dumps(about, indent=1, ensure_ascii=False, default=str)
    shown = [section._replace(svg=_legible(section.svg)) for section in sections]
    text = template.render(title=title, lead=lead, sections=shown, details=details)
    write_atomically(path, lambda temporary: _write(temporary, text))
    return path


def _legible(svg: str) -> str:
    """A figure that shrinks on small screens only as far as its labels can be read; beyond, its box scrolls."""
    width = re.match(r'<svg [^>]*?\bwidth="([\d.]+)pt"', svg)
    if width is None:
        return svg
    return svg.replace("<svg ", f'<svg style="min-width: {_SHRUNK * float(width[1]):.0f}pt" ', 1)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
