"""One self-contained HTML page: prose, figures as inline SVG, and where the numbers come from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from unseam.drawing import COLOURS
from unseam.report._chart import ramps
from unseam.training.files import write_atomically

__all__ = ["Group", "Panel", "Section", "write_page"]

# Part of its own width that a figure keeps: labels of 8 pt stay above 7 pixels of a phone.
_SHRUNK = 0.7
# The same colours on dark paper: lighter, as far apart, and as far from the paper.
_ON_DARK = ("#56B4E9", "#F28E4B", "#2FC79A", "#E3A3CB", "#F0C04A")


class Panel(NamedTuple):
    """A chart or strip of pictures with words over it.

    >>> Panel("<svg></svg>", "KL of each latent").caption
    'KL of each latent'
    """

    markup: str
    """HTML that is safe, with a label of its own for those who cannot see it."""
    caption: str = ""
    wide: bool = False


class Group(NamedTuple):
    """Panels of one model.

    >>> Group("β-VAE", (Panel("<svg></svg>"),)).name
    'β-VAE'
    """

    name: str
    panels: tuple[Panel, ...]


class Section(NamedTuple):
    """One part of a page.

    Attributes:
        title: heading.
        prose: paragraphs of plain text.
        svg: the figure as an ``<svg>`` element, or empty.
        alt: what the figure shows, for those who cannot see it.
        table: rows with one set of keys, or nothing.
        said: by model, what its numbers say; without names where there is one model. Lines after the first
            become a list.
        groups: charts of each model.
        numbers: rows of a table that is folded away.
        how: paragraphs on how it is measured, folded away.

    >>> Section("Who lives", ("Three of five.",)).title
    'Who lives'
    """

    title: str
    prose: tuple[str, ...]
    svg: str = ""
    alt: str = ""
    table: tuple[Mapping[str, str], ...] = ()
    said: tuple[tuple[str, str], ...] = ()
    groups: tuple[Group, ...] = ()
    numbers: tuple[Mapping[str, str], ...] = ()
    how: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What links to it."""
        return "-".join(re.findall(r"\w+", self.title.lower()))

    @property
    def small(self) -> bool:
        """Whether each model has one small chart, so that they fit beside each other."""
        return all(len(group.panels) == 1 and not group.panels[0].wide for group in self.groups)

    @property
    def beside(self) -> bool:
        """Whether its one small chart fits beside the words."""
        return len(self.groups) == 1 and self.small and not self.table and not self.svg


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
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, such as {path / 'report.html'}")
    environment = Environment(
        autoescape=select_autoescape(default=True), trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_read("page.html"))
    text = template.render(
        title=title,
        lead=lead,
        sections=[section._replace(svg=_legible(section.svg)) for section in sections],
        details=json.dumps(about, indent=1, ensure_ascii=False, default=str),
        style=f"{_read('page.css')}\n{_colours()}\n{ramps()}",
        script=_read("page.js") if any(section.groups for section in sections) else "",
    )
    write_atomically(path, lambda temporary: _write(temporary, text))
    return path


def _colours() -> str:
    """Style rules of the colours that tell models apart."""
    light, dark = (
        " ".join(f"--c{k}: {colour};" for k, colour in enumerate(colours)) for colours in (COLOURS, _ON_DARK)
    )
    rules = "\n".join(f".c{k} {{ --mark: var(--c{k}); }}" for k in range(len(COLOURS)))
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{rules}"


def _legible(svg: str) -> str:
    """A figure that shrinks on small screens only as far as its labels can be read; beyond, its box scrolls."""
    width = re.match(r'<svg [^>]*?\bwidth="([\d.]+)pt"', svg)
    if width is None:
        return svg
    return svg.replace("<svg ", f'<svg style="min-width: {_SHRUNK * float(width[1]):.0f}pt" ', 1)


def _read(name: str) -> str:
    return files("unseam.report").joinpath(name).read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
