"""Scores of a run's members against the factors of their world, kept in the run's folder."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from unseam.data import World
from unseam.metrics import evaluate
from unseam.models import Encoding
from unseam.targets import run_world, unseen
from unseam.training import Ensemble, provenance
from unseam.training import load as load_run
from unseam.training.files import read_table, write_table
from unseam.training.run import choose_device

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Codes", "encode_world", "score_run"]

# Values of pictures that are encoded at once: 64 MB in single precision.
_AT_ONCE = 2**24


class Codes(NamedTuple):
    """Posterior means and variances of members at items of a world, with the factors of those items."""

    mean: Tensor
    """(member, batch, latent)."""
    variance: Tensor
    """(member, batch, latent): the diagonal, where the posterior has a full covariance; 0 for a point."""
    factors: Tensor
    """(batch, factor)."""
    discrete: tuple[bool, ...]
    """Which factors are discrete."""


def score_run(
    path: Path,
    metrics: Sequence[str] | None = None,
    *,
    preset: str = "fast",
    points: int = 50_000,
    members: Sequence[int] | None = None,
    seed: int = 0,
    root: str | None = None,
    device: str = "cpu",
) -> pd.DataFrame:
    """Score members of a run by the metrics of disentanglement, and keep the table in ``scores.parquet``.

    The world is encoded once, items of the part that was not trained on where the trials held one out; all
    metrics read the same codes. Members that share their world, their split and their number of latents are
    scored together. A score that the file holds already is replaced, others stay; each row says what it was
    made with.

    Args:
        path: folder of the run.
        metrics: names of :func:`unseam.metrics.evaluate`; all that fit by default.
        preset: ``"fast"``, or ``"dlib"`` for numbers comparable with the 12 600-model study.
        points: number of items that are encoded at most.
        members: which members; all by default.
        seed: of the choice of items and of the metrics.
        root: file or folder of the data, where the world is read from files that have moved since.
        device: where to encode and score.

    Returns:
        The table of :func:`unseam.metrics.evaluate`; its ``attrs`` say what it was made with.
    """
    import pandas as pd

    if points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    ensemble = load_run(path, device=choose_device(device))
    chosen = list(range(len(ensemble))) if members is None else sorted(set(members))
    if absent := [member for member in chosen if not 0 <= member < len(ensemble)]:
        raise ValueError(f"member must lie in [0, {len(ensemble)}), got {absent[0]}")
    parts = []
    for group in _alike(ensemble, chosen):
        trial = ensemble.trials[group[0]]
        world = run_world(trial, root)
        index = unseen(trial, len(world), points, torch.Generator().manual_seed(seed))
        codes = encode_world(ensemble, group, world, index)
        table = evaluate(
            codes.mean,
            codes.factors,
            metrics,
            discrete=codes.discrete,
            variance=codes.variance,
            preset=preset,
            generator=torch.Generator().manual_seed(seed),
        )
        table["member"] = [group[member] for member in table["member"]]
        parts.append(table.assign(points=len(index), world=_said(world), seed=seed))
    table = pd.concat(parts).sort_values("member", kind="stable", ignore_index=True)
    table.attrs = {"seed": seed, "preset": preset, "about": provenance(device)}
    write_table(path / "scores.parquet", _kept(path / "scores.parquet", table))
    return table


def _kept(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """The new rows, and those of the file that they do not replace."""
    import pandas as pd

    if not path.exists():
        return table
    before = read_table(path)
    keys = pd.MultiIndex.from_frame(table[["member", "metric"]])
    stay = before[~pd.MultiIndex.from_frame(before[["member", "metric"]]).isin(keys)]
    merged = pd.concat([stay, table]).sort_values("member", kind="stable", ignore_index=True)
    merged.attrs = table.attrs
    return merged


def encode_world(ensemble: Ensemble, members: Sequence[int], world: World, index: Tensor) -> Codes:
    """Encode items of a world by some members, a bounded number of pictures at a time.

    >>> import unseam
    >>> world = unseam.data.load("linear", size=20)
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> codes = encode_world(unseam.train(trial, world=world), [0], world, torch.arange(20))
    >>> codes.mean.shape, codes.discrete
    (torch.Size([1, 20, 2]), (False, False))
    """
    if not any(world.factor_sizes) and not world.factors.numel():
        raise ValueError(f"world {world.name} has no factors to score against")
    size = max(1, _AT_ONCE // max(1, int(torch.tensor(world.shape).prod())))
    whole = list(members) == list(range(len(ensemble)))
    models = [] if whole else [ensemble[member] for member in members]
    parts = [_encode(ensemble, models, world.images(some)) for some in index.split(size)]
    mean, variance = (torch.cat(pieces, dim=1) for pieces in zip(*parts, strict=True))
    factors = world.factors[index.to(world.factors.device)].to(mean.device)
    return Codes(mean, variance, factors, tuple(size > 0 for size in world.factor_sizes))


@torch.no_grad()
def _encode(ensemble: Ensemble, models: Sequence[Any], x: Tensor) -> tuple[Tensor, Tensor]:
    """Means and diagonal variances (member, batch, latent), all members at once where all are asked for."""
    if not models:
        return _diagonal(ensemble.encode(x))
    x = x.to(ensemble.device)
    kinds = [next(model.parameters()).dtype for model in models]
    widest = functools.reduce(torch.promote_types, kinds)
    each = [_diagonal(model.encode(x.to(kind))) for model, kind in zip(models, kinds, strict=True)]
    mean, variance = (
        torch.stack([piece.to(widest) for piece in pieces]) for pieces in zip(*each, strict=True)
    )
    return mean, variance


def _diagonal(encoding: Encoding) -> tuple[Tensor, Tensor]:
    mean, variance = encoding
    return mean, variance.diagonal(dim1=-2, dim2=-1) if variance.ndim > mean.ndim else variance


def _alike(ensemble: Ensemble, members: Sequence[int]) -> list[list[int]]:
    """Members that can be scored on the same items as one stack."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for member in members:
        trial = ensemble.trials[member]
        shared = (trial.world, trial.world_options, trial.train_fraction, trial.split_seed)
        groups.setdefault((*shared, trial.latent, trial.posterior == "point"), []).append(member)
    return list(groups.values())


def _said(world: World) -> str:
    return f"{world.name}, twin of {world.twin_of}" if world.twin_of else world.name
