"""Runs on disk: round trips, resuming after any kind of stop, damaged files."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import unseam
from unseam import files
from unseam.data import ArrayWorld
from unseam.training import Trial

TRIAL = Trial(
    world="nonlinear",
    world_options={"size": 300},
    likelihood="gaussian",
    latent=2,
    encoder_widths=(8,),
    decoder_widths=(8,),
    batch_size=16,
    steps=400,
)
TRIALS = [
    TRIAL,
    dataclasses.replace(TRIAL, seed=1, beta=0.1),
    dataclasses.replace(TRIAL, latent=3, steps=200),
]
SCRIPT = """
import os, signal, sys, unseam
from unseam.training import Trial
import json, pathlib

# a process may be told to kill itself as its third checkpoint is about to give a file its name
left, replace = 3, os.replace

def renamed(temporary, path):
    global left
    left -= pathlib.Path(path).name == sys.argv[3]
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(temporary, path)

os.replace = renamed
trials = [Trial.from_dict(entry) for entry in json.loads(pathlib.Path(sys.argv[1]).read_text())]
print("ready", flush=True)
try:
    unseam.train(trials, out=sys.argv[2], resume=True, every=10, checkpoint_seconds=0.0, device="cpu")
except KeyboardInterrupt as stopped:
    print(stopped)
    sys.exit(130)
"""


def weights(path):
    return files.read_tensors(Path(path) / "weights.safetensors")


def start(tmp_path, trials, *, killed_before=""):
    spec = tmp_path / "trials.json"
    spec.write_text(json.dumps([trial.to_dict() for trial in trials]))
    command = [sys.executable, "-c", SCRIPT, str(spec), str(tmp_path / "run"), killed_before]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_save_and_load(tmp_path):
    ensemble = unseam.train(TRIALS, every=50)
    unseam.save(ensemble, tmp_path)
    again = unseam.load(tmp_path)
    x = unseam.data.load("nonlinear", size=5).images(torch.arange(5))
    assert again.trials == ensemble.trials
    assert again.history.equals(ensemble.history)
    assert again.about["versions"] == ensemble.about["versions"]
    for one, other in zip(ensemble, again, strict=True):
        assert torch.equal(one.reconstruct(x), other.reconstruct(x))


def test_run_folder_holds_what_it_says(tmp_path):
    unseam.train(TRIALS, out=tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"run.json", "weights.safetensors", "optimizer.safetensors", "history.parquet"}
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["complete"] is True
    assert record["steps"] == [400, 200]
    assert {"versions", "hardware", "revision", "created", "worlds"} <= set(record)


def reached(run):
    """How far each file of a run says that it has come."""
    state = files.read_tensors(run / "optimizer.safetensors")
    current = all(torch.equal(value, state[name]) for name, value in weights(run).items())
    return {
        "history.parquet": int(files.read_table(run / "history.parquet")["step"].max()),
        "optimizer.safetensors": max(int(state[f"{stack}/state/step"]) for stack in range(2)),
        "weights.safetensors": current,
        "run.json": max(json.loads((run / "run.json").read_text())["steps"]),
    }


def assert_resumes_to_the_same_bits(tmp_path, whole):
    resumed = unseam.train(TRIALS, out=tmp_path / "run", resume=True, every=10)
    left, right = (stack.flat for stack in whole.stacks), (stack.flat for stack in resumed.stacks)
    assert all(map(torch.equal, left, right))
    assert torch.equal(unseam.load(tmp_path / "run").stacks[0].flat, whole.stacks[0].flat)
    assert resumed.history.equals(whole.history)
    assert not list((tmp_path / "run").glob(".*.part"))


@pytest.fixture(scope="module")
def whole():
    return unseam.train(TRIALS, every=10)


WRITTEN = ("history.parquet", "optimizer.safetensors", "weights.safetensors", "run.json")


@pytest.mark.parametrize("file", WRITTEN)
def test_runs_killed_between_two_files_resume_to_the_same_bits(tmp_path, whole, file):
    """Checkpoints come at steps 0, 10 and 20; the last one is cut short, so that files before it are newer."""
    process = start(tmp_path, TRIALS, killed_before=file)
    assert process.wait(timeout=120) == -signal.SIGKILL
    process.stdout.close()
    newer = WRITTEN[: WRITTEN.index(file)]
    steps = {name: 20 if name in newer else 10 for name in WRITTEN}
    # weights are those of the state beside them unless the kill fell between the two
    steps["weights.safetensors"] = file != "weights.safetensors"
    assert reached(tmp_path / "run") == steps
    assert [path.name.split(".")[1] for path in (tmp_path / "run").glob(".*.part")] == [file.split(".")[0]]
    assert_resumes_to_the_same_bits(tmp_path, whole)


def test_runs_killed_at_any_moment_resume_to_the_same_bits(tmp_path, whole):
    wait = random.Random(0)
    for _ in range(3):
        process = start(tmp_path, TRIALS)
        time.sleep(wait.uniform(0.0, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert_resumes_to_the_same_bits(tmp_path, whole)


def test_interrupt_leaves_a_resumable_run(tmp_path):
    process = start(tmp_path, [dataclasses.replace(TRIAL, steps=100_000)])
    run = tmp_path / "run" / "optimizer.safetensors"
    while not run.exists():
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert "can be resumed" in process.stdout.read()
    process.stdout.close()
    step = json.loads((tmp_path / "run" / "run.json").read_text())["steps"][0]
    assert 0 < step < 100_000
    assert int(files.read_tensors(run)["0/state/step"]) == step


def test_a_finished_run_resumes_to_itself(tmp_path):
    first = unseam.train(TRIAL, out=tmp_path, every=100)
    before = weights(tmp_path)
    again = unseam.train(TRIAL, out=tmp_path, resume=True, every=100)
    assert all(torch.equal(before[name], value) for name, value in weights(tmp_path).items())
    assert again.history.equals(first.history)


def test_divergence_survives_a_round_trip(tmp_path):
    wild = dataclasses.replace(TRIAL, optimiser="sgd", learning_rate=1e6, steps=20)
    with pytest.warns(unseam.training.DivergenceWarning):
        ensemble = unseam.train(wild, out=tmp_path)
    assert unseam.load(tmp_path).stopped == ensemble.stopped != {}


def test_an_existing_run_is_not_overwritten(tmp_path):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    with pytest.raises(ValueError, match="holds a run already; pass resume=True"):
        unseam.train(TRIAL, out=tmp_path)


def test_other_trials_are_not_resumed(tmp_path):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    with pytest.raises(ValueError, match="holds a run of other trials .first difference at member 0"):
        unseam.train(TRIAL, out=tmp_path, resume=True)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(ValueError, match="out must be a folder, but .* is a file"):
        unseam.train(TRIAL, out=tmp_path / "run")


@pytest.mark.parametrize("name", ["run.json", "weights.safetensors", "history.parquet"])
def test_truncated_files(tmp_path, name):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=f"{name} is .*damaged"):
        unseam.load(tmp_path)


@pytest.mark.parametrize("name", ["run.json", "weights.safetensors", "history.parquet"])
def test_missing_files(tmp_path, name):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"holds no {name}; is it the folder of a run"):
        unseam.load(tmp_path)


def test_other_formats_are_refused(tmp_path):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(record | {"format": 99}))
    with pytest.raises(ValueError, match="has format 99, expected 1"):
        unseam.load(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    held = weights(tmp_path)
    name = next(iter(held))
    files.write_tensors(tmp_path / "weights.safetensors", held | {name: torch.zeros(1)}, note={})
    with pytest.raises(ValueError, match="must hold .* of shape .*, got .1,."):
        unseam.load(tmp_path)


def test_a_full_disk_keeps_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_json(path, {"a": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match="could not write .*No space left on device.*What was there before is untouched"
    ):
        files.write_json(path, {"a": 2})
    assert files.read_json(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_saving_over_another_run_is_refused(tmp_path):
    unseam.train(dataclasses.replace(TRIAL, steps=2), out=tmp_path)
    other = unseam.train(dataclasses.replace(TRIAL, steps=3))
    with pytest.raises(ValueError, match="holds a run of other trials; choose another folder"):
        unseam.save(other, tmp_path)


def test_a_saved_ensemble_is_not_resumed_from_an_older_checkpoint(tmp_path):
    trial = dataclasses.replace(TRIAL, steps=3)
    unseam.train(trial, out=tmp_path)
    changed = unseam.load(tmp_path)
    with torch.no_grad():
        changed.stacks[0].flat += 1
    unseam.save(changed, tmp_path)
    with pytest.raises(ValueError, match="holds a saved ensemble, not a training to go on with"):
        unseam.train(trial, out=tmp_path, resume=True)


def test_saving_what_was_loaded_keeps_the_state_to_resume(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        unseam.train(TRIAL, out=tmp_path, every=100, observe=interrupt)
    before = (tmp_path / "optimizer.safetensors").read_bytes()
    unseam.save(unseam.load(tmp_path), tmp_path)
    assert (tmp_path / "optimizer.safetensors").read_bytes() == before
    assert unseam.load(tmp_path).steps == (0,)
    assert unseam.train(TRIAL, out=tmp_path, resume=True).steps == (400,)


def interrupt(ensemble, step):
    raise KeyboardInterrupt


def own_world(seed, name="scans"):
    values = torch.rand(50, 6, generator=torch.Generator().manual_seed(seed))
    return ArrayWorld(values, torch.zeros(50, 0), name=name, factor_names=(), factor_sizes=())


def test_other_data_of_the_same_name_and_size_are_not_resumed_on(tmp_path):
    trial = dataclasses.replace(TRIAL, steps=3)
    unseam.train(trial, out=tmp_path, world=own_world(0))
    with pytest.raises(
        ValueError,
        match=r"was trained on scans, which is not the world given now, scans: other values \(digest",
    ):
        unseam.train(trial, out=tmp_path, world=own_world(1), resume=True)
    unseam.train(trial, out=tmp_path, world=own_world(0, name="renamed"), resume=True)


def test_saving_over_a_run_on_other_data_is_refused(tmp_path):
    trial = dataclasses.replace(TRIAL, steps=3)
    unseam.train(trial, out=tmp_path, world=own_world(0))
    other = unseam.train(trial, world=own_world(1))
    with pytest.raises(ValueError, match="holds a run of these trials on other data; choose another folder"):
        unseam.save(other, tmp_path)


def test_runs_of_earlier_versions_are_resumed(tmp_path):
    """They recorded name, size and options of their data, and nothing of why a member stopped."""
    unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    del record["stopped_by"]
    held = ("name", "items", "twin_of", "options")
    record["worlds"] = [{key: world[key] for key in held} for world in record["worlds"]]
    (tmp_path / "run.json").write_text(json.dumps(record))
    state = files.read_tensors(tmp_path / "optimizer.safetensors")
    del state["0/state/stopped_by"]
    files.write_tensors(tmp_path / "optimizer.safetensors", state, note={"format": "1"})
    again = unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path, resume=True)
    assert again.stopped == again.stopped_by == {}
    with pytest.raises(ValueError, match="items 300 then, 77 now"):
        unseam.train(
            dataclasses.replace(TRIAL, steps=3),
            out=tmp_path,
            resume=True,
            world=unseam.data.load("nonlinear", size=77),
        )


def test_no_weights_are_drawn_to_be_overwritten(tmp_path, monkeypatch):
    trial = dataclasses.replace(TRIAL, steps=3)
    first = unseam.train(trial, out=tmp_path)

    def never(*_, **__):
        raise AssertionError("weights were drawn")

    monkeypatch.setattr(sys.modules["unseam.training.learner"], "initialise", never)
    again = unseam.train(trial, out=tmp_path, resume=True)
    assert torch.equal(again.stacks[0].flat, first.stacks[0].flat)


def test_why_a_member_stopped_is_recorded(tmp_path):
    """An infinite loss, and a finite one whose update overflows."""
    wild = [
        dataclasses.replace(TRIAL, optimiser="sgd", learning_rate=rate, steps=20, seed=seed)
        for rate, seed in ((1e6, 0), (1e39, 1))
    ]
    with pytest.warns(unseam.training.DivergenceWarning) as told:
        trained = unseam.train(wild, out=tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["stopped_by"] == {"0": "its loss", "1": "its update"}
    assert trained.stopped_by == unseam.load(tmp_path).stopped_by == {0: "its loss", 1: "its update"}
    assert "where its loss was no longer finite" in str(told[0].message)
    assert trained.history.loc[trained.history.member == 0, "alive"].tolist()[-1] is False


def test_another_world_is_not_resumed_on(tmp_path):
    trial = dataclasses.replace(TRIAL, steps=3)
    unseam.train(trial, out=tmp_path)
    with pytest.raises(ValueError, match="which is not the world given now"):
        unseam.train(trial, out=tmp_path, resume=True, world=unseam.data.load("nonlinear", size=77))


def test_a_finished_run_keeps_its_provenance(tmp_path):
    unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    record["versions"]["torch"] = "1.0"
    (tmp_path / "run.json").write_text(json.dumps(record))
    unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path, resume=True)
    assert json.loads((tmp_path / "run.json").read_text()) == record


@pytest.mark.parametrize(
    "missing", [{"run.json"}, {"run.json", "weights.safetensors"}, {"run.json", "optimizer.safetensors"}]
)
def test_a_run_killed_in_its_first_checkpoint_starts_anew(tmp_path, missing):
    trial = dataclasses.replace(TRIAL, steps=5)
    unseam.train(trial, out=tmp_path / "run")
    before = weights(tmp_path / "run")
    for name in missing:
        (tmp_path / "run" / name).unlink()
    unseam.train(trial, out=tmp_path / "run", resume=True)
    assert all(torch.equal(before[name], value) for name, value in weights(tmp_path / "run").items())
