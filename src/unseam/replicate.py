"""Which latents of a model other models of the same data have too, and which return only together."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseam import geometry
from unseam.charts import matrix, standalone
from unseam.geometry import LatentGroup, Recurrence, recurrence
from unseam.inputs import as_floating, check_count, check_generator, check_scale
from unseam.inspection.measure import encode_data
from unseam.inspection.words import latent_name, list_latents, positions
from unseam.models import VAE
from unseam.run import Run, open_run
from unseam.subject import Subject
from unseam.training import Ensemble

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Replication", "Share", "describe_seeds", "replicate_seeds", "replication"]

# Values of Jacobian columns of all models that are held at once: 64 MB in single precision.
_AT_ONCE = 2**24
_NORMAL = 1.959964  # 97.5 % of the normal distribution lie below


class _UndefinedError(ValueError):
    """Fewer than two models have active latents."""


class Share(NamedTuple):
    """A share with its 95 % interval, for other models of the same kind; Wilson's, in [0, 1]."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Replication:
    """Which latents of each model return in the others.

    Attributes:
        names: of the models.
        active: which latents are (member, latent).
        items: how many the models were compared at.
        recurrence: matches, likeness and p-values (see :func:`unseam.geometry.recurrence`).
        where: what the items are, where a run chose them.
        members: which members of their runs the models are; empty where they do not come from runs.
    """

    names: tuple[str, ...]
    active: Tensor
    items: int
    recurrence: Recurrence = field(repr=False)
    where: str = ""
    members: tuple[int, ...] = ()

    def found_in(self, member: int, latent: int) -> int:
        """Number of models that have a latent, its own among them; none where it is not active."""
        return int(self.recurrence.found[member, :, latent].sum()) + int(self.active[member, latent])

    @property
    def scores(self) -> tuple[Share | None, ...]:
        """For each model, the mean share of the others in which its active latents return; ``None`` without any.

        A latent that is not more alike than by chance counts 0.
        """
        shares = []
        for member, active in enumerate(self.active):
            found = self.recurrence.found[member] & self.recurrence.returns[member]
            value = found[:, active].double().sum(0).mean() / (len(self.names) - 1) if active.any() else None
            shares.append(None if value is None else _wilson(float(value), len(self.names) - 1))
        return tuple(shares)

    @property
    def score(self) -> Share:
        """Mean over the models that have active latents of their scores."""
        values = [share.value for share in self.scores if share is not None]
        # the variance of a mean over all pairs of n models is at most that of n / 2 pairs that share none
        return _wilson(sum(values) / len(values), len(self.names) // 2)

    @property
    def reference(self) -> int:
        """The model whose latents return most."""
        values = [-1.0 if share is None else share.value for share in self.scores]
        return values.index(max(values))

    def sentence(self, member: int, latent: int) -> str:
        """Where a latent returns, in a few words; empty for one that is not active."""
        if not self.active[member, latent]:
            return ""
        if self.recurrence.returns[member, latent]:
            return f"found in {self.found_in(member, latent)} of {len(self.names)} models"
        for group in self.groups(member):
            if latent in group.latents:
                others, count = [one for one in group.latents if one != latent], int(group.found.sum()) + 1
                return (
                    f"found only together with {list_latents(others)}, in {count} of {len(self.names)} models"
                )
        return "no significant match in other models"

    def table(self) -> pd.DataFrame:
        """One row per active latent of each model, and one per group that returns only together.

        ``found`` counts other models; ``lower`` and ``upper`` are the interval of its share; ``likeness`` is the median
        of absolute values over the others, ``chance`` the mean of the same after random rotations.
        """
        import pandas as pd

        found, others = self.recurrence, len(self.names) - 1
        rows: list[dict[str, Any]] = []

        def add(name: str, latents: str, kind: str, count: int, likeness: Tensor, *numbers: float) -> None:
            share = _wilson(count / others, others)
            chance, p_value, returns = numbers
            rows.append(
                {"model": name, "latents": latents, "kind": kind, "found": count, "others": others}
                | {"lower": share.lower, "upper": share.upper, "likeness": float(likeness.median())}
                | {"chance": chance, "p": p_value, "returns": bool(returns)}
            )

        for member, name in enumerate(self.names):
            rest = [other for other in range(len(self.names)) if other != member]
            for latent in positions(self.active[member]):
                numbers = [
                    float(part[member, latent]) for part in (found.chance, found.p_value, found.returns)
                ]
                likeness = found.likeness[member, rest, latent].abs()
                add(
                    name, latent_name(latent), "latent", self.found_in(member, latent) - 1, likeness, *numbers
                )
            for group in self.groups(member):
                joined = "+".join(map(latent_name, group.latents))
                likeness = group.likeness[rest]
                add(name, joined, "group", int(group.found.sum()), likeness, group.chance, group.p_value, 1.0)
        return pd.DataFrame(rows)

    def groups(self, member: int) -> list[LatentGroup]:
        """Groups of latents of one model that return only together."""
        return [group for group in self.recurrence.groups if group.member == member]

    def describe(self, member: int) -> str:
        """Where the latents of one model return, in one sentence."""
        models, groups = len(self.names), self.groups(member)
        active, returns = self.active[member], self.recurrence.returns[member]
        if not active.any():
            return "No latent is active."
        by_count: dict[int, list[int]] = {}
        for latent in positions(returns):
            by_count.setdefault(self.found_in(member, latent), []).append(latent)
        parts = [
            f"{list_latents(by_count[count])} found in {count} of {models} models"
            for count in sorted(by_count, reverse=True)
        ]
        parts += [
            f"{list_latents(group.latents)} found only together, rotated among each other, in "
            f"{int(group.found.sum()) + 1} of {models}"
            for group in groups
        ]
        grouped = {latent for group in groups for latent in group.latents}
        if lost := [one for one in positions(active & ~returns) if one not in grouped]:
            parts.append(f"{list_latents(lost)} without a significant match in the others")
        return f"{'; '.join(parts)}."

    def summary(self) -> str:
        """What returns over all models: the latents of the model whose own return most, and the score."""
        score, counts = self.score, self.active.sum(1)
        least, most = int(counts.min()), int(counts.max())
        number = f"{least}" if least == most else f"{least} to {most}"
        return (
            f"{len(self.names)} models with {number} active latent{'s' * (most != 1)}, compared at "
            f"{self.where or f'{self.items} items'}.\n"
            f"Latents of {self.names[self.reference]}: {self.describe(self.reference)}\n"
            f"Replication {score.value:.2f} [{score.lower:.2f}, {score.upper:.2f}]: the share of other models in which "
            f"a latent returns, over all."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; NaN is null."""
        rows = [
            {
                key: None if isinstance(value, float) and np.isnan(value) else value
                for key, value in row.items()
            }
            for row in self.table().to_dict("records")
        ]
        return {
            "models": list(self.names),
            "items": self.items,
            "score": self.score._asdict(),
            "scores": [None if share is None else share._asdict() for share in self.scores],
            "latents": rows,
            "match": self.recurrence.match.tolist(),
            "likeness": [
                [[None if one != one else one for one in row] for row in part]
                for part in self.recurrence.likeness.tolist()
            ],
            "summary": self.summary(),
        }

    def chart(self) -> str:
        """The absolute likeness of the reference's latents with their match in every other model, as an SVG file."""
        member = self.reference
        latents = positions(self.active[member])
        others = [other for other in range(len(self.names)) if other != member]
        values = self.recurrence.likeness[member][others][:, latents].abs().T.numpy()
        names = [self.names[other].partition(" (")[0] for other in others]
        title = f"likeness of latents of {self.names[member]} with their match in other models"
        drawn = matrix(values, [latent_name(latent) for latent in latents], names, title)
        return standalone(drawn, title)

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{html.escape(line)}</p>" for line in self.summary().splitlines())
        return f"<div>{words}{self.table().round(3).to_html(index=False)}</div>"


@torch.no_grad()
def replication(
    models: Run | Ensemble | str | Path | Iterable[Any],
    x: Tensor | np.ndarray | None = None,
    *,
    items: int = 500,
    members: Sequence[int] | None = None,
    generator: torch.Generator | None = None,
) -> Replication:
    """Say for each latent of each model in how many of the others it returns, without labels.

    Latents are matched one to one by what they do at the same items: the columns of the decoder's Jacobian, weighted by
    the likelihood's Fisher information, and their codes. Each item weighs the same: a model's columns are divided by
    the norm of all of them there. What counts as found and what as chance: :func:`unseam.geometry.recurrence`.

    Columns are multiplied for all models at once, some items at a time, so that memory stays bounded; nothing is
    sketched. Intervals are over models: those at hand are a sample of the models that training would give, and at
    hundreds of items likeness itself is known well.

    Args:
        models: a run, its folder or an ensemble; or several models: subjects with encoders, VAEs, or runs.
        x: items (batch, *data) to compare at; by default held-out items of the (first) run.
        items: number of those.
        members: of a run; all that did not diverge by default.
        generator: source of the random rotations and of the choice of items; one seeded with 0 by default.

    Returns:
        Counts, intervals and groups, with a summary in words.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> ensemble = unseam.train([trial, dataclasses.replace(trial, seed=1)])
    >>> len(replication([ensemble[0], ensemble[0], ensemble[1]], torch.randn(50, 3, generator=torch.Generator())).names)
    3
    """
    check_count("items", items, 2)
    generator = torch.Generator().manual_seed(0) if generator is None else check_generator(generator)
    if x is not None:
        check_scale("x", torch.as_tensor(x))
    subjects, runs = _subjects(models, members)
    return _replicate(subjects, runs, x, items, generator)


def replicate_seeds(
    runs: Sequence[Run],
    *,
    items: int = 500,
    members: Sequence[int] | None = None,
    together: bool = False,
    seed: int = 0,
) -> list[Replication]:
    """Compare the members of runs that differ in nothing but their seed, one group after the other.

    Args:
        runs: whose members.
        items: number of held-out items to compare at.
        members: of each run; all that did not diverge by default.
        together: whether all are one group, whatever their settings.
        seed: of items and rotations.

    Returns:
        One result per group of two or more that have active latents; nothing where all differ in more than their seed.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, beta=1e-2, steps=200, learning_rate=1e-2)
    >>> run = Run.of(unseam.train([trial, dataclasses.replace(trial, seed=1), dataclasses.replace(trial, beta=4.0)]))
    >>> [found.members for found in replicate_seeds([run])]
    [(0, 1)]
    """
    pairs = [pair for run in runs for pair in _subjects(run, members)[1]]
    groups: dict[object, list[tuple[Run, int]]] = {}
    for run, member in pairs:
        key = None if together else dataclasses.replace(run.trials[member], seed=0)
        groups.setdefault(key, []).append((run, member))
    found, undefined = [], None
    for group in groups.values():
        if len(group) > 1:
            try:
                found.append(replicate_members(group, items=items, seed=seed))
            except _UndefinedError as error:
                undefined = error
    if undefined is not None and not found:
        raise undefined
    return found


def replicate_members(members: Sequence[tuple[Run, int]], *, items: int = 500, seed: int = 0) -> Replication:
    """Compare members of one run or of several, which have seen the same data.

    Args:
        members: runs with the numbers of their members.
        items: number of held-out items to compare at.
        seed: of items and rotations.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, beta=1e-2, steps=200, learning_rate=1e-2)
    >>> runs = [Run.of(unseam.train(dataclasses.replace(trial, seed=seed))) for seed in (0, 1)]
    >>> replicate_members([(run, 0) for run in runs], items=50).members
    (0, 0)
    """
    several = len({id(run) for run, _ in members}) > 1
    subjects = [_titled(run, member, several=several) for run, member in members]
    return _replicate(subjects, list(members), None, items, torch.Generator().manual_seed(seed))


def describe_seeds(
    run: Run, members: Sequence[int] | None = None, *, items: int, seed: int
) -> dict[int, str]:
    """In one sentence for each member that has others of its settings: where its latents return over seeds.

    Args:
        run: whose members.
        members: which; all that did not diverge by default.
        items: number of held-out items to compare at.
        seed: of items and rotations.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> list(describe_seeds(Run.of(unseam.train([trial, trial])), items=50, seed=0))
    [0, 1]
    """
    try:
        groups = replicate_seeds([run], items=items, members=members, seed=seed)
    except _UndefinedError:
        return {}
    return {
        member: f"Over {len(found.members)} seeds: {found.describe(place)}"
        for found in groups
        for place, member in enumerate(found.members)
    }


def _replicate(
    subjects: list[Subject], runs: list[tuple[Run, int]], x: Any, items: int, generator: torch.Generator
) -> Replication:
    if len(subjects) < 2:
        raise ValueError(f"models must be two or more to be compared, got {len(subjects)}")
    where = ""
    if x is None:
        x, where = _held_out(runs, len(subjects), items, int(torch.randint(2**31, (), generator=generator)))
    x = as_floating("x", x)
    encoded = [_encode(subject, x) for subject in subjects]
    active = _pad([mask for _, mask in encoded])
    # a latent is a row here, so that models of different size are padded with rows of zeros
    codes = _pad([mean.double().cpu().mT for mean, _ in encoded])
    if (used := int(active.any(1).sum())) < 2:
        raise _UndefinedError(
            f"models must have active latents to be compared, got {used} of {len(subjects)} that have any"
        )
    columns = _column_products(subjects, [mean for mean, _ in encoded], active)
    covariance = torch.cov(codes.flatten(0, 1), correction=0).view_as(columns)
    found = recurrence(columns, covariance, active, generator=generator)
    names, members = tuple(subject.name for subject in subjects), tuple(member for _, member in runs)
    return Replication(names, active, len(x), found, where, members if len(members) == len(names) else ())


def _subjects(models: Any, members: Sequence[int] | None) -> tuple[list[Subject], list[tuple[Run, int]]]:
    """Every model as a subject, with the run and the member that it is, of those that come from runs."""
    if isinstance(models, Run | Ensemble | str | Path):
        run = open_run(models)
        _ = run.ensemble  # which decides how far the members are
        found = [(run, one) for one in run.measured(members)]
        return [run.subject(one) for _, one in found], found
    if members is not None:
        raise ValueError("members must be left out where models are not one run")
    subjects: list[Subject] = []
    runs: list[tuple[Run, int]] = []
    for model in models:
        if isinstance(model, Run | Ensemble | str | Path):
            found = _subjects(model, None)[1]
            subjects += [_titled(*pair, several=True) for pair in found]
            runs += found
        elif isinstance(model, Subject | VAE):
            if isinstance(model, VAE):
                name = f"model {len(subjects)}"
                model = Subject(name, model.decoder, 0, model.likelihood, model.encode)
            subjects.append(model)
        else:
            raise ValueError(f"models must be subjects, VAEs or runs, got {type(model).__name__}")
    return subjects, runs


def _titled(run: Run, member: int, *, several: bool) -> Subject:
    """A member as a subject, after the folder of its run where there are several."""
    subject = run.subject(member)
    title = "" if run.path is None or not several else f"{run.path.name}: "
    return dataclasses.replace(subject, name=title + subject.name)


def _held_out(runs: list[tuple[Run, int]], models: int, items: int, seed: int) -> tuple[Tensor, str]:
    """Items of the first run that all models share, and what they are."""
    if len(runs) < models:
        raise ValueError("x must be given where models do not come from runs: the items to compare them at")
    run, member = runs[0]
    data = {one.stamp(which)["data"] for one, which in runs}
    if len(data) > 1:
        raise ValueError(
            "models must have been trained on the same data to be compared at it; give x otherwise"
        )
    x, held = run.images(member, items, seed), "held-out " * (run.trials[member].train_fraction < 1)
    return x, f"{len(x)} {held}items of {run.world_of(member).name}"


def _encode(subject: Subject, x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (batch, latent) of a model and its active latents (latent,)."""
    if subject.encoder is None:
        raise ValueError(
            f"{subject.name} has no encoder, so its latents cannot be compared at the same items"
        )
    given = x.to(*subject.kind) if isinstance(subject.decoder, torch.nn.Module) else x
    mean, variance = encode_data(subject.encoder, given)
    assert mean is not None and variance is not None
    if bool((variance != 0).any()):
        return mean, geometry.active_latents(mean, variance).active.cpu()
    # a point has no KL: a latent that varies is active
    return mean, (mean.amax(0) > mean.amin(0)).cpu()


def _column_products(subjects: Sequence[Subject], codes: Sequence[Tensor], active: Tensor) -> Tensor:
    """Inner products (member, latent, member, latent) of all Jacobian columns, over items and data dimensions."""
    members, latent = active.shape
    total = torch.zeros(members * latent, members * latent, dtype=torch.float64)
    kept = active.flatten().nonzero().flatten()
    outputs = torch.as_tensor(subjects[0].decoder(codes[0][:1])).numel()
    for index in torch.arange(len(codes[0])).split(max(1, _AT_ONCE // (outputs * len(kept)))):
        rows: list[Tensor] = []
        for subject, mean, mask in zip(subjects, codes, active, strict=True):
            found = _columns(subject, mean[index], mask)
            if found.shape[1] != outputs * len(index):
                raise ValueError(
                    f"models must return as many values per item, got {found.shape[1] // len(index)} from "
                    f"{subject.name} and {outputs} from {subjects[0].name}"
                )
            rows.append(found.to(rows[0]) if rows else found)
        flat = torch.cat(rows)
        total[kept[:, None], kept] += (flat @ flat.mT).double().cpu()
    return total.view(members, latent, members, latent)


def _columns(subject: Subject, z: Tensor, active: Tensor) -> Tensor:
    """Columns W^½J (latent, batch · data) of active latents, those of each item at a norm of 1 together."""
    weighted = geometry.jacobian(subject.decoder, z)[..., active[: z.shape[1]].to(z.device)]
    if subject.likelihood is not None:
        weight = subject.likelihood.fisher_weight(torch.as_tensor(subject.decoder(z)))
        weighted = weighted * weight.flatten(1).clamp(min=0).sqrt()[..., None]
    norm = weighted.flatten(1).norm(dim=1)[:, None, None]
    return torch.where(norm > 0, weighted / norm, 0.0).permute(2, 0, 1).flatten(1)


def _pad(masks: Sequence[Tensor]) -> Tensor:
    """Masks of different lengths as rows (member, latent)."""
    return torch.nn.utils.rnn.pad_sequence(list(masks), batch_first=True)


def _wilson(share: float, count: int) -> Share:
    """Wilson's 95 % interval of a mean of independent values in [0, 1], whose variance is at most share (1 − share)."""
    square = _NORMAL**2 / max(count, 1)
    middle, half = share + square / 2, (square * (share * (1 - share) + square / 4)) ** 0.5
    return Share(share, max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square)))
