"""Running a command: what becomes of an error, and with which status it ends."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import nullcontext
from typing import Any

import typer

from unseam.cli.commands import app
from unseam.cli.printing import working

__all__ = ["main"]

# Commands that may take minutes and report no progress of their own.
MEASURING = (["inspect"], ["score"], ["report"], ["advise"])

# typer has no public name for what its bad-usage errors have in common
UsageError: Any = typer.BadParameter.__mro__[1]


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
        said = working(f"unseam {arguments[0]}") if arguments[:1] in MEASURING else nullcontext()
        with command.make_context("unseam", arguments) as context, said:
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
        print(_describe(error), file=sys.stderr)
        sys.exit(_status(error))


def _describe(error: BaseException) -> str:
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
    """128 and a signal's number (130 for Ctrl-C), 2 for what the user asked for, 1 for what went wrong on the way."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + int(getattr(error, "signal", signal.SIGINT))
    return 2 if isinstance(error, ValueError | UsageError) else 1
