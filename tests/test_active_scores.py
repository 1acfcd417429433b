"""Scores are over active latents, beside those over all; without an active latent they are undefined."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import unseam
from unseam.cli import main
from unseam.metrics import evaluate
from unseam.run import evaluate_active, score

METRICS = ["mig", "dci", "mcc"]


@pytest.fixture(scope="module")
def coded():
    """Two factors; a third latent that repeats the first, and is collapsed."""
    factors = torch.cartesian_prod(torch.arange(6), torch.arange(6))
    noise = torch.randn(36, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    codes = torch.cat([factors, factors[:, :1]], 1).double() - 2.5 + 0.05 * noise
    codes[:, 2] *= 0.01
    variance = torch.tensor([0.01, 0.01, 1.0]).double().expand(36, 3)
    return codes, variance, factors


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two members: one that learns something, and one whose β leaves no latent active."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    world = {
        "resolution": 8,
        "shapes": ["ellipse"],
        "scales": 2,
        "orientations": 1,
        "positions": 6,
        "span": 0.5,
    }
    trial = unseam.Trial(
        world="sprites", world_options=world, latent=4, encoder_widths=(16,), decoder_widths=(16,), steps=400,
        beta=0.5, learning_rate=1e-2, batch_size=16,
    )  # fmt: skip
    unseam.train([trial, dataclasses.replace(trial, beta=500.0)], out=folder, device="cpu")
    return folder


def test_scores_are_those_of_the_active_columns(coded):
    codes, variance, factors = coded
    found = evaluate_active(codes[None], factors, METRICS, variance=variance[None], preset="fast")
    options = {"preset": "fast", "generator": torch.Generator().manual_seed(0)}
    few = evaluate(codes[:, :2], factors, METRICS, variance=variance[:, :2], **options)
    options["generator"].manual_seed(0)
    whole = evaluate(codes, factors, METRICS, variance=variance, **options)
    np.testing.assert_array_equal(found["score"], few["score"])
    np.testing.assert_array_equal(found["lower"], few["lower"])
    np.testing.assert_array_equal(found["score_all"], whole["score"])
    assert set(found["active"]) == {2}
    mig = found[found["metric"] == "mig"].iloc[0]
    assert mig["score"] - mig["score_all"] > 0.3


def test_members_with_other_active_latents_are_not_mixed_up(coded):
    codes, _, factors = coded
    swapped = [2, 1, 0]
    stack = torch.stack([codes, codes[:, swapped], codes, codes])
    masks = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0]]).bool()
    found = evaluate_active(stack, factors, ["mig"], active=list(masks), preset="fast").set_index("member")
    assert found["score"][0] == pytest.approx(found["score"][1])
    assert found["score"][2] == found["score_all"][2] == found["score_all"][0]
    assert np.isnan(found["score"][3]) and found["score_all"][3] == found["score_all"][0]


def test_udr_weighs_latents_itself(coded):
    codes, variance, factors = coded
    stack, spread = torch.stack([codes, codes]), torch.stack([variance, variance])
    found = evaluate_active(stack, factors, ["udr", "mig"], variance=spread, preset="fast")
    same = found["score"] == found["score_all"]
    assert same.groupby(found["metric"]).all().to_dict() == {"mig": False, "udr": True}


def test_codes_without_variance_are_all_active(coded):
    codes, variance, factors = coded
    for spread in (None, 0 * variance[None]):
        found = evaluate_active(codes[None], factors, ["mig"], variance=spread, preset="fast")
        assert found["active"].tolist() == [3] and found["score"].equals(found["score_all"])


def test_a_collapsed_model_has_no_scores(run, monkeypatch, capsys):
    table = score(run, METRICS).set_index(["member", "metric"])
    assert table.loc[1, "active"].eq(0).all()
    assert table.loc[1, ["score", "lower", "upper", "error"]].isna().all(axis=None)
    assert table.loc[1, "score_all"].notna().all()
    assert table.loc[0, "score"].notna().all()
    monkeypatch.setattr("sys.argv", ["unseam", "score", str(run), "--metrics", "mig,mcc"])
    main()
    shown = capsys.readouterr().out
    assert "over active latents" in shown and shown.count("undefined (0.") == 2
    assert "In brackets: over all latents." in shown.replace("\n", " ")
    monkeypatch.setattr("sys.argv", ["unseam", "score", str(run), "--metrics", "mig", "--json"])
    main()
    rows = json.loads(capsys.readouterr().out)["scores"]
    assert [row["score"] is None for row in rows] == [False, True] and rows[1]["score_all"] > 0
    assert rows[1]["active"] == 0
