"""``unseam demo``: the main job on an embedded default."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from unseam.cli.options import Json
from unseam.cli.printing import print_json, print_table, print_words

__all__ = ["show_demo"]


def show_demo(
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each of the three models.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Updates of each model.")] = 3000,
    as_json: Json = False,
) -> None:
    """Train a β-VAE, its full-covariance control and an autoencoder; write a report of what each learned."""
    from unseam.demo import run_demo

    print(f"training {3 * seeds} models for {steps} steps, then measuring them: minutes", file=sys.stderr)
    result = run_demo(out, seeds=seeds, steps=steps, progress=True)
    if as_json:
        print_json(result.to_dict())
        return
    print_words(f"{result.summary()}\n")
    print_table(result.rows(), title="mean ± sample standard deviation")
    print(f"Open {result.page}")
