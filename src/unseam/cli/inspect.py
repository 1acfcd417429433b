"""``unseam inspect``: the geometry of a run's members, or of a decoder of the user's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unseam.cli import options
from unseam.cli.printing import Row, count_columns, print_json, print_table, print_words

if TYPE_CHECKING:
    from unseam.inspection import Inspection

__all__ = ["geometry_rows", "inspect_decoder"]


def inspect_decoder(
    target: Annotated[
        str, typer.Argument(help="Folder of a run, package.module:object of your own model, or .onnx file.")
    ],
    data: options.OwnData = None,
    encoder: options.OwnEncoder = None,
    beta: options.OwnBeta = None,
    likelihood: options.OwnLikelihood = None,
    latent: options.OwnLatent = None,
    log_variance: options.LogVariance = False,
    probabilities: options.Probabilities = False,
    latents: Annotated[
        int | None,
        typer.Option(
            min=2, help="Your model: sample this many latents; by default 32 where it has more than 128."
        ),
    ] = None,
    member: options.Members = None,
    root: options.Root = None,
    world: options.OwnWorld = None,
    at: Annotated[
        str, typer.Option(help="Run: points from its data, or from the prior, which needs no data.")
    ] = "data",
    trust: options.Trust = False,
    points: Annotated[int, typer.Option(min=2, help="Number of points to measure at.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of points, baselines and probes.")] = 0,
    figures: Annotated[
        Path | None,
        typer.Option(help="Folder of the figures; by default `inspection` in the run, and none with --json."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="File of a page that shows it all (.html), with pictures and scores.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Measure what a decoder does to its latents: active latents, orthogonality, agreement with the posterior."""
    import torch

    from unseam.inspection import compare_members
    from unseam.replicate import describe_seeds
    from unseam.run import Run

    if report is not None:
        from unseam.report.page import check_path

        check_path(report)
    own = {"data": data, "encoder": encoder, "latents": latents, "beta": beta, "likelihood": likelihood}
    own |= {"latent": latent, "log_variance": log_variance, "probabilities": probabilities}
    opened = options.open_target(
        target, own, member=member, root=root, world=world, trust=trust, points=points
    )
    remarks: list[str] = []
    seeds: dict[str, str] = {}
    if isinstance(opened, Run):
        if at == "prior" and report is not None:
            raise ValueError("--report needs the run's data, which --at prior leaves out; give one of them")
        inspected = opened.inspect(member or None, points=points, seed=seed, at=at)  # type: ignore[arg-type]
        remarks = opened.remarks(member or None)
        found = {opened.subject(one).name: held for one, held in inspected.items()}
        if at == "data" and len(found) > 1:
            lines = describe_seeds(opened, member or None, items=min(points, 500), seed=seed)
            seeds = {opened.subject(one).name: line for one, line in lines.items()}
        if figures is None and not as_json:
            if os.access(target, os.W_OK):
                figures = Path(target) / "inspection"
            else:
                remarks.append(f"no figures, since {target} may not be written to; give --figures FOLDER")
    else:
        drawing = torch.Generator().manual_seed(seed)
        found = {target: opened.inspect(latents=latents, generator=drawing, progress=count_columns())}
    if not as_json:
        _print_found(found, seeds)
    drawn = [] if figures is None else _draw(found, figures)
    page = None
    if report is not None:
        from unseam.report import run_studies, study, write

        if isinstance(opened, Run):
            made = run_studies(opened, members=member or None, points=points, seed=seed)
        else:
            made = (study(opened, seed=seed, found=found[target]),)
        page = str(write(made, report))
    if as_json:
        shown = [{"name": name} | held.to_dict() for name, held in found.items()]
        shown = [one | {"replication": seeds[one["name"]]} if one["name"] in seeds else one for one in shown]
        print_json({"inspected": shown, "remarks": remarks, "figures": drawn, "report": page})
        return
    for line in remarks:
        print_words(f"note: {line}")
    if drawn:
        print(f"{len(drawn)} figures in {figures}")
    if page:
        print(f"Open {page}")
    if len(found) > 1:
        print_words(compare_members(found))


def _print_found(found: Mapping[str, Inspection], seeds: Mapping[str, str]) -> None:
    """Print what was found of each decoder, where its latents return over seeds, and the numbers as a table."""
    from unseam.inspection.words import TERMS

    for name, held in found.items():
        lines = [name, f"Measured at {held.where or 'the points given'}.", held.summary(), seeds.get(name)]
        print_words("\n".join(filter(None, lines)) + "\n")
    rows = geometry_rows(found)
    print_table(rows, title="geometry")
    heads = " ".join(head for row in rows for head, value in row.items() if value is not None)
    for term, meaning in TERMS.items():
        if term in heads:
            print_words(f"{term}: {meaning}.")
    sys.stdout.flush()  # figures and pages take as long again


def geometry_rows(found: Mapping[str, Inspection]) -> list[Row]:
    """The numbers of inspected decoders by name, one row each, to three decimals.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> geometry_rows({"mine": found})[0]["active latents"]
    '2 of 2'
    """
    rows = []
    for name, one in found.items():
        error, chance, random = one.precision_error, one.random_dto, one.random_axes
        undefined = None if one.probes is not None else "undefined"
        numbers = {
            "mean |cos|": one.cosine,
            "|cos| by chance": None if random is None else random.cosine,
            "Hadamard gap, nats": one.hadamard_gap,
            "Hadamard gap by chance": None if random is None else random.hadamard_gap,
            "DtO": one.dto_active,
            "DtO by chance": None if chance is None else chance.haar,
            "singular values coinciding": one.degenerate_fraction,
            "Eq. 7 error, diagonal": None if error is None else error.diagonal,
            "Eq. 7 error, off-diagonal": None if error is None else error.off_diagonal,
            # all of next to nothing where every latent collapsed
            "KL error": None if one.active is not None and not one.active.any() else one.delta_kl,
        }
        compared = ("mean |cos|", "Hadamard gap, nats", "DtO")
        active = None if one.active is None else f"{int(one.active.sum())} of {one.latent}"
        rounded = {
            head: (undefined if head in compared else None) if value is None else f"{value:.3f}"
            for head, value in numbers.items()
        }
        # details of a member, in brackets, stand above the table
        kind, number = "member", name.partition(" (")[0].removeprefix("member ")
        first = {kind: number} if name.startswith(kind) else {"decoder": name}
        rows.append(first | {"active latents": active} | rounded)
    return rows


def _draw(found: Mapping[str, Inspection], folder: Path) -> list[str]:
    """Write the figures of inspected decoders as SVG; returns their paths."""
    from unseam.files import write_text
    from unseam.report import geometry_figures

    paths = []
    for name, one in found.items():
        label = "-".join(name.replace(":", " ").replace("(", " ").replace(",", " ").split()[:2])
        for part, chart in geometry_figures(one).items():
            paths.append(str(folder / f"{label}-{part}.svg"))
            write_text(folder / f"{label}-{part}.svg", chart)
    return paths
