"""A real browser against a real server: nothing leaves the machine, nothing is logged as an error."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

import unseam

# A decoder of one's own, of so many latents; started as anyone would start it.
OWN = """
import sys, torch, unseam

torch.manual_seed(0)
latent, port = int(sys.argv[1]), int(sys.argv[2])
decoder = torch.nn.Sequential(torch.nn.Linear(latent, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3 * 64),
                              torch.nn.Sigmoid(), torch.nn.Unflatten(1, (3, 8, 8)))
unseam.explore.serve(decoder, latent=latent, name="my decoder", port=port, open_browser=False,
                     started=lambda address: print('{"address": "%s"}' % address, flush=True))
"""


class Server(NamedTuple):
    """A running explorer."""

    address: str
    process: subprocess.Popen

    @property
    def megabytes(self) -> float:
        """What it holds in memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")


@contextmanager
def serving(*words: str) -> Iterator[Server]:
    """An explorer in a process of its own, stopped by Ctrl-C."""
    source = str(Path(unseam.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        text = ""
        while "}" not in text:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            text += line
        yield Server(json.loads(text)["address"], process)
    finally:
        process.send_signal(2)
        try:
            _, problems = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            _, problems = process.communicate()
            pytest.fail("Ctrl-C did not stop the explorer")
        assert (process.returncode, problems) == (0, "")


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """The demo's world and networks, trained shortly: three β, a full covariance and an autoencoder."""
    from unseam.demo import DEMO

    changes = [
        {}, {"beta": 0.5}, {"beta": 32.0}, {"posterior": "full"},
        {"posterior": "point", "objective": "autoencoder", "beta": 1.0},
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("runs") / "demo"
    trials = [dataclasses.replace(DEMO, **change, steps=120) for change in changes]
    unseam.save(unseam.train(trials, progress=False, device="cpu"), folder)
    return folder


@pytest.fixture(scope="session")
def server(run) -> Iterator[Server]:
    """That run, explored."""
    pytest.importorskip("nicegui", reason="the explorer's extra is not installed")
    with serving("-m", "unseam", "explore", str(run), "--no-open", "--port", "0", "--json") as found:
        yield found


@pytest.fixture(scope="session")
def explored() -> Callable[..., AbstractContextManager[Server]]:
    """Explores a decoder of one's own, of so many latents, on a port."""
    pytest.importorskip("nicegui", reason="the explorer's extra is not installed")
    return lambda latent, port=0: serving("-c", OWN, str(latent), str(port))


@pytest.fixture(scope="session")
def own(explored) -> Iterator[Server]:
    """A decoder of one's own, explored."""
    with explored(4) as found:
        yield found


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no command chromium; make test-browser installs it")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium) -> Iterator[Callable[..., Any]]:
    """Opens pages; afterwards none may have logged an error or asked another machine for anything."""
    contexts, problems, hosts = [], [], set()

    def opened(
        address: str, *, width: int = 1280, height: int = 900, ready: bool = True, **options: Any
    ) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
        page.on("websocket", lambda socket: hosts.add(urlsplit(socket.url).hostname))
        page.goto(address)
        if ready:
            page.wait_for_selector(".view .main img[src^='data:']")
            page.wait_for_selector(".geometry .numbers dd")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []
    assert hosts - {None, ""} <= {"127.0.0.1"}


@pytest.fixture
def picture() -> Callable[[Any], str]:
    """The picture that a page shows now."""
    return lambda page: page.locator(".view .main img").get_attribute("src")
