"""Studies of runs: members that differ in nothing but their seed are one model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unseam.data import World
from unseam.inspection import Inspection
from unseam.replicate import describe_seeds
from unseam.report.matching import SCORES, match
from unseam.report.measure import study, thresholds
from unseam.report.study import Match, Missing, Study
from unseam.run import Cache, Run, model_title, open_run
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MODELS", "SEEDS", "check_room", "compare_runs", "run_studies"]

MODELS = 6
"""Most models that are shown side by side."""
SEEDS = 10
"""Most seeds of a model that are measured."""
SCORED = 5000


def run_studies(
    run: Run | str | Path,
    *,
    members: Sequence[int] | None = None,
    seeds: int = SEEDS,
    points: int = 1000,
    seed: int = 0,
    world: World | str | None = None,
    data: object = None,
) -> tuple[Study, ...]:
    """Measure the models of a run: members that differ in nothing but their seed are one model.

    Of more than :data:`MODELS` models, so many are taken that are spread over them. Members that diverged are left out
    and counted, unless they are named. Scores that the run's ``scores.parquet`` holds for these weights and data are
    used.

    Args:
        run: the run, or its folder.
        members: only these; all that did not diverge by default.
        seeds: how many seeds of a model are measured at most, the first ones.
        points: items to measure at.
        seed: of items, baselines and metrics.
        world: the data, where ``run`` is a folder and was trained on the user's own (see :meth:`unseam.Run.open`).
        data: the same, as an array, a file or a folder.
    """
    run = open_run(run, world, data)
    whole = _groups(run, members)
    groups = [group[:seeds] for group in whole]
    names = _names([run.trials[group[0]] for group in groups])
    found = run.inspect([member for group in groups for member in group], points=points, seed=seed)
    advised = Cache()
    return tuple(
        dataclasses.replace(
            _study(run, name, group, tuple(found[member] for member in group), points, seed, advised),
            remarks=(
                *run.remarks(group),
                *([f"the first {seeds} of {len(every)} seeds are measured"] if len(every) > seeds else ()),
                *(_count_lost(run, group) if members is None else ()),
            ),
        )
        for name, group, every in zip(names, groups, whole, strict=True)
    )


def _count_lost(run: Run, shown: Sequence[int]) -> list[str]:
    """How many members diverged and are left out: seeds of the model that is shown, and other models of the run."""
    own = dataclasses.replace(run.trials[shown[0]], seed=0)
    seeds = [m for m in range(len(run)) if dataclasses.replace(run.trials[m], seed=0) == own]
    lines = []
    for members, what in ((seeds, "seeds of this model"), (range(len(run)), "members of the run")):
        lost = [member for member in members if member not in run.sound]
        if lost and not (lines and len(members) == len(seeds)):
            verb = "is" if len(lost) == 1 else "are"
            which = "; ".join(f"member {member} {run.standing[member]}" for member in lost)
            lines.append(f"{len(lost)} of {len(members)} {what} diverged and {verb} left out: {which}")
    return lines


def compare_runs(runs: Sequence[Run], **options: Any) -> list[list[Study]]:
    """Models of runs; of several, under the names of their folders.

    Too many are refused before any is measured.

    Args:
        runs: the runs.
        options: of :func:`unseam.report.run_studies`.

    >>> from unseam.training import train
    >>> run = Run.of(train(Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)))
    >>> [[study.name for study in group] for group in compare_runs([run], points=20)]
    [['β-VAE']]
    """
    check_room(sum(len(_groups(run, options.get("members"))) for run in runs))
    measured = [run_studies(run, **options) for run in runs]
    if len(runs) == 1:
        return [list(measured[0])]
    return [
        [
            dataclasses.replace(one, name=folder if len(found) == 1 else f"{folder}: {one.name}")
            for one in found
        ]
        for folder, found in zip(_folders([run.path or Path() for run in runs]), measured, strict=True)
    ]


def check_room(models: int) -> None:
    """Refuse more models than a page has room for.

    >>> check_room(7)
    Traceback (most recent call last):
    ValueError: at most 6 models stand side by side, got 7; leave some out
    """
    if models > MODELS:
        raise ValueError(f"at most {MODELS} models stand side by side, got {models}; leave some out")


def _study(
    run: Run,
    name: str,
    members: list[int],
    found: tuple[Inspection, ...],
    points: int,
    seed: int,
    advised: Cache,
) -> Study:
    """One model: all seeds inspected and scored, the median one measured in full."""
    world = run.world_of(members[0])
    matched = _match(run, members, world, seed) if world.factors.numel() else None
    shown = _median(found, matched)
    x = run.images(members[shown], points, seed)
    subject = dataclasses.replace(run.subject(members[shown]), name=name, x=x)
    advice, _ = thresholds(world, subject.likelihood, advised)
    made = study(subject, found=found[shown], advice=advice)
    part = "Mutual information and scores"
    missing = [one for one in made.missing if one.part != part]
    if matched is None:
        missing.append(Missing(part, f"The world {world.name} has no known factors."))
    return dataclasses.replace(
        made,
        inspections=found,
        shown=shown,
        members=tuple(f"seed {run.trials[member].seed}" for member in members),
        match=matched,
        about=_about(run, members, world),
        missing=tuple(missing),
        returns=describe_seeds(run, members, items=min(points, 500), seed=seed).get(members[shown], ""),
    )


def _match(run: Run, members: list[int], world: World, seed: int) -> Match:
    codes = run.codes(members, points=SCORED, seed=seed)
    return match(
        codes.mean,
        codes.factors,
        world.factor_names,
        discrete=codes.discrete,
        variance=codes.variance,
        scores=_saved_scores(run.scores, members),
        seed=seed,
    )


def _groups(run: Run, members: Sequence[int] | None) -> list[list[int]]:
    """Members that differ in their seed alone, of models that are spread over all where those are too many."""
    models: dict[Trial, list[int]] = {}
    for member in run.measured(members):
        models.setdefault(dataclasses.replace(run.trials[member], seed=0), []).append(member)
    groups = list(models.values())
    if len(groups) <= MODELS:
        return groups
    return [groups[round(place)] for place in np.linspace(0, len(groups) - 1, MODELS)]


def _names(trials: Sequence[Trial]) -> list[str]:
    """What to call models: their kind, and the fields in which they differ."""
    records = [trial.to_dict() for trial in trials]
    varied = [
        key
        for key in records[0]
        if key not in ("posterior", "objective", "seed")
        and len({getattr(trial, key) for trial in trials if trial.uses(key)}) > 1
    ]
    differs = [
        ", ".join(f"{_letter(key)} {_value(record[key])}" for key in varied if trial.uses(key))
        for trial, record in zip(trials, records, strict=True)
    ]
    kinds = map(model_title, trials)
    return [f"{kind} ({text})" if text else kind for kind, text in zip(kinds, differs, strict=True)]


def _letter(key: str) -> str:
    return {"beta": "β", "gamma": "γ", "alpha": "α"}.get(key, key.replace("_", " "))


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _median(found: Sequence[Inspection], matched: Match | None) -> int:
    """Which seed has the median MIG, or else the median |cos|: the one that is shown."""
    values = [one.cosine or 0.0 for one in found] if matched is None else matched.mean("mig")
    return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])


def _saved_scores(table: pd.DataFrame | None, members: Sequence[int]) -> pd.DataFrame | None:
    """Scores of the run's own table, where it has all that are shown."""
    if table is None:
        return None
    rows = table[
        table["metric"].isin(list(SCORES)) & table["member"].isin(members) & table["score_all"].notna()
    ]
    if len(rows) < len(members) * len(SCORES):
        return None
    return rows.assign(member=[list(members).index(member) for member in rows["member"]])


def _about(run: Run, members: Sequence[int], world: World) -> dict[str, Any]:
    """Where the model comes from, without anything that another measurement would change."""
    twin = {"twin_of": world.twin_of} if world.twin_of else {}
    return {
        "run": None if run.path is None else os.path.basename(os.path.abspath(run.path)),
        "members": list(members),
        "world": {"name": world.name, **twin, "items": len(world), "factors": list(world.factor_names)},
        "standing": [run.standing[member]._asdict() for member in members],
        "data": run.stamp(members[0])["data"],
        "trial": run.trials[members[0]].to_dict(),
        **{key: run.about[key] for key in ("versions", "hardware", "revision") if key in run.about},
    }


def _folders(paths: Sequence[Path]) -> list[str]:
    """Names of folders, with as many of those above them as make them differ."""
    whole = [Path(os.path.abspath(path)).parts for path in paths]
    tails: list[str] = []
    for depth in range(1, max(map(len, whole)) + 1):
        tails = ["/".join(parts[-depth:]) for parts in whole]
        if len(set(tails)) == len(set(whole)):
            break
    return tails
