"""Measured artefacts on disk: JSON and CSV, small enough to be committed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from unseam.papers.artefact import DIGITS, SCALES, Artefact, Finding, Outcome, Result
from unseam.training.files import read_json, write_atomically, write_json

__all__ = ["committed", "load_result", "results_folder", "save_result"]


def save_result(result: Result, folder: Path) -> Path:
    """Write a result as JSON, its tables as CSV beside it; numbers keep six digits.

    That of a published data set in the place of its twin has a name of its own, and replaces none of the twin.

    Args:
        result: what was measured.
        folder: the root of all results; the paper's own folder is made in it.

    Returns:
        The path of the JSON file.
    """
    stem = _stem(folder, result.key, result.scale, result.world)
    for name, table in result.outcome.tables.items():
        path = stem.with_name(f"{stem.name}.{name}.csv")
        write_atomically(path, partial(table.to_csv, index=False, float_format=DIGITS))
    record = {
        "artefact": result.key,
        "scale": result.scale,
        "verdict": result.verdict,
        "command": result.command,
        "world": result.world,
        "seconds": result.seconds,
        "findings": [_rounded(finding._asdict()) for finding in result.outcome.findings],
        "note": result.outcome.note,
        "tables": list(result.outcome.tables),
        "settings": result.settings,
        "about": result.about,
    }
    path = stem.with_name(f"{stem.name}.json")
    write_json(path, json.loads(json.dumps(record, default=list)))
    return path


def load_result(path: Path) -> Result:
    """Read a result that :func:`save_result` wrote, or say what is wrong with it."""
    import pandas as pd

    record = read_json(path)
    try:
        findings = tuple(Finding(**finding) for finding in record["findings"])
        tables = {
            name: pd.read_csv(path.with_name(f"{path.stem}.{name}.csv"), keep_default_na=True)
            for name in record["tables"]
        }
        return Result(
            record["artefact"],
            record["scale"],
            record["settings"],
            Outcome(findings, tables, record["note"]),
            record["about"],
            record["seconds"],
            record.get("world"),
        )
    except (KeyError, TypeError, ValueError, FileNotFoundError) as error:
        raise ValueError(f"{path} is no result of an artefact ({error}); measure it again") from None


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
    for scale in reversed(SCALES):
        path = _stem(folder, artefact.key, scale, world)
        path = path.with_name(f"{path.name}.json")
        if path.exists():
            return load_result(path)
    return None


def results_folder() -> Path:
    """Where committed results are: in the source tree, or beside the installed package.

    >>> results_folder().name
    'results'
    """
    package = Path(__file__).parents[1]
    tree = package.parents[1] / "results"
    return tree if tree.is_dir() else package / "results"


def _stem(folder: Path, key: str, scale: str, world: str | None) -> Path:
    paper, name = key.split(".", 1)
    return folder / paper / ".".join(filter(None, (name, scale, world)))


def _rounded(record: Mapping[str, Any]) -> dict[str, Any]:
    """Floats to six digits; what is not finite has no place in JSON."""
    return {
        key: (float(DIGITS % value) if value == value and abs(value) != float("inf") else None)
        if isinstance(value, float)
        else value
        for key, value in record.items()
    }
