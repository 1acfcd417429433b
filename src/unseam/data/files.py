"""Finding published files, and turning large ones once into memory maps."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from unseam.files import DiskFullError, replacing

__all__ = [
    "DamagedFileError",
    "MissingFileError",
    "as_memory_map",
    "home",
    "locate",
]


_BYTES = np.dtype(np.uint8)


class MissingFileError(FileNotFoundError):
    """A published file is not where it was looked for.

    Attributes:
        need: the file and how to get it, without the folder that was looked in: for results that travel.
    """

    def __init__(self, message: str, need: str = "") -> None:
        super().__init__(message)
        self.need = need or message


class DamagedFileError(ValueError):
    """A file is not what was published: cut short, changed, or something else altogether."""


def home() -> Path:
    """Folder where fetched files and conversions are stored: ``unseam`` in the user's cache folder.

    >>> home().name
    'unseam'
    """
    try:
        import pooch
    except ImportError:  # which is only needed to download
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unseam"
    return Path(pooch.os_cache("unseam"))


def locate(name: str, filenames: tuple[str, ...], root: str | Path | None, *, hint: str = "") -> Path:
    """Path of a published file.

    Args:
        name: world that the file belongs to.
        filenames: names it may have, the published one first.
        root: the file itself, or a folder that holds it directly or in a folder of the world's name; by default the
            cache folder.
        hint: what else to say to someone who does not have it.

    >>> locate("mnist", ("nothing.gz",), "/nowhere")
    Traceback (most recent call last):
    unseam.data.files.MissingFileError: world 'mnist' needs the file nothing.gz, and /nowhere does not exist; ...
    """
    folder = home() if root is None else Path(root).expanduser()
    if folder.is_file():
        return folder
    places = [folder, folder / name, folder / name.replace("_", "-")]
    for place in places:
        for filename in filenames:
            if (place / filename).is_file():
                return place / filename
    state = "does not hold it" if folder.is_dir() else "does not exist"
    advice = hint or f"fetch it with `unseam data fetch {name}` or pass root= with the file or its folder"
    need = f"world {name!r} needs the file {filenames[0]}"
    raise MissingFileError(f"{need}, and {folder} {state}; {advice}", f"{need}; {advice}")


def as_memory_map(
    source: Path,
    shape: tuple[int, ...],
    blocks: Iterable[np.ndarray],
    *,
    dtype: np.dtype = _BYTES,
    mark: str = "",
) -> np.ndarray:
    """Items of a file as a memory map, converted on first use.

    The conversion lies beside the source, or in the cache folder where that cannot be written, under a name
    that changes with the source's size and date. It appears whole or not at all.

    Args:
        source: the published file.
        shape: shape (item, *shape) of the result.
        blocks: consecutive items; read only when there is no conversion yet.
        dtype: type of the result.
        mark: what else the conversion depends on.
    """
    stat = source.stat()
    text = f"{stat.st_size}:{stat.st_mtime_ns}:{shape}{mark}"
    name = f"{source.name}.{hashlib.sha256(text.encode()).hexdigest()[:12]}.npy"
    folders = [source.parent, home()]
    for folder in folders:
        found = _open(folder / name, shape, dtype)
        if found is not None:
            return found
    target = _room(folders, int(np.prod(shape)) * dtype.itemsize, source) / name
    with replacing(target) as temporary, temporary.open("wb") as file:
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype=dtype).data)
    result = _open(target, shape, dtype)
    if result is None:
        raise DamagedFileError(f"{source} does not hold items of shape {shape}; fetch it again")
    return result


def _open(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    """A conversion as a memory map, or ``None`` where there is none that is whole."""
    if not path.is_file():
        return None
    try:
        table: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError):
        return None
    return table if table.shape == shape and table.dtype == dtype else None


def _room(folders: list[Path], needed: int, source: Path) -> Path:
    """The first folder that can be written and has room for so many bytes."""
    free = []
    for folder in folders:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not os.access(existing, os.W_OK):
            free.append(f"{folder} cannot be written")
            continue
        room = shutil.disk_usage(existing).free
        if room > needed:
            return folder
        free.append(f"{folder} has {room / 1e9:.1f} GB free")
    raise DiskFullError(
        f"{source.name} needs {needed / 1e9:.1f} GB for its memory map, but {' and '.join(free)}; "
        "make room, or move the file to a larger disk and pass root="
    )
