"""Files on disk: JSON, safetensors and Parquet, written to a temporary name and renamed; arrays of the user's own."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DiskFullError",
    "check_rows",
    "clear_parts",
    "digest",
    "read_array",
    "read_json",
    "read_table",
    "read_tensors",
    "replacing",
    "spread",
    "write_atomically",
    "write_json",
    "write_table",
    "write_tensors",
    "write_text",
]


# Values of a file that are checked at once: 16 MB in single precision.
_AT_ONCE = 2**22


class DiskFullError(OSError):
    """There is no room for a file that has to be written."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that becomes ``path`` when the block ends well, and else vanishes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("whole")
    ...     os.listdir(folder)
    ['a.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFullError(
                f"the disk of {path.parent} became full while writing {path.name}: {error.strerror}"
            ) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` make a temporary file beside ``path``, then rename it: readers see all of it or none."""
    try:
        with replacing(path) as temporary:
            write(temporary)
    except OSError as error:
        raise OSError(
            f"could not write {path}: {error}. What was there before is untouched; free some space or check the "
            f"permissions, then try again"
        ) from error


def clear_parts(folder: Path) -> None:
    """Remove the temporary files that a killed process left in a run's folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / ".run.json.x.part").touch()
    ...     clear_parts(Path(folder))
    ...     os.listdir(folder)
    []
    """
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def digest(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as empty:
    ...     digest(Path(empty.name))[:8]
    'e3b0c442'
    """
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="\n")

    write_atomically(path, write)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a mapping as indented JSON."""
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say what is wrong with the file.

    >>> read_json(Path("absent") / "run.json")
    Traceback (most recent call last):
    FileNotFoundError: absent holds no run.json; is it the folder of a run?
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise _absent(path) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}); train the run again or restore the file") from None
    if not isinstance(record, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(record).__name__}")
    return record


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, note: Mapping[str, str]) -> None:
    """Write named tensors as safetensors with string metadata."""
    from safetensors.torch import save_file

    held = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}

    def write(temporary: Path) -> None:
        try:
            save_file(held, temporary, metadata=dict(note))
        except Exception as error:
            # safetensors reports a full disk as an error of its own kind
            raise OSError(str(error)) from error

    write_atomically(path, write)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors, or say what is wrong with the file.

    >>> read_tensors(Path("absent") / "weights.safetensors")
    Traceback (most recent call last):
    FileNotFoundError: absent holds no weights.safetensors; is it the folder of a run?
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    _check_exists(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(
            f"{path} is truncated or damaged ({error}); restore the file or train the run again"
        ) from None


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a data frame as Parquet."""
    write_atomically(path, lambda temporary: table.to_parquet(temporary, index=False))


def read_table(path: Path) -> pd.DataFrame:
    """Read a Parquet file, or say what is wrong with it.

    >>> read_table(Path("absent") / "history.parquet")
    Traceback (most recent call last):
    FileNotFoundError: absent holds no history.parquet; is it the folder of a run?
    """
    import pandas as pd
    import pyarrow as pa

    _check_exists(path)
    try:
        return pd.read_parquet(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is truncated or damaged ({error}); restore the file") from None


def read_array(path: Path, points: int | None = None) -> Tensor:
    """Floating-point rows from ``.npy``, ``.npz`` or ``.safetensors`` with one array; nothing can run code.

    Args:
        path: the file; mapped into memory where its format allows, so it may be larger than that.
        points: read no more rows than this, spread over the file; all rows are checked in any case.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give a .npy, .npz or .safetensors file")
    if path.suffix not in (".npy", ".npz", ".safetensors"):
        raise ValueError(f"{path} must end in .npy, .npz or .safetensors")
    try:
        arrays = _arrays(path)
    except Exception as error:
        # each format has errors of its own for a file that stops early or is another format
        raise ValueError(f"{path} is truncated or damaged, or holds objects: {error}") from None
    if len(arrays) != 1:
        raise ValueError(f"{path} must hold one array, got {', '.join(sorted(arrays)) or 'none'}")
    (rows,) = arrays.values()
    check_rows(rows, str(path))
    rows = rows if points is None else spread(rows, points)
    return rows if rows.dtype.is_floating_point else rows.float()


def check_rows(rows: Tensor, name: str) -> None:
    """Refuse what is not rows (batch, ...) of finite values, a bounded part at a time.

    >>> check_rows(torch.tensor([[0.0], [float("nan")], [1.0]]), "x.npy")
    Traceback (most recent call last):
    ValueError: x.npy must be finite, got NaN or infinite values in 1 of 3 rows, first in row 1 (counted from 0)
    """
    if rows.ndim < 2 or not rows.numel():
        raise ValueError(f"{name} must hold rows (batch, ...), got shape {tuple(rows.shape)}")
    if not rows.dtype.is_floating_point:
        return
    size = max(1, _AT_ONCE // rows[0].numel())
    sound = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    for part, found in zip(rows.split(size), sound.split(size), strict=True):
        torch.all(part.flatten(1).isfinite(), 1, out=found)
    bad = (~sound).nonzero().flatten()
    if len(bad):
        raise ValueError(
            f"{name} must be finite, got NaN or infinite values in {len(bad)} of {len(rows)} rows, "
            f"first in row {int(bad[0])} (counted from 0)"
        )


def spread(rows: Tensor, points: int) -> Tensor:
    """At most so many rows, evenly spread over those given.

    >>> spread(torch.arange(10.0)[:, None], 3).flatten()
    tensor([0., 4., 9.])
    """
    if len(rows) <= points:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, points, dtype=torch.float64).round().long()]


def _arrays(path: Path) -> dict[str, Tensor]:
    """All arrays of a file, by name."""
    import numpy as np
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        return load_file(path)
    if path.suffix == ".npy":
        # mapped copy on write: what is never written to is never read whole, and torch wants writable memory
        return {"": torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))}
    with np.load(path, allow_pickle=False) as held:
        return {key: torch.from_numpy(held[key]) for key in held.files}


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise _absent(path)


def _absent(path: Path) -> FileNotFoundError:
    return FileNotFoundError(f"{path.parent} holds no {path.name}; is it the folder of a run?")
