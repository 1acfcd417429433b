"""Artefacts of no paper: checks of what the reproductions of all papers rest on."""

from unseam.papers.artefact import Artefact
from unseam.papers.ours.twins import TWINS_COMPARED

__all__ = ["ARTEFACTS"]

ARTEFACTS: tuple[Artefact, ...] = (TWINS_COMPARED,)
