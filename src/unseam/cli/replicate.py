"""``unseam replicate``: which latents return over seeds, or in other models of the user's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unseam.cli import options
from unseam.cli.printing import Row, print_json, print_table, print_words

if TYPE_CHECKING:
    from unseam.replicate import Replication

__all__ = ["replicate_models", "replication_rows"]


def replicate_models(
    target: Annotated[
        list[str],
        typer.Argument(
            help="Folders of runs, or package.module:object: models of your own, or what makes them."
        ),
    ],
    data: Annotated[
        Path | None, typer.Option(help="Your models: file of items to compare at. Run: its data, if moved.")
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Run: compare all members, also those of other settings.")
    ] = False,
    member: options.Members = None,
    root: options.Root = None,
    world: options.OwnWorld = None,
    trust: options.Trust = False,
    items: Annotated[int, typer.Option(min=2, help="Number of items to compare at.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of items and random rotations.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="File of a picture of what matches (.svg).")] = None,
    as_json: options.Json = False,
) -> None:
    """Say for each latent in how many other models it returns, such as those of other seeds; needs no labels."""
    from unseam.files import write_text
    from unseam.replicate import replicate_seeds
    from unseam.run import Run

    if figure is not None and figure.suffix != ".svg":
        raise ValueError(f"--figure must name an .svg file, got {figure}")
    runs = [options.names_run(one) for one in target]
    if any(runs) and not all(runs):
        raise ValueError("TARGET must be all runs or all models of your own: they take other options")
    remarks: list[str] = []
    if all(runs):
        own = {"data": data}
        opened = [
            options.open_target(one, own, member=member, root=root, world=world, trust=trust, points=items)
            for one in target
        ]
        folders = [one for one in opened if isinstance(one, Run)]
        found = replicate_seeds(folders, items=items, members=member or None, together=together, seed=seed)
        if not found:
            raise ValueError(
                "no two members differ in their seed alone: train more seeds (--vary seed=0,1,2,3,4), or compare all "
                "with --together"
            )
        remarks = [line for run in folders for line in run.remarks(member or None)]
    else:
        found = [_compare_own(target, data, items, seed)]
    drawn = []
    for place, one in enumerate(found if figure is not None else []):
        assert figure is not None
        path = figure if len(found) == 1 else figure.with_stem(f"{figure.stem}-{place}")
        write_text(path, one.chart())
        drawn.append(str(path))
    if as_json:
        print_json({"replication": [one.to_dict() for one in found], "remarks": remarks, "figures": drawn})
        return
    for one in found:
        print_table(replication_rows(one), title="latents that return in other models")
        print_words(one.summary())
    for line in remarks:
        print_words(f"note: {line}")
    if drawn:
        print(f"Picture in {', '.join(drawn)}")


def _compare_own(target: Sequence[str], data: Path | None, items: int, seed: int) -> Replication:
    """Models that ``package.module:object`` names: each is one, a list of them, or a function that returns either."""
    import torch

    from unseam.choices import load_object
    from unseam.files import read_array
    from unseam.models import VAE
    from unseam.replicate import replication
    from unseam.subject import Subject

    if data is None:
        raise ValueError("--data must name the file of items at which models of your own are compared")
    models: list[Any] = []
    for name in target:
        found = load_object(name)
        found = found() if callable(found) and not isinstance(found, Subject | VAE) else found
        models += [found] if isinstance(found, Subject | VAE) else list(found)
    return replication(models, read_array(data, items), generator=torch.Generator().manual_seed(seed))


def replication_rows(found: Replication) -> list[Row]:
    """One row per active latent of each model, and per group that returns only together.

    >>> import torch
    >>> from unseam import Subject, replication
    >>> one = Subject("mine", lambda z: 2 * z, 2, encoder=lambda x: (x / 2, 0.1 + 0 * x))
    >>> found = replication([one, one], torch.randn(50, 2, generator=torch.Generator().manual_seed(0)))
    >>> replication_rows(found)[0]["found in"]
    '2 of 2'
    """
    rows = []
    for row in found.table().to_dict("records"):
        name = row["model"].replace("member ", "", 1) if row["model"].startswith("member ") else row["model"]
        undefined = math.isnan(row["p"])
        rows.append(
            {
                "model": name.partition(" (")[0],
                "latent": row["latents"].replace("+", " and "),
                "found in": f"{row['found'] + 1} of {row['others'] + 1}",
                "95 % of others": f"{row['lower']:.2f} to {row['upper']:.2f}",
                "likeness": f"{row['likeness']:.3f}",
                "by chance": None if undefined else f"{row['chance']:.3f}",
                "p": None if undefined else f"{row['p']:.2g}",
                "returns": ("only together" if row["kind"] == "group" else "yes") if row["returns"] else "no",
            }
        )
    return rows
