"""Artefacts as the command line names and runs them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from unseam.drawing import write_svg
from unseam.papers import Artefact, Result, Scale, artefacts, on_world, reproduce, save_result
from unseam.papers.artefact import TWINS

__all__ = ["chosen_artefacts", "have_rows_on", "run_artefacts"]

FORMER = {"rolinek2019.foretold": "rolinek2019.predicted"}
"""Earlier names of artefacts."""


def chosen_artefacts(target: str | None) -> list[Artefact]:
    """All artefacts, those of one paper, or one.

    >>> [artefact.key for artefact in chosen_artefacts("sikka2019.figure1")]
    ['sikka2019.figure1']
    """
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
            yield _run(artefact, scale, out, device, world, Path(passing))


def _name_others(every: Sequence[Artefact], chosen: Sequence[Artefact], why: str) -> None:
    if others := [artefact.key for artefact in every if artefact not in chosen]:
        print(f"{why}: {', '.join(others)}", file=sys.stderr)


def _run(
    artefact: Artefact, scale: str, out: Path | None, device: str | None, world: str | None, passing: Path
) -> Result:
    name = ".".join(filter(None, (artefact.name, scale, world)))
    work = None if out is None else out / artefact.paper / f".{name}.work"
    result = reproduce(
        artefact,
        scale,  # type: ignore[arg-type]
        device=device,
        folder=work,
        progress=sys.stderr.isatty(),
        shared=(out or passing) / artefact.paper / "trainings",
        world=world,
    )
    if out is not None:
        path = save_result(result, out)
        write_svg(artefact.plot(result.tables), path.with_suffix(".svg"))
    if work is not None:
        shutil.rmtree(work, ignore_errors=True)
    return result
