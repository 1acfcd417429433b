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
from unseam.locks import LockedError
from unseam.training import Trial
from unseam.training.checkpoint import write_record

TRIAL = Trial(
    world="nonlinear",
    world_options={"size": 300},
    likelihood="gaussian",
    latent=2,
    encoder_widths=(8,),
    decoder_widths=(8,),
    batch_size=16,
    steps=80,
)
TRIALS = [
    TRIAL,
    dataclasses.replace(TRIAL, seed=1, beta=0.1),
    dataclasses.replace(TRIAL, latent=3, steps=40),
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
    unseam.train(trials, out=sys.argv[2], resume=True, every=int(sys.argv[4]), checkpoint_seconds=0.0, device="cpu")
except unseam.training.Interrupted as stopped:
    print(stopped)
    sys.exit(128 + stopped.signal)
"""


def weights(path):
    return files.read_tensors(Path(path) / "weights.safetensors")


def start(tmp_path, trials, *, killed_before="", every=10):
    spec = tmp_path / "trials.json"
    spec.write_text(json.dumps([trial.to_dict() for trial in trials]))
    command = [sys.executable, "-c", SCRIPT, str(spec), str(tmp_path / "run"), killed_before, str(every)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_save_and_load(tmp_path):
    ensemble = unseam.train(TRIALS, every=50, device="cpu")
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
    assert record["steps"] == [80, 40]
    assert {"versions", "hardware", "revision", "created", "worlds"} <= set(record)


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


WAITING = (".history.parquet.new", ".optimizer.safetensors.new", ".weights.safetensors.new")
NAMED = ("history.parquet", "optimizer.safetensors", "weights.safetensors")


@pytest.mark.parametrize("file", [*WAITING, "run.json", *NAMED])
@pytest.mark.slow
def test_a_checkpoint_is_one_unit(tmp_path, whole, file):
    """Checkpoints come at steps 0, 1 and 2; the last one is cut short before a file gets its name."""
    process = start(tmp_path, TRIALS, killed_before=file)
    assert process.wait(timeout=120) == -signal.SIGKILL
    process.stdout.close()
    found = unseam.load(tmp_path / "run")
    # the record decides: until it is replaced the earlier checkpoint counts, from then on the later one
    assert [stack.step for stack in found.stacks] == [2 if file in NAMED else 1, 0]
    reference = unseam.train([dataclasses.replace(trial, steps=found.stacks[0].step) for trial in TRIALS[:2]])
    assert torch.equal(found.stacks[0].flat, reference.stacks[0].flat)
    assert_resumes_to_the_same_bits(tmp_path, whole)


@pytest.mark.slow
def test_runs_killed_at_any_moment_resume_to_the_same_bits(tmp_path, whole):
    wait = random.Random(0)
    for _ in range(3):
        process = start(tmp_path, TRIALS)
        time.sleep(wait.uniform(0.0, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert_resumes_to_the_same_bits(tmp_path, whole)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_a_checkpoint_at_the_next_step(tmp_path, kind):
    process = start(tmp_path, [dataclasses.replace(TRIAL, steps=100_000)], every=100_000)
    while not (tmp_path / "run" / "run.json").exists():
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(kind)
    assert process.wait(timeout=60) == 128 + kind
    said = process.stdout.read().splitlines()
    process.stdout.close()
    assert (
        said[0] == f"{kind.name}: saving a checkpoint after this step, then stopping; again to stop at once"
    )
    assert "can be resumed" in said[1]
    step = json.loads((tmp_path / "run" / "run.json").read_text())["steps"][0]
    assert 0 < step < 100_000
    state = files.read_tensors(tmp_path / "run" / "optimizer.safetensors")
    assert int(state["0/state/step"]) == int(state["0/state/counted"]) == step


def test_an_ignored_signal_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path, observe=hang_up)
    finally:
        signal.signal(signal.SIGHUP, before)


def hang_up(ensemble, step):
    os.kill(os.getpid(), signal.SIGHUP)
    return {}


@pytest.mark.parametrize("step", [1, 7, 33])
def test_means_between_two_records_survive_a_stop(tmp_path, monkeypatch, step):
    whole = unseam.train(TRIAL, every=25)
    stop_after(monkeypatch, step)
    with pytest.raises(unseam.training.Interrupted, match=f"stopped at step {step}; .* can be resumed"):
        unseam.train(TRIAL, every=25, out=tmp_path)
    monkeypatch.undo()
    resumed = unseam.train(TRIAL, every=25, out=tmp_path, resume=True)
    assert resumed.history.equals(whole.history)
    assert torch.equal(resumed.stacks[0].flat, whole.stacks[0].flat)


def stop_after(monkeypatch, step):
    """Let this process receive SIGTERM in the middle of a step."""
    from unseam.training import loop

    make, left = loop.make_step, iter(range(step - 1, -1, -1))

    def made(stack, world):
        advance = make(stack, world)

        def advanced(*given):
            if next(left, -1) == 0:
                os.kill(os.getpid(), signal.SIGTERM)
            return advance(*given)

        return advanced

    monkeypatch.setattr(loop, "make_step", made)


def test_checkpoints_come_by_time_between_records(tmp_path, monkeypatch):
    from unseam.training import run

    steps = []
    monkeypatch.setattr(run, "write_checkpoint", lambda folder, now, lock: steps.append(now.stacks[0].step))
    trial = dataclasses.replace(TRIAL, steps=4)
    unseam.train(trial, every=1000, out=tmp_path, checkpoint_seconds=0.0)
    assert steps == [0, 1, 2, 3, 4, 4]
    steps.clear()
    unseam.train(trial, every=1, out=tmp_path, checkpoint_seconds=1e9)
    assert steps == [0, 4]


def test_a_second_writer_is_refused(tmp_path):
    process = start(tmp_path, [dataclasses.replace(TRIAL, steps=100_000)], every=1000)
    while not (tmp_path / "run" / "run.json").exists():
        time.sleep(0.05)
    with pytest.raises(
        LockedError, match=f"is being written by process {process.pid} on .* since .*; wait until"
    ):
        unseam.train(dataclasses.replace(TRIAL, steps=100_000), out=tmp_path / "run", resume=True)
    process.kill()
    process.wait()
    process.stdout.close()
    # its lock is there, and dead
    assert (tmp_path / "run" / ".lock").exists()
    with pytest.raises(ValueError, match="holds a run of other trials"):
        unseam.train(TRIAL, out=tmp_path / "run", resume=True)
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_writer_that_lost_its_lock_writes_no_more(tmp_path):
    def lose(ensemble, step):
        (tmp_path / ".lock").write_text(json.dumps({"pid": 7, "host": "other", "since": "noon"}))
        return {}

    with pytest.raises(LockedError, match="taken over by process 7 on other since noon"):
        unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path, observe=lose)
    assert json.loads((tmp_path / "run.json").read_text())["steps"] == [0]
    assert {path.name for path in tmp_path.iterdir()} == {*NAMED, "run.json", ".lock"}


@pytest.mark.parametrize("name", ["weights.safetensors", "history.parquet"])
def test_a_flipped_bit_is_noticed(tmp_path, name):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    flip(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} is .*damaged"):
        unseam.load(tmp_path)


def test_a_flipped_bit_of_the_optimiser_is_noticed(tmp_path, monkeypatch):
    stop_after(monkeypatch, 2)
    with pytest.raises(unseam.training.Interrupted):
        unseam.train(TRIAL, out=tmp_path)
    monkeypatch.undo()
    flip(tmp_path / "optimizer.safetensors")
    with pytest.raises(ValueError, match="optimizer.safetensors is damaged: its content has changed since"):
        unseam.train(TRIAL, out=tmp_path, resume=True)


def flip(path):
    content = bytearray(path.read_bytes())
    content[-9] ^= 4
    path.write_bytes(content)


def test_runs_of_an_earlier_version_load_and_resume(tmp_path, monkeypatch):
    """They had no digests, and everything that resuming needs in one file."""
    whole = unseam.train(TRIAL, every=10)
    stop_after(monkeypatch, 20)
    with pytest.raises(unseam.training.Interrupted):
        unseam.train(TRIAL, every=10, out=tmp_path)
    monkeypatch.undo()
    record = json.loads((tmp_path / "run.json").read_text())
    del record["files"], record["digest"]
    files.write_json(tmp_path / "run.json", record)
    state = files.read_tensors(tmp_path / "optimizer.safetensors") | weights(tmp_path)
    del state["0/state/counted"]
    files.write_tensors(tmp_path / "optimizer.safetensors", state, note={"format": "1"})
    assert unseam.load(tmp_path).stacks[0].step == 20
    resumed = unseam.train(TRIAL, every=10, out=tmp_path, resume=True)
    assert torch.equal(resumed.stacks[0].flat, whole.stacks[0].flat)
    assert resumed.history.equals(whole.history)


def test_files_respect_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


def test_tensors_are_written_as_safetensors_reads_them(tmp_path):
    from safetensors.torch import load_file

    kinds = (
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.uint8,
    )
    tensors = {str(kind): torch.arange(6).to(kind).reshape(2, 3).T for kind in kinds}
    tensors |= {"flag": torch.tensor([True, False]), "none": torch.empty(0, 3), "scalar": torch.tensor(7)}
    files.write_tensors(tmp_path / "t.safetensors", tensors, note={"format": "1"})
    again = load_file(tmp_path / "t.safetensors")
    assert set(again) == set(tensors)
    for name, value in tensors.items():
        assert again[name].dtype == value.dtype and torch.equal(again[name], value)


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


def test_a_run_may_lie_behind_a_link_that_leads_somewhere(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path / "link")
    assert unseam.load(tmp_path / "real").steps == (1,)
    (tmp_path / "lost").symlink_to("nowhere")
    with pytest.raises(
        ValueError, match="out must be a folder, but .*lost is a link to nowhere, which does not exist"
    ):
        unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path / "lost")


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
    write_record(tmp_path, record | {"format": 99})
    with pytest.raises(ValueError, match="has format 99, expected 1"):
        unseam.load(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    held = weights(tmp_path)
    name = next(iter(held))
    files.write_tensors(tmp_path / "weights.safetensors", held | {name: torch.zeros(1)}, note={})
    record = json.loads((tmp_path / "run.json").read_text())
    record["files"]["weights.safetensors"] = files.digest(tmp_path / "weights.safetensors")
    write_record(tmp_path, record)
    with pytest.raises(ValueError, match="must hold .* of shape .*, got .1,."):
        unseam.load(tmp_path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda table: table.drop(columns="step"), "must have a column 'step' of its kind, got member, "),
        (lambda table: table.astype({"step": str}), "must have a column 'step' of its kind, got "),
        (lambda table: table.astype({"alive": float}), "must have a column 'alive' of its kind, got float64"),
    ],
    ids=["missing", "words", "numbers"],
)
def test_a_history_of_other_columns_is_refused(tmp_path, harm, message):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    path = tmp_path / "history.parquet"
    harm(files.read_table(path)).to_parquet(path)
    record = json.loads((tmp_path / "run.json").read_text())
    record["files"][path.name] = files.digest(path)
    write_record(tmp_path, record)
    with pytest.raises(ValueError, match=f"history.parquet {message}"):
        unseam.load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[" * 10**5, '{"a": ' + "1" * 10**5 + "}", "\xff"])
def test_what_is_no_json_is_named(text, tmp_path):
    (tmp_path / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="run.json is damaged"):
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


def test_saving_what_was_loaded_leaves_the_training_resumable(tmp_path, monkeypatch):
    whole = unseam.train(TRIAL)
    stop_after(monkeypatch, 2)
    with pytest.raises(unseam.training.Interrupted):
        unseam.train(TRIAL, out=tmp_path)
    monkeypatch.undo()
    unseam.save(unseam.load(tmp_path), tmp_path)
    assert torch.equal(unseam.train(TRIAL, out=tmp_path, resume=True).stacks[0].flat, whole.stacks[0].flat)


def test_saving_other_weights_over_a_training_is_refused(tmp_path):
    trial = dataclasses.replace(TRIAL, steps=3)
    ensemble = unseam.train(trial, out=tmp_path)
    with torch.no_grad():
        ensemble.stacks[0].flat.add_(1)
    with pytest.raises(ValueError, match="holds a training of the same trials with other weights"):
        unseam.save(ensemble, tmp_path)


def test_a_saved_ensemble_is_not_resumed(tmp_path):
    trial = dataclasses.replace(TRIAL, steps=3)
    unseam.save(unseam.train(trial), tmp_path)
    unseam.save(unseam.load(tmp_path), tmp_path)
    with pytest.raises(ValueError, match="holds a saved ensemble, not a training to go on with"):
        unseam.train(trial, out=tmp_path, resume=True)


def test_saving_what_was_loaded_keeps_the_state_to_resume(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        unseam.train(TRIAL, out=tmp_path, every=100, observe=interrupt)
    before = (tmp_path / "optimizer.safetensors").read_bytes()
    unseam.save(unseam.load(tmp_path), tmp_path)
    assert (tmp_path / "optimizer.safetensors").read_bytes() == before
    assert unseam.load(tmp_path).steps == (0,)
    assert unseam.train(TRIAL, out=tmp_path, resume=True).steps == (TRIAL.steps,)


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


def test_a_sample_that_an_earlier_version_recorded_is_no_other_data(tmp_path):
    """Of a large table that is digested whole today."""
    trial, world = dataclasses.replace(TRIAL, steps=3), own_world(0)
    trained = unseam.train(trial, out=tmp_path, world=world)
    record = json.loads((tmp_path / "run.json").read_text())
    sampled = unseam.data.identify_data(world, read=20)
    record["worlds"][0] |= {"read": 20, "digest": sampled.digest, "sketch": sampled.sketch}
    write_record(tmp_path, record)
    unseam.save(trained, tmp_path)
    unseam.train(trial, out=tmp_path, world=world, resume=True)
    with pytest.raises(ValueError, match="other values"):
        unseam.train(trial, out=tmp_path, world=own_world(1), resume=True)


def test_runs_of_earlier_versions_are_resumed(tmp_path):
    """They held the whole state in one file without digests, recorded name, size and options of their data, and nothing
    of why a member stopped."""
    unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    del record["stopped_by"], record["files"]
    held = ("name", "items", "twin_of", "options")
    record["worlds"] = [{key: world[key] for key in held} for world in record["worlds"]]
    write_record(tmp_path, record)
    state = files.read_tensors(tmp_path / "optimizer.safetensors")
    state |= files.read_tensors(tmp_path / "weights.safetensors")
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
    write_record(tmp_path, record)
    unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path, resume=True)
    after = json.loads((tmp_path / "run.json").read_text())
    assert after.pop("digest") != record.pop("digest")  # which write_record renewed
    assert after == record


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


def test_opening_a_run_imports_no_module_that_it_names(tmp_path, monkeypatch):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    (tmp_path / "evil_module.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    record["trials"][0]["objective"] = "evil_module:X"
    write_record(tmp_path, record)
    with pytest.raises(ValueError, match="'evil_module:X' is code that is not imported yet; if you trust it"):
        unseam.load(tmp_path)
    with pytest.raises(SystemExit, match="ran"):
        unseam.load(tmp_path, trust=True)


def test_a_record_of_a_huge_network_takes_no_memory(tmp_path):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    record["trials"][0]["encoder_widths"] = [10**7, 10**7]
    write_record(tmp_path, record)
    with pytest.raises(ValueError, match="weights.safetensors must hold .* of shape"):
        unseam.load(tmp_path)


def test_an_interrupt_after_the_commit_leaves_the_new_checkpoint(tmp_path, monkeypatch):
    """A second Ctrl-C while the folder is synchronised, when run.json names the new files already."""
    trial = dataclasses.replace(TRIAL, steps=3)
    whole = unseam.train(trial)
    calls, sync = [], files.sync_folder

    def interrupted(folder):
        calls.append(len(list(folder.glob(".*.new"))))
        record = folder / "run.json"
        if calls[-1] and record.exists() and json.loads(record.read_text())["complete"]:
            raise KeyboardInterrupt
        sync(folder)

    monkeypatch.setattr(files, "sync_folder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        unseam.train(trial, out=tmp_path)
    monkeypatch.undo()
    assert torch.equal(unseam.load(tmp_path).stacks[0].flat, whole.stacks[0].flat)


def test_files_of_others_are_left_alone(tmp_path):
    for name in (".env.new", ".tmpAbC123"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".tmpXyZ789").mkdir()
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    files.write_text(tmp_path / "page.html", "x")
    assert (tmp_path / ".tmpAbC123").exists()
    unseam.train(dataclasses.replace(TRIAL, steps=2), out=tmp_path)
    assert (tmp_path / ".env.new").exists() and (tmp_path / ".tmpXyZ789").is_dir()


def test_more_or_fewer_members_are_not_resumed(tmp_path):
    trials = [dataclasses.replace(TRIAL, seed=seed, steps=1) for seed in range(3)]
    unseam.train(trials[:2], out=tmp_path)
    for given, first in ((trials, 2), (trials[:1], 1), (trials[::2], 1)):
        with pytest.raises(ValueError, match=f"first difference at member {first}"):
            unseam.train(given, out=tmp_path, resume=True)


def test_members_that_stopped_stay_stopped_when_a_run_is_resumed(tmp_path, monkeypatch):
    calm = dataclasses.replace(TRIAL, optimiser="sgd", learning_rate=1e-4)
    trials = [calm, dataclasses.replace(calm, learning_rate=1e6)]
    with pytest.warns(unseam.training.DivergenceWarning):
        whole = unseam.train(trials)
    assert list(whole.stopped) == [1] and whole.stopped[1] < 40
    stop_after(monkeypatch, 50)
    with pytest.raises(unseam.training.Interrupted):
        unseam.train(trials, out=tmp_path, every=20)
    monkeypatch.undo()
    loaded = unseam.load(tmp_path).stacks[0]
    assert loaded.trials == tuple(trials)
    assert loaded.alive.tolist() == [True, False] and loaded.stopped_at.tolist() == [-1, whole.stopped[1]]
    weights_before = loaded.flat[1].clone()
    with pytest.warns(unseam.training.DivergenceWarning):
        resumed = unseam.train(trials, out=tmp_path, every=20, resume=True)
    assert resumed.stopped == whole.stopped and resumed.stopped_by == whole.stopped_by
    assert torch.equal(resumed.stacks[0].flat[1], weights_before)
    assert not resumed.stacks[0].alive[1] and resumed.stacks[0].alive[0]


def test_saving_a_loaded_training_again_writes_nothing(tmp_path):
    unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    unseam.save(unseam.load(tmp_path), tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trials": 7}, "trials"),
        ({"steps": "x"}, "steps"),
        ({"stopped": [1]}, "stopped"),
        ({"files": 3}, "files"),
    ],
)
def test_a_record_of_other_kinds_is_refused(tmp_path, change, said):
    unseam.train(dataclasses.replace(TRIAL, steps=1), out=tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    write_record(tmp_path, record | change)
    with pytest.raises(ValueError, match=f"run.json .*{said}"):
        unseam.load(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"beta": 1.0', '"beta": 9.0'), ('"complete": true', '"complete": tru3'), ('"seed": 0', '"seed": 1')],
)
def test_a_record_that_has_changed_is_noticed(tmp_path, old, new):
    unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path)
    text = (tmp_path / "run.json").read_text()
    assert old in text
    (tmp_path / "run.json").write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match="run.json is damaged"):
        unseam.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": [4]}, "steps must be at most 3, got 4"),
        ({"sizes": [10**15]}, "sizes must be 1 of 300 items, got 1000000000000000"),
        ({"stopped": {"1": 2}}, "stopped names member 1 of 1"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(tmp_path, change, said):
    unseam.train(dataclasses.replace(TRIAL, steps=3), out=tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    write_record(tmp_path, record | change)
    with pytest.raises(ValueError, match=f"run.json is damaged: {said}"):
        unseam.load(tmp_path)


def test_a_vae_of_a_part_of_the_data_is_saved_and_loaded(tmp_path):
    world, trial = (
        unseam.data.load("linear", size=50),
        dataclasses.replace(TRIAL, train_fraction=0.8, steps=1),
    )
    model = unseam.train(trial, world=world, device="cpu")[0]
    unseam.save(model, tmp_path, trial=trial, world=world)
    assert unseam.load(tmp_path).stacks[0].template.size == 40
    record = json.loads((tmp_path / "run.json").read_text())
    del record["digest"]  # an earlier version had none, and recorded all items
    files.write_json(tmp_path / "run.json", record | {"sizes": [50]})
    assert unseam.load(tmp_path).stacks[0].template.size == 50
