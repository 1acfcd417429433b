"""Who writes: marks of living processes, and a lock that lets one process at a time write to a folder."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["FolderLock", "LockedError", "alive", "lock_folder", "mark", "temporary_name"]

LOCK = ".lock"
EXPIRY = 120.0
"""Seconds without a sign of life after which the lock of a process on another machine is taken over."""
HEARTBEAT = 15.0
"""Seconds between two signs of life."""
LARGEST = 1 << 16
"""Bytes of a lock file that are read at most."""


class LockedError(OSError):
    """Another process writes to the folder."""


def mark() -> str:
    """This process among all that ever ran: its machine since the last boot, its number, and when it began.

    >>> alive(mark())
    True
    """
    return _mark(os.getpid())


def alive(mark: str) -> bool | None:
    """Whether the process of a mark still runs, or ``None`` where it cannot be told, as on another machine.

    >>> alive("00000000-1-1") is None
    True
    """
    machine, _, rest = mark.partition("-")
    number, _, began = rest.partition("-")
    if machine != _machine() or not number.isdecimal():
        return None
    if Path("/proc/self/stat").exists():
        return _began(int(number)) == began
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def temporary_name(name: str) -> str:
    """A name beside ``name`` that says which process it belongs to.

    >>> temporary_name("run.json").startswith(".run.json.")
    True
    """
    return f".{name}.{mark()}.{secrets.token_hex(4)}.part"


class FolderLock:
    """The right to write to a folder, held until it is released or the process ends.

    The lock is a file that is linked into place whole, which is atomic on network file systems too, and whose date is
    renewed while its holder lives. A holder on the same machine is looked up among the living processes; one on another
    machine is taken for dead when its file was not renewed for :data:`EXPIRY`, by the clock of the file system.

    Args:
        folder: what to write to; made where it does not exist.
        name: of the lock file, where only a part of the folder is written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = FolderLock(Path(folder))
    ...     lock.check()
    ...     lock.release()
    ...     os.listdir(folder)
    []
    """

    def __init__(self, folder: Path, name: str = LOCK) -> None:
        self.folder, self.path = folder, folder / name
        self.process, self.token = os.getpid(), secrets.token_hex(8)
        self._released = threading.Event()
        folder.mkdir(parents=True, exist_ok=True)
        own = folder / temporary_name(name)
        try:
            own.write_text(json.dumps(self._record()))
            while not self._linked(own):
                os.utime(own)
                self._check_stale(_read(self.path), own)
        finally:
            own.unlink(missing_ok=True)
        threading.Thread(target=self._renew, daemon=True, name=f"lock of {folder}").start()

    def check(self) -> None:
        """Raise :class:`LockedError` where another process has taken the lock over, as after a long suspension."""
        if not self._held():
            raise LockedError(
                f"{self.folder} was taken over by {_describe(_read(self.path))} while this process gave no sign of "
                f"life for {EXPIRY:.0f} s; nothing more is written to it"
            )

    def release(self) -> None:
        """Let others write."""
        self._released.set()
        if os.getpid() == self.process and self._held():
            self.path.unlink(missing_ok=True)

    def _record(self) -> dict[str, Any]:
        return {
            "host": platform.node(),
            "pid": self.process,
            "folder": str(self.folder.resolve()),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "mark": mark(),
            "token": self.token,
        }

    def _linked(self, own: Path) -> bool:
        """Whether the lock could be taken: there was none."""
        try:
            os.link(own, self.path)
        except FileExistsError:
            # a reply of a network file system may get lost: the link counts, not the answer
            return own.stat().st_nlink == 2
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO):
                raise
            return self._created()
        return True

    def _created(self) -> bool:
        """The same on a file system without links."""
        try:
            with self.path.open("x") as file:
                json.dump(self._record(), file)
        except FileExistsError:
            return False
        return True

    def _check_stale(self, holder: dict[str, Any] | None, own: Path) -> None:
        """Remove the lock of a dead process; that of a living one is an error."""
        if holder is None:
            return
        living = alive(str(holder.get("mark")))
        if living is None:
            with suppress(FileNotFoundError):
                living = abs(own.stat().st_mtime - self.path.stat().st_mtime) < EXPIRY
        if living:
            copied = holder.get("folder") != str(self.folder.resolve())
            hint = f"; if this is a copy of {holder.get('folder')}, remove {self.path}" if copied else ""
            raise LockedError(
                f"{self.folder} is being written by {_describe(holder)}; wait until it is done, or choose another "
                f"folder{hint}"
            )
        # Renamed before it is removed: of two processes that find the same dead lock, one succeeds. If it was
        # another's new lock by now, it is given back.
        stale = self.folder / temporary_name(self.path.name)
        with suppress(FileNotFoundError):
            os.rename(self.path, stale)
            if (_read(stale) or {}).get("token") != holder.get("token"):
                with suppress(FileExistsError):
                    os.link(stale, self.path)
            stale.unlink(missing_ok=True)

    def _held(self) -> bool:
        holder = _read(self.path)
        return holder is not None and holder.get("token") == self.token

    def _renew(self) -> None:
        while not self._released.wait(HEARTBEAT):
            with suppress(OSError):
                if self._held():
                    os.utime(self.path)


@contextmanager
def lock_folder(folder: Path, name: str = LOCK, *, wait: float = 0.0) -> Iterator[FolderLock]:
    """Hold the lock of a folder inside the block.

    Args:
        folder: what to write to.
        name: of the lock file.
        wait: seconds to wait for another process before :class:`LockedError`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name, lock_folder(Path(name)):
    ...     with lock_folder(Path(name)): pass
    Traceback (most recent call last):
    unseam.locks.LockedError: ... is being written by process ...
    """
    deadline = time.monotonic() + wait
    while True:
        try:
            lock = FolderLock(folder, name)
            break
        except LockedError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)
    try:
        yield lock
    finally:
        lock.release()


def _describe(holder: dict[str, Any] | None) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}"


def _read(path: Path) -> dict[str, Any] | None:
    """What a lock file says; nothing where there is none, or where it is still being written."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST)
    except FileNotFoundError:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


@functools.cache
def _mark(process: int) -> str:
    return f"{_machine()}-{process}-{_began(process)}"


@functools.cache
def _machine() -> str:
    """This machine since it was started, and the container in which processes have their numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        text = f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        text = platform.node()
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _began(process: int) -> str | None:
    """When a process began, in ticks since the machine did; nothing where it is gone, "0" where no one knows."""
    if not Path("/proc/self/stat").exists():
        return "0"
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else fields[18]
