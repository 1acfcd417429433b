"""A page of reproduced artefacts: published beside measured, with their figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unseam.drawing import to_svg
from unseam.report.page import Section

if TYPE_CHECKING:
    from unseam.papers import Finding, Result

__all__ = ["artefact_sections", "finding_row", "measured"]


def artefact_sections(results: Sequence[Result]) -> list[Section]:
    """One section per artefact: its claims, their outcomes and rules, and its figure.

    >>> from unseam.papers import artefacts, reproduce
    >>> result = reproduce(artefacts()["rolinek2019.worked_example"], "smoke", device="cpu")
    >>> len(artefact_sections([result])[0].table) == len(result.findings)
    True
    """
    return [_section(result) for result in results]


def measured(finding: Finding) -> str:
    """A measured number with its 95 % interval.

    >>> from unseam.papers import Finding
    >>> measured(Finding("MIG", "0.3", 0.25, 0.2, 0.3, "agrees"))
    '0.25 [0.2, 0.3]'
    """
    if finding.measured is None:
        return ""
    known = finding.lower is not None and finding.upper is not None
    interval = f" [{finding.lower:.3g}, {finding.upper:.3g}]" if known else ""
    return f"{finding.measured:.4g}{interval}"


def finding_row(finding: Finding) -> dict[str, str]:
    """A finding as a row of text.

    >>> from unseam.papers import Finding
    >>> finding_row(Finding("MIG", "0.30 ± 0.10", 0.25, 0.2, 0.3, "agrees", sd=0.05, n=6))["SD, n"]
    '0.05, 6'
    """
    numbers = [
        None if finding.sd is None else f"{finding.sd:.2g}",
        None if finding.n is None else str(finding.n),
    ]
    return {
        "quantity": finding.quantity,
        "published": finding.published,
        "measured": measured(finding),
        "SD, n": ", ".join(number for number in numbers if number is not None),
        "p": "" if finding.p is None else f"{finding.p:.2g}",
        "outcome": finding.outcome + (" (our check)" if finding.ours else ""),
        "note": finding.note,
    }


def _section(result: Result) -> Section:
    artefact = result.artefact
    judged = "Smoke scale judges nothing." if result.scale == "smoke" else f"{result.tally}."
    ours = f" Further checks of our own: {result.our_tally}." if result.our_tally.total else ""
    rules = tuple(dict.fromkeys(claim.rule for claim in artefact.claims))
    return Section(
        f"{artefact.key}: {artefact.title}",
        tuple(claim.says for claim in artefact.claims if not claim.ours),
        to_svg(artefact.plot(result.tables)) if set(result.tables) - {"missing"} else "",
        f"Figure of {artefact.key}, drawn from the measured tables.",
        table=tuple(finding_row(finding) for finding in result.findings),
        said=(
            (
                "",
                f"Claims that hold or agree, at {result.scale} scale: {judged}{ours} {artefact.note}".strip(),
            ),
        ),
        how=(*rules, f"Again with: {result.command}"),
    )
