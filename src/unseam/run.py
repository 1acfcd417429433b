"""Run: the folder of a training as one object, whose parts are read or computed at first use and once."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

import torch
from torch import Tensor

from unseam.adapters import wrap
from unseam.choices import load_object
from unseam.data import Identity, OwnData, World, data_difference, identify_data, load, names, open_data
from unseam.files import digest, first_line, read_array, read_table, write_table
from unseam.geometry import active_latents
from unseam.inputs import ordinary_modes
from unseam.inspection import Inspection
from unseam.locks import lock_folder
from unseam.metrics import evaluate, udr
from unseam.subject import Subject
from unseam.training import Ensemble, Split, group, provenance, split_items
from unseam.training.checkpoint import ATTEMPTS, ChangedError, read_ensemble, read_run
from unseam.training.run import choose_device
from unseam.training.stack import EARLY
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Cache",
    "Codes",
    "Run",
    "Standing",
    "evaluate_active",
    "inspect",
    "kl_weight",
    "model_title",
    "open_run",
    "score",
    "score_files",
]

T = TypeVar("T")

# Values of pictures that are encoded at once: 64 MB in single precision.
_AT_ONCE = 2**24
# Seconds to wait while another process writes its scores, which takes it a moment.
_PATIENCE = 60.0


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


class Standing(NamedTuple):
    """How far a member was trained.

    >>> str(Standing(20, 60)), str(Standing(60, 60, 12, "its loss")), str(Standing(60, 60))
    ('unfinished, 20 of 60 steps', 'diverged at step 12, its loss no longer finite', '')
    """

    steps: int
    """Steps done."""
    of: int
    """Steps of its trial."""
    stopped: int | None = None
    """The step at which it diverged."""
    cause: str = ""
    """What was no longer finite there, where that was recorded."""

    def __str__(self) -> str:
        if self.stopped is not None:
            return f"diverged at step {self.stopped}" + (
                f", {self.cause} no longer finite" * bool(self.cause)
            )
        return f"unfinished, {self.steps} of {self.of} steps" if self.steps < self.of else ""


class Run:
    """A run: trials, members, their world, held-out items, codes and scores.

    Every part is read or computed when it is first asked for, and then cached; several threads may share a run. Members
    are counted from 0 in the order of the trials.

    Args:
        path: folder of the run, or ``None`` where it was never saved.
        trials: of the members.
        about: versions, hardware and code revision of the training.
        members: gives the ensemble, when it is first asked for.
        standing: how far each member was trained; to the end by default.
        root: file or folder of the data, where the world is read from files that have moved since.
        world: the data that the members were trained on, where they cannot be loaded by name; others are refused.
        data: the same, as anything that :func:`unseam.data.open_data` takes; read with the options that the run
            recorded.
        factors: of data of the user's own that were trained on without any.
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
        standing: Sequence[Standing] | None = None,
        root: str | None = None,
        world: World | None = None,
        data: object = None,
        factors: Any = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.path, self.trials, self.about = path, tuple(trials), about
        self.standing = tuple(standing or (Standing(trial.steps, trial.steps) for trial in self.trials))
        self.root, self.device = root, torch.device(device)
        self._members, self._given, self._data, self._cache = members, world, data, Cache()
        self._factors = factors
        self._reopen: Callable[[], Run] | None = None
        if isinstance(data, World | OwnData):
            self._given, self._data = data if isinstance(data, World) else data.world, None
        self._encoded: dict[int, _Encoded] = {}
        self._encoding = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        root: str | None = None,
        world: World | str | None = None,
        data: object = None,
        factors: Any = None,
        device: torch.device | str = "cpu",
        trust: bool = False,
    ) -> Run:
        """The run in a folder; what reading it can import: :func:`unseam.load`.

        Only ``run.json`` is read at once; loading the members later draws no weights. Data are compared with what the
        run recorded of those it was trained on, whether they are given or loaded by name, and others are refused.

        Args:
            path: folder of the run.
            root: file or folder of the data, where the world is read from files that have moved since.
            world: the data, where the run was trained on the user's own; or the ``package.module:object`` of them.
            data: an array, a file or a folder of them, where they cannot be found again at the address that the run
                recorded; read with the recorded options.
            factors: of data that were trained on without any, as :func:`unseam.data.open_data` takes them.
            device: of the members.
            trust: import the modules that it names as ``package.module:object`` (see :func:`unseam.load`).
        """
        folder, place = Path(path), choose_device(device)
        record = read_run(folder, trust=trust)
        members = functools.partial(read_ensemble, folder, record, device=place)
        steps = {
            m: done for stack, done in zip(group(record.trials), record.steps, strict=True) for m in stack
        }
        standing = _standing(record.trials, steps, record.stopped, record.stopped_by)
        given = load(world) if isinstance(world, str) else world
        run = cls(
            folder,
            record.trials,
            record.about,
            members,
            standing=standing,
            root=root,
            world=given,
            data=data,
            factors=factors,
            device=place,
        )
        run._reopen = functools.partial(cls.open, path, device=device, trust=trust)
        if weights := record.files.get("weights.safetensors"):
            run._cache.put("weights", weights)
        return run

    @classmethod
    def of(
        cls, ensemble: Ensemble, *, path: Path | None = None, world: World | None = None, data: object = None
    ) -> Run:
        """The run of an ensemble that is in memory already; its data by default those it was trained on."""
        steps = dict(enumerate(ensemble.steps))
        standing = _standing(ensemble.trials, steps, ensemble.stopped, ensemble.stopped_by)
        return cls(
            path,
            ensemble.trials,
            ensemble.about,
            lambda: ensemble,
            standing=standing,
            world=ensemble.world if world is None and data is None else world,
            data=data,
            device=ensemble.device,
        )

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def ensemble(self) -> Ensemble:
        """All members; where a training has gone on since the run was opened, as they are now."""
        return self._cache.once("ensemble", self._load)

    def _load(self) -> Ensemble:
        # before the members are read: those of a training that goes on meanwhile are not taken for these
        _ = self.weights
        for _attempt in range(ATTEMPTS):
            try:
                return self._members()
            except ChangedError:
                if self._reopen is None:
                    raise
                later = self._reopen()
                if later.trials != self.trials:
                    raise ValueError(
                        f"{self._title} holds a run of other trials than when it was opened; open it again"
                    ) from None
                self.standing, self.about, self._members = later.standing, later.about, later._members
                self._cache.put("weights", later.weights)
        return self._members()

    @property
    def weights(self) -> str:
        """SHA-256 of the file of weights; empty where the run was never saved."""
        file = None if self.path is None else self.path / "weights.safetensors"
        return self._cache.once("weights", lambda: digest(file) if file is not None and file.exists() else "")

    @property
    def sound(self) -> list[int]:
        """Members that did not diverge: those that are measured where none is named."""
        return [member for member, state in enumerate(self.standing) if state.stopped is None]

    def measured(self, members: Sequence[int] | None = None) -> list[int]:
        """The members that are named, or all that did not diverge."""
        if members is None and not self.sound:
            raise ValueError(f"every member of {self._title} diverged; name those to measure all the same")
        return self.sound if members is None else self.select(members)

    def remarks(self, members: Sequence[int] | None = None) -> list[str]:
        """What every output says of a run: who is unfinished, who diverged, whether the data were recorded.

        Args:
            members: of which members; all by default.
        """
        found: dict[str, list[int]] = {}
        for member in self.select(members):
            if state := str(self.standing[member]):
                found.setdefault(state, []).append(member)
        lines = [
            f"member{'s' * (len(who) > 1)} {', '.join(map(str, who))} of {len(self)}: {state}"
            for state, who in found.items()
        ]
        lost = len(self) - len(self.sound)
        if members is None and lost:
            lines.append(
                f"{lost} of {len(self)} members diverged, and are measured only where they are named"
            )
        if any("digest" not in self._recorded(member) for member in self.select(members)):
            lines.append(
                "data not recorded: this run does not say on which data it was trained, but for their name"
            )
        return lines

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
        trial = self.trials[member]
        key = ("world", trial.world, trial.world_options, self._recorded(member).get("digest"))
        return self._cache.once(key, lambda: self._find_world(member))

    def _find_world(self, member: int) -> World:
        """The data that a member was trained on: given, or loaded by name; others are refused."""
        recorded = self._recorded(member)
        found = self._given if self._given is not None else self._load_world(member, recorded)
        if apart := data_difference(recorded, self._identify(found, recorded)):
            raise ValueError(
                f"{self._title} was trained on {_describe_data(recorded)}, and {found.name} is not that: {apart}; "
                f"{self._how}"
            )
        return found

    def _load_world(self, member: int, recorded: Mapping[str, Any]) -> World:
        trial = self.trials[member]
        if self._factors is not None and not recorded.get("given"):
            raise ValueError(
                f"factors must be left out: the world {recorded.get('name', trial.world)} has its own"
            )
        if self._data is not None:
            return self._read_data(self._data, recorded)
        options: dict[str, Any] = {} if self.root is None else {"root": self.root}
        if not recorded.get("given"):
            if not recorded and trial.world not in names() and ":" not in trial.world:
                raise ValueError(f"{self._title} does not say which data {trial.world!r} are; {self._how}")
            try:
                return load(trial.world, **options | dict(trial.world_options))
            except (TypeError, OverflowError, RuntimeError, MemoryError) as error:
                raise ValueError(
                    f"{self._title} names data that cannot be made, {trial.world}: {first_line(error)}"
                ) from error
        unknown = f"{self._title} was trained on {_describe_data(recorded)}, given by the user; {self._how}"
        if address := self.root or recorded.get("options", {}).get("path"):
            try:
                return self._read_data(address, recorded)
            except (ValueError, OSError) as error:
                raise ValueError(f"{unknown} ({error})") from error
        if recorded["name"] not in names():
            raise ValueError(unknown)
        try:
            return load(recorded["name"], **options | recorded["options"])
        except (ValueError, OSError, TypeError, OverflowError, RuntimeError, MemoryError) as error:
            raise ValueError(f"{unknown} ({first_line(error)})") from error

    def _read_data(self, data: object, recorded: Mapping[str, Any]) -> World:
        """Data of the user's own, read with the options that the run recorded."""
        takes = open_data.__kwdefaults__ or {}
        options = {key: value for key, value in recorded.get("options", {}).items() if key in takes}
        if self._factors is not None:
            if named := options.get("factors"):
                has = ", ".join(named) if isinstance(named, list) else named
                raise ValueError(f"factors must be left out: {self._title} has its own, {has}")
            options["factors"] = self._factors
        return open_data(data, **options).world

    def _identify(self, world: World, recorded: Mapping[str, Any]) -> Identity:
        read = recorded.get("read")
        return self._cache.once(("identity", id(world), read), lambda: identify_data(world, read=read))

    def _stacks(self) -> dict[int, int]:
        """The stack of each member."""
        return {m: number for number, members in enumerate(group(self.trials)) for m in members}

    def _recorded(self, member: int) -> Mapping[str, Any]:
        """What the run recorded of a member's data; nothing where it did not."""
        worlds = self.about.get("worlds") or []
        stack = self._cache.once("stacks", self._stacks)[member]
        return worlds[stack] if stack < len(worlds) else {}

    @property
    def _title(self) -> str:
        return "this ensemble" if self.path is None else str(self.path)

    @property
    def _how(self) -> str:
        """How to give a run its data."""
        if self.path is None:
            return "pass those data to unseam.Run.of as data= or world="
        return "pass those data as data= or world= (--data PATH, --world package.module:object)"

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
        return _draw(self.split(member).test, points, generator)

    def select(self, members: Sequence[int] | None = None) -> list[int]:
        """Members by their numbers, all by default; one that is not there is refused."""
        found = list(range(len(self))) if members is None else list(members)
        if absent := [member for member in found if not 0 <= member < len(self)]:
            raise ValueError(
                f"member must lie in [0, {len(self)}), got {absent[0]}: {self._title} has "
                f"{len(self)} member{'s' * (len(self) > 1)}, counted from 0"
            )
        return found

    def subject(self, member: int = 0) -> Subject:
        """One member as a subject, without data."""
        self.select([member])
        return self._cache.once(("subject", member), lambda: self._subject(member))

    def _subject(self, member: int) -> Subject:
        model, trial = self.ensemble[member], self.trials[member]
        state = f"; {self.standing[member]}" if str(self.standing[member]) else ""
        name = f"member {member} ({trial.posterior}, β {trial.beta:g}, seed {trial.seed}{state})"
        return Subject(name, model.decoder, trial.latent, model.likelihood, model.encode, kl_weight(trial))

    @ordinary_modes()
    def images(self, member: int, points: int, seed: int) -> Tensor:
        """The held-out items themselves (batch, *data), as a member takes them."""
        index, dtype = self.held_out(points, seed, member=member), self.subject(member).kind[1]
        world, trial = self.world_of(member), self.trials[member]
        key = ("images", id(world), trial.train_fraction, trial.split_seed, points, seed)
        x = self._cache.once(key, lambda: world.images(index)).to(self.device, dtype)
        # as the likelihood gives them to the encoder
        return x.nan_to_num(0.0) if trial.missing == "mask" else x

    @ordinary_modes()
    def inspect(
        self,
        members: Sequence[int] | None = None,
        *,
        points: int = 1000,
        seed: int = 0,
        at: Literal["data", "prior"] = "data",
    ) -> dict[int, Inspection]:
        """Inspections by member, at the posterior means of held-out items, or at draws from the prior.

        Args:
            members: which members; all that did not diverge by default.
            points: number of points.
            seed: of the choice of points and of the random baselines.
            at: ``"prior"`` measures the decoders at draws from N(0, I), which needs no data; what compares them with
                the encoders is then left out.
        """
        if at not in ("data", "prior"):
            raise ValueError(f"at must be data or prior, got {at!r}")
        _ = self.ensemble  # which decides how far the members are
        measure = self._inspect if at == "data" else self._inspect_prior
        found = {}
        for member in self.measured(members):
            key = ("inspection", at, member, points, seed)
            found[member] = self._cache.once(key, functools.partial(measure, member, points, seed))
        return found

    def _inspect_prior(self, member: int, points: int, seed: int) -> Inspection:
        generator, subject = torch.Generator().manual_seed(seed), self.subject(member)
        found = dataclasses.replace(subject, z=subject.prior(points, generator)).inspect(generator=generator)
        return dataclasses.replace(found, where=f"{points} draws from the prior N(0, I)")

    def _inspect(self, member: int, points: int, seed: int) -> Inspection:
        generator = torch.Generator().manual_seed(seed)
        index = self._held_out(member, points, generator)
        subject = dataclasses.replace(self.subject(member), x=self.images(member, points, seed))
        try:
            found = subject.inspect(generator=generator)
        except ValueError as error:  # such as of a member whose training diverged
            raise self._refusal(member, error) from error
        with self._encoding:
            self._codes_of(member).add(index, found.mean, found.variance)
        held = "held-out items" if self.trials[member].train_fraction < 1 else "items"
        world = self.world_of(member)
        where = f"the posterior means of {len(index)} {held} of {world.name}"
        return dataclasses.replace(found, where=where, factors=world.factors.shape[1] or None)

    @ordinary_modes()
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
        for member, (mean, _) in zip(chosen, each, strict=True):
            if not bool(mean.isfinite().all()):
                raise self._refusal(member, "its codes are not finite")
        mean, variance = (_stack(pieces) for pieces in zip(*each, strict=True))
        factors = world.factors[index.to(world.factors.device)].to(mean.device)
        return Codes(mean, variance, factors, tuple(size > 0 for size in world.factor_sizes))

    def _refusal(self, member: int, why: object) -> ValueError:
        state = f" ({self.standing[member]})" if str(self.standing[member]) else ""
        return ValueError(f"member {member} cannot be measured, choose others: {why}{state}")

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
        """Rows of ``scores.parquet`` that are of these weights, steps and data; ``None`` where there are none."""
        path = None if self.path is None else self.path / "scores.parquet"
        return self._cache.once(
            ("scores", self.weights),
            lambda: None if path is None or not path.exists() else self._current(read_table(path)),
        )

    def _current(self, table: pd.DataFrame) -> pd.DataFrame | None:
        """Scores that still hold: not those of an earlier step, of other data, or without a record of either."""
        if not {"member", "step", "weights", "data", "factors", "score_all"} <= set(table.columns):
            return None
        if table["member"].dtype.kind not in "iu":
            raise ValueError(f"{self.path}/scores.parquet must name members by number; restore or remove it")
        kept = table[[self._is_current(row) for row in table.to_dict("records")]]
        kept.attrs = table.attrs
        return kept.reset_index(drop=True) if len(kept) else None

    def _is_current(self, row: Mapping[Any, Any]) -> bool:
        member = int(row["member"])
        if not 0 <= member < len(self):
            return False
        same = (row["step"], row["weights"]) == (self.standing[member].steps, self.weights)
        recorded = self._recorded(member)
        same = same and row["data"] == recorded.get("digest", row["data"])
        if same and (self._given is not None or self._factors is not None):
            return bool(row["factors"] == self._identify(self.world_of(member), recorded).factor_digest)
        return same

    def stamp(self, member: int) -> dict[str, Any]:
        """What a score of a member belongs to: step, and digests of weights, data and factors."""
        recorded = self._recorded(member)
        found = self._identify(self.world_of(member), recorded)
        return {
            "step": self.standing[member].steps,
            "weights": self.weights,
            "data": recorded.get("digest", found.digest),
            "factors": found.factor_digest,
        }

    def save_scores(self, table: pd.DataFrame) -> None:
        """Write scores to ``scores.parquet``, beside those that they do not replace."""
        key = ("scores", self.weights)
        if self.path is None:
            self._cache.put(key, _merge_scores(self.scores, table))
            return
        path = self.path / "scores.parquet"
        # read again: another process may have scored the run since
        with lock_folder(self.path, ".scores.lock", wait=_PATIENCE):
            before = self._current(read_table(path)) if path.exists() else None
            merged = _merge_scores(before, table)
            write_table(path, merged)
        self._cache.put(key, merged)


def _merge_scores(before: pd.DataFrame | None, table: pd.DataFrame) -> pd.DataFrame:
    """New scores beside those that they do not replace."""
    import pandas as pd

    if before is None:
        return table
    keys = pd.MultiIndex.from_frame(table[["member", "metric"]])
    others = before[~pd.MultiIndex.from_frame(before[["member", "metric"]]).isin(keys)]
    merged = pd.concat([others, table]).sort_values("member", kind="stable", ignore_index=True)
    merged.attrs = table.attrs
    return merged


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


def _standing(
    trials: Sequence[Trial], steps: Mapping[int, int], stopped: Mapping[int, int], causes: Mapping[int, str]
) -> list[Standing]:
    return [
        Standing(steps[member], trial.steps)
        if causes.get(member) == EARLY
        else Standing(steps[member], trial.steps, stopped.get(member), causes.get(member, ""))
        for member, trial in enumerate(trials)
    ]


def _describe_data(recorded: Mapping[str, Any]) -> str:
    """What a run recorded of its data, in a few words."""
    shape = f" of shape {tuple(recorded['shape'])}" if "shape" in recorded else ""
    address = recorded.get("options", {}).get("path") or recorded.get("path")
    path = f" in {address}" if address else ""
    return f"{recorded['name']} ({recorded['items']} items{shape}{path})"


def open_run(
    run: Run | Ensemble | str | Path,
    world: World | str | None = None,
    data: object = None,
    factors: Any = None,
) -> Run:
    """A run, or that of a folder or an ensemble with the data it was trained on; a run that is open has its own."""
    if isinstance(run, str | Path):
        return Run.open(run, world=world, data=data, factors=factors)
    given = {"world": world, "data": data, "factors": factors}
    if isinstance(run, Ensemble) and factors is None:
        return Run.of(run, world=load(world) if isinstance(world, str) else world, data=data)
    if absent := [name for name, value in given.items() if value is not None]:
        where = "train" if isinstance(run, Ensemble) else "Run.open or Run.of, where the run is open already"
        raise ValueError(f"{absent[-1]} must be given to {where}")
    return run  # type: ignore[return-value]


@overload
def inspect(decoder: Run | Ensemble, z: None = None, **options: Any) -> dict[int, Inspection]: ...
@overload
def inspect(decoder: Any, z: Any = None, **options: Any) -> Inspection: ...
def inspect(decoder: Any, z: Any = None, **options: Any) -> Inspection | dict[int, Inspection]:
    """Measure the local geometry of any decoder, and say what it means.

    Args:
        decoder: any callable (batch, latent) -> (batch, *data) that returns the likelihood's parameter; a subject; any
            model that :func:`unseam.wrap` takes; or a run, its folder or an ensemble, whose members are measured at
            held-out items.
        z: points (batch, latent); without points or data, draws from the prior.
        options: those of :func:`unseam.wrap` (``encoder``, ``x``, ``likelihood``, ``latent``, ``beta``) and of
            :meth:`unseam.subject.Subject.inspect`; of a run those of :meth:`unseam.run.Run.inspect`, which returns
            inspections by member, and ``world`` or ``data`` where :meth:`unseam.run.Run.open` needs them.

    >>> inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2)).dto
    0.0
    >>> inspect(Subject("mine", lambda z: 2 * z, 2, z=torch.zeros(4, 2))).cosine
    0.0
    """
    if isinstance(decoder, Run | Ensemble) or (isinstance(decoder, str | Path) and Path(decoder).is_dir()):
        return open_run(decoder, options.pop("world", None), options.pop("data", None)).inspect(**options)
    measuring = signature(Subject.inspect).parameters
    given = {name: options.pop(name) for name in list(options) if name in measuring}
    if options.get("encoder") is not None and options.get("x") is None:
        raise ValueError("x must be given with encoder: the data that it encodes")
    return wrap(decoder, z=z, **options).inspect(**given)


def score(
    run: Run | Ensemble | str | Path | Any,
    metrics: Sequence[str | Callable[..., Any]] | None = None,
    *,
    preset: str = "fast",
    points: int = 50_000,
    members: Sequence[int] | None = None,
    seed: int = 0,
    world: World | str | None = None,
    data: object = None,
    factors: Any = None,
    **options: Any,
) -> pd.DataFrame:
    """Score members of a run by the metrics of disentanglement, and save the table as its ``scores.parquet``.

    Held-out items are encoded once, and all metrics read the same codes. Members that share their world, their split
    and their number of latents are scored together. A score that the file holds already is replaced, others of the same
    weights and data stay; each row says what it was made with: step, digests of weights, data and factors, settings.

    Args:
        run: the run, its folder, or an ensemble; a subject, or any model that :func:`unseam.wrap` takes with an
            encoder.
        metrics: names or functions that :func:`unseam.metrics.evaluate` takes, or ``package.module:function``; all
            that fit by default.
        preset: ``"fast"``, or ``"dlib"`` for numbers comparable with the 12 600-model study.
        points: number of items that are encoded at most.
        members: which members; all that did not diverge by default.
        seed: of the choice of items and of the metrics.
        world: the data, where ``run`` is a folder and was trained on the user's own (see :meth:`Run.open`), or a model
            that is no run.
        data: the same as an array, a file or a folder; of a model that is no run by default its own ``x``.
        factors: what made each item, as :func:`unseam.data.open_data` takes them: of a model that is no run, or where
            ``run`` is a folder and was trained on data without factors.
        options: of a model that is no run those of :func:`unseam.wrap` (``x``, ``encoder``, ``log_variance``, …).

    Returns:
        The table of :func:`evaluate_active`, whose scores are over active latents, beside those over all; its ``attrs``
        say what it was made with.
    """
    import pandas as pd

    if points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    metrics = _load_metrics(metrics)
    if not isinstance(run, Run | Ensemble | str | Path):
        subject = wrap(run, **options)
        given = _labelled(subject, world, data, factors)
        own = subject.x if world is None and data is None else None
        read = given.images if own is None else own.__getitem__
        return _score_subject(subject, given, read, metrics, preset=preset, points=points, seed=seed)
    if options:
        raise ValueError(f"{next(iter(options))} must be left out beside a run, which has its own")
    run = open_run(run, world, data, factors)
    parts = []
    _ = run.ensemble  # which decides how far the members are
    _ = run.scores  # a damaged file is an error before anything is measured
    for alike in _groups(run, sorted(set(run.measured(members)))):
        held = run.world_of(alike[0])
        if not any(held.factor_sizes) and not held.factors.numel():
            raise ValueError(
                f"world {held.name} has no factors to score against: pass factors= (unseam score RUN FACTORS)"
            )
        codes = run.codes(alike, points=points, seed=seed)
        table = evaluate_active(
            codes.mean,
            codes.factors,
            metrics,
            discrete=codes.discrete,
            variance=codes.variance,
            preset=preset,
            seed=seed,
        )
        table["member"] = [alike[member] for member in table["member"]]
        twin = f", twin of {held.twin_of}" if held.twin_of else ""
        stamp = run.stamp(alike[0])
        parts.append(table.assign(points=len(codes.factors), world=f"{held.name}{twin}", seed=seed, **stamp))
    table = pd.concat(parts).sort_values("member", kind="stable", ignore_index=True)
    table.attrs = {"seed": seed, "preset": preset, "about": provenance(run.device)}
    if run.path is None or os.access(run.path, os.W_OK):
        run.save_scores(table)
    else:
        warnings.warn(f"{run.path} may not be written to: the scores are not stored there", stacklevel=2)
    return table


def _labelled(subject: Subject, world: World | str | None, data: object, factors: Any) -> World:
    """The data whose codes are scored, with their factors."""
    if world is not None:
        return load(world) if isinstance(world, str) else world
    x = subject.x if data is None else data
    if x is None or factors is None:
        raise ValueError(
            "world must name data with known factors, or data and factors be given: a model that is no run has none"
        )
    return open_data(x, factors=factors).world


def _score_subject(
    subject: Subject,
    world: World,
    read: Callable[[Tensor], Tensor],
    metrics: Any,
    *,
    preset: str,
    points: int,
    seed: int,
) -> pd.DataFrame:
    """Scores of one model's codes of a world, whose items are read as the model was trained on them."""
    index = _draw(torch.arange(len(world)), points, torch.Generator().manual_seed(seed))
    parts = [subject.encode(read(part)) for part in index.split(1024)]
    mean, covariance = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
    variance = covariance.diagonal(dim1=1, dim2=2)
    table = evaluate_active(
        mean[None],
        world.factors[index],
        metrics,
        variance=variance[None] if bool(variance.any()) else None,
        discrete=tuple(size > 0 for size in world.factor_sizes),
        preset=preset,
        seed=seed,
    )
    return table.assign(points=len(index), world=world.name, model=subject.name)


def evaluate_active(
    codes: Tensor,
    factors: Tensor,
    metrics: Sequence[str | Callable[..., Any]] | None = None,
    *,
    variance: Tensor | None = None,
    active: Sequence[Tensor] | None = None,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """Scores of codes over their active latents, beside those over all latents.

    A collapsed latent's mean can still follow a factor, and counts in MIG, DCI or MCC although the decoder ignores it.
    Without an active latent the scores are undefined, NaN. UDR weighs latents by their KL itself: both are the same.

    Args:
        codes: posterior means (member, batch, latent).
        factors: what made each item (batch, factor).
        metrics: as :func:`unseam.metrics.evaluate` takes them.
        variance: of the posterior, in the shape of the codes.
        active: by member, (latent,) booleans; by default latents whose mean KL is above 0.01 nats, and all where there
            is no variance.
        seed: of the metrics.
        options: of :func:`unseam.metrics.evaluate`.

    Returns:
        The table of :func:`unseam.metrics.evaluate` over active latents, with their number ``active`` and, over all
        latents, ``score_all``, ``lower_all`` and ``upper_all``.

    >>> v = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    >>> codes = torch.cat([v, v[:, :1]], 1).double()[None]
    >>> found = evaluate_active(codes, v, ["mig"], active=[torch.tensor([True, True, False])])
    >>> found[["score", "score_all", "active"]].values.tolist()
    [[1.0, 0.5, 2.0]]
    """
    import pandas as pd

    def call(chosen: Tensor, spread: Tensor | None, asked: Any) -> pd.DataFrame:
        generator = torch.Generator().manual_seed(seed)
        return evaluate(chosen, factors, asked, variance=spread, generator=generator, **options)

    table = call(codes, variance, metrics)
    for name in ("score", "lower", "upper"):
        table[f"{name}_all"] = table[name]
    numbers = ["score", "lower", "upper", "error"]
    masks = _active(codes, variance) if active is None else list(active)
    table["active"] = [int(masks[member].sum()) for member in table["member"]]
    fits = (table["note"] == "") & (table["metric"] != "udr")
    table.loc[fits & (table["active"] == 0), numbers] = float("nan")
    for count in sorted({int(mask.sum()) for mask in masks} - {0, codes.shape[2]}):
        members = [member for member, mask in enumerate(masks) if int(mask.sum()) == count]
        rows = fits & table["member"].isin(members)
        if not rows.any():
            continue

        def choose(held: Tensor, members: list[int] = members) -> Tensor:
            return torch.stack([held[member][:, masks[member]] for member in members])

        asked = None if metrics is None else [one for one in metrics if one not in ("udr", udr)]
        part = call(choose(codes), None if variance is None else choose(variance), asked)
        part = part[(part["note"] == "") & (part["metric"] != "udr")]
        part = part.assign(member=[members[member] for member in part["member"]])
        keys = pd.MultiIndex.from_frame(table.loc[rows, ["member", "metric"]])
        table.loc[rows, numbers] = part.set_index(["member", "metric"]).loc[keys, numbers].to_numpy()
    return table


def _active(codes: Tensor, variance: Tensor | None) -> list[Tensor]:
    """By member, which latents are active: all where there is no posterior but points."""
    if variance is None or not bool((variance > 0).all()):
        return [torch.ones(codes.shape[2], dtype=torch.bool)] * len(codes)
    return [active_latents(mean, spread).active for mean, spread in zip(codes, variance, strict=True)]


def score_files(
    codes: str | Path,
    factors: str | Path,
    metrics: Sequence[str | Callable[..., Any]] | None = None,
    *,
    preset: str = "fast",
    points: int = 50_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Score codes of a file against factors of another, row by row.

    Args:
        codes: ``.npy``, ``.npz`` or ``.safetensors`` file with one array (batch, latent).
        factors: likewise (batch, factor), or a ``.csv``, ``.tsv`` or ``.parquet`` table; integers and text are
            discrete, floats continuous.
        metrics: as in :func:`score`.
        preset: as in :func:`score`.
        points: number of rows that are used at most, drawn without replacement.
        seed: of the draw and of the metrics.
    """
    rows = read_array(Path(codes))
    rows = rows.float() if rows.dtype == torch.uint8 else rows
    if rows.ndim != 2:
        raise ValueError(f"{codes} must hold codes (batch, latent), got shape {tuple(rows.shape)}")
    world = open_data(rows, factors=Path(factors)).world
    index = _draw(torch.arange(len(rows)), points, torch.Generator().manual_seed(seed))
    return evaluate_active(
        rows[index][None],
        world.factors[index],
        _load_metrics(metrics),
        discrete=tuple(size > 0 for size in world.factor_sizes),
        preset=preset,
        seed=seed,
    )


def _draw(index: Tensor, points: int, generator: torch.Generator) -> Tensor:
    """All of the items, or so many of them, drawn without replacement."""
    return index if len(index) <= points else index[torch.randperm(len(index), generator=generator)[:points]]


def _load_metrics(metrics: Any) -> Any:
    """Metrics with those of the user's own, ``package.module:function``, looked up."""
    if metrics is None or isinstance(metrics, str):
        return metrics
    return [load_object(name) if isinstance(name, str) and ":" in name else name for name in metrics]


def _groups(run: Run, members: Sequence[int]) -> list[list[int]]:
    """Members that can be scored on the same items as one stack."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for member in members:
        trial = run.trials[member]
        shared = (trial.world, trial.world_options, trial.train_fraction, trial.split_seed)
        state = run.standing[member]
        key = (*shared, trial.latent, trial.posterior == "point", state.steps, state.stopped is None)
        groups.setdefault(key, []).append(member)
    return list(groups.values())
