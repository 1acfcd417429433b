"""What is measured of every model of a finished stack: functions whose columns stand side by side in a row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from unseam.choices import load_object
from unseam.independence import NotSmoothError
from unseam.independence import coupling as measure_coupling
from unseam.metrics import evaluate
from unseam.metrics.evaluate import METRICS
from unseam.run import Run, score
from unseam.sweep.spec import Score
from unseam.trial import Trial

__all__ = ["MEASURES", "Measure", "check_score", "measure"]

Columns = Mapping[str, float | int | str | None]
Measure = Callable[[Run, Sequence[int], Score], Mapping[int, Columns]]
"""A function of a run, of some of its members, and of the settings: columns by member."""


def measure(run: Run, members: Sequence[int], settings: Score) -> dict[int, dict[str, Any]]:
    """Columns of members by all measures of the settings; what cannot be measured has none.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> run = Run.of(unseam.train(trial))
    >>> sorted(measure(run, [0], Score(points=20, measures=["geometry"]))[0])[:3]
    ['active', 'cosine', 'degenerate_fraction']
    """
    found: dict[int, dict[str, Any]] = {member: {} for member in members}
    for name in settings.measures:
        function: Measure = load_object(name) if ":" in name else MEASURES[name]
        try:
            columns = function(run, members, settings)
        except ValueError as error:
            # what was trained is worth more than what could not be measured of it
            columns = {member: {f"{name}_note": str(error)} for member in members}
        for member, values in columns.items():
            found[member] |= {key: _finite(value) for key, value in values.items()}
    return found


def check_score(settings: Score) -> None:
    """Refuse names of metrics and measures that do not exist, before anything is trained."""
    known = {"metrics": [metric.__name__ for metric in METRICS], "measures": list(MEASURES)}
    for kind, names in known.items():
        for name in getattr(settings, kind):
            if ":" in name:
                load_object(name)
            elif name not in names:
                raise ValueError(
                    f"score.{kind} must be {', '.join(names)} or package.module:function, got {name!r}"
                )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def training(run: Run, members: Sequence[int], settings: Score) -> dict[int, Columns]:
    """Terms of the objective over the last record of the training, and the ELBO of them, in nats per item."""
    history = run.ensemble.history
    last = history.drop_duplicates("member", keep="last").set_index("member")
    found: dict[int, Columns] = {}
    for member in members:
        terms = last.loc[member].drop(["step", "alive"]).dropna().to_dict()
        terms["elbo"] = -terms["reconstruction"] - terms["kl"]
        found[member] = {str(name): float(value) for name, value in terms.items()}
    return found


def geometry(run: Run, members: Sequence[int], settings: Score) -> dict[int, Columns]:
    """What :meth:`unseam.Run.inspect` finds, as plain numbers."""
    found: dict[int, Columns] = {}
    for member in members:
        try:
            one = run.inspect([member], points=settings.points, seed=settings.seed)[member]
        except ValueError as reason:
            found[member] = {"geometry_note": str(reason)}
            continue
        error = one.precision_error
        found[member] = {
            "active": None if one.active is None else int(one.active.sum()),
            "cosine": one.cosine,
            "hadamard_gap": one.hadamard_gap,
            "dto": one.dto,
            "dto_active": one.dto_active,
            "random_dto": None if one.random_dto is None else one.random_dto.haar,
            "delta_kl": one.delta_kl,
            "precision_error": None if error is None else error.relative,
            "precision_error_diagonal": None if error is None else error.diagonal,
            "precision_error_off_diagonal": None if error is None else error.off_diagonal,
            "degenerate_fraction": one.degenerate_fraction,
        }
    return found


def scores(run: Run, members: Sequence[int], settings: Score) -> dict[int, Columns]:
    """Metrics of disentanglement over active latents; nothing where the world has no factors."""
    if not settings.metrics or not run.world_of(members[0]).factors.numel():
        return {}
    options: dict[str, Any] = {"preset": settings.preset, "points": settings.items, "seed": settings.seed}
    table = score(run, list(settings.metrics), members=members, **options)
    return {
        member: dict(zip(rows["metric"], rows["score"].astype(float), strict=True))
        for member in members
        for rows in (table[table["member"] == member],)
    }


def udr(run: Run, members: Sequence[int], settings: Score) -> dict[int, Columns]:
    """UDR among the seeds of the stack, which differ in nothing else, and how many these are."""
    groups: dict[Trial, list[int]] = {}
    for member in members:
        if run.trials[member].posterior != "point":
            groups.setdefault(dataclasses.replace(run.trials[member], seed=0), []).append(member)
    found: dict[int, Columns] = {}
    for alike in groups.values():
        if len(alike) < 2:
            continue
        codes = run.codes(alike, points=settings.items, seed=settings.seed)
        generator = torch.Generator().manual_seed(settings.seed)
        table = evaluate(
            codes.mean,
            codes.factors,
            ["udr"],
            variance=codes.variance,
            preset=settings.preset,
            generator=generator,
        )
        for place, value in zip(table["member"], table["score"], strict=True):
            found[alike[place]] = {"udr": float(value), "udr_seeds": len(alike)}
    return found


def coupling(run: Run, members: Sequence[int], settings: Score) -> dict[int, Columns]:
    """Mean coupling of the components of the pushforward density at the posterior means; costs as many Hessians."""
    found: dict[int, Columns] = {}
    for member in members:
        codes = run.codes([member], points=settings.points, seed=settings.seed).mean[0]
        try:
            found[member] = {
                "coupling": float(measure_coupling(run.subject(member).decoder, codes).off_diagonal)
            }
        except NotSmoothError:
            found[member] = {"coupling": None}
    return found


MEASURES: dict[str, Measure] = {
    "training": training,
    "geometry": geometry,
    "scores": scores,
    "udr": udr,
    "coupling": coupling,
}
