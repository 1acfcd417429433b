"""Command-line flags made from the fields of a trial."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from unseam import choices
from unseam.trial import KINDS, Trial, describe_field

__all__ = ["TrialFlags", "trial_command"]

FIELDS = Trial.__dataclass_fields__
WEIGHT = "weight."
WORDS = {int: "a whole number", float: "a number", str: "text"}
PAIRS = {"world_options": "--world-option", "weights": "--weight"}


@dataclass(frozen=True)
class TrialFlags:
    """The fields of a trial that the flags of a command give; only whole trials are checked.

    >>> TrialFlags({"world": "linear"}).trials(["seed=0,1", "beta=1,4"])[3].describe()
    "Trial(world='linear', beta=4.0, seed=1)"
    """

    fields: Mapping[str, Any]

    def trials(self, vary: Sequence[str]) -> list[Trial]:
        """The grid of trials that the ``field=a,b,c`` of ``vary`` ask for, the last one fastest."""
        axes = [_axis(entry) for entry in vary]
        names = [name for name, _ in axes]
        if len(set(names)) < len(names):
            raise ValueError(f"--vary must name a field once, got {', '.join(names)}")
        grid = itertools.product(*(values for _, values in axes))
        return [self._trial(dict(zip(names, point, strict=True))) for point in grid]

    def _trial(self, point: Mapping[str, Any]) -> Trial:
        weights = {name[len(WEIGHT) :]: value for name, value in point.items() if name.startswith(WEIGHT)}
        fields = dict(self.fields) | {name: value for name, value in point.items() if name in FIELDS}
        return Trial(**fields | {"weights": dict(fields.get("weights", ())) | weights})

    def folder(self, trials: Sequence[Trial]) -> Path:
        """A folder named after what is trained, the same for the same trials."""
        digest = hashlib.sha256(" ".join(trial.key() for trial in trials).encode()).hexdigest()[:8]
        names = (trials[0].world, trials[0].objective)
        return Path("runs") / "-".join((*(name.rpartition(":")[2] for name in names), digest))


def trial_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter ``flags`` becomes one flag per field of :class:`Trial`.

    >>> def show(flags: TrialFlags) -> None: ...
    >>> "beta" in inspect.signature(trial_command(show)).parameters
    True
    """
    own = [p for name, p in inspect.signature(command, eval_str=True).parameters.items() if name != "flags"]
    hints = get_type_hints(Trial)
    made = [_parameter(item, hints[item.name]) for item in dataclasses.fields(Trial)]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        command(TrialFlags({name: _value(name, given.pop(name)) for name in FIELDS}), **given)

    parameters = [*made, *own]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


def _parameter(item: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    """One flag: text for sequences, the field's own type otherwise."""
    flag = _flag(item.name)
    text = describe_field(item.name)
    default: Any = item.default
    if item.name in PAIRS:
        annotation: Any = Annotated[list[str] | None, typer.Option(flag, help=f"{text}; repeat for more")]
        default = None
    elif get_origin(hint) is tuple:
        annotation = Annotated[str, typer.Option(flag, help=f"{text}; separated by commas", metavar="<list>")]
        default = ",".join(map(str, default))
    elif item.name in KINDS:
        option = typer.Option(flag, help=text, parser=_parser(KINDS[item.name]), metavar="<name>")
        annotation = Annotated[str, option]
    elif (kind := _kind(hint)) is str:
        annotation = Annotated[hint, typer.Option(flag, help=text)]
    else:
        option = typer.Option(flag, help=text, parser=_parser(kind), metavar=f"<{kind.__name__}>")
        annotation = Annotated[hint, option]
    return inspect.Parameter(
        item.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
    )


def _value(name: str, given: Any) -> Any:
    """The field's value from what a flag gave."""
    if name in PAIRS:
        return _pairs(given or (), PAIRS[name])
    hint = get_type_hints(Trial)[name]
    if get_origin(hint) is tuple and isinstance(given, str):
        kinds = get_args(hint)
        given = "" if given.strip() == "none" else given
        values = tuple(_number(kinds[0], part, _flag(name)) for part in given.split(",") if part.strip())
        if Ellipsis not in kinds and len(values) != len(kinds):
            raise ValueError(f"{_flag(name)} must hold {len(kinds)} values, got {given!r}")
        return values
    return given


def _axis(entry: str) -> tuple[str, list[Any]]:
    """Field and values of ``field=a,b,c``; values of a field that is a sequence are separated by semicolons."""
    name, separator, text = entry.partition("=")
    name = name.strip().replace("-", "_")
    hints = get_type_hints(Trial)
    if separator and name.startswith(WEIGHT):
        return name, [_number(float, part, f"--vary {name}") for part in text.split(",")]
    if not separator or name not in hints or name in PAIRS:
        raise ValueError(f"--vary must be field=a,b,c with a field of a trial, got {entry!r}")
    hint = hints[name]
    if get_origin(hint) is tuple:
        return name, [_value(name, part) for part in text.split(";")]
    return name, [_number(_kind(hint), part, f"--vary {name}") for part in text.split(",")]


def _pairs(entries: Sequence[str], flag: str) -> tuple[tuple[str, Any], ...]:
    """Names and values of ``name=value``, each name once."""
    pairs = [_pair(entry, flag) for entry in entries]
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"{flag} must name an option once, got {', '.join(names)}")
    return tuple(pairs)


def _pair(entry: str, flag: str) -> tuple[str, Any]:
    """Name and JSON value of ``name=value``; what is no JSON is text."""
    name, separator, text = entry.partition("=")
    if not separator or not name:
        raise ValueError(f"{flag} must be name=value, got {entry!r}")
    try:
        value = json.loads(text)
    except ValueError:  # also of numbers with thousands of digits
        return name, text
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, str | int | float) for item in items):
        raise ValueError(f"{flag} {name} must be a number, a text, true, false or a list of them, got {text}")
    return name, value


def _flag(name: str) -> str:
    return PAIRS.get(name, f"--{name.replace('_', '-')}")


def _kind(hint: Any) -> type:
    """Whether one value of a field is a whole number, a number or text."""
    return next((one for one in (int, float) if hint is one or one in get_args(hint)), str)


def _parser(kind: Any) -> Callable[[str], Any]:
    """A reader of one flag, whose errors say what was expected and what came."""

    def parse(text: str) -> Any:
        try:
            if issubclass(kind, choices.Choice):
                choices.find(kind, text)
                return text
            return kind(text)
        except ValueError as error:
            words = f"must be {WORDS[kind]}, got {text!r}" if kind in WORDS else str(error)
            raise typer.BadParameter(words) from None

    return parse


def _number(kind: type, text: str, name: str) -> Any:
    try:
        return kind(text.strip())
    except ValueError:
        raise ValueError(f"{name} must be given as {WORDS[kind]}, got {text.strip()!r}") from None
