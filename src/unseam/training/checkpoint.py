"""Save and load runs, and resume them where they stopped."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from unseam import choices
from unseam.data import World, data_difference, identify_data
from unseam.files import (
    TensorShape,
    check_memory,
    digest,
    first_line,
    read_json,
    read_table,
    read_tensors,
    sync_folder,
    tensor_shapes,
    write_json,
    write_table,
    write_tensors,
)
from unseam.inputs import ordinary_modes
from unseam.locks import FolderLock, lock_folder
from unseam.models import VAE
from unseam.training.ensemble import Ensemble, empty_history
from unseam.training.learner import blank_learner
from unseam.training.provenance import provenance
from unseam.training.stack import CAUSES, Stack, group, stack_trials
from unseam.trial import KINDS, NETWORKS, Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ChangedError",
    "Recorded",
    "Restored",
    "adopt",
    "check_schema",
    "learner_shapes",
    "load",
    "read_ensemble",
    "read_run",
    "read_trial",
    "restore",
    "save",
    "write_checkpoint",
    "write_record",
]

T = TypeVar("T")

FORMAT = 1
OBSERVED = "observed-"
MEMBERS = ("trials", "shape", "sizes", "steps", "stopped")
HISTORY = {"member": "iu", "step": "iu", "alive": "b"}
ATTEMPTS = 3
"""Readings of a run's files, which a training may exchange meanwhile."""


class Recorded(NamedTuple):
    """What ``run.json`` says: trials, the shape of an item, and of each stack its training items and its steps."""

    trials: tuple[Trial, ...]
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    stopped: dict[int, int]
    """Members that diverged, with the step at which each stopped."""
    stopped_by: dict[int, str]
    """What was no longer finite, of each of them."""
    about: dict[str, Any]
    """Versions, hardware, code revision, worlds."""
    files: dict[str, str]
    """Digests of the other files of the checkpoint by name; none in runs of an earlier version."""


def save(
    ensemble: Ensemble | VAE, path: str | Path, *, trial: Trial | None = None, world: World | None = None
) -> None:
    """Write an ensemble as a run folder: ``run.json``, ``weights.safetensors``, ``history.parquet``.

    Args:
        ensemble: the members; or a VAE that was trained in a loop of your own, and becomes a run of one member.
        path: the folder.
        trial: of such a VAE: its parts by name (see :func:`unseam.models.build`), and what is known of its training.
        world: of such a VAE: the data it was trained on, which the run records; unrecorded by default.

    >>> import tempfile, unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> ensemble = unseam.train(trial, world=unseam.data.load("linear", size=10))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(ensemble, folder)
    ...     load(folder).trials == ensemble.trials
    True
    """
    folder = Path(path)
    if isinstance(ensemble, VAE):
        ensemble = adopt(ensemble, trial, world)
    with lock_folder(folder) as lock:
        if not (folder / "run.json").exists() or not _resumable(folder, ensemble):
            write_checkpoint(folder, ensemble, lock, state=False)


@torch.no_grad()
def adopt(model: VAE, trial: Trial | None, world: World | None = None) -> Ensemble:
    """A VAE that was trained elsewhere as an ensemble of one, after its parts were compared with those of the trial."""
    if trial is None:
        raise ValueError(
            "trial must say what the parts of a VAE are (unseam.Trial with its architecture, latent, posterior and "
            "likelihood), got None"
        )
    own = model.state_dict()
    first = next(model.parameters())
    z = torch.zeros(1, model.posterior.latent, device=first.device, dtype=first.dtype)
    shape = tuple(model.generate(z).shape[1:])
    size = 1 if world is None else round(len(world) * trial.train_fraction)
    stack = stack_trials([trial], shape, size=size, drawn=False)
    named = {name.removeprefix("model."): value for name, value in {**stack.parameters, **stack.buffers}.items()
             if name.startswith("model.")}  # fmt: skip
    for name in sorted(own.keys() | named.keys()):
        wanted = tuple(named[name].shape[1:]) if name in named else "nothing"
        came = tuple(own[name].shape) if name in own else "nothing"
        if wanted != came:
            raise ValueError(
                f"trial must describe the VAE: {name} is {wanted} by the trial, {came} in the VAE"
            )
        named[name].copy_(own[name][None])
    stack.step = trial.steps
    about = provenance("cpu")
    if world is not None:
        about["worlds"] = [identify_data(world)._asdict() | {"given": True}]
    return Ensemble((trial,), shape, (stack,), ((0,),), empty_history(), about)


def _resumable(folder: Path, ensemble: Ensemble) -> bool:
    """Whether the folder has all of the ensemble and its optimiser's state besides; another run is an error."""
    record = read_run(folder)
    if record.trials != ensemble.trials:
        raise ValueError(f"{folder} holds a run of other trials; choose another folder, or remove it first")
    if any(
        "digest" in a and "digest" in b and a.get("read") == b.get("read") and a["digest"] != b["digest"]
        for a, b in zip(*(about.get("worlds", ()) for about in (record.about, ensemble.about)), strict=False)
    ):
        raise ValueError(
            f"{folder} holds a run of these trials on other data; choose another folder, or remove it first"
        )
    if not (folder / "optimizer.safetensors").exists():
        return False
    saved = read_ensemble(folder, record)
    if not all(torch.equal(a.flat.cpu(), b.flat) for a, b in zip(ensemble.stacks, saved.stacks, strict=True)):
        raise ValueError(
            f"{folder} holds a training of the same trials with other weights, which can be resumed; choose another "
            f"folder, or remove it first"
        )
    return True


@ordinary_modes()
def load(path: str | Path, *, device: torch.device | str = "cpu", trust: bool = False) -> Ensemble:
    """Read an ensemble from its run folder; nothing in it can run code.

    Args:
        path: folder that :func:`save` or a training wrote.
        device: of the members.
        trust: whether to import modules that the run names as ``package.module:object``; without it, a choice of your
            own is found only where its module has been imported already.

    >>> load("absent")
    Traceback (most recent call last):
    FileNotFoundError: absent holds no run.json; is it the folder of a run?
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(ChangedError):
            return read_ensemble(Path(path), read_run(Path(path), trust=trust), device=device)
    return read_ensemble(Path(path), read_run(Path(path), trust=trust), device=device)


def read_ensemble(folder: Path, record: Recorded, *, device: torch.device | str = "cpu") -> Ensemble:
    """The ensemble of a run's folder whose ``run.json`` was read already; no weights are drawn on the way."""
    trials = record.trials
    positions = tuple(map(tuple, group(trials)))
    path = folder / "weights.safetensors"
    tensors = _read(folder, record.files, path.name, functools.partial(_read_weights, record, positions))
    history = _read(folder, record.files, "history.parquet", functools.partial(read_table, columns=HISTORY))
    stacks = []
    for number, members in enumerate(positions):
        stack = stack_trials(
            [trials[i] for i in members], record.shape, size=record.sizes[number], device=device, drawn=False
        )
        _fill(stack, _part(tensors, number), path)
        stack.step = record.steps[number]
        stack.stopped_at.copy_(torch.tensor([record.stopped.get(member, -1) for member in members]))
        stack.alive.copy_(stack.stopped_at < 0)
        causes = [CAUSES.index(record.stopped_by.get(member, "")) for member in members]
        stack.stopped_by.copy_(torch.tensor(causes))
        stacks.append(stack)
    return Ensemble(trials, record.shape, tuple(stacks), positions, history, record.about)


class ChangedError(ValueError):
    """The run has a later checkpoint than the one that was asked for."""


def _read(folder: Path, files: Mapping[str, str], name: str, read: Callable[[Path], T]) -> T:
    """A file of a checkpoint, compared with its digest after it was read: whoever exchanged it meanwhile is noticed."""
    path, waiting = folder / name, folder / _waiting(name)
    if name not in files:
        return read(path)
    for attempt in range(ATTEMPTS):
        try:
            found = waiting if waiting.exists() and digest(waiting) == files[name] else path
            content = read(found)
            if digest(found) == files[name]:
                return content
            problem: Exception = ValueError(
                f"{path} is damaged: its content has changed since it was written, says its digest in run.json; "
                f"restore the file or train the run again"
            )
        except (FileNotFoundError, ValueError) as error:
            problem = error
        if read_json(folder / "run.json").get("files") != files:
            raise ChangedError(f"{folder} has gone on since it was opened; open it again") from None
        if attempt == ATTEMPTS - 1:
            raise problem
    raise AssertionError


def _waiting(name: str) -> str:
    """Name of a file that waits for ``run.json`` to name its digest, and then for its own name."""
    return f".{name}.new"


def _read_weights(record: Recorded, positions: Sequence[Sequence[int]], path: Path) -> dict[str, Tensor]:
    """Weights, after their shapes were compared with what the trials say and before any memory is taken."""
    held = tensor_shapes(path)
    for number, members in enumerate(positions):
        first, size = members[0], record.sizes[number]
        for name, shape in learner_shapes(
            record.trials[first], record.shape, size=size, member=first
        ).items():
            wanted = (len(members), *shape)
            found = held.get(f"{number}/{name}", TensorShape((), "nothing"))
            if found.shape != wanted:
                came = "nothing" if found.dtype == "nothing" else str(found.shape)
                raise ValueError(f"{path} must hold '{number}/{name}' of shape {wanted}, got {came}")
    # as read, and as a stack: once for the weights, and twice for the optimiser's state
    check_memory(4 * path.stat().st_size, str(path))
    return read_tensors(path)


def learner_shapes(
    trial: Trial, shape: tuple[int, ...], *, size: int, member: int = 0
) -> dict[str, tuple[int, ...]]:
    """Shapes of one member's parameters and buffers, from a model without memory.

    They are unknown, and none are returned, where networks of the user's own compute with values as they are made.
    """
    try:
        with torch.device("meta"):
            blank = blank_learner(trial, shape, size=size)
    except (NotImplementedError, RuntimeError, TypeError, IndexError) as error:
        if any(":" in getattr(trial, name) for name in (*KINDS, *NETWORKS)):
            return {}
        raise ValueError(
            f"trial {member} describes a model that cannot be made: {first_line(error)}"
        ) from None
    named = (*blank.named_parameters(), *blank.named_buffers())
    return {name: tuple(value.shape) for name, value in named}


def write_checkpoint(
    folder: Path, ensemble: Ensemble, lock: FolderLock | None = None, *, state: bool = True
) -> None:
    """Write a run with everything that is needed to go on from here, as one unit.

    Files wait under names of their own; ``run.json``, which names the digest of each, is replaced in one step; then
    they get their names. A process killed before that step leaves the earlier checkpoint, one killed after it the new
    one, which readers find under either name. ``run.json`` of a run that never began does not exist.

    Args:
        folder: of the run.
        ensemble: what to write.
        lock: of the folder, which must still be held when ``run.json`` is replaced.
        state: whether to write what resuming needs beside the weights.
    """
    stacks = list(enumerate(ensemble.stacks))
    weights = {
        f"{number}/{name}": value
        for number, stack in stacks
        for name, value in (*stack.parameters.items(), *stack.buffers.items())
    }
    note = {"format": str(FORMAT)}
    tables = {f"{OBSERVED}{name}.parquet": table for name, table in ensemble.observed.items()}
    writers: dict[str, Callable[[Path], None]] = {
        name: functools.partial(write_table, table=table)
        for name, table in ({"history.parquet": ensemble.history} | tables).items()
    }
    if state:
        resume = {
            f"{number}/{name}": value for number, stack in stacks for name, value in _state(stack).items()
        }
        writers["optimizer.safetensors"] = functools.partial(write_tensors, tensors=resume, note=note)
    writers["weights.safetensors"] = functools.partial(write_tensors, tensors=weights, note=note)
    files: dict[str, str] = {}
    try:
        for name, write in writers.items():
            write(folder / _waiting(name))
            files[name] = digest(folder / _waiting(name))
        if lock is not None:
            lock.check()
        write_record(folder, _record(ensemble) | {"files": files})
    except BaseException:
        # an interrupt may come after run.json was replaced: then the files are those of the new checkpoint
        if not (folder / "run.json").exists() or read_json(folder / "run.json").get("files") != files:
            for name in writers:
                (folder / _waiting(name)).unlink(missing_ok=True)
        raise
    _settle(folder, files)


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write ``run.json`` with a digest of what it says."""
    write_json(folder / "run.json", {**record, "digest": _record_digest(record)})


def _record_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of what ``run.json`` says, but for this digest itself."""
    content = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _settle(folder: Path, files: Mapping[str, str]) -> None:
    """Give the files of the last checkpoint their names, and remove those of one that was not finished."""
    for waiting in folder.glob(".*.new"):
        name = waiting.name[1 : -len(".new")]
        if name not in (*files, *FILES) and not name.startswith(OBSERVED):
            continue  # not of a checkpoint
        if name in files and digest(waiting) == files[name]:
            os.replace(waiting, folder / name)
        else:
            waiting.unlink()
    sync_folder(folder)


def _record(ensemble: Ensemble) -> dict[str, Any]:
    """What ``run.json`` says of an ensemble, without the digests of files."""
    stopped, stopped_by = {}, {}
    for members, stack in zip(group(ensemble.trials), ensemble.stacks, strict=True):
        for row, position in enumerate(members):
            if stack.stopped_at[row] >= 0:
                stopped[str(position)] = int(stack.stopped_at[row])
                stopped_by[str(position)] = CAUSES[int(stack.stopped_by[row])]
    return dict(ensemble.about) | {
        "format": FORMAT,
        "shape": list(ensemble.shape),
        "sizes": [stack.template.size for stack in ensemble.stacks],
        "steps": [stack.step for stack in ensemble.stacks],
        "complete": all(stack.step >= stack.trials[0].steps for stack in ensemble.stacks),
        "stopped": stopped,
        "stopped_by": stopped_by,
        "trials": [trial.to_dict() for trial in ensemble.trials],
    }


class Restored(NamedTuple):
    """What was found of an earlier run: its history up to where it goes on, and what it came from."""

    history: pd.DataFrame
    about: dict[str, Any]
    observed: dict[str, pd.DataFrame]


def restore(
    folder: Path, trials: Sequence[Trial], stacks: Sequence[Stack], worlds: Sequence[World]
) -> Restored | None:
    """Put freshly made stacks where the run in ``folder`` stopped; nothing where there is none.

    >>> restore(Path("absent"), [], [], []) is None
    True
    """
    if not (folder / "run.json").exists():
        return None
    record = read_run(folder)
    held = record.trials
    if held != tuple(trials):
        differ = [a != b for a, b in zip(held, trials, strict=False)]
        changed = differ.index(True) if any(differ) else len(differ)
        raise ValueError(
            f"{folder} holds a run of other trials (first difference at member {changed}); resume it with the "
            f"trials it was started with, or choose another folder"
        )
    for recorded, world in zip(record.about.get("worlds", ()), worlds, strict=False):
        if apart := data_difference(recorded, identify_data(world, read=recorded.get("read"))):
            raise ValueError(
                f"{folder} was trained on {recorded['name']}, which is not the world given now, {world.name}: {apart}; "
                f"resume it with the data it was started with, or choose another folder"
            )
    _settle(folder, record.files)
    path = folder / "optimizer.safetensors"
    if not path.exists():
        raise ValueError(
            f"{folder} holds a saved ensemble, not a training to go on with; choose another folder"
        )
    tensors = _read(folder, record.files, path.name, read_tensors)
    if record.files:  # an earlier version had everything in one file
        tensors |= _read(folder, record.files, "weights.safetensors", read_tensors)
    for number, stack in enumerate(stacks):
        _restore_stack(stack, _part(tensors, number), path)
    history = _read(folder, record.files, "history.parquet", functools.partial(read_table, columns=HISTORY))
    reached = {member: s.step for members, s in zip(group(trials), stacks, strict=True) for member in members}
    return Restored(
        history[history["step"] <= history["member"].map(reached)].reset_index(drop=True),
        {key: value for key, value in record.about.items() if key not in ("format", "complete")},
        _observed(folder, record.files, max(reached.values())),
    )


def _restore_stack(stack: Stack, part: Mapping[str, Tensor], path: Path) -> None:
    """Put a stack where the checkpoint was: weights, optimiser, members that stopped, and means on their way."""
    _fill(stack, part, path)
    members = (len(stack),)
    stack.step = int(_tensor(part, "state/step", (), path))
    if stack.step < stack.trials[0].steps:
        for name, value in stack.state.items():
            wanted = (len(stack), len(stack.columns))
            value[:, stack.columns] = _tensor(part, f"state/{name}", wanted, path).to(value)
    stack.alive.copy_(_tensor(part, "state/alive", members, path))
    stack.stopped_at.copy_(_tensor(part, "state/stopped_at", members, path))
    if "state/stopped_by" in part:
        stack.stopped_by.copy_(_tensor(part, "state/stopped_by", members, path))
    stack.clock.fill_(stack.step)
    if "state/counted" in part:
        stack.counted = int(_tensor(part, "state/counted", (), path))
        names = [name.removeprefix(TOTAL) for name in part if name.startswith(TOTAL)]
        stack.totals = {
            name: _tensor(part, f"{TOTAL}{name}", members, path).to(stack.device) for name in names
        }


def _tensor(part: Mapping[str, Tensor], name: str, shape: tuple[int, ...], path: Path) -> Tensor:
    if name not in part or tuple(part[name].shape) != shape:
        came = "nothing" if name not in part else str(tuple(part[name].shape))
        raise ValueError(f"{path} must hold {name!r} of shape {shape}, got {came}")
    return part[name]


def _observed(folder: Path, files: Mapping[str, str], step: int) -> dict[str, pd.DataFrame]:
    """Tables measured along the way, up to the step from which the run goes on."""
    read = functools.partial(read_table, columns={"step": "iu"})
    tables = {
        path.stem.removeprefix(OBSERVED): _read(folder, files, path.name, read)
        for path in folder.glob(f"{OBSERVED}*.parquet")
    }
    return {name: table[table["step"] <= step].reset_index(drop=True) for name, table in tables.items()}


def read_run(folder: Path, *, trust: bool = False) -> Recorded:
    """What ``run.json`` in a run's folder says.

    Args:
        folder: of the run.
        trust: whether to import modules that it names (see :func:`load`).
    """
    path = folder / "run.json"
    record = read_json(path)
    if record.get("format") != FORMAT or any(key not in record for key in MEMBERS):
        lacks = next((f"lacks {key!r}" for key in MEMBERS if key not in record), "")
        what = lacks or f"has format {record.get('format')!r}, expected {FORMAT}"
        raise ValueError(f"{path} {what}; it was not written by this version")
    check_schema(record, path)
    if "digest" in record and record["digest"] != _record_digest(record):
        raise ValueError(
            f"{path} is damaged: its content has changed since it was written, says its digest; restore the file or "
            f"train the run again"
        )
    with choices.importing(trust):
        trials = tuple(read_trial(entry, number, path) for number, entry in enumerate(record["trials"]))
        stacks = group(trials)
    for name in ("sizes", "steps"):
        if len(record[name]) != len(stacks):
            raise ValueError(
                f"{path} is damaged: {name} must have one entry per stack ({len(stacks)}), got {len(record[name])}"
            )
    _check_consistent(record, trials, stacks, path)
    return Recorded(
        trials,
        tuple(record["shape"]),
        tuple(record["sizes"]),
        tuple(record["steps"]),
        {int(member): step for member, step in record["stopped"].items()},
        {int(m): cause if cause in CAUSES else "" for m, cause in record.get("stopped_by", {}).items()},
        {key: record[key] for key in record if key not in (*MEMBERS, "stopped_by", "files", "digest")},
        record.get("files", {}),
    )


def _whole(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**53


def _describes_data(world: object) -> bool:
    """Whether an entry of ``worlds`` is of the form that this version or an earlier one wrote."""
    kinds = {"options": dict, "shape": list, "digest": str, "factor_digest": str, "read": int, "sketch": list}
    return (
        isinstance(world, dict)
        and isinstance(world.get("name"), str)
        and ("items" not in world or _whole(world["items"], 1))
        and all(isinstance(world.get(key), kind | None) for key, kind in kinds.items())
    )


_SCHEMA: dict[str, tuple[str, Callable[[Any], object]]] = {
    "trials": (
        "a list of trials",
        lambda v: isinstance(v, list) and all(isinstance(t, dict) for t in v) and v,
    ),
    "shape": (
        "a list of sizes",
        lambda v: isinstance(v, list) and v and all(_whole(n, 1) for n in v) and math.prod(v) < 2**53,
    ),
    "sizes": ("a list of counts", lambda v: isinstance(v, list) and all(_whole(n, 1) for n in v)),
    "steps": ("a list of counts", lambda v: isinstance(v, list) and all(_whole(n) for n in v)),
    "stopped": (
        "steps by member",
        lambda v: isinstance(v, dict) and all(k.isdecimal() and _whole(n) for k, n in v.items()),
    ),
    "files": (
        "digests by name",
        lambda v: isinstance(v, dict) and all(isinstance(d, str) and Path(k).name == k for k, d in v.items()),
    ),
    "versions": ("an object", lambda v: isinstance(v, dict)),
    "hardware": ("an object", lambda v: isinstance(v, dict)),
    "revision": ("text", lambda v: isinstance(v, str)),
    "created": ("text", lambda v: isinstance(v, str)),
    "seconds": ("a number", lambda v: isinstance(v, int | float) and math.isfinite(v)),
    "stopped_by": (
        "causes by member",
        lambda v: isinstance(v, dict) and all(k.isdecimal() and isinstance(c, str) for k, c in v.items()),
    ),
    "worlds": (
        "a list of descriptions of data",
        lambda v: isinstance(v, list) and all(map(_describes_data, v)),
    ),
    "digest": ("text", lambda v: isinstance(v, str)),
    "resumed": ("a list of objects", lambda v: isinstance(v, list) and all(isinstance(w, dict) for w in v)),
}


def check_schema(record: Mapping[str, Any], path: Path) -> None:
    """Refuse a record with a field of the wrong kind."""
    for name, (wanted, fits) in _SCHEMA.items():
        if name in record and not fits(record[name]):
            raise ValueError(f"{path} is damaged: {name} must be {wanted}, got {str(record[name])[:60]!r}")


def _check_consistent(
    record: Mapping[str, Any], trials: Sequence[Trial], stacks: Sequence[Sequence[int]], path: Path
) -> None:
    """Refuse steps, sizes and members that trials and data do not have."""
    if absent := [member for member in record["stopped"] if int(member) >= len(trials)]:
        raise ValueError(f"{path} is damaged: stopped names member {absent[0]} of {len(trials)}")
    worlds = record.get("worlds", [])
    for number, members in enumerate(stacks):
        trial, size, step = trials[members[0]], record["sizes"][number], record["steps"][number]
        if step > trial.steps:
            raise ValueError(f"{path} is damaged: steps must be at most {trial.steps}, got {step}")
        items = worlds[number].get("items") if number < len(worlds) else None
        # an earlier version recorded a VAE of the user's own, without a digest, as trained on all items
        wanted = {items} if "digest" not in record else set()
        if items is not None and size not in wanted | {round(items * trial.train_fraction)}:
            raise ValueError(
                f"{path} is damaged: sizes must be {trial.train_fraction:g} of {items} items, got {size}"
            )


def read_trial(entry: Mapping[str, Any], number: int, path: Path) -> Trial:
    """One trial of a record, with every choice of the user's own looked up."""
    try:
        trial = Trial.from_dict(entry)
        hash(trial.stack_key())
        for name in ("world", "encoder_activation", "decoder_activation"):
            if not isinstance(getattr(trial, name), str):
                raise ValueError(f"{name} must be text, got {getattr(trial, name)!r}")
        for name in ("latent", "steps", "batch_size"):
            if not _whole(getattr(trial, name), 1):
                raise ValueError(f"{name} must be below 2^53, got {str(getattr(trial, name))[:20]}...")
        if ":" in trial.world:
            choices.find(choices.World, trial.world)
    except ValueError as error:
        raise ValueError(f"{path}, trial {number}: {error}") from None
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged: trial {number} has a field of the wrong type ({error})"
        ) from None
    return trial


TOTAL = "state/total/"
FILES = ("history.parquet", "optimizer.safetensors", "weights.safetensors")


def _state(stack: Stack) -> dict[str, Tensor]:
    """What a stack needs beside its weights; the optimiser's part only while there is something left to do."""
    named: dict[str, Tensor] = {}
    if stack.step < stack.trials[0].steps:
        named |= {f"state/{name}": value[:, stack.columns] for name, value in stack.state.items()}
        named |= {f"{TOTAL}{name}": value for name, value in stack.totals.items()}
        named |= {"state/counted": torch.tensor(stack.counted)}
    named |= {f"state/{name}": getattr(stack, name) for name in ("alive", "stopped_at", "stopped_by")}
    return named | {"state/step": torch.tensor(stack.step)}


def _part(tensors: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    prefix = f"{number}/"
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def _fill(stack: Stack, part: Mapping[str, Tensor], path: Path) -> None:
    """Copy saved parameters and buffers into a stack of the same shapes."""
    with torch.no_grad():
        for name, value in {**stack.parameters, **stack.buffers}.items():
            value.copy_(_tensor(part, name, tuple(value.shape), path))
