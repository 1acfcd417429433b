"""Files on disk: opened within limits, written to a temporary name and renamed; arrays of the user's own."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from unseam.inputs import as_tensor
from unseam.locks import alive, temporary_name

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = [
    "DiskFullError",
    "TensorShape",
    "check_memory",
    "check_parquet",
    "check_rows",
    "clear_parts",
    "digest",
    "first_line",
    "npz_header",
    "open_file",
    "read_array",
    "read_arrays",
    "read_json",
    "read_table",
    "read_tensors",
    "remove_folder",
    "replacing",
    "sample_rows",
    "sync_folder",
    "tensor_shapes",
    "write_atomically",
    "write_json",
    "write_table",
    "write_tensors",
    "write_text",
]


# Values of a file that are checked at once: 16 MB in single precision.
_AT_ONCE = 2**22
# Records are text of a few kilobytes; those of the largest sweeps have some megabytes.
_LARGEST_JSON = 64 << 20
# Rows of a table that are decoded at once, so that its size is noticed on the way.
_ROWS = 4096
# Temporary files: whose they are, or of which process of an earlier version no one knows.
_PART = re.compile(r"\..+\.(?P<mark>[0-9a-f]{8}-\d+-\d+)\.[0-9a-f]{8}\.part")
_UNSIGNED = re.compile(r"\..+\.[0-9a-f]{8}\.part|\.tmp\w{6}")
_ABANDONED = 3600.0


class DiskFullError(OSError):
    """There is no room for a file that has to be written."""


def open_file(path: Path, *, largest: int | None = None) -> IO[bytes]:
    """Open a regular file for reading: no pipe, socket or device, which may have no end.

    Args:
        path: the file.
        largest: bytes that it may have.

    >>> open_file(Path("/dev/zero"))
    Traceback (most recent call last):
    ValueError: /dev/zero must be a regular file, got a device
    """
    # without O_NONBLOCK, opening a pipe waits for someone who writes to it
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    state = os.fstat(number)
    if not stat.S_ISREG(state.st_mode) or (largest is not None and state.st_size > largest):
        os.close(number)
        if stat.S_ISREG(state.st_mode):
            raise ValueError(f"{path} must have at most {largest} bytes, got {state.st_size}")
        raise ValueError(f"{path} must be a regular file, got {_kind(state.st_mode)}")
    return os.fdopen(number, "rb")


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((word for test, word in kinds if test(mode)), "a device")


def check_memory(needed: int, name: str) -> None:
    """Refuse to read what memory cannot hold, before any of it is allocated.

    >>> check_memory(1 << 60, "x.npz")
    Traceback (most recent call last):
    ValueError: x.npz needs 1152921504.6 GB of memory, but ... GB are free
    """
    from unseam.geometry.memory import free_memory

    free = free_memory(torch.device("cpu"))
    if needed > free:
        wanted = min(needed, 10**30) / 1e9
        raise ValueError(f"{name} needs {wanted:.1f} GB of memory, but {free / 1e9:.1f} GB are free")


def digest(path: Path, algorithm: str = "sha256") -> str:
    """``algorithm:digest`` of a file's content.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a").write_bytes(b"")
    ...     digest(Path(folder) / "a", "md5")
    'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    with open_file(path) as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"  # type: ignore[arg-type]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that becomes ``path`` when the block ends well, and else vanishes.

    What killed processes left in the folder is removed first.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("whole")
    ...     os.listdir(folder)
    ['a.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_parts(path.parent, of=path.name)
    temporary = path.with_name(temporary_name(path.name))
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFullError(
                f"the disk of {path.parent} became full while writing {path.name}: {error.strerror}"
            ) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files survive a loss of power, where the file system can."""
    if os.name != "posix":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(number)


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


def clear_parts(folder: Path, of: str | None = None) -> None:
    """Remove temporary files that belong to no living process: of one file, or in a run's folder of all.

    Of a process on another machine, or one that did not sign its files, no one knows whether it lives: its files are
    removed when they have not changed for an hour.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / temporary_name("run.json")).touch()
    ...     clear_parts(Path(folder))
    ...     len(os.listdir(folder))
    1
    """
    for entry in os.scandir(folder) if folder.is_dir() else ():
        signed = _PART.fullmatch(entry.name)
        if signed is None and (of is not None or not _UNSIGNED.fullmatch(entry.name)):
            continue
        if of is not None and not entry.name.startswith(f".{of}."):
            continue
        living = alive(signed["mark"]) if signed is not None else None
        try:
            if living is None:
                living = time.time() - entry.stat(follow_symlinks=False).st_mtime < _ABANDONED
            if entry.is_dir(follow_symlinks=False):
                living = living or signed is None
            if not living and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif not living:
                os.unlink(entry.path)
        except OSError:
            continue  # another process was faster, or it is not ours to remove


def remove_folder(folder: Path) -> None:
    """Remove a folder that others may look into: it is there whole or not at all."""
    passing = folder.with_name(temporary_name(folder.name.strip(".")))
    with suppress(FileNotFoundError):
        os.rename(folder, passing)
        shutil.rmtree(passing, ignore_errors=True)


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
        with open_file(path, largest=_LARGEST_JSON) as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise _absent(path) from None
    try:
        record = json.loads(text.decode())
    except (ValueError, RecursionError) as error:  # ValueError of numbers with thousands of digits too
        raise ValueError(f"{path} is damaged ({error}); train the run again or restore the file") from None
    if not isinstance(record, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(record).__name__}")
    return record


_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, note: Mapping[str, str]) -> None:
    """Write named tensors as safetensors with string metadata, one after another.

    The format is written here, as ``safetensors.torch.save_file`` makes files that no one else can read, and temporary
    ones that stay when it is killed.
    """
    header: dict[str, Any] = {"__metadata__": dict(note)}
    offset = 0
    # widest types first, which keeps every tensor aligned
    named = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    for name, value in named:
        end = offset + value.numel() * value.dtype.itemsize
        header[name] = {
            "dtype": _TYPES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(len(head).to_bytes(8, "little") + head)
            for _, value in named:
                if value.numel():
                    file.write(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)

    write_atomically(path, write)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors, or say what is wrong with the file.

    >>> read_tensors(Path("absent") / "weights.safetensors")
    Traceback (most recent call last):
    FileNotFoundError: absent holds no weights.safetensors; is it the folder of a run?
    """
    from safetensors.torch import load_file

    check_memory(_size(path), str(path))
    with _safetensors(path):
        return load_file(path)


class TensorShape(NamedTuple):
    """Shape and type of a tensor in a file, by its safetensors name."""

    shape: tuple[int, ...]
    dtype: str


def tensor_shapes(path: Path) -> dict[str, TensorShape]:
    """Shapes and types of the tensors in a safetensors file, from its header."""
    from safetensors import safe_open

    _size(path)
    with _safetensors(path), safe_open(path, "pt") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {name: TensorShape(tuple(part.get_shape()), part.get_dtype()) for name, part in parts.items()}


@contextmanager
def _safetensors(path: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{path} is truncated or damaged ({error}); restore the file or train the run again"
        ) from None


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a data frame as Parquet."""
    write_atomically(path, lambda temporary: table.to_parquet(temporary, index=False))


def read_table(path: Path, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Read a Parquet file, or say what is wrong with it.

    Args:
        path: the file.
        columns: columns that it must have, each with the kinds of NumPy types that it may have, such as ``"iu"``.

    >>> read_table(Path("absent") / "history.parquet")
    Traceback (most recent call last):
    FileNotFoundError: absent holds no history.parquet; is it the folder of a run?
    """
    import pandas as pd
    import pyarrow as pa

    _size(path)
    try:
        with open_file(path) as file:
            check_parquet(file, str(path))
            table = pd.read_parquet(file)
    except (pa.ArrowException, OSError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(
            f"{path} is truncated or damaged ({first_line(error)}); restore or remove it"
        ) from None
    for name, kinds in (columns or {}).items():
        if name not in table or table[name].dtype.kind not in kinds:
            found = (
                f"{table[name].dtype} in it" if name in table else f"{', '.join(map(str, table)) or 'none'}"
            )
            raise ValueError(f"{path} must have a column {name!r} of its kind, got {found}; restore the file")
    return table


def check_parquet(file: IO[bytes], name: str) -> None:
    """Refuse nested columns, and more values than memory holds: as the file says, and as some rows at a time show.

    >>> import io
    >>> import pandas as pd
    >>> source = io.BytesIO(pd.DataFrame({"a": [[1]]}).to_parquet())
    >>> check_parquet(source, "a.parquet")
    Traceback (most recent call last):
    ValueError: a.parquet must hold plain columns, got nested ones
    """
    import pyarrow.parquet as pq

    source = pq.ParquetFile(file)
    meta, schema = source.metadata, source.schema
    if any(schema.column(i).path != schema.column(i).name for i in range(meta.num_columns)):
        raise ValueError(f"{name} must hold plain columns, got nested ones")
    groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
    check_memory(max(sum(g.total_byte_size for g in groups), meta.num_rows * meta.num_columns), name)
    held = 0
    for part in source.iter_batches(batch_size=_ROWS):
        held += part.nbytes
        check_memory(held, name)
    file.seek(0)


def read_array(path: Path, points: int | None = None) -> Tensor:
    """Rows from ``.npy``, ``.npz`` or ``.safetensors`` with one array, floating or bytes; nothing can run code.

    Args:
        path: the file; mapped into memory where its format allows, so it may be larger than that.
        points: read no more rows than this, always the same random ones; all rows are checked in any case.
    """
    arrays = read_arrays(path)
    if len(arrays) != 1:
        raise ValueError(f"{path} must hold one array, got {', '.join(sorted(arrays)) or 'none'}")
    (held,) = arrays.values()
    rows = as_tensor(str(path), held)
    check_rows(rows, str(path))
    rows = rows if points is None else sample_rows(rows, points)
    return rows if rows.dtype.is_floating_point or rows.dtype == torch.uint8 else rows.float()


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a ``.npy`` (mapped into memory), ``.npz`` or ``.safetensors`` file, by name; nothing can run code.

    >>> read_arrays(Path("absent.npy"))
    Traceback (most recent call last):
    FileNotFoundError: absent.npy does not exist; give a .npy, .npz or .safetensors file
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give a .npy, .npz or .safetensors file")
    if path.suffix not in (".npy", ".npz", ".safetensors"):
        raise ValueError(f"{path} must end in .npy, .npz or .safetensors")
    open_file(path).close()
    check_memory(_unpacked(path), str(path))
    try:
        return _arrays(path)
    except Exception as error:
        # each format has errors of its own for a file that stops early or is another format
        raise ValueError(f"{path} is truncated or damaged, or holds objects: {first_line(error)}") from None


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


def sample_rows(rows: Tensor, points: int, seed: int = 0) -> Tensor:
    """At most so many rows, drawn without replacement, in their order.

    >>> sample_rows(torch.arange(10.0)[:, None], 3).flatten()
    tensor([5., 6., 9.])
    """
    if len(rows) <= points:
        return rows
    import numpy as np

    # at random: evenly spaced rows fall into step with a table that is sorted by its factors
    return rows[torch.from_numpy(np.sort(np.random.default_rng(seed).choice(len(rows), points, False)))]


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a file, by name."""
    import numpy as np
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        held = load_file(path)
        # NumPy has no bfloat16
        return {key: (v.float() if v.dtype == torch.bfloat16 else v).numpy() for key, v in held.items()}
    if path.suffix == ".npy":
        # mapped copy on write: what is never written to is never read whole, and torch wants writable memory
        return {"": np.load(path, mmap_mode="c", allow_pickle=False)}
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def _unpacked(path: Path) -> int:
    """Bytes that the arrays of a file take in memory: none where it is mapped."""
    if path.suffix != ".npz":
        return 0
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            total = 0
            for member in archive.infolist():
                with archive.open(member) as stream:
                    shape, dtype, _ = npz_header(stream)
                if dtype.hasobject:
                    raise ValueError(f"{member.filename} holds objects, which could run code")
                content = math.prod(shape) * dtype.itemsize
                if content > member.file_size:
                    raise ValueError(
                        f"{member.filename} says it has {content} bytes, and has {member.file_size}"
                    )
                total += content
            return total
    except Exception as error:
        raise ValueError(f"{path} is truncated or damaged, or holds objects: {first_line(error)}") from None


def npz_header(stream: IO[bytes]) -> tuple[tuple[int, ...], Any, bool]:
    """Shape, type and Fortran order of an array from the head of its npy stream.

    >>> import io
    >>> import numpy as np
    >>> stream = io.BytesIO()
    >>> np.save(stream, np.zeros((2, 3)))
    >>> _ = stream.seek(0)
    >>> npz_header(stream)
    ((2, 3), dtype('float64'), False)
    """
    import numpy as np

    version = np.lib.format.read_magic(stream)
    head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = head(stream)
    if any(size < 0 for size in shape):
        raise ValueError(f"shape {shape} has negative sizes")
    return shape, dtype, fortran


def first_line(error: Exception) -> str:
    r"""The first line of an error's message, or the name of its type where it has none.

    >>> first_line(ValueError("one\ntwo")), first_line(KeyError())
    ('one', 'KeyError')
    """
    return (str(error) or type(error).__name__).splitlines()[0]


def _size(path: Path) -> int:
    """Bytes of a file of a run, which has to be there and a regular file."""
    try:
        with open_file(path) as file:
            return os.fstat(file.fileno()).st_size
    except (FileNotFoundError, NotADirectoryError):
        raise _absent(path) from None


def _absent(path: Path) -> FileNotFoundError:
    return FileNotFoundError(f"{path.parent} holds no {path.name}; is it the folder of a run?")
