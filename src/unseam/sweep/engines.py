"""Engines: where the work of a sweep is done; each only starts workers, which agree among themselves by the store."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from unseam.choices import import_extra
from unseam.sweep.measures import COMPARISONS
from unseam.sweep.pieces import MOST, is_split
from unseam.sweep.store import Store, piece_name
from unseam.sweep.work import Job, Plan, work
from unseam.training import Interrupted
from unseam.training.run import choose_device
from unseam.trial import Trial

__all__ = ["ENGINES", "describe_duration", "local", "on_ray", "on_slurm", "show_progress"]

Failures = dict[str, str]
CRASHES = 3
"""Times that a worker may die of itself before its trials count as failed."""
PATIENCE = 60.0
"""Seconds that workers have to write a checkpoint when they are to stop."""


def local(job: Job, *, workers: int | None = None) -> Failures:
    """Work on this machine: in this process, or in several, one per GPU by default.

    Args:
        job: what to do.
        workers: processes; they share the GPUs, or the cores.

    >>> trial = Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> from unseam.sweep.spec import Score
    >>> local(Job("memory://local", (trial,), Score(points=20, measures=["geometry"]), device="cpu"))
    {}
    """
    kind = choose_device(job.device)
    everywhere = kind.type == "cuda" and kind.index is None
    devices = [f"cuda:{k}" for k in range(torch.cuda.device_count())] if everywhere else [str(kind)]
    count = len(devices) if workers is None else workers
    if count < 1:
        raise ValueError(f"workers must be at least 1, got {count}")
    if count == 1:
        return work(dataclasses.replace(job, device=devices[0]))
    if job.store.startswith("memory:"):
        raise ValueError("a store in memory is seen by one process only: use one worker, or a folder")
    share = min(1.0, len(devices) / count)
    jobs = [
        dataclasses.replace(job, device=devices[k % len(devices)], workers=count, share=share)
        for k in range(count)
    ]
    threads = max(1, (os.cpu_count() or 1) // count)
    environment = {"OMP_NUM_THREADS": str(threads)} | os.environ
    return _watch([functools.partial(_Worker, one, environment) for one in jobs])


class _Worker:
    """A process that does a job; it ends with this one, whose end it sees by its standard input."""

    def __init__(self, job: Job, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "unseam.sweep.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
            text=True,
            start_new_session=True,  # Ctrl-C reaches it through this process alone
        )
        assert self.process.stdin is not None
        self.process.stdin.write(job.to_json() + "\n")
        self.process.stdin.flush()

    def close(self) -> str:
        """What it printed, once it has ended."""
        return self.process.communicate()[0]


def _watch(starts: Sequence[Callable[[], _Worker]]) -> Failures:
    """Run workers to their end; one that dies of itself is replaced, as often as :data:`CRASHES`."""
    failed: Failures = {}
    running = {place: start() for place, start in enumerate(starts)}
    crashes = 0
    try:
        while running:
            time.sleep(0.1)
            for place, worker in list(running.items()):
                if (status := worker.process.poll()) is None:
                    continue
                del running[place]
                printed = worker.close()
                if status == 0:
                    failed |= json.loads(printed)
                elif status in (130, 143):
                    raise Interrupted("a worker was stopped; run the sweep again to go on", status - 128)
                elif (crashes := crashes + 1) <= CRASHES:
                    running[place] = starts[place]()
        return failed
    finally:
        _stop(list(running.values()))


def _stop(workers: Sequence[_Worker]) -> None:
    """Ask workers to write their checkpoints and end, and end those that do not."""
    for worker in workers:
        worker.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + PATIENCE
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            worker.process.kill()
        worker.close()


def on_ray(
    job: Job, *, address: str | None = None, gpus: float | None = None, cpus: float = 1.0, **options: Any
) -> Failures:
    """A Ray task per stack, each with its share of a node; data are made there.

    A stack whose node died, as of preemption, is started again without being counted; one whose worker died, as often
    as :data:`CRASHES`. It goes on from its last checkpoint in the store.

    Args:
        job: what to do.
        address: of the cluster, e.g. ``auto`` or ``ray://host:10001``; by default the one that is connected to, or a
            new one on this machine.
        gpus: GPUs per task, which may be a fraction; one by default where the cluster has GPUs.
        cpus: cores per task.
        options: further options of ``ray.remote``, e.g. ``memory``.
    """
    ray = import_extra("ray", "'unseam[ray]'")
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
    try:
        gpus = min(1.0, ray.cluster_resources().get("GPU", 0.0)) if gpus is None else gpus
        remote = ray.remote(max_retries=0, num_gpus=gpus, num_cpus=cpus, **options)(_run_json)
        jobs = {piece_name(t.key() for t in one.trials): one for one in _divide(job, bool(gpus))}
        return _drive(ray, remote, jobs)
    finally:
        if started:
            ray.shutdown()


def _drive(ray: Any, remote: Any, jobs: Mapping[str, Job]) -> Failures:
    """Every job as a task until it has ended well or failed."""
    failed: Failures = {}
    crashes = dict.fromkeys(jobs, 0)
    pending = {remote.remote(job.to_json()): name for name, job in jobs.items()}
    while pending:
        (task, *_), _ = ray.wait(list(pending), num_returns=1)
        name = pending.pop(task)
        try:
            failed |= json.loads(ray.get(task))
            continue
        except (ray.exceptions.NodeDiedError, ray.exceptions.LocalRayletDiedError):
            again = True
        except ray.exceptions.RayTaskError as error:
            failed |= _all_failed(jobs[name], error)
            continue
        except ray.exceptions.RayError as error:
            crashes[name] += 1
            again = crashes[name] <= CRASHES
            if not again:
                failed |= _all_failed(jobs[name], error)
        if again:
            pending[remote.remote(jobs[name].to_json())] = name
    return failed


def on_slurm(job: Job, *, folder: str | None = None, cluster: str | None = None, **options: Any) -> Failures:
    """An array of Slurm jobs, one per stack, submitted by ``submitit``; a preempted one is queued again by it.

    Args:
        job: what to do.
        folder: of logs, which all nodes must see; by default ``slurm`` in a store that is a folder.
        cluster: ``slurm``, or ``local`` for processes on this machine; by default what ``submitit`` finds.
        options: of the jobs as ``submitit`` names them, e.g. ``slurm_partition="gpu"``, ``gpus_per_node=1``,
            ``timeout_min=240``, ``slurm_array_parallelism=16``.
    """
    submitit = import_extra("submitit", "'unseam[slurm]'")
    base = Store(job.store).local
    if folder is None and base is None:
        raise ValueError("folder must name a folder for the logs of Slurm that all nodes see")
    executor = submitit.AutoExecutor(folder=folder or str(base / "slurm" if base else ""), cluster=cluster)
    executor.update_parameters(name="unseam", **options)
    jobs = _divide(job, bool(options.get("gpus_per_node")))
    queued = executor.map_array(_Task(submitit), [one.to_json() for one in jobs])
    failed: Failures = {}
    try:
        for one, its in zip(jobs, queued, strict=True):
            try:
                failed |= json.loads(its.result())
            except (submitit.core.utils.FailedJobError, submitit.core.utils.UncompletedJobError) as error:
                failed |= _all_failed(one, error)
    except BaseException:
        for its in queued:
            its.cancel()
        raise
    return failed


class _Task:
    """A job as ``submitit`` runs it, and queues it again before its time on a node ends."""

    def __init__(self, submitit: Any) -> None:
        self.delayed = submitit.helpers.DelayedSubmission

    def __call__(self, text: str) -> str:
        return _run_json(text)

    def checkpoint(self, text: str) -> Any:
        """What to submit instead: the same, which goes on from its last checkpoint."""
        return self.delayed(self, text)


def _run_json(text: str) -> str:
    """A job, and what failed of it, as text."""
    return json.dumps(work(Job.from_json(text)))


def _divide(job: Job, gpu: bool) -> list[Job]:
    """A job per stack that is left; what does not fit a node's memory is divided again there."""
    most = job.stack or MOST["cuda" if gpu else "cpu"]
    pieces = Plan(dataclasses.replace(job, stack=most)).pieces(Store(job.store).keys())
    apart = COMPARISONS.keys() & job.score.measures
    return [
        dataclasses.replace(
            job, trials=tuple(piece), weights=job.weights or bool(apart and is_split(piece, job.trials))
        )
        for piece in pieces
    ]


def _all_failed(job: Job, error: BaseException) -> Failures:
    text = f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"
    return {trial.key(): text for trial in job.trials}


ENGINES: dict[str, Callable[..., Failures]] = {"local": local, "ray": on_ray, "slurm": on_slurm}


@contextmanager
def show_progress(store: Store, trials: Sequence[Trial], wanted: bool | None) -> Iterator[None]:
    """One display over all workers, read from the store: models done, models per hour, time left.

    Args:
        store: of the sweep.
        trials: of the sweep.
        wanted: whether to print lines where there is no terminal; by default only a terminal shows it.
    """
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield
        return
    ended, wanted_keys = threading.Event(), {trial.key() for trial in trials}
    begun, first = time.monotonic(), len(wanted_keys & store.keys())

    def state() -> tuple[int, str]:
        done = len(wanted_keys & store.keys())
        under = [claim for claim in store.claims() if claim.living]
        partly = sum(claim.models for claim in under)
        rate = (done + partly - first) / max(time.monotonic() - begun, 1e-9)
        left = (len(wanted_keys) - done - partly) / rate if rate > 0 else float("nan")
        measured = sum(claim.step >= claim.steps for claim in under)
        parts = {"trained": len(under) - measured, "measured": measured}
        text = " and ".join(
            f"{count} stack{'s' * (count != 1)} being {what}" for what, count in parts.items() if count
        ) or "nothing in work"  # fmt: skip
        if rate > 0 and done < len(wanted_keys):
            text += f", {3600 * rate:,.0f} models/h, {describe_duration(left)} left"
        return done, text

    thread = threading.Thread(target=_display, args=(state, len(wanted_keys), ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)


def _display(state: Callable[[], tuple[int, str]], total: int, ended: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if not sys.stderr.isatty():
        last = ""
        while not ended.wait(10.0):
            done, text = state()
            if (line := f"{done} of {total} models, {text}") != last:
                print(line, file=sys.stderr)
            last = line
        print(f"{state()[0]} of {total} models", file=sys.stderr)
        return
    with Progress(
        TextColumn("[bold]sweep"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(), console=Console(stderr=True),
    ) as shown:  # fmt: skip
        task = shown.add_task("sweep", total=total, text="")
        while True:
            over = ended.wait(1.0)
            done, text = state()
            shown.update(task, completed=done, text=text)
            if over:
                return


def describe_duration(seconds: float) -> str:
    """A time in two units.

    >>> describe_duration(75), describe_duration(7500)
    ('1 min 15 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )
