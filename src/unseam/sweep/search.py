"""Search: a stack of trials per question to Optuna, which learns from their scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from unseam.choices import import_extra
from unseam.sweep.spec import Score, Spec, axis_values, interval_ends
from unseam.sweep.sweep import Sweep, run
from unseam.trial import Trial

__all__ = ["search"]


def search(
    trial: Trial,
    space: Mapping[str, Any],
    store: str | Path,
    *,
    target: str,
    asks: int,
    stack: int = 8,
    seeds: int = 1,
    maximise: bool = True,
    study: Any = None,
    seed: int = 0,
    score: Score | None = None,
    **options: Any,
) -> tuple[Sweep, Any]:
    """Ask Optuna for points and tell it their scores, a stack at a time (extra ``search``).

    Every point is a trial, or one per seed whose mean counts; its rows go to a store as those of a sweep. Points whose
    score is undefined count as failed.

    Args:
        trial: what all points share.
        space: by field, a list of choices or ``{from, to, scale}`` as in a spec.
        store: as in :func:`unseam.sweep.run`.
        target: column of the table that is to be large, e.g. ``mig``, ``udr`` or ``elbo``.
        asks: number of stacks.
        stack: points of a stack.
        seeds: seeds of every point.
        maximise: whether the target is to be large.
        study: of Optuna; a new one by default.
        seed: of the new study's sampler.
        score: how models are measured.
        options: of :func:`unseam.sweep.run`.

    Returns:
        The sweep and the study.

    >>> space = {"beta": {"from": 0.1, "to": 30, "scale": "log"}}
    >>> done, study = search(Trial(), space, "sweeps/a", target="mig", asks=10)  # doctest: +SKIP
    """
    optuna = import_extra("optuna", "'unseam[search]'")
    if study is None:
        sampler = optuna.samplers.TPESampler(seed=seed)
        study = optuna.create_study(direction="maximize" if maximise else "minimize", sampler=sampler)
    settings, done = score or Score(), None
    for _ in range(asks):
        points = [study.ask() for _ in range(stack)]
        models = [
            dataclasses.replace(trial, **{name: _suggest(point, name, axis) for name, axis in space.items()})
            for point in points
        ]
        trials = [dataclasses.replace(model, seed=model.seed + k) for model in models for k in range(seeds)]
        done = run(Spec(tuple({one.key(): one for one in trials}.values()), settings), store, **options)
        found = done.table().set_index("key")[target]
        for place, point in enumerate(points):
            value = float(found[[one.key() for one in trials[place * seeds : (place + 1) * seeds]]].mean())
            if value == value:
                study.tell(point, value)
            else:
                study.tell(point, state=optuna.trial.TrialState.FAIL)
    if done is None:
        raise ValueError(f"asks must be at least 1, got {asks}")
    return done, study


def _suggest(point: Any, name: str, axis: Any) -> Any:
    """A value that Optuna proposes for a field."""
    if not isinstance(axis, Mapping) or "range" in axis:
        return point.suggest_categorical(name, axis_values(name, axis, where="space."))
    low, high, _ = interval_ends(name, axis, ("from", "to", "scale"), "space.")
    log = axis.get("scale") == "log"
    if get_type_hints(Trial)[name] is int:
        return point.suggest_int(name, int(low), int(high), log=log)
    return point.suggest_float(name, low, high, log=log)
