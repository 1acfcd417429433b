"""Flags that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Device", "Json"]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default cuda when there is one.")]
