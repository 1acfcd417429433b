"""All artefacts by key."""

from __future__ import annotations

from collections.abc import Mapping

from unseam.papers.allen2024 import ARTEFACTS as ALLEN2024
from unseam.papers.artefact import Artefact
from unseam.papers.bhowal2024 import ARTEFACTS as BHOWAL2024
from unseam.papers.ours import ARTEFACTS as OURS
from unseam.papers.rolinek2019 import ARTEFACTS as ROLINEK2019
from unseam.papers.sikka2019 import ARTEFACTS as SIKKA2019

__all__ = ["artefacts"]


def artefacts() -> Mapping[str, Artefact]:
    """Every artefact by its key, in the order of papers and of their tables and figures; those of no paper last.

    >>> list(artefacts())[0]
    'sikka2019.figure1'
    """
    every = (*SIKKA2019, *ROLINEK2019, *BHOWAL2024, *ALLEN2024, *OURS)
    return {artefact.key: artefact for artefact in every}
