"""Access to the explorer: this machine and this page only, unless it was opened to others."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

__all__ = ["Guard", "is_loopback", "refusal"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_COOKIE = "unseam_token"
# A name or an address, with a port where there is one, as a browser writes it: nothing else gets into a header.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.ASCII)


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refusal(host: str, origin: str | None, *, local: bool) -> str | None:
    """Why a request is refused, or ``None``.

    A page elsewhere may make a visitor's browser call 127.0.0.1, by a name of its own that points there or with
    an ``Origin`` that says where it comes from; both are refused.

    Args:
        host: of the header ``Host``, with its port.
        origin: of the header ``Origin``, where there is one.
        local: whether only this machine is served.

    >>> refusal("127.0.0.1:8050", None, local=True)
    >>> refusal("evil.example:8050", None, local=True)
    'this explorer answers to 127.0.0.1 and localhost only; start it with --host to open it to others'
    >>> refusal("127.0.0.1:8050", "http://evil.example", local=True)
    'this explorer answers to its own page only'
    """
    host = host.lower()
    found = _HOST.fullmatch(host)
    if found is None or (local and not is_loopback(found[1] or found[2])):
        return (
            "this explorer answers to 127.0.0.1 and localhost only; start it with --host to open it to others"
        )
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        return "this explorer answers to its own page only"
    return None


class Guard:
    """An application that refuses other hosts, origins and strangers, and makes browsers load nothing from elsewhere.

    Args:
        app: what is guarded.
        local: whether only this machine is served.
        token: that a visitor's link must hold, as its parameter ``token``; the browser then stores it in a cookie.
            ``None`` where everyone who can connect may visit.

    >>> Guard(lambda scope, receive, send: None, local=True).local
    True
    """

    def __init__(self, app: App, *, local: bool, token: str | None = None) -> None:
        self.app, self.local, self.token = app, local, token

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        reason = refusal(host, headers.get("origin"), local=self.local)
        shown = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if reason is None and not self._knows(shown, headers.get("cookie", "")):
            reason = "this explorer needs the link that it printed when it started, with its token"
        if reason is not None:
            await _refuse(scope, receive, send, reason)
            return
        # a prefix that a client names would be written into the page
        scope["headers"] = [one for one in scope["headers"] if not one[0].startswith(b"x-forwarded-")]

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_policy(host)]
                if self.token is not None and shown:
                    cookie = f"{_COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                    message["headers"].append((b"set-cookie", cookie.encode("latin-1")))
            await send(message)

        await self.app(scope, receive, sealed)

    def _knows(self, shown: str, cookies: str) -> bool:
        """Whether a visitor has the token, in the link or from an earlier visit."""
        if self.token is None:
            return True
        stored = [part.strip().removeprefix(f"{_COOKIE}=") for part in cookies.split(";")]
        return any(hmac.compare_digest(one.encode(), self.token.encode()) for one in (shown, *stored))


def _policy(host: str) -> list[tuple[bytes, bytes]]:
    """Headers by which the browser itself keeps the page to this machine."""
    policy = (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        f"img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' ws://{host}; "
        "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
    return [
        (b"content-security-policy", policy.encode("latin-1")),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]


async def _refuse(scope: Message, receive: Receive, send: Send, reason: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
        return
    body = f"{reason}\n".encode()
    kind = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": kind})
    await send({"type": "http.response.body", "body": body})
