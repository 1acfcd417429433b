"""Running sweeps: each trial once, whoever works, however often it is stopped."""

import json
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

import unseam
from unseam import sweep
from unseam.cli import app
from unseam.independence import coupling
from unseam.run import Run
from unseam.sweep import Job, Score, measures, work
from unseam.sweep.engines import _watch
from unseam.sweep.store import Store, trial_row
from unseam.trial import Trial

SMALL = {
    "world": "linear", "likelihood": "gaussian", "latent": 2, "steps": 6, "batch_size": 4,
    "encoder_widths": [4], "decoder_widths": [4],
}  # fmt: skip
SCORE = {"points": 20, "items": 50, "metrics": ["mig"]}


def spec(seeds=3, **trial):
    return {
        "trial": SMALL | trial,
        "axes": {"beta": [0.01, 0.1], "seed": {"range": [0, seeds]}},
        "score": SCORE,
    }


def counted(calls):
    def train(trials, **options):
        calls.append([trial.key() for trial in trials])
        return unseam.train(trials, **options)

    return train


def job(store, given, **options):
    found = sweep.read_spec(given)
    return Job(str(store), found.trials, found.score, device="cpu", **options)


def test_rows_say_what_each_model_is_and_what_was_measured(tmp_path):
    table = sweep.run(spec(), tmp_path, device="cpu", stack=4, weights=True).table()
    assert len(table) == table["key"].nunique() == 6
    assert table[["mig", "delta_kl", "precision_error", "udr", "elbo"]].notna().all().all()
    assert (table["udr_seeds"] == 3).all()
    row = table.iloc[4]
    run = sweep.open(tmp_path).run(row["stack"])
    member = int(row["member"])
    assert run.trials[member].key() == row["key"]
    found = run.inspect([member], points=20)[member]
    assert row["delta_kl"] == pytest.approx(found.delta_kl, rel=1e-5)
    assert row["run"] == f"runs/{row['stack']}"
    assert not list((tmp_path / "work").iterdir())
    assert not list((tmp_path / "claims").iterdir())


def test_a_models_row_does_not_depend_on_its_stack(tmp_path):
    columns = ["beta", "seed", "loss", "delta_kl", "mig"]
    one, other = (
        sweep.run(spec(), tmp_path / str(size), device="cpu", stack=size).table()[columns] for size in (1, 6)
    )
    one, other = (table.sort_values(["beta", "seed"]).to_numpy() for table in (one, other))
    assert one == pytest.approx(other, rel=1e-4)


def test_only_what_is_missing_is_trained(tmp_path):
    calls = []
    assert work(job(tmp_path, spec(seeds=2)), train=counted(calls)) == {}
    assert work(job(tmp_path, spec(seeds=2)), train=counted(calls)) == {}
    assert [len(call) for call in calls] == [4]
    assert work(job(tmp_path, spec(seeds=3)), train=counted(calls)) == {}
    assert [len(call) for call in calls] == [4, 2]
    assert len(Store(tmp_path).table()) == 6


def test_a_stack_that_runs_out_of_memory_is_halved(tmp_path):
    calls = []

    def train(trials, **options):
        calls.append(len(trials))
        if len(trials) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return unseam.train(trials, **options)

    assert work(job(tmp_path, spec(seeds=4)), train=train) == {}
    assert calls == [8, 4, 2, 2, 2, 2]
    assert len(Store(tmp_path).table()) == 8


def test_what_does_not_fit_at_all_or_cannot_be_trained_fails_alone(tmp_path):
    def train(trials, **options):
        if trials[0].latent == 2:
            raise MemoryError
        return unseam.train(trials, **options)

    both = spec(seeds=1)
    both["axes"]["latent"] = [2, 3]
    failed = work(job(tmp_path, both), train=train)
    assert set(failed.values()) == {"does not fit the memory of cpu"}
    assert len(failed) == len(Store(tmp_path).table()) == 2
    (tmp_path / "again").mkdir()
    broken = spec(world="absent:WORLD")
    with pytest.raises(ValueError, match="absent"):
        sweep.run(broken, tmp_path / "again", device="cpu")


def test_a_diverged_member_has_a_row_without_measures(tmp_path):
    given = spec(seeds=1) | {"axes": {"learning_rate": [1e-3, 1e30]}}
    given["trial"] = given["trial"] | {"optimiser": "sgd", "steps": 40}
    table = sweep.run(given, tmp_path, device="cpu").table().sort_values("learning_rate")
    assert table["stopped"].isna().tolist() == [True, False]
    assert table["cosine"].isna().tolist() == [False, True]


def test_a_stopped_stack_goes_on_from_its_checkpoint_at_any_address(tmp_path):
    steps = []

    def stopping(trials, **options):
        def stop(ensemble):
            if ensemble.steps[0] >= 20:
                raise unseam.training.Interrupted("stopped", signal.SIGINT)

        return unseam.train(trials, **options | {"checkpoint_seconds": 0, "callbacks": [stop], "every": 10})

    def going_on(trials, **options):
        def note(ensemble):
            steps.append(ensemble.steps[0])

        return unseam.train(trials, **options | {"callbacks": [note], "every": 10})

    for address in (tmp_path / "store", f"memory://{tmp_path.name}"):
        given = job(address, spec(seeds=2, steps=40))
        steps.clear()
        with pytest.raises(unseam.training.Interrupted):
            work(given, train=stopping)
        assert [claim.living for claim in Store(address).claims()] == [False]
        assert work(given, train=going_on) == {}
        assert steps[0] == 20  # not 10: the checkpoint was at step 19
        assert len(Store(address).table()) == 4
        assert not Store(address).claims()


@pytest.mark.parametrize("late", [False, True])
def test_who_was_taken_over_neither_writes_rows_nor_removes_the_checkpoint(tmp_path, late):
    """As after a long suspension: another process works on the trials, or has finished them."""
    given, store, others = job(tmp_path, spec(seeds=2)), Store(tmp_path), []

    def suspended(trials, **options):
        done = unseam.train(trials, **options)
        if not others:
            (own,) = store.claims()
            others.append(store.hold(trials[:0], instead=own.token))
            others[0].keys = own.keys
            others[0]._write()
            if late:
                store.append([trial_row(trial) | {"stopped": None, "mig": 9.0} for trial in trials])
                others[0].finish()
            else:
                threading.Timer(3.0, others[0].release).start()
        return done

    assert work(given, train=suspended) == {}
    table = store.table()
    assert len(table) == 4
    assert (table["mig"] == 9.0).all() == late
    assert sum(int(name.partition("-")[2].removesuffix(".parquet")) for name in store.parts()) == 4
    assert late or len(others) == 1


def test_a_full_disk_ends_the_sweep_and_what_was_trained_waits(tmp_path, monkeypatch):
    calls, given = [], job(tmp_path, spec(seeds=2))

    def full(store, rows, folder="parts"):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", full)
        with pytest.raises(OSError, match="No space left"):
            work(given)
    assert work(given, train=lambda trials, **o: calls.append(unseam.train(trials, **o)) or calls[0]) == {}
    assert len(Store(tmp_path).table()) == 4
    assert len(list(tmp_path.glob("work/*"))) == 0


def test_a_stack_counts_by_its_training_and_by_its_measuring(tmp_path, monkeypatch):
    """What is trained and not yet measured is not done, or the time left would be too short."""
    monkeypatch.setattr("unseam.sweep.store.HEARTBEAT", 0.05)
    seen = []

    def look(run, members, settings):
        wait_until(lambda: Store(tmp_path).claims()[0].models >= 2 + len(seen))
        seen.append(Store(tmp_path).claims()[0].models)
        return {}

    for name in ("first", "second"):
        monkeypatch.setitem(sweep.MEASURES, name, look)
    assert work(job(tmp_path, spec(seeds=2) | {"score": {"measures": ["first", "second"]}})) == {}
    assert seen == [2.0, 3.0]


def test_names_of_measures_are_checked_before_training(tmp_path):
    with pytest.raises(ValueError, match="score.metrics must be .* got 'migg'"):
        sweep.run(spec() | {"score": {"metrics": ["migg"]}}, tmp_path)
    with pytest.raises(ValueError, match="score.measures must be"):
        sweep.run(spec() | {"score": {"measures": ["cosines"]}}, tmp_path)
    assert not list(tmp_path.iterdir())


# Several processes

WORKER = [sys.executable, "-m", "unseam.sweep.worker"]


def started(given):
    process = subprocess.Popen(WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write(given.to_json() + "\n")
    process.stdin.flush()
    return process


def wait_until(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_two_processes_share_a_store_and_one_that_is_killed_is_replaced(tmp_path):
    """One is killed in the middle of a stack: the other takes over from its checkpoint; nothing is done twice."""
    given = job(tmp_path, spec(seeds=4, steps=600), stack=4, checkpoint_seconds=0.5)
    processes = [started(given) for _ in range(2)]
    try:
        wait_until(lambda: len([c for c in Store(tmp_path).claims() if c.living]) == 2)
        claims = [set(claim.keys) for claim in Store(tmp_path).claims() if claim.living]
        assert not claims[0] & claims[1]
        wait_until(lambda: len(list((tmp_path / "work").glob("*/optimizer.safetensors"))) == 2)
        processes[0].kill()
        assert processes[1].wait(180) == 0
        assert json.loads(processes[1].stdout.read()) == {}
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    store = Store(tmp_path)
    assert len(store.table()) == 8
    assert sum(int(name.partition("-")[2].removesuffix(".parquet")) for name in store.parts()) == 8
    assert not store.claims()
    assert not list((tmp_path / "work").iterdir())


def test_workers_divide_the_work_and_stop_with_whoever_started_them(tmp_path):
    """A worker whose parent ends saves a checkpoint; the local engine then finishes with two of its own."""
    given = job(tmp_path, spec(seeds=2, steps=1200), checkpoint_seconds=1000)
    process = started(given)
    try:
        wait_until(lambda: list((tmp_path / "work").glob("*/run.json")))
        process.stdin.close()
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.stdout.close()
    (left,) = Store(tmp_path).claims()
    assert not left.living
    done = sweep.run(spec(seeds=2, steps=1200) | {"axes": {"beta": [0.01, 0.1], "seed": [0, 1, 2, 3]}}, tmp_path,
                     device="cpu", workers=2)  # fmt: skip
    assert len(done.table()) == 8
    assert len(done.store.parts()) <= 3


def test_a_run_of_a_store_that_is_no_folder_is_copied_to_one(tmp_path):
    done = sweep.run(spec(seeds=1), "memory://copied", device="cpu", weights=True)
    stack = done.table()["stack"].iloc[0]
    with pytest.raises(ValueError, match="is no folder: say where to copy the run to"):
        done.run(stack)
    assert len(done.run(stack, folder=tmp_path).trials) == 2
    assert (tmp_path / stack / "run.json").exists()


def test_an_interruption_of_one_worker_stops_the_others():
    class Script:
        def __init__(self, script):
            self.process = subprocess.Popen(
                [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
            )

        def close(self):
            return self.process.communicate()[0]

    lasting, began = Script("import time; time.sleep(60)"), time.monotonic()
    try:
        with pytest.raises(unseam.training.Interrupted, match="a worker was stopped"):
            _watch([lambda: lasting, lambda: Script(f"import sys; sys.exit({128 + signal.SIGINT})")])
        assert lasting.process.poll() is not None and time.monotonic() - began < 30
    finally:
        lasting.process.kill()


# The command


def command(*words, status=0):
    result = CliRunner().invoke(app, ["sweep", *map(str, words)])
    assert result.exit_code == status, result.output or result.exception
    return result.stdout


def test_the_command_plans_runs_and_reports_as_json(tmp_path):
    (tmp_path / "spec.toml").write_text(
        """
        questions = ["Does it run?"]
        [trial]
        world = "linear"
        likelihood = "gaussian"
        latent = 2
        steps = 3
        batch_size = 4
        [axes]
        seed = {range = [0, 3]}
        [score]
        measures = ["training"]
        """
    )
    words = (tmp_path / "spec.toml", "--store", tmp_path / "store", "--device", "cpu")
    text = command(*words, "--dry-run")
    assert "Question: Does it run?" in text
    assert "3 trials, 3 without a row" in text
    plan = json.loads(command(*words, "--dry-run", "--json", "--stack", 2))
    assert [row["stacks"] for row in plan["stacks"]] == [2]
    assert not (tmp_path / "store").exists()
    expected = {"store": str(tmp_path / "store"), "trials": 3, "rows": 3, "diverged": 0}
    assert json.loads(command(*words, "--json")) == expected
    assert json.loads(command(*words, "--dry-run", "--json"))["stacks"] == []
    assert "unseam report" in command(*words)
    result = CliRunner().invoke(app, ["sweep", *map(str, words), "--option", "address=auto"])
    assert "unexpected keyword argument 'address'" in str(result.exception)


def test_members_fit_what_is_free(monkeypatch):
    from unseam.sweep import pieces

    trial = Trial(latent=2)
    each = pieces.member_bytes(trial, (1, 64, 64))
    monkeypatch.setattr(pieces, "free_memory", lambda device: int(5.5 * each / pieces.USED))
    assert pieces.capacity(trial, (1, 64, 64), torch.device("cpu")) == 5
    assert pieces.capacity(trial, (1, 64, 64), torch.device("cpu"), share=0.01) == 1


@pytest.mark.parametrize("mask", [[True, False, True], [False, True, False]])
def test_coupling_of_active_latents_is_that_with_the_others_held(monkeypatch, mask):
    trial = Trial(**SMALL | {"latent": 3, "precision": "float64"})
    run, settings = Run.of(unseam.train(trial, device="cpu")), Score(points=5)
    active = torch.tensor(mask)
    monkeypatch.setattr(Run, "inspect", lambda *_, **__: {0: SimpleNamespace(active=active)})
    (found,) = measures.coupling(run, [0], settings).values()
    decode, codes = run.subject(0).decoder, run.codes([0], points=5, seed=settings.seed).mean[0]
    assert found["coupling"] == pytest.approx(float(coupling(decode, codes).off_diagonal))
    if active.sum() < 2:
        assert found["coupling_active"] is None
        return

    def held(code):
        return lambda u: decode(u @ torch.eye(3, dtype=code.dtype)[active] + code * ~active)

    each = [coupling(held(code), code[active][None]).off_diagonal for code in codes]
    assert found["coupling_active"] == pytest.approx(float(torch.stack(each).mean()))
    assert found["coupling_active"] != pytest.approx(found["coupling"], rel=1e-3)


def test_a_measure_of_ones_own_adds_columns(tmp_path, monkeypatch):
    (tmp_path / "own_measures.py").write_text(
        "def seeds(run, members, settings):\n    return {m: {'twice': 2 * run.trials[m].seed} for m in members}\n"
        "def broken(run, members, settings):\n    raise ValueError('no such thing')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    score = Score(measures=["own_measures:seeds", "own_measures:broken"]).to_dict()
    table = sweep.run(spec() | {"score": score}, tmp_path / "store", device="cpu").table()
    assert table["twice"].tolist() == (2 * table["seed"]).tolist()
    assert set(table["broken_note" if "broken_note" in table else "own_measures:broken_note"]) == {
        "no such thing"
    }
