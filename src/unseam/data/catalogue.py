"""Worlds by name."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

from unseam import choices
from unseam.data.world import World

__all__ = ["load", "names"]


def load(name: str | choices.World, *, root: str | Path | None = None, **options: Any) -> World:
    """The world of that name.

    Args:
        name: one of :func:`names`, or ``package.module:object`` for one of your own.
        root: file or folder of a published data set; by default the cache that ``unseam data fetch`` fills.
        options: the world's own parameters, e.g. ``ratio`` of ``linear``.

    >>> load("linear", size=100, ratio=1.5).factor_names
    ('w1', 'w2')
    """
    choice = choices.find(choices.World, name)
    make = choice.load()
    known = [key for key in inspect.signature(make).parameters if key not in ("root", "device", "layout")]
    if unknown := sorted(set(options) - set(known)):
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"option {unknown[0]!r} is unknown to world {choice.name!r}, whose options are {', '.join(known)}{hint}"
        )
    _check_types(choice, make, options)
    if choice.from_file:
        options["root"] = root
    elif root is not None:
        raise ValueError(
            f"root must be left out for world {choice.name!r}, which is not read from a file, got {root}"
        )
    world: World = make(**dict(choice.fixed), **options)
    return world


_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _check_types(choice: choices.World, make: Callable[..., World], options: dict[str, Any]) -> None:
    """Refuse an option that is no number where one is wanted, or the like."""
    hints = get_type_hints(make.func if isinstance(make, functools.partial) else make)
    for name, value in options.items():
        wanted = hints.get(name)
        fits: tuple[type, ...] = (
            (int, float) if wanted is float else (wanted,) if wanted in _WORDS else (object,)
        )
        if not isinstance(value, fits) or (isinstance(value, bool) and wanted in (int, float)):
            raise ValueError(
                f"option {name!r} of world {choice.name!r} must be {_WORDS[wanted]}, got {value!r}"  # type: ignore[index]
            )


def names() -> tuple[str, ...]:
    """Names of all worlds: first those made here, then those read from published files, then installed ones.

    >>> names()[:3]
    ('circles', 'linear', 'mixture')
    """
    known = choices.built_in(choices.World)
    return tuple(
        sorted(
            choices.names(choices.World),
            key=lambda name: (name not in known, name in known and known[name].from_file),
        )
    )
