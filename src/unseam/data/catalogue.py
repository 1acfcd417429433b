"""Worlds by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from unseam.data.world import World

__all__ = ["load", "names"]

_MADE = {
    "sprites": ("sprites", "Sprites"),
    "shapes": ("shapes", "Shapes"),
    "linear": ("square", "linear"),
    "nonlinear": ("square", "nonlinear"),
    "mixture": ("mixture", "mixture"),
    "moving_digit": ("moving_digit", "moving_digit"),
    "circles": ("circles", "circles"),
}
_READ = {
    "dsprites": ("published", "dsprites"),
    "shapes3d": ("published", "shapes3d"),
    "mpi3d": ("published", "mpi3d"),
    "faces3d": ("published", "faces3d"),
    "mnist": ("published", "mnist"),
    "fashion_mnist": ("published", "fashion_mnist"),
}


def load(name: str, *, root: str | Path | None = None, **options: Any) -> World:
    """The world of that name.

    Args:
        name: one of :func:`names`.
        root: file or folder of a published data set; by default the cache that ``unseam data fetch`` fills.
        options: the world's own parameters, e.g. ``ratio`` of ``linear``.

    >>> load("linear", size=100, ratio=1.5).factor_names
    ('w1', 'w2')
    """
    builder = _builder(name)
    known = [key for key in inspect.signature(builder).parameters if key not in ("root", "device", "layout")]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"option {unknown[0]!r} is unknown to world {name!r}, whose options are {', '.join(known)}"
            f"{_near(unknown[0], known)}"
        )
    if name in _READ:
        return builder(root=root, **options)
    if root is not None:
        raise ValueError(
            f"root must be left out for world {name!r}, which is not read from a file, got {root}"
        )
    return builder(**options)


def names() -> tuple[str, ...]:
    """Names of all worlds: first those made here, then those read from published files.

    >>> "linear" in names()
    True
    """
    return (*_MADE, *_READ)


def _builder(name: str) -> Callable[..., World]:
    """Function or class that makes the world of that name."""
    if name not in names():
        raise ValueError(f"name must be one of {', '.join(names())}, got {name!r}{_near(name, names())}")
    module, attribute = (_MADE | _READ)[name]
    builder: Callable[..., World] = getattr(import_module(f"unseam.data.{module}"), attribute)
    return builder


def _near(word: str, known: tuple[str, ...] | list[str]) -> str:
    close = difflib.get_close_matches(str(word), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
