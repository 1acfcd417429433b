"""Write a report: one self-contained page of runs, decoders, inspections or artefacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseam.adapters import wrap
from unseam.data import World
from unseam.inspection import Inspection
from unseam.report.artefacts import artefact_sections
from unseam.report.measure import study
from unseam.report.page import Section, check_path, write_page
from unseam.report.story import sections
from unseam.report.studies import check_room, compare_runs
from unseam.report.study import Missing, Study
from unseam.run import Run, open_run
from unseam.subject import Subject
from unseam.training import Ensemble

if TYPE_CHECKING:
    from unseam.papers import Result

__all__ = ["write"]

Reported = Study | Inspection | Subject | Run | Ensemble | str | Path


def write(
    results: Reported | Result | Iterable[Reported | Result] | Any,
    path: str | Path | None = None,
    *,
    title: str | None = None,
    lead: str | None = None,
    first: Sequence[Section] = (),
    about: Mapping[str, Any] | None = None,
    world: World | str | None = None,
    data: object = None,
    **options: Any,
) -> Path:
    """Write what was found as one HTML file that opens from disk without a network; models are shown side by side.

    The same results give the same bytes. Nothing of the file is written before all of it is made.

    Args:
        results: runs, their folders, or ensembles; subjects, or one model that :func:`unseam.wrap` takes; studies of
            :func:`unseam.report.study` or :func:`unseam.report.run_studies`; inspections of :func:`unseam.inspect`; or
            results of reproduced artefacts. One, or several.
        path: file to write; by default ``report.html`` in the folder of the one run.
        title: heading of the page.
        lead: paragraph below it; by default what the models are.
        first: sections that come before all others.
        about: settings and versions, shown folded away; by default those of the models.
        world: the data, where ``results`` are folders of runs that were trained on the user's own.
        data: the same, as an array, a file or a folder.
        options: of one model those of :func:`unseam.wrap` (``x``, ``likelihood``, ``latent``, …).
    """
    if options or _is_model(results):
        results = wrap(results, **options)
    given = list(results) if isinstance(results, Iterable) and not isinstance(results, str) else [results]
    if not given:
        raise ValueError("results must hold at least one run, study, inspection or artefact, got none")
    target = _target(given, path)
    check_path(target)
    if any(isinstance(one, Reported) for one in given):
        if others := [one for one in given if not isinstance(one, Reported)]:
            raise ValueError(
                "results must be all artefacts or all models: one page does not hold both, got "
                f"{type(others[0]).__name__} among models; pass a model of your own as unseam.wrap(model, x=x)"
            )
        studies = _studies(
            [
                open_run(one, world, data) if isinstance(one, str | Path | Run | Ensemble) else one
                for one in given
            ]
        )
        parts, said = sections(studies), _models(studies)
        shown: Mapping[str, Any] = {study.name: study.about for study in studies if study.about}
        name = f"What did {'this model' if len(studies) == 1 else 'these models'} learn?"
    else:
        reproduced = _results(given)
        parts, said = artefact_sections(reproduced), _outcomes(reproduced)
        shown = {result.artefact.key: result.about for result in reproduced}
        name = "Published beside measured"
    return write_page(
        target, title or name, lead or said, [*first, *parts], shown if about is None else about
    )


def _is_model(results: Any) -> bool:
    """Whether it is a model of another library, or a decoder, rather than what was measured of one."""
    if isinstance(results, str | Path):
        return str(results).endswith(".onnx")
    if isinstance(results, Reported | Sequence) or (isinstance(results, Iterable) and not callable(results)):
        return False
    from unseam.papers import Result

    return not isinstance(results, Result)


def _target(given: Sequence[Any], path: str | Path | None) -> Path:
    if path is not None:
        return Path(path)
    folder = given[0].path if isinstance(given[0], Run) else given[0]
    if len(given) == 1 and isinstance(folder, str | Path):
        return Path(folder) / "report.html"
    raise ValueError("path must name the file to write where results are not one run")


def _studies(given: Sequence[Any]) -> list[Study]:
    """Every model that is to be shown."""
    runs = [one for one in given if isinstance(one, Run)]
    measured = iter(compare_runs(runs) if runs else ())
    made = [
        one for target in given for one in (next(measured) if isinstance(target, Run) else [_study(target)])
    ]
    check_room(len(made))
    return made


def _study(one: Study | Subject | Inspection) -> Study:
    if isinstance(one, Study):
        return one
    if isinstance(one, Subject):
        return study(one)
    why = "An inspection alone holds neither decoder nor data; make a study of them by unseam.report.study."
    gap = Missing("Pictures, densities, scores and thresholds of β", why)
    return Study("decoder", (one,), missing=(gap,))


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
    return f"{text}. Measured at {found.points} points."


def _results(given: Sequence[Any]) -> list[Result]:
    """The results of artefacts; anything else is refused."""
    from unseam.papers import Result

    if unknown := [one for one in given if not isinstance(one, Result)]:
        raise ValueError(
            "results must be runs, subjects, studies, inspections or artefacts: pass a model of your own as "
            f"unseam.wrap(model, x=x), got {type(unknown[0]).__name__}"
        )
    return list(given)


def _outcomes(results: Sequence[Result]) -> str:
    from unseam.papers import Tally

    count = Tally(*map(sum, zip(*(result.tally for result in results), strict=True)))
    return (
        f"{len(results)} artefact{'s' * (len(results) > 1)} of the papers, measured again; findings on the papers' "
        f"claims that hold or agree: {count}."
    )
