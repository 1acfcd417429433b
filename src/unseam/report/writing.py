"""Write a report: one self-contained page of runs, decoders, inspections or artefacts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unseam.inspection import Inspection
from unseam.papers import Result, Tally
from unseam.report.artefacts import artefact_sections
from unseam.report.page import Section, check_path, write_page
from unseam.report.runs import MODELS, count_models, run_studies
from unseam.report.story import sections
from unseam.report.study import Missing, Study
from unseam.targets import Inspected

__all__ = ["all_runs", "write"]

Reported = Study | Inspection | Inspected | Result | str | Path


def write(
    results: Reported | Sequence[Reported],
    path: str | Path | None = None,
    *,
    title: str | None = None,
    lead: str | None = None,
    first: Sequence[Section] = (),
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write what was found as one HTML file that opens from disk without a network; several models stand side by side.

    The same results give the same bytes. Nothing of the file is written before all of it is made.

    Args:
        results: folders of runs; studies of :func:`unseam.report.study` or :func:`unseam.report.run_studies`;
            inspections of :func:`unseam.inspect`; or results of reproduced artefacts. One, or several.
        path: file to write; by default ``report.html`` in the folder of the one run.
        title: heading of the page.
        lead: paragraph below it; by default what the models are.
        first: sections that come before all others.
        about: settings and versions, shown folded away; by default those of the models.
    """
    given = [results] if isinstance(results, Reported) else list(results)
    if not given:
        raise ValueError("results must hold at least one run, study, inspection or artefact, got none")
    if unknown := [one for one in given if not isinstance(one, Reported)]:
        raise ValueError(
            "results must be runs, studies, inspections or artefacts; make a study of a decoder by "
            f"unseam.report.study, got {type(unknown[0]).__name__}"
        )
    target = _target(given, path)
    check_path(target)
    measured = [one for one in given if isinstance(one, Result)]
    if measured and len(measured) < len(given):
        raise ValueError("results must be all artefacts or all models: one page does not hold both")
    if measured:
        parts, said = artefact_sections(measured), _outcomes(measured)
        shown: Mapping[str, Any] = {result.artefact.key: result.about for result in measured}
        name = "Published beside measured"
    else:
        studies = _studies(given)
        parts, said = sections(studies), _models(studies)
        shown = {study.name: study.about for study in studies if study.about}
        name = f"What did {'this model' if len(studies) == 1 else 'these models'} learn?"
    return write_page(
        target, title or name, lead or said, [*first, *parts], shown if about is None else about
    )


def all_runs(paths: Sequence[Path], **options: Any) -> list[list[Study]]:
    """Models of runs; of several, under the names of their folders.

    Too many are refused before any is measured.

    Args:
        paths: folders of the runs.
        options: of :func:`unseam.report.run_studies`.
    """
    _check_room(sum(count_models(path, options.get("members")) for path in paths))
    measured = [run_studies(path, **options) for path in paths]
    if len(paths) == 1:
        return [list(measured[0])]
    return [_under(folder, found) for folder, found in zip(_folders(paths), measured, strict=True)]


def _under(run: str, found: Sequence[Study]) -> list[Study]:
    """Models under the name of their run."""
    return [
        dataclasses.replace(study, name=run if len(found) == 1 else f"{run}: {study.name}") for study in found
    ]


def _folders(paths: Sequence[Path]) -> list[str]:
    """Names of folders, with as many of those above them as tell them apart."""
    whole = [Path(os.path.abspath(path)).parts for path in paths]
    tails: list[str] = []
    for depth in range(1, max(map(len, whole)) + 1):
        tails = ["/".join(parts[-depth:]) for parts in whole]
        if len(set(tails)) == len(set(whole)):
            break
    return tails


def _check_room(models: int) -> None:
    if models > MODELS:
        raise ValueError(f"at most {MODELS} models stand side by side, got {models}; leave some out")


def _target(given: Sequence[Any], path: str | Path | None) -> Path:
    if path is not None:
        return Path(path)
    if len(given) == 1 and isinstance(given[0], str | Path):
        return Path(given[0]) / "report.html"
    raise ValueError("path must name the file to write where results are not one run")


def _studies(given: Sequence[Any]) -> list[Study]:
    """Every model that is to be shown."""
    paths = [Path(one) for one in given if isinstance(one, str | Path)]
    runs = iter(all_runs(paths) if paths else ())
    made = [
        study for one in given for study in (next(runs) if isinstance(one, str | Path) else [_study(one)])
    ]
    _check_room(len(made))
    return made


def _study(one: Study | Inspection | Inspected) -> Study:
    if isinstance(one, Study):
        return one
    name, found = one if isinstance(one, Inspected) else ("decoder", one)
    why = "An inspection alone holds neither decoder nor data; make a study of them by unseam.report.study."
    return Study(name, (found,), missing=(Missing("Pictures, densities, scores and thresholds of β", why),))


def _models(studies: Sequence[Study]) -> str:
    """What the page is about, in a sentence or two."""
    names = ", ".join(study.name for study in studies)
    worlds = {str(study.about["world"]): study.about["world"] for study in studies if "world" in study.about}
    text = f"One model, {names}" if len(studies) == 1 else f"{len(studies)} models side by side: {names}"
    if len(worlds) == 1:
        (world,) = worlds.values()
        twin = f" (a twin of {world['twin_of']}, rendered here)" if "twin_of" in world else ""
        known = (
            f", whose factors are known: {', '.join(world['factors']).replace('_', ' ')}"
            if world["factors"]
            else ""
        )
        text += f", trained on {world['items']} items of {world['name']}{twin}{known}"
    found = studies[0].found
    which = "it" if len(studies) == 1 else "them"
    return f"{text}. Measured at {found.points} points; every number below was measured on {which}."


def _outcomes(results: Sequence[Result]) -> str:
    count = Tally(*map(sum, zip(*(result.tally for result in results), strict=True)))
    return (
        f"{len(results)} artefact{'s' * (len(results) > 1)} of the papers, measured again; findings on the papers' "
        f"claims that hold or agree: {count}."
    )
