"""Computations of which only the newest request counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

__all__ = ["Latest"]


class Latest:
    """Computes in a thread, one at a time, and skips every request that a newer one has overtaken.

    Args:
        executor: where to compute.
        failed: called with an error in computing or showing.
        pause: seconds to wait before computing, so that a newer request may come first.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> async def three(executor: Executor) -> list[int]:
    ...     shown: list[int] = []
    ...     latest = Latest(executor, failed=print)
    ...     for k in range(3):
    ...         latest.ask(lambda k=k: k, shown.append)
    ...     await latest.idle()
    ...     return shown
    >>> with ThreadPoolExecutor(1) as executor:
    ...     asyncio.run(three(executor))
    [2]
    """

    def __init__(
        self, executor: Executor, failed: Callable[[Exception], None], *, pause: float = 0.0
    ) -> None:
        self._executor, self._failed, self._pause = executor, failed, pause
        self._next: tuple[Callable[[], Any], Callable[[Any], None]] | None = None
        self._task: asyncio.Task[None] | None = None
        self.computed = 0

    def ask(self, compute: Callable[[], Any], show: Callable[[Any], None]) -> None:
        """Have ``compute`` done in the thread and its result given to ``show`` here, unless overtaken."""
        self._next = (compute, show)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def idle(self) -> None:
        """Wait until nothing is asked for any more."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Forget what was asked for."""
        self._next = None
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._pause)
        while self._next is not None:
            (compute, show), self._next = self._next, None
            try:
                result = await loop.run_in_executor(self._executor, compute)
                self.computed += 1
                show(result)
            except Exception as error:
                self._failed(error)
            if self._pause and self._next is not None:
                await asyncio.sleep(self._pause)
