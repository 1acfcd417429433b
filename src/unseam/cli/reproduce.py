"""``unseam reproduce``: the papers' claims, published beside measured, with their outcomes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from unseam.cli.options import Device, Json
from unseam.cli.printing import Row, print_json, print_rows, print_table

if TYPE_CHECKING:
    from unseam.papers import Artefact, Result

__all__ = ["chosen_artefacts", "have_rows_on", "reproduce_artefacts", "run_artefacts"]

FORMER = {"rolinek2019.foretold": "rolinek2019.predicted"}
"""Earlier names of artefacts."""
TIMES = {
    "laptop": "minutes on two cores",
    "full": "as published, up to hours on a GPU",
}
SMOKE = "Smoke scale judges nothing: it shows that everything runs, with trainings too short to agree with anything."


def reproduce_artefacts(
    target: Annotated[
        str | None, typer.Argument(help="PAPER or PAPER.ARTEFACT; without one, all are listed.")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="Measure again: smoke (seconds), laptop (minutes) or full (as published, on a GPU). Without it, the "
            "committed result is shown."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; by default nothing is written.")
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
    """Measure the papers' claims again: published beside measured, with an outcome for each."""
    from unseam.papers import committed, results_folder

    artefacts = chosen_artefacts(target)
    if report is not None:
        from unseam.report.page import check_path

        check_path(report)
    if scale is None:
        listed = artefacts if world is None else have_rows_on(world, artefacts)
        stored = [(artefact, committed(artefact, out or results_folder(), world)) for artefact in listed]
        results = [result for _, result in stored if result is not None]
        if target is None or "." not in target:
            rows = [_listed(artefact, result) for artefact, result in stored]
            print_rows(rows, title="artefacts and their committed outcomes", as_json=as_json)
        elif not results:
            scales = ", ".join(artefacts[0].presets)
            raise ValueError(f"{target} has no committed result; measure it with --scale {scales}")
        else:
            _print(results, as_json)
    else:
        if scale == "smoke" and not as_json:
            print(SMOKE)
        results = list(run_artefacts(artefacts, scale, out=out, device=device, world=world))
        _print(results, as_json)
    if report is not None:
        from unseam.report import write

        page = write(results, report)
        if not as_json:
            print(f"Open {page}")


def chosen_artefacts(target: str | None) -> list[Artefact]:
    """All artefacts, those of one paper, or one.

    >>> [artefact.key for artefact in chosen_artefacts("sikka2019.figure1")]
    ['sikka2019.figure1']
    """
    from unseam.papers import artefacts

    every = artefacts()
    if target is None:
        return list(every.values())
    target = FORMER.get(target, target)
    found = [artefact for key, artefact in every.items() if target in (key, artefact.paper)]
    if not found:
        papers = dict.fromkeys(artefact.paper for artefact in every.values())
        near = [key for key in every if key.startswith(target.split(".")[0])]
        raise ValueError(
            f"no artefact is named {target!r}; "
            + (f"this paper has {', '.join(near)}" if near else f"papers are {', '.join(papers)}")
        )
    return found


def have_rows_on(world: str, chosen: Sequence[Artefact], scale: str | None = None) -> list[Artefact]:
    """Artefacts of which some part is measured on the twin of a published data set, at one scale or at any.

    Args:
        world: the published data set, ``dsprites`` or ``shapes3d``.
        chosen: among which artefacts.
        scale: at which scale; any by default.

    >>> [artefact.key for artefact in have_rows_on("shapes3d", chosen_artefacts("ours"))]
    ['ours.twins']
    """
    from unseam.papers import on_world
    from unseam.papers.artefact import TWINS

    if world not in TWINS:
        raise ValueError(f"world must be one of {', '.join(TWINS)}, got {world!r}")

    def has_row(settings: object) -> bool:
        try:
            on_world(settings, world)
        except ValueError:
            return False
        return True

    return [
        artefact
        for artefact in chosen
        if any(has_row(preset) for name, preset in artefact.presets.items() if scale in (None, name))
    ]


def run_artefacts(
    chosen: Sequence[Artefact],
    scale: str,
    *,
    out: Path | None,
    device: str | None,
    world: str | None = None,
) -> Iterator[Result]:
    """Measure artefacts one after another.

    Of several, those that lack the scale, or have no row on the twin of ``world``, are named on stderr and left out.
    With a folder, results and figures are saved there, checkpoints until an artefact is done, and what was measured of
    trainings that artefacts of a paper share in ``PAPER/trainings``, which later commands use.
    """
    from unseam.papers import Scale
    from unseam.papers.artefact import TWINS
    from unseam.training import Interrupted

    if scale not in get_args(Scale):
        raise ValueError(f"--scale must be one of {', '.join(get_args(Scale))}, got {scale!r}")
    able = list(chosen)
    if len(chosen) > 1:
        able = [artefact for artefact in chosen if scale in artefact.presets]
        _name_others(chosen, able, f"without {scale} scale, and left out")
        if world is not None:
            measured = have_rows_on(world, able, scale)
            _name_others(able, measured, f"not measured on {TWINS[world]}, the twin of {world}, and left out")
            able = measured
        if not able:
            raise ValueError("none of these artefacts is left: see `unseam reproduce` for all of them")
    with TemporaryDirectory() as passing:
        for artefact in able:
            try:
                result = _run(artefact, scale, out, device, world, Path(passing))
            except Interrupted as stopped:
                if out is not None:
                    raise
                raise Interrupted(
                    "stopped; without --out nothing of it is saved, and the next one starts over",
                    stopped.signal,
                ) from None
            yield result


def _name_others(every: Sequence[Artefact], chosen: Sequence[Artefact], why: str) -> None:
    if others := [artefact.key for artefact in every if artefact not in chosen]:
        print(f"{why}: {', '.join(others)}", file=sys.stderr)


def _run(
    artefact: Artefact, scale: str, out: Path | None, device: str | None, world: str | None, passing: Path
) -> Result:
    from unseam.drawing import write_svg
    from unseam.files import remove_folder
    from unseam.papers import reproduce, save_result

    if scale in TIMES:
        print(f"measuring {artefact.key} at {scale} scale: {TIMES[scale]}", file=sys.stderr)
    name = ".".join(filter(None, (artefact.name, scale, world)))
    work = None if out is None else out / artefact.paper / f".{name}.work"
    result = reproduce(
        artefact,
        scale,  # type: ignore[arg-type]
        device=device,
        folder=work,
        progress=scale in TIMES or sys.stderr.isatty(),
        shared=(out or passing) / artefact.paper / "trainings",
        world=world,
    )
    if out is not None:
        path = save_result(result, out)
        write_svg(artefact.plot(result.tables), path.with_suffix(".svg"))
    if work is not None:
        remove_folder(work)
    return result


def _listed(artefact: Artefact, result: Result | None) -> Row:
    """An artefact with the outcomes of its committed result: claims of the paper, and further checks of our own."""
    row = {"artefact": artefact.key, "shows": artefact.title}
    if result is None:
        empty = dict.fromkeys(("our checks", "scale", "seconds", "on"))
        return row | {"outcome": "not measured yet"} | empty
    return row | {
        "outcome": str(result.tally),
        "our checks": str(result.our_tally) if any(result.our_tally) else None,
        "scale": result.scale,
        "seconds": result.spent.seconds,
        "on": result.spent.on,
    }


def _record(result: Result) -> Row:
    """A measured artefact as JSON values, without its tables."""
    return {
        "artefact": result.artefact.key,
        "scale": result.scale,
        "judged": result.scale != "smoke",
        "outcome": result.tally._asdict(),
        "our_checks": result.our_tally._asdict(),
        "findings": [finding._asdict() for finding in result.findings],
        "rules": [{"claim": claim.says, "rule": claim.rule} for claim in result.artefact.claims],
        "note": result.artefact.note,
        "seconds": result.seconds,
        "command": result.command,
        "settings": dict(result.settings),
        "about": dict(result.about),
        "revisions": list(result.revisions),
    }


def _print(results: Sequence[Result], as_json: bool) -> None:
    from unseam.papers import results_folder
    from unseam.report.artefacts import finding_row

    if as_json:
        print_json([_record(result) for result in results])
        return
    for result in results:
        outcome = "nothing is judged" if result.scale == "smoke" else str(result.tally)
        rows = [finding_row(finding) for finding in result.findings]
        print_table(rows, title=f"{result.artefact.key} at {result.scale} scale: {outcome}")
        if result.artefact.note:
            print(result.artefact.note)
        figure = results_folder().parent / "docs" / "figures" / f"{result.artefact.key.replace('.', '-')}.svg"
        if result.scale != "smoke":
            print(f"Figure: {figure}" if figure.exists() else "Figure: with --report FILE.html")
        print(
            f"Measured in {result.spent.seconds:.0f} s on {result.spent.on}; again with: {result.command}\n"
        )
