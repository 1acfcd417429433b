"""A page of reproduced artefacts: published beside measured, with their figures."""

from __future__ import annotations

from collections.abc import Sequence

from unseam.drawing import to_svg
from unseam.papers import Result, artefacts
from unseam.report.page import Section

__all__ = ["artefact_sections", "in_words", "measured"]


def artefact_sections(results: Sequence[Result]) -> list[Section]:
    """One part an artefact: its claim, its verdict, its findings and its figure.

    >>> from unseam.papers import Outcome
    >>> artefact_sections([Result("sikka2019.figure1", "smoke", {}, Outcome((), {}), {}, 1.0)])[0].table
    ()
    """
    return [_section(result) for result in results]


def measured(value: float | None, lower: float | None, upper: float | None) -> str:
    """A measured number with its interval.

    >>> measured(0.25, 0.2, 0.3)
    '0.25 [0.2, 0.3]'
    """
    if value is None:
        return ""
    interval = "" if lower is None or upper is None else f" [{lower:.3g}, {upper:.3g}]"
    return f"{value:.4g}{interval}"


def in_words(verdict: str) -> str:
    """A verdict that can stand in a sentence.

    >>> in_words("partly")
    'partly reproduced'
    """
    return "partly reproduced" if verdict == "partly" else verdict


def _section(result: Result) -> Section:
    artefact = artefacts().get(result.key)
    title = result.key if artefact is None else f"{result.key}: {artefact.title}"
    drawn = "" if artefact is None or not result.outcome.tables else to_svg(artefact.draw(result.outcome.tables))
    claim = () if artefact is None else (artefact.claim,)
    rows = tuple(
        {
            "quantity": finding.quantity,
            "published": finding.published,
            "measured": measured(finding.measured, finding.lower, finding.upper),
            "verdict": finding.verdict,
            "note": finding.note,
        }
        for finding in result.outcome.findings
    )
    said = f"{in_words(result.verdict).capitalize()}, at {result.scale} scale. {result.outcome.note}".strip()
    how = () if artefact is None else (f"Counts as reproduced: {artefact.criterion}",)
    return Section(
        title,
        claim,
        drawn,
        f"Figure of {result.key}, drawn from the measured tables.",
        table=rows,
        said=(("", said),),
        how=(*how, f"Again with: {result.command}"),
    )
