"""Use an installed package as a new user would: no source tree, no extras, the package and its dependencies alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import unseam
from unseam.metrics import mig

assert Path(unseam.__file__).is_relative_to(sys.prefix), unseam.__file__
for extra in ("nicegui", "anywidget", "pytest", "ray"):
    assert importlib.util.find_spec(extra) is None, f"{extra} must not come with the core"
command = str(Path(sys.executable).with_name("unseam"))
for words in (["--help"], ["data", "list"], ["reproduce", "rolinek2019.propositions", "--json"]):
    subprocess.run([command, *words], check=True, capture_output=True)

factors = torch.cartesian_prod(torch.arange(4), torch.arange(4))
assert mig(factors.double(), factors).score == 1.0
scales = torch.tensor([3.0, 2.0, 1.0])
assert unseam.inspect(lambda z: z * scales, torch.zeros(8, 3)).cosine == 0.0
with tempfile.TemporaryDirectory() as folder:
    np.savez(Path(folder) / "x.npz", x=factors.double() + 0.1, factors=factors)
    train = ["train", "--data", "x.npz", "--latent", "2", "--steps", "5", "--out", "run"]
    for words in (train, ["score", "run", "--metric", "mig"], ["report", "run"], ["inspect", "run"]):
        module = [sys.executable, "-m", "unseam"]
        subprocess.run([*module, *words], check=True, capture_output=True, cwd=folder)
x = np.random.default_rng(0).normal(size=(50, 3))
assert unseam.BetaVAE(2, steps=5).fit(x).transform(x).shape == (50, 2)
print(f"unseam {unseam.__version__} works as it is installed")
