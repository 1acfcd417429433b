"""``unseam explore``: a run in the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from unseam.cli.options import Json, MovedData, OwnWorld, Trust
from unseam.cli.printing import print_json

__all__ = ["explore_run"]


def explore_run(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    member: Annotated[int, typer.Option(min=0, help="Member shown first.")] = 0,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; by default 8050, or any that is free.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; anything but this machine's own opens it to others.")
    ] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    root: Annotated[str | None, typer.Option(help="File or folder of the run's data, if moved.")] = None,
    world: OwnWorld = None,
    data: MovedData = None,
    trust: Trust = False,
    points: Annotated[int, typer.Option(min=2, help="Items of the world that are shown.")] = 600,
    as_json: Json = False,
) -> None:
    """Explore a run's latent spaces in the browser: pictures, geometry, a map, β; until Ctrl-C."""
    from unseam.explore import serve
    from unseam.run import Run

    def started(address: str) -> None:
        if as_json:
            print_json({"address": address})
        else:
            print(f"Exploring {run} at {address} (Ctrl-C stops)")
        sys.stdout.flush()

    serve(
        Run.open(run, root=root, world=world, data=data, trust=trust) if trust or data is not None else run,
        member=member,
        port=port,
        host=host,
        open_browser=not no_open,
        root=root,
        world=None if trust or data is not None else world,
        points=points,
        started=started,
    )
