"""Work: take the next stack that no one else works on, train it, measure it, append its rows."""

from __future__ import annotations

import dataclasses
import gc
import json
import secrets
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from unseam.data import load as load_world
from unseam.locks import LockedError
from unseam.run import Run
from unseam.sweep.measures import COMPARISONS, measure
from unseam.sweep.pieces import capacity, cut, is_split
from unseam.sweep.spec import Score
from unseam.sweep.store import Claim, Holding, Store, piece_name, trial_row
from unseam.training import DivergenceWarning, Ensemble, Interrupted, Tracking, train
from unseam.training.run import choose_device
from unseam.trial import Trial

__all__ = ["Job", "Plan", "train_stack", "work"]

POLL = 0.5
"""Seconds between two looks at a store where everything is being worked on."""
UPLOAD = 60.0
"""Seconds between two copies of a checkpoint to a store that is no folder."""
FULL = ("out of memory", "can't allocate memory", "not enough memory")

Train = Callable[..., Ensemble]


@dataclass(frozen=True)
class Job:
    """Trials, where their rows go, and how: all that a worker is told.

    >>> job = Job("sweeps/a", (Trial(),))
    >>> Job.from_json(job.to_json()) == job
    True
    """

    store: str
    trials: tuple[Trial, ...]
    score: Score = field(default_factory=Score)
    device: str | None = None
    stack: int | None = None
    """Members of a stack at most; by default what memory holds."""
    weights: bool = False
    """Whether weights are stored, as a run per stack; they are where stacks must be compared with others."""
    workers: int = 1
    """Among how many workers the trials are to be divided."""
    share: float = 1.0
    """Fraction of the device's memory for this worker."""
    checkpoint_seconds: float = 30.0
    track: str | None = None
    """Tracker of histories and measures, as :func:`unseam.training.open_tracker` takes it."""

    def to_json(self) -> str:
        """The job as text."""
        record = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        record |= {"trials": [trial.to_dict() for trial in self.trials], "score": self.score.to_dict()}
        return json.dumps(record)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that :meth:`to_json` wrote."""
        record = json.loads(text)
        trials = tuple(Trial.from_dict(one) for one in record["trials"])
        return cls(**record | {"trials": trials, "score": Score(**record["score"])})


class Plan:
    """The trials of a job by key, and how they are cut into stacks on this machine.

    >>> [len(piece) for piece in Plan(Job("a", tuple(Trial(seed=s) for s in range(5)), stack=3)).pieces()]
    [3, 2]
    """

    def __init__(self, job: Job, done: Collection[str] = ()) -> None:
        self.job, self.device = job, choose_device(job.device)
        self.trials = {trial.key(): trial for trial in job.trials}
        # decided once: what is left later would be cut ever smaller
        self._fair = max(1, -(-len(self.trials.keys() - set(done)) // job.workers))
        self._sizes: dict[tuple[Any, ...], int] = {}
        self._shapes: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def shape(self, trial: Trial) -> tuple[int, ...]:
        """Shape of an item of a trial's world."""
        where = (trial.world, trial.world_options)
        if where not in self._shapes:
            options: dict[str, Any] = dict(trial.world_options)
            self._shapes[where] = load_world(trial.world, **options).shape
        return self._shapes[where]

    def size(self, trial: Trial) -> int:
        """Members at most of a trial's stack."""
        key = trial.stack_key()
        if key not in self._sizes:
            if self.job.stack is not None:
                self._sizes[key] = self.job.stack
            else:
                self._sizes[key] = capacity(trial, self.shape(trial), self.device, share=self.job.share)
        return self._sizes[key]

    def halve(self, piece: Sequence[Trial]) -> None:
        """Remember that a stack did not fit."""
        self._sizes[piece[0].stack_key()] = len(piece) // 2

    def pieces(self, without: Collection[str] = ()) -> list[list[Trial]]:
        """The trials in stacks, but for some keys, at least as many stacks as workers where there are enough."""
        left = [trial for key, trial in self.trials.items() if key not in without]
        return list(cut(left, {trial.stack_key(): min(self._fair, self.size(trial)) for trial in left}))


def work(job: Job, *, train: Train = train, wait: bool = True) -> dict[str, str]:
    """Work on the trials of a job until each has a row, or failed; several processes may do so at once.

    A stack that was interrupted goes on from its checkpoint. One that runs out of memory is halved. What another
    process works on is waited for, and taken over where that process ends.

    Args:
        job: what to do.
        train: trains a stack, as :func:`unseam.train`.
        wait: whether to wait for others.

    Returns:
        Errors by key of the trials that failed.

    >>> trial = Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> job = Job("memory://work", (trial,), Score(points=20, measures=["geometry"]))
    >>> work(job), Store("memory://work").table()["key"].tolist() == [trial.key()]
    ({}, True)
    """
    store, failed = Store(job.store), dict[str, str]()
    plan = Plan(job, store.keys())
    while True:
        done = store.keys() | failed.keys()
        if plan.trials.keys() <= done:
            return failed
        holding = _take(store, plan, done)
        if holding is None:
            if not wait and not _free(store, plan, done):
                return failed
            time.sleep(POLL * (0.5 + secrets.randbelow(1000) / 1000))
            continue
        with holding:
            if store.keys() & set(holding.keys):
                store.discard(holding.name)
                continue  # finished by another process after we looked
            try:
                train_stack(store, holding, job, train=train)
            except LockedError:
                continue  # another process has taken over, with the checkpoint
            except OSError:
                raise  # as of a full disk: what was trained waits in the checkpoint
            except Exception as error:
                store.discard(holding.name)
                if not _is_full(error):
                    failed |= dict.fromkeys(holding.keys, _describe(error))
                elif len(holding.keys) == 1:
                    failed[holding.keys[0]] = f"does not fit the memory of {plan.device}"
                else:
                    plan.halve(holding.trials)
        gc.collect()
        if plan.device.type == "cuda":
            torch.cuda.empty_cache()


def _free(store: Store, plan: Plan, done: Collection[str]) -> set[str]:
    """Keys that are neither done nor worked on."""
    held = {key for claim in store.claims() if claim.living for key in claim.keys}
    return plan.trials.keys() - done - held


def _take(store: Store, plan: Plan, done: Collection[str]) -> Holding | None:
    """Claim a stack that was interrupted, or else the next one."""
    claims = store.claims()
    for claim in claims:
        if claim.living or not plan.trials.keys() >= set(claim.keys):
            continue
        if set(claim.keys) & set(done):
            _forget(store, claim)
        elif len(claim.keys) <= plan.size(plan.trials[claim.keys[0]]):
            trials = [plan.trials[key] for key in claim.keys]
            if (holding := store.hold(trials, instead=claim.token)) is not None:
                return holding
    held = {key for claim in claims if claim.living for key in claim.keys}
    for piece in plan.pieces(without=held | set(done)):
        if (holding := store.hold(piece)) is not None:
            return holding
        break  # others have begun in the meantime: look again
    return None


def _forget(store: Store, claim: Claim) -> None:
    store.remove(f"claims/{claim.token}.json")
    store.discard(piece_name(claim.keys))


def train_stack(store: Store, holding: Holding, job: Job, *, train: Train = train) -> None:
    """Train the trials of a claim from their checkpoint on, measure them, append their rows.

    Args:
        store: where the rows go.
        holding: the claim.
        job: settings.
        train: trains a stack, as :func:`unseam.train`.
    """
    uploaded = time.monotonic()
    tracked = nullcontext() if job.track is None else Tracking(job.track)
    with store.workspace(holding.name) as folder, tracked as tracking:

        def follow(ensemble: Ensemble) -> None:
            nonlocal uploaded
            holding.step = ensemble.steps[0]
            if time.monotonic() - uploaded > UPLOAD:
                store.upload(folder)
                uploaded = time.monotonic()

        def trained() -> Ensemble:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DivergenceWarning)
                return train(
                    list(holding.trials),
                    out=folder,
                    resume=True,
                    device=job.device,
                    progress=False,
                    checkpoint_seconds=job.checkpoint_seconds,
                    callbacks=[_Follow(follow), *([] if tracking is None else [tracking])],
                )

        try:
            ensemble = trained()
        except Interrupted:
            store.upload(folder)
            raise
        run = Run.of(ensemble)
        holding.step = max(holding.step, max(trial.steps for trial in holding.trials))

        def note(part: float) -> None:
            holding.measured = part

        found = measure(run, run.sound, job.score, note) if run.sound else {}
        apart = COMPARISONS.keys() & job.score.measures and is_split(holding.trials, job.trials)
        place = store.save_run(folder) if job.weights or apart else None
        holding.check()
        if (settings := store.settings()) is not None and settings["score"] != job.score.to_dict():
            raise OSError(f"{store.address}/store.json was changed: its rows are measured differently")
        store.append([_row(run, member, found.get(member, {}), place) for member in range(len(run))])
        if tracking is not None:
            for member, columns in found.items():
                tracking.log(run.trials[member], columns, run.trials[member].steps)
        store.discard(holding.name)


class _Follow:
    """A callback of a training that changes nothing, whose name in the run's record is the same everywhere."""

    def __init__(self, follow: Callable[[Ensemble], None]) -> None:
        self.follow = follow

    def __call__(self, ensemble: Ensemble) -> None:
        self.follow(ensemble)

    def __repr__(self) -> str:
        return "progress of a sweep"


def _row(run: Run, member: int, columns: Mapping[str, Any], place: str | None) -> dict[str, Any]:
    """A row: the trial, what was measured of it, and where it comes from."""
    about = run.about
    hardware, versions = about["hardware"], about["versions"]
    state = run.standing[member]
    return {
        **trial_row(run.trials[member]),
        **columns,
        "stopped": state.stopped,
        "cause": state.cause or None,
        "run": place,
        "member": member,
        "stack": piece_name(trial.key() for trial in run.trials),
        "members": len(run),
        "seconds": about.get("seconds", 0.0) / len(run),
        "created": about["created"],
        "revision": about["revision"],
        "device": hardware.get("accelerator", hardware["processor"]),
        **{f"version_{name}": versions[name] for name in ("unseam", "torch", "numpy")},
        "data": about["worlds"][0]["digest"],
    }


def _is_full(error: BaseException) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error).lower() for words in FULL)
    )


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500]
