"""Figures and the self-contained page; only reads results."""

from unseam.drawing import to_svg, write_svg
from unseam.report.calibration import calibration_figure
from unseam.report.factorisation import factorisation_figure
from unseam.report.figures import (
    curves_figure,
    gaps_figure,
    pictures_figure,
    recovery_figure,
)
from unseam.report.geometry import (
    basis_figure,
    cosine_figure,
    geometry_figures,
    precision_figure,
    spectrum_figure,
)
from unseam.report.independence import Curve, components_figure, strip_figure
from unseam.report.metrics import grid_figure, information_figure, scores_figure
from unseam.report.page import Section, write_page

__all__ = [
    "Curve",
    "Section",
    "basis_figure",
    "calibration_figure",
    "components_figure",
    "cosine_figure",
    "curves_figure",
    "factorisation_figure",
    "gaps_figure",
    "geometry_figures",
    "grid_figure",
    "information_figure",
    "pictures_figure",
    "precision_figure",
    "recovery_figure",
    "scores_figure",
    "spectrum_figure",
    "strip_figure",
    "to_svg",
    "write_page",
    "write_svg",
]
