"""Start the explorer: find a port, open the browser, serve until stopped."""

from __future__ import annotations

import errno
import importlib.util
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unseam.data import World
from unseam.explore.exhibit import open_exhibit
from unseam.explore.guard import is_loopback

__all__ = ["listen", "serve"]

# Tried first, so that a link stays good for the next visit.
_PORT = 8050


def serve(
    decoder: Path | Any,
    *,
    world: World | str | None = None,
    data: object = None,
    member: int = 0,
    root: str | None = None,
    points: int = 600,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = True,
    started: Callable[[str], None] | None = None,
    **options: Any,
) -> None:
    """Explore a run's members, or anyone's decoder, in the browser, until Ctrl-C.

    ``unseam.explore.serve(decoder, latent=10)`` needs no more than a callable; with ``encoder`` and ``world`` the
    page also has the map, the items, MIG and reconstructions. Nothing is fetched from a network. Only this
    machine is served unless ``host`` says otherwise: then the link holds a token, without which requests are refused,
    and a warning is printed, since it travels unencrypted.

    Args:
        decoder: a run or its folder, an ensemble, a subject, or any model that :func:`unseam.wrap` takes, such as a map
            (batch, latent) -> (batch, *data).
        world: whose items are shown; of a run the data that it was trained on, where those are the user's own (as in
            :meth:`unseam.Run.open`).
        data: of a run that was trained on the user's own: those data, as an array, a file or a folder.
        member: of a run: which member to begin with.
        root: of a run: file or folder of its data, where it has moved.
        points: number of items of the world that are shown.
        host: address to listen on.
        port: to listen on; by default 8050, or any free one. 0 is any free one.
        open_browser: whether to open the page.
        started: called with the address of the page once it can be opened.
        options: of a model of your own those of :func:`unseam.wrap`: ``latent``, ``encoder``, ``likelihood``, ``x``
            (data that the encoder reads, in place of a world), ``beta``, ``name``, ….
    """
    if importlib.util.find_spec("nicegui") is None:
        raise ValueError(
            "the explorer needs nicegui: install the extra explore, in a clone by pip install '.[explore]'"
        )
    exhibit = open_exhibit(decoder, world=world, root=root, points=points, data=data, **options)
    if not 0 <= member < len(exhibit.subjects):
        raise ValueError(f"member must lie in [0, {len(exhibit.subjects)}), got {member}")
    try:
        exhibit.codes(member)
    except ValueError as error:  # such as of a member whose training diverged
        name = exhibit.subjects[member].name
        raise ValueError(f"{name} cannot be explored, choose another member: {error}") from error
    from unseam.explore._server import run_server

    with listen(host, port) as found:
        run_server(
            exhibit,
            found,
            member=member,
            local=is_loopback(host),
            open_browser=open_browser,
            started=started,
        )


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens, on the given port, or where that is left open on 8050 or any other that is free.

    >>> with listen("127.0.0.1", 0) as found:
    ...     found.getsockname()[0]
    '127.0.0.1'
    """
    if port is not None and not 0 <= port < 65536:
        raise ValueError(f"port must lie in [0, 65536), got {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"host must be an address of this machine, got {host!r}: {error}") from None
    tried = (_PORT, 0) if port is None else (port,)
    for one in tried:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((address[0], one))
        except OSError as error:
            found.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise ValueError(f"host must be an address of this machine, got {host!r}") from None
            problem = error
            continue
        return found
    raise ValueError(f"port {tried[-1]} of {host} cannot be used ({problem}); name another one")
