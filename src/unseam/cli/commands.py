"""All commands by name."""

from __future__ import annotations

from typing import Annotated

import typer

from unseam.cli.advise import advise_data
from unseam.cli.data import fetch_files, list_worlds, verify_files
from unseam.cli.demo import show_demo
from unseam.cli.explore import explore_run
from unseam.cli.flags import trial_command
from unseam.cli.inspect import inspect_decoder
from unseam.cli.replicate import replicate_models
from unseam.cli.report import report_models
from unseam.cli.reproduce import reproduce_artefacts
from unseam.cli.score import score_codes
from unseam.cli.sweep import sweep_trials
from unseam.cli.train import train_trials

__all__ = ["app"]

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

app.command("demo")(show_demo)
app.command("train")(trial_command(train_trials))
app.command("sweep")(sweep_trials)
app.command("inspect")(inspect_decoder)
app.command("score")(score_codes)
app.command("explore")(explore_run)
app.command("advise")(advise_data)
app.command("replicate")(replicate_models)
app.command("report")(report_models)
app.command("reproduce")(reproduce_artefacts)
data_app.command("list")(list_worlds)
data_app.command("fetch")(fetch_files)
data_app.command("verify")(verify_files)
app.add_typer(data_app, name="data")


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
