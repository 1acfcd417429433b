"""Scores of runs: what is encoded, what is saved, what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import unseam
from unseam.cli import main
from unseam.metrics import evaluate
from unseam.run import Run, score, score_files
from unseam.training import split_items

WORLD = {"resolution": 8, "shapes": ["ellipse", "square"], "scales": 2, "orientations": 2, "positions": 4}
TRIAL = unseam.Trial(
    world="sprites",
    world_options=WORLD,
    latent=3,
    encoder_widths=(8,),
    decoder_widths=(8,),
    steps=5,
    batch_size=8,
    precision="float32",
)
METRICS = ["mig", "sap"]


def replaced(**changes):
    import dataclasses

    return dataclasses.replace(TRIAL, **changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    trials = [TRIAL, replaced(seed=1, posterior="full"), replaced(latent=2), replaced(train_fraction=0.8)]
    unseam.train(trials, out=folder, device="cpu")
    return folder


def test_scores_are_those_of_the_members_codes(run):
    table = score(run, METRICS)
    assert sorted(set(table.member)) == [0, 1, 2, 3]
    world = unseam.data.load("sprites", **WORLD)
    for number in (0, 2):
        member = unseam.load(run)[number]
        with torch.no_grad():
            codes = member.encode(world.images(torch.arange(len(world)))).mean
        expected = evaluate(
            codes, world.factors, METRICS, preset="fast", generator=torch.Generator().manual_seed(0)
        )
        np.testing.assert_allclose(table[table.member == number].score, expected.score, atol=1e-5)


def test_table_is_kept_with_what_made_it(run):
    (run / "scores.parquet").unlink(missing_ok=True)
    table = score(run, METRICS, seed=3)
    kept = pd.read_parquet(run / "scores.parquet")
    pd.testing.assert_frame_equal(kept, table, check_names=True)
    assert kept.attrs["seed"] == 3
    assert kept.attrs["about"]["versions"]["unseam"]
    assert set(kept.world) == {"sprites, twin of dSprites"}


def test_the_unseen_part_is_scored_where_there_is_one(run):
    table = score(run, METRICS)
    items = len(unseam.data.load("sprites", **WORLD))
    held = len(split_items(replaced(train_fraction=0.8), items).test)
    assert set(table[table.member == 3].points) == {held}
    assert set(table[table.member == 0].points) == {items}


def test_other_scores_stay(run):
    score(run, METRICS)
    score(run, ["sap"], members=[0], seed=1)
    kept = pd.read_parquet(run / "scores.parquet").set_index(["member", "metric"])
    assert kept.index.is_unique
    assert len(kept) == 8
    assert kept.loc[(0, "sap"), "seed"] == 1
    assert set(kept.drop(index=(0, "sap")).seed) == {0}


def test_some_members(run):
    table = score(run, METRICS, members=[1, 0])
    assert table.member.tolist() == [0, 0, 1, 1]


def test_a_full_posterior_has_its_diagonal(run):
    ensemble = unseam.load(run)
    world = unseam.data.load("sprites", **WORLD)
    index = torch.arange(5)
    codes = Run.open(run).codes([1], index=index)
    with torch.no_grad():
        full = ensemble[1].encode(world.images(index)).variance
    torch.testing.assert_close(codes.variance[0], full.diagonal(dim1=-2, dim2=-1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"members": [4]}, r"member must lie in \[0, 4\), got 4"),
        ({"points": 1}, "points must be at least 2, got 1"),
        ({"metrics": ["mug"]}, "metrics must be functions or among"),
        ({"preset": "slow"}, "preset must be one of"),
    ],
)
def test_bad_input(run, arguments, message):
    with pytest.raises(ValueError, match=message):
        score(run, **({"metrics": METRICS} | arguments))


def test_a_device_must_be_one(run):
    with pytest.raises(ValueError, match="device must be cpu or cuda"):
        Run.open(run, device="gpu")


def test_command(run, monkeypatch, capsys):
    words = ["unseam", "score", str(run), "--metrics", "mig,sap", "--member", "0", "--member", "1"]
    monkeypatch.setattr("sys.argv", words)
    main()
    shown = capsys.readouterr().out
    assert "member 0" in shown
    assert "mig" in shown
    monkeypatch.setattr("sys.argv", [*words, "--json"])
    main()
    record = json.loads(capsys.readouterr().out)
    assert [row["metric"] for row in record["scores"]] == ["mig", "sap"] * 2
    assert record["scores"][0]["settings"]["bins"] == 20
    assert record["seed"] == 0
    assert record["about"]["hardware"]


def test_options_of_the_command_are_those_of_the_function(run, monkeypatch, capsys, tmp_path):
    asked = {"preset": "dlib", "points": 40, "seed": 5}
    options = [word for name, value in asked.items() for word in (f"--{name}", str(value))]

    def scores(*words):
        monkeypatch.setattr(
            "sys.argv", ["unseam", "score", *map(str, words), "--metrics", "mig,sap", *options, "--json"]
        )
        main()
        return [row["score"] for row in json.loads(capsys.readouterr().out)["scores"]]

    assert scores(run, "--member", 2) == score(run, METRICS, members=[2], **asked)["score"].tolist()
    assert scores(run, "--member", 2) != score(run, METRICS, members=[2], preset="dlib")["score"].tolist()
    codes = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)).numpy()
    factors = np.stack([np.arange(100) % 2, np.arange(100) % 5], 1)
    places = [tmp_path / "codes.npy", tmp_path / "factors.npy"]
    for place, values in zip(places, (codes, factors), strict=True):
        np.save(place, values)
    alone = evaluate(codes[:], factors, METRICS, preset="dlib", generator=torch.Generator().manual_seed(5))
    assert scores(*places) == score_files(*places, METRICS, **asked)["score"].tolist()
    assert scores(*places) != alone["score"].tolist()


def test_options_of_inspect_are_those_of_the_run(run, monkeypatch, capsys):
    def cosines(**asked):
        options = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
        monkeypatch.setattr("sys.argv", ["unseam", "inspect", str(run), "--member", "3", *options, "--json"])
        main()
        return json.loads(capsys.readouterr().out)

    seen = []
    for asked in (
        {"points": 6, "seed": 2},
        {"points": 7, "seed": 2},
        {"points": 6, "seed": 3},
        {"points": 6, "at": "prior"},
    ):
        found = Run.open(run).inspect([3], **asked)[3]
        text = json.dumps(cosines(**asked))
        assert json.dumps(found.cosine) in text and json.dumps(found.hadamard_gap) in text
        seen.append(found.cosine)
    assert len(set(seen)) == len(seen)


def test_two_points_have_no_intervals(run):
    table = score(run, ["mig", "mcc"], points=2, members=[0])
    assert table["score"].notna().all()
    assert table[["lower", "upper", "error"]].isna().all(axis=None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_command_for_a_device_that_is_not_there(run, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["unseam", "score", str(run), "--metrics", "mig", "--device", "cuda"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "device cuda was asked for, but torch sees no CUDA device here" in capsys.readouterr().err


def test_many_members_go_one_a_line(run, monkeypatch, capsys, tmp_path):
    trials = [replaced(seed=seed) for seed in range(5)]
    unseam.train(trials, out=tmp_path / "many", device="cpu")
    monkeypatch.setattr("sys.argv", ["unseam", "score", str(tmp_path / "many"), "--metric", "mig"])
    main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert len(lines) == 5


def test_command_on_no_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["unseam", "score", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert "holds no run.json" in capsys.readouterr().err


def test_defaults_of_splits_and_items():
    world = unseam.data.load("sprites", **WORLD)
    run = Run.of(unseam.train([TRIAL, replaced(train_fraction=0.8)], world=world, device="cpu"), world=world)
    assert len(run.split().test) == len(run.split(0).test) > len(run.split(1).test)
    assert torch.equal(run.held_out(20), run.held_out(20, 0, member=0))
    assert not torch.equal(run.held_out(20), run.held_out(20, 1))
