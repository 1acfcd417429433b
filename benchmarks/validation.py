"""Every metric on every synthetic encoder: the grid that the documentation shows, with what it came from."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pandas as pd
import torch

from unseam.files import write_atomically, write_json
from unseam.metrics import validation_grid
from unseam.metrics.evaluate import METRICS
from unseam.training import provenance

TARGET = Path(__file__).parent.parent / "docs" / "_static" / "validation.csv"
# Boosting by scikit-learn would take an hour.
PRESETS = {"dci": "fast"}
# What needs a posterior or an ensemble has no place on codes of known functions.
LEFT_OUT = ("mig_entropy", "udr")


def main() -> None:
    """Parse, run one metric after another, write the table and beside it a record of the run."""
    parser = argparse.ArgumentParser(prog="benchmarks.validation", description=__doc__)
    names = [metric.__name__ for metric in METRICS if metric.__name__ not in LEFT_OUT]
    parser.add_argument("--metrics", nargs="+", choices=names, default=names)
    parser.add_argument("--points", type=int, default=10_000, help="points in each world")
    parser.add_argument("--preset", choices=("dlib", "fast"), help="default: dlib, but fast for dci")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=TARGET, help="file of the table")
    asked = parser.parse_args()
    presets = {name: asked.preset or PRESETS.get(name, "dlib") for name in asked.metrics}
    parts, seconds = [], {}
    for name in asked.metrics:
        start = time.perf_counter()
        generator = torch.Generator().manual_seed(asked.seed)
        parts.append(validation_grid([name], points=asked.points, preset=presets[name], generator=generator))
        seconds[name] = round(time.perf_counter() - start, 2)
        print(f"{name} {seconds[name]} s", flush=True)
    table = pd.concat(parts, ignore_index=True)
    write_atomically(asked.out, lambda path: table.to_csv(path, index=False, float_format="%.6g"))
    record = {
        "command": "make validation",
        "seed": asked.seed,
        "points": asked.points,
        "presets": presets,
        "seconds": seconds,
        **provenance(),
    }
    write_json(asked.out.with_suffix(".json"), record)
    print(asked.out)


if __name__ == "__main__":
    main()
