"""What an artefact is: a published table or figure, its claim, the rule of its verdict, and how to measure it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from unseam.data import MissingFileError
from unseam.training import provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    Tables = Mapping[str, pd.DataFrame]

__all__ = [
    "SCALES",
    "Artefact",
    "DIGITS",
    "Finding",
    "Judgement",
    "Outcome",
    "Result",
    "Scale",
    "Verdict",
    "Workplace",
    "as_stored",
    "not_here",
    "on_world",
    "reproduce",
    "verdict",
]

Scale = Literal["smoke", "laptop", "full"]
SCALES: tuple[Scale, ...] = ("smoke", "laptop", "full")
"""Seconds, minutes on two cores, as published on an accelerator."""

TWINS = {"dsprites": "sprites", "shapes3d": "shapes"}
"""Published data sets, and the rendered worlds that stand for them."""

DIGITS = "%.6g"
"""Of numbers in stored tables."""

Verdict = Literal["reproduced", "partly", "not reproduced", "cannot be run here"]


class Finding(NamedTuple):
    """One number or statement of an artefact: published beside measured, and whether they agree.

    >>> Finding("eigenvalue", "66.25", 66.25, None, None, "reproduced").verdict
    'reproduced'
    """

    quantity: str
    """What it is, in words."""
    published: str
    """What the paper says of it."""
    measured: float | None
    """What was measured; none for a statement that was only checked."""
    lower: float | None
    """Lower end of the 95 % interval over seeds or points, or none where it is exact."""
    upper: float | None
    """Upper end."""
    verdict: Verdict
    note: str = ""
    """Why, where the verdict alone does not say it."""


def not_here(quantity: str, error: MissingFileError) -> Finding:
    """What a data set would have told, had its file been there.

    >>> not_here("MPI3D", MissingFileError("it is not in /here", "it has to be fetched")).note
    'it has to be fetched'
    """
    return Finding(quantity, "", None, None, None, "cannot be run here", error.need)


class Judgement(NamedTuple):
    """What the tables of an artefact say.

    >>> Judgement(()).note
    ''
    """

    findings: tuple[Finding, ...]
    note: str = ""


class Outcome(NamedTuple):
    """What measuring an artefact gave.

    >>> Outcome((), {}).note
    ''
    """

    findings: tuple[Finding, ...]
    tables: Mapping[str, pd.DataFrame]
    """The numbers behind the findings and the figure, by name."""
    note: str = ""


class Workplace(NamedTuple):
    """Where an artefact is measured.

    >>> Workplace(torch.device("cpu")).folder is None
    True
    """

    device: torch.device
    folder: Path | None = None
    """Where trainings keep checkpoints, so that an interrupted artefact goes on; none for none."""
    progress: bool = False
    shared: Path | None = None
    """Where artefacts of one paper keep what they measured of trainings that others of them need too."""


class ByItself:
    """Base of settings for one data set that no artefact compares with another: see :func:`on_world`.

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
        claim: what the paper says.
        criterion: what counts as reproduced, decided from the paper before looking at measured numbers.
        presets: settings for each scale it has, as frozen dataclasses.
        measure: the measurement, a function of settings and workplace, that returns tables and nothing else.
        judge: findings from the tables alone, as they are stored.
        draw: its figure, in the paper's layout, from the tables alone.
    """

    key: str
    title: str
    claim: str
    criterion: str
    presets: Mapping[Scale, Any]
    measure: Callable[[Any, Workplace], Tables]
    judge: Callable[[Tables], Judgement]
    draw: Callable[[Tables], Figure]

    def outcome(self, tables: Tables) -> Outcome:
        """The tables with what they say."""
        found = self.judge(tables)
        return Outcome(found.findings, tables, found.note)

    @property
    def paper(self) -> str:
        """The paper's key."""
        return self.key.split(".")[0]

    @property
    def name(self) -> str:
        """The artefact's name within its paper."""
        return self.key.split(".", 1)[1]


class Spent(NamedTuple):
    """What a result cost.

    >>> Result("a2024.figure1", "smoke", {}, Outcome((), {}), {"hardware": {"cores": 2}}, 0.5).spent
    Spent(seconds=0.5, on='2 cores')
    """

    seconds: float
    on: str


class Tally(NamedTuple):
    """Findings of a result, without those that cannot be run; ``partly`` are not among the ``reproduced``.

    >>> str(Tally(3, 1, 6)), str(Tally(3, 0, 6))
    ('3 of 6, 1 partly', '3 of 6')
    """

    reproduced: int
    partly: int
    judged: int

    def __str__(self) -> str:
        partly = f", {self.partly} partly" if self.partly else ""
        return f"{self.reproduced} of {self.judged}{partly}"


@dataclass(frozen=True)
class Result:
    """An artefact measured at one scale, with all that is needed to do it again.

    >>> Result("a2024.figure1", "smoke", {}, Outcome((), {}), {}, 0.5).command
    'unseam reproduce a2024.figure1 --scale smoke'
    """

    key: str
    scale: Scale
    settings: Mapping[str, Any]
    outcome: Outcome
    about: Mapping[str, Any]
    seconds: float
    world: str | None = None
    """The published data set, where it took the place of its twin."""

    @property
    def verdict(self) -> Verdict:
        """The verdict over all findings."""
        return verdict(self.outcome.findings)

    @property
    def tally(self) -> Tally:
        """How many of the findings are reproduced."""
        run = [one.verdict for one in self.outcome.findings if one.verdict != "cannot be run here"]
        return Tally(run.count("reproduced"), run.count("partly"), len(run))

    @property
    def spent(self) -> Spent:
        """Time and hardware of this measurement, or of the trainings that it found ready where these took longer."""
        trainings = self.outcome.tables.get("trainings")
        if trainings is not None and (trained := float(trainings["seconds"].sum())) > self.seconds:
            return Spent(trained, ", ".join(dict.fromkeys(trainings["hardware"])))
        hardware = self.about.get("hardware", {})
        return Spent(self.seconds, str(hardware.get("accelerator", f"{hardware.get('cores', '?')} cores")))

    @property
    def command(self) -> str:
        """The command that makes this result."""
        world = "" if self.world is None else f" --world {self.world}"
        return f"unseam reproduce {self.key} --scale {self.scale}{world}"


def as_stored(tables: Tables) -> dict[str, pd.DataFrame]:
    """Tables as they come back from disk, so that findings are the same before and after."""
    import io

    import pandas as pd

    texts = {name: table.to_csv(index=False, float_format=DIGITS) for name, table in tables.items()}
    return {name: pd.read_csv(io.StringIO(text)) for name, text in texts.items()}


def verdict(findings: tuple[Finding, ...]) -> Verdict:
    """The verdict over several findings: theirs where they agree, otherwise partly; also where some cannot be run.

    >>> verdict((Finding("", "", None, None, None, "reproduced"), Finding("", "", None, None, None, "not reproduced")))
    'partly'
    """
    seen = {finding.verdict for finding in findings}
    if not seen:
        return "cannot be run here"
    return seen.pop() if len(seen) == 1 else "partly"


def on_world(settings: Any, world: str) -> Any:
    """Settings of an artefact with a published data set in the place of its twin, wherever they name it.

    Of several that are looked at each :class:`ByItself` the others are left out: whoever names one waits for no other.

    Args:
        settings: a frozen dataclass, with others in its fields.
        world: ``dsprites`` or ``shapes3d``, whose file has to be there.

    >>> from unseam.papers.rolinek2019.setups import SPRITES
    >>> on_world(SPRITES, "dsprites").world
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
        return changed if changed and all(isinstance(part, ByItself) for part in value) else parts
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    if getattr(value, "world", None) == TWINS[world]:
        return dataclasses.replace(value, world=world, options=())
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
        folder: where trainings keep checkpoints and from where they go on; none for none.
        progress: whether trainings tell how they go.
        shared: where artefacts of one paper keep what they measured of trainings that they share; none for none.
        world: a published data set in the place of its twin (see :func:`on_world`).

    >>> from unseam.papers import artefacts
    >>> reproduce(artefacts()["sikka2019.propositions"], "smoke", device="cpu").verdict
    'reproduced'
    """
    if scale not in artefact.presets:
        raise ValueError(f"{artefact.key} has the scales {', '.join(artefact.presets)}, got {scale!r}")
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    settings = artefact.presets[scale] if world is None else on_world(artefact.presets[scale], world)
    started = time.monotonic()
    tables = as_stored(artefact.measure(settings, Workplace(chosen, folder, progress, shared)))
    seconds = time.monotonic() - started
    return Result(
        artefact.key,
        scale,
        dataclasses.asdict(settings),
        artefact.outcome(tables),
        provenance(chosen),
        round(seconds, 2),
        world,
    )
