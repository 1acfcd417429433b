"""Train any number of trials: group them into stacks, run the loop, write checkpoints."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from unseam.choices import Likelihood, find
from unseam.data import ArrayWorld, OwnData, World, identify_data, open_data, place
from unseam.data import load as load_world
from unseam.files import clear_parts, read_json
from unseam.inputs import ordinary_modes
from unseam.locks import FolderLock, lock_folder
from unseam.training.checkpoint import Restored, restore, write_checkpoint
from unseam.training.ensemble import Ensemble, empty_history
from unseam.training.loop import Record, training_index, training_steps
from unseam.training.progress import report_progress
from unseam.training.provenance import provenance
from unseam.training.stack import Stack, group, stack_trials
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Callback", "DivergenceWarning", "Interrupted", "choose_device", "train"]

Callback = Callable[[Ensemble], Collection[int] | None]
"""Called at every record of a training; may return members whose training ends."""
CHECKED, CHECKED_VALUES = 256, 1 << 24


class DivergenceWarning(UserWarning):
    """A member's loss or gradient was no longer finite, so it stopped."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped the training, after a checkpoint where there was time for one.

    Attributes:
        signal: its number.

    >>> Interrupted("stopped at step 3", 15).signal
    15
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


@torch.inference_mode(False)
@ordinary_modes()
def train(
    trials: Trial | Sequence[Trial],
    *,
    world: World | None = None,
    data: object = None,
    data_options: Mapping[str, Any] | None = None,
    encoder: str | Callable[..., torch.nn.Module] | None = None,
    decoder: str | Callable[..., torch.nn.Module] | None = None,
    device: torch.device | str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    every: int = 100,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
    observe: Callable[[Ensemble, int], Mapping[str, pd.DataFrame]] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Ensemble:
    """Train one trial or many; those that share shapes train as one stack.

    Args:
        trials: what to train. The result of each depends on its own trial alone.
        world: the data, instead of the world that each trial names.
        data: data of your own, instead: an array, a data set, or the path of a file or folder, whatever
            :func:`unseam.data.open_data` takes. Where a trial has the default likelihood and data do not lie within
            [0, 1], it gets the one that suits them. What was recognised is printed on standard error, unless
            ``progress`` is false.
        data_options: options of :func:`unseam.data.open_data`, e.g. ``{"factors": "age,sex", "size": 64}``.
        encoder: function f(shape, features) that makes the encoder, or ``package.module:factory``, instead of the
            architecture's.
        decoder: function f(latent, output) that makes the decoder, likewise.
        device: where to train; CUDA when there is one.
        out: folder of the run, where checkpoints go; nothing is written without it.
        resume: go on with the run in ``out`` where it stopped (or start it, when there is none).
        every: steps between two rows of the history.
        checkpoint_seconds: time between two checkpoints. One more is written when SIGINT (Ctrl-C), SIGTERM or SIGHUP
            asks the training to stop, which it does after the current step; a second signal stops it at once.
        progress: whether to report progress; by default only on a terminal.
        observe: measures the members along the way: a function of the ensemble as it is and the step, called at every
            record, whose tables are collected in ``ensemble.observed`` with a column ``step``. They are part of every
            checkpoint, so that a resumed run has all of them. The trials must share their shapes.
        callbacks: functions of the ensemble as it is, with its history so far, called in order at every record. One may
            return the members whose training ends there, as :class:`unseam.training.EarlyStopping` does; they are
            listed in ``ensemble.stopped_early`` and are measured as the others.

    Returns:
        The members in the order of their trials. A member that diverged has its last finite weights, is named
        in a :class:`DivergenceWarning` and listed in ``ensemble.stopped``.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=4, batch_size=8)
    >>> len(unseam.train(trial, world=unseam.data.load("linear", size=20)))
    1
    """
    chosen = _check(trials, every)
    place_on = choose_device(device)
    if world is not None and not isinstance(world, World):
        raise ValueError(f"world must be a World (see unseam.data.load), got {type(world).__name__}")
    networks = {"encoder": encoder, "decoder": decoder}
    chosen = _with(chosen, {name: made for name, made in networks.items() if made is not None})
    if data is not None:
        if world is not None:
            raise ValueError("world and data are the same thing: pass one of them")
        chosen, world = _own_data(chosen, data, data_options or {}, quiet=progress is False)
        if resume and out is not None:
            chosen, world = _named_as_before(Path(out), chosen, world)
    elif data_options:
        raise ValueError("data_options must come with data, whose options they are")
    folder = _folder(out, resume)
    positions = group(chosen)
    if observe is not None and len(positions) > 1:
        raise ValueError(
            f"observe needs trials that share their shapes, but these make {len(positions)} stacks"
        )
    worlds, described = _worlds(chosen, positions, world, place_on)
    # weights are drawn only where there are none to go on with
    drawn = not resume or folder is None or not (folder / "run.json").exists()
    stacks = [
        _stack([chosen[i] for i in members], its, place_on, drawn)
        for members, its in zip(positions, worlds, strict=True)
    ]
    about = provenance(place_on) | {"worlds": described}
    if callbacks:
        about["callbacks"] = [repr(callback) for callback in callbacks]
    members = tuple(map(tuple, positions))
    live = Ensemble(chosen, worlds[0].shape, tuple(stacks), members, _history(()), about, world=world)
    with nullcontext() if folder is None else lock_folder(folder) as lock:
        if folder is not None:
            _check_new(folder, resume)
            clear_parts(folder)
        earlier = restore(folder, chosen, stacks, worlds) if folder is not None and resume else None
        if earlier is None and not drawn:
            raise ValueError(f"{folder} was removed while it was opened; start again")
        trained = _train(
            live, worlds, earlier, folder, lock, every, checkpoint_seconds, progress, observe, callbacks
        )
    for member, step in trained.stopped.items():
        cause = trained.stopped_by.get(member, "it")
        text = f"member {member} stopped at step {step}, where {cause} was no longer finite"
        warnings.warn(f"{text}: {chosen[member].describe()}", DivergenceWarning, stacklevel=2)
    return trained


def _train(
    live: Ensemble,
    worlds: Sequence[World],
    earlier: Restored | None,
    folder: Path | None,
    lock: FolderLock | None,
    every: int,
    checkpoint_seconds: float,
    progress: bool | None,
    observe: Callable[[Ensemble, int], Mapping[str, pd.DataFrame]] | None,
    callbacks: Sequence[Callback],
) -> Ensemble:
    """The training itself, by the only process that writes to its folder."""
    stacks, positions, about = live.stacks, live.positions, live.about
    rows: list[pd.DataFrame] = []
    observed: dict[str, list[pd.DataFrame]] = {}
    if earlier is not None:
        rows.append(earlier.history)
        observed = {name: [table] for name, table in earlier.observed.items()}
        about = _continued(earlier.about, about, stacks)
        live = dataclasses.replace(live, about=about)
    before, began = float(about.get("seconds", 0.0)), time.monotonic()
    finished = "seconds" in about and all(stack.step >= stack.trials[0].steps for stack in stacks)

    def ensemble() -> Ensemble:
        if not finished:
            about["seconds"] = round(before + time.monotonic() - began, 1)
        tables = {name: _joined(parts) for name, parts in observed.items()}
        return dataclasses.replace(live, history=_history(rows), observed=tables)

    def checkpoint() -> Ensemble:
        now = ensemble()
        if folder is not None:
            write_checkpoint(folder, now, lock)
        return now

    total, last = sum(stack.trials[0].steps for stack in stacks), time.monotonic()
    with report_progress(progress) as report, _interruptible(folder) as interruption:
        checkpoint()

        def after_step() -> None:
            nonlocal last
            received = interruption()
            if received or time.monotonic() - last >= checkpoint_seconds:
                checkpoint()
                last = time.monotonic()
            if received:
                steps = ", ".join(str(stack.step) for stack in stacks)
                raise Interrupted(f"stopped at step {steps}; {folder} can be resumed", received)

        for members, stack, its in zip(positions, stacks, worlds, strict=True):
            for record in training_steps(stack, its, every=every, after_step=after_step):
                rows.append(_rows(members, record))
                if observe is not None:
                    for name, table in _observe(observe, live, record.step).items():
                        observed.setdefault(name, []).append(table)
                for callback in callbacks:
                    rows[:] = [_history(rows)]
                    with _evaluating(stack):
                        ended = callback(dataclasses.replace(live, history=rows[0])) or ()
                    stack.stop([members.index(member) for member in ended if member in members])
                report(stack, record, sum(one.step for one in stacks), total)
        return checkpoint()


def _check(trials: Trial | Sequence[Trial], every: int) -> tuple[Trial, ...]:
    chosen = (trials,) if isinstance(trials, Trial) else tuple(trials)
    if not chosen:
        raise ValueError("trials must hold at least one trial, got none")
    for trial in chosen:
        if not isinstance(trial, Trial):
            raise ValueError(f"trials must hold Trial values, got {type(trial).__name__}")
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be a whole number of at least 1, got {every!r}")
    return chosen


def _with(trials: tuple[Trial, ...], changes: Mapping[str, Any]) -> tuple[Trial, ...]:
    return tuple(dataclasses.replace(trial, **changes) for trial in trials) if changes else trials


def _own_data(
    trials: tuple[Trial, ...], data: object, options: Mapping[str, Any], *, quiet: bool
) -> tuple[tuple[Trial, ...], World]:
    """Trials of the user's own data, with the likelihood that suits these, and the data as a world."""
    if isinstance(data, World | OwnData) and options:
        raise ValueError(
            f"data_options must be left out for a {type(data).__name__}, got {', '.join(options)}"
        )
    missing = {trial.missing for trial in trials}
    if len(missing) > 1:
        raise ValueError("trials must agree in missing, got refuse and mask")
    if isinstance(data, World):
        return _with(trials, {"world": data.name, "world_options": ()}), data
    if unknown := sorted(set(options) - (open_data.__kwdefaults__ or {}).keys()):
        raise ValueError(f"data_options must be options of unseam.data.open_data, got {unknown[0]!r}")
    found = (
        data if isinstance(data, OwnData) else open_data(data, **{"missing": missing.pop()} | dict(options))
    )
    default = Trial.__dataclass_fields__["likelihood"].default
    fits = found.likelihood == default
    notes = [note for note in found.notes if not note.startswith("likelihood")]
    columns = len(found.covariates)
    trials = _with(trials, {"world": found.world.name, "world_options": (), "covariate_columns": columns})
    trials = tuple(
        trial
        if fits or trial.likelihood != default
        else dataclasses.replace(trial, likelihood=found.likelihood)
        for trial in trials
    )
    if not quiet:
        used = ", ".join(dict.fromkeys(trial.likelihood for trial in trials))
        why = found.notes[-1].partition(", since ")[2] if used == found.likelihood else "as given"
        for note in (*notes, f"likelihood {used}: {why}"):
            print(f"{found.world.name}: {note}", file=sys.stderr)
    return trials, found.world


def _named_as_before(
    folder: Path, trials: tuple[Trial, ...], world: World
) -> tuple[tuple[Trial, ...], World]:
    """Data of one name under that which a run gave them before they moved; their values are compared later."""
    if not (folder / "run.json").exists():
        return trials, world
    record = read_json(folder / "run.json")
    names = {its["name"] for its in record.get("worlds") or () if its.get("given")}
    if len(names) != 1:
        return trials, world
    world = copy.copy(world)
    world.name = names.pop()
    return _with(trials, {"world": world.name}), world


def choose_device(device: torch.device | str | None) -> torch.device:
    """The device asked for, or CUDA when there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be cpu or cuda (or cuda:1, ...), got {device!r}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees no CUDA device here")
    return found


def _folder(out: str | Path | None, resume: bool) -> Path | None:
    if out is None:
        if resume:
            raise ValueError("resume needs out, the folder of the run to go on with")
        return None
    folder = Path(out)
    if folder.is_symlink() and not folder.exists():
        raise ValueError(
            f"out must be a folder, but {folder} is a link to {folder.readlink()}, which does not exist"
        )
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, but {folder} is a file")
    _check_new(folder, resume)
    return folder


def _check_new(folder: Path, resume: bool) -> None:
    if not resume and (folder / "run.json").exists():
        raise ValueError(
            f"{folder} holds a run already; pass resume=True to go on with it, or another folder"
        )


def _worlds(
    trials: Sequence[Trial], positions: Sequence[Sequence[int]], world: World | None, device: torch.device
) -> tuple[list[World], list[dict[str, Any]]]:
    """The world of each stack, loaded once each and placed on the device; and what is recorded of it."""
    keys = [
        ("",) if world is not None else (trials[m[0]].world, trials[m[0]].world_options) for m in positions
    ]
    placed: dict[tuple[object, ...], World] = {}
    described: dict[tuple[object, ...], dict[str, Any]] = {}
    for key, members in zip(keys, positions, strict=True):
        if key not in placed:
            trial = trials[members[0]]
            options: dict[str, Any] = dict(trial.world_options)
            its = load_world(trial.world, **options) if world is None else world
            drawn = sum(
                len(m) * trials[m[0]].steps * trials[m[0]].batch_size
                for other, m in zip(keys, positions, strict=True)
                if other == key
            )
            described[key] = identify_data(its)._asdict() | {"given": world is not None}
            placed[key] = _place(its, device, drawn)
    found = [placed[key] for key in keys]
    if len({one.shape for one in found}) > 1:
        raise ValueError(
            f"all worlds of one call must have items of one shape, got {sorted({one.shape for one in found})}; "
            f"train them in separate calls"
        )
    return found, [described[key] for key in keys]


def _place(world: World, device: torch.device, drawn: int) -> World:
    """The world on the device; one that is rendered stays so on the host if few of its items will be drawn."""
    seldom = device.type == "cpu" and not isinstance(world, ArrayWorld) and drawn < 2 * len(world)
    return place(world, device, budget=0 if seldom else None)


def _stack(trials: Sequence[Trial], world: World, device: torch.device, drawn: bool) -> Stack:
    index = training_index(trials[0], len(world))
    size = len(world) if index is None else len(index)
    stack = stack_trials(trials, world.shape, size=size, device=device, drawn=drawn)
    # families that leave missing values out by themselves are shown 0 in their place
    hide = trials[0].missing == "mask" and find(Likelihood, trials[0].likelihood).shaped
    _check_items(stack.template.model.likelihood.check, world, index, hide=hide)
    return stack


def _check_items(
    check: Callable[[torch.Tensor], None], world: World, index: torch.Tensor | None, *, hide: bool
) -> None:
    """Every item trained on suits the likelihood; of bytes and of worlds drawn here the first ones show it for all."""
    index = torch.arange(len(world)) if index is None else index
    drawn_here = type(world).__module__.startswith("unseam.data.") and not isinstance(world, ArrayWorld)
    if drawn_here or (isinstance(world, ArrayWorld) and world.dtype == torch.uint8):
        index = index[:CHECKED]
    for part in index.to(world.device).split(max(1, CHECKED_VALUES // math.prod(world.shape))):
        x = world.images(part)
        check(x.nan_to_num(0.0) if hide else x)


def _continued(earlier: dict[str, Any], now: dict[str, Any], stacks: Sequence[Stack]) -> dict[str, Any]:
    """Where a run came from, and, if there is something left to train, where it went on."""
    if all(stack.step >= stack.trials[0].steps for stack in stacks):
        return earlier
    here = {key: value for key, value in now.items() if key != "worlds"}
    return earlier | {"resumed": [*earlier.get("resumed", []), here]}


def _observe(
    observe: Callable[[Ensemble, int], Mapping[str, pd.DataFrame]], ensemble: Ensemble, step: int
) -> dict[str, pd.DataFrame]:
    """Tables of one record, measured in evaluation mode, in the middle of a training that goes on."""
    with _evaluating(ensemble.stacks[0]):
        return {name: table.assign(step=step) for name, table in observe(ensemble, step).items()}


@contextmanager
def _evaluating(stack: Stack) -> Iterator[None]:
    """The members in evaluation mode."""
    stack.template.eval()
    yield
    stack.template.train()
    stack.runner.train()


def _rows(members: Sequence[int], record: Record) -> pd.DataFrame:
    import pandas as pd

    terms = {name: value.double().cpu().numpy() for name, value in record.terms.items()}
    return pd.DataFrame({"member": members, "step": record.step, "alive": record.alive.cpu().numpy()} | terms)


def _history(rows: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return _joined(rows) if any(len(part) for part in rows) else empty_history()


def _joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    held = [part for part in parts if len(part)]
    return pd.concat(held, ignore_index=True) if held else parts[0]


@contextmanager
def _interruptible(folder: Path | None) -> Iterator[Callable[[], int]]:
    """The signal that asks a training with a folder to stop, 0 before one comes; a second one stops at once.

    What was to be ignored before, as SIGHUP under nohup, still is.
    """
    received = 0
    if folder is None or threading.current_thread() is not threading.main_thread():
        yield lambda: received
        return

    def receive(number: int, frame: Any) -> None:
        nonlocal received
        name = signal.Signals(number).name
        if received:
            raise Interrupted(f"{name}: stopped at once; {folder} has its last checkpoint", number)
        received = number
        # not print, which a signal may have interrupted
        os.write(
            2, f"{name}: saving a checkpoint after this step, then stopping; again to stop at once\n".encode()
        )

    named = {kind.name: kind for kind in signal.Signals}
    kinds = [named[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in named]
    before = {kind: signal.getsignal(kind) for kind in kinds}
    for kind, handler in before.items():
        if handler not in (signal.SIG_IGN, None):
            signal.signal(kind, receive)
    try:
        yield lambda: received
    finally:
        for kind, handler in before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(kind, handler)
