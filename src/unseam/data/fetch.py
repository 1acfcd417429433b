"""Fetching published files from their mirrors and checking them."""

from __future__ import annotations

import hashlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Full, Queue
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

from unseam.data.files import DamagedFileError, MissingFileError, home, locate
from unseam.data.idx import unpack
from unseam.data.sources import PUBLISHED, Published, RemoteFile
from unseam.files import DiskFullError, digest, first_line, replacing

if TYPE_CHECKING:
    import requests

__all__ = ["FetchError", "FileState", "Listing", "check_published", "fetch", "listing", "verify"]

TIMEOUT = 30.0
"""Seconds without an answer after which the next mirror is tried."""
SLOWEST = 10_000.0
"""Bytes a second, on average, below which the next mirror is tried."""
LARGEST = 20_000_000_000
"""Bytes that are fetched of a file whose size is not known."""
PIECE = 1 << 16
REDIRECTIONS = 10
EVERY = 100_000_000
"""Bytes between two lines of progress at most, where there is no terminal."""


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
    progress: bool = False,
    unverified: bool = False,
    catalogue: Mapping[str, Published] = PUBLISHED,
) -> tuple[FileState, ...]:
    """Fetch the files of a published data set that are not there yet, each from the first mirror that gives it.

    A file is compared with its published checksum before it gets its name. Where none is published it is fetched only
    if ``unverified`` files are accepted; its SHA-256 is then recorded beside it and compared from then on. A mirror
    that sends more than the published size, or takes longer than a slow line would, is given up.

    Args:
        name: name of the data set.
        root: folder for the files; by default a folder of that name in the cache.
        variant: which files, where there are several; by default the first.
        progress: whether to say on standard error how far it is: a bar on a terminal, elsewhere a line every
            tenth, or 100 MB.
        unverified: whether to accept files whose checksum is not known.
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
    unknown = [file.filename for file in entry.files if not file.checksum]
    if unknown and not unverified and not all(_state(f, folder / f.filename).good for f in entry.files):
        raise ValueError(
            f"no checksum of {unknown[0]} is published, so what arrives cannot be verified; pass unverified=True "
            f"(--unverified) to accept it, and its digest is recorded and compared from then on"
        )
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
        if digest(path, file.checksum.partition(":")[0]) == file.checksum:
            return FileState(file.filename, path, "verified", "checksum as published")
        if file.content and _content(path) == file.content:
            return FileState(file.filename, path, "verified", "content as published, compressed again")
        return FileState(file.filename, path, "differs", f"{path} differs from the published {file.checksum}")
    record = _record(path)
    if not record.is_file():
        return FileState(file.filename, path, "unchecked", "no checksum is published, and none was recorded")
    if record.read_text().split()[:1] == [digest(path).partition(":")[2]]:
        return FileState(file.filename, path, "recorded", "as when it was first fetched; none is published")
    return FileState(file.filename, path, "differs", f"{path} differs from its record {record.name}")


def check_published(file: RemoteFile, path: Path) -> None:
    """Refuse a file that is not the published one, or not the one that was first fetched."""
    state = _state(file, path)
    if not state.good:
        raise DamagedFileError(f"{state.detail}; fetch it again")


def _download(name: str, file: RemoteFile, path: Path, progress: bool) -> FileState:
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
            failures.append(f"{url}: {first_line(error)}")
    raise FetchError(
        f"no mirror gave {file.filename} of world {name!r} ({'; '.join(failures)}); "
        "try again later, or get the file yourself and pass root="
    )


def _download_from(url: str, file: RemoteFile, path: Path, progress: bool) -> FileState:
    """Fetch a file from one address, check it, and only then give it its name."""
    with replacing(path) as temporary:
        with temporary.open("wb") as target:
            _copy(url, target, file.size or LARGEST, progress)
        size = temporary.stat().st_size
        if file.size and not file.checksum and size != file.size:
            raise DamagedFileError(f"it sent {size} bytes of {file.size}")
        found = digest(temporary, file.checksum.partition(":")[0] if file.checksum else "sha256")
        if file.checksum and found != file.checksum:
            raise DamagedFileError(f"wrong checksum, expected {file.checksum}, got {found}")
        with temporary.open("rb") as content:
            if content.read(len(file.magic)) != file.magic:
                raise DamagedFileError("it answered with something else than the file")
    if file.checksum:
        return FileState(file.filename, path, "verified", "checksum as published")
    with replacing(_record(path)) as temporary:
        temporary.write_text(f"{found.partition(':')[2]}  {path.name}\n")
    return FileState(file.filename, path, "recorded", f"none is published; {found} recorded")


def _copy(url: str, target: IO[bytes], largest: int, progress: bool) -> None:
    """Copy what an address sends, piece by piece as it comes, within limits of size and time."""
    import requests  # noqa: F401  not on the mirror's time

    pieces: Queue[bytes | Exception] = Queue(4)
    given_up = threading.Event()
    began, arrived = time.monotonic(), 0
    # in a thread, since an answer can hold a read up for ever that sends a byte of its headers now and then
    threading.Thread(target=_receive, args=(url, pieces, given_up), daemon=True).start()
    try:
        with _bar(progress, largest) as advance:
            while True:
                left = TIMEOUT + arrived / SLOWEST - (time.monotonic() - began)
                try:
                    piece = pieces.get(timeout=max(left, 0.0))
                except Empty:
                    spent = time.monotonic() - began
                    raise DamagedFileError(f"it sent {arrived} bytes in {spent:.0f} s") from None
                if isinstance(piece, Exception):
                    raise piece
                if not piece:
                    return
                arrived += len(piece)
                if arrived > largest:
                    raise DamagedFileError(f"it sent more than {largest} bytes")
                target.write(piece)
                advance(len(piece))
    finally:
        given_up.set()


def _receive(url: str, pieces: Queue[bytes | Exception], given_up: threading.Event) -> None:
    """Hand on what an address sends, an empty piece at its end, or what went wrong."""

    def give(piece: bytes | Exception) -> None:
        while not given_up.is_set():
            with suppress(Full):
                return pieces.put(piece, timeout=0.1)

    try:
        with _open(url) as answer:
            while not given_up.is_set() and (piece := answer.raw.read1(PIECE, decode_content=True)):
                give(piece)
        give(b"")
    except OSError as error:
        give(error)
    except Exception as error:  # urllib3 has errors of its own for transfers that break off
        give(FetchError(first_line(error)))


def _open(url: str) -> requests.Response:
    """The answer of an address, after its redirections, none of whose pages is read."""
    import requests

    with requests.Session() as session:
        for _ in range(REDIRECTIONS):
            request = session.prepare_request(requests.Request("GET", url))
            settings = session.merge_environment_settings(url, {}, True, None, None)
            answer = session.get_adapter(url).send(request, timeout=TIMEOUT, **settings)
            place = session.get_redirect_target(answer)
            if place is None:
                break
            answer.close()
            before, url = url, urljoin(url, place)
            if before.startswith("https:") and not url.startswith("https:"):
                raise FetchError(f"it leads to {url}, which is not encrypted")
        else:
            raise FetchError(f"it leads elsewhere more than {REDIRECTIONS} times")
    if answer.status_code != 200:
        answer.close()
        answer.raise_for_status()
        raise FetchError(f"it answered with status {answer.status_code}")
    return answer


@contextmanager
def _bar(wanted: bool, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, where one is wanted; lines where there is no terminal."""
    if not wanted:
        yield lambda count: None
        return
    if not sys.stderr.isatty():
        step, arrived = min(total / 10, EVERY), 0

        def line(count: int) -> None:
            nonlocal arrived
            before, arrived = arrived, arrived + count
            if arrived // step > before // step:
                of = "" if total == LARGEST else f" of {total / 1e6:.1f}"
                print(f"fetched {arrived / 1e6:.1f}{of} MB", file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    with Progress(
        *Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn(), console=Console(stderr=True)
    ) as bar:
        task = bar.add_task("fetching", total=None if total == LARGEST else total)
        yield lambda count: bar.advance(task, count)


def _content(path: Path) -> str | None:
    """SHA-256 of what a file unpacks to, or ``None`` where it is damaged."""
    try:
        return hashlib.sha256(unpack(path)).hexdigest()
    except DamagedFileError:
        return None


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
