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
    "Data",
    "DataOptions",
    "Device",
    "Json",
    "Factors",
    "Fit",
    "Layer",
    "Members",
    "MovedData",
    "OwnBeta",
    "OwnData",
    "OwnEncoder",
    "OwnLikelihood",
    "OwnWorld",
    "Root",
    "Size",
    "Standardise",
    "Trust",
    "data_options",
    "names_run",
    "names_sweep",
    "open_target",
]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default cuda when there is one.")]

Data = Annotated[
    Path | None,
    typer.Option(
        help="Data of your own: a folder of images, .npy, .npz, .csv, .parquet, .h5ad, a saved Hugging Face dataset."
    ),
]
Factors = Annotated[
    str | None, typer.Option(help="Data: columns that are factors, a,b,c; or a file of factors.")
]
Size = Annotated[int | None, typer.Option(min=1, help="Data: side in pixels to which images are brought.")]
Fit = Annotated[
    str | None, typer.Option(help="Data: resize images to --size, or crop their central square first.")
]
Standardise = Annotated[
    bool, typer.Option("--standardise", help="Data: bring each value to mean 0 and variance 1.")
]
Layer = Annotated[str | None, typer.Option(help="Data: layer of an .h5ad file, instead of X.")]
DataOptions = Annotated[
    list[str] | None, typer.Option("--data-option", help="Data: column=name, split=name; repeat for more.")
]
MovedData = Annotated[
    Path | None, typer.Option("--data", help="Its data, where they have moved: a file or folder.")
]
OwnData = Annotated[
    Path | None,
    typer.Option(
        help="Your decoder: points (batch, latent), or data where --encoder is given. Run: its data, if moved."
    ),
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


def data_options(
    factors: str | None,
    size: int | None,
    fit: str | None,
    standardise: bool,
    layer: str | None,
    more: list[str] | None,
) -> dict[str, Any]:
    """Options of :func:`unseam.data.open_data` that flags give; those that were not given are left out.

    >>> data_options("age,sex", None, None, True, None, ["split=train"])
    {'factors': 'age,sex', 'standardise': True, 'split': 'train'}
    """
    found = {"factors": factors, "size": size, "fit": fit, "standardise": standardise or None, "layer": layer}
    for entry in more or ():
        name, separator, value = entry.partition("=")
        if name not in ("column", "split") or not separator:
            raise ValueError(f"--data-option must be column=name or split=name, got {entry!r}")
        found[name] = value
    return {name: value for name, value in found.items() if value is not None}


def names_run(target: str) -> bool:
    """Whether a target is the folder of a run, not ``package.module:function``."""
    return Path(target).is_dir() or ":" not in target


def names_sweep(target: str) -> bool:
    """Whether a target is the folder of a sweep's store."""
    return (Path(target) / "store.json").is_file()


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
        others = {flag: value for flag, value in own.items() if flag != "data"}
        _refuse(others, "are for a decoder of your own; a run has its own")
        return Run.open(target, root=root, world=world, data=own.get("data"), trust=trust)
    _refuse({"member": member, "root": root, "world": world}, "are for a run; a decoder of your own has none")
    given = {flag: value for flag, value in own.items() if flag != "latents"}
    return import_subject(target, points=points, **given)


def _refuse(given: Mapping[str, object], reason: str) -> None:
    if bad := [f"--{flag}" for flag, value in given.items() if value not in (None, [])]:
        *rest, last = (f"--{flag}" for flag in given)
        raise ValueError(f"{', '.join(rest)} and {last} {reason}; got {', '.join(bad)}")
