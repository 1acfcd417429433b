"""The papers' tables, figures and theorems, measured again: published beside measured, with verdicts."""

from unseam.papers.artefact import (
    SCALES,
    Artefact,
    Finding,
    Judgement,
    Outcome,
    Result,
    Scale,
    Verdict,
    Workplace,
    on_world,
    reproduce,
    verdict,
)
from unseam.papers.catalogue import artefacts
from unseam.papers.results import committed, load_result, results_folder, save_result

__all__ = [
    "SCALES",
    "Artefact",
    "Finding",
    "Judgement",
    "Outcome",
    "Result",
    "Scale",
    "Verdict",
    "Workplace",
    "artefacts",
    "committed",
    "load_result",
    "on_world",
    "reproduce",
    "results_folder",
    "save_result",
    "verdict",
]
