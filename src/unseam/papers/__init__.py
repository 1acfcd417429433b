"""The papers' tables, figures and theorems, measured again and judged by rules that stand beside them."""

from unseam.papers.artefact import SCALES, Artefact, Result, Scale, Tally, Workplace, on_world, reproduce
from unseam.papers.catalogue import artefacts
from unseam.papers.claims import OUTCOMES, Claim, Finding, Outcome
from unseam.papers.results import committed, load_result, results_folder, save_result

__all__ = [
    "OUTCOMES",
    "SCALES",
    "Artefact",
    "Claim",
    "Finding",
    "Outcome",
    "Result",
    "Scale",
    "Tally",
    "Workplace",
    "artefacts",
    "committed",
    "load_result",
    "on_world",
    "reproduce",
    "results_folder",
    "save_result",
]
