"""The server: one page, one guard, two threads that compute."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import warnings
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
import uvicorn
from fastapi import FastAPI
from nicegui import ui

from unseam.explore._page import build_page
from unseam.explore.exhibit import Exhibit
from unseam.explore.guard import Guard
from unseam.explore.local import local_view
from unseam.explore.state import first_state
from unseam.explore.visit import frame


class Threads(NamedTuple):
    """Where to compute: what follows the hand must not wait for what is looked at afterwards."""

    quick: ThreadPoolExecutor
    slow: ThreadPoolExecutor


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
    shown = f"[{name}]" if ":" in name else name
    address = f"http://{'127.0.0.1' if name in ('0.0.0.0', '::') else shown}:{port}/"
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    threads = Threads(ThreadPoolExecutor(1, "pictures"), ThreadPoolExecutor(1, "geometry"))

    @ui.page("/", response_timeout=30.0)
    def page() -> None:
        build_page(exhibit, threads.quick, threads.slow, member)

    # the page's own style sheet is enough
    ui.run_with(
        app,
        title=f"{exhibit.title} · unseam explorer",
        dark=None,
        language="en-US",
        favicon=_FAVICON,
        tailwind=False,
        message_history_length=200,
        show_welcome_message=False,
        binding_refresh_interval=None,
    )
    config = uvicorn.Config(
        Guard(app, local=local), log_level="warning", access_log=False, timeout_graceful_shutdown=1
    )
    logging.getLogger("nicegui").setLevel(logging.ERROR)  # an address that is not found is no news
    # differentiation takes seconds the first time: they pass while the browser opens
    threads.slow.submit(_warm, exhibit, member)
    server = _Server(config, lambda: _begin(address, open_browser, started))
    try:
        # Ctrl-C is how a visit ends
        with warnings.catch_warnings(), contextlib.suppress(KeyboardInterrupt):
            # the framework looks at every object there is, and torch has one that warns when it is looked at
            warnings.filterwarnings("ignore", ".*reduce_op", FutureWarning)
            server.run(sockets=[listening])
    finally:
        for pool in threads:
            pool.shutdown(wait=False, cancel_futures=True)


_FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path d="M4 20L20 20M4 20L4 4" stroke="#0072B2" '
    'stroke-width="3"/><circle cx="14" cy="10" r="4" fill="#D55E00"/></svg>'
)


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
