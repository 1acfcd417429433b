"""The server: one framework per process, and one guard and two threads that compute for each visit."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import logging
import math
import secrets
import socket
import sys
import threading
import time
import warnings
import webbrowser
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import Any

import socketio
import torch
import uvicorn
from fastapi import FastAPI
from nicegui import core, ui

from unseam.explore._page import build_page
from unseam.explore.exhibit import Exhibit
from unseam.explore.guard import Guard, Message, Receive, Send
from unseam.explore.local import local_view
from unseam.explore.state import first_state
from unseam.explore.visit import frame

# Seconds between two looks for an interrupt, and those that a computation may take to end after one.
_GLANCE, _LAST = 0.5, 5.0
_KEY = "unseam.shown"
_FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path d="M4 20L20 20M4 20L4 4" stroke="#0072B2" '
    'stroke-width="3"/><circle cx="14" cy="10" r="4" fill="#D55E00"/></svg>'
)


@dataclass(frozen=True, eq=False)
class _Shown:
    """The application as one server shows it, with its own models and threads."""

    app: FastAPI
    exhibit: Exhibit
    quick: Executor
    """For what follows a slider: it must not wait for slower parts of the page."""
    slow: Executor
    member: int

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        await self.app({**scope, _KEY: self}, receive, send)


def forgive(server: socketio.AsyncServer) -> None:
    """Drop messages that are none of the page's own, without a traceback or their text in the terminal."""

    def forgiving(handler: Callable[..., Any]) -> Callable[..., Any]:
        async def handle(*given: Any) -> Any:
            try:
                found = handler(*given)
                return await found if inspect.isawaitable(found) else found
            except (AttributeError, LookupError, TypeError, ValueError):
                return None

        return handle

    handlers = server.handlers["/"]
    for name in ("event", "javascript_response", "ack", "handshake"):
        handlers[name] = forgiving(handlers[name])
    handlers["log"] = lambda *_: None
    logging.getLogger("engineio.server").setLevel(logging.CRITICAL)


@cache
def framework() -> tuple[FastAPI, asyncio.AbstractEventLoop]:
    """The application and the loop that it runs in; the framework can be started only once per process."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @ui.page("/", response_timeout=30.0)
    def page() -> None:
        shown: _Shown = ui.context.client.request.scope[_KEY]
        build_page(shown.exhibit, shown.quick, shown.slow, shown.member)

    # the page's own style sheet is enough
    ui.run_with(
        app,
        title="unseam explorer",
        dark=None,
        language="en-US",
        favicon=_FAVICON,
        tailwind=False,
        message_history_length=200,
        show_welcome_message=False,
        binding_refresh_interval=None,
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="explorer", daemon=True)
    thread.start()
    life = app.router.lifespan_context(app)
    forgive(core.sio)

    def wait(step: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(step, loop).result()

    def stop() -> None:
        with contextlib.suppress(KeyboardInterrupt):  # it is ending already
            wait(life.__aexit__(None, None, None))
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    with warnings.catch_warnings():
        # the framework looks at every object there is, and torch has one that warns when it is looked at
        warnings.filterwarnings("ignore", ".*reduce_op", FutureWarning)
        wait(life.__aenter__())
    atexit.register(stop)
    return app, loop


def run_server(
    exhibit: Exhibit,
    listening: socket.socket,
    *,
    member: int,
    local: bool,
    open_browser: bool,
    started: Callable[[str], None] | None,
) -> None:
    """Serve the page on a socket until interrupted; to others than this machine, with a token in its link."""
    name, port = listening.getsockname()[:2]
    host = f"[{name}]" if ":" in name else name
    address = f"http://{'127.0.0.1' if name in ('0.0.0.0', '::') else host}:{port}/"
    token = None if local else secrets.token_urlsafe(16)
    if token is not None:
        address += f"?token={token}"
        print(
            f"Warning: {host} can be reached from other machines. Whoever has the link with its token can look at "
            "the models; it travels unencrypted, so use it in networks that you trust.",
            file=sys.stderr,
            flush=True,
        )
    pools = ThreadPoolExecutor(1, "pictures"), ThreadPoolExecutor(1, "geometry")
    app, loop = framework()
    config = uvicorn.Config(
        Guard(_Shown(app, exhibit, *pools, member), local=local, token=token),
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
        _await(serving, server.leave)
    finally:
        server.leave()
        _await(serving, server.leave)
        for pool in pools:
            _await(pool.submit(_finish), server.leave, seconds=_LAST)
            pool.shutdown(wait=False, cancel_futures=True)
        serving.result()


class _Server(uvicorn.Server):
    """A server that reports when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then report it."""
        await super().startup(sockets)
        if self.started:
            self.ready()

    def leave(self) -> None:
        """Stop as soon as pending requests are answered, or after a second."""
        self.should_exit = True


def _await(awaited: Future[None], interrupted: Callable[[], None], *, seconds: float = math.inf) -> None:
    """Wait for another thread; Ctrl-C ends the visit, and pressing it again changes nothing."""
    end = time.monotonic() + seconds
    while not awaited.done() and time.monotonic() < end:
        try:
            # an interrupt that another thread was given is seen between two waits
            wait([awaited], timeout=_GLANCE)
        except KeyboardInterrupt:
            interrupted()


def _finish() -> None:
    """The last task of a thread: Python would wait for it anyway, and print a traceback on Ctrl-C."""


def _warm(exhibit: Exhibit, member: int) -> None:
    """Compute once what every tab starts with; errors are shown by the tab that meets them."""
    with contextlib.suppress(Exception):
        state = first_state(exhibit, member)
        frame(exhibit, state)
        local_view(exhibit, member, torch.tensor(state.z, dtype=torch.float64))


def _begin(address: str, open_browser: bool, started: Callable[[str], None] | None) -> None:
    if started is not None:
        started(address)
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
