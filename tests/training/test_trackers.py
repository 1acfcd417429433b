"""Trackers: what the record of a model holds."""

import dataclasses
import math
import sys

import pytest
from typer.testing import CliRunner

import unseam
from unseam import sweep
from unseam.cli import app
from unseam.training import EarlyStopping, Tracker, Tracking, TrackingWarning, trackers

TRIAL = unseam.Trial(
    world="linear", likelihood="gaussian", latent=2, steps=30, batch_size=8, encoder_widths=(4,), decoder_widths=(4,)
)  # fmt: skip


class Recorded:
    """A tracker in memory: calls in order, and numbers by model, step and name."""

    def __init__(self):
        self.calls, self.numbers, self.settings = [], {}, {}

    def begin(self, key, settings):
        self.calls.append(("begin", key))
        self.settings[key] = settings

    def log(self, key, values, step):
        self.calls.append(("log", key, step))
        self.numbers.setdefault(key, {}).setdefault(step, {}).update(values)

    def end(self, key):
        self.calls.append(("end", key))


RECORDED = Recorded()


def compare(recorded, ensemble):
    """Assert that what was recorded is the history, number by number."""
    for row in ensemble.history[ensemble.history["alive"]].to_dict("records"):
        sent = recorded.numbers[ensemble.trials[row["member"]].key()][row["step"]]
        assert sent == {name: row[name] for name in row.keys() - {"member", "step", "alive"}}


def test_a_record_is_the_history_of_its_model_in_stacks_of_any_shape():
    trials = [TRIAL, dataclasses.replace(TRIAL, seed=1), dataclasses.replace(TRIAL, latent=3)]
    recorded = Recorded()
    ensemble = unseam.train(trials, callbacks=[Tracking(recorded)], every=10, device="cpu")
    compare(recorded, ensemble)
    for trial in trials:
        its = [call for call in recorded.calls if call[1] == trial.key()]
        assert [call[0] for call in its] == ["begin", "log", "log", "log", "end"]
        assert [call[2] for call in its[1:-1]] == [10, 20, 30]
        assert recorded.settings[trial.key()] == trial.to_dict()


def test_a_resumed_run_has_one_whole_record(tmp_path):
    def stop(ensemble):
        if ensemble.steps[0] == 20:
            raise KeyboardInterrupt

    recorded = Recorded()
    options = {"out": tmp_path / "run", "every": 10, "device": "cpu", "checkpoint_seconds": 0}
    with pytest.raises(KeyboardInterrupt):
        unseam.train(TRIAL, callbacks=[Tracking(recorded), stop], **options)
    ensemble = unseam.train(TRIAL, callbacks=[Tracking(recorded)], resume=True, **options)
    compare(recorded, ensemble)
    assert sorted(recorded.numbers[TRIAL.key()]) == [10, 20, 30] and recorded.calls[-1] == (
        "end",
        TRIAL.key(),
    )


def test_models_that_stop_early_or_diverge_end_their_records():
    wild = dataclasses.replace(TRIAL, optimiser="sgd", learning_rate=1e30)
    recorded = Recorded()
    with pytest.warns(unseam.training.DivergenceWarning):
        unseam.train(
            [dataclasses.replace(wild, learning_rate=1e-3), wild],
            callbacks=[EarlyStopping(1, improvement=math.inf), Tracking(recorded)], every=5, device="cpu",
        )  # fmt: skip
    assert {call[1] for call in recorded.calls if call[0] == "begin"} == {
        call[1] for call in recorded.calls if call[0] == "end"
    }
    assert all(
        math.isfinite(v)
        for steps in recorded.numbers.values()
        for row in steps.values()
        for v in row.values()
    )


def test_commands_send_histories_and_scores(tmp_path, monkeypatch):
    monkeypatch.setattr("unseam.training.trackers.load_object", lambda name: RECORDED)
    run = str(tmp_path / "run")
    flags = "--world linear --likelihood gaussian --latent 2 --beta 0.01 --learning-rate 0.01 --steps 400 --every 200"
    for command in (["train", *flags.split(), "--out", run], ["score", run, "--metric", "mig"]):
        done = CliRunner().invoke(app, [*command, "--track", "mine.py:RECORDED", "--device", "cpu"])
        assert done.exit_code == 0, done.output
    opened = unseam.Run.open(run)
    sent = RECORDED.numbers[opened.trials[0].key()]
    assert sent[400]["mig"] == opened.scores["score"].item()
    assert sent[400]["loss"] == opened.ensemble.history["loss"].iloc[-1] and sorted(sent) == [200, 400]


def test_a_sweep_sends_histories_and_measures_and_its_rows_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("unseam.training.trackers.load_object", lambda name: RECORDED)
    spec = {
        "trial": TRIAL.to_dict(),
        "axes": {"seed": [5, 6]},
        "score": {"points": 20, "items": 50, "metrics": ["mig"]},
    }
    table = sweep.run(spec, tmp_path / "a", device="cpu", track="mine.py:RECORDED").table()
    for row in table.to_dict("records"):
        sent = RECORDED.numbers[row["key"]]
        assert {name: sent[30][name] for name in ("mig", "cosine", "loss")} == {
            name: pytest.approx(row[name]) for name in ("mig", "cosine", "loss")
        }
    assert RECORDED.calls[-1][0] == "end"
    with pytest.raises(ValueError, match="tracker must be"):
        sweep.run(spec, tmp_path / "b", device="cpu", track="notion")
    assert not (tmp_path / "b").exists()


class Down(Recorded):
    """A tracker whose server fails for some calls of one kind."""

    def __init__(self, kind, failures):
        super().__init__()
        self.kind, self.failures = kind, failures

    def _fail(self, kind):
        if kind == self.kind and self.failures > 0:
            self.failures -= 1
            raise ConnectionError("server is down")

    def begin(self, key, settings):
        self._fail("begin")
        super().begin(key, settings)

    def log(self, key, values, step):
        self._fail("log")
        super().log(key, values, step)

    def end(self, key):
        self._fail("end")
        super().end(key)


@pytest.mark.parametrize("kind", ["begin", "log", "end"])
@pytest.mark.parametrize("pause", [0.0, 1e9])
def test_a_tracker_that_fails_once_costs_nothing_and_misses_nothing(kind, pause, monkeypatch):
    monkeypatch.setattr(trackers, "PAUSE", pause)
    trials, down = [TRIAL, dataclasses.replace(TRIAL, seed=1)], Down(kind, 1)
    with pytest.warns(TrackingWarning, match=r"tracker Down failed \(ConnectionError: server is down\)"):
        ensemble = unseam.train(trials, callbacks=[Tracking(down)], every=5, device="cpu")
    assert ensemble.steps == (30, 30)
    compare(down, ensemble)


def test_a_tracker_that_stays_down_is_seldom_asked_and_gets_everything_later(tmp_path):
    down = Down("log", 1000)
    trials = [dataclasses.replace(TRIAL, seed=seed) for seed in range(3)]
    with pytest.warns(TrackingWarning):
        unseam.train(trials, callbacks=[Tracking(down)], every=1, device="cpu", out=tmp_path)
    assert 1000 - down.failures <= 1 + len(trials)
    down.failures = 0
    Tracking(down)(unseam.load(tmp_path))
    compare(down, unseam.load(tmp_path))


def test_what_is_no_tracker_is_refused():
    with pytest.raises(ValueError, match="tracker must have the methods begin, log and end, got dict"):
        Tracking({})
    assert isinstance(Recorded(), Tracker) and not isinstance({}, Tracker)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_library_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=f"needs {name}: pip install {name}"):
        Tracking(name)
