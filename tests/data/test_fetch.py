"""Fetching from mirrors on this machine, and checking what came."""

import contextlib
import gzip
import hashlib
import importlib
import io
import os
import shutil
import threading
import time
from collections import namedtuple
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from unseam.data.fetch import FetchError, fetch, listing, verify
from unseam.data.sources import PUBLISHED, Published, RemoteFile
from unseam.files import DiskFullError

# the package's name of the module is its function
fetch_module = importlib.import_module("unseam.data.fetch")
REAL = Path(os.environ.get("UNSEAM_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
CONTENT = gzip.compress(b"two sprites", mtime=0)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    """A server that keeps its log to itself."""

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path):
    """Address of a server of three files: the right one, a changed one, and a web page in its place."""
    folder = tmp_path / "served"
    for name, content in (("good", CONTENT), ("changed", CONTENT + b"!"), ("page", b"<html>Sign in</html>")):
        (folder / name).mkdir(parents=True)
        (folder / name / "s.gz").write_bytes(content)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def catalogue(*urls, **more):
    options = {"checksum": f"sha256:{SHA256}", "magic": b"\x1f\x8b"} | more
    return {"sprites2": Published("sprites2", (RemoteFile("s.gz", urls, **options),))}


def test_fetch_gives_the_file_its_name_only_when_it_is_whole(server, tmp_path):
    root = tmp_path / "got"
    (state,) = fetch("sprites2", root, catalogue=catalogue(f"{server}/good/s.gz"))
    assert (state.state, state.path, state.good) == ("verified", root / "s.gz", True)
    assert [path.name for path in root.iterdir()] == ["s.gz"]
    assert (root / "s.gz").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "first", ["http://127.0.0.1:9/s.gz", "{server}/absent/s.gz", "{server}/changed/s.gz"]
)
def test_the_next_mirror_is_tried(server, tmp_path, first):
    urls = (first.format(server=server), f"{server}/good/s.gz")
    (state,) = fetch("sprites2", tmp_path / "got", catalogue=catalogue(*urls))
    assert state.state == "verified"


def test_progress_is_said_without_a_terminal(server, tmp_path, capsys):
    known = catalogue(f"{server}/good/s.gz", size=len(CONTENT))
    fetch("sprites2", tmp_path / "said", catalogue=known, progress=True)
    assert capsys.readouterr().err == "fetched 0.0 of 0.0 MB\n"
    fetch("sprites2", tmp_path / "quiet", catalogue=known)
    assert capsys.readouterr().err == ""


def test_wrong_checksum_is_refused_and_leaves_nothing(server, tmp_path):
    with pytest.raises(
        FetchError, match=rf"wrong checksum, expected sha256:{SHA256}, got sha256:.*pass root="
    ):
        fetch("sprites2", tmp_path / "got", catalogue=catalogue(f"{server}/changed/s.gz"))
    assert list((tmp_path / "got").iterdir()) == []


def test_all_mirrors_dead(tmp_path, server):
    urls = ("http://127.0.0.1:9/s.gz", f"{server}/absent/s.gz")
    with pytest.raises(
        FetchError, match=r"no mirror gave s.gz of world 'sprites2' \(.*:9/s.gz: .*absent/s.gz: 404"
    ):
        fetch("sprites2", tmp_path / "got", catalogue=catalogue(*urls))


def test_what_is_there_is_not_fetched_again(tmp_path, server):
    root = tmp_path / "got"
    root.mkdir()
    (root / "s.gz").write_bytes(CONTENT)
    assert fetch("sprites2", root, catalogue=catalogue("http://127.0.0.1:9/s.gz"))[0].state == "verified"
    (root / "s.gz").write_bytes(b"damaged")
    assert fetch("sprites2", root, catalogue=catalogue(f"{server}/good/s.gz"))[0].state == "verified"
    assert (root / "s.gz").read_bytes() == CONTENT


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_checksums_of_either_kind(server, tmp_path, algorithm):
    digest = hashlib.new(algorithm, CONTENT).hexdigest()
    known = catalogue(f"{server}/good/s.gz", checksum=f"{algorithm}:{digest}")
    assert fetch("sprites2", tmp_path / "got", catalogue=known)[0].state == "verified"


def test_without_a_published_checksum_the_first_one_is_recorded(server, tmp_path):
    root, known = tmp_path / "got", catalogue(f"{server}/good/s.gz", checksum=None)
    with pytest.raises(
        ValueError, match="no checksum of s.gz is published.*pass unverified=True .--unverified."
    ):
        fetch("sprites2", root, catalogue=known)
    assert not root.exists()
    assert fetch("sprites2", root, catalogue=known, unverified=True)[0].state == "recorded"
    assert fetch("sprites2", root, catalogue=known)[0].state == "recorded"
    assert (root / "s.gz.sha256").read_text() == f"{SHA256}  s.gz\n"
    assert verify("sprites2", root, catalogue=known)[0].state == "recorded"
    (root / "s.gz").write_bytes(CONTENT + b"!")
    state = verify("sprites2", root, catalogue=known)[0]
    assert (state.state, state.good) == ("differs", False)
    (root / "s.gz.sha256").unlink()
    assert verify("sprites2", root, catalogue=known)[0].state == "unchecked"
    assert listing(root, catalogue=known)[0].checksum == "recorded on first fetch"


def test_a_web_page_is_not_taken_for_the_file(server, tmp_path):
    known = catalogue(f"{server}/page/s.gz", checksum=None)
    with pytest.raises(FetchError, match="it answered with something else than the file"):
        fetch("sprites2", tmp_path / "got", catalogue=known, unverified=True)
    assert list((tmp_path / "got").iterdir()) == []


class Endless(Quiet):
    """A server that sends without an end: many bytes at once, or a byte now and then."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        size, wait = (1 << 16, 0.0) if "fast" in self.path else (1, 0.05)
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"\x1f" * size)
                time.sleep(wait)


@pytest.mark.parametrize(
    ("path", "size", "said"),
    [("fast", 40, "it sent more than 40 bytes"), ("slow", None, "it sent .* bytes in")],
)
def test_a_mirror_without_an_end_is_given_up(tmp_path, monkeypatch, path, size, said):
    monkeypatch.setattr(fetch_module, "TIMEOUT", 0.5)
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as httpd:
        httpd.daemon_threads, httpd.block_on_close = True, False
        threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
        known = catalogue(f"http://127.0.0.1:{httpd.server_port}/{path}", size=size)
        with pytest.raises(FetchError, match=said):
            fetch("sprites2", tmp_path / "got", catalogue=known)
        httpd.shutdown()
    assert list((tmp_path / "got").iterdir()) == []


class Odd(Quiet):
    """A server that breaks off, answers in part, drips, or sends on with a page that has no end."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        kind = self.path.strip("/")
        heads = {
            "short": [("Content-Length", str(len(CONTENT) + 9))],
            "part": [("Content-Length", str(len(CONTENT) - 1))],
            "headers": [],
            "chunk": [("Transfer-Encoding", "chunked")],
            "packed": [("Content-Encoding", "gzip")],
            "elsewhere": [("Location", "/elsewhere"), ("Content-Length", "0")],
            "file": [("Location", "file:///etc/hostname"), ("Content-Length", "0")],
            "onward": [("Location", "/good")],
            "good": [("Content-Length", str(len(CONTENT)))],
        }
        status = {"part": 206, "elsewhere": 302, "file": 302, "onward": 302}.get(kind, 200)
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.send_response(status)
            for head in heads[kind]:
                self.send_header(*head)
            if kind == "headers":
                self.flush_headers()
            else:
                self.end_headers()
            bodies = {
                "short": CONTENT,
                "part": CONTENT[:-1],
                "good": CONTENT,
                "packed": b"\x1f\x8b\x08\x08" + bytes(6),
            }
            self.wfile.write(bodies.get(kind, b""))
            while kind in ("headers", "chunk", "packed", "onward"):
                self.wfile.write(b"1")
                time.sleep(0.02)


@pytest.fixture
def odd(monkeypatch):
    monkeypatch.setattr(fetch_module, "TIMEOUT", 2.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as httpd:
        httpd.daemon_threads, httpd.block_on_close = True, False
        threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("short", "Connection broken"),
        ("part", "status 206"),
        ("headers", "it sent 0 bytes in 2 s"),
        ("chunk", "it sent 0 bytes in 2 s"),
        ("packed", "it sent 0 bytes in 2 s"),
        ("elsewhere", "more than 10 times"),
        ("file", "No connection adapters were found"),
    ],
)
def test_a_broken_mirror_is_given_up_and_the_next_is_tried(odd, tmp_path, path, said):
    with pytest.raises(FetchError, match=said):
        fetch(
            "sprites2", tmp_path / "got", catalogue=catalogue(f"{odd}/{path}", checksum=None), unverified=True
        )
    assert list((tmp_path / "got").iterdir()) == []
    both = catalogue(f"{odd}/{path}", f"{odd}/good")
    assert fetch("sprites2", tmp_path / "got", catalogue=both)[0].state == "verified"


def test_pages_that_lead_elsewhere_are_not_read(odd, tmp_path):
    """One without an end would fill the memory."""
    assert fetch("sprites2", tmp_path, catalogue=catalogue(f"{odd}/onward"))[0].state == "verified"


def test_an_address_that_gives_up_encryption_is_refused(monkeypatch):
    import requests

    def send(adapter, request, **_):
        answer = requests.Response()
        answer.raw = io.BytesIO()
        answer.status_code, answer.headers["location"] = 302, "http://127.0.0.1:9/s.gz"
        return answer

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    with pytest.raises(FetchError, match="leads to http://127.0.0.1:9/s.gz, which is not encrypted"):
        fetch_module._open("https://127.0.0.1:9/s.gz")


def test_without_a_checksum_the_size_is_compared(odd, tmp_path):
    known = catalogue(f"{odd}/good", checksum=None, size=len(CONTENT) + 1)
    with pytest.raises(FetchError, match=f"it sent {len(CONTENT)} bytes of {len(CONTENT) + 1}"):
        fetch("sprites2", tmp_path, catalogue=known, unverified=True)


def test_full_disk_is_told_before_fetching(server, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 90, 10))
    with pytest.raises(DiskFullError, match=r"s.gz takes 5.00 GB, but .* has 0.00 GB free"):
        fetch("sprites2", tmp_path, catalogue=catalogue(f"{server}/good/s.gz", size=5_000_000_000))


def test_verify_tells_each_state(tmp_path):
    known = catalogue("http://127.0.0.1:9/s.gz", content=hashlib.sha256(b"two sprites").hexdigest())
    assert verify("sprites2", tmp_path, catalogue=known)[0].state == "missing"
    (tmp_path / "s.gz").write_bytes(gzip.compress(b"two sprites", 1, mtime=7))
    assert verify("sprites2", tmp_path, catalogue=known)[0][2:] == (
        "verified",
        "content as published, compressed again",
    )
    (tmp_path / "s.gz").write_bytes(gzip.compress(b"two spirits"))
    state = verify("sprites2", tmp_path, catalogue=known)[0]
    assert state.state == "differs"
    assert f"differs from the published sha256:{SHA256}" in state.detail
    (tmp_path / "s.gz").write_bytes(CONTENT[:-5])
    assert verify("sprites2", tmp_path, catalogue=known)[0].state == "differs"


def test_unpacked_files_are_verified_by_their_content(tmp_path):
    known = catalogue("http://127.0.0.1:9/s.gz", content=hashlib.sha256(b"two sprites").hexdigest())
    (tmp_path / "s").write_bytes(b"two sprites")
    assert verify("sprites2", tmp_path, catalogue=known)[0].state == "verified"


def test_listing_tells_what_is_there(tmp_path):
    lines = {(line.name, line.variant): line for line in listing(tmp_path)}
    assert not any(line.present for line in lines.values())
    assert lines["mnist", None].size == 9_912_422 + 28_881 + 1_648_877 + 4_542
    assert lines["mpi3d", "complex"].checksum == "recorded on first fetch"
    assert lines["faces3d", None].checksum == "none"
    (tmp_path / "3dshapes.h5").write_bytes(b"")
    assert next(line.present for line in listing(tmp_path) if line.name == "shapes3d")


def test_every_published_file_has_an_address_or_a_reason():
    for entry in PUBLISHED.values():
        for file in entry.files:
            assert bool(file.urls) != bool(entry.note)
            assert all(url.startswith(("https://", "http://fashion-mnist.")) for url in file.urls)
            lengths = {"sha256": 64, "md5": 32}
            algorithm, _, digest = (file.checksum or "md5:" + "0" * 32).partition(":")
            assert len(digest) == lengths[algorithm]


@pytest.mark.parametrize(
    ("name", "variant", "message"),
    [
        (
            "sprites",
            None,
            "name must be a published data set, one of dsprites, shapes3d, mpi3d, .* got 'sprites'",
        ),
        ("mpi3d", "huge", "variant of 'mpi3d' must be one of complex, toy, realistic, real, got 'huge'"),
        ("mnist", "b", "variant of 'mnist' must be one of none, got 'b'"),
        ("faces3d", None, "world 'faces3d' cannot be fetched: its licence"),
    ],
)
def test_bad_names_are_told(name, variant, message):
    with pytest.raises(ValueError, match=message):
        fetch(name, variant=variant)


def test_root_of_a_fetch_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match="root must be a folder for the files"):
        fetch("mnist", tmp_path / "file")


@pytest.mark.real_data
def test_real_mnist_is_as_published():
    if not (REAL / "mnist").is_dir():
        pytest.skip(f"{REAL} does not hold mnist")
    assert {state.state for state in verify("mnist", REAL)} == {"verified"}
