"""One self-contained HTML page: prose, figures as inline SVG, and where the numbers come from."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from unseam.charts import style
from unseam.files import write_text
from unseam.locks import temporary_name

__all__ = ["Group", "Panel", "Section", "check_path", "write_page"]

# Part of its own width that a figure keeps: labels of 8 pt stay above 7 pixels of a phone.
_SHRUNK = 0.7
# Room for a chart beside others and beside words, in pixels of its own: it may shrink to three quarters.
_ROW, _BESIDE = 280 / 0.75, 344 / 0.75
_FONT = "/* font */"
_NUMBERS = re.compile(r' (?:d|x|y)="[^"]*"')
_MARKS = re.compile(r'<use [^>]*? style="([^"]*)"/>(?:<use [^>]*? style="\1"/>)+')


class Panel(NamedTuple):
    """A chart or strip of pictures with a caption above it."""

    markup: str
    """HTML that is safe, with a label of its own for those who cannot see it."""
    caption: str = ""
    wide: bool = False

    def fits(self, room: float) -> bool:
        """Whether its charts can be shown within so many pixels."""
        widths = re.findall(r'<svg class="chart"[^>]* style="width:([\d.]+)px', self.markup)
        return not self.wide and all(float(width) <= room for width in widths)


class Group(NamedTuple):
    """Panels of one model."""

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
        folded: whether what is said of several models is folded away too.
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
    folded: bool = False

    @property
    def key(self) -> str:
        """What links to it."""
        return "-".join(re.findall(r"\w+", self.title.lower()))

    @property
    def fits_in_columns(self) -> bool:
        """Whether all charts are small, so that models stand beside each other."""
        return all(panel.wide or panel.fits(_ROW) for group in self.groups for panel in group.panels)

    @property
    def fits_beside_words(self) -> bool:
        """Whether its one or two small charts, of one model, fit beside the words."""
        panels = [panel for group in self.groups for panel in group.panels]
        return (
            len(self.groups) == 1 and all(p.fits(_BESIDE) for p in panels) and not self.table and not self.svg
        )


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
    check_path(path)
    environment = Environment(
        autoescape=select_autoescape(default=True), trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_read("page.html"))
    shown = any(section.groups or section.svg for section in sections)
    text = template.render(
        title=title,
        lead=lead,
        sections=[
            section._replace(svg=_legible(slim(section.svg, f"f{place}-")))
            for place, section in enumerate(sections)
        ],
        details=json.dumps(about, indent=1, ensure_ascii=False, default=str),
        style=f"{style()}\n{_read('page.css')}",
        script=_read("page.js") if shown else "",
    )
    write_text(path, text.replace(_FONT, _embed_font(text) if shown else "", 1))
    return path


def _embed_font(text: str) -> str:
    """Rule for a font that holds the characters of a text: charts look the same everywhere, and when saved."""
    from fontTools.subset import Options, Subsetter, load_font  # type: ignore[import-untyped]
    from matplotlib import get_data_path

    options = Options(
        flavor="woff", recalc_timestamp=False, layout_features=[], hinting=False, notdef_outline=True
    )
    options.drop_tables = [*options.drop_tables, "FFTM"]
    font = load_font(str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), options)
    subsetter = Subsetter(options)
    subsetter.populate(text=text)
    subsetter.subset(font)
    font.flavor, made = "woff", io.BytesIO()
    font.save(made)
    font.close()
    data = base64.b64encode(made.getvalue()).decode()
    return f'@font-face {{ font-family: "unseam"; src: url(data:font/woff;base64,{data}) format("woff"); }}'


def check_path(path: Path) -> None:
    """Raise an error where a page could not be written, before anything is measured."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, such as {path / 'report.html'}")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise OSError(f"could not write {path}: {above} is no folder")
    probe = above / temporary_name(path.name)
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"could not write {path}: {above} may not be written to ({error.strerror})") from None


def slim(svg: str, prefix: str) -> str:
    """A figure of matplotlib in fewer characters: coordinates to a hundredth of a point, shared styles, prefixed names.

    Without it figures of one page would share names, and a page of all artefacts would be too large.
    """
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sid="([^"]*)"', lambda name: f' id="{prefix}{name[1]}"' if name[1] in used else "", svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", svg)
    svg = re.sub(r">\s+<", "><", svg)
    return _MARKS.sub(_share_style, _NUMBERS.sub(_shorten, svg))


def _shorten(given: re.Match[str]) -> str:
    return re.sub(r"\s+", " ", re.sub(r"(\.\d\d)\d+", r"\1", given[0])).replace(' "', '"')


def _share_style(marks: re.Match[str]) -> str:
    shared = marks[1]
    if re.search(r"(?<!-)opacity", shared):  # of a group as a whole: not the same where marks overlap
        return marks[0]
    bare = marks[0].replace(f' style="{shared}"', "")
    return f'<g style="{shared}">{bare}</g>'


def _legible(svg: str) -> str:
    """A figure that shrinks on small screens only as far as its labels can be read; beyond, its box scrolls."""
    width = re.match(r'<svg [^>]*?\bwidth="([\d.]+)pt"', svg)
    if width is None:
        return svg
    return svg.replace("<svg ", f'<svg style="min-width: {_SHRUNK * float(width[1]):.0f}pt" ', 1)


def _read(name: str) -> str:
    return files("unseam.report").joinpath(name).read_text(encoding="utf-8")
