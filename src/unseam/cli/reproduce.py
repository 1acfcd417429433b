"""``unseam reproduce``: the papers' tables and figures, published beside measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unseam.cli.options import Device, Json
from unseam.printing import Row, print_json, print_rows, print_table

if TYPE_CHECKING:
    from unseam.papers import Artefact, Result

__all__ = ["artefact_rows", "finding_rows", "reproduce_artefacts", "result_record", "standing"]


def reproduce_artefacts(
    target: Annotated[
        str | None, typer.Argument(help="PAPER or PAPER.ARTEFACT; without one, all are listed.")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="smoke (seconds), laptop (minutes) or full (as published, on a GPU)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; by default nothing but the screen.")
    ] = None,
    world: Annotated[
        str | None,
        typer.Option(
            help="dsprites or shapes3d: the published file, once fetched, in the place of its twin. Without a target, "
            "every artefact that is measured on the twin."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="File of a page with all findings and figures (.html).")
    ] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure the papers' tables and figures again: published beside measured, with a verdict."""
    from unseam.papers import committed, results_folder
    from unseam.reproducing import chosen_artefacts, have_rows_on, run_artefacts

    artefacts = chosen_artefacts(target)
    _check(report)
    if scale is None and (target is None or "." not in target):
        listed = artefacts if world is None else have_rows_on(world, artefacts)
        kept = [(artefact, committed(artefact, out or results_folder(), world)) for artefact in listed]
        print_rows(artefact_rows(kept), title="artefacts and their committed verdicts", as_json=as_json)
        _report([result for _, result in kept if result is not None], report, as_json)
        return
    results = list(run_artefacts(artefacts, scale or "smoke", out=out, device=device, world=world))
    if as_json:
        print_json([result_record(result) for result in results])
        _report(results, report, as_json)
        return
    for result in results:
        print_table(finding_rows(result), title=f"{result.key} at {result.scale} scale: {result.verdict}")
        print(f"{result.seconds:.0f} s; again with: {result.command}")
        by_key = {artefact.key: artefact for artefact in artefacts}
        print(f"{standing(result, committed(by_key[result.key], results_folder(), result.world))}\n")
    _report(results, report, as_json)


def standing(result: Result, kept: Result | None) -> str:
    """How to take a verdict at this scale, and what the committed one is.

    >>> from unseam.papers import Outcome, Result
    >>> standing(Result("a2024.figure1", "laptop", {}, Outcome((), {}), {}, 1.0), None)
    'No result is committed yet.'
    """
    words = ""
    if result.scale == "smoke":
        words = "Smoke scale shows that everything runs; its trainings are too short for a verdict. "
    if kept is None:
        return words + "No result is committed yet."
    return f"{words}Committed at {kept.scale} scale: {kept.verdict} ({kept.spent.seconds:.0f} s on {kept.spent.on})."


def artefact_rows(kept: Sequence[tuple[Artefact, Result | None]]) -> list[Row]:
    """Artefacts with the verdicts of their committed results, and how many findings these are over.

    >>> from unseam.papers import artefacts
    >>> artefact_rows([(artefacts()["sikka2019.figure1"], None)])[0]["verdict"]
    'not measured yet'
    """
    return [
        {
            "artefact": artefact.key,
            "shows": artefact.title,
            "verdict": "not measured yet" if result is None else result.verdict,
            "reproduced": None if result is None else result.tally.reproduced,
            "partly": None if result is None else result.tally.partly,
            "judged": None if result is None else result.tally.judged,
            "scale": None if result is None else result.scale,
            "seconds": None if result is None else result.spent.seconds,
            "on": None if result is None else result.spent.on,
        }
        for artefact, result in kept
    ]


def finding_rows(result: Result) -> list[Row]:
    """Published beside measured, one line a finding.

    >>> from unseam.papers import Finding, Outcome, Result
    >>> found = Finding("β of the largest ELBO", "1", 1.0, None, None, "reproduced")
    >>> finding_rows(Result("a2024.figure1", "smoke", {}, Outcome((found,), {}), {}, 1.0))[0]["measured"]
    '1'
    """
    from unseam.report.artefacts import measured

    return [
        {
            "quantity": finding.quantity,
            "published": finding.published,
            "measured": measured(finding.measured, finding.lower, finding.upper),
            "verdict": finding.verdict,
            "note": finding.note,
        }
        for finding in result.outcome.findings
    ]


def result_record(result: Result) -> Row:
    """A measured artefact as JSON values, without its tables.

    >>> from unseam.papers import Outcome, Result
    >>> result_record(Result("a2024.figure1", "smoke", {}, Outcome((), {}), {}, 1.0))["scale"]
    'smoke'
    """
    return {
        "artefact": result.key,
        "scale": result.scale,
        "verdict": result.verdict,
        "findings": [finding._asdict() for finding in result.outcome.findings],
        "note": result.outcome.note,
        "seconds": result.seconds,
        "command": result.command,
        "settings": dict(result.settings),
        "about": dict(result.about),
    }


def _check(path: Path | None) -> None:
    """Refuse a page that could not be written before anything is measured for it."""
    from unseam.report.page import check_path

    if path is not None:
        check_path(path)


def _report(results: Sequence[Result], path: Path | None, as_json: bool) -> None:
    """Write the page of findings and figures, and name it where that is no part of JSON."""
    from unseam.report import write

    if path is None:
        return
    page = write(results, path)
    if not as_json:
        print(f"Open {page}")
