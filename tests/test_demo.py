"""The demo on a world small enough for a test."""

import dataclasses
import json
import re

import numpy as np
import pytest

from unseam.demo import DEMO, Model, recovery, run_demo

TINY = dataclasses.replace(
    DEMO,
    world_options={"resolution": 12, "shapes": ["ellipse"], "scales": 2, "orientations": 1, "positions": 6},
    encoder_widths=(8,),
    decoder_widths=(8,),
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return run_demo(tmp_path_factory.mktemp("demo") / "run", seeds=2, steps=60, progress=False, trial=TINY)


def test_run_folder_and_page(demo):
    names = {path.name for path in demo.page.parent.iterdir()}
    assert names == {
        "run.json",
        "weights.safetensors",
        "optimizer.safetensors",
        "history.parquet",
        "report.html",
    }
    text = demo.page.read_text()
    assert text.count("<svg") == 10
    assert len(re.findall(r'aria-label="[^"]+"', text)) == 10
    assert "twin" in demo.summary()
    assert '"twin_of": "dSprites"' in text.replace("&#34;", '"')
    for load in re.findall(r'(?:src|xlink:href)="(?!#)([^"]+)"', text):
        assert load.startswith("data:")


def test_three_models_with_their_seeds(demo):
    assert [model.name for model in demo.models] == ["β-VAE", "full covariance", "autoencoder"]
    assert all(len(model.found) == len(model.members) == 2 for model in demo.models)
    record = json.loads(json.dumps(demo.to_dict(), allow_nan=False))
    assert len(record["models"]) == 3
    assert record["about"]["versions"]["unseam"]


def test_a_finished_demo_is_used_again(demo):
    before = (demo.page.parent / "weights.safetensors").read_bytes()
    again = run_demo(demo.page.parent, seeds=2, steps=60, progress=False, trial=TINY)
    assert (demo.page.parent / "weights.safetensors").read_bytes() == before
    assert [model.gaps for model in again.models] == [model.gaps for model in demo.models]


def test_another_run_is_not_overwritten(demo):
    with pytest.raises(ValueError, match="holds a run of other trials"):
        run_demo(demo.page.parent, seeds=2, steps=61, progress=False, trial=TINY)


def test_bad_counts(tmp_path):
    with pytest.raises(ValueError, match="seeds and steps must be at least 1, got 0 and 5"):
        run_demo(tmp_path, seeds=0, steps=5)


def test_recovery_of_known_codes():
    generator = np.random.default_rng(0)
    factors = generator.uniform(size=(1000, 2))
    codes = np.stack([np.exp(factors[:, 1]), generator.normal(size=1000)], axis=1)
    found = recovery(codes, factors)
    assert found.shape == (2, 2)
    assert found[0, 1] > 0.95
    assert found[[0, 1, 1], [0, 0, 1]].max() < 0.1


def test_gap_is_best_less_second():
    scores = np.array([[[0.9, 0.1], [0.2, 0.7], [0.1, 0.3]]])
    assert Model("m", (0,), (), scores).gaps == pytest.approx([((0.9 - 0.2) + (0.7 - 0.3)) / 2])


def test_one_latent_and_a_constant_factor():
    assert Model("m", (0,), (), np.array([[[0.9, 0.1]]])).gaps == pytest.approx([0.5])
    codes = np.outer(np.arange(100), [0.618034]) % 1
    assert recovery(codes, np.ones((100, 1))).tolist() == [[0.0]]


def test_page_calls_the_world_a_twin(demo):
    visible = demo.page.read_text().split("<details>")[0]
    assert "a twin of dSprites" in visible
