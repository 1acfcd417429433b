"""Starting: what is refused before anything is served, and the command."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import unseam
from unseam.cli import main
from unseam.explore import serve, serving


def test_a_port_that_is_taken_is_refused_by_name():
    with serving.listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} of 127.0.0.1 cannot be used"):
            serving.listen("127.0.0.1", port)


def test_a_free_port_is_found_where_none_is_named(monkeypatch):
    with serving.listen("127.0.0.1", 0) as taken:
        taken.listen()
        monkeypatch.setattr(serving, "_PORT", taken.getsockname()[1])
        with serving.listen("127.0.0.1", None) as found:
            assert found.getsockname()[1] != taken.getsockname()[1]


def test_a_port_must_be_one():
    with pytest.raises(ValueError, match=r"port must lie in \[0, 65536\), got 99999"):
        serving.listen("127.0.0.1", 99999)


def test_a_host_must_be_an_address(monkeypatch):
    def unknown(*args, **options):
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ValueError, match="host must be an address of this machine, got 'nowhere'"):
        serving.listen("nowhere", 0)


def test_a_host_must_be_of_this_machine():
    with pytest.raises(ValueError, match="host must be an address of this machine, got '203.0.113.9'"):
        serving.listen("203.0.113.9", None)


def test_without_the_extra_the_command_says_how_to_get_it(run, monkeypatch, capsys):
    monkeypatch.setattr(serving.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["unseam", "explore", str(run)])
    with pytest.raises(SystemExit) as leave:
        main()
    assert leave.value.code == 2
    assert capsys.readouterr().err == (
        "unseam: the explorer needs nicegui: install the extra explore, in a clone by pip install '.[explore]'\n"
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"points": 1}, "points must be at least 2, got 1"),
        ({"member": 5}, r"member must lie in \[0, 5\), got 5"),
    ],
)
def test_bad_options_are_refused(run, options, message):
    pytest.importorskip("nicegui", reason="the explorer's extra is not installed")
    with pytest.raises(ValueError, match=message):
        serve(run, **options)


def test_a_folder_without_a_run_is_refused(tmp_path):
    pytest.importorskip("nicegui", reason="the explorer's extra is not installed")
    with pytest.raises(FileNotFoundError, match="holds no run.json"):
        serve(str(tmp_path))


# As in a notebook: in a thread whose event loop runs, one decoder after another, each until an interrupt.
AGAIN = """
import asyncio, re, signal, threading, urllib.request
import torch, unseam

def look(address):
    page = urllib.request.urlopen(address).read().decode()
    print(re.search("<title>(.*?)</title>", page)[1], flush=True)
    signal.raise_signal(signal.SIGINT)

async def cells():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for latent in (2, 3):
        unseam.explore.serve(
            torch.nn.Linear(latent, 4), latent=latent, name=f"{latent} latents", port=0, open_browser=False,
            started=lambda address: threading.Timer(0.2, look, [address]).start(),
        )

asyncio.run(cells())
"""


def environment():
    source = str(Path(unseam.__file__).parents[1])
    return os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@pytest.mark.slow
def test_one_visit_follows_another_in_a_process_that_runs_a_loop():
    pytest.importorskip("nicegui", reason="the explorer's extra is not installed")
    result = subprocess.run(
        [sys.executable, "-c", AGAIN], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [f"{latent} latents · unseam explorer" for latent in (2, 3)]


SCRIPT = """
import torch, unseam

unseam.explore.serve(torch.nn.Linear(3, 4), latent=3, port=0, open_browser=False, started=print)
print("afterwards")
"""


@pytest.mark.parametrize(
    ("how", "signals", "status"),
    [
        ("command", [signal.SIGINT], 0),
        ("script", [signal.SIGINT, signal.SIGINT], 0),
        ("command", [signal.SIGTERM], -signal.SIGTERM),
    ],
)
def test_a_visit_ends_quietly_and_leaves_nothing_behind(run, tmp_path, how, signals, status):
    pytest.importorskip("nicegui", reason="the explorer's extra is not installed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = ["-m", "unseam", "explore", str(run), "--no-open", "--port", "0"]
    before = {path: path.stat().st_mtime_ns for folder in (run, tmp_path) for path in folder.rglob("*")}
    process = subprocess.Popen(
        [sys.executable, *(command if how == "command" else [script])],
        env=environment(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert "http://127.0.0.1:" in process.stdout.readline()
        for one in signals:
            process.send_signal(one)
            time.sleep(0.05)
        out, problems = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, problems) == (status, "")
    assert ("afterwards" in out) == (how == "script")
    after = {path: path.stat().st_mtime_ns for folder in (run, tmp_path) for path in folder.rglob("*")}
    assert after == before
