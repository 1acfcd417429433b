"""Studies of a run's models: members that differ in nothing but their seed are one model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from unseam.data import World
from unseam.report.matching import SCORES, match
from unseam.report.measure import study
from unseam.report.study import Match, Missing, Study
from unseam.scoring import encode_world
from unseam.targets import Inspected, inspect_run, run_world, unseen
from unseam.training import Ensemble
from unseam.training import load as load_run
from unseam.training.files import read_table
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MODELS", "SEEDS", "count_models", "run_studies"]

MODELS = 6
"""Models that stand side by side at most."""
SEEDS = 5
"""Seeds of a model that are measured at most."""
SCORED = 5000


def run_studies(
    path: Path,
    *,
    members: Sequence[int] | None = None,
    seeds: int = SEEDS,
    points: int = 1000,
    seed: int = 0,
    root: str | None = None,
    inspected: Sequence[Inspected] | None = None,
) -> tuple[Study, ...]:
    """Measure the models of a run: members that differ in nothing but their seed are one model.

    Of more than :data:`MODELS` models, so many are taken that are spread over them. Scores
    that the run's ``scores.parquet`` holds are used.

    Args:
        path: folder of the run.
        members: only these; all by default.
        seeds: how many seeds of a model are measured at most, the first ones.
        points: items to measure at.
        seed: of items, baselines and metrics.
        root: file or folder of the data, where the world is read from files that have moved since.
        inspected: the members' inspections, in their order, where they are made already.
    """
    ensemble = load_run(path)
    chosen = _chosen(ensemble, members)
    made = {} if inspected is None else dict(zip(chosen, inspected, strict=True))
    groups = [group[:seeds] for group in _spread(_groups(ensemble, chosen))]
    names = _names([ensemble.trials[group[0]] for group in groups])
    todo = [member for group in groups for member in group if member not in made]
    made |= _inspected(todo, inspect_run(path, points=points, members=todo, seed=seed, root=root))
    reader = _Reader(path, ensemble, points, seed, root)
    return tuple(
        reader.study(name, group, [made[member] for member in group])
        for name, group in zip(names, groups, strict=True)
    )


def _inspected(members: Sequence[int], every: Iterator[Inspected]) -> dict[int, Inspected]:
    """Inspections of members; of one that has none, such as after a training that diverged, its number."""
    made = {}
    for member in members:
        try:
            made[member] = next(every)
        except ValueError as error:
            raise ValueError(f"member {member} cannot be measured, choose others: {error}") from error
    return made


def count_models(path: Path, members: Sequence[int] | None = None) -> int:
    """How many models :func:`run_studies` would give."""
    ensemble = load_run(path)
    return len(_spread(_groups(ensemble, _chosen(ensemble, members))))


def _chosen(ensemble: Ensemble, members: Sequence[int] | None) -> list[int]:
    chosen = list(range(len(ensemble))) if members is None else list(members)
    if absent := [member for member in chosen if not 0 <= member < len(ensemble)]:
        raise ValueError(f"member must lie in [0, {len(ensemble)}), got {absent[0]}")
    return chosen


class _Reader:
    """One run, its worlds loaded once."""

    def __init__(self, path: Path, ensemble: Ensemble, points: int, seed: int, root: str | None) -> None:
        self.path, self.ensemble, self.points, self.seed, self.root = path, ensemble, points, seed, root
        self.worlds: dict[tuple[object, ...], World] = {}

    def world(self, trial: Trial) -> World:
        key = (trial.world, trial.world_options)
        if key not in self.worlds:
            self.worlds[key] = run_world(trial, self.root)
        return self.worlds[key]

    def study(self, name: str, members: list[int], inspected: list[Inspected]) -> Study:
        """One model: all seeds inspected and scored, the median one measured in full."""
        found = tuple(one.found for one in inspected)
        trial = self.ensemble.trials[members[0]]
        world = self.world(trial)
        matched = self.match(trial, members, world) if world.factors.numel() else None
        shown = _median(found, matched)
        model = self.ensemble[members[shown]]
        index = unseen(trial, len(world), self.points, torch.Generator().manual_seed(self.seed))
        made = study(
            model.decoder,
            encoder=model.encode,
            x=world.images(index).to(next(model.parameters()).dtype),
            likelihood=model.likelihood,
            beta=trial.beta if trial.objective_choice.weighs_kl else 1.0,
            name=name,
            found=found[shown],
        )
        part = "Mutual information and scores"
        missing = [one for one in made.missing if one.part != part]
        if matched is None:
            missing.append(Missing(part, f"The world {world.name} has no known factors."))
        return dataclasses.replace(
            made,
            inspections=found,
            shown=shown,
            members=tuple(f"seed {self.ensemble.trials[member].seed}" for member in members),
            match=matched,
            about=_about(self.path, self.ensemble, members, world),
            missing=tuple(missing),
        )

    def match(self, trial: Trial, members: list[int], world: World) -> Match:
        index = unseen(trial, len(world), SCORED, torch.Generator().manual_seed(self.seed))
        codes = encode_world(self.ensemble, members, world, index)
        kept = _kept(self.path / "scores.parquet", members)
        return match(
            codes.mean,
            codes.factors,
            world.factor_names,
            discrete=codes.discrete,
            scores=kept,
            seed=self.seed,
        )


def _groups(ensemble: Ensemble, members: Sequence[int]) -> list[list[int]]:
    groups: dict[Trial, list[int]] = {}
    for member in members:
        groups.setdefault(dataclasses.replace(ensemble.trials[member], seed=0), []).append(member)
    return list(groups.values())


def _spread(groups: list[list[int]]) -> list[list[int]]:
    if len(groups) <= MODELS:
        return groups
    return [groups[round(place)] for place in np.linspace(0, len(groups) - 1, MODELS)]


def _names(trials: Sequence[Trial]) -> list[str]:
    """What to call models: their kind, and what else tells them apart."""
    records = [trial.to_dict() for trial in trials]
    varied = [
        key
        for key in records[0]
        if key not in ("posterior", "objective", "seed")
        and len({getattr(trial, key) for trial in trials if trial.uses(key)}) > 1
    ]
    kinds = [
        "full covariance" if trial.posterior == "full" else trial.objective_choice.title for trial in trials
    ]
    differs = [
        ", ".join(f"{_letter(key)} {_value(record[key])}" for key in varied if trial.uses(key))
        for trial, record in zip(trials, records, strict=True)
    ]
    return [f"{kind} ({text})" if text else kind for kind, text in zip(kinds, differs, strict=True)]


def _letter(key: str) -> str:
    return {"beta": "β", "gamma": "γ", "alpha": "α"}.get(key, key.replace("_", " "))


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _median(found: Sequence[Any], matched: Match | None) -> int:
    """Which seed has the median MIG, or else the median DtO: the one that is shown."""
    values = [one.dto_of_chance or 0.0 for one in found] if matched is None else matched.mean("mig")
    return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])


def _kept(path: Path, members: Sequence[int]) -> pd.DataFrame | None:
    """Scores of the run's own table, where it has all that are shown."""
    if not path.exists():
        return None
    table = read_table(path)
    rows = table[table["metric"].isin(list(SCORES)) & table["member"].isin(members) & table["score"].notna()]
    if len(rows) < len(members) * len(SCORES):
        return None
    return rows.assign(member=[list(members).index(member) for member in rows["member"]])


def _about(path: Path, ensemble: Ensemble, members: Sequence[int], world: World) -> dict[str, Any]:
    """Where the model comes from, without anything that another measurement would change."""
    twin = {"twin_of": world.twin_of} if world.twin_of else {}
    return {
        "run": os.path.basename(os.path.abspath(path)),
        "members": list(members),
        "world": {"name": world.name, **twin, "items": len(world), "factors": list(world.factor_names)},
        "trial": ensemble.trials[members[0]].to_dict(),
        **{key: ensemble.about[key] for key in ("versions", "hardware", "revision") if key in ensemble.about},
    }
