"""What was measured of trainings, kept as small tables where other artefacts of a paper find it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unseam.training.files import read_json, write_json, write_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["digest", "kept"]

DIGITS = "%.6g"
Tables = TypeVar("Tables", bound="tuple[Any, ...]")


def kept(folder: Path | None, name: str, kind: type[Tables], make: Callable[[], Tables]) -> Tables:
    """Tables that were made before under this name, or made now and kept.

    With a folder they come as they are kept, with six digits, whether made now or before. A file of checksums stands
    beside them: if any of the files is missing or was changed, that is an error, since a long training is not done
    again unasked; also where a process was killed between writing two of them.

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
    sums, paths = folder / f"{name}.json", [folder / f"{name}.{table}.csv" for table in names]
    if any(path.exists() for path in (sums, *paths)):
        expected = _expected(sums)
        return kind(*(_parsed(_checked(path, expected.get(path.name))) for path in paths))
    texts = [table.to_csv(index=False, float_format=DIGITS, lineterminator="\n") for table in make()]
    for path, text in zip(paths, texts, strict=True):
        write_text(path, text)
    write_json(sums, {path.name: _sum(text) for path, text in zip(paths, texts, strict=True)})
    return kind(*map(_parsed, texts))


def _expected(path: Path) -> dict[str, str]:
    try:
        return read_json(path)
    except FileNotFoundError:
        raise _lost(path, "missing") from None
    except ValueError:
        raise _lost(path, "damaged") from None


def _checked(path: Path, expected: str | None) -> str:
    """The text of a table as it was kept; lines may end as a checkout has them."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _lost(path, "missing") from None
    except UnicodeDecodeError:
        raise _lost(path, "damaged") from None
    if _sum(text) != expected:
        raise _lost(path, "damaged")
    return text


def _parsed(text: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(io.StringIO(text))


def _lost(path: Path, how: str) -> ValueError:
    all_of_it = path.name.split(".")[0] + ".*"
    return ValueError(
        f"{path} is {how}; bring it back, or delete {all_of_it} beside it, and the training is done again"
    )


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digest(given: Any) -> str:
    """A short name of JSON values.

    >>> digest([{"seeds": 3}, "VAE"])
    'e1a49b44c5fa'
    """
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:12]
