"""The server: one guard and two threads that compute for each visit, on a framework started once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import torch
import uvicorn

from unseam.explore._framework import Shown, framework
from unseam.explore.exhibit import Exhibit
from unseam.explore.guard import Guard
from unseam.explore.local import local_view
from unseam.explore.state import first_state
from unseam.explore.visit import frame

# Seconds between two looks for an interrupt, and those that a computation may take to end after one.
_GLANCE, _LAST = 0.5, 5.0


def run_server(
    exhibit: Exhibit,
    listening: socket.socket,
    *,
    member: int,
    local: bool,
    open_browser: bool,
    started: Callable[[str], None] | None,
) -> None:
    """Serve the page on a socket until interrupted."""
    name, port = listening.getsockname()[:2]
    host = f"[{name}]" if ":" in name else name
    address = f"http://{'127.0.0.1' if name in ('0.0.0.0', '::') else host}:{port}/"
    pools = ThreadPoolExecutor(1, "pictures"), ThreadPoolExecutor(1, "geometry")
    app, loop = framework()
    config = uvicorn.Config(
        Guard(Shown(app, exhibit, *pools, member), local=local),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
        proxy_headers=False,
        lifespan="off",
    )
    logging.getLogger("nicegui").setLevel(logging.ERROR)  # an address that is not found is no news
    # differentiation takes seconds the first time: they pass while the browser opens
    pools[1].submit(_warm, exhibit, member)
    server = _Server(config, lambda: _begin(address, open_browser, started))
    # in the framework's own thread, so that one that already runs a loop (a notebook's) may wait for it
    serving = asyncio.run_coroutine_threadsafe(server.serve(sockets=[listening]), loop)
    try:
        _patiently(serving, server.leave)
    finally:
        server.leave()
        _patiently(serving, server.leave)
        for pool in pools:
            _patiently(pool.submit(_rest), server.leave, seconds=_LAST)
            pool.shutdown(wait=False, cancel_futures=True)
        serving.result()


class _Server(uvicorn.Server):
    """A server that says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        if self.started:
            self.ready()

    def leave(self) -> None:
        """Stop as soon as the answers under way are given, or a second has passed."""
        self.should_exit = True


def _patiently(awaited: Future[None], interrupted: Callable[[], None], *, seconds: float = math.inf) -> None:
    """Wait for what another thread does; Ctrl-C is how a visit ends, and pressed again it changes nothing."""
    end = time.monotonic() + seconds
    while not awaited.done() and time.monotonic() < end:
        try:
            # an interrupt that another thread was given is seen between two waits
            wait([awaited], timeout=_GLANCE)
        except KeyboardInterrupt:
            interrupted()


def _rest() -> None:
    """What a thread does last: Python would wait for it anyway, and there Ctrl-C is not quiet."""


def _warm(exhibit: Exhibit, member: int) -> None:
    """Compute once what every tab begins with; an error is shown by the tab that meets it."""
    with contextlib.suppress(Exception):
        state = first_state(exhibit, member)
        frame(exhibit, state)
        local_view(exhibit, member, torch.tensor(state.z, dtype=torch.float64))


def _begin(address: str, open_browser: bool, started: Callable[[str], None] | None) -> None:
    if started is not None:
        started(address)
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
