"""Flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Device", "Json", "Members", "OwnBeta", "OwnData", "OwnEncoder", "OwnLikelihood", "Root"]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default cuda when there is one.")]

OwnData = Annotated[
    Path | None, typer.Option(help="Your decoder: points (batch, latent), or data where --encoder is given.")
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
Root = Annotated[str | None, typer.Option(help="Run: file or folder of its data, where it has moved.")]
