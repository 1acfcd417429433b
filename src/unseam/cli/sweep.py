"""``unseam sweep``: the trials of a specification, trained and measured into a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from unseam.cli.options import Device, Json, Track
from unseam.cli.printing import print_json, print_rows

__all__ = ["sweep_trials"]


def sweep_trials(
    spec: Annotated[Path, typer.Argument(help="TOML file: [trial] fields, [axes] to vary, [score] metrics.")],
    store: Annotated[str, typer.Option(help="Folder, or fsspec address, of the results.")],
    engine: Annotated[str, typer.Option(help="local, ray or slurm.")] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print trials, stacks, memory and estimated time, and stop.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Do only what is missing, which is always so.")
    ] = True,
    device: Device = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Engine local: processes; by default one per GPU.")
    ] = None,
    stack: Annotated[
        int | None, typer.Option(min=1, help="Members of a stack at most; by default what memory holds.")
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="Store the weights too, as a run per stack.")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="Option of the engine: address=auto, gpus=1, slurm_partition=gpu; repeat for more."
        ),
    ] = None,
    track: Track = None,
    as_json: Json = False,
) -> None:
    """Train and measure many trials; run again, it goes on where it stopped."""
    from unseam import sweep

    found = sweep.read_spec(spec)
    if dry_run:
        rows = sweep.plan(found, store, device=device, stack=stack, workers=workers or 1)
        _print_plan(rows, found, as_json)
        return
    options: dict[str, Any] = dict(_option(text) for text in option or ())
    if workers is not None:
        options["workers"] = workers
    try:
        done = sweep.run(
            found, store, engine=engine, device=device, stack=stack, weights=weights, progress=True, track=track,
            **options,
        )  # fmt: skip
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise ValueError(f"--option: {str(error).partition(') ')[2] or error}, of engine {engine}") from None
    keys = {trial.key() for trial in found.trials}
    table = done.table()
    held = table[table["key"].isin(keys)]
    diverged = int(held["stopped"].notna().sum())
    if as_json:
        print_json({"store": store, "trials": len(held), "rows": len(table), "diverged": diverged})
        return
    print(f"{len(held)} trials measured in {store}, {diverged} of them diverged; rows in all: {len(table)}")
    print(f"unseam report {store} shows them")


def _print_plan(rows: list[dict[str, Any]], spec: Any, as_json: bool) -> None:
    from unseam.sweep.engines import describe_duration

    total = sum(row["seconds"] for row in rows)
    if as_json:
        print_json({"trials": len(spec.trials), "seconds": total, "stacks": rows})
        return
    for question in spec.questions:
        print(f"Question: {question.ask}")
    left = sum(row["trials"] for row in rows)
    if rows:
        shown = [
            row | {"memory": f"{row['memory'] / 1e6:,.1f} MB", "seconds": round(row["seconds"])}
            for row in rows
        ]
        print_rows(shown, title="stacks to train, by shape", as_json=False)
    print(
        f"{len(spec.trials)} trials, {left} without a row; about {describe_duration(total)} here, from a few "
        "measured steps"
    )


def _option(text: str) -> tuple[str, Any]:
    """Name and JSON value of ``name=value``; what is no JSON is text."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--option must be name=value, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:  # also of numbers with thousands of digits
        return name, value
