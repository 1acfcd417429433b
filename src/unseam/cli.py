"""The command line: parses, calls, prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from unseam.flags import TrialFlags, trial_command

__all__ = ["app", "main"]

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
    try:
        app(args=arguments, standalone_mode=True)
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        print(f"unseam: {_said(error)}", file=sys.stderr)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        ensemble = run(trials, out=folder, resume=resume, device=device, every=every, progress=True)
    last = ensemble.history.groupby("member").last()
    members = [
        {"member": i, "stopped": ensemble.stopped.get(i)}
        | {str(name): value for name, value in last.loc[i].drop("alive").dropna().items()}
        for i in range(len(ensemble))
    ]
    if as_json:
        trials_out = [trial.to_dict() for trial in trials]
        print(
            json.dumps(
                {"run": str(folder), "about": ensemble.about, "members": members, "trials": trials_out}
            )
        )
    else:
        _table(members, title=f"{len(ensemble)} member(s) of {folder}")
    for member, step in ensemble.stopped.items():
        text = f"member {member} stopped at step {step}, no longer finite: {trials[member].describe()}"
        print(f"unseam: {text}", file=sys.stderr)
    if ensemble.stopped:
        raise typer.Exit(1)


@data_app.command("list")
def data_list(root: Root = None, as_json: Json = False) -> None:
    """List the worlds, and which published files are here."""
    from unseam.data import names
    from unseam.data.fetch import listing

    published = listing(root)
    made = [name for name in names() if name not in {line.name for line in published}]
    rows = [{"world": name, "source": "made here", "here": True, "note": ""} for name in made]
    for line in published:
        source = f"published file, checksum {line.checksum}"
        name = line.name if line.variant is None else f"{line.name} ({line.variant})"
        rows.append({"world": name, "source": source, "here": line.present, "note": line.note})
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        _table(rows, title="worlds")


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


def _states(states: Any, as_json: bool) -> bool:
    rows = [{"file": s.filename, "state": s.state, "path": str(s.path), "detail": s.detail} for s in states]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        _table(rows, title="files")
    return all(state.good for state in states)


def _table(rows: list[dict[str, Any]], *, title: str) -> None:
    """Rows with one set of keys as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for head in rows[0]:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(_shown(row.get(head)) for head in rows[0]))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return text or "stopped"
    return text or type(error).__name__


def _status(error: BaseException) -> int:
    """130 for Ctrl-C, 2 for what the user asked for, 1 for what went wrong on the way."""
    codes: tuple[tuple[type[BaseException], int], ...] = ((KeyboardInterrupt, 130), (ValueError, 2))
    return next((code for kind, code in codes if isinstance(error, kind)), 1)


if __name__ == "__main__":
    main()
