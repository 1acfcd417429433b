"""Save and load runs, and resume them where they stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from unseam.data import World, data_difference, identify_data
from unseam.files import (
    read_json,
    read_table,
    read_tensors,
    write_json,
    write_table,
    write_tensors,
)
from unseam.training.ensemble import Ensemble
from unseam.training.stack import CAUSES, Stack, group, stack_trials
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Recorded",
    "Restored",
    "load",
    "read_ensemble",
    "read_run",
    "restore",
    "save",
    "write_checkpoint",
    "write_run",
]

FORMAT = 1
OBSERVED = "observed-"
MEMBERS = ("trials", "shape", "sizes", "steps", "stopped")


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


def save(ensemble: Ensemble, path: str | Path) -> None:
    """Write an ensemble as a run folder: ``run.json``, ``weights.safetensors``, ``history.parquet``.

    >>> import tempfile, unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> ensemble = unseam.train(trial, world=unseam.data.load("linear", size=10))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(ensemble, folder)
    ...     load(folder).trials == ensemble.trials
    True
    """
    folder = Path(path)
    if (folder / "run.json").exists():
        record = read_run(folder)
        if record.trials != ensemble.trials:
            raise ValueError(
                f"{folder} holds a run of other trials; choose another folder, or remove it first"
            )
        if any(
            a and b and a != b for a, b in zip(*map(_digests, (record.about, ensemble.about)), strict=False)
        ):
            raise ValueError(
                f"{folder} holds a run of these trials on other data; choose another folder, or remove it first"
            )
    if not _holds_weights(folder, ensemble):
        # the state of other weights is nothing to go on with
        (folder / "optimizer.safetensors").unlink(missing_ok=True)
    write_run(folder, ensemble.trials, ensemble.shape, ensemble.stacks, ensemble.about)
    write_table(folder / "history.parquet", ensemble.history)


def load(path: str | Path, *, device: torch.device | str = "cpu") -> Ensemble:
    """Read an ensemble from its run folder.

    Its files (JSON, safetensors, Parquet) hold data and no code, but a trial may name a choice as
    ``package.module:object``. Reading ``run.json`` then imports the module of an architecture, posterior, likelihood,
    objective or optimiser, and using the data imports that of a world: from the current folder first, otherwise from
    wherever Python finds it. Importing runs its code, so look for such names before loading a run that is not yours.
    Plain names are built in, or entry points of installed packages.

    Args:
        path: folder that :func:`save` or a training wrote.
        device: of the members.

    >>> load("absent")
    Traceback (most recent call last):
    FileNotFoundError: absent holds no run.json; is it the folder of a run?
    """
    return read_ensemble(Path(path), read_run(Path(path)), device=device)


def read_ensemble(folder: Path, record: Recorded, *, device: torch.device | str = "cpu") -> Ensemble:
    """The ensemble of a run's folder whose ``run.json`` was read already; no weights are drawn on the way."""
    trials = record.trials
    tensors = read_tensors(folder / "weights.safetensors")
    positions = tuple(map(tuple, group(trials)))
    stacks = []
    for number, members in enumerate(positions):
        stack = stack_trials(
            [trials[i] for i in members], record.shape, size=record.sizes[number], device=device, drawn=False
        )
        _fill(stack, _part(tensors, number), folder / "weights.safetensors")
        stack.step = record.steps[number]
        stack.stopped_at.copy_(torch.tensor([record.stopped.get(member, -1) for member in members]))
        stack.alive.copy_(stack.stopped_at < 0)
        causes = [CAUSES.index(record.stopped_by.get(member, "")) for member in members]
        stack.stopped_by.copy_(torch.tensor(causes))
        stacks.append(stack)
    history = read_table(folder / "history.parquet")
    return Ensemble(trials, record.shape, tuple(stacks), positions, history, record.about)


def write_run(
    folder: Path,
    trials: Sequence[Trial],
    shape: tuple[int, ...],
    stacks: Sequence[Stack],
    about: Mapping[str, Any],
) -> None:
    """Write weights and then ``run.json``."""
    named = {
        f"{number}/{name}": value
        for number, stack in enumerate(stacks)
        for name, value in (*stack.parameters.items(), *stack.buffers.items())
    }
    write_tensors(folder / "weights.safetensors", named, note={"format": str(FORMAT)})
    stopped, stopped_by = {}, {}
    for members, stack in zip(group(trials), stacks, strict=True):
        for row, position in enumerate(members):
            if stack.stopped_at[row] >= 0:
                stopped[str(position)] = int(stack.stopped_at[row])
                stopped_by[str(position)] = CAUSES[int(stack.stopped_by[row])]
    record = dict(about) | {
        "format": FORMAT,
        "shape": list(shape),
        "sizes": [stack.template.size for stack in stacks],
        "steps": [stack.step for stack in stacks],
        "complete": all(stack.step >= stack.trials[0].steps for stack in stacks),
        "stopped": stopped,
        "stopped_by": stopped_by,
        "trials": [trial.to_dict() for trial in trials],
    }
    write_json(folder / "run.json", record)


def _digests(about: Mapping[str, Any]) -> list[Any]:
    """Digests of the data of each stack; nothing where an earlier version recorded none."""
    return [world.get("digest") for world in about.get("worlds", ())]


def _holds_weights(folder: Path, ensemble: Ensemble) -> bool:
    """Whether the state from which a run would be resumed is that of an ensemble's weights."""
    path = folder / "optimizer.safetensors"
    if not path.exists():
        return False
    held = read_tensors(path)
    return all(
        int(held.get(f"{number}/state/step", -1)) == stack.step
        and all(
            f"{number}/{name}" in held and torch.equal(held[f"{number}/{name}"], value.detach().cpu())
            for name, value in (*stack.parameters.items(), *stack.buffers.items())
        )
        for number, stack in enumerate(ensemble.stacks)
    )


def write_checkpoint(folder: Path, ensemble: Ensemble) -> None:
    """Write a run with everything that is needed to go on from here.

    ``optimizer.safetensors`` alone decides where a resumed run starts: it holds parameters, buffers, optimiser
    state and step together, so that a process killed between two files leaves a state that belongs together. The
    history and the observed tables before it reach at least as far, and ``run.json`` comes last, so that a run without
    one never began.
    """
    write_table(folder / "history.parquet", ensemble.history)
    for name, table in ensemble.observed.items():
        write_table(folder / f"{OBSERVED}{name}.parquet", table)
    named = {
        f"{number}/{name}": value
        for number, stack in enumerate(ensemble.stacks)
        for name, value in _state(stack).items()
    }
    write_tensors(folder / "optimizer.safetensors", named, note={"format": str(FORMAT)})
    write_run(folder, ensemble.trials, ensemble.shape, ensemble.stacks, ensemble.about)


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
        changed = next((i for i, (a, b) in enumerate(zip(held, trials, strict=False)) if a != b), len(held))
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
    path = folder / "optimizer.safetensors"
    if not path.exists():
        raise ValueError(
            f"{folder} holds a saved ensemble, not a training to go on with; choose another folder"
        )
    tensors = read_tensors(path)
    for number, stack in enumerate(stacks):
        part = _part(tensors, number)
        _fill(stack, part, path)
        for name, value in stack.state.items():
            if f"state/{name}" in part:
                value[:, stack.columns] = part[f"state/{name}"].to(value)
        stack.alive.copy_(part["state/alive"])
        stack.stopped_at.copy_(part["state/stopped_at"])
        if "state/stopped_by" in part:
            stack.stopped_by.copy_(part["state/stopped_by"])
        stack.step = int(part["state/step"])
        stack.clock.fill_(stack.step)
    history = read_table(folder / "history.parquet")
    reached = {member: s.step for members, s in zip(group(trials), stacks, strict=True) for member in members}
    return Restored(
        history[history["step"] <= history["member"].map(reached)].reset_index(drop=True),
        {key: value for key, value in record.about.items() if key not in ("format", "complete")},
        _observed(folder, max(reached.values())),
    )


def _observed(folder: Path, step: int) -> dict[str, pd.DataFrame]:
    """Tables measured along the way, up to the step from which the run goes on."""
    tables = {
        path.stem.removeprefix(OBSERVED): read_table(path) for path in folder.glob(f"{OBSERVED}*.parquet")
    }
    return {name: table[table["step"] <= step].reset_index(drop=True) for name, table in tables.items()}


def read_run(folder: Path) -> Recorded:
    """What ``run.json`` in a run's folder says."""
    record = read_json(folder / "run.json")
    missing = [key for key in MEMBERS if key not in record]
    if missing or record.get("format") != FORMAT:
        what = (
            f"lacks {missing[0]!r}" if missing else f"has format {record.get('format')!r}, expected {FORMAT}"
        )
        raise ValueError(f"{folder / 'run.json'} {what}; it was not written by this version")
    return Recorded(
        tuple(Trial.from_dict(entry) for entry in record["trials"]),
        tuple(record["shape"]),
        tuple(record["sizes"]),
        tuple(record["steps"]),
        {int(member): step for member, step in record["stopped"].items()},
        {
            int(member): cause if cause in CAUSES else ""
            for member, cause in record.get("stopped_by", {}).items()
        },
        {key: value for key, value in record.items() if key not in (*MEMBERS, "stopped_by")},
    )


def _state(stack: Stack) -> dict[str, Tensor]:
    """All that a stack needs to go on; the optimiser's part only while there is something left to do."""
    named = {**stack.parameters, **stack.buffers}
    if stack.step < stack.trials[0].steps:
        named |= {f"state/{name}": value[:, stack.columns] for name, value in stack.state.items()}
    named |= {f"state/{name}": getattr(stack, name) for name in ("alive", "stopped_at", "stopped_by")}
    return named | {"state/step": torch.tensor(stack.step)}


def _part(tensors: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    prefix = f"{number}/"
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def _fill(stack: Stack, part: Mapping[str, Tensor], path: Path) -> None:
    """Copy saved parameters and buffers into a stack of the same shapes."""
    with torch.no_grad():
        for name, value in {**stack.parameters, **stack.buffers}.items():
            if name not in part or part[name].shape != value.shape:
                came = "nothing" if name not in part else str(tuple(part[name].shape))
                raise ValueError(f"{path} must hold {name!r} of shape {tuple(value.shape)}, got {came}")
            value.copy_(part[name])
