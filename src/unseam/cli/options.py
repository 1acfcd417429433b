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
    "Covariates",
    "Data",
    "DataOptions",
    "Device",
    "Json",
    "Factors",
    "Fit",
    "Layer",
    "LogVariance",
    "Members",
    "OwnBeta",
    "OwnData",
    "OwnEncoder",
    "OwnLatent",
    "OwnLikelihood",
    "OwnWorld",
    "Probabilities",
    "Root",
    "Size",
    "Standardise",
    "Track",
    "Trust",
    "data_options",
    "names_run",
    "names_sweep",
    "open_target",
    "refuse_own",
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
Covariates = Annotated[
    str | None,
    typer.Option(help="Data: columns, a,b,c, such as a batch, that latents need not explain."),
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
    list[str] | None,
    typer.Option("--data-option", help="Data: column=name, split=name, drop=a,b; repeat for more."),
]
OwnData = Annotated[
    Path | None,
    typer.Option(
        help="Your model: its data, or points (batch, latent) where it has no encoder. Run: its data, if moved."
    ),
]
OwnEncoder = Annotated[
    str | None,
    typer.Option(help="Your model: its method, or package.module:function, x -> (mean, variance)."),
]
OwnBeta = Annotated[
    float | None, typer.Option(help="Your model: weight of the KL term in training; 1 by default.")
]
OwnLikelihood = Annotated[
    str | None, typer.Option(help="Your model: what its outputs mean, as --likelihood of train.")
]
OwnLatent = Annotated[
    int | None, typer.Option(min=1, help="Your model: its number of latents, where it does not say it.")
]
LogVariance = Annotated[
    bool, typer.Option("--log-variance", help="Your model: its encoder returns (mean, log-variance).")
]
Probabilities = Annotated[
    bool, typer.Option("--probabilities", help="Your model: it returns probabilities, not logits.")
]
Members = Annotated[list[int] | None, typer.Option(help="Run: only this member; repeat for more.")]
Root = Annotated[str | None, typer.Option(help="Run: file or folder of its data, if moved.")]
OwnWorld = Annotated[
    str | None,
    typer.Option("--world", help="Run: its data, package.module:object, where they were your own."),
]

Track = Annotated[
    str | None,
    typer.Option(
        help="Send results to tensorboard[:FOLDER], mlflow[:ADDRESS], wandb[:PROJECT] or package.module:object."
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Run: import the modules of your own that it names.")]


def data_options(
    factors: str | None,
    size: int | None,
    fit: str | None,
    standardise: bool,
    layer: str | None,
    more: list[str] | None,
    covariates: str | None = None,
) -> dict[str, Any]:
    """Options of :func:`unseam.data.open_data` that flags give; those that were not given are left out.

    >>> data_options("age,sex", None, None, True, None, ["split=train"])
    {'factors': 'age,sex', 'standardise': True, 'split': 'train'}
    """
    found = {
        "factors": factors,
        "covariates": covariates,
        "size": size,
        "fit": fit,
        "standardise": standardise or None,
        "layer": layer,
    }
    for entry in more or ():
        name, separator, value = entry.partition("=")
        if name not in ("column", "split", "drop") or not separator:
            raise ValueError(f"--data-option must be column=name, split=name or drop=a,b, got {entry!r}")
        found[name] = value
    return {name: value for name, value in found.items() if value is not None}


def names_run(target: str) -> bool:
    """Whether a target is the folder of a run, not ``package.module:object`` or an .onnx file."""
    return Path(target).is_dir() or (":" not in target and not target.endswith(".onnx"))


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
    """The run or the model that a target names; flags that say nothing about it are refused.

    Args:
        target: folder of a run, ``package.module:object``, or an .onnx file.
        own: flags of a model of the user's own, by name.
        member, root, world, trust: flags of a run.
        points: rows of the model's data to read.
    """
    from unseam.adapters import import_subject
    from unseam.run import Run

    if names_run(target):
        refuse_own(own)
        return Run.open(target, root=root, world=world, data=own.get("data"), trust=trust)
    _refuse({"member": member, "root": root, "world": world}, "are for a run; a model of your own has none")
    if own.get("encoder") is not None and own.get("data") is None:
        raise ValueError("--encoder needs --data, the file of data that it encodes")
    given = {flag: value or None for flag, value in own.items() if flag != "latents"}
    return import_subject(target, points=points, **given)


def refuse_own(own: Mapping[str, Any]) -> None:
    """Refuse flags of a model of the user's own beside a run, which has all but moved data itself."""
    others = {flag: value for flag, value in own.items() if flag != "data"}
    _refuse(others, "are for a model of your own; a run has its own")


def _refuse(given: Mapping[str, object], reason: str) -> None:
    if bad := [
        f"--{flag.replace('_', '-')}" for flag, value in given.items() if value not in (None, [], False)
    ]:
        *rest, last = (f"--{flag.replace('_', '-')}" for flag in given)
        raise ValueError(f"{', '.join(rest)} and {last} {reason}; got {', '.join(bad)}")
