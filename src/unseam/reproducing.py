"""Artefacts as the command line names and runs them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import get_args

from unseam.drawing import write_svg
from unseam.papers import Artefact, Result, Scale, artefacts, reproduce, save_result

__all__ = ["chosen_artefacts", "run_artefact"]


def chosen_artefacts(target: str | None) -> list[Artefact]:
    """All artefacts, those of one paper, or one.

    >>> [artefact.key for artefact in chosen_artefacts("sikka2019.figure1")]
    ['sikka2019.figure1']
    """
    every = artefacts()
    if target is None:
        return list(every.values())
    found = [artefact for key, artefact in every.items() if target in (key, artefact.paper)]
    if not found:
        papers = dict.fromkeys(artefact.paper for artefact in every.values())
        near = [key for key in every if key.startswith(target.split(".")[0])]
        raise ValueError(
            f"no artefact is named {target!r}; "
            + (f"this paper has {', '.join(near)}" if near else f"papers are {', '.join(papers)}")
        )
    return found


def run_artefact(artefact: Artefact, scale: str, *, out: Path | None, device: str | None) -> Result:
    """Measure an artefact; with a folder, keep the result and its figure, and checkpoints until it is done."""
    if scale not in get_args(Scale):
        raise ValueError(f"--scale must be one of {', '.join(get_args(Scale))}, got {scale!r}")
    work = None if out is None else out / artefact.paper / f".{artefact.name}.{scale}.work"
    result = reproduce(
        artefact,
        scale,  # type: ignore[arg-type]
        device=device,
        folder=work,
        progress=sys.stderr.isatty(),
    )
    if out is not None:
        path = save_result(result, out)
        write_svg(artefact.draw(result.outcome), path.with_suffix(".svg"))
    if work is not None:
        shutil.rmtree(work, ignore_errors=True)
    return result
