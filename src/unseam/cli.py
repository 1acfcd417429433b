"""The command line: parses, calls, prints."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unseam.flags import TrialFlags, trial_command

if TYPE_CHECKING:
    from unseam.data import FileState, Listing
    from unseam.targets import Inspected
    from unseam.training import Ensemble

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
        print(json.dumps(result.to_dict(), indent=1))
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
    members = _members(ensemble)
    if as_json:
        listed = [trial.to_dict() for trial in trials]
        _json({"run": str(folder), "about": ensemble.about, "members": members, "trials": listed})
    else:
        _table(members, title=f"{len(ensemble)} member(s) of {folder}")
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
    beta: Annotated[float, typer.Option(help="Your decoder: weight of the KL term in training.")] = 1.0,
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
        Path | None, typer.Option(help="Folder of the figures; by default `inspection` in the run.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a decoder does to its latents: who lives, how orthogonal, does the posterior agree, what to do."""
    from unseam.targets import inspect_own, inspect_run

    if Path(target).is_dir() or ":" not in target:
        if data is not None or encoder is not None or latents is not None:
            raise ValueError(
                "--data, --encoder and --latents are for a decoder of your own; a run has its own data"
            )
        folder: Path | None = figures or Path(target) / "inspection"
        every = list(inspect_run(Path(target), points=points, members=member or None, seed=seed, root=root))
    else:
        if data is None:
            raise ValueError("--data must name the file of points (or, with --encoder, of data)")
        folder = figures
        every = [
            inspect_own(
                target,
                data,
                encoder=encoder,
                points=points,
                latents=latents,
                beta=beta,
                likelihood=likelihood,
                seed=seed,
            )
        ]
    drawn = [] if folder is None else [path for one in every for path in _draw(one, folder)]
    if as_json:
        _json({"inspected": [{"name": one.name} | one.found.to_dict() for one in every], "figures": drawn})
        return
    for one in every:
        print(f"{one.name}\n{one.found.summary()}\n")
    _table([_geometry(one) for one in every], title="geometry")
    if drawn:
        print(f"{len(drawn)} figures in {folder}")


@data_app.command("list")
def data_list(root: Root = None, as_json: Json = False) -> None:
    """List the worlds, and which published files are here."""
    from unseam.data import names
    from unseam.data.fetch import listing

    published = listing(root)
    read = {line.name for line in published}
    rows = [_made(name) for name in names() if name not in read] + [_published(line) for line in published]
    if as_json:
        _json(rows)
        return
    for row in rows:
        sizes = (row["factors"] or {}).items()
        row["factors"] = ", ".join(f"{name} {size}" if size else name for name, size in sizes)
        row["shape"] = "×".join(map(str, row["shape"] or ()))
    _table(rows, title="worlds (a factor without a number of values is continuous)")


@data_app.command("fetch")
def data_fetch(name: str, root: Root = None, variant: Variant = None, as_json: Json = False) -> None:
    """Fetch the files of a published data set, checked against their checksums."""
    from unseam.data.fetch import fetch

    _states(fetch(name, root, variant=variant, progress=sys.stderr.isatty()), as_json)


@data_app.command("verify")
def data_verify(name: str, root: Root = None, variant: Variant = None, as_json: Json = False) -> None:
    """Compare the files of a published data set with their checksums."""
    from unseam.data.fetch import verify

    if not _states(verify(name, root, variant=variant), as_json):
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


def _members(ensemble: Ensemble) -> list[dict[str, Any]]:
    """What tells members apart, and the last row of each history; a term that is missing or not finite is None."""
    trials = [trial.to_dict() for trial in ensemble.trials]
    varied = [name for name, value in trials[0].items() if any(trial[name] != value for trial in trials)]
    history = ensemble.history.drop(columns="alive")
    last = history.drop_duplicates("member", keep="last").set_index("member").to_dict("index")
    return [
        {"member": member}
        | {name: trials[member][name] for name in varied}
        | {"stopped": ensemble.stopped.get(member)}
        | {str(name): value if math.isfinite(value) else None for name, value in last[member].items()}
        for member in range(len(ensemble))
    ]


def _made(name: str) -> dict[str, Any]:
    from unseam.data import load

    world = load(name)
    return {
        "world": name,
        "source": f"rendered here, twin of {world.twin_of}" if world.twin_of else "made here",
        "here": True,
        "items": len(world),
        "shape": list(world.shape),
        "factors": dict(zip(world.factor_names, world.factor_sizes, strict=True)),
        "note": "",
    }


def _published(line: Listing) -> dict[str, Any]:
    size = f"{line.size / 1e6:.0f} MB" if line.size else ""
    checksum = "" if line.checksum == "none" else f"checksum {line.checksum}"
    return {
        "world": line.name if line.variant is None else f"{line.name} ({line.variant})",
        "source": "published file",
        "here": line.present,
        "items": None,
        "shape": None,
        "factors": None,
        "note": ", ".join(filter(None, (size, checksum, line.note))),
    }


def _geometry(one: Inspected) -> dict[str, Any]:
    """One row of the table of inspected decoders."""
    found = one.found
    error, chance = found.precision_error, found.random_dto
    return {
        "decoder": one.name,
        "alive": None if found.active is None else f"{int(found.active.sum())}/{found.latent}",
        "DtO": found.dto,
        "DtO alive": found.dto_active,
        "chance": None if chance is None else chance.haar,
        "|cos|": found.cosine,
        "Hadamard gap": found.hadamard_gap,
        "ΔKL": found.delta_kl,
        "Eq. 7 diag": None if error is None else error.diagonal,
        "Eq. 7 off": None if error is None else error.off_diagonal,
        "degenerate": found.degenerate_fraction,
    }


def _draw(one: Inspected, folder: Path) -> list[str]:
    """Write the figures of one inspection as SVG."""
    from unseam.report import geometry_figures, write_svg

    found = one.found
    if found.pullback is None or found.right_vectors is None or found.active is None:
        return []
    made = geometry_figures(
        found.pullback, found.right_vectors, found.active, found.variance, beta=found.beta
    )
    label = "-".join(one.name.replace(":", " ").replace("(", " ").replace(",", " ").split()[:2])
    return [str(write_svg(figure, folder / f"{label}-{name}.svg")) for name, figure in made.items()]


def _states(states: tuple[FileState, ...], as_json: bool) -> bool:
    rows = [{"file": s.filename, "state": s.state, "path": str(s.path), "detail": s.detail} for s in states]
    if as_json:
        _json(rows)
    else:
        _table(rows, title="files")
    return all(state.good for state in states)


def _json(value: object) -> None:
    print(json.dumps(value, indent=1, allow_nan=False))


def _table(rows: list[dict[str, Any]], *, title: str) -> None:
    """Rows with one set of keys as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for head in rows[0]:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    print(title)
    width = None if sys.stdout.isatty() else 140
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


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
