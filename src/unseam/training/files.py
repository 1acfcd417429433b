"""A run folder on disk: JSON, safetensors and Parquet, each written to a temporary name and renamed."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "clear_parts",
    "read_json",
    "read_table",
    "read_tensors",
    "write_atomically",
    "write_json",
    "write_table",
    "write_tensors",
    "write_text",
]


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` make a temporary file beside ``path``, then rename it: readers see all of it or none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "note", lambda path: path.touch())
    ...     sorted(os.listdir(folder))
    ['note']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(
            f"could not write {path}: {error}. What was there before is untouched; free some space or check the "
            f"permissions, then try again"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


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


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder) / "note", "β")
    ...     (Path(folder) / "note").stat().st_size
    2
    """

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="\n")

    write_atomically(path, write)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a mapping as indented JSON.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder) / "a.json", {"a": 1})
    ...     read_json(Path(folder) / "a.json")
    {'a': 1}
    """
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
    """Write named tensors as safetensors with string metadata.

    >>> import torch
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tensors(Path(folder) / "w.safetensors", {"a": torch.ones(2)}, note={})
    ...     read_tensors(Path(folder) / "w.safetensors")
    {'a': tensor([1., 1.])}
    """
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
    """Write a data frame as Parquet.

    >>> import pandas as pd
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table(Path(folder) / "t.parquet", pd.DataFrame({"a": [1, 2]}))
    ...     read_table(Path(folder) / "t.parquet")["a"].tolist()
    [1, 2]
    """
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


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise _absent(path)


def _absent(path: Path) -> FileNotFoundError:
    return FileNotFoundError(f"{path.parent} holds no {path.name}; is it the folder of a run?")
