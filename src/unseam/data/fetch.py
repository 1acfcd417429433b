"""Fetching published files from their mirrors and checking them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from unseam.data.files import DamagedFileError, MissingFileError, home, locate
from unseam.data.idx import unpack
from unseam.data.sources import PUBLISHED, Published, RemoteFile
from unseam.files import DiskFullError, replacing

__all__ = ["FetchError", "FileState", "Listing", "fetch", "listing", "verify"]

TIMEOUT = 30.0
"""Seconds without an answer after which the next mirror is tried."""


class FetchError(OSError):
    """No mirror gave the file."""


class FileState(NamedTuple):
    """What became of one file.

    Attributes:
        filename: its published name.
        path: where it is, or would be.
        state: ``verified`` (checksum or content as published), ``recorded`` (as when it was first fetched; no checksum
            is published), ``unchecked`` (there is nothing to compare with), ``differs`` or ``missing``.
        detail: the same in words.
    """

    filename: str
    path: Path
    state: str
    detail: str

    @property
    def good(self) -> bool:
        """Whether the file is there and nothing speaks against it."""
        return self.state in ("verified", "recorded", "unchecked")


class Listing(NamedTuple):
    """One line of ``unseam data list``.

    Attributes:
        name: the world's name.
        variant: which of its files, where there are several, else ``None``.
        present: whether all its files are found.
        size: bytes to fetch, where known.
        checksum: ``published``, or ``recorded on first fetch`` where none is published, or ``none``.
        note: what else to know, such as why it cannot be fetched.
    """

    name: str
    variant: str | None
    present: bool
    size: int | None
    checksum: str
    note: str


def fetch(
    name: str,
    root: str | Path | None = None,
    *,
    variant: str | None = None,
    progress: object = False,
    catalogue: Mapping[str, Published] = PUBLISHED,
) -> tuple[FileState, ...]:
    """Fetch the files of a published data set that are not there yet, each from the first mirror that gives it.

    A file is compared with its published checksum before it gets its name; where none is published, its
    SHA-256 is recorded beside it and compared from then on.

    Args:
        name: name of the data set.
        root: folder for the files; by default a folder of that name in the cache.
        variant: which files, where there are several; by default the first.
        progress: a progress bar as pooch takes it, or ``False``.
        catalogue: data sets by key.

    >>> fetch("faces3d")
    Traceback (most recent call last):
    ValueError: world 'faces3d' cannot be fetched: its licence ...
    """
    entry = _entry(name, variant, catalogue)
    if not all(file.urls for file in entry.files):
        raise ValueError(f"world {name!r} cannot be fetched: {entry.note}")
    folder = home() / name if root is None else Path(root).expanduser()
    if folder.is_file():
        raise ValueError(f"root must be a folder for the files, got the file {folder}")
    states = []
    for file in entry.files:
        state = _state(file, folder / file.filename)
        states.append(state if state.good else _download(name, file, folder / file.filename, progress))
    return tuple(states)


def verify(
    name: str,
    root: str | Path | None = None,
    *,
    variant: str | None = None,
    catalogue: Mapping[str, Published] = PUBLISHED,
) -> tuple[FileState, ...]:
    """Compare the files of a published data set with their checksums.

    Args:
        name: name of the data set.
        root: file or folder that holds it; by default the cache folder.
        variant: which files, where there are several; by default the first.
        catalogue: data sets by key.

    >>> verify("dsprites", "/nowhere")[0].state
    'missing'
    """
    entry = _entry(name, variant, catalogue)
    return tuple(_state(file, _path(entry, file, root)) for file in entry.files)


def listing(
    root: str | Path | None = None, *, catalogue: Mapping[str, Published] = PUBLISHED
) -> tuple[Listing, ...]:
    """Published data sets, with what is known of their files.

    Args:
        root: folder to look for files in; by default the cache folder.
        catalogue: data sets by key.

    >>> {line.checksum for line in listing() if line.name == "mnist"}
    {'published'}
    """
    return tuple(_line(entry, root) for entry in catalogue.values())


def _line(entry: Published, root: str | Path | None) -> Listing:
    sizes = [file.size for file in entry.files]
    known = all(file.checksum for file in entry.files)
    checksum = "published" if known else "recorded on first fetch" if entry.files[0].urls else "none"
    return Listing(
        entry.name,
        entry.variant,
        all(_path(entry, file, root).is_file() for file in entry.files),
        sum(size for size in sizes if size) if all(sizes) else None,
        checksum,
        entry.note,
    )


def _entry(name: str, variant: str | None, catalogue: Mapping[str, Published]) -> Published:
    """The data set of that name and variant."""
    entries = [entry for entry in catalogue.values() if entry.name == name]
    if not entries:
        known = ", ".join(dict.fromkeys(entry.name for entry in catalogue.values()))
        raise ValueError(f"name must be a published data set, one of {known}, got {name!r}")
    if variant is None:
        return entries[0]
    chosen = [entry for entry in entries if entry.variant == variant]
    if not chosen:
        variants = ", ".join(entry.variant for entry in entries if entry.variant) or "none"
        raise ValueError(f"variant of {name!r} must be one of {variants}, got {variant!r}")
    return chosen[0]


def _path(entry: Published, file: RemoteFile, root: str | Path | None) -> Path:
    """Where a file is, or would be."""
    plain = file.filename.removesuffix(".gz")
    try:
        return locate(entry.name, (file.filename, plain), root)
    except MissingFileError:
        return (home() / entry.name if root is None else Path(root).expanduser()) / file.filename


def _state(file: RemoteFile, path: Path) -> FileState:
    """Compare a file with what is known of it."""
    if not path.is_file():
        return FileState(file.filename, path, "missing", f"{path} does not exist")
    if file.checksum:
        if _digest(path, file.checksum.partition(":")[0]) == file.checksum:
            return FileState(file.filename, path, "verified", "checksum as published")
        if file.content and _content(path) == file.content:
            return FileState(file.filename, path, "verified", "content as published, compressed again")
        return FileState(file.filename, path, "differs", f"{path} differs from the published {file.checksum}")
    record = _record(path)
    if not record.is_file():
        return FileState(file.filename, path, "unchecked", "no checksum is published, and none was recorded")
    if record.read_text().split()[:1] == [_digest(path, "sha256").partition(":")[2]]:
        return FileState(file.filename, path, "recorded", "as when it was first fetched; none is published")
    return FileState(file.filename, path, "differs", f"{path} differs from its record {record.name}")


def _download(name: str, file: RemoteFile, path: Path, progress: object) -> FileState:
    """Fetch a file from the first mirror that gives it whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free
    if file.size and free < file.size:
        raise DiskFullError(
            f"{file.filename} takes {file.size / 1e9:.2f} GB, but {path.parent} has {free / 1e9:.2f} GB free"
        )
    failures = []
    for url in file.urls:
        try:
            return _download_from(url, file, path, progress)
        except DiskFullError:
            raise
        except (OSError, DamagedFileError) as error:
            failures.append(f"{url}: {(str(error) or type(error).__name__).splitlines()[0]}")
    raise FetchError(
        f"no mirror gave {file.filename} of world {name!r} ({'; '.join(failures)}); "
        "try again later, or get the file yourself and pass root="
    )


def _download_from(url: str, file: RemoteFile, path: Path, progress: object) -> FileState:
    """Fetch a file from one address, check it, and only then give it its name."""
    import pooch

    with replacing(path) as temporary:
        pooch.HTTPDownloader(progressbar=progress, timeout=TIMEOUT)(url, str(temporary), None)
        digest = _digest(temporary, file.checksum.partition(":")[0] if file.checksum else "sha256")
        if file.checksum and digest != file.checksum:
            raise DamagedFileError(f"wrong checksum, expected {file.checksum}, got {digest}")
        with temporary.open("rb") as content:
            if content.read(len(file.magic)) != file.magic:
                raise DamagedFileError("it answered with something else than the file")
    if file.checksum:
        return FileState(file.filename, path, "verified", "checksum as published")
    with replacing(_record(path)) as temporary:
        temporary.write_text(f"{digest.partition(':')[2]}  {path.name}\n")
    return FileState(file.filename, path, "recorded", f"none is published; {digest} recorded")


def _digest(path: Path, algorithm: str) -> str:
    """``algorithm:digest`` of a file."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _content(path: Path) -> str | None:
    """SHA-256 of what a file unpacks to, or ``None`` where it is damaged."""
    try:
        return hashlib.sha256(unpack(path)).hexdigest()
    except DamagedFileError:
        return None


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
