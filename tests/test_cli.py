"""The command line: what it prints, where, and with which status."""

import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import typer

import unseam
from unseam.cli import app, main
from unseam.data.sources import PUBLISHED, Published, RemoteFile
from unseam.training import progress

SMALL = (
    "train", "--world", "linear", "--world-option", "size=50", "--likelihood", "gaussian", "--latent", "2",
    "--encoder-widths", "4", "--decoder-widths", "4", "--steps", "20", "--batch-size", "8", "--device", "cpu",
)  # fmt: skip
CONTENT = gzip.compress(b"two sprites", mtime=0)


class Result(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command in this process."""

    def run(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["unseam", *map(str, words)])
        status = 0
        try:
            main()
        except SystemExit as leave:
            status = leave.code
        return Result(status, *capsys.readouterr())

    return run


def start(*words: object, **options: object) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(Path(unseam.__file__).parents[1]), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "unseam", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes | options)


def commands(group=None, path=()):
    """Every command with its path."""
    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield pytest.param(command, id=" ".join((*path, name)))


# Parsing and help


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["train", "--help"], ["data", "--help"], ["--version"]]
)
def test_help_does_not_import_torch(words):
    code = (
        "import sys; sys.argv = ['unseam', *sys.argv[1:]]\n"
        "from unseam.cli import main\n"
        "try:\n    main()\nexcept SystemExit as leave:\n    assert not leave.code\n"
        "heavy = {'torch', 'numpy', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(unseam.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "unseam" in done.stdout or done.stdout.strip() == unseam.__version__


@pytest.mark.parametrize("words", [(), ("data",)])
def test_without_a_command_it_shows_what_there_is(call, words):
    result = call(*words)
    assert result.status == 2
    assert "Commands:" in result.err


def test_version(call):
    assert call("--version") == (0, f"{unseam.__version__}\n", "")


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_has_json_and_help(command):
    assert any("--json" in parameter.opts for parameter in command.params)
    assert all(getattr(parameter, "help", "") for parameter in command.params if "-" in parameter.opts[0])


def test_train_has_a_flag_a_field(call):
    result = call("train", "--help")
    flags = {name.replace("_", "-") for name in unseam.Trial().to_dict()} - {"world-options", "weights"}
    assert all(f"--{flag} " in result.out for flag in flags | {"world-option", "weight"})


BAD = {
    "command": (("nonsense",), "No such command 'nonsense'; see unseam --help"),
    "flag": (("train", "--nonsense", "1"), "No such option: --nonsense"),
    "number": (
        ("train", "--steps", "x"),
        "'--steps': must be a whole number, got 'x'; see unseam train --help",
    ),
    "choice": (
        ("train", "--objective", "foo"),
        "objective must be one of annealed_capacity, autoencoder, beta_elbo",
    ),
    "every": (("train", "--every", "0"), "--every"),
    "range": (("train", "--latent", "0"), "latent must be a whole number of at least 1, got 0"),
    "vary": (("train", "--vary", "beta"), "--vary must be field=a,b,c with a field of a trial, got 'beta'"),
    "option": (("train", "--world-option", "x"), "--world-option must be name=value, got 'x'"),
    "world": (("train", "--world", "sprtes"), "did you mean 'sprites'?"),
    "world-option": (("train", "--world-option", "nope=1"), "option 'nope' is unknown to world 'sprites'"),
    "device": (("train", "--device", "nope"), "--device must be cpu, cuda or cuda:N, got 'nope'"),
    "likelihood": (("train", "--world", "linear"), "x must lie in [0, 1] for the bernoulli likelihood"),
    "resume": ((*SMALL, "--out", __file__), "out must be a folder"),
    "verify": (("data", "verify", "nope"), "name must be a published data set, one of dsprites"),
    "variant": (("data", "verify", "mpi3d", "--variant", "x"), "variant of 'mpi3d' must be one of complex"),
    "fetch": (("data", "fetch", "faces3d"), "world 'faces3d' cannot be fetched: its licence"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD.keys())
def test_bad_usage_is_one_line_and_status_2(call, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*words)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("unseam: ")
    assert result.err.count("\n") == 1
    assert message in result.err
    assert list(tmp_path.iterdir()) == []


def test_cuda_where_there_is_none(call, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = call("train", "--device", "cuda")
    assert result == (2, "", "unseam: --device cuda needs a CUDA device, and torch finds none here\n")


def test_debug_shows_the_traceback(call):
    with pytest.raises(ValueError, match="latent must be"):
        call("train", "--latent", "0", "--debug")


def test_debug_by_process():
    _, err = start("--debug", "train", "--latent", "0").communicate()
    assert "Traceback (most recent call last)" in err
    assert err.strip().endswith("ValueError: latent must be a whole number of at least 1, got 0")


def test_a_missing_file_is_status_1_and_says_where_it_is_looked_for(call, tmp_path):
    result = call(
        "train", "--world", "dsprites", "--world-option", f"root={tmp_path}", "--out", tmp_path / "run"
    )
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 1)
    assert f"and {tmp_path} does not hold it; fetch it with `unseam data fetch dsprites`" in result.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyError("beta"), 1, "unseam: KeyError: 'beta' (--debug shows where)\n"),
        (RuntimeError("two\n  lines"), 1, "unseam: RuntimeError: two lines (--debug shows where)\n"),
        (OSError(28, "No space left on device"), 1, "unseam: [Errno 28] No space left on device\n"),
        (ValueError("x must be y"), 2, "unseam: x must be y\n"),
        (KeyboardInterrupt(), 130, "unseam: stopped\n"),
        (KeyboardInterrupt("stopped at step 3"), 130, "unseam: stopped at step 3\n"),
    ],
)
def test_errors_on_the_way(call, monkeypatch, error, status, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(import_module("unseam.data.fetch"), "listing", fail)
    assert call("data", "list") == (status, "", said)


# Training


def test_train_prints_a_table_without_escape_codes(call, tmp_path):
    result = call(*SMALL, "--vary", "seed=0,1", "--out", tmp_path / "run")
    assert result.status == 0
    assert f"2 member(s) of {tmp_path / 'run'}" in result.out
    assert "reconstruction" in result.out
    assert "step 20 of 20" in result.err
    assert "\x1b" not in result.out + result.err


def test_train_json_stands_alone_on_standard_output(call, tmp_path):
    words = (
        *SMALL,
        "--vary",
        "seed=0,1",
        "--vary",
        "beta=1,4",
        "--every",
        "5",
        "--out",
        tmp_path / "run",
        "--json",
    )
    result = call(*words)
    record = json.loads(result.out)
    assert result.status == 0
    assert record["run"] == str(tmp_path / "run")
    assert [(trial["seed"], trial["beta"]) for trial in record["trials"]] == [(0, 1), (0, 4), (1, 1), (1, 4)]
    assert [member["step"] for member in record["members"]] == [20] * 4
    assert [(member["seed"], member["beta"]) for member in record["members"]] == [
        (0, 1),
        (0, 4),
        (1, 1),
        (1, 4),
    ]
    assert {"versions", "hardware", "revision"} <= set(record["about"])
    saved = unseam.load(tmp_path / "run")
    assert [trial.to_dict() for trial in saved.trials] == record["trials"]
    last = saved.history[saved.history["step"] == 20].set_index("member")["loss"]
    assert [member["loss"] for member in record["members"]] == last.tolist()


def test_members_of_different_objectives_share_a_table(call, tmp_path):
    words = (*SMALL, "--vary", "objective=beta_elbo,deterministic_elbo", "--out", tmp_path / "run", "--json")
    first, second = json.loads(call(*words).out)["members"]
    assert first.keys() == second.keys()
    assert first["regularisation"] is None
    assert second["regularisation"] > 0


def test_without_out_the_folder_is_named_after_the_run(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = json.loads(call(*SMALL, "--json").out)
    assert (tmp_path / record["run"] / "run.json").exists()
    assert record["run"].startswith("runs/linear-beta_elbo-")
    assert call(*SMALL).status == 2
    assert call(*SMALL, "--resume").status == 0


def test_an_existing_run_asks_for_the_flag(call, tmp_path):
    assert call(*SMALL, "--out", tmp_path).status == 0
    result = call(*SMALL, "--out", tmp_path)
    expected = (
        f"unseam: {tmp_path} holds a run already; add --resume to continue it, or --out another folder\n"
    )
    assert result == (2, "", expected)


def test_resume_of_other_trials_is_refused(call, tmp_path):
    call(*SMALL, "--out", tmp_path)
    result = call(*SMALL, "--out", tmp_path, "--seed", "3", "--resume")
    assert result.status == 2
    assert "holds a run of other trials (first difference at member 0)" in result.err


def test_resume_of_a_damaged_run_says_so(call, tmp_path):
    call(*SMALL, "--out", tmp_path)
    (tmp_path / "run.json").write_text("{")
    result = call(*SMALL, "--out", tmp_path, "--resume")
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert "run.json is damaged" in result.err


def test_an_interrupted_run_resumes_to_the_same_weights(call, tmp_path, monkeypatch):
    words = (*SMALL, "--every", "5", "--out")
    assert call(*words, tmp_path / "whole").status == 0
    with monkeypatch.context() as patch:
        interrupt = contextlib.nullcontext(lambda *_: signal.raise_signal(signal.SIGINT))
        patch.setattr(progress, "lines", lambda: interrupt)
        result = call(*words, tmp_path / "cut")
    assert (result.status, result.out) == (130, "")
    assert result.err == f"unseam: stopped at step 5; {tmp_path / 'cut'} can be resumed\n"
    assert unseam.load(tmp_path / "cut").stacks[0].step == 5
    assert call(*words, tmp_path / "cut", "--resume").status == 0
    cut, whole = (unseam.load(tmp_path / name) for name in ("cut", "whole"))
    assert torch.equal(cut.stacks[0].flat, whole.stacks[0].flat)
    assert cut.history["step"].tolist() == [5, 10, 15, 20]


def test_ctrl_c_by_process_leaves_a_run_that_can_be_resumed(tmp_path):
    words = [word if word != "20" else "10000000" for word in SMALL]
    process = start(*words, "--out", tmp_path, "--every", "10")
    for _ in range(600):
        if (tmp_path / "run.json").exists():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.strip().splitlines()[-1].endswith(f"{tmp_path} can be resumed")
    assert "\x1b" not in err
    record = json.loads((tmp_path / "run.json").read_text())
    assert not record["complete"]
    assert record["steps"][0] > 0


DIVERGING = (*SMALL, "--optimiser", "sgd", "--vary", "learning_rate=1e-3,1e38")


def test_a_diverged_member_is_named_and_the_status_is_1(call, tmp_path):
    result = call(*DIVERGING, "--out", tmp_path)
    assert result.status == 1
    line = result.err.splitlines()[-1]
    assert line.startswith("unseam: member 1 stopped at step 2, no longer finite: Trial(world='linear'")
    assert "learning_rate=1e+38" in line
    assert "Warning" not in result.err


def test_json_of_a_diverged_member_has_no_infinities(call, tmp_path):
    result = call(*DIVERGING, "--out", tmp_path, "--json")
    sound, lost = json.loads(result.out, parse_constant=pytest.fail)["members"]
    assert result.status == 1
    assert sound["stopped"] is None and sound["loss"] > 0
    assert lost["stopped"] == 2 and lost["loss"] is None


# Data


def test_data_list_tells_twins_from_what_they_imitate(call, tmp_path):
    rows = {row["world"]: row for row in json.loads(call("data", "list", "--root", tmp_path, "--json").out)}
    assert rows["sprites"]["source"] == "rendered here, twin of dSprites"
    assert rows["shapes"]["source"] == "rendered here, twin of 3D Shapes"
    assert rows["linear"]["source"] == "made here"
    assert rows["sprites"]["factors"] == {"shape": 3, "scale": 6, "orientation": 40, "x": 32, "y": 32}
    assert (rows["circles"]["items"], rows["circles"]["factors"]) == (10_000, {"circle": 8, "angle": 0})
    assert all(rows[name]["here"] for name in ("sprites", "mixture", "moving_digit"))
    assert not any(rows[name]["here"] for name in ("dsprites", "mpi3d (toy)", "faces3d"))
    assert "licence" in rows["faces3d"]["note"]


def test_data_list_as_a_table(call, tmp_path):
    result = call("data", "list", "--root", tmp_path)
    assert (result.status, result.err) == (0, "")
    assert {name for name in unseam.data.names() if name in result.out} == set(unseam.data.names())
    assert "\x1b" not in result.out
    assert max(map(len, result.out.splitlines())) <= 140


def test_a_reader_that_leaves_early_is_no_error_message():
    process = start("data", "list")
    process.stdout.close()
    process.wait(timeout=60)
    assert (process.returncode, process.stderr.read()) == (1, "")
    process.stderr.close()


class Quiet(SimpleHTTPRequestHandler):
    """A server that keeps its log to itself."""

    def log_message(self, *arguments):
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Serve s.gz from this machine, and list it as the data set `tiny`; returns the served file."""
    served = tmp_path / "served"
    served.mkdir()
    (served / "s.gz").write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{httpd.server_port}/s.gz"
        checksum = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
        entry = Published("tiny", (RemoteFile("s.gz", (url,), checksum, magic=b"\x1f\x8b"),))
        monkeypatch.setitem(PUBLISHED, "tiny", entry)
        yield served / "s.gz"
        httpd.shutdown()
        thread.join()


def test_fetch_then_verify(call, mirror, tmp_path):
    root = tmp_path / "got"
    before = call("data", "verify", "tiny", "--root", root, "--json")
    assert (before.status, json.loads(before.out)[0]["state"]) == (1, "missing")
    fetched = call("data", "fetch", "tiny", "--root", root, "--json")
    expected = {
        "file": "s.gz",
        "state": "verified",
        "path": str(root / "s.gz"),
        "detail": "checksum as published",
    }
    assert (fetched.status, json.loads(fetched.out)) == (0, [expected])
    table = call("data", "verify", "tiny", "--root", root)
    assert table.status == 0
    assert "verified" in table.out
    assert "\x1b" not in table.out


def test_a_file_without_a_published_checksum_is_fetched_on_request_only(call, mirror, tmp_path, monkeypatch):
    (file,) = PUBLISHED["tiny"].files
    monkeypatch.setitem(PUBLISHED, "tiny", Published("tiny", (dataclasses.replace(file, checksum=None),)))
    refused = call("data", "fetch", "tiny", "--root", tmp_path / "got")
    assert refused.status == 2 and "no checksum of s.gz is published" in refused.err
    taken = call("data", "fetch", "tiny", "--root", tmp_path / "got", "--unverified", "--json")
    assert (taken.status, json.loads(taken.out)[0]["state"]) == (0, "recorded")


def test_verify_of_a_changed_file_is_status_1(call, mirror, tmp_path):
    (tmp_path / "s.gz").write_bytes(CONTENT + b"!")
    result = call("data", "verify", "tiny", "--root", tmp_path, "--json")
    assert (result.status, json.loads(result.out)[0]["state"]) == (1, "differs")


def test_fetch_of_a_changed_file_is_status_1_and_keeps_nothing(call, mirror, tmp_path):
    mirror.write_bytes(CONTENT + b"!")
    result = call("data", "fetch", "tiny", "--root", tmp_path / "got")
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 1)
    assert "no mirror gave s.gz of world 'tiny'" in result.err
    assert "wrong checksum" in result.err
    assert list((tmp_path / "got").iterdir()) == []


def test_a_bracket_in_a_path_is_printed_as_it_is(call, mirror, tmp_path):
    result = call("data", "verify", "tiny", "--root", tmp_path / "[bold]")
    assert "[bold]" in "".join(result.out.split())
