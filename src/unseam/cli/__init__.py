"""The command line: parses, calls, prints."""

from unseam.cli.commands import app
from unseam.cli.running import main

__all__ = ["app", "main"]
