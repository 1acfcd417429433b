"""Figures and the self-contained page; only reads results."""

from unseam.report.figures import (
    curves_figure,
    gaps_figure,
    pictures_figure,
    recovery_figure,
    to_svg,
    write_svg,
)
from unseam.report.geometry import (
    basis_figure,
    cosine_figure,
    geometry_figures,
    precision_figure,
    spectrum_figure,
)
from unseam.report.page import Section, write_page

__all__ = [
    "Section",
    "basis_figure",
    "cosine_figure",
    "curves_figure",
    "gaps_figure",
    "geometry_figures",
    "pictures_figure",
    "precision_figure",
    "recovery_figure",
    "spectrum_figure",
    "to_svg",
    "write_page",
    "write_svg",
]
