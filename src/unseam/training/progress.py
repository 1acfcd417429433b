"""Progress of a training on a terminal, or as plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol, Self

from unseam.training.loop import Record
from unseam.training.stack import Stack

__all__ = ["Bar", "Lines", "Progress", "Silent", "choose"]


class Progress(Protocol):
    """What :func:`unseam.train` tells about itself: a context manager that is given every record.

    >>> isinstance(Silent().record, object)
    True
    """

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
    def record(self, stack: Stack, record: Record, done: int, total: int) -> None:
        """Tell where a stack stands; ``done`` of ``total`` steps over all stacks."""


class Silent:
    """Tells nothing.

    >>> with Silent() as progress:
    ...     pass
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def record(self, stack: Stack, record: Record, done: int, total: int) -> None:
        """Tell nothing."""


class Bar:
    """A rich progress bar: steps, rate, time left, mean loss terms over the members that are alive.

    >>> Bar().label
    'training'
    """

    def __init__(self, label: str = "training") -> None:
        self.label = label

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self.rate, self.bar = _Rate(), RichProgress(
            TextColumn("[bold]{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            TextColumn("{task.fields[terms]}"), console=Console(stderr=True),
        )  # fmt: skip
        self.task: Any = self.bar.add_task(self.label, total=None, rate="", terms="")
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def record(self, stack: Stack, record: Record, done: int, total: int) -> None:
        """Move the bar."""
        rate = f"{self.rate(done) * len(stack):,.0f} member-steps/s"
        self.bar.update(self.task, completed=done, total=total, rate=rate, terms=_terms(record))


class Lines:
    """One plain line every few seconds on standard error.

    >>> Lines(seconds=10.0).seconds
    10.0
    """

    def __init__(self, *, seconds: float = 10.0) -> None:
        self.seconds = seconds

    def __enter__(self) -> Self:
        self.last, self.rate = time.monotonic(), _Rate()
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def record(self, stack: Stack, record: Record, done: int, total: int) -> None:
        """Print a line if the last one is long enough ago, or this is the end."""
        rate = self.rate(done)
        if done < total and time.monotonic() - self.last < self.seconds:
            return
        self.last = time.monotonic()
        pace = (
            f"{rate * len(stack):,.0f} member-steps/s, {(total - done) / rate:.0f} s left, " if rate else ""
        )
        print(f"step {done} of {total}, {pace}{_terms(record)}", file=sys.stderr)


def choose(wanted: bool | None) -> Progress:
    """A bar on a terminal, lines where asked for, silence otherwise.

    >>> type(choose(False)).__name__
    'Silent'
    """
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()


class _Rate:
    """Steps a second since the first call."""

    def __init__(self) -> None:
        self.start: tuple[float, int] | None = None

    def __call__(self, done: int) -> float:
        now = time.monotonic()
        if self.start is None:
            self.start = (now, done)
            return 0.0
        since, before = self.start
        return (done - before) / max(now - since, 1e-9)


def _terms(record: Record) -> str:
    alive = record.alive
    if not bool(alive.any()):
        return "every member has stopped"
    means = {name: float(value[alive].mean()) for name, value in record.terms.items()}
    lost = f", {int((~alive).sum())} stopped" if not bool(alive.all()) else ""
    return " ".join(f"{name} {value:.4g}" for name, value in means.items()) + lost
