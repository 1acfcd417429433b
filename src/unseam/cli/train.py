"""``unseam train``: one model, or a stack of them."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unseam.cli import options
from unseam.cli.flags import TrialFlags
from unseam.cli.options import Device, Json
from unseam.cli.printing import Row, print_json, print_table

if TYPE_CHECKING:
    from unseam.training import Ensemble

__all__ = ["member_rows", "train_trials"]


def train_trials(
    flags: TrialFlags,
    vary: Annotated[
        list[str] | None, typer.Option(help="Sweep a field: --vary beta=1,2,4. Repeat for a grid.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; by default named after its trials.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in that folder.")] = False,
    data: options.Data = None,
    factors: options.Factors = None,
    covariates: options.Covariates = None,
    size: options.Size = None,
    fit: options.Fit = None,
    standardise: options.Standardise = False,
    layer: options.Layer = None,
    data_option: options.DataOptions = None,
    device: Device = None,
    every: Annotated[int, typer.Option(min=1, help="Updates between two rows of the history.")] = 100,
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="End a member's training after so many rows without a smaller loss."),
    ] = None,
    track: options.Track = None,
    as_json: Json = False,
) -> None:
    """Train one model, or a stack of them that differ in one or more fields."""
    import warnings

    from unseam.training import Callback, DivergenceWarning, EarlyStopping, Tracking, train

    trials = flags.trials(vary or [])
    given = options.data_options(factors, size, fit, standardise, layer, data_option, covariates)
    if given and data is None:
        raise ValueError(f"--{next(iter(given))} is about data of your own: give --data")
    named = trials
    if data is not None:
        named = [dataclasses.replace(trial, world=data.absolute().stem, world_options=()) for trial in trials]
    folder = out if out is not None else flags.folder(named)
    _check_target(folder, resume, device)
    callbacks: list[Callback] = [] if patience is None else [EarlyStopping(patience)]
    if track is not None:
        callbacks.append(Tracking(track))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        ensemble = train(
            trials,
            data=data,
            data_options=given,
            out=folder,
            resume=resume,
            device=device,
            every=every,
            progress=True,
            callbacks=callbacks,
        )
    trials = list(ensemble.trials)
    members = member_rows(ensemble)
    if as_json:
        listed = [trial.to_dict() for trial in trials]
        print_json({"run": str(folder), "about": ensemble.about, "members": members, "trials": listed})
    else:
        print_table(members, title=f"{len(ensemble)} member(s) of {folder}")
    for member, step in ensemble.stopped.items():
        text = f"member {member} stopped at step {step}, no longer finite: {trials[member].describe()}"
        print(f"unseam: {text}", file=sys.stderr)
    if ensemble.stopped:
        raise typer.Exit(1)


def member_rows(ensemble: Ensemble) -> list[Row]:
    """The fields in which members differ, and the last row of each history; None for what is missing or not finite.

    >>> from unseam import Trial, train
    >>> small = Trial(world="linear", likelihood="gaussian", latent=2, steps=1, batch_size=4)
    >>> member_rows(train(small))[0]["stopped"] is None
    True
    """
    trials = [trial.to_dict() for trial in ensemble.trials]
    varied = [name for name, value in trials[0].items() if any(trial[name] != value for trial in trials)]
    history = ensemble.history.drop(columns="alive")
    last = history.drop_duplicates("member", keep="last").set_index("member").to_dict("index")
    stopped = ensemble.stopped | ensemble.stopped_early
    causes = dict.fromkeys(ensemble.stopped_early, "early stopping") | ensemble.stopped_by
    return [
        {"member": member}
        | {name: trials[member][name] for name in varied}
        | {"stopped": stopped.get(member), "cause": causes.get(member)}
        | {str(name): value if math.isfinite(value) else None for name, value in last[member].items()}
        for member in range(len(ensemble))
    ]


def _check_target(folder: Path, resume: bool, device: str | None) -> None:
    """Refuse what training would refuse as well, naming the flags."""
    import torch

    if not resume and (folder / "run.json").exists():
        raise ValueError(
            f"{folder} holds a run already; add --resume to continue it, or --out another folder"
        )
    try:
        kind = torch.device(device or "cpu").type
    except RuntimeError:
        raise ValueError(f"--device must be cpu, cuda or cuda:N, got {device!r}") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"--device {device} needs a CUDA device, and torch finds none here")
