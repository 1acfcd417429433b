"""Record what every command prints as JSON on a few fixed runs, or compare with such a record."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent.parent / "tests" / "record.json"

RUNS = {
    "linear": "--world linear --likelihood gaussian --likelihood-variance 0.01 --latent 3 --encoder-widths none "
    "--decoder-widths none --steps 200 --batch-size 32 --train-fraction 0.8 --vary seed=0,1 --vary beta=1,4",
    "sprites": "--world sprites --world-option resolution=16 --world-option positions=8 --world-option orientations=8 "
    "--steps 30 --batch-size 16 --latent 4 --encoder-widths 32 --decoder-widths 32 "
    "--vary objective=beta_elbo,beta_tcvae,factor_vae,dip_vae_ii",
    "posteriors": "--world circles --likelihood gaussian --latent 2 --steps 100 --batch-size 32 --optimiser sgd "
    "--momentum 0.5 --learning-rate 0.01 --posterior full --vary seed=0,1",
}
DECODER = """
import torch

matrix = torch.tensor([[3.0, 0.0, 0.1], [0.0, 1.0, 0.2], [0.5, 0.0, 0.7], [0.0, 0.0, 1.0]])


def decode(z):
    return torch.tanh(z @ matrix.T)


def encode(x):
    return torch.atanh(x.clamp(-0.99, 0.99)) @ torch.linalg.pinv(matrix).T, torch.full((len(x), 3), 0.1)
"""
# What depends on the clock, on folders or on the machine, and not on what is computed.
DIGEST = re.compile(r"(\w+:)?[0-9a-f]{12,}")
VOLATILE = {
    "seconds",
    "hardware",
    "revision",
    "versions",
    "created",
    "started",
    "figures",
    "figure",
    "about",
    "revisions",
}
RELATIVE = 1e-4
ABSOLUTE = 1e-6


def commands() -> Iterator[tuple[str, str]]:
    """Names and arguments of all commands, in the order in which they can run in a folder."""
    for name, flags in RUNS.items():
        yield f"train {name}", f"train {flags} --out {name} --device cpu --every 10 --json"
        yield f"inspect {name}", f"inspect {name} --points 100 --json"
        if name != "posteriors":
            yield f"score {name}", f"score {name} --points 400 --json"
        yield f"report {name}", f"report {name} --points 100 --json"
    yield "inspect own", "inspect mine:decode --data z.npy --json"
    yield "inspect encoder", "inspect mine:decode --encoder mine:encode --data x.npy --beta 2 --json"
    yield "report own", "report mine:decode --latent 3 --points 100 --json"
    yield "advise data", "advise x.npy --json"
    yield "advise world", "advise mixture --points 500 --json"
    yield "data list", "data list --json"
    yield "reproduce list", "reproduce --json"
    yield "reproduce committed", "reproduce sikka2019.propositions --json"
    yield "reproduce smoke", "reproduce allen2024.linear_vae --scale smoke --device cpu --json"


def record(only: str = "") -> dict[str, Any]:
    """What the commands print, by name."""
    import numpy as np

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "mine.py").write_text(DECODER)
        rng = np.random.default_rng(0)
        z = rng.standard_normal((50, 3)).astype(np.float32)
        np.save(folder / "z.npy", z)
        np.save(folder / "x.npy", np.tanh(z @ rng.standard_normal((3, 4)).astype(np.float32)) * 0.9)
        for name, arguments in commands():
            if only not in name:
                continue
            done = subprocess.run(
                [sys.executable, "-m", "unseam", *arguments.split()],
                cwd=folder,
                capture_output=True,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"unseam {arguments} ended with {done.returncode}: {done.stderr[-2000:]}")
            found[name] = steady(json.loads(done.stdout))
            print(name, file=sys.stderr)
    return found


def steady(value: Any) -> Any:
    """JSON values without what the clock or the machine decides, numbers to six digits."""
    if isinstance(value, dict):
        return {key: steady(held) for key, held in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [steady(held) for held in value]
    if isinstance(value, str) and DIGEST.fullmatch(value):
        return "digest"  # of weights and data, which differ in the last bit between machines
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Where two records differ; numbers may differ by rounding."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            if key not in before or key not in now:
                yield f"{path}/{key}: only {'now' if key in now else 'before'}"
            else:
                yield from differences(before[key], now[key], f"{path}/{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for place, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from differences(old, new, f"{path}/{place}")
    elif isinstance(before, int | float) and isinstance(now, int | float) and not isinstance(before, bool):
        if not math.isclose(before, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            yield f"{path}: {before} before, {now} now"
    elif before != now:
        yield f"{path}: {str(before)[:200]!r} before, {str(now)[:200]!r} now"


def main() -> None:
    """Write the record, or with ``--check`` compare with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the record instead of writing it")
    parser.add_argument("--only", default="", help="only commands whose name contains this")
    given = parser.parse_args()
    now = record(given.only)
    if not given.check:
        RECORD.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n")
        return
    before = {name: held for name, held in json.loads(RECORD.read_text()).items() if name in now}
    found = list(differences(before, now))
    for line in found[:200]:
        print(line)
    print(f"{len(found)} differences in {len(now)} commands")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
