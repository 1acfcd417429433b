"""``unseam inspect``: the geometry of a run's members, or of a decoder of the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unseam.cli.options import (
    Json,
    Members,
    OwnBeta,
    OwnData,
    OwnEncoder,
    OwnLikelihood,
    Root,
)
from unseam.printing import Row, print_json, print_table, print_words

if TYPE_CHECKING:
    from unseam.targets import Inspected

__all__ = ["draw_inspected", "geometry_rows", "inspect_decoder", "refuse"]


def inspect_decoder(
    target: Annotated[
        str, typer.Argument(help="Folder of a run, or package.module:function of your own decoder.")
    ],
    data: OwnData = None,
    encoder: OwnEncoder = None,
    beta: OwnBeta = None,
    likelihood: OwnLikelihood = None,
    latents: Annotated[
        int | None,
        typer.Option(min=2, help="Your decoder: sample so many latents, where there are thousands."),
    ] = None,
    member: Members = None,
    root: Root = None,
    points: Annotated[int, typer.Option(min=2, help="Number of points to measure at.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of points, baselines and probes.")] = 0,
    figures: Annotated[
        Path | None,
        typer.Option(help="Folder of the figures; by default `inspection` in the run, and none with --json."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="File of a page that shows it all (.html), with pictures and scores.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a decoder does to its latents: who lives, how orthogonal, does the posterior agree, what to do."""
    from unseam.targets import inspect_own, inspect_run

    if report is not None:
        from unseam.report.page import check_path

        check_path(report)
    own = {"encoder": encoder, "latents": latents, "beta": beta, "likelihood": likelihood}
    if Path(target).is_dir() or ":" not in target:
        refuse({"data": data, **own}, "are for a decoder of your own; a run has its own")
        options: dict[str, Any] = {"members": member or None, "root": root}
        every = list(inspect_run(Path(target), points=points, seed=seed, **options))
        figures = figures if figures is not None or as_json else Path(target) / "inspection"
    else:
        refuse({"member": member, "root": root}, "are for a run; a decoder of your own has neither")
        if data is None:
            raise ValueError("--data must name the file of points (or, with --encoder, of data)")
        options = {"data": data} | {flag: value for flag, value in own.items() if value is not None}
        every = [inspect_own(target, points=points, seed=seed, **options)]
    drawn = [] if figures is None else draw_inspected(every, figures)
    page = None
    if report is not None:
        page = str(_report(target, report, every, options, points=points, seed=seed))
    if as_json:
        shown = [{"name": one.name} | one.found.to_dict() for one in every]
        print_json({"inspected": shown, "figures": drawn, "report": page})
        return
    for one in every:
        print_words(f"{one.name}\n{one.found.summary()}\n")
    print_table(geometry_rows(every), title="geometry")
    if drawn:
        print(f"{len(drawn)} figures in {figures}")
    if page:
        print(f"Open {page}")


def geometry_rows(every: Iterable[Inspected]) -> list[Row]:
    """The numbers of inspected decoders, one row each, to three decimals.

    >>> import torch, unseam
    >>> from unseam.targets import Inspected
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> geometry_rows([Inspected("mine", found)])[0]["alive"]
    '2/2'
    """
    return [_geometry(one) for one in every]


def draw_inspected(every: Iterable[Inspected], folder: Path) -> list[str]:
    """Write the figures of inspected decoders as SVG; returns their paths."""
    return [path for one in every for path in _draw(one, folder)]


def _report(
    target: str, path: Path, every: list[Inspected], options: dict[str, Any], *, points: int, seed: int
) -> Path:
    """Write the report of what was inspected."""
    from unseam.report import own_study, run_studies, write

    if "data" in options:
        return write(own_study(target, points=points, seed=seed, found=every[0].found, **options), path)
    made = run_studies(Path(target), points=points, seed=seed, inspected=every, **options)
    return write(made, path)


def refuse(given: Mapping[str, object], reason: str) -> None:
    """Refuse flags that would say nothing about the target."""
    if bad := [f"--{flag}" for flag, value in given.items() if value not in (None, [])]:
        *rest, last = (f"--{flag}" for flag in given)
        raise ValueError(f"{', '.join(rest)} and {last} {reason}; got {', '.join(bad)}")


def _geometry(one: Inspected) -> Row:
    found = one.found
    error, law, chance = found.precision_error, found.variance_law, found.random_dto
    numbers = {
        "DtO": found.dto,
        "DtO alive": found.dto_active,
        "Haar DtO": None if chance is None else chance.haar,
        "U[0,1] DtO": None if chance is None else chance.uniform,
        "|cos|": found.cosine,
        "gap, nats": found.hadamard_gap,
        "ΔKL": found.delta_kl,
        "Eq. 7 diag": None if error is None else error.diagonal,
        "Eq. 7 off": None if error is None else error.off_diagonal,
        "σ² slope": None if law is None else law.slope,
        "degen.": found.degenerate_fraction,
    }
    alive = None if found.active is None else f"{int(found.active.sum())}/{found.latent}"
    rounded = {head: None if value is None else f"{value:.3f}" for head, value in numbers.items()}
    return {"decoder": one.name, "alive": alive} | rounded


def _draw(one: Inspected, folder: Path) -> list[str]:
    from unseam.report import geometry_figures
    from unseam.training.files import write_text

    label = "-".join(one.name.replace(":", " ").replace("(", " ").replace(",", " ").split()[:2])
    drawn = {folder / f"{label}-{name}.svg": chart for name, chart in geometry_figures(one.found).items()}
    for path, chart in drawn.items():
        write_text(path, chart)
    return [str(path) for path in drawn]
