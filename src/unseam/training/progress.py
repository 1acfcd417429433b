"""Progress of a training: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from unseam.training.loop import Record
from unseam.training.stack import Stack

__all__ = ["Report", "bar", "lines", "report_progress"]

Report = Callable[[Stack, Record, int, int], None]
"""Called with a stack, its record, and how many of how many steps are done over all stacks."""


def report_progress(wanted: bool | None) -> AbstractContextManager[Report]:
    """A bar on a terminal, lines elsewhere where ``wanted``, otherwise nothing."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        return nullcontext(lambda *given: None)
    return bar() if sys.stderr.isatty() else lines()


@contextmanager
def bar() -> Iterator[Report]:
    """A rich progress bar: steps, rate, time left, mean loss terms over the members that are alive."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    rate = _Rate()
    with Progress(
        TextColumn("[bold]{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        TextColumn("{task.fields[terms]}"), console=Console(stderr=True),
    ) as shown:  # fmt: skip
        task = shown.add_task("training", total=None, rate="", terms="")

        def report(stack: Stack, record: Record, done: int, total: int) -> None:
            pace = f"{rate(done) * len(stack):,.0f} member-steps/s"
            shown.update(task, completed=done, total=total, rate=pace, terms=_terms(record))

        yield report


@contextmanager
def lines(*, seconds: float = 10.0) -> Iterator[Report]:
    """One plain line on standard error every so many seconds, and one at the end."""
    last, rate = time.monotonic(), _Rate()

    def report(stack: Stack, record: Record, done: int, total: int) -> None:
        nonlocal last
        pace = rate(done)
        if done < total and time.monotonic() - last < seconds:
            return
        last = time.monotonic()
        left = (
            f"{pace * len(stack):,.0f} member-steps/s, {(total - done) / pace:.0f} s left, " if pace else ""
        )
        print(f"step {done} of {total}, {left}{_terms(record)}", file=sys.stderr)

    yield report


class _Rate:
    """Steps per second since the first call."""

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
