"""Sweep: run a spec into a store, and read what a store holds."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unseam.choices import importing
from unseam.run import Run
from unseam.sweep.analysis import settings_of
from unseam.sweep.engines import ENGINES, show_progress
from unseam.sweep.measures import COMPARISONS, check_score, compare_seeds, measure
from unseam.sweep.pieces import member_bytes
from unseam.sweep.spec import Question, Score, Spec, read_spec
from unseam.sweep.store import Store, row_trial
from unseam.sweep.work import Job, Plan
from unseam.training import Ensemble, Tracking, train
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FailedError", "Sweep", "open", "plan", "run"]

PROBED = 12
"""Steps that are timed to estimate how long a sweep takes."""
NETWORK = (
    "world", "world_options", "architecture", "encoder", "decoder", "encoder_widths", "decoder_widths", "latent",
    "posterior", "likelihood",
)  # fmt: skip
"""Fields that change how long a model takes to measure."""


class FailedError(RuntimeError):
    """Trials that could not be trained or measured; the others have their rows.

    Attributes:
        failed: what went wrong, by key of the trial.

    >>> FailedError("2 of 3 trials failed", {"a": "why"}).failed
    {'a': 'why'}
    """

    def __init__(self, message: str, failed: Mapping[str, str]) -> None:
        super().__init__(message)
        self.failed = dict(failed)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What a store holds.

    >>> open("memory://nothing-yet").table().empty
    True
    """

    store: Store

    def table(self) -> pd.DataFrame:
        """One row per trial: its fields, all measures, and where it comes from."""
        return self.store.table()

    @property
    def trials(self) -> list[Trial]:
        """The trials that have a row; modules that one names have to be imported already."""
        with importing(False):
            return [
                row_trial({str(key): value for key, value in row.items()})
                for row in self.table().to_dict("records")
            ]

    @property
    def missing(self) -> int:
        """How many trials have no row yet, at least: those of its largest spec."""
        counts = [spec.get("trials") for spec in self.store.specs()]
        return max(0, max((n for n in counts if isinstance(n, int)), default=0) - len(self.store.keys()))

    @property
    def questions(self) -> list[Question]:
        """The questions of the specs that were run into the store."""
        given = (one for spec in self.store.specs() for one in spec["questions"])
        return list(dict.fromkeys(Question(one) if isinstance(one, str) else Question(*one) for one in given))

    def run(
        self, stack: str, folder: str | Path | None = None, *, device: str = "cpu", trust: bool = False
    ) -> Run:
        """The run of a stack whose weights were stored.

        Args:
            stack: its name, as in the column ``stack``.
            folder: where to copy it to, from a store that is no folder.
            device: of the members.
            trust: import the modules that it names as ``package.module:object``.
        """
        place, store = f"runs/{stack}", self.store
        if "run.json" not in store.names(place):
            raise ValueError(f"{store.address} holds no weights of stack {stack}: sweep with weights=True")
        if store.local is not None:
            return Run.open(store.local / place, device=device, trust=trust)
        if folder is None:
            raise ValueError(f"{store.address} is no folder: say where to copy the run to")
        for name in store.names(place):
            Store(folder).write(f"{stack}/{name}", store.read(f"{place}/{name}"))
        return Run.open(Path(folder) / stack, device=device, trust=trust)


def open(store: str | Path) -> Sweep:
    """The sweep in a folder or at an fsspec address.

    >>> open("memory://some-store").trials
    []
    """
    found = Store(store)
    found.settings()
    if found.local is not None and not found.local.exists():
        raise FileNotFoundError(
            f"{store} does not exist; a sweep writes it: unseam sweep SPEC.toml --store {store}"
        )
    return Sweep(found)


def run(
    spec_or_trials: Spec | str | Path | Mapping[str, Any] | Trial | Sequence[Trial],
    store: str | Path,
    *,
    engine: str = "local",
    device: str | None = None,
    stack: int | None = None,
    weights: bool = False,
    progress: bool | None = None,
    checkpoint_seconds: float = 30.0,
    track: str | None = None,
    **options: Any,
) -> Sweep:
    """Train and measure what a store has no row of yet.

    Trials that share shapes are trained as stacks, as large as memory allows. Each stack is measured when it is
    finished, and its rows are appended; weights are saved where asked for. What was interrupted, at any moment, goes on
    when the sweep is run again, and several processes or machines may run it at once. Ctrl-C stops it after
    checkpoints.

    Args:
        spec_or_trials: a TOML file, the same as a mapping, or trials (see :func:`unseam.sweep.read_spec`).
        store: a folder, or any address that fsspec knows.
        engine: ``local`` (this machine's GPUs, or its processor), ``ray`` or ``slurm``.
        device: where to train; every GPU by default, or the processor where there is none.
        stack: members of a stack at most; by default what memory holds.
        weights: whether to store the weights, as a run per stack.
        progress: whether to report progress; by default only on a terminal.
        checkpoint_seconds: time between two checkpoints of a stack.
        track: ``tensorboard``, ``mlflow``, ``wandb`` or a tracker of your own (see
            :func:`unseam.training.open_tracker`), which gets the history and the measures of every model.
        options: of the engine: ``workers`` of :func:`unseam.sweep.local`, or those of ``on_ray`` and ``on_slurm`` in
            :mod:`unseam.sweep.engines`.

    >>> trial = Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> spec = {"trial": {"world": "linear", "likelihood": "gaussian", "latent": 2, "steps": 2, "batch_size": 4},
    ...         "axes": {"seed": [0, 1]}, "score": {"points": 20, "measures": ["geometry"]}}
    >>> run(spec, "memory://example", device="cpu").table()["seed"].tolist()
    [0, 1]
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be {', '.join(ENGINES)}, got {engine!r}")
    spec, place = read_spec(spec_or_trials), Store(store)
    check_score(spec.score)
    if track is not None:
        Tracking(track)  # refuses here what workers would
    place.settle(spec)
    job = Job(
        place.address, spec.trials, spec.score, device, stack, weights,
        checkpoint_seconds=checkpoint_seconds, track=track,
    )  # fmt: skip
    with show_progress(place, spec.trials, progress):
        failed = ENGINES[engine](job, **options)
    _compare(Sweep(place), spec, device)
    missing = {trial.key() for trial in spec.trials} - place.keys()
    if missing:
        why = next(iter(failed.values()), "its worker died")
        raise FailedError(f"{len(missing)} of {len(spec.trials)} trials failed: {why}", failed)
    return Sweep(place)


def _compare(sweep: Sweep, spec: Spec, device: str | None) -> None:
    """Compare the seeds of settings whose models were trained in several stacks, where their weights are stored."""
    names = [name for name in COMPARISONS if name in spec.score.measures]
    table = sweep.table()
    if not names or table.empty:
        return
    setting = settings_of(table)
    wanted = np.isin(setting, setting[table["key"].isin({trial.key() for trial in spec.trials})])
    kept = wanted & table["stopped"].isna().to_numpy()
    opened: dict[str, Run] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _, rows in table[kept].groupby(setting[kept]):
            whole = all(
                f"{name}_seeds" in rows and (rows[f"{name}_seeds"] == len(rows)).all() for name in names
            )
            if len(rows) < 2 or whole or rows["run"].isna().any():
                continue
            for stack in set(rows["stack"]) - opened.keys():
                opened[stack] = sweep.run(stack, folder, device=device or "cpu", trust=True)
            keys = {(opened[row["stack"]], int(row["member"])): row["key"] for row in rows.to_dict("records")}
            found = compare_seeds(keys, spec.score)
            sweep.store.append([{"key": keys[one], **columns} for one, columns in found.items()], "seeds")


def plan(
    spec_or_trials: Spec | str | Path | Mapping[str, Any] | Trial | Sequence[Trial],
    store: str | Path | None = None,
    *,
    device: str | None = None,
    stack: int | None = None,
    workers: int = 1,
) -> list[dict[str, Any]]:
    """What a sweep would train here, by shape: stacks, memory, and a time from a few measured steps.

    Args:
        spec_or_trials: as in :func:`run`.
        store: whose rows are left out.
        device: where to train.
        stack: members of a stack at most.
        workers: among how many devices the work is divided.

    >>> spec = {"trial": {"world": "linear", "likelihood": "gaussian", "encoder_widths": [], "decoder_widths": []},
    ...         "axes": {"seed": [0, 1, 2, 3]}, "score": {"measures": ["training"]}}
    >>> [row["stacks"] for row in plan(spec, device="cpu", stack=2)]
    [2]
    """
    spec = read_spec(spec_or_trials)
    check_score(spec.score)
    done = Store(store).keys() if store is not None else frozenset[str]()
    made = Plan(Job("", spec.trials, spec.score, device, stack, workers=workers), done)
    pieces = made.pieces(done)
    shapes: dict[tuple[Any, ...], list[list[Trial]]] = {}
    for piece in pieces:
        shapes.setdefault(piece[0].stack_key(), []).append(piece)
    rows, measuring = [], dict[tuple[Any, ...], float]()
    for same in shapes.values():
        trial, members = same[0][0], max(map(len, same))
        count = sum(map(len, same))
        step, ensemble = _time(same[0], made)
        # objectives do not change how long a network takes to measure
        network = tuple(getattr(trial, name) for name in NETWORK)
        if network not in measuring:
            measuring[network] = _time_measures(ensemble, spec.score)
        measured = measuring[network]
        each = member_bytes(trial, made.shape(trial))
        rows.append(
            {
                "shape": trial.describe(),
                "trials": count,
                "stacks": len(same),
                "members": members,
                "memory": members * each,
                "seconds": (len(same) * trial.steps * step + count * measured) / workers,
            }
        )
    return rows


def _time(piece: Sequence[Trial], plan: Plan) -> tuple[float, Ensemble]:
    """Seconds per step of a stack, from a short training, and what it trained."""
    short = [dataclasses.replace(trial, steps=min(trial.steps, PROBED)) for trial in piece]
    stamps: list[float] = []
    ensemble = train(
        short,
        device=plan.device,
        every=1,
        progress=False,
        callbacks=[lambda _: stamps.append(time.monotonic())],
    )
    gaps = sorted(after - before for before, after in itertools.pairwise(stamps))
    return (gaps[len(gaps) // 2] if gaps else 0.0), ensemble


def _time_measures(ensemble: Ensemble, score: Score) -> float:
    """Seconds per member to measure."""
    run = Run.of(ensemble)
    few, begun = run.sound[:2], time.monotonic()
    if few:
        measure(run, few, score)
    return (time.monotonic() - begun) / max(1, len(few))
