"""Small exhibits: a trained run with members that differ in β, posterior and kind, and decoders of one's own."""

import dataclasses
from pathlib import Path

import pytest
import torch

import unseam
from unseam.explore import Exhibit, exhibit_decoder, exhibit_run

TRIAL = unseam.Trial(
    world="sprites",
    world_options={
        "resolution": 12, "shapes": ["ellipse"], "scales": 2, "orientations": 1, "positions": 6, "softness": 1.0,
    },
    encoder_widths=(16,),
    decoder_widths=(16,),
    latent=3,
    beta=0.5,
    learning_rate=1e-2,
    batch_size=16,
    steps=60,
)  # fmt: skip
CHANGES = (
    {"beta": 2.0},
    {},
    {"beta": 8.0},
    {"posterior": "full"},
    {"posterior": "point", "objective": "autoencoder", "beta": 1.0},
)


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """The folder of a run: β 2, ½ and 8, a full covariance, an autoencoder."""
    folder = tmp_path_factory.mktemp("explored") / "run"
    ensemble = unseam.train([dataclasses.replace(TRIAL, **change) for change in CHANGES], progress=False)
    unseam.save(ensemble, folder)
    return folder


@pytest.fixture(scope="session")
def exhibit(run) -> Exhibit:
    """That run as an exhibit."""
    return exhibit_run(run, points=50)


@pytest.fixture(scope="session")
def mixing() -> torch.Tensor:
    """Columns of a linear decoder, not orthogonal."""
    return torch.tensor([[3.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]], dtype=torch.float64)


@pytest.fixture(scope="session")
def linear(mixing) -> Exhibit:
    """A linear decoder of one's own, in double precision."""
    decoder = torch.nn.Linear(2, 4, bias=False).double()
    with torch.no_grad():
        decoder.weight.copy_(mixing.mT)
    return exhibit_decoder(decoder, latent=2)
