"""What was measured of trainings, kept as small tables where other artefacts of a paper find it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unseam.training.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["digest", "kept"]

DIGITS = "%.6g"
Tables = TypeVar("Tables", bound="tuple[Any, ...]")


def kept(folder: Path | None, name: str, kind: type[Tables], make: Callable[[], Tables]) -> Tables:
    """Tables that were made before under this name, or made now and kept.

    Args:
        folder: where they are kept, one CSV file a table; none for nowhere.
        name: of all that they depend on (see :func:`digest`).
        kind: NamedTuple of tables (``pandas.DataFrame``).
        make: makes them.

    >>> from typing import NamedTuple
    >>> class Numbers(NamedTuple):
    ...     first: object
    >>> kept(None, "a", Numbers, lambda: Numbers(1)).first
    1
    """
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    if folder is None:
        return make()
    paths = [folder / f"{name}.{table}.csv" for table in names]
    if all(path.exists() for path in paths):
        return kind(*map(_read, paths))
    found = make()
    for path, table in zip(paths, found, strict=True):
        write_atomically(path, partial(table.to_csv, index=False, float_format=DIGITS))
    return found


def _read(path: Path) -> pd.DataFrame:
    """A table that is whole: its last line ends, and its lines have one length."""
    import pandas as pd

    try:
        text = path.read_text(encoding="utf-8")
        if text.endswith("\n"):
            return pd.read_csv(io.StringIO(text))
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError):
        pass
    raise ValueError(f"{path} is damaged; delete it, and its training is done again, or bring it back")


def digest(given: Any) -> str:
    """A short name of JSON values.

    >>> digest([{"seeds": 3}, "VAE"])
    'e1a49b44c5fa'
    """
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:12]
