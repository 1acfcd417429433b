"""Break trainings in every way a machine can, and count what is lost: ``make test-faults``."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import hashlib
import importlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch

import unseam
from unseam.locks import LockedError
from unseam.training import Interrupted, Trial

SMALL = Trial(
    world="linear",
    world_options={"size": 100},
    likelihood="gaussian",
    latent=2,
    encoder_widths=(4,),
    decoder_widths=(4,),
    batch_size=8,
    steps=6,
)
LONG = dataclasses.replace(SMALL, steps=40)
TOUCHING = ("replace", "rename", "link", "unlink", "fsync")
"""Calls after each of which the folder may look different."""
REFUSED = 75
"""Status of a process that found the folder locked."""


class Count(NamedTuple):
    """What became of one kind of fault."""

    fault: str
    tried: int
    lost: tuple[str, ...]


def main() -> None:
    """Run every kind of fault, print what was tried, survived and lost, and fail where something was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=6, help="crash points of each kind; 0 for all of them")
    parser.add_argument("--kills", type=int, default=2, help="kills at random moments, and pairs of writers")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    given = parser.parse_args()
    torch.set_num_threads(1)
    counts = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        _preload(place / "preload")
        for kind in (crashes, failures, full_disk, kills, writers, signals, read_only, tables):
            counts.append(kind(place / kind.__name__, given))
            print(f"{counts[-1].fault:38} {_said(counts[-1])}", flush=True)
    lost = [f"{count.fault}: {one}" for count in counts for one in count.lost]
    total = Count("all", sum(count.tried for count in counts), tuple(lost))
    print(f"{total.fault:38} {_said(total)}", *lost, sep="\n")
    sys.exit(bool(lost))


def _said(count: Count) -> str:
    return f"tried {count.tried:4}  survived {count.tried - len(count.lost):4}  lost {len(count.lost):4}"


def crashes(place: Path, given: argparse.Namespace) -> Count:
    """Killed right before each call that changes the folder."""
    lost = []
    chosen = _points(place / "counted", given.points)
    for number, point in enumerate(chosen):
        run = place / str(number)
        _fork(lambda run=run, point=point: (_at(point, _die), _train(SMALL, run)))
        lost += _recovered(run, SMALL, f"call {point}")
    return Count("kill at a crash point", len(chosen), tuple(lost))


def failures(place: Path, given: argparse.Namespace) -> Count:
    """A rename or an fsync that fails once: an error is raised, and nothing before it is lost."""
    lost = []
    chosen = _points(place / "counted", given.points)
    for number, point in enumerate(chosen):
        run = place / str(number)
        error = (errno.EIO, errno.ENOSPC)[number % 2]
        _fork(
            lambda run=run, point=point, error=error: (_at(point, lambda: _fail(error)), _train(SMALL, run))
        )
        lost += _recovered(run, SMALL, f"call {point} fails")
    return Count("failing rename, unlink or fsync", len(chosen), tuple(lost))


def full_disk(place: Path, given: argparse.Namespace) -> Count:
    """A disk that becomes full during a checkpoint: a small tmpfs where root may mount it, else a size limit."""
    place.mkdir()
    sizes, lost, kind = (8, 16, 24, 32, 40, 48), [], "size limit"
    for size in sizes:
        run = place / str(size)
        run.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(run)]
        mounted = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True).returncode
        kind = "tmpfs" if mounted else kind
        limit = None if mounted else size * 128
        _fork(lambda run=run, limit=limit: (_limit(limit), _train(LONG, run / "run")))
        if mounted:
            shutil.copytree(run / "run", place / f"{size}-copy") if (run / "run").exists() else None
            subprocess.run(["umount", str(run)], check=True)
            run = place / f"{size}-copy"
        else:
            run = run / "run"
        lost += _recovered(run, LONG, f"{size} kB")
    return Count(f"full disk ({kind})", len(sizes), tuple(lost))


def kills(place: Path, given: argparse.Namespace) -> Count:
    """Killed three times at random moments of a training, resumed in between."""
    wait, lost = random.Random(given.seed), []
    for number in range(given.kills):
        run = place / str(number)
        for _ in range(3):
            process = _start(lambda run=run: _train(LONG, run))
            time.sleep(wait.uniform(0.0, 0.5))
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        lost += _recovered(run, LONG, f"round {number}")
    return Count("kill at a random moment", given.kills, tuple(lost))


def writers(place: Path, given: argparse.Namespace) -> Count:
    """Two processes with one folder: one trains, the other is refused; one of them is killed, and resumed by both."""
    wait, lost = random.Random(given.seed), []
    for number in range(given.kills):
        run = place / str(number)
        trials = [dataclasses.replace(LONG, seed=seed) for seed in (1, 2)]
        both = [_start(lambda run=run, trial=trial: _train(trial, run)) for trial in trials]
        if number % 2:
            time.sleep(wait.uniform(0.0, 0.3))
            os.kill(both[0], signal.SIGKILL)
        for process in both:
            os.waitpid(process, 0)
        again = [_fork(lambda run=run, trial=trial: _train(trial, run)) for trial in trials]
        if again.count(0) != 1:
            lost.append(f"round {number}: statuses {again}")
            continue
        lost += _recovered(run, trials[again.index(0)], f"round {number}")
    return Count("two writers", given.kills, tuple(lost))


def signals(place: Path, given: argparse.Namespace) -> Count:
    """SIGINT, SIGTERM and SIGHUP: a checkpoint, the right status, and a run that can be resumed."""
    lost = []
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    endless = dataclasses.replace(LONG, steps=100_000)
    for kind in kinds:
        run = place / kind.name
        process = _start(lambda run=run, kind=kind: _heed(kind) or _train(endless, run, seconds=1e9))
        while not (run / "run.json").exists():
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(process, kind)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        steps = _answer(lambda run=run: str(unseam.load(run).stacks[0].step))
        if status != 128 + kind or not steps.isdigit() or not int(steps):
            lost.append(f"{kind.name}: status {status}, step {steps}")
    return Count("signals", len(kinds), tuple(lost))


def read_only(place: Path, given: argparse.Namespace) -> Count:
    """A folder that may not be written: an error, and the run in it is as it was."""
    run = place / "run"
    _fork(lambda: _train(SMALL, run))
    before = _content(run)
    for path in (run, *run.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    longer = _fork(lambda: (_become_nobody(), _train(SMALL, run)))
    lost = () if longer == 1 and _content(run) == before else (f"status {longer}",)
    run.chmod(0o755)
    return Count("read-only folder", 1, lost)


def tables(place: Path, given: argparse.Namespace) -> Count:
    """Killed before each file of an artefact's stored tables: the next command measures what is missing."""
    wanted = _answer(lambda: _reproduce(place / "whole"))
    chosen = _points(place / "counted", given.points, _reproduce)
    lost = []
    for number, point in enumerate(chosen):
        out = place / str(number)
        _fork(lambda out=out, point=point: (_at(point, _die), _reproduce(out)))
        if (found := _answer(lambda out=out: _reproduce(out))) != wanted:
            lost.append(f"call {point}: {found[-200:]}")
    return Count("kill between stored tables", len(chosen), tuple(lost))


def _reproduce(out: Path) -> str:
    """The tables of a small training of an artefact, through its store."""
    import pandas as pd

    from unseam.papers.artefact import Workplace
    from unseam.papers.trainings import follow

    def finish(ensemble: unseam.training.Ensemble) -> dict[str, pd.DataFrame]:
        history = ensemble.history
        return {"first": history, "second": history[["member", "loss"]], "third": history[["kl"]]}

    place = Workplace(torch.device("cpu"), shared=out)
    world = unseam.data.load("linear", size=100)
    found = follow([SMALL], place, world=world, measured=None, finish=finish)
    return " ".join(found[name].to_csv() for name in ("first", "second", "third"))


def _train(trial: Trial, run: Path, *, seconds: float = 0.0) -> None:
    unseam.train(
        trial, out=run, resume=True, every=4, checkpoint_seconds=seconds, device="cpu", progress=False
    )


def _recovered(run: Path, trial: Trial, fault: str) -> list[str]:
    """What is wrong with a run after a fault: it loads, resumes to the same bits and history, and is clean then."""
    if (run / "run.json").exists():
        found = _answer(lambda: str(unseam.load(run).stacks[0].step))
        if not found.isdigit():
            return [f"{fault}: does not load: {found}"]
    wanted = _answer(lambda: _print_of(unseam.train(trial, every=4, device="cpu")))
    found = _answer(lambda: (_train(trial, run), _print_of(unseam.load(run)))[1])
    if found != wanted:
        return [f"{fault}: resumes to {found[-200:]}"]
    names = {path.name for path in run.iterdir()}
    left = names - {"run.json", "weights.safetensors", "optimizer.safetensors", "history.parquet"}
    return [f"{fault}: leaves {', '.join(sorted(left))}"] if left else []


def _print_of(ensemble: unseam.training.Ensemble) -> str:
    digest = hashlib.sha256(ensemble.stacks[0].flat.detach().numpy().tobytes())
    digest.update(ensemble.history.to_csv().encode())
    return digest.hexdigest()


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _points(run: Path, most: int, work: Callable[[Path], object] | None = None) -> list[int]:
    """Numbers of calls that change a folder, all or evenly spread ones."""
    calls = int(_answer(lambda: (count := _counted(), (work or _whole)(run), str(next(count)))[2]))
    return list(range(calls)) if not most or most >= calls else [i * calls // most for i in range(most)]


def _whole(run: Path) -> None:
    _train(SMALL, run)


def _counted() -> Iterator[int]:
    seen = [0]
    _before_each(lambda: seen.__setitem__(0, seen[0] + 1))
    return iter(lambda: seen[0], -1)


def _at(point: int, happens: Callable[[], None]) -> None:
    """Let something happen right before one call that changes the folder."""
    left = iter(range(point, -1, -1))
    _before_each(lambda: happens() if next(left, -1) == 0 else None)


def _before_each(happens: Callable[[], None]) -> None:
    for name in TOUCHING:
        call = getattr(os, name)

        def wrapped(*given: object, call: Callable[..., object] = call, **more: object) -> object:
            happens()
            return call(*given, **more)

        setattr(os, name, wrapped)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(number: int) -> None:
    raise OSError(number, os.strerror(number))


def _limit(size: int | None) -> None:
    if size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _heed(kind: signal.Signals) -> None:
    # a command in the background of a script, or under nohup, starts with signals ignored, and training leaves them so
    signal.signal(kind, signal.SIG_DFL)


def _become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def _preload(out: Path) -> None:
    """Import what the work will import, so that each process need not; training here would not survive a fork."""
    for name in _answer(lambda: (_reproduce(out), "\n".join(sys.modules))[1]).split():
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _start(work: Callable[[], object]) -> int:
    """A process that does some work: status 0 where it ends well, 1 for an error, 128 and the number of a signal."""
    if process := os.fork():
        return process
    status = 1
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        work()
        status = 0
    except Interrupted as stopped:
        status = 128 + stopped.signal
    except LockedError:
        status = REFUSED
    except BaseException:
        status = 1
    finally:
        os._exit(status)


def _fork(work: Callable[[], object]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(_start(work), 0)[1])


def _answer(work: Callable[[], str]) -> str:
    """What some work returns, or the error that it raises, in a process of its own."""
    reading, writing = os.pipe()

    def answered() -> None:
        try:
            text = work()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        with os.fdopen(writing, "w") as target:
            target.write(text)

    process = _start(answered)
    os.close(writing)
    with os.fdopen(reading) as source:
        text = source.read()
    os.waitpid(process, 0)
    return text


if __name__ == "__main__":
    main()
