"""Comparisons of the seeds of a setting: of all that it has, however they were cut into stacks, or undefined."""

from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from unseam import metrics, sweep
from unseam.replicate import replicate_seeds
from unseam.run import Codes
from unseam.sweep import measures
from unseam.sweep.spec import Score
from unseam.sweep.store import Store, compare_all

SCORE = {"points": 40, "items": 200, "measures": ["udr", "replication"]}
NAMES = ["udr", "udr_seeds", "replication", "replication_seeds"]


def spec(seeds):
    trial = {"world": "linear", "likelihood": "gaussian", "latent": 2, "steps": 150, "batch_size": 16,
             "encoder_widths": [], "decoder_widths": [], "learning_rate": 1e-2}  # fmt: skip
    return {"trial": trial, "axes": {"beta": [0.01, 0.1], "seed": seeds}, "score": SCORE}


def rows(done):
    return done.table().sort_values(["beta", "seed"]).reset_index(drop=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return sweep.run(spec([0, 1, 2]), tmp_path_factory.mktemp("whole"), device="cpu", weights=True)


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_comparisons_do_not_depend_on_stacks(whole, tmp_path, place):
    address = tmp_path if place == "folder" else f"memory://{tmp_path.name}-seeds"
    cut = sweep.run(spec([0, 1, 2]), address, device="cpu", stack=2)  # without weights=True
    pd.testing.assert_frame_equal(rows(cut)[NAMES], rows(whole)[NAMES], rtol=1e-4)
    assert (rows(cut)["udr_seeds"] == 3).all()
    assert rows(cut)["udr"].between(0, 1).all()


def test_replication_of_a_row_is_that_of_its_run(whole):
    table = rows(whole)
    for stack, part in table.groupby("stack"):
        for found in replicate_seeds([whole.run(stack)], items=40):
            held = part.set_index("member").loc[list(found.members), "replication"]
            assert held.tolist() == pytest.approx([share.value for share in found.scores])


def test_seeds_added_later_are_compared_with_all_or_with_none(whole, tmp_path):
    sweep.run(spec([0, 1]), tmp_path / "bare", device="cpu")
    bare = rows(sweep.run(spec([0, 1, 2]), tmp_path / "bare", device="cpu"))
    assert bare[["udr", "replication"]].isna().all().all()
    assert set(bare["udr_note"].dropna()) == {"2 of 3 seeds compared"}
    sweep.run(spec([0]), tmp_path / "full", device="cpu", weights=True)
    full = sweep.run(spec([0, 1, 2]), tmp_path / "full", device="cpu", weights=True)
    pd.testing.assert_frame_equal(rows(full)[NAMES], rows(whole)[NAMES], rtol=1e-4)
    parts = Store(tmp_path / "full").parts("seeds")
    sweep.run(spec([0, 1, 2]), tmp_path / "full", device="cpu")
    assert Store(tmp_path / "full").parts("seeds") == parts  # nothing is compared twice


def test_a_seed_that_diverged_does_not_count():
    frame = pd.DataFrame({"key": list("abc"), "seed": range(3), "stopped": [None, None, 9.0],
                          "udr": [0.5, 0.6, None], "udr_seeds": [2, 2, None]})  # fmt: skip
    assert compare_all(frame, pd.DataFrame())["udr"].tolist()[:2] == [0.5, 0.6]
    assert compare_all(frame.assign(stopped=None), pd.DataFrame())["udr"].isna().all()


def test_udr_is_no_metric_of_a_stack_of_several_settings(tmp_path):
    with pytest.raises(ValueError, match="udr belongs in score.measures"):
        sweep.run(spec([0]) | {"score": {"metrics": ["udr"]}}, tmp_path)
    with pytest.raises(ValueError, match="score.preset must be fast, dlib, got 'fats'"):
        sweep.run(spec([0]) | {"score": {"preset": "fats"}}, tmp_path)


def test_data_without_factors_are_compared_too(tmp_path, monkeypatch):
    (tmp_path / "own_table.py").write_text(
        "import torch\nfrom unseam.choices import World\nfrom unseam.data import open_data\n"
        "x = torch.rand(60, 4, generator=torch.Generator().manual_seed(0))\n"
        "WORLD = World('table', 'a table', lambda: open_data(x).world)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = spec([0, 1])
    given["trial"] |= {"world": "own_table:WORLD", "steps": 30}
    table = sweep.run(given, tmp_path / "store", device="cpu").table()
    assert table[["udr", "replication"]].notna().all().all()
    with pytest.raises(
        ValueError, match=r"trial.data is no field of a trial; data of your own are a world in code"
    ):
        sweep.read_spec({"trial": {"data": "x.npy"}})


def test_udr_counts_latents_by_their_mean_divergence_from_the_prior():
    """Divergences on either side of 0.01 nats: of means ±a with variance v it is (a² + v − ln v − 1) / 2."""
    draw = torch.Generator().manual_seed(0)
    divergences, variances = torch.tensor([0.0095, 0.0105, 0.5]), torch.tensor([0.95, 1.0, 0.5])
    reach = (2 * divergences - variances + variances.log() + 1).sqrt().double()
    shared = torch.randint(0, 2, (200, 3), generator=draw).double() * 2 - 1
    flips = [(torch.rand(200, 3, generator=draw) < 0.2).double() * -2 + 1 for _ in range(3)]
    codes = [
        Codes((reach * shared * flip)[None], variances.double().expand(1, 200, 3), torch.zeros(200, 0), ())
        for flip in flips
    ]
    run = SimpleNamespace(
        trials=[SimpleNamespace(posterior="diagonal")] * 3,
        codes=lambda members, **_: codes[members[0]],
    )
    found = measures.udr([(run, member) for member in range(3)], Score())
    by_counting = [
        metrics.udr(
            torch.cat([one.mean for one in codes]),
            torch.tensor([[first, second, 1.0]] * 3),
            preset="fast",
            generator=torch.Generator().manual_seed(0),
        ).score.tolist()
        for first, second in ((0.0, 1.0), (1.0, 1.0), (0.0, 0.0))
    ]
    assert found == by_counting[0]
    assert found not in by_counting[1:]
