"""The command line: parses, calls, prints."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from unseam.flags import TrialFlags, trial_command
from unseam.printing import (
    artefact_rows,
    draw_inspected,
    file_rows,
    finding_rows,
    geometry_rows,
    member_rows,
    print_json,
    print_rows,
    print_table,
    result_record,
    score_records,
    score_rows,
    world_rows,
)

__all__ = ["app", "main"]

# typer has no public name for what its bad-usage errors have in common
UsageError: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="unseam",
    help="Why variational autoencoders disentangle, and whether yours does.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(
    help="Worlds with known factors: list them, fetch published files, verify them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(data_app, name="data")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Root = Annotated[Path | None, typer.Option(help="Folder of the files, instead of the cache.")]
Variant = Annotated[str | None, typer.Option(help="Which files, where a data set has several.")]


def main() -> None:
    """Run a command; an error is one line on standard error, a traceback only with ``--debug``."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an encoding without β is no reason to stop
    command = typer.main.get_command(app)
    try:
        # not command(), which would swallow what Ctrl-C has to say
        with command.make_context("unseam", arguments) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as leave:
        sys.exit(leave.exit_code)
    except BrokenPipeError:
        # the reader has left; what is still buffered must not raise again when Python closes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        print(_said(error), file=sys.stderr)
        sys.exit(_status(error))


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Why variational autoencoders disentangle, and whether yours does."""
    if version:
        from unseam import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each of the three models.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Updates of each model.")] = 3000,
    as_json: Json = False,
) -> None:
    """Train a β-VAE, its full-covariance control and an autoencoder; write a page that shows what each learned."""
    from unseam.demo import run_demo

    result = run_demo(out, seeds=seeds, steps=steps, progress=True)
    if as_json:
        print_json(result.to_dict())
        return
    print(result.summary())
    print(f"\nOpen {result.page}")


@app.command()
@trial_command
def train(
    flags: TrialFlags,
    vary: Annotated[
        list[str] | None, typer.Option(help="Train one member a value: field=a,b,c. Repeat for a grid.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; by default one named after it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; by default cuda when there is one.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Updates between two rows of the history.")] = 100,
    as_json: Json = False,
) -> None:
    """Train one model, or a stack of them that differ in one or more fields."""
    import warnings

    from unseam.training import DivergenceWarning
    from unseam.training import train as run

    trials = flags.trials(vary or [])
    folder = out if out is not None else flags.folder(trials)
    _check_target(folder, resume, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        ensemble = run(trials, out=folder, resume=resume, device=device, every=every, progress=True)
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


@app.command("inspect")
def inspect_command(
    target: Annotated[
        str, typer.Argument(help="Folder of a run, or package.module:function of your own decoder.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Your decoder: points (batch, latent), or data where --encoder is given."),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Your decoder: package.module:function, x -> (mean, variance).")
    ] = None,
    beta: Annotated[
        float | None, typer.Option(help="Your decoder: weight of the KL term in training; 1 by default.")
    ] = None,
    likelihood: Annotated[
        str | None, typer.Option(help="Your decoder: bernoulli where it returns logits, else gaussian.")
    ] = None,
    latents: Annotated[
        int | None,
        typer.Option(min=2, help="Your decoder: sample so many latents, where there are thousands."),
    ] = None,
    member: Annotated[list[int] | None, typer.Option(help="Run: only this member; repeat for more.")] = None,
    root: Annotated[
        str | None, typer.Option(help="Run: file or folder of its data, where it has moved.")
    ] = None,
    points: Annotated[int, typer.Option(min=2, help="Number of points to measure at.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of points, baselines and probes.")] = 0,
    figures: Annotated[
        Path | None,
        typer.Option(help="Folder of the figures; by default `inspection` in the run, and none with --json."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a decoder does to its latents: who lives, how orthogonal, does the posterior agree, what to do."""
    from unseam.targets import inspect_own, inspect_run

    if Path(target).is_dir() or ":" not in target:
        _check_flags(
            "are for a decoder of your own; a run has its own",
            {
                "--data": data,
                "--encoder": encoder,
                "--latents": latents,
                "--beta": beta,
                "--likelihood": likelihood,
            },
        )
        every = list(inspect_run(Path(target), points=points, members=member or None, seed=seed, root=root))
        figures = figures if figures is not None or as_json else Path(target) / "inspection"
    else:
        _check_flags("are for a run; a decoder of your own has neither", {"--member": member, "--root": root})
        if data is None:
            raise ValueError("--data must name the file of points (or, with --encoder, of data)")
        every = [
            inspect_own(
                target,
                data,
                encoder=encoder,
                points=points,
                latents=latents,
                beta=1.0 if beta is None else beta,
                likelihood=likelihood,
                seed=seed,
            )
        ]
    drawn = [] if figures is None else draw_inspected(every, figures)
    if as_json:
        shown = [{"name": one.name} | one.found.to_dict() for one in every]
        print_json({"inspected": shown, "figures": drawn})
        return
    for one in every:
        print(f"{one.name}\n{one.found.summary()}\n")
    print_table(geometry_rows(every), title="geometry")
    if drawn:
        print(f"{len(drawn)} figures in {figures}")


@app.command("score")
def score_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", "--metric", help="Only these: a,b,c, or repeat. All that fit by default."),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="fast, or dlib for numbers comparable with the 12 600-model study (slower).")
    ] = "fast",
    points: Annotated[int, typer.Option(min=2, help="Items of the world that are encoded at most.")] = 50_000,
    member: Annotated[list[int] | None, typer.Option(help="Only this member; repeat for more.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the items and of the metrics.")] = 0,
    root: Annotated[str | None, typer.Option(help="File or folder of its data, where it has moved.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Score a run's codes against the factors of its world, with intervals; kept as scores.parquet in the run."""
    from unseam.scoring import score_run

    asked = [name for part in metrics or () for name in part.split(",")] or None
    table = score_run(
        run, asked, preset=preset, points=points, members=member, seed=seed, root=root, device=device
    )
    if as_json:
        print_json({"run": str(run), "scores": score_records(table), **table.attrs})
        return
    print_table(score_rows(table), title=f"scores of {run} ({preset}, 95 % intervals)")
    for metric_name, note in (
        table.loc[table.note != "", ["metric", "note"]].drop_duplicates().itertuples(index=False)
    ):
        print(f"{metric_name} left out: {note}")


@app.command("advise")
def advise_command(
    data: Annotated[str, typer.Argument(help="File of data (.npy, .npz, .safetensors) or name of a world.")],
    likelihood: Annotated[
        str | None, typer.Option(help="gaussian or bernoulli; by default bernoulli for data within [0, 1].")
    ] = None,
    noise: Annotated[float, typer.Option(help="Variance of a gaussian likelihood.")] = 1.0,
    points: Annotated[int, typer.Option(min=2, help="Points that are read at most.")] = 50_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of points.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Where to write a plot of it (.svg).")] = None,
    as_json: Json = False,
) -> None:
    """Say which latents live at which β, before any training."""
    from unseam.advice import advice_figure, advise
    from unseam.drawing import write_svg

    found = advise(data, likelihood=likelihood, noise=noise, points=points, seed=seed)
    drawn = None if figure is None else str(write_svg(advice_figure(found), figure))
    if as_json:
        print_json(found.to_dict() | {"figure": drawn})
        return
    print(found.summary())
    if found.rows():
        print_table(found.rows(), title="exactly so many latents live")
    if drawn:
        print(f"Plot in {drawn}")


@app.command("reproduce")
def reproduce_command(
    target: Annotated[
        str | None, typer.Argument(help="PAPER or PAPER.ARTEFACT; without one, all are listed.")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="smoke (seconds), laptop (minutes) or full (as published, on a GPU)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; by default nothing but the screen.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; by default cuda when there is one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the papers' tables and figures again: published beside measured, with a verdict."""
    from unseam.papers import committed, results_folder
    from unseam.reproducing import chosen_artefacts, run_artefact

    artefacts = chosen_artefacts(target)
    if scale is None and (target is None or "." not in target):
        kept = [(artefact, committed(artefact, out or results_folder())) for artefact in artefacts]
        print_rows(artefact_rows(kept), title="artefacts and their committed verdicts", as_json=as_json)
        return
    results = [run_artefact(one, scale or "smoke", out=out, device=device) for one in artefacts]
    if as_json:
        print_json([result_record(result) for result in results])
        return
    for result in results:
        print_table(finding_rows(result), title=f"{result.key} at {result.scale} scale: {result.verdict}")
        print(f"{result.seconds:.0f} s; again with: {result.command}\n")


@data_app.command("list")
def data_list(root: Root = None, as_json: Json = False) -> None:
    """List the worlds, and which published files are here."""
    title = "worlds (a factor without a number of values is continuous)"
    print_rows(world_rows(root), title=title, as_json=as_json)


@data_app.command("fetch")
def data_fetch(name: str, root: Root = None, variant: Variant = None, as_json: Json = False) -> None:
    """Fetch the files of a published data set, checked against their checksums."""
    from unseam.data.fetch import fetch

    states = fetch(name, root, variant=variant, progress=sys.stderr.isatty())
    print_rows(file_rows(states), title="files", as_json=as_json)


@data_app.command("verify")
def data_verify(name: str, root: Root = None, variant: Variant = None, as_json: Json = False) -> None:
    """Compare the files of a published data set with their checksums."""
    from unseam.data.fetch import verify

    states = verify(name, root, variant=variant)
    print_rows(file_rows(states), title="files", as_json=as_json)
    if not all(state.good for state in states):
        raise typer.Exit(1)


def _check_target(folder: Path, resume: bool, device: str | None) -> None:
    """What the trainer would refuse as well, in the words of the command line."""
    import torch

    if not resume and (folder / "run.json").exists():
        raise ValueError(
            f"{folder} holds a run already; add --resume to go on with it, or --out another folder"
        )
    try:
        kind = torch.device(device or "cpu").type
    except RuntimeError:
        raise ValueError(f"--device must be cpu, cuda or cuda:N, got {device!r}") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"--device {device} needs a CUDA device, and torch finds none here")


def _check_flags(reason: str, given: dict[str, object]) -> None:
    """Refuse flags that would say nothing about the target."""
    if bad := [flag for flag, value in given.items() if value not in (None, [])]:
        *rest, last = given
        raise ValueError(f"{', '.join(rest)} and {last} {reason}; got {', '.join(bad)}")


def _said(error: BaseException) -> str:
    """An error as one line; the help of a command that was called without any argument as it is."""
    if isinstance(error, UsageError):
        text = error.format_message()
        path = error.ctx.command_path if error.ctx is not None else "unseam"
        return text if "\n" in text else f"unseam: {text.rstrip('.')}; see {path} --help"
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return f"unseam: {text or 'stopped'}"
    if isinstance(error, ValueError | OSError) and text:
        return f"unseam: {text}"
    return f"unseam: {type(error).__name__}: {text or 'no message'} (--debug shows where)"


def _status(error: BaseException) -> int:
    """130 for Ctrl-C, 2 for what the user asked for, 1 for what went wrong on the way."""
    codes: tuple[tuple[Any, int], ...] = ((KeyboardInterrupt, 130), ((ValueError, UsageError), 2))
    return next((code for kind, code in codes if isinstance(error, kind)), 1)


if __name__ == "__main__":
    main()
