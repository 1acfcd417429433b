"""Trainings of artefacts: stored once, resumed where they were killed, and where they came from."""

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import torch

from unseam.data import load
from unseam.papers import Workplace, artefacts, reproduce
from unseam.papers.trainings import follow, training_name
from unseam.training import run, train
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


@pytest.mark.slow
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


DYING = """
import sys, time
from pathlib import Path
from unseam.papers import artefacts, reproduce, trainings
from unseam.training import run

trainings.CHECKPOINT_SECONDS = 0.0
folder, steps, count = Path(sys.argv[1]), run.training_steps, 0

def waiting(stack, world, **options):
    global count
    count += 1
    for record in steps(stack, world, **options):
        if count == 2 and record.step == 50:
            (folder / "ready").touch()
            time.sleep(600)
        yield record

run.training_steps = waiting
reproduce(artefacts()["rolinek2019.table2_linear"], "smoke", device="cpu", shared=folder)
"""


def test_an_artefact_killed_at_once_loses_less_than_one_checkpoint_interval(tmp_path, monkeypatch):
    """SIGKILL in the second of three trainings, at step 50 of 80, with a checkpoint after every step before."""
    process = subprocess.Popen([sys.executable, "-c", DYING, str(tmp_path)], env=os.environ)
    try:
        until = time.monotonic() + 120
        while not (tmp_path / "ready").exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert (tmp_path / "ready").exists(), "the second training never reached step 50"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    seen, steps = [], run.training_steps

    def counting(stack, world, **options):
        seen.append([])
        for record in steps(stack, world, **options):
            seen[-1].append(record.step)
            yield record

    monkeypatch.setattr(run, "training_steps", counting)
    artefact = artefacts()["rolinek2019.table2_linear"]
    again = reproduce(artefact, "smoke", device="cpu", shared=tmp_path)
    assert seen == [[50, 60, 70, 80], [10, 20, 30, 40, 50, 60, 70, 80]], "the first training is stored"
    whole = reproduce(artefact, "smoke", device="cpu", shared=tmp_path / "whole")
    for name in ("members", "random"):
        pd.testing.assert_frame_equal(again.tables[name], whole.tables[name])


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
def test_a_damaged_table_is_measured_again(tmp_path, harm):
    first = followed(tmp_path)
    (path,) = (tmp_path / "tables").glob("path-*.csv")
    path.unlink() if harm == "gone" else path.write_text(path.read_text()[:-20])
    pd.testing.assert_frame_equal(followed(tmp_path)["path"], first["path"])
    assert path.exists()


def test_the_name_is_of_all_that_the_tables_depend_on():
    name = training_name(TRIALS, 1)
    assert training_name(TRIALS, 2) != name
    assert training_name(TRIALS[:1], 1) != name
    assert training_name([TRIALS[0], TRIALS[1]], 1) == name
