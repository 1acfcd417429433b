"""``unseam data``: worlds, and the published files of some."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unseam.cli.options import Json
from unseam.cli.printing import Row, print_rows

if TYPE_CHECKING:
    from unseam.data import FileState, Listing

__all__ = ["fetch_files", "file_rows", "list_worlds", "verify_files", "world_rows"]

Root = Annotated[Path | None, typer.Option(help="Folder of the files, instead of the cache.")]
Variant = Annotated[str | None, typer.Option(help="Which files, where a data set has several.")]


def list_worlds(root: Root = None, as_json: Json = False) -> None:
    """List the worlds, and which published files are here."""
    title = "worlds (a factor without a number of values is continuous)"
    print_rows(world_rows(root), title=title, as_json=as_json)


def fetch_files(
    name: str,
    root: Root = None,
    variant: Variant = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Accept a file whose checksum is not published.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fetch the files of a published data set, checked against their checksums."""
    from unseam.data.fetch import fetch

    states = fetch(name, root, variant=variant, progress=True, unverified=unverified)
    print_rows(file_rows(states), title="files", as_json=as_json)


def verify_files(name: str, root: Root = None, variant: Variant = None, as_json: Json = False) -> None:
    """Compare the files of a published data set with their checksums."""
    from unseam.data.fetch import verify

    states = verify(name, root, variant=variant)
    print_rows(file_rows(states), title="files", as_json=as_json)
    if not all(state.good for state in states):
        raise typer.Exit(1)


def world_rows(root: Path | None) -> list[Row]:
    """Every world: those made here, and the published files, looked for under ``root``."""
    from unseam.data import names
    from unseam.data.fetch import listing

    published = listing(root)
    read = {line.name for line in published}
    return [_made(name) for name in names() if name not in read] + [_published(line) for line in published]


def file_rows(states: Iterable[FileState]) -> list[Row]:
    """The files of a published data set, and whether they are as published.

    >>> from pathlib import Path
    >>> from unseam.data import FileState
    >>> file_rows([FileState("s.gz", Path("s.gz"), "missing", "not here")])[0]["state"]
    'missing'
    """
    return [{"file": s.filename, "state": s.state, "path": str(s.path), "detail": s.detail} for s in states]


def _made(name: str) -> Row:
    from unseam.data import load

    world = load(name)
    return {
        "world": name,
        "source": f"rendered here, twin of {world.twin_of}" if world.twin_of else "made here",
        "here": True,
        "items": len(world),
        "shape": list(world.shape),
        "factors": dict(zip(world.factor_names, world.factor_sizes, strict=True)),
        "note": "",
    }


def _published(line: Listing) -> Row:
    size = f"{line.size / 1e6:.0f} MB" if line.size else ""
    checksum = "" if line.checksum == "none" else f"checksum {line.checksum}"
    return {
        "world": line.name if line.variant is None else f"{line.name} ({line.variant})",
        "source": "published file",
        "here": line.present,
        "items": None,
        "shape": None,
        "factors": None,
        "note": ", ".join(filter(None, (size, checksum, line.note))),
    }
