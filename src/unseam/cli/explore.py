"""``unseam explore``: a run in the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from unseam.cli import options
from unseam.cli.printing import print_json

__all__ = ["explore_run"]


def explore_run(
    run: Annotated[
        str,
        typer.Argument(help="Folder of a run, package.module:object of your own model, or .onnx file."),
    ],
    member: Annotated[int, typer.Option(min=0, help="Member shown first.")] = 0,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; by default 8050, or any that is free.")
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; any but this machine's own opens it to others, with a token."
        ),
    ] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    root: options.Root = None,
    world: options.OwnWorld = None,
    data: options.OwnData = None,
    encoder: options.OwnEncoder = None,
    beta: options.OwnBeta = None,
    likelihood: options.OwnLikelihood = None,
    latent: options.OwnLatent = None,
    log_variance: options.LogVariance = False,
    probabilities: options.Probabilities = False,
    trust: options.Trust = False,
    points: Annotated[
        int | None, typer.Option(min=2, help="Items of the world that are shown; 600, of a page 300.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--export", help="Write one HTML file that works from disk instead of serving."),
    ] = None,
    members: Annotated[
        list[int] | None, typer.Option("--members", help="--export: only this member; repeat for more.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Explore a run's latent spaces in the browser: pictures, geometry, a map, β; until Ctrl-C."""
    from unseam.cli.printing import print_words
    from unseam.explore import export, serve
    from unseam.run import Run

    own = {"data": data, "encoder": encoder, "beta": beta, "likelihood": likelihood, "latent": latent}
    own |= {"log_variance": log_variance, "probabilities": probabilities}
    opened = options.open_target(
        run, own, member=None, root=root, world=world, trust=trust, points=points or 600
    )
    shown = members or None if page is not None else None
    remarks = opened.remarks(shown) if isinstance(opened, Run) else []
    if page is not None:
        written = export(opened, page, members=members or None, first=member or None, points=points or 300)
        size = written.stat().st_size
        if as_json:
            print_json({"page": str(written), "bytes": size, "remarks": remarks})
        else:
            print(
                f"Wrote {written}, {size / 1e6:.1f} MB: open it in a browser; it needs no server and no network."
            )
            for line in remarks:
                print_words(f"note: {line}")
        return
    if members:
        raise ValueError("--members is for --export; --member says which one is shown first")

    def started(address: str) -> None:
        if as_json:
            print_json({"address": address, "remarks": remarks})
        else:
            for line in remarks:
                print_words(f"note: {line}")
            print(f"Exploring {run} at {address} (Ctrl-C stops)")
        sys.stdout.flush()

    serve(
        opened,
        member=member,
        port=port,
        host=host,
        open_browser=not no_open,
        points=points or 600,
        started=started,
    )
