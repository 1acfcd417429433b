"""A run small enough for tests, decoders of the user's own, and commands that report both."""

import dataclasses
import sys

import pytest

import unseam
from unseam.cli import main

TINY = unseam.Trial(
    world="sprites",
    world_options={"resolution": 12, "shapes": ["ellipse"], "scales": 2, "orientations": 1, "positions": 6},
    encoder_widths=(16,),
    decoder_widths=(16,),
    latent=3,
    beta=0.5,
    learning_rate=1e-2,
    batch_size=16,
    steps=150,
)

DECODERS = """
import torch

def decoder(z):
    return torch.tanh(z @ torch.linspace(-1, 1, 3 * 64).reshape(3, 64)).reshape(-1, 1, 8, 8)

def broken(z):
    raise RuntimeError("out of paint")

def encoder(x):
    mean = x.flatten(1)[:, :3]
    return mean, torch.full_like(mean, 0.5)
"""


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Two seeds of a β-VAE and its full-covariance control."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    trials = [dataclasses.replace(TINY, seed=seed) for seed in range(2)]
    unseam.train([*trials, dataclasses.replace(TINY, posterior="full")], out=folder, device="cpu")
    return folder


@pytest.fixture(scope="session")
def studies(run):
    return unseam.report.run_studies(run)


@pytest.fixture(scope="session")
def page(studies, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "report.html"
    return unseam.report.write(studies, path).read_text()


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command in this process: status, output, errors."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["unseam", *map(str, words)])
        try:
            main()
        except SystemExit as leave:
            return (leave.code, *capsys.readouterr())
        return (0, *capsys.readouterr())

    return run


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's own in the current folder."""
    (tmp_path / "reported_module.py").write_text(DECODERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield "reported_module"
    sys.modules.pop("reported_module", None)
