"""Trainings of artefacts: stored once, resumed where they were killed, and where they came from."""

import json

import pandas as pd
import pytest
import torch

from unseam.data import load
from unseam.papers import Workplace
from unseam.papers.trainings import follow, training_name
from unseam.training import train
from unseam.trial import Trial

WORLD = load("linear", size=200)
TRIALS = [
    Trial(world="linear", likelihood="gaussian", latent=2, steps=60, batch_size=8, seed=seed)
    for seed in (0, 1)
]


class Killed(BaseException):
    """What no handler in between may swallow."""


def observe(ensemble, step):
    codes = ensemble.encode(WORLD.images(torch.arange(20))).mean
    return {"codes": pd.DataFrame({"member": [0, 1], "size": codes.square().mean((1, 2)).tolist()})}


def finish(ensemble):
    return {"path": ensemble.observed["codes"]}


def followed(folder, observe=observe, measured=1):
    place = Workplace(torch.device("cpu"), None, False, folder)
    return follow(TRIALS, place, world=WORLD, measured=measured, finish=finish, observe=observe, every=10)


def test_a_killed_training_is_resumed_and_gives_the_same_tables(tmp_path, monkeypatch):
    monkeypatch.setattr("unseam.papers.trainings.CHECKPOINT_SECONDS", 0.0)
    whole = followed(tmp_path / "whole")
    seen = []

    def dying(ensemble, step):
        if step == 40:
            raise Killed
        seen.append(step)
        return observe(ensemble, step)

    with pytest.raises(Killed):
        followed(tmp_path / "killed", dying)

    def counting(ensemble, step):
        seen.append(step)
        return observe(ensemble, step)

    again = followed(tmp_path / "killed", counting)
    assert seen == [10, 20, 30, 40, 50, 60], "nothing before the last checkpoint is done again"
    pd.testing.assert_frame_equal(again["path"], whole["path"])
    assert not list((tmp_path / "killed").glob(".*.work")), (
        "checkpoints are removed once the tables are stored"
    )


def test_a_stored_training_is_not_done_again(tmp_path):
    first = followed(tmp_path)

    def never(ensemble, step):
        raise AssertionError("trained again")

    second = followed(tmp_path, never)
    pd.testing.assert_frame_equal(first["path"], second["path"])
    pd.testing.assert_frame_equal(first["trainings"], second["trainings"])


def test_a_finished_training_is_not_charged_for_being_opened(tmp_path):
    first = train(TRIALS, world=WORLD, device="cpu", out=tmp_path)
    again = train(TRIALS, world=WORLD, device="cpu", out=tmp_path, resume=True)
    assert again.about["seconds"] == first.about["seconds"]


def test_where_it_came_from_is_recorded(tmp_path):
    (row,) = followed(tmp_path)["trainings"].to_dict("records")
    assert row["members"] == 2 and row["steps"] == 60 and row["seconds"] > 0
    assert row["revision"] and len(row["data"]) == 12
    (record,) = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert record["trials"]["seed"] == {"each": [0, 1]}


@pytest.mark.parametrize("harm", ["cut", "gone"])
def test_a_damaged_table_is_named(tmp_path, harm):
    followed(tmp_path)
    (path,) = (tmp_path / "tables").glob("path-*.csv")
    path.unlink() if harm == "gone" else path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match=r"path-\w+\.csv (is missing|has changed).*to measure again"):
        followed(tmp_path)


def test_the_name_is_of_all_that_the_tables_depend_on():
    name = training_name(TRIALS, 1)
    assert training_name(TRIALS, 2) != name
    assert training_name(TRIALS[:1], 1) != name
    assert training_name([TRIALS[0], TRIALS[1]], 1) == name
