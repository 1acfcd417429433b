"""Spec: which trials a sweep consists of, how they are measured, and the questions that it is to answer."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from unseam.files import open_file
from unseam.trial import Trial

__all__ = ["Question", "Score", "Spec", "axis_values", "interval_ends", "read_spec"]

LARGEST = 16 << 20
"""Bytes of a spec."""

BLOCK = ("trial", "axes", "zip", "random", "exclude")
TOP = ("name", "questions", "score", *BLOCK, "block")
PAIRS = ("world_options", "weights")
LARGEST = 1_000_000
"""Trials that one spec may have."""


@dataclass(frozen=True)
class Score:
    """How every trained model is measured: all rows of one store are measured alike.

    Attributes:
        metrics: names, or ``package.module:function``, of what :func:`unseam.metrics.evaluate` takes.
        points: held-out items at which the geometry is measured.
        items: held-out items that are encoded for the metrics.
        preset: of the metrics.
        seed: of items, baselines and metrics.
        measures: which of :data:`unseam.sweep.MEASURES`, or ``package.module:function`` of the same form.

    >>> Score(metrics=["mig"]).metrics
    ('mig',)
    """

    metrics: tuple[str, ...] = ("mig", "dci", "sap", "mcc")
    points: int = 500
    items: int = 5000
    preset: str = "fast"
    seed: int = 0
    measures: tuple[str, ...] = ("training", "geometry", "scores", "udr")

    def __post_init__(self) -> None:
        for name in ("metrics", "measures"):
            given = getattr(self, name)
            if isinstance(given, str) or not all(isinstance(one, str) for one in given):
                raise ValueError(f"score.{name} must be a list of names, got {given!r}")
            object.__setattr__(self, name, tuple(given))
        for name, least in (("points", 2), ("items", 2), ("seed", 0)):
            if not isinstance(given := getattr(self, name), int) or given < least:
                raise ValueError(f"score.{name} must be a whole number of at least {least}, got {given!r}")

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }


class Question(NamedTuple):
    """What a sweep is to answer, fixed before it is run."""

    ask: str
    answer: str = ""
    """What answers it in the report: ``prediction``, ``chain``, ``selection``, ``contrast``, or a column, whose means
    do."""


@dataclass(frozen=True)
class Spec:
    """Trials with how to measure them.

    >>> spec = read_spec({"trial": {"world": "linear"}, "axes": {"beta": [1, 4], "seed": {"range": [0, 10]}}})
    >>> len(spec.trials), spec.trials[10].describe()
    (20, "Trial(world='linear', beta=4)")
    """

    trials: tuple[Trial, ...]
    score: Score = Score()
    name: str = ""
    questions: tuple[Question, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict)
    """What it was made from."""


def read_spec(given: Spec | str | Path | Mapping[str, Any] | Trial | Sequence[Trial]) -> Spec:
    """A spec from a TOML file, from the same as a mapping, or from trials.

    Every field of a trial can be an axis; an unknown key is an error that names it. Trials that two blocks, axes or
    draws have in common are there once.

    Args:
        given: the file; or a mapping with ``trial`` (fields that all share), ``axes`` (each a list, ``{from, to, num,
            scale}`` or ``{range}``, crossed), ``zip`` (tables whose axes vary together), ``random`` (``num`` draws
            from ``axes``, by ``seed``), ``exclude`` (tables of values), ``block`` (tables with those keys of their
            own, whose trials are joined), ``score``, ``name`` and ``questions`` (texts, or tables with ``ask`` and
            ``answer``, see :class:`unseam.sweep.Question`).

    >>> read_spec({"axes": {"bta": [1]}})
    Traceback (most recent call last):
    ValueError: axes.bta is no field of a trial; did you mean beta?
    """
    if isinstance(given, Spec):
        return given
    if isinstance(given, str | Path):
        try:
            with open_file(Path(given), largest=LARGEST) as file:
                text = file.read()
        except FileNotFoundError:
            raise ValueError(f"{given} does not exist; a sweep needs a spec in TOML") from None
        try:
            given = tomllib.loads(text.decode())
        except (ValueError, RecursionError) as error:  # ValueError of numbers with thousands of digits too
            raise ValueError(f"{given} is no TOML: {error}") from None
    if isinstance(given, Trial):
        given = [given]
    if not isinstance(given, Mapping):
        if not all(isinstance(trial, Trial) for trial in given):
            raise ValueError("a sweep must be a spec or trials")
        return Spec(_unique(given))
    _check_keys(given, TOP, "")
    score = given.get("score", {})
    _check_keys(score, tuple(item.name for item in dataclasses.fields(Score)), "score.")
    trials: list[Trial] = []
    for number, block in enumerate(given.get("block") or [{}]):
        _check_keys(block, BLOCK, f"block {number}: ")
        shared = {key: {**given.get(key, {}), **block.get(key, {})} for key in ("trial", "axes")}
        lists = {key: [*given.get(key, []), *block.get(key, [])] for key in ("zip", "exclude")}
        random = block.get("random", given.get("random", {}))
        trials += _expand(shared["trial"], shared["axes"], lists["zip"], random, lists["exclude"])
    return Spec(
        _unique(trials),
        Score(**score),
        str(given.get("name", "")),
        _questions(given.get("questions", ())),
        given,
    )


def _questions(given: Any) -> tuple[Question, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"questions must be a list, got {given!r}")
    found = []
    for one in given:
        table = {"ask": one} if isinstance(one, str) else one
        _check_keys(table, Question._fields, "questions.")
        if not all(isinstance(value, str) for value in table.values()) or not table.get("ask"):
            raise ValueError(f"a question must be a text, or a table with ask and answer, got {one!r}")
        found.append(Question(**table))
    return tuple(found)


def _unique(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    found = tuple({trial.key(): trial for trial in trials}.values())
    if not found:
        raise ValueError("a sweep must have at least one trial; all were excluded, or there were none")
    return found


def _expand(
    trial: Mapping[str, Any],
    axes: Mapping[str, Any],
    zips: Sequence[Mapping[str, Any]],
    random: Mapping[str, Any],
    exclude: Sequence[Mapping[str, Any]],
) -> list[Trial]:
    """The trials of one block: the grid of its axes, of its zipped ones and of its draws, less what is excluded."""
    for name in trial:
        _check_field(name, "trial.")
    dials: list[list[dict[str, Any]]] = [
        [{name: value} for value in axis_values(name, values)] for name, values in axes.items()
    ]
    for table in zips:
        columns = {name: axis_values(name, values, where="zip.") for name, values in table.items()}
        if len({len(values) for values in columns.values()}) != 1:
            sizes = ", ".join(f"{name} {len(values)}" for name, values in columns.items())
            raise ValueError(f"axes of one zip must be of one length, got {sizes or 'none'}")
        dials.append(
            [dict(zip(columns, point, strict=True)) for point in zip(*columns.values(), strict=True)]
        )
    if random:
        dials.append(_draws(random))
    if (size := math.prod(map(len, dials))) > LARGEST:
        raise ValueError(f"a sweep may have at most {LARGEST} trials, and these axes make {size}")
    skipped = [
        {name: axis_values(name, value if isinstance(value, list | dict) else [value], where="exclude.")
         for name, value in table.items()}
        for table in exclude
    ]  # fmt: skip
    points = (
        {key: value for part in parts for key, value in part.items()} for parts in itertools.product(*dials)
    )
    return [
        _trial({**trial, **point})
        for point in points
        if not any(_excluded({**trial, **point}, rule) for rule in skipped)
    ]


def _trial(fields: Mapping[str, Any]) -> Trial:
    """A trial of fields, some of which are ``weights.delta`` or ``world_options.size``."""
    flat = {name: value for name, value in fields.items() if "." not in name}
    for name, value in fields.items():
        pair, _, key = name.partition(".")
        if key:
            flat[pair] = {**dict(flat.get(pair, {})), key: value}
    try:
        return Trial(**flat)
    except TypeError as error:
        raise ValueError(f"a trial cannot be made of {flat}: {error}") from None


def _excluded(point: Mapping[str, Any], rule: Mapping[str, Sequence[Any]]) -> bool:
    defaults = Trial.__dataclass_fields__
    return all(
        point.get(name, defaults[name].default if name in defaults else None) in values
        for name, values in rule.items()
    )


def axis_values(name: str, given: Any, *, where: str = "axes.") -> list[Any]:
    """The values of an axis: a list, ``{from, to, num, scale}`` with both ends, or ``{range}`` as in Python.

    >>> axis_values("beta", {"from": 0.1, "to": 10, "num": 3, "scale": "log"})
    [0.1, 1.0, 10.0]
    >>> axis_values("seed", {"range": [0, 3]})
    [0, 1, 2]
    """
    _check_field(name, where)
    if isinstance(given, list | tuple):
        if not given:
            raise ValueError(f"{where}{name} must have at least one value, got none")
        return list(given)
    if isinstance(given, Mapping) and set(given) == {"range"}:
        ends = given["range"]
        if not isinstance(ends, list | tuple) or not all(isinstance(end, int) for end in ends) or not ends:
            raise ValueError(f"{where}{name}.range must be whole numbers [start, stop, step], got {ends!r}")
        return list(range(*ends))
    if isinstance(given, Mapping):
        low, high, inner = interval_ends(name, given, ("from", "to", "num", "scale"), where)
        if not isinstance(count := given.get("num"), int) or count < 1:
            raise ValueError(f"{where}{name}.num must be a whole number of at least 1, got {count!r}")
        middle = (inner(part) for part in np.linspace(0, 1, count)[1:-1].tolist())
        return [_number(name, value) for value in (low, *middle, *[high] * (count > 1))]
    raise ValueError(f"{where}{name} must be a list, {{from, to, num, scale}} or {{range}}, got {given!r}")


def interval_ends(
    name: str, given: Mapping[str, Any], keys: tuple[str, ...], where: str
) -> tuple[float, float, Callable[[float], float]]:
    """Both ends of an interval, and what lies at a fraction of the way."""
    _check_keys(given, keys, f"{where}{name}.")
    low, high, scale = given.get("from"), given.get("to"), given.get("scale", "linear")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        raise ValueError(f"{where}{name} must have numbers from and to, got {low!r} and {high!r}")
    if scale not in ("linear", "log") or (scale == "log" and min(low, high) <= 0):
        raise ValueError(f"{where}{name}.scale must be linear, or log between positive ends, got {scale!r}")
    if scale == "log":
        return low, high, lambda part: float(f"{low * (high / low) ** part:.12g}")
    return low, high, lambda part: float(f"{low + (high - low) * part:.12g}")


def _number(name: str, value: float) -> int | float:
    """A whole number where the field takes no other."""
    if get_type_hints(Trial).get(name) is not int:
        return float(value)
    if float(value) != round(value):
        raise ValueError(f"axes.{name} must be whole numbers, but an interval of it holds {value}")
    return round(value)


def _draws(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``num`` points, each coordinate drawn on its own: uniformly from an interval or a list."""
    _check_keys(given, ("num", "seed", "axes"), "random.")
    axes, count, seed = given.get("axes", {}), given.get("num"), given.get("seed", 0)
    if not isinstance(count, int) or count < 1 or not axes:
        raise ValueError(f"random must have num, a whole number of at least 1, and axes; got num {count!r}")
    generator = np.random.default_rng(seed)
    return [{name: _draw(name, axis, generator) for name, axis in axes.items()} for _ in range(count)]


def _draw(name: str, axis: Any, generator: np.random.Generator) -> Any:
    if isinstance(axis, Mapping) and "range" not in axis:
        _check_field(name, "random.axes.")
        _, _, inner = interval_ends(name, axis, ("from", "to", "scale"), "random.axes.")
        value = inner(float(generator.random()))
        return round(value) if get_type_hints(Trial).get(name) is int else value
    values = axis_values(name, axis, where="random.axes.")
    return values[int(generator.integers(len(values)))]


def _check_field(name: str, where: str) -> None:
    pair, _, key = name.partition(".")
    known = Trial.__dataclass_fields__
    if name in known or (pair in PAIRS and key):
        return
    own = '; data of your own are a world in code: world = "package.module:object"' if pair == "data" else ""
    raise ValueError(f"{where}{name} is no field of a trial{own or _hint(name, known)}")


def _check_keys(given: Any, known: Sequence[str], where: str) -> None:
    if not isinstance(given, Mapping):
        raise ValueError(f"{where.rstrip('.: ') or 'a spec'} must be a table, got {given!r}")
    if unknown := [key for key in given if key not in known]:
        raise ValueError(
            f"{where}{unknown[0]} is unknown{_hint(unknown[0], known)}; there are {', '.join(known)}"
        )


def _hint(name: str, known: Any) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else ""
