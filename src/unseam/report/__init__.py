"""The report of models and artefacts as one self-contained page, and its figures; only reads results."""

from unseam.drawing import to_svg, write_svg
from unseam.report.artefacts import artefact_sections
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
from unseam.report.matching import SCORES, match
from unseam.report.measure import study
from unseam.report.metrics import grid_figure, information_figure, scores_figure
from unseam.report.page import Group, Panel, Section, write_page
from unseam.report.seeds import seeds_panel
from unseam.report.story import sections
from unseam.report.studies import run_studies
from unseam.report.study import Directions, Factorisation, Match, Missing, Pictures, Study, Walks
from unseam.report.writing import write

__all__ = [
    "write",
    "study",
    "run_studies",
    "sections",
    "match",
    "SCORES",
    "Study",
    "Directions",
    "Factorisation",
    "Match",
    "Missing",
    "Pictures",
    "Walks",
    "Group",
    "Panel",
    "artefact_sections",
    "seeds_panel",
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
