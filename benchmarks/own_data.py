"""Time from data of one's own to a report, on two cores, from the command line: ``python -m benchmarks.own_data``."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
from PIL import Image

TRAIN = "train --latent 5 --steps 2000 --train-fraction 0.9 --device cpu --out run --data"
COMMANDS = {
    "images": [f"{TRAIN} scans --size 32 --beta 4", "report run"],
    "array": [f"{TRAIN} x.npy", "report run"],
    "factors": [f"{TRAIN} x.npz", "score run", "report run"],
    "table": [f"{TRAIN} t.csv --factors age,sex --standardise --beta 0.5", "score run", "report run"],
    "counts": [
        f"{TRAIN} cells.h5ad --layer counts --covariates batch --factors type",
        "score run",
        "report run",
    ],
    "codes": ["score codes.npy factors.npy"],
    "advice": ["advise t.csv --factors age,sex --standardise"],
}


def write(kind: str, folder: Path) -> None:
    """Synthetic data: 2 000 images of discs, 5 000 rows of 20 values from 3 factors, 3 000 items of 200 counts."""
    draw = np.random.default_rng(0)
    z = draw.normal(size=(5000, 3))
    x = np.tanh(z @ draw.normal(size=(3, 20))) + 0.1 * draw.normal(size=(5000, 20))
    if kind == "images":
        (folder / "scans").mkdir()
        y, c = np.mgrid[:80, :100]
        for i, (a, b, r) in enumerate(draw.uniform(size=(2000, 3))):
            disc = (c - 20 - 60 * a) ** 2 + (y - 20 - 40 * b) ** 2 < (6 + 12 * r) ** 2
            Image.fromarray((255 * disc).astype(np.uint8)).save(folder / f"scans/{i:04d}.png")
    np.save(folder / "x.npy", x.astype(np.float32))
    np.savez(folder / "x.npz", x=x, factors=z)
    table = pd.DataFrame(x, columns=[f"c{i}" for i in range(20)])
    table.assign(age=z[:, 0], sex=draw.choice(["f", "m"], 5000)).to_csv(folder / "t.csv", index=False)
    rate = np.exp(z[:3000] @ draw.normal(size=(3, 200)) / 2)
    with h5py.File(folder / "cells.h5ad", "w") as file:
        file["layers/counts"] = draw.poisson(rate)
        file["obs/batch"] = draw.choice(["a", "b"], 3000).astype("S1").astype(h5py.string_dtype())
        file["obs/type"] = (z[:3000, 0] > 0).astype(int)
    np.save(folder / "codes.npy", z + 0.1 * draw.normal(size=z.shape))
    np.save(folder / "factors.npy", z)


def main() -> None:
    """One line per kind: seconds of each command on the clock, and in brackets of its processors."""
    module = "unseam" if "--old" not in sys.argv else "unseam.cli"
    for kind in [name for name in sys.argv[1:] if name in COMMANDS] or COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            write(kind, Path(folder))
            spent = []
            for line in COMMANDS[kind]:
                began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
                command = [sys.executable, "-m", module, *line.split()]
                limits = {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": ""}
                subprocess.run(command, cwd=folder, check=True, capture_output=True, env=os.environ | limits)
                now = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
                spent.append(f"{time.monotonic() - began:.0f} s ({cpu:.0f} s)")
        print(kind, " + ".join(spent), flush=True)


if __name__ == "__main__":
    main()
