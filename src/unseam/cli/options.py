"""Flags that several commands share, and what their targets name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unseam.run import Run
    from unseam.subject import Subject

__all__ = [
    "Device",
    "Json",
    "Members",
    "OwnBeta",
    "OwnData",
    "OwnEncoder",
    "OwnLikelihood",
    "OwnWorld",
    "Root",
    "Trust",
    "names_run",
    "open_target",
]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default cuda when there is one.")]

OwnData = Annotated[
    Path | None, typer.Option(help="Your decoder: points (batch, latent), or data where --encoder is given.")
]
OwnEncoder = Annotated[
    str | None, typer.Option(help="Your decoder: package.module:function, x -> (mean, variance).")
]
OwnBeta = Annotated[
    float | None, typer.Option(help="Your decoder: weight of the KL term in training; 1 by default.")
]
OwnLikelihood = Annotated[
    str | None, typer.Option(help="Your decoder: bernoulli where it returns logits, else gaussian.")
]
Members = Annotated[list[int] | None, typer.Option(help="Run: only this member; repeat for more.")]
Root = Annotated[str | None, typer.Option(help="Run: file or folder of its data, if moved.")]
OwnWorld = Annotated[
    str | None,
    typer.Option("--world", help="Run: its data, package.module:object, where they were your own."),
]


Trust = Annotated[bool, typer.Option("--trust", help="Run: import the modules of your own that it names.")]


def names_run(target: str) -> bool:
    """Whether a target is the folder of a run, not ``package.module:function``."""
    return Path(target).is_dir() or ":" not in target


def open_target(
    target: str,
    own: Mapping[str, Any],
    *,
    member: list[int] | None,
    root: str | None,
    world: str | None,
    trust: bool,
    points: int,
) -> Run | Subject:
    """The run or the decoder that a target names; flags that say nothing about it are refused.

    Args:
        target: folder of a run, or ``package.module:function``.
        own: flags of a decoder of the user's own, by name.
        member, root, world, trust: flags of a run.
        points: rows of the decoder's data to read.
    """
    from unseam.run import Run
    from unseam.subject import import_subject

    if names_run(target):
        _refuse(own, "are for a decoder of your own; a run has its own")
        return Run.open(target, root=root, world=world, trust=trust)
    _refuse({"member": member, "root": root, "world": world}, "are for a run; a decoder of your own has none")
    given = {flag: value for flag, value in own.items() if flag != "latents"}
    return import_subject(target, points=points, **given)


def _refuse(given: Mapping[str, object], reason: str) -> None:
    if bad := [f"--{flag}" for flag, value in given.items() if value not in (None, [])]:
        *rest, last = (f"--{flag}" for flag in given)
        raise ValueError(f"{', '.join(rest)} and {last} {reason}; got {', '.join(bad)}")
