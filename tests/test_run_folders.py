"""Run folders in use: choices inside a class, hostile sizes, several scores at once, trainings that go on."""

import dataclasses
import json
import multiprocessing
import os
import shutil
import sys
import time

import pytest
import torch

import unseam
from unseam.cli import main
from unseam.locks import LockedError, lock_folder
from unseam.run import Run, score
from unseam.training import checkpoint

TRIAL = unseam.Trial(
    world="linear",
    world_options={"size": 200},
    likelihood="gaussian",
    latent=2,
    steps=6,
    batch_size=4,
    encoder_widths=(4,),
    decoder_widths=(4,),
)

OWN = """
from unseam import choices
from unseam.objectives import beta_elbo

class Family:
    own = choices.Objective("own", "own", beta_elbo, options=choices.objective("beta_elbo").options)
    called = property(lambda self: 1 / 0)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "family_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "family_module", raising=False)
    return dataclasses.replace(TRIAL, objective="family_module:Family.own")


@pytest.fixture
def run(tmp_path):
    unseam.train([TRIAL, dataclasses.replace(TRIAL, seed=1)], out=tmp_path / "run", device="cpu")
    return tmp_path / "run"


def rewrite(folder, change):
    record = json.loads((folder / "run.json").read_text())
    change(record)
    checkpoint.write_record(folder, record)


def test_a_choice_inside_a_class_is_resumed_and_loaded(own, tmp_path):
    out = tmp_path / "run"
    trained = unseam.train(own, out=out, device="cpu")
    resumed = unseam.train(own, out=out, resume=True, device="cpu")
    assert resumed.trials == trained.trials == unseam.load(out).trials
    unseam.save(trained, out)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("family_module:Family.absent", "module 'family_module' has no 'Family.absent'"),
        ("family_module:Family.called", "must be a choices.Objective, got property"),
    ],
)
def test_looking_up_an_imported_choice_runs_nothing(name, message, own, run):
    rewrite(run, lambda record: record["trials"][0].update(objective=name))
    with pytest.raises(ValueError, match=message):
        unseam.load(run)


@pytest.mark.parametrize(
    ("world", "options", "message"),
    [
        ("linear", {"size": 10**12}, "size 1000000000000 needs .* GB of memory, but .* GB are free"),
        ("nonlinear", {"size": 10**12}, "size 1000000000000 needs"),
        ("circles", {"size": 10**12}, "size 1000000000000 needs"),
        ("mixture", {"size": 10**10}, "size 10000000000 needs"),
        ("moving_digit", {"size": 10**9}, "size 1000000000 needs"),
        ("moving_digit", {"canvas": 10**6}, "canvas 1000000 needs"),
        ("sprites", {"resolution": 10**6}, "resolution 1000000 needs"),
        ("sprites", {"scales": 10**12}, "scales 1000000000000 needs"),
        ("sprites", {"positions": 10**6}, "the number of images .* needs"),
        ("shapes", {"hues": 10**4}, "the number of images .* needs"),
        ("linear", {"size": 10**400}, "size 1000.* needs"),
        ("linear", {"ratio": 10**400}, "int too large"),
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_a_record_of_huge_data_takes_no_memory(world, options, message, given, run):
    def change(record):
        for trial in record["trials"]:
            trial.update(world=world, world_options=options)
        record["worlds"][0].update(name=world, options=options, given=given)

    rewrite(run, change)
    with pytest.raises(ValueError, match=message) as caught:
        _ = Run.open(run).world.factors
    assert "\n" not in str(caught.value)


def _score(folder, metric, go):
    torch.set_num_threads(1)
    go.wait(60)
    score(folder, [metric], points=100)


def test_two_scores_at_once_both_stay(run):
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        (run / "scores.parquet").unlink(missing_ok=True)
        go = context.Event()
        metrics = ["mig", "sap", "mcc"]
        processes = [context.Process(target=_score, args=(run, metric, go)) for metric in metrics]
        for process in processes:
            process.start()
        go.set()
        for process in processes:
            process.join(120)
        assert [process.exitcode for process in processes] == [0, 0, 0]
        assert sorted(set(Run.open(run).scores.metric)) == sorted(metrics)


def test_scores_of_a_run_that_was_opened_earlier_stay(run):
    """The same, without luck: both opened the run before either wrote."""
    first, second = Run.open(run), Run.open(run)
    assert first.scores is None and second.scores is None
    score(first, ["mig"], points=100)
    score(second, ["sap"], points=100)
    assert sorted(set(Run.open(run).scores.metric)) == sorted(set(second.scores.metric)) == ["mig", "sap"]
    assert not list(run.glob(".*lock*"))


def test_scores_are_written_while_a_training_holds_the_folder(run):
    with lock_folder(run):
        assert len(score(run, ["mig"], points=100)) == 2


def test_a_lock_is_waited_for(tmp_path):
    with lock_folder(tmp_path, ".scores.lock"), lock_folder(tmp_path):
        began = time.monotonic()
        with (
            pytest.raises(LockedError, match="is being written by process"),
            lock_folder(tmp_path, ".scores.lock", wait=0.2),
        ):
            pass
        assert time.monotonic() - began >= 0.2
    with lock_folder(tmp_path, ".scores.lock"):
        pass


def _half_way(tmp_path, monkeypatch):
    """A run whose first checkpoint is of half its steps, as after an interrupt."""
    out, trial, written = tmp_path / "run", TRIAL, checkpoint.write_checkpoint

    def stop(folder, ensemble, lock=None, *, state=True):
        written(folder, ensemble, lock, state=state)
        if ensemble.steps[0] == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("unseam.training.run.write_checkpoint", stop)
    with pytest.raises(KeyboardInterrupt):
        unseam.train(trial, out=out, device="cpu", checkpoint_seconds=0)
    monkeypatch.setattr("unseam.training.run.write_checkpoint", written)
    return trial, out


def test_a_run_opened_while_its_training_goes_on_is_read_as_it_is_now(tmp_path, monkeypatch):
    trial, out = _half_way(tmp_path, monkeypatch)
    opened = Run.open(out)
    stale = opened.weights
    assert str(opened.standing[0]) == "unfinished, 3 of 6 steps"
    trained = unseam.train(trial, out=out, resume=True, device="cpu")
    inspected = opened.inspect(points=20)
    assert opened.standing[0].steps == 6 and opened.remarks() == []
    assert torch.equal(opened.ensemble.stacks[0].flat, trained.stacks[0].flat)
    assert opened.weights == Run.open(out).weights != stale
    assert inspected[0].dto == Run.open(out).inspect(points=20)[0].dto
    table = score(opened, ["mig"], points=100)
    assert set(table.step) == {6} and Run.open(out).scores is not None


def test_a_checkpoint_exchanged_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    """Between run.json and the weights."""
    trial, out = _half_way(tmp_path, monkeypatch)
    opened, read, gone_on = Run.open(out), checkpoint.read_tensors, []

    def exchange(path):
        if not gone_on:
            gone_on.append(path)
            unseam.train(trial, out=out, resume=True, device="cpu")
        return read(path)

    monkeypatch.setattr(checkpoint, "read_tensors", exchange)
    assert list(opened.ensemble.steps) == [6]
    assert opened.standing[0].steps == 6


def test_another_run_in_the_place_of_the_one_opened_is_refused(run, tmp_path):
    opened = Run.open(run)
    for file in run.iterdir():
        file.unlink()
    unseam.train(dataclasses.replace(TRIAL, seed=5), out=run, device="cpu")
    with pytest.raises(
        ValueError, match="holds a run of other trials than when it was opened; open it again"
    ):
        _ = opened.ensemble


@pytest.mark.parametrize("command", ["inspect", "score"])
def test_a_member_that_is_not_there(command, run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["unseam", command, str(run), "--member", "3"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    text = capsys.readouterr().err.strip()
    assert text == f"unseam: member must lie in [0, 2), got 3: {run} has 2 members, counted from 0"


def test_a_member_that_diverged_is_named_with_its_step(run, capsys, monkeypatch):
    def change(record):
        record["stopped"], record["stopped_by"] = {"1": 4}, {"1": "its loss"}

    rewrite(run, change)
    monkeypatch.setattr(sys, "argv", ["unseam", "inspect", str(run), "--member", "1", "--points", "20"])
    main()
    shown = " ".join(capsys.readouterr().out.split())
    assert "note: member 1 of 2: diverged at step 4, its loss no longer finite" in shown

    opened = Run.open(run)
    opened.ensemble.stacks[0].flat[1] = float("nan")
    with pytest.raises(
        ValueError, match=r"member 1 cannot be measured, .*\(diverged at step 4, its loss no longer finite\)"
    ):
        opened.inspect([1], points=20)
    with pytest.raises(
        ValueError, match=r"member 1 cannot be measured, .* codes are not finite \(diverged at"
    ):
        opened.codes([1])
    pytest.importorskip("nicegui", reason="the explorer's extra is not installed")
    with pytest.raises(
        ValueError, match=r"seed 1 \(diverged at step 4, .*\) cannot be explored, choose another"
    ):
        unseam.explore.serve(opened, member=1, open_browser=False)
    with pytest.raises(ValueError, match=r"members \[0\], got 1 \(diverged at step 4, .*\); name all that"):
        unseam.explore.export(opened, run / "page.html", first=1)


@pytest.mark.parametrize("damage", ["cut", "kind", "pipe"])
def test_damaged_scores_are_an_error_before_anything_is_measured(damage, run, monkeypatch):
    table, path = score(run, ["mig"], points=50), run / "scores.parquet"
    path.unlink()
    if damage == "kind":
        table.assign(member=float("nan")).to_parquet(path)
    elif damage == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"PAR1")
    monkeypatch.setattr("unseam.run.evaluate_active", lambda *given, **options: pytest.fail("measured"))
    with pytest.raises(ValueError, match=r"scores.parquet (is truncated or damaged|must)"):
        score(run, ["sap"], points=50)


def test_a_copy_of_a_folder_in_use_says_how_to_free_it(run, tmp_path):
    with lock_folder(run):
        shutil.copytree(run, tmp_path / "copy")
        with pytest.raises(
            LockedError, match=f"if this is a copy of {run}, remove {tmp_path / 'copy' / '.lock'}"
        ):
            unseam.train(TRIAL, out=tmp_path / "copy", resume=True, device="cpu")
        with pytest.raises(LockedError, match="choose another folder$"):
            unseam.train(TRIAL, out=run, resume=True, device="cpu")
    (tmp_path / "copy" / ".lock").unlink()
    with lock_folder(tmp_path / "copy"):
        pass


def test_folders_above_a_new_run_are_made(tmp_path):
    with lock_folder(tmp_path / "runs" / "one") as lock:
        lock.check()
    assert list((tmp_path / "runs" / "one").iterdir()) == []
