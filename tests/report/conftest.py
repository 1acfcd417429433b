"""A run small enough for tests: two seeds of a β-VAE and its full-covariance control."""

import dataclasses

import pytest

import unseam

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


@pytest.fixture(scope="session")
def run(tmp_path_factory):
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
