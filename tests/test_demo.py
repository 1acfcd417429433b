"""The demo on a world small enough for a test."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

import unseam
from unseam.cli.demo import show_demo
from unseam.demo import DEMO, SCORES, _numbers, _sentences, run_demo
from unseam.metrics import disentanglement_score

TINY = dataclasses.replace(
    DEMO,
    world_options={"resolution": 12, "shapes": ["ellipse"], "scales": 2, "orientations": 1, "positions": 6},
    encoder_widths=(8,),
    decoder_widths=(8,),
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return run_demo(tmp_path_factory.mktemp("demo") / "run", seeds=2, steps=60, progress=False, trial=TINY)


def test_run_folder_and_report(demo):
    names = {path.name for path in demo.page.parent.iterdir()}
    assert names == {
        "run.json",
        "weights.safetensors",
        "optimizer.safetensors",
        "history.parquet",
        "report.html",
    }
    text = demo.page.read_text()
    assert "<title>Why does a VAE disentangle?" in text
    titles = re.findall(r"<h2[^>]*>([^<]+)</h2>", text)
    assert titles[:2] == ["Verdict on each link", "What does each latent do?"]
    assert all("aria-label" in tag for tag in re.findall(r"<svg[^>]+>", text.split("<script>")[0]))
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


def test_table_has_a_column_per_model_and_all_scores(demo):
    """Four columns, so that it fits on a phone and in a terminal of 80 columns."""
    rows = demo.rows()
    assert list(rows[0]) == ["over 2 seeds", "β-VAE", "full covariance", "autoencoder"]
    names = [row["over 2 seeds"] for row in rows]
    assert names == [
        "active latents",
        "DtO, fraction of chance",
        "mean |cos|",
        "disentanglement score",
        *(f"{title}, active latents" for title in SCORES.values()),
    ]
    gaps = demo.models[1].disentanglement
    assert rows[3]["full covariance"] == f"{np.mean(gaps):.2f} ± {np.std(gaps, ddof=1):.2f}"
    active = sorted(int(found.active.sum()) for found in demo.models[2].found)
    assert rows[0]["autoencoder"] == "–".join(map(str, dict.fromkeys((active[0], active[-1]))))


def test_the_report_shows_the_three_models(demo):
    text = demo.page.read_text()
    for model in demo.models:
        assert text.count(f'<p class="model">{model.name}</p>') >= 4
        assert f'<th scope="col">{model.name}</th>' in text
    assert any(f"between two is {found.cosine:.2f} (" in text for found in demo.models[0].found)


def test_one_seed_makes_no_claim_about_seeds(demo, tmp_path):
    alone = [
        dataclasses.replace(m, found=m.found[:1], disentanglement=m.disentanglement[:1]) for m in demo.models
    ]
    for models in (alone, demo.models):
        said = " ".join(_sentences(models))
        assert "axes (mean |cos|" in said and (models is not alone or "seed" not in said)


def test_the_command_prints_summary_table_and_page(demo, monkeypatch, capsys):
    monkeypatch.setattr("unseam.demo.run_demo", lambda *given, **options: demo)
    show_demo(demo.page.parent, seeds=2, steps=60)
    said = " ".join(capsys.readouterr().out.split())
    first = said.index(" ".join(demo.summary().split()))
    assert first < said.index("mean ± sample standard deviation") < said.index("Open ")


def test_the_report_is_that_of_the_command(demo, tmp_path):
    path = unseam.report.write(demo.page.parent, tmp_path / "again.html")
    again, first = (re.findall(r"<section.*?</section>", one.read_text(), re.S) for one in (path, demo.page))
    assert again == first


def test_a_finished_demo_is_used_again(demo):
    before = (demo.page.parent / "weights.safetensors").read_bytes()
    page = demo.page.read_bytes()
    again = run_demo(demo.page.parent, seeds=2, steps=60, progress=False, trial=TINY)
    assert (demo.page.parent / "weights.safetensors").read_bytes() == before
    assert [model.disentanglement for model in again.models] == [
        model.disentanglement for model in demo.models
    ]
    assert again.page.read_bytes() == page


def test_another_run_is_not_overwritten(demo):
    with pytest.raises(ValueError, match="holds a run of other trials"):
        run_demo(demo.page.parent, seeds=2, steps=61, progress=False, trial=TINY)


def test_bad_counts(tmp_path):
    with pytest.raises(ValueError, match="seeds and steps must be at least 1, got 0 and 5"):
        run_demo(tmp_path, seeds=0, steps=5)


def test_every_seed_has_its_scores(demo):
    for model in demo.models:
        for metric in SCORES:
            scores = model.score(metric)
            assert len(scores) == 2
            assert all(0 <= score <= 1 for score in scores)


def test_disentanglement_is_that_of_the_metric_on_the_whole_world(demo):
    world = unseam.data.load(TINY.world, **dict(TINY.world_options))
    member = unseam.load(demo.page.parent)[0]
    with torch.no_grad():
        codes = member.encode(world.images(torch.arange(len(world)))).mean
    expected = disentanglement_score(codes, world.factors, discrete=[False] * 3)
    best = expected.sensitivity.sort(0).values
    assert demo.models[0].disentanglement[0] == pytest.approx(float(expected.score), abs=1e-5)
    assert float(expected.score) == pytest.approx(float((best[-1] - best[-2]).mean()), abs=1e-6)


def test_page_calls_the_world_a_twin(demo):
    visible = demo.page.read_text().split("<footer>")[0]
    assert "a twin of dSprites" in visible


def test_numbers_over_seeds_are_their_mean_and_sample_standard_deviation():
    nothing = float("nan")
    for values, n, mean, std in (
        ([1.0, 2.0, nothing, 6.0], 3, 3.0, 7**0.5),
        ([nothing, 2.0], 1, 2.0, None),
        ([nothing], 0, None, None),
    ):
        found = _numbers(values)
        assert (found["n"], found["mean"], found["std"]) == (n, mean, pytest.approx(std))
        assert found["seeds"] == [None if value != value else value for value in values]
