"""Measured artefacts on disk: settings and provenance as JSON, tables as CSV, each table once."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pandas as pd

from unseam.files import open_file, read_json, write_json, write_text
from unseam.papers.artefact import DIGITS, SCALES, Artefact, Result
from unseam.papers.plots import Tables

__all__ = [
    "MissingTableError",
    "committed",
    "load_result",
    "read_tables",
    "results_folder",
    "save_result",
    "write_tables",
]

TABLES = "tables"
"""Folder of the tables beside the records that name them."""
LARGEST = 1 << 30
"""Bytes of a table."""


class MissingTableError(ValueError):
    """A table that a record names is not there, or not what was stored."""


def save_result(result: Result, folder: Path) -> Path:
    """Write a result as JSON, and its tables as CSV with six digits.

    Findings are not stored: they are derived from the tables whenever they are shown. The result on a published
    data set in the place of its twin has a name of its own, and replaces none of the twin.

    Args:
        result: what was measured.
        folder: the root of all results; the paper's own folder is made in it.

    Returns:
        The path of the JSON file.
    """
    path = _path(folder, result.artefact, result.scale, result.world)
    record = {
        "artefact": result.artefact.key,
        "scale": result.scale,
        "command": result.command,
        "world": result.world,
        "seconds": result.seconds,
        "settings": result.settings,
        "about": result.about,
        "tables": write_tables(path, result.tables),
    }
    write_json(path, json.loads(json.dumps(record, default=list)))
    return path


def load_result(path: Path, artefact: Artefact) -> Result:
    """Read a result that :func:`save_result` wrote, or say what is wrong with it."""
    record = read_json(path)
    try:
        return Result(
            artefact,
            record["scale"],
            record["settings"],
            read_tables(path),
            record["about"],
            record["seconds"],
            record["world"],
        )
    except KeyError as error:
        raise ValueError(
            f"{path} is not the result of an artefact: it lacks {error}; measure it again"
        ) from None


def committed(artefact: Artefact, folder: Path, world: str | None = None) -> Result | None:
    """The result of an artefact at the largest scale that ``folder`` holds, or none.

    Args:
        artefact: which.
        folder: the root of all results.
        world: the published data set that took the place of its twin; none for the artefact as it is.

    >>> from unseam.papers import artefacts
    >>> committed(artefacts()["sikka2019.figure1"], Path("absent")) is None
    True
    """
    paths = [_path(folder, artefact, scale, world) for scale in reversed(SCALES)]
    found = next((path for path in paths if path.exists()), None)
    return None if found is None else load_result(found, artefact)


def results_folder() -> Path:
    """Where committed results are: in the source tree, or inside the installed package.

    >>> results_folder().name
    'results'
    """
    package = Path(__file__).parents[1]
    tree = package.parents[1] / "results"
    return tree if tree.is_dir() else package / "results"


def write_tables(path: Path, tables: Tables) -> dict[str, str]:
    """Store tables in the folder ``tables`` beside a record, named by their content: equal ones are stored once.

    Returns:
        The file's name by the table's, for the record at ``path``.
    """
    stored = {}
    for name, table in tables.items():
        text = table.to_csv(index=False, float_format=DIGITS, lineterminator="\n")
        stored[name] = f"{name}-{_checksum(text)}.csv"
        target = path.parent / TABLES / stored[name]
        if not target.exists() or _checksum(
            target.read_text(encoding="utf-8", errors="replace")
        ) != _checksum(text):
            write_text(target, text)
    return stored


def read_tables(path: Path) -> dict[str, pd.DataFrame]:
    """Tables that the record at ``path`` names; a missing or changed one is an error."""
    found = {}
    tables = read_json(path).get("tables")
    if not isinstance(tables, dict) or any(Path(str(file)).name != file for file in tables.values()):
        raise ValueError(f"{path} is damaged: tables must be names of files; delete it to measure again")
    for name, file in tables.items():
        source = path.parent / TABLES / file
        try:
            with open_file(source, largest=LARGEST) as held:
                text = held.read().decode()
        except (FileNotFoundError, UnicodeDecodeError):
            raise MissingTableError(
                f"{source} is missing or damaged; restore it, or delete {path} to measure again"
            ) from None
        if file != f"{name}-{_checksum(text)}.csv":
            raise MissingTableError(
                f"{source} has changed since it was stored; restore it, or delete {path} to measure again"
            )
        found[name] = pd.read_csv(io.StringIO(text)) if text.strip() else pd.DataFrame()
    return found


def _path(folder: Path, artefact: Artefact, scale: str, world: str | None) -> Path:
    return folder / artefact.paper / ".".join(filter(None, (artefact.name, scale, world, "json")))


def _checksum(text: str) -> str:
    """Of a table's text; line endings are those of the checkout."""
    return hashlib.sha256(text.replace("\r\n", "\n").encode()).hexdigest()[:10]
