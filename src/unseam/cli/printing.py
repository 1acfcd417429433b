"""What commands print: text, tables and JSON, as wide as the terminal."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

__all__ = ["Row", "count_columns", "print_json", "print_rows", "print_table", "print_words", "working"]

Row = dict[str, Any]

# Width where neither a terminal nor the variable COLUMNS gives one.
_WIDTH = 140
# What a column takes beside its text: a line and a space on either side.
_FRAME = 3
# Fraction of the width that a column may take to avoid breaking a word.
_MOST = 0.4


def print_json(value: object) -> None:
    """Print a value as JSON, which has no NaN or infinity.

    >>> print_json({"dto": 0.5})
    {
     "dto": 0.5
    }
    """
    print(json.dumps(value, indent=1, allow_nan=False))


def print_words(text: str) -> None:
    """Print lines of text, broken between words where a terminal, or COLUMNS, says how wide they may be.

    >>> print_words("Two latents are active.")
    Two latents are active.
    """
    width = _columns(0)
    for line in text.split("\n"):
        print(textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) if width else line)


@contextmanager
def working(what: str, *, seconds: float = 10.0) -> Iterator[None]:
    """Say on standard error what takes so long, on a terminal or not, while a block runs.

    Args:
        what: the work.
        seconds: before each line, but a terminal's first comes after one; a block that is done before says nothing.

    >>> with working("scoring runs/demo"):
    ...     pass
    """
    done, began = threading.Event(), time.monotonic()

    def report() -> None:
        wait = min(seconds, 1.0) if sys.stderr.isatty() else seconds
        while not done.wait(wait):
            print(f"{what}: {time.monotonic() - began:.0f} s so far", file=sys.stderr, flush=True)
            wait = seconds

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def count_columns(seconds: float = 5.0) -> Callable[[int, int], None]:
    """A function that says on standard error how many columns of how many were sampled, every so many seconds.

    >>> count_columns()(1, 64)
    """
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            print(f"{done} of {total} columns of the Jacobian", file=sys.stderr, flush=True)

    return report


def print_rows(rows: Sequence[Row], *, title: str, as_json: bool) -> None:
    """Print rows as JSON or as a table.

    >>> print_rows([], title="files", as_json=True)
    []
    """
    if as_json:
        print_json(rows)
    else:
        print_table(rows, title=title)


def print_table(rows: Sequence[Row], *, title: str) -> None:
    """Print rows with one set of keys as a table, without columns that hold nothing.

    Cells are broken between words. Columns that do not fit beside each other even so go on below, after the
    first one, which names the rows.

    >>> print_table([{"latent": 0, "active": True, "note": None}], title="latents")
    latents
    ┏━━━━━━━━┳━━━━━━━━┓
    ┃ latent ┃ active ┃
    ┡━━━━━━━━╇━━━━━━━━┩
    │ 0      │ yes    │
    └────────┴────────┘
    """
    from rich.console import Console
    from rich.table import Table

    width = _columns(_WIDTH)
    first, *rest = (_column(head, [_shown(row[head]) for row in rows], width) for head in rows[0])
    print(title)
    for block in _blocks(first, [column for column in rest if any(column.cells)], width):
        table = Table()
        for column, room in zip(block, _rooms(block, width), strict=True):
            table.add_column(column.head, overflow="fold", width=room)
        for row in zip(*(column.cells for column in block), strict=True):
            table.add_row(*row)
        Console(width=width, markup=False, emoji=False, highlight=False).print(table)


class _Column(NamedTuple):
    """A column as text, with the least width and the most that it can use."""

    head: str
    cells: list[str]
    least: int
    most: int


def _column(head: str, cells: list[str], width: int) -> _Column:
    """A column that keeps words whole, but for those, such as paths, that would take too much of the width."""
    from rich.cells import cell_len

    lines = [head, *cells]
    words = [word for line in lines for word in line.split()]
    least = min(max(map(cell_len, words)), int(_MOST * width))
    return _Column(head, cells, least, max(map(cell_len, lines)))


def _blocks(first: _Column, rest: list[_Column], width: int) -> list[list[_Column]]:
    """The fewest even blocks of columns, each after the first one, that fit without a word being broken."""
    blocks = [[first, *rest]]
    for count in range(2, len(rest) + 1):
        if all(1 + sum(column.least + _FRAME for column in block) <= width for block in blocks):
            break
        size = -(-len(rest) // count)
        blocks = [[first, *rest[start : start + size]] for start in range(0, len(rest), size)]
    return blocks


def _rooms(block: list[_Column], width: int) -> list[int]:
    """Width of each column's text: the least at least, more where that saves most lines."""
    rooms = [column.least for column in block]
    for _ in range(width - 1 - sum(room + _FRAME for room in rooms)):
        place = max(range(len(block)), key=lambda each: block[each].most / rooms[each])
        if rooms[place] >= block[place].most:
            break
        rooms[place] += 1
    return rooms


def _columns(default: int) -> int:
    """Columns of the terminal, or as the variable COLUMNS has them; else the default."""
    return shutil.get_terminal_size((default, 0)).columns


def _shown(value: object) -> str:
    """A value as a cell of a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {size}" if size else name for name, size in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)
