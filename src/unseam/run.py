"""Run: the folder of a training as one object, whose parts are read or computed at first use and once."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import torch
from torch import Tensor

from unseam import inspection
from unseam.choices import load_object
from unseam.data import World, load
from unseam.files import read_table, write_table
from unseam.inspection import Inspection
from unseam.metrics import evaluate
from unseam.subject import Subject
from unseam.training import Ensemble, Split, provenance, split_items
from unseam.training.checkpoint import read_ensemble, read_run
from unseam.training.run import choose_device
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cache", "Codes", "Run", "inspect", "kl_weight", "model_title", "score"]

T = TypeVar("T")

# Values of pictures that are encoded at once: 64 MB in single precision.
_AT_ONCE = 2**24


def kl_weight(trial: Trial) -> float | None:
    """The β of allen2024 Eq. 7: the weight of a trial's KL term, or ``None`` where its β weighs something else.

    >>> kl_weight(Trial(beta=4.0)), kl_weight(Trial(objective="beta_tcvae"))
    (4.0, None)
    """
    return trial.beta if trial.objective_choice.weighs_kl else None


def model_title(trial: Trial) -> str:
    """The usual name of a trial's model.

    >>> model_title(Trial(objective="factor_vae")), model_title(Trial(posterior="full"))
    ('FactorVAE', 'full covariance')
    """
    return "full covariance" if trial.posterior == "full" else trial.objective_choice.title


class Cache:
    """Values by key, each computed at most once, whichever threads ask.

    >>> cache = Cache()
    >>> cache.once("a", lambda: [1]) is cache.once("a", lambda: [2])
    True
    """

    def __init__(self) -> None:
        self._found: dict[object, Any] = {}
        self._locks: dict[object, threading.Lock] = {}

    def once(self, key: object, compute: Callable[[], T]) -> T:
        """What ``compute`` returned to the first that asked for the key."""
        # one lock per key: waiting for one value does not block the others
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._found:
                self._found[key] = compute()
            found: T = self._found[key]
            return found

    def put(self, key: object, value: object) -> None:
        """Set or replace the value of a key."""
        with self._locks.setdefault(key, threading.Lock()):
            self._found[key] = value


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


class Run:
    """A run: trials, members, their world, held-out items, codes and scores.

    Every part is read or computed when it is first asked for, and then cached; several threads may share a run. Members
    are counted from 0 in the order of the trials.

    Args:
        path: folder of the run, or ``None`` where it was never saved.
        trials: of the members.
        about: versions, hardware and code revision of the training.
        members: gives the ensemble, when it is first asked for.
        root: file or folder of the data, where the world is read from files that have moved since.
        world: in place of the one that the trials name.
        device: of the members.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> run = Run.of(unseam.train([trial, trial]))
    >>> run.codes(points=20).mean.shape
    torch.Size([2, 20, 2])
    """

    def __init__(
        self,
        path: Path | None,
        trials: Sequence[Trial],
        about: Mapping[str, Any],
        members: Callable[[], Ensemble],
        *,
        root: str | None = None,
        world: World | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.path, self.trials, self.about = path, tuple(trials), about
        self.root, self.device = root, torch.device(device)
        self._members, self._given, self._cache = members, world, Cache()
        self._encoded: dict[int, _Encoded] = {}
        self._encoding = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        root: str | None = None,
        world: World | None = None,
        device: torch.device | str = "cpu",
        trust: bool = False,
    ) -> Run:
        """The run in a folder; nothing in it can run code.

        Only ``run.json`` is read at once; loading the members later draws no weights. Modules that it names as
        ``package.module:object`` are imported only with ``trust`` (see :func:`unseam.load`).
        """
        folder, place = Path(path), choose_device(device)
        record = read_run(folder, trust=trust)
        members = functools.partial(read_ensemble, folder, record, device=place)
        return cls(folder, record.trials, record.about, members, root=root, world=world, device=place)

    @classmethod
    def of(cls, ensemble: Ensemble, *, path: Path | None = None, world: World | None = None) -> Run:
        """The run of an ensemble that is in memory already."""
        return cls(
            path, ensemble.trials, ensemble.about, lambda: ensemble, world=world, device=ensemble.device
        )

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def ensemble(self) -> Ensemble:
        """All members."""
        return self._cache.once("ensemble", self._members)

    @property
    def world(self) -> World:
        """The world of all members."""
        named = dict.fromkeys(f"{trial.world} {dict(trial.world_options) or ''}" for trial in self.trials)
        if len(named) > 1 and self._given is None:
            first, second, *_ = (name.strip() for name in named)
            raise ValueError(f"members must share a world, got {first} and {second}")
        return self.world_of(0)

    @property
    def data(self) -> World:
        """The world of all members: what they were trained on."""
        return self.world

    def world_of(self, member: int) -> World:
        """The world of one member."""
        if self._given is not None:
            return self._given
        trial = self.trials[member]
        options: dict[str, Any] = dict(trial.world_options)
        options |= {} if self.root is None else {"root": self.root}
        key = ("world", trial.world, trial.world_options)
        return self._cache.once(key, lambda: load(trial.world, **options))

    def split(self, member: int = 0) -> Split:
        """The items that a member was trained on, and those that were held out."""
        trial, items = self.trials[member], len(self.world_of(member))
        key = ("split", items, trial.train_fraction, trial.split_seed)
        return self._cache.once(key, lambda: split_items(trial, items))

    def held_out(self, points: int = 1000, seed: int = 0, *, member: int = 0) -> Tensor:
        """Indices of items to measure a member at: of its test part, or of all where nothing was held out.

        Args:
            points: at most so many, drawn without replacement.
            seed: of the draw.
            member: whose split.
        """
        return self._held_out(member, points, torch.Generator().manual_seed(seed))

    def _held_out(self, member: int, points: int, generator: torch.Generator) -> Tensor:
        held = self.split(member).test
        return held if len(held) <= points else held[torch.randperm(len(held), generator=generator)[:points]]

    def select(self, members: Sequence[int] | None = None) -> list[int]:
        """Members by their numbers, all by default; one that is not there is refused."""
        found = list(range(len(self))) if members is None else list(members)
        if absent := [member for member in found if not 0 <= member < len(self)]:
            raise ValueError(f"member must lie in [0, {len(self)}), got {absent[0]}")
        return found

    def subject(self, member: int = 0) -> Subject:
        """One member as a subject, without data."""
        self.select([member])
        return self._cache.once(("subject", member), lambda: self._subject(member))

    def _subject(self, member: int) -> Subject:
        model, trial = self.ensemble[member], self.trials[member]
        name = f"member {member} ({trial.posterior}, β {trial.beta:g}, seed {trial.seed})"
        return Subject(name, model.decoder, trial.latent, model.likelihood, model.encode, kl_weight(trial))

    def images(self, member: int, points: int, seed: int) -> Tensor:
        """The held-out items themselves (batch, *data), as a member takes them."""
        index, dtype = self.held_out(points, seed, member=member), self.subject(member).kind[1]
        world, trial = self.world_of(member), self.trials[member]
        key = ("images", id(world), trial.train_fraction, trial.split_seed, points, seed)
        return self._cache.once(key, lambda: world.images(index)).to(self.device, dtype)

    def inspect(
        self, members: Sequence[int] | None = None, *, points: int = 1000, seed: int = 0
    ) -> dict[int, Inspection]:
        """Inspections by member, at the posterior means of held-out items.

        Args:
            members: which members; all by default.
            points: number of items.
            seed: of the choice of items and of the random baselines.
        """
        found = {}
        for member in self.select(members):
            key = ("inspection", member, points, seed)
            found[member] = self._cache.once(key, functools.partial(self._inspect, member, points, seed))
        return found

    def _inspect(self, member: int, points: int, seed: int) -> Inspection:
        generator = torch.Generator().manual_seed(seed)
        index = self._held_out(member, points, generator)
        subject = dataclasses.replace(self.subject(member), x=self.images(member, points, seed))
        try:
            found = subject.inspect(generator=generator)
        except ValueError as error:  # such as of a member whose training diverged
            raise ValueError(f"member {member} cannot be measured, choose others: {error}") from error
        with self._encoding:
            self._codes_of(member).add(index, found.mean, found.variance)
        return found

    def codes(
        self,
        members: Sequence[int] | None = None,
        *,
        index: Tensor | None = None,
        points: int = 50_000,
        seed: int = 0,
    ) -> Codes:
        """Codes of items by members that share a world and a number of latents; no item is encoded twice.

        Args:
            members: which members; all by default.
            index: which items; by default those of :meth:`held_out`.
            points: number of those.
            seed: of their choice.
        """
        chosen = self.select(members)
        world = self.world_of(chosen[0])
        index = self.held_out(points, seed, member=chosen[0]) if index is None else index
        with self._encoding:
            tables = [self._codes_of(member) for member in chosen]
            missing = index[torch.stack([table.lacks(index) for table in tables]).any(0)]
            size = max(1, _AT_ONCE // max(1, torch.Size(world.shape).numel()))
            for part in missing.split(size) if len(missing) else ():
                self._encode(chosen, tables, part, world.images(part))
            each = [table.at(index) for table in tables]
        mean, variance = (_stack(pieces) for pieces in zip(*each, strict=True))
        factors = world.factors[index.to(world.factors.device)].to(mean.device)
        return Codes(mean, variance, factors, tuple(size > 0 for size in world.factor_sizes))

    def _codes_of(self, member: int) -> _Encoded:
        return self._encoded.setdefault(member, _Encoded(len(self.world_of(member))))

    @torch.no_grad()
    def _encode(self, members: Sequence[int], tables: Sequence[_Encoded], index: Tensor, x: Tensor) -> None:
        """Fill in what tables lack of some items, at once where every member of the run lacks all of them."""
        lacking = [table.lacks(index) for table in tables]
        if list(members) == list(range(len(self))) and all(bool(mask.all()) for mask in lacking):
            for table, *encoding in zip(tables, *self.ensemble.encode(x), strict=True):
                table.add(index, *encoding)
            return
        for member, table, mask in zip(members, tables, lacking, strict=True):
            subject = self.subject(member)
            if subject.encoder is not None and bool(mask.any()):
                table.add(index[mask], *subject.encoder(x[mask.to(x.device)].to(*subject.kind)))

    @property
    def scores(self) -> pd.DataFrame | None:
        """The table of ``scores.parquet``, or ``None`` where nothing has been scored."""
        path = None if self.path is None else self.path / "scores.parquet"
        return self._cache.once(
            "scores", lambda: None if path is None or not path.exists() else read_table(path)
        )

    def save_scores(self, table: pd.DataFrame) -> None:
        """Write scores to ``scores.parquet``, beside those that they do not replace."""
        import pandas as pd

        before = self.scores
        if before is not None:
            keys = pd.MultiIndex.from_frame(table[["member", "metric"]])
            others = before[~pd.MultiIndex.from_frame(before[["member", "metric"]]).isin(keys)]
            merged = pd.concat([others, table]).sort_values("member", kind="stable", ignore_index=True)
            merged.attrs = table.attrs
            table = merged
        self._cache.put("scores", table)
        if self.path is not None:
            write_table(self.path / "scores.parquet", table)


class _Encoded:
    """Codes of one member at the items that were encoded so far."""

    def __init__(self, items: int) -> None:
        self.row = torch.full((items,), -1)
        self.mean = self.variance = torch.empty(0)

    def lacks(self, index: Tensor) -> Tensor:
        """Which of the items were not encoded yet."""
        return self.row[index] < 0

    def add(self, index: Tensor, mean: Tensor | None, variance: Tensor | None) -> None:
        """Store mean (batch, latent) and variance, or the diagonal of a covariance."""
        assert mean is not None and variance is not None
        diagonal = variance.diagonal(dim1=-2, dim2=-1) if variance.ndim > mean.ndim else variance
        self.row[index] = len(self.mean) + torch.arange(len(index))
        self.mean, self.variance = (
            torch.cat([old, new.detach()]) if len(old) else new.detach()
            for old, new in ((self.mean, mean), (self.variance, diagonal))
        )

    def at(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (batch, latent) of items."""
        rows = self.row[index].to(self.mean.device)
        return self.mean[rows], self.variance[rows]


def _stack(pieces: Sequence[Tensor]) -> Tensor:
    """Members along a first axis, in the widest of their types."""
    widest = functools.reduce(torch.promote_types, (piece.dtype for piece in pieces))
    return torch.stack([piece.to(widest) for piece in pieces])


@overload
def inspect(decoder: Run, z: None = None, **options: Any) -> dict[int, Inspection]: ...
@overload
def inspect(decoder: Subject | Callable[[Tensor], Tensor], z: Any = None, **options: Any) -> Inspection: ...
def inspect(
    decoder: Run | Subject | Callable[[Tensor], Tensor], z: Any = None, **options: Any
) -> Inspection | dict[int, Inspection]:
    """Measure the local geometry of any decoder, and say what it means.

    Args:
        decoder: any callable (batch, latent) -> (batch, *data) that returns the likelihood's parameter; a subject,
            which has its own points or data; or a run, whose members are measured at held-out items.
        z: points (batch, latent), for a callable without an encoder.
        options: those of :func:`unseam.inspection.inspect`, of :meth:`unseam.subject.Subject.inspect`, or of
            :meth:`unseam.run.Run.inspect`, which returns inspections by member.

    >>> inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2)).dto
    0.0
    >>> inspect(Subject("mine", lambda z: 2 * z, 2, z=torch.zeros(4, 2))).cosine
    0.0
    """
    if isinstance(decoder, Run | Subject):
        return decoder.inspect(**options)
    return inspection.inspect(decoder, z, **options)


def score(
    run: Run | str | Path,
    metrics: Sequence[str | Callable[..., Any]] | None = None,
    *,
    preset: str = "fast",
    points: int = 50_000,
    members: Sequence[int] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Score members of a run by the metrics of disentanglement, and save the table as its ``scores.parquet``.

    Held-out items are encoded once, and all metrics read the same codes. Members that share their world, their split
    and their number of latents are scored together. A score that the file holds already is replaced, others stay; each
    row says what it was made with.

    Args:
        run: the run, or its folder.
        metrics: names or functions that :func:`unseam.metrics.evaluate` takes, or ``package.module:function``; all
            that fit by default.
        preset: ``"fast"``, or ``"dlib"`` for numbers comparable with the 12 600-model study.
        points: number of items that are encoded at most.
        members: which members; all by default.
        seed: of the choice of items and of the metrics.

    Returns:
        The table of :func:`unseam.metrics.evaluate`; its ``attrs`` say what it was made with.
    """
    import pandas as pd

    if points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    run = run if isinstance(run, Run) else Run.open(run)
    if metrics is not None and not isinstance(metrics, str):
        metrics = [load_object(name) if isinstance(name, str) and ":" in name else name for name in metrics]
    parts = []
    for group in _groups(run, sorted(set(run.select(members)))):
        world = run.world_of(group[0])
        if not any(world.factor_sizes) and not world.factors.numel():
            raise ValueError(f"world {world.name} has no factors to score against")
        codes = run.codes(group, points=points, seed=seed)
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
        twin = f", twin of {world.twin_of}" if world.twin_of else ""
        parts.append(table.assign(points=len(codes.factors), world=f"{world.name}{twin}", seed=seed))
    table = pd.concat(parts).sort_values("member", kind="stable", ignore_index=True)
    table.attrs = {"seed": seed, "preset": preset, "about": provenance(run.device)}
    run.save_scores(table)
    return table


def _groups(run: Run, members: Sequence[int]) -> list[list[int]]:
    """Members that can be scored on the same items as one stack."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for member in members:
        trial = run.trials[member]
        shared = (trial.world, trial.world_options, trial.train_fraction, trial.split_seed)
        groups.setdefault((*shared, trial.latent, trial.posterior == "point"), []).append(member)
    return list(groups.values())
