"""``unseam report``: runs, or a decoder of the user's own, as one page that opens from disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unseam.cli.inspect import refuse
from unseam.cli.options import (
    Json,
    Members,
    OwnBeta,
    OwnData,
    OwnEncoder,
    OwnLikelihood,
    Root,
)
from unseam.printing import print_json

if TYPE_CHECKING:
    from unseam.report import Study

__all__ = ["report_models"]


def report_models(
    target: Annotated[
        list[str],
        typer.Argument(help="Folders of runs, or package.module:function of your own decoder."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default report.html in the run, or here.")
    ] = None,
    latent: Annotated[
        int | None, typer.Option(min=1, help="Your decoder: its number of latents, where it has no --data.")
    ] = None,
    data: OwnData = None,
    encoder: OwnEncoder = None,
    beta: OwnBeta = None,
    likelihood: OwnLikelihood = None,
    member: Members = None,
    root: Root = None,
    points: Annotated[int, typer.Option(min=2, help="Number of points to measure at.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of points, baselines and metrics.")] = 0,
    as_json: Json = False,
) -> None:
    """Write a page that tells what models learned: who lives, do the axes stand at right angles, what each does."""
    from unseam.report import own_study, write
    from unseam.report.page import check_path
    from unseam.report.writing import all_runs

    own = {"latent": latent, "data": data, "encoder": encoder, "beta": beta, "likelihood": likelihood}
    runs = [one for one in target if Path(one).is_dir() or ":" not in one]
    default = Path(target[0]) / "report.html" if len(runs) == 1 else Path("report.html")
    path = out if out is not None else default
    if out is not None or path.parent.is_dir():
        check_path(path)
    studies: list[Study]
    if not runs:
        refuse({"member": member, "root": root}, "are for a run; a decoder of your own has neither")
        options = {flag: value for flag, value in own.items() if value is not None}
        studies = [own_study(name, points=points, seed=seed, **options) for name in target]  # type: ignore[arg-type]
    elif len(runs) < len(target):
        raise ValueError("TARGET must be all runs or all decoders of your own: they take other options")
    else:
        refuse(own, "are for a decoder of your own; a run has its own")
        found = all_runs(
            [Path(run) for run in runs], points=points, members=member or None, seed=seed, root=root
        )
        studies = [study for made in found for study in made]
    page = write(studies, path)
    if as_json:
        shown = [
            {"name": study.name, "missing": [gap._asdict() for gap in study.missing], **study.found.to_dict()}
            for study in studies
        ]
        print_json({"report": str(page), "models": shown})
        return
    for study in studies:
        for gap in study.missing:
            print(f"{study.name}: missing: {gap.part}. {gap.why}")
    print(f"Open {page}")
