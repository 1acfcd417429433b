"""What an artefact is: a published table, figure or theorem, its claims, and how to measure it."""

from __future__ import annotations

import dataclasses
import functools
import io
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import torch

from unseam.data import MissingFileError
from unseam.papers.claims import Claim, Finding, Identities
from unseam.training import provenance
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Tables = Mapping[str, pd.DataFrame]

__all__ = [
    "DIGITS",
    "SCALES",
    "Artefact",
    "PerDataset",
    "Result",
    "Scale",
    "Tally",
    "Workplace",
    "as_stored",
    "missing_table",
    "on_world",
    "presets_of",
    "reproduce",
    "scaled",
]

Scale = Literal["smoke", "laptop", "full"]
SCALES: tuple[Scale, ...] = ("smoke", "laptop", "full")
"""Seconds, minutes on two cores, as published on an accelerator."""

MISSING = "missing"
"""Table of data sets whose files are not there."""
DIGITS = "%.6g"
"""Of numbers in stored tables."""

TWINS = {"dsprites": "sprites", "shapes3d": "shapes"}
"""Published data sets, and the rendered worlds that stand for them."""

Value = TypeVar("Value")
Settings = TypeVar("Settings")


def scaled(smoke: Value, laptop: Value, full: Value | None = None) -> Value:
    """A field of settings that differs between scales, with ``laptop``'s value by default, and for ``full`` if none."""
    values = {"smoke": smoke, "laptop": laptop, "full": laptop if full is None else full}
    return dataclasses.field(default=laptop, metadata=values)


def presets_of(settings: type[Settings], **changes: Mapping[str, Any]) -> dict[Scale, Settings]:
    """Settings at every scale, with the values that their fields have there (see :func:`scaled`).

    Args:
        settings: a frozen dataclass.
        **changes: values of further fields, such as inherited ones, by scale.

    >>> @dataclass(frozen=True)
    ... class Models:
    ...     seeds: int = scaled(1, 5, 20)
    ...     width: int = 64
    >>> presets_of(Models, smoke={"width": 8})["smoke"]
    Models(seeds=1, width=8)
    """
    fields = [field for field in dataclasses.fields(settings) if field.metadata]  # type: ignore[arg-type]
    values = {scale: {field.name: field.metadata[scale] for field in fields} for scale in SCALES}
    return {scale: settings(**{**values[scale], **changes.get(scale, {})}) for scale in SCALES}


class Workplace(NamedTuple):
    """Where an artefact is measured."""

    device: torch.device
    folder: Path | None = None
    """Where trainings write checkpoints, so that an interrupted artefact can be resumed; none for no checkpoints."""
    progress: bool = False
    shared: Path | None = None
    """Where artefacts of one paper store what they measured of trainings that others of them need too."""


class PerDataset:
    """Base of settings for one data set that no artefact compares with another (see :func:`on_world`).

    >>> from unseam.papers import artefacts, on_world
    >>> rows = artefacts()["bhowal2024.table4"].presets["full"]
    >>> len(rows.setups), len(on_world(rows, "dsprites").setups)
    (4, 1)
    """


@dataclass(frozen=True)
class Artefact:
    """A published table, figure or theorem that can be measured again.

    Attributes:
        key: paper and name, e.g. ``sikka2019.figure1``.
        title: what it shows, in a few words.
        claims: what the paper says, each with the rule that judges it; and further checks of our own.
        presets: settings for each scale it has, as frozen dataclasses.
        measure: the measurement, a function of settings and workplace, that returns tables and nothing else.
        plot: its figure, in the paper's layout, from the tables alone.
        note: what a reader must know to read the findings, such as a choice that the paper leaves open.
    """

    key: str
    title: str
    claims: tuple[Claim, ...]
    presets: Mapping[Scale, Any]
    measure: Callable[[Any, Workplace], Tables]
    plot: Callable[[Tables], Figure]
    note: str = ""

    @property
    def paper(self) -> str:
        """The paper's key."""
        return self.key.split(".")[0]

    @property
    def name(self) -> str:
        """The artefact's name within its paper."""
        return self.key.split(".", 1)[1]

    def judge(self, tables: Tables) -> tuple[Finding, ...]:
        """Findings of all claims, from the tables as they are stored; and data sets that were not there."""
        present = {name: table for name, table in tables.items() if name != MISSING}
        found = [finding for claim in self.claims for finding in claim.judge(present)] if present else []
        if MISSING in tables:
            # exact statements need no data file
            ours = all(claim.ours or isinstance(claim, Identities) for claim in self.claims)
            for row in tables[MISSING].to_dict("records"):
                lacking = Finding(row["world"], "", None, None, None, "not run", note=row["need"])
                found.append(lacking._replace(ours=ours))
        return tuple(found)


def missing_table(errors: Mapping[str, MissingFileError]) -> dict[str, pd.DataFrame]:
    """The table of data sets whose files are not there, by name; none where all are.

    >>> missing_table({"MPI3D": MissingFileError("not in /here", "fetch it first")})["missing"]["need"].tolist()
    ['fetch it first']
    """
    import pandas as pd

    rows = [{"world": name, "need": error.need} for name, error in errors.items()]
    return {MISSING: pd.DataFrame(rows)} if rows else {}


class Spent(NamedTuple):
    """What a result cost."""

    seconds: float
    on: str


class Tally(NamedTuple):
    """Findings by outcome.

    >>> str(Tally.of([Finding("", "", None, None, None, "holds"), Finding("", "", None, None, None, "differs")]))
    '1 of 2, 1 differs'
    >>> str(Tally.of([]))
    'no claims of the paper'
    """

    positive: int
    """Findings that hold or agree."""
    negative: int
    """Findings that differ, or are false as printed."""
    untold: int
    total: int
    """Without those that were not run."""
    not_run: int

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Tally:
        """Count findings."""
        outcomes = [finding.outcome for finding in findings]
        positive, negative, untold, not_run = (
            sum(one in words for one in outcomes)
            for words in (
                ("holds", "agrees"),
                ("differs", "false as printed"),
                ("cannot tell",),
                ("not run",),
            )
        )
        return cls(positive, negative, untold, len(outcomes) - not_run, not_run)

    def __str__(self) -> str:
        if not self.total:
            return "not run" if self.not_run else "no claims of the paper"
        parts = [f"{self.positive} of {self.total}"]
        if self.negative:
            parts.append(f"{self.negative} differ{'s' * (self.negative == 1)}")
        if self.untold:
            parts.append(f"{self.untold} cannot be told")
        return ", ".join(parts)


@dataclass(frozen=True)
class Result:
    """An artefact measured at one scale, with all that is needed to do it again."""

    artefact: Artefact
    scale: Scale
    settings: Mapping[str, Any]
    tables: Tables
    about: Mapping[str, Any]
    seconds: float
    world: str | None = None
    """The published data set, where it took the place of its twin."""

    @functools.cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the claims of the artefact say of the tables."""
        return self.artefact.judge(self.tables)

    @property
    def tally(self) -> Tally:
        """Of the paper's own claims."""
        return Tally.of(finding for finding in self.findings if not finding.ours)

    @property
    def our_tally(self) -> Tally:
        """Of further checks of our own."""
        return Tally.of(finding for finding in self.findings if finding.ours)

    @property
    def spent(self) -> Spent:
        """Time and hardware of this measurement, or of the stored trainings that it used where these took longer."""
        trainings = self.tables.get("trainings")
        if trainings is not None and (trained := float(trainings["seconds"].sum())) > self.seconds:
            return Spent(trained, ", ".join(dict.fromkeys(trainings["hardware"])))
        hardware = self.about.get("hardware", {})
        return Spent(self.seconds, str(hardware.get("accelerator", f"{hardware.get('cores', '?')} cores")))

    @property
    def revisions(self) -> tuple[str, ...]:
        """Code revisions of the measurement and of the trainings it used, ``unknown`` where none was recorded."""
        trainings = self.tables.get("trainings")
        ours = [str(self.about.get("revision", "unknown"))]
        if trainings is not None:
            ours += list(trainings["revision"]) if "revision" in trainings else ["unknown"]
        return tuple(dict.fromkeys(ours))

    @property
    def command(self) -> str:
        """The command that makes this result."""
        world = "" if self.world is None else f" --world {self.world}"
        return f"unseam reproduce {self.artefact.key} --scale {self.scale}{world}"


def on_world(settings: Any, world: str) -> Any:
    """Settings of an artefact with a published data set in the place of its twin, wherever they name it.

    Settings that are all :class:`PerDataset` are reduced to those of the named one, so that no other is waited for.

    Args:
        settings: a frozen dataclass, with others in its fields.
        world: ``dsprites`` or ``shapes3d``, whose file has to be there.

    >>> from unseam.papers.rolinek2019.setups import SPRITES
    >>> on_world(SPRITES, "dsprites").base.world
    'dsprites'
    """
    if world not in TWINS:
        raise ValueError(f"world must be one of {', '.join(TWINS)}, got {world!r}")
    changed = _exchanged(settings, world)
    if changed == settings:
        raise ValueError(f"no part of this artefact is measured on {TWINS[world]}, the twin of {world}")
    return changed


def _exchanged(value: Any, world: str) -> Any:
    if isinstance(value, tuple):
        parts = tuple(_exchanged(part, world) for part in value)
        changed = tuple(new for old, new in zip(value, parts, strict=True) if new != old)
        return changed if changed and all(isinstance(part, PerDataset) for part in value) else parts
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    if getattr(value, "world", None) == TWINS[world]:
        options = "world_options" if isinstance(value, Trial) else "options"
        return dataclasses.replace(value, world=world, **{options: ()})
    fields = {item.name: _exchanged(getattr(value, item.name), world) for item in dataclasses.fields(value)}
    return dataclasses.replace(value, **fields)


def reproduce(
    artefact: Artefact,
    scale: Scale,
    *,
    device: torch.device | str | None = None,
    folder: Path | None = None,
    progress: bool = False,
    shared: Path | None = None,
    world: str | None = None,
) -> Result:
    """Measure an artefact at one of its scales.

    Args:
        artefact: which.
        scale: ``smoke``, ``laptop`` or ``full``, one that it has.
        device: where; CUDA when there is one.
        folder: where trainings write checkpoints and resume from; none for no checkpoints.
        progress: whether trainings report their progress.
        shared: where artefacts of one paper store what they measured of shared trainings; none for nowhere.
        world: a published data set in the place of its twin (see :func:`on_world`).

    >>> from unseam.papers import artefacts
    >>> reproduce(artefacts()["sikka2019.propositions"], "smoke", device="cpu").tally.negative
    0
    """
    if scale not in artefact.presets:
        raise ValueError(f"{artefact.key} has the scales {', '.join(artefact.presets)}, got {scale!r}")
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    settings = artefact.presets[scale] if world is None else on_world(artefact.presets[scale], world)
    started = time.monotonic()
    tables = as_stored(artefact.measure(settings, Workplace(chosen, folder, progress, shared)))
    seconds = time.monotonic() - started
    return Result(
        artefact, scale, dataclasses.asdict(settings), tables, provenance(chosen), round(seconds, 2), world
    )


def as_stored(tables: Tables) -> dict[str, pd.DataFrame]:
    """Tables as they come back from disk, so that findings are the same before and after.

    >>> import pandas as pd
    >>> float(as_stored({"a": pd.DataFrame({"x": [1 / 3]})})["a"]["x"][0])
    0.333333
    """
    import pandas as pd

    texts = {name: table.to_csv(index=False, float_format=DIGITS) for name, table in tables.items()}
    return {name: pd.read_csv(io.StringIO(text)) for name, text in texts.items()}
