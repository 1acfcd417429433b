"""Artefacts as the command line names and runs them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from unseam.drawing import write_svg
from unseam.papers import Artefact, Result, Scale, artefacts, reproduce, save_result

__all__ = ["chosen_artefacts", "run_artefacts"]

FORMER = {"rolinek2019.foretold": "rolinek2019.predicted"}
"""Artefacts that had another name in the last release."""


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


def run_artefacts(
    chosen: Sequence[Artefact],
    scale: str,
    *,
    out: Path | None,
    device: str | None,
    world: str | None = None,
) -> Iterator[Result]:
    """Measure artefacts one after another; those of several that lack the scale are named and left out.

    With a folder, results and figures are written there, checkpoints until an artefact is done, and what was measured
    of trainings that artefacts of a paper share in ``PAPER/trainings``, which later commands use.
    """
    if scale not in get_args(Scale):
        raise ValueError(f"--scale must be one of {', '.join(get_args(Scale))}, got {scale!r}")
    able = [artefact for artefact in chosen if scale in artefact.presets] if len(chosen) > 1 else chosen
    if missing := [artefact.key for artefact in chosen if artefact not in able]:
        print(f"without {scale} scale, and left out: {', '.join(missing)}", file=sys.stderr)
    with TemporaryDirectory() as passing:
        for artefact in able:
            yield _run(artefact, scale, out, device, world, Path(passing))


def _run(
    artefact: Artefact, scale: str, out: Path | None, device: str | None, world: str | None, passing: Path
) -> Result:
    work = None if out is None else out / artefact.paper / f".{artefact.name}.{scale}.work"
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
