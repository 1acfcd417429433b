"""Trackers in the libraries themselves, read back by them: make test-trackers."""

import pytest

import unseam
from unseam.training import Tracking

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TRIALS = [
    unseam.Trial(
        world="linear", likelihood="gaussian", latent=2, steps=30, batch_size=8,
        encoder_widths=(4,), decoder_widths=(4,), seed=seed,
    )
    for seed in (0, 1)
]  # fmt: skip


def train_twice(tracker):
    """Train, log a score, and train again: the records stay the same."""
    for score in (0.25, None):
        with Tracking(tracker) as tracking:
            ensemble = unseam.train(TRIALS, callbacks=[tracking], every=10, device="cpu", progress=False)
            if score is not None:
                tracking.log(TRIALS[0], {"mig": score}, TRIALS[0].steps)
    return ensemble


def losses(ensemble, member):
    rows = ensemble.history[ensemble.history["member"] == member]
    return dict(zip(rows["step"], rows["loss"], strict=True))


def test_tensorboard_has_a_folder_per_model(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    ensemble = train_twice(f"tensorboard:{tmp_path}")
    for member, trial in enumerate(TRIALS):
        events = EventAccumulator(str(tmp_path / trial.key())).Reload()
        found = {event.step: event.value for event in events.Scalars("loss")}
        assert found == pytest.approx(losses(ensemble, member))
        assert ("mig" in events.Tags()["scalars"]) == (member == 0)


def test_mlflow_has_a_run_per_model(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    ensemble = train_twice(f"mlflow:{tmp_path}")
    client = mlflow.MlflowClient(str(tmp_path))
    runs = client.search_runs([client.get_experiment_by_name("unseam").experiment_id])
    assert sorted(run.info.run_name for run in runs) == sorted(trial.key() for trial in TRIALS)
    for run in runs:
        (member,) = (member for member, trial in enumerate(TRIALS) if trial.key() == run.info.run_name)
        history = client.get_metric_history(run.info.run_id, "loss")
        assert {metric.step: metric.value for metric in history} == pytest.approx(losses(ensemble, member))
        assert run.data.params["seed"] == str(member) and run.info.status == "FINISHED"
        assert run.data.metrics.get("mig") == (0.25 if member == 0 else None)


def test_wandb_has_a_run_per_model(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    train_twice("wandb:mine")
    written = {path.stem.removeprefix("run-") for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb")}
    assert written == {trial.key() for trial in TRIALS}
