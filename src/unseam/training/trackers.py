"""Trackers: history and scores of every model in TensorBoard, MLflow, Weights & Biases or a tracker of your own."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from unseam.choices import import_extra, load_object
from unseam.training.ensemble import Ensemble
from unseam.trial import Trial

__all__ = ["Tracker", "Tracking", "TrackingWarning", "open_tracker"]

PAUSE = 30.0
"""Seconds, and ten times as long as the failure took, before a tracker that failed is tried again."""


class TrackingWarning(UserWarning):
    """A tracker failed; the training goes on without it."""


@runtime_checkable
class Tracker(Protocol):
    """Where histories and scores go.

    Each model has a record of its own, named by :meth:`Trial.key <unseam.Trial.key>`.
    """

    def begin(self, key: str, settings: Mapping[str, Any]) -> None:
        """Open the record of a model with the fields of its trial, or go on with it."""

    def log(self, key: str, values: Mapping[str, float], step: int) -> None:
        """Add numbers of a step; the same ones again after a training was resumed."""

    def end(self, key: str) -> None:
        """Close the record."""


class Tracking:
    """A callback of :func:`unseam.train` that sends the history of every model to a tracker.

    The record of a model is closed when its training ends; inside a ``with`` block, records stay open until the
    block ends, so that scores can be added. List it after callbacks that stop members, such as
    :class:`EarlyStopping <unseam.training.EarlyStopping>`. Values that are not finite are not sent. A resumed run sends
    its history again.

    A tracker that fails, such as a server that is down, costs the training nothing: a :class:`TrackingWarning` says
    so, and what it missed is sent when it is tried again, at the latest with the last record. What is missing even then
    is sent by ``Tracking(tracker)(unseam.load(folder))``.

    Args:
        tracker: a :class:`Tracker`, or its name as :func:`open_tracker` takes it.

    >>> class Printed:
    ...     def begin(self, key, settings): print("begin", settings["beta"])
    ...     def log(self, key, values, step): print(step, sorted(values))
    ...     def end(self, key): print("end")
    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=4, batch_size=8)
    >>> _ = unseam.train(trial, world=unseam.data.load("linear", size=20), callbacks=[Tracking(Printed())])
    begin 1.0
    4 ['kl', 'loss', 'reconstruction']
    end
    """

    def __init__(self, tracker: str | Tracker) -> None:
        self.name = tracker if isinstance(tracker, str) else type(tracker).__name__
        self.tracker = open_tracker(tracker) if isinstance(tracker, str) else tracker
        if not isinstance(self.tracker, Tracker):
            raise ValueError(
                f"tracker must have the methods begin, log and end, got {type(self.tracker).__name__}"
            )
        self._sent: dict[str, int] = {}
        self._open: set[str] = set()
        self._stays = False
        self._again, self._given_up = -math.inf, set[str]()

    def __repr__(self) -> str:
        return f"Tracking({self.name!r})"

    def __enter__(self) -> Tracking:
        self._stays = True
        return self

    def __exit__(self, *raised: object) -> None:
        for key in sorted(self._open):
            self._end(key)
        self._stays = False

    def __call__(self, ensemble: Ensemble) -> None:
        """Send what the history has gained."""
        stopped = ensemble.stopped.keys() | ensemble.stopped_early.keys()
        for member, rows in ensemble.history.groupby("member"):
            trial = ensemble.trials[int(str(member))]
            key, last = trial.key(), rows.iloc[-1]
            unsent = rows[rows["alive"] & (rows["step"] > self._sent.get(key, -1))]
            ended = last["step"] >= trial.steps or member in stopped
            if time.monotonic() < self._again:
                if not (ended and len(unsent)) or key in self._given_up:
                    continue
                self._given_up.add(key)
            terms = [str(name) for name in rows if name not in ("member", "step", "alive")]
            if not all(
                self.log(trial, {term: row[term] for term in terms}, row["step"])
                for row in unsent.to_dict("records")
            ):
                return
            if not self._stays and key in self._open and ended:
                self._end(key)

    def log(self, trial: Trial, values: Mapping[str, Any], step: int) -> bool:
        """Send further numbers of a model, such as its scores; what is no finite number is left out.

        Returns:
            Whether the tracker took them.
        """
        key = trial.key()
        numbers = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        }
        if key not in self._open:
            if not self._asked(lambda: self.tracker.begin(key, trial.to_dict())):
                return False
            self._open.add(key)
        if not self._asked(lambda: self.tracker.log(key, numbers, int(step))):
            return False
        self._sent[key] = max(int(step), self._sent.get(key, -1))
        return True

    def _end(self, key: str) -> None:
        self._open.discard(key)
        self._asked(lambda: self.tracker.end(key))

    def _asked(self, call: Callable[[], object]) -> bool:
        """Whether the tracker did what it was asked, or else a warning."""
        began = time.monotonic()
        try:
            call()
        except Exception as error:
            now = time.monotonic()
            self._again = now + max(PAUSE, 10 * (now - began))
            text = (str(error) or "no message").splitlines()[0]
            warnings.warn(
                f"tracker {self.name} failed ({type(error).__name__}: {text}); the training goes on, and what is "
                f"missing there is sent when it is tried again",
                TrackingWarning,
                stacklevel=4,
            )
            return False
        self._again = -math.inf
        return True


class _TensorBoard:
    """Event files, a folder per model.

    Args:
        folder: of all models: ``tensorboard --logdir FOLDER`` shows them.
    """

    def __init__(self, folder: str | Path = "runs/tensorboard") -> None:
        import_extra("tensorboard")
        self.folder, self._writers = Path(folder), dict[str, Any]()

    def begin(self, key: str, settings: Mapping[str, Any]) -> None:
        """Open a file of events, whose text ``trial`` are the settings."""
        from torch.utils.tensorboard import SummaryWriter

        self._writers[key] = writer = SummaryWriter(str(self.folder / key))
        writer.add_text("trial", f"    {json.dumps(dict(settings))}")

    def log(self, key: str, values: Mapping[str, float], step: int) -> None:
        """Add scalars."""
        for name, value in values.items():
            self._writers[key].add_scalar(name, value, step)
        self._writers[key].flush()

    def end(self, key: str) -> None:
        """Close the file."""
        self._writers.pop(key).close()


class _MLflow:
    """Runs of an MLflow server or folder, a run per model, found again by its tag ``unseam.key``.

    Args:
        address: of the server or store; by default what MLflow is set to.
        experiment: of the runs, made where there is none.
    """

    def __init__(self, address: str | None = None, experiment: str = "unseam") -> None:
        self._mlflow = import_extra("mlflow")
        self._client = self._mlflow.MlflowClient(address)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = (
            self._client.create_experiment(experiment) if found is None else found.experiment_id
        )
        self._runs: dict[str, str] = {}

    def begin(self, key: str, settings: Mapping[str, Any]) -> None:
        """Create a run with the settings as parameters, or go on with that of the same model."""
        found = self._client.search_runs([self._experiment], f"tags.`unseam.key` = '{key}'", max_results=1)
        if found:
            self._runs[key] = found[0].info.run_id
            return
        made = self._client.create_run(self._experiment, run_name=key, tags={"unseam.key": key})
        self._runs[key] = made.info.run_id
        parameters = [self._mlflow.entities.Param(name, _text(value)) for name, value in settings.items()]
        self._client.log_batch(self._runs[key], params=parameters)

    def log(self, key: str, values: Mapping[str, float], step: int) -> None:
        """Add metrics, in one request."""
        now, metric = int(time.time() * 1000), self._mlflow.entities.Metric
        metrics = [metric(name, value, now, step) for name, value in values.items()]
        self._client.log_batch(self._runs[key], metrics=metrics)

    def end(self, key: str) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._runs.pop(key))


class _WandB:
    """Runs of Weights & Biases, a run per model.

    Args:
        project: of the runs. ``WANDB_MODE`` says whether they are uploaded or stay on disk.
    """

    def __init__(self, project: str = "unseam") -> None:
        self._wandb, self.project, self._runs = import_extra("wandb"), project, dict[str, Any]()

    def begin(self, key: str, settings: Mapping[str, Any]) -> None:
        """Start a run with the settings as its configuration, or go on with that of the same model."""
        self._runs[key] = self._wandb.init(
            project=self.project, id=key, name=key, config=dict(settings), resume="allow", reinit="create_new"
        )

    def log(self, key: str, values: Mapping[str, float], step: int) -> None:
        """Add numbers; of steps that the run has passed, none."""
        if step >= self._runs[key].step:
            self._runs[key].log(dict(values), step=step)

    def end(self, key: str) -> None:
        """Finish the run."""
        self._runs.pop(key).finish()


_TRACKERS: dict[str, Callable[..., Tracker]] = {
    "tensorboard": _TensorBoard,
    "mlflow": _MLflow,
    "wandb": _WandB,
}


def open_tracker(name: str) -> Tracker:
    """A tracker by name.

    Args:
        name: ``tensorboard`` or ``tensorboard:FOLDER``, ``mlflow`` or ``mlflow:ADDRESS``, ``wandb`` or
            ``wandb:PROJECT``, or ``package.module:object``, a :class:`Tracker` or what makes one.

    >>> open_tracker("board")
    Traceback (most recent call last):
    ValueError: tracker must be tensorboard, mlflow, wandb or package.module:object, got 'board'
    """
    kind, separator, place = name.partition(":")
    if kind in _TRACKERS:
        return _TRACKERS[kind](*[place] * bool(place))
    if not separator:
        raise ValueError(f"tracker must be {', '.join(_TRACKERS)} or package.module:object, got {name!r}")
    found = load_object(name)
    made: Tracker = found() if isinstance(found, type) else found
    return made


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
