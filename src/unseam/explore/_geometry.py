"""The geometry at the current point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from unseam.charts import Bar, bars, data_url, decimals, matrix, significant, strip
from unseam.explore._controls import box, card, markup, picture, words
from unseam.explore.local import Local, local_view
from unseam.explore.maps import latent_name

if TYPE_CHECKING:
    from unseam.explore._page import Page


class GeometryPanel:
    """Columns of the Jacobian, singular directions, |cos| and spectrum."""

    def __init__(self, page: Page) -> None:
        self.page = page
        signs = "vermilion brightens, blue darkens"
        if page.exhibit.look.is_coloured:
            signs = "grey is unchanged, and a colour shows where it increases"
        elif not page.exhibit.look.is_picture:
            signs = "vermilion raises, blue lowers"
        lead = f"Effect of an infinitesimal step: {signs}."
        with card("Geometry here", "geometry", lead):
            self.numbers = markup("numbers")
            kind = "strip" if page.exhibit.look.is_coloured else "strip signed"
            self.strips = box("div", "strips")
            with self.strips:
                words("h3", "along each latent: columns of the Jacobian")
                self.columns = picture("Columns of the Jacobian, one picture per active latent", kind)
                self.column_names = markup("strip-names")
                words("h3", "along each singular vector")
                self.directions = picture("Change of the picture along each singular vector", kind)
                self.direction_names = markup("strip-names")
            with box("div", "plots"):
                self.cosines, self.spectrum = _plot("|cos| between columns"), _plot("singular values")

    def refresh(self) -> None:
        """Measure at the present point."""
        exhibit, state = self.page.exhibit, self.page.state
        z = torch.tensor(state.z, dtype=torch.float64)
        self.page.details.ask(
            lambda: _drawn(local_view(exhibit, state.member, z, state.rotation)), self._show
        )

    def _show(self, drawn: tuple[Local, str, str]) -> None:
        found, columns, directions = drawn
        self.page.well("geometry")
        names = [latent_name(latent, self.page.state) for latent in found.latents]
        self.strips.style(f"--count: {len(names)}")
        self.columns.set_source(columns)
        self.directions.set_source(directions)
        self.column_names.set_content(_names(names, found.norms))
        marks = [f"v{k + 1}" for k in range(len(names))]
        self.direction_names.set_content(_names(marks, found.singular_values))
        self.cosines.set_content(_draw_cosines(found, names))
        self.cosines.parent_slot.parent.set_visibility(len(names) > 1)
        self.spectrum.set_content(_draw_spectrum(found))
        self.numbers.set_content(_numbers(found))


def _plot(title: str) -> Any:
    with box("div", "plot"):
        words("h3", title)
        return markup("drawing")


def _drawn(found: Local) -> tuple[Local, str, str]:
    """Pictures are made into addresses in the thread that made them."""
    return found, data_url(strip(found.columns)), data_url(strip(found.directions))


def _draw_cosines(found: Local, names: list[str]) -> str:
    """|cos| between columns of the Jacobian: pale where orthogonal."""
    values = np.array(found.cosines)
    np.fill_diagonal(values, np.nan)
    label = f"Mean |cos| between columns {decimals(found.cosine)}"
    return matrix(values, names, names, label, numbers=len(names) <= 6, size=170)


def _draw_spectrum(found: Local) -> str:
    rows = [Bar(f"v{k + 1}", value, "c1") for k, value in enumerate(found.singular_values)]
    label = "Singular values " + ", ".join(significant(value) for value in found.singular_values)
    return bars(rows, "singular value", label, top=max(found.singular_values) or 1.0, width=205, height=170)


def _names(names: list[str], values: tuple[float, ...]) -> str:
    cells = (
        f"<span>{name} <b>{significant(value, 2)}</b></span>"
        for name, value in zip(names, values, strict=True)
    )
    return "".join(cells)


def _numbers(found: Local) -> str:
    share = f"random {decimals(found.random_dto)}" if found.random_dto else "one latent"
    rows = [
        ("DtO here", decimals(found.dto), share),
        ("mean |cos|", decimals(found.cosine), "0: orthogonal"),
        ("Hadamard gap", decimals(found.gap), "nats"),
    ]
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{value} <small>{note}</small></dd></div>" for name, value, note in rows
    )
    note = "<p>Two singular values nearly coincide: the directions here are nearly arbitrary.</p>"
    return f"<dl>{cells}</dl>{note if found.degenerate else ''}"
