"""The framework behind the page: one application and one event loop, started by the first visit of a process."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import warnings
from collections.abc import Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import FastAPI
from nicegui import ui

from unseam.explore._page import build_page
from unseam.explore.exhibit import Exhibit
from unseam.explore.guard import Message, Receive, Send

_KEY = "unseam.shown"
_FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path d="M4 20L20 20M4 20L4 4" stroke="#0072B2" '
    'stroke-width="3"/><circle cx="14" cy="10" r="4" fill="#D55E00"/></svg>'
)


@dataclass(frozen=True, eq=False)
class Shown:
    """The application as one server shows it: each has models, and threads to compute in, of its own."""

    app: FastAPI
    exhibit: Exhibit
    quick: Executor
    """For what follows the hand: it must not wait for what is looked at afterwards."""
    slow: Executor
    member: int

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        await self.app({**scope, _KEY: self}, receive, send)


@cache
def framework() -> tuple[FastAPI, asyncio.AbstractEventLoop]:
    """The application and the loop that it runs in; the framework can be started but once in a process."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @ui.page("/", response_timeout=30.0)
    def page() -> None:
        shown: Shown = ui.context.client.request.scope[_KEY]
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
