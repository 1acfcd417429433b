"""``unseam advise``: how many latents are active at which β, before any training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unseam.cli import options
from unseam.cli.options import Json
from unseam.cli.printing import print_json, print_table, print_words

__all__ = ["advise_data"]


def advise_data(
    data: Annotated[
        str, typer.Argument(help="File or folder of data, as train --data takes it, or name of a world.")
    ],
    likelihood: Annotated[
        str | None, typer.Option(help="gaussian or bernoulli; by default bernoulli for data within [0, 1].")
    ] = None,
    noise: Annotated[
        float | None, typer.Option(help="Variance of a gaussian likelihood, by default 1.")
    ] = None,
    points: Annotated[int, typer.Option(min=2, help="Points that are read at most.")] = 50_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of points.")] = 0,
    factors: options.Factors = None,
    size: options.Size = None,
    fit: options.Fit = None,
    standardise: options.Standardise = False,
    layer: options.Layer = None,
    data_option: options.DataOptions = None,
    figure: Annotated[Path | None, typer.Option(help="File of a plot (.svg).")] = None,
    as_json: Json = False,
) -> None:
    """Predict how many latents are active at which β, before any training."""
    from unseam.advice import advice_figure, advise
    from unseam.drawing import write_svg

    if figure is not None and figure.suffix != ".svg":
        raise ValueError(f"--figure must name an .svg file, got {figure}")
    given = options.data_options(factors, size, fit, standardise, layer, data_option)
    found = advise(data, likelihood=likelihood, noise=noise, points=points, seed=seed, data_options=given)
    drawn = None if figure is None else str(write_svg(advice_figure(found), figure))
    if as_json:
        print_json(found.to_dict() | {"figure": drawn})
        return
    for note in found.notes:
        print_words(note)
    print_words(found.summary())
    if found.rows():
        print_table(found.rows(), title="active latents by β")
    if drawn:
        print(f"Plot in {drawn}")
