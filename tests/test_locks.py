"""Locks of folders, and what dead processes leave behind: who may write, and what is removed."""

import errno
import json
import os
import time
from pathlib import Path

import pytest

from unseam import locks
from unseam.files import clear_parts, sync_folder
from unseam.locks import EXPIRY, FolderLock, LockedError, lock_folder, mark, temporary_name

ELSEWHERE = "00000000-1-1"
DEAD = f"{mark().partition('-')[0]}-{os.getpid()}-1"
"""A process of this machine with this number that began at another time."""


def held_by(folder, its_mark, age=0.0):
    """The lock of another process, whose last sign of life was a while ago."""
    path = folder / ".lock"
    path.write_text(json.dumps({"mark": its_mark, "token": "its own", "pid": 7, "folder": str(folder)}))
    os.utime(path, (time.time() - age,) * 2)
    return path


def fail(error, before=lambda *arguments: None):
    """Stand-in for a function of the system that fails, though it did something before."""

    def failing(*arguments):
        before(*arguments)
        raise OSError(error, os.strerror(error))

    return failing


def test_a_lock_whose_link_was_made_but_not_answered_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", fail(errno.EEXIST, os.link))
    with lock_folder(tmp_path) as lock:
        lock.check()
        with pytest.raises(LockedError, match=f"written by process {os.getpid()} on"):
            FolderLock(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("reason", [errno.EPERM, errno.EOPNOTSUPP])
def test_file_systems_without_links_have_locks_too(tmp_path, monkeypatch, reason):
    monkeypatch.setattr(os, "link", fail(reason))
    with lock_folder(tmp_path):
        with pytest.raises(LockedError):
            FolderLock(tmp_path)
        assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_disk_that_takes_no_lock_is_an_error(tmp_path, monkeypatch, reason):
    monkeypatch.setattr(os, "link", fail(reason))
    with pytest.raises(OSError, match=os.strerror(reason)):
        FolderLock(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_reason_why_no_lock_can_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "write_text", fail(errno.ENOSPC))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        FolderLock(tmp_path)


@pytest.mark.parametrize(
    ("its_mark", "age"), [(DEAD, 0.0), (ELSEWHERE, EXPIRY + 5)], ids=["dead here", "silent elsewhere"]
)
def test_the_lock_of_a_dead_process_is_taken_over(tmp_path, its_mark, age):
    held_by(tmp_path, its_mark, age)
    with lock_folder(tmp_path) as lock:
        lock.check()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("its_mark", "age"), [(mark(), EXPIRY + 5), (ELSEWHERE, EXPIRY - 20)], ids=["here", "elsewhere"]
)
def test_the_lock_of_a_living_process_stays(tmp_path, its_mark, age):
    path = held_by(tmp_path, its_mark, age)
    with pytest.raises(LockedError, match="wait until it is done, or choose another folder$"):
        FolderLock(tmp_path)
    assert json.loads(path.read_text())["token"] == "its own"
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_that_was_taken_over_is_neither_held_nor_removed(tmp_path):
    lock = FolderLock(tmp_path)
    path = held_by(tmp_path, ELSEWHERE)
    with pytest.raises(LockedError, match="was taken over by process 7"):
        lock.check()
    lock.release()
    assert path.exists()


def test_a_holder_gives_signs_of_life_until_it_releases(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    lock = FolderLock(tmp_path)
    os.utime(lock.path, (0, 0))
    deadline = time.monotonic() + 10
    while not (renewed := lock.path.stat().st_mtime > 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    lock.release()
    assert renewed
    path = held_by(tmp_path, ELSEWHERE, 1e6)
    before = path.stat().st_mtime
    time.sleep(0.05)
    assert path.stat().st_mtime == before


def test_a_lock_that_is_lost_while_it_is_released_is_no_error(tmp_path, monkeypatch):
    lock, read = FolderLock(tmp_path), locks._read
    monkeypatch.setattr(locks, "_read", lambda path: (read(path), path.unlink())[0])
    lock.release()
    assert not list(tmp_path.iterdir())


def test_a_forked_child_does_not_release_its_parents_lock(tmp_path, monkeypatch):
    lock = FolderLock(tmp_path)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: lock.process + 1)
        lock.release()
    lock.check()
    lock.release()
    assert not list(tmp_path.iterdir())


def test_leftovers_of_the_dead_are_removed_and_nothing_else(tmp_path):
    hour = 3600.0
    signed = [
        (f".run.json.{mark()}.00000000.part", 2 * hour, True),
        (f".run.json.{DEAD}.00000000.part", 0.0, False),
        (f".run.json.{ELSEWHERE}.00000000.part", 2 * hour, False),
        (f".run.json.{ELSEWHERE}.00000001.part", 0.5 * hour, True),
    ]
    others = [(f".model.pt.{DEAD}.00000000.part", 0.0, False)]
    unsigned = [
        (".run.json.0123abcd.part", 2 * hour, False),
        (".run.json.0123abce.part", 0.5 * hour, True),
        (".tmpabc123", 2 * hour, False),
    ]
    own = [("notes.part", 2 * hour, True), (".run.json", 2 * hour, True)]

    def remaining(of):
        for name, age, _ in signed + others + unsigned + own:
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (time.time() - age,) * 2)
        clear_parts(tmp_path, of=of)
        return {entry.name for entry in tmp_path.iterdir()}

    assert remaining(None) == {name for name, _, stays in signed + others + unsigned + own if stays}
    assert remaining("run.json") == {
        *(name for name, _, stays in signed if stays),
        *(name for name, _, _ in others + unsigned + own),
    }


def test_folders_are_leftovers_only_where_they_are_signed(tmp_path):
    left = tmp_path / f".run.{DEAD}.00000000.part"
    kept = [tmp_path / ".run.0123abcd.part", tmp_path / temporary_name("run")]
    for folder in (left, *kept):
        folder.mkdir()
        (folder / "file").touch()
        os.utime(folder, (0, 0))
    clear_parts(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)


@pytest.mark.parametrize("reason", [errno.EINVAL, errno.ENOTSUP, errno.EBADF])
def test_folders_of_file_systems_that_cannot_sync_them_are_passed_over(tmp_path, monkeypatch, reason):
    monkeypatch.setattr(os, "fsync", fail(reason))
    sync_folder(tmp_path)


def test_a_disk_that_fails_to_sync_a_folder_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        sync_folder(tmp_path)
