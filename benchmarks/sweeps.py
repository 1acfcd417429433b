"""Sweeps: the same trainings one after another by pythae, and what Ray adds to a stack."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.ensembles import NETS
from unseam import data, sweep

__all__ = ["engines", "sweeps"]

TRIALS, THEIRS, ROUNDS, EPOCHS = 128, 2, 2, 2
"""Trials of ours, of pythae per round (each costs as much as the others), rounds in turn, and passes over the data."""
STACKS, MEMBERS, STACK_SECONDS = 2, 16, 20.0
SCORE = sweep.Score(measures=("training",))


def sweeps(device: torch.device, *, peer: Path | None = None) -> Iterator[dict[str, Any]]:
    """Seconds per model of pythae's trainer and of a sweep, both on two cores, in turn."""
    net = NETS["rolinek2019 non-linear"]
    world = data.load(net.world)
    steps = EPOCHS * (len(world) // net.batch_size)
    trials = [dataclasses.replace(net, seed=seed, steps=steps) for seed in range(TRIALS)]
    theirs, ours = [], []
    with tempfile.TemporaryDirectory() as folder:
        torch.save(world.images(torch.arange(len(world))), f"{folder}/x.pt")
        task = {
            "data": f"{folder}/x.pt",
            "widths": net.encoder_widths,
            "latent": net.latent,
            "beta": net.beta,
            "batch": net.batch_size,
            "rate": net.learning_rate,
            "epochs": EPOCHS,
            "trials": THEIRS,
            "folder": folder,
            "threads": 1,
        }
        command = [
            str(peer or sys.executable),
            "-W",
            "ignore",
            "-m",
            "benchmarks.peer_pythae",
            json.dumps(task),
        ]
        for number in range(ROUNDS):
            done = subprocess.run(command, capture_output=True, text=True)
            if "No module named 'pythae'" in done.stderr:
                print("sweeps: left out, because --peer names no Python that has pythae", flush=True)
                return
            done.check_returncode()
            theirs.append(json.loads(done.stdout.splitlines()[-1]))
            options = {"workers": 2, "stack": TRIALS // 2, "device": device.type, "progress": False}
            spec = sweep.Spec(tuple(trials), SCORE)
            ours.append(_timed(partial(sweep.run, spec, f"{folder}/{number}", **options)))
    wall, cpu = (min(one[k] for one in theirs) / THEIRS for k in (0, 1))
    yield {"way": "pythae 0.1.2, one after another", "models": THEIRS * ROUNDS, "steps": steps,
           "s/model": wall, "CPU s/model": cpu, "times, wall": 1.0, "times, CPU": 1.0}  # fmt: skip
    own, own_cpu = (min(one[k] for one in ours) / TRIALS for k in (0, 1))
    yield {"way": "a sweep, two workers", "models": TRIALS * ROUNDS, "steps": steps,
           "s/model": own, "CPU s/model": own_cpu, "times, wall": wall / own, "times, CPU": cpu / own_cpu}  # fmt: skip


def engines(device: torch.device) -> Iterator[dict[str, Any]]:
    """Seconds of stacks of about 20 s by the local engine and as Ray tasks on one core, in turn."""
    if importlib.util.find_spec("ray") is None:
        print("engines: left out, because ray is not installed", flush=True)
        return
    import ray

    net = dataclasses.replace(NETS["rolinek2019 non-linear"], steps=200)
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:

        def run(name: str, steps: int, stacks: int, **options: Any) -> None:
            trials = [dataclasses.replace(net, seed=seed, steps=steps) for seed in range(stacks * MEMBERS)]
            spec = sweep.Spec(tuple(trials), SCORE)
            sweep.run(spec, f"{folder}/{name}", stack=MEMBERS, device=device.type, progress=False, **options)

        run("warm", 20, 1)
        begun = time.process_time()
        run("short", 400, 1)
        short, begun = time.process_time() - begun, time.process_time()
        run("long", 1200, 1)
        steps = round(STACK_SECONDS * 800 / (time.process_time() - begun - short))
        ray.init(num_cpus=1, log_to_driver=False, include_dashboard=False)
        try:
            run("warm-ray", 20, 1, engine="ray", gpus=0)  # its worker imports torch once per node
            found: dict[str, list[tuple[float, float]]] = {"local": [], "ray": []}
            for number in range(ROUNDS):
                for name, options in (("local", {}), ("ray", {"engine": "ray", "gpus": 0})):
                    work = partial(run, f"{name}{number}", steps, STACKS, **options)
                    found[name].append(_timed(work))
        finally:
            ray.shutdown()
    best = {name: [min(one[k] for one in times) / STACKS for k in (0, 1)] for name, times in found.items()}
    for name, (wall, cpu) in best.items():
        yield {"engine": name, "stacks": STACKS * ROUNDS, "members": MEMBERS, "steps": steps, "s/stack": wall,
               "CPU s/stack": cpu, "more, wall %": 100 * (wall / best["local"][0] - 1),
               "more, CPU %": 100 * (cpu / best["local"][1] - 1)}  # fmt: skip


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of the processors of this process and all below it."""
    begun, before = time.perf_counter(), _processor_seconds()
    work()
    return time.perf_counter() - begun, _processor_seconds() - before


def _processor_seconds() -> float:
    """Of this process, of its children that have ended, and of those that run, with theirs."""
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    parents: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # has ended
        ticks = sum(map(int, fields[11:15]))
        parents[int(path.parent.name)] = (int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"))
    below = {os.getpid()}
    while more := {pid for pid, (parent, _) in parents.items() if parent in below} - below:
        below |= more
    return used + sum(parents[pid][1] for pid in below - {os.getpid()})
