"""What is measured of every model of a finished stack: functions whose columns stand side by side in a row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from unseam import metrics
from unseam.choices import load_object
from unseam.independence import NotSmoothError
from unseam.independence import coupling as measure_coupling
from unseam.metrics.evaluate import METRICS
from unseam.replicate import replicate_members
from unseam.run import Run, score
from unseam.sweep.spec import Score
from unseam.trial import Trial

__all__ = ["COMPARISONS", "MEASURES", "Measure", "check_score", "compare_seeds", "measure"]

Member = tuple[Run, int]
Columns = Mapping[str, float | int | str | None]
Measure = Callable[[Run, Sequence[int], Score], Mapping[int, Columns]]
"""A function of a run, of some of its members, and of the settings: columns by member."""


def measure(
    run: Run, members: Sequence[int], settings: Score, advance: Callable[[float], None] = lambda _: None
) -> dict[int, dict[str, Any]]:
    """Columns of members by all measures of the settings; what cannot be measured has none.

    Args:
        run: the models.
        members: which of them.
        settings: what is measured.
        advance: is told which fraction of the measures has been taken.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> run = Run.of(unseam.train(trial))
    >>> sorted(measure(run, [0], Score(points=20, measures=["geometry"]))[0])[:3]
    ['active', 'cosine', 'degenerate_fraction']
    """
    found: dict[int, dict[str, Any]] = {member: {} for member in members}
    for place, name in enumerate(settings.measures):
        advance(place / len(settings.measures))
        if name in COMPARISONS:
            continue
        function: Measure = load_object(name) if ":" in name else MEASURES[name]
        try:
            given = function(run, members, settings)
        except ValueError as error:
            # what was trained is worth more than what could not be measured of it
            given = {member: {f"{name}_note": str(error)} for member in members}
        for member, values in given.items():
            found[member] |= {key: _finite(value) for key, value in values.items()}
    alike: dict[Trial, list[Member]] = {}
    for member in members:
        alike.setdefault(dataclasses.replace(run.trials[member], seed=0), []).append((run, member))
    for group in alike.values():
        for (_, member), columns in compare_seeds(group, settings).items():
            found[member] |= columns
    return found


def check_score(settings: Score) -> None:
    """Refuse names of metrics and measures that do not exist, before anything is trained."""
    known = {
        "metrics": [metric.__name__ for metric in METRICS if metric.__name__ not in COMPARISONS],
        "measures": [*MEASURES, *COMPARISONS],
        "preset": ["fast", "dlib"],
    }
    for kind, names in known.items():
        given = getattr(settings, kind)
        for name in [given] if isinstance(given, str) else given:
            if ":" in name and kind != "preset":
                load_object(name)
            elif name not in names:
                own = " or package.module:function" * (kind != "preset")
                where = f"; {name} belongs in score.measures" if name in COMPARISONS else ""
                raise ValueError(f"score.{kind} must be {', '.join(names)}{own}, got {name!r}{where}")


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


def udr(members: Sequence[Member], settings: Score) -> list[float | None]:
    """UDR of models that differ in their seed alone."""
    if any(run.trials[member].posterior == "point" for run, member in members):
        return [None] * len(members)
    codes = [run.codes([member], points=settings.items, seed=settings.seed) for run, member in members]
    mean, variance = (torch.cat(part).double() for part in list(zip(*codes, strict=True))[:2])
    kl = 0.5 * (mean.square() + variance - variance.log() - 1).mean(1)
    generator = torch.Generator().manual_seed(settings.seed)
    return metrics.udr(mean, kl, preset=settings.preset, generator=generator).score.tolist()


def replication(members: Sequence[Member], settings: Score) -> list[float | None]:
    """Share of the other seeds in which the active latents of each return (see :mod:`unseam.replicate`)."""
    shares = replicate_members(members, items=settings.points, seed=settings.seed).scores
    return [None if share is None else share.value for share in shares]


COMPARISONS: dict[str, Callable[[Sequence[Member], Score], list[float | None]]] = {
    "udr": udr,
    "replication": replication,
}
"""Measures of the seeds of one setting together."""


def compare_seeds(members: Iterable[Member], settings: Score) -> dict[Member, dict[str, Any]]:
    """Columns of models that differ in their seed alone, by all comparisons of the settings.

    With each comes the number of seeds that were compared.

    Args:
        members: runs with the numbers of their members.
        settings: which comparisons, and at how many items.
    """
    members = sorted(members, key=lambda one: one[0].trials[one[1]].seed)
    found: dict[Member, dict[str, Any]] = {one: {} for one in members}
    for name in COMPARISONS.keys() & settings.measures if len(members) > 1 else ():
        values, note = list[float | None](), dict[str, str]()
        try:
            values = COMPARISONS[name](members, settings)
        except ValueError as error:
            values, note = [None] * len(members), {f"{name}_note": str(error)}
        for one, value in zip(members, values, strict=True):
            found[one] |= {name: _finite(value), f"{name}_seeds": len(members), **note}
    return found


def coupling(run: Run, members: Sequence[int], settings: Score) -> dict[int, Columns]:
    """Mean coupling of the components of the pushforward density at the posterior means; costs as many Hessians.

    Over all latents, and over pairs of active ones: a collapsed latent has a component too, of a column that is noise.
    """
    found: dict[int, Columns] = {}
    for member in members:
        codes = run.codes([member], points=settings.points, seed=settings.seed).mean[0]
        try:
            every = measure_coupling(run.subject(member).decoder, codes)
        except NotSmoothError:
            found[member] = {"coupling": None, "coupling_active": None}
            continue
        active = run.inspect([member], points=settings.points, seed=settings.seed)[member].active
        pairs = None if active is None else every.matrix[active][:, active]
        pairs = None if pairs is None or len(pairs) < 2 else pairs[~torch.eye(len(pairs), dtype=torch.bool)]
        found[member] = {
            "coupling": float(every.off_diagonal),
            "coupling_active": None if pairs is None else float(pairs.mean()),
        }
    return found


MEASURES: dict[str, Measure] = {
    "training": training,
    "geometry": geometry,
    "scores": scores,
    "coupling": coupling,
}
