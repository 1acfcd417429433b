"""The report of models and artefacts as one self-contained page; only reads results."""

from unseam.drawing import to_svg, write_svg
from unseam.report._panels import geometry_figures, seeds_panel
from unseam.report.artefacts import artefact_sections
from unseam.report.matching import SCORES, match
from unseam.report.measure import study
from unseam.report.page import Group, Panel, Section, write_page
from unseam.report.story import sections
from unseam.report.studies import run_studies
from unseam.report.study import Directions, Factorisation, Match, Missing, Pictures, Study, Walks
from unseam.report.sweep import sweep_sections, write_sweep
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
    "Section",
    "artefact_sections",
    "geometry_figures",
    "seeds_panel",
    "to_svg",
    "sweep_sections",
    "write_page",
    "write_sweep",
    "write_svg",
]
