"""Open damaged and hostile files, and count those that are not refused with one line: ``make hostile``."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import unseam
from unseam import files
from unseam.data import open_data
from unseam.data.arrays import hdf5_blocks, npz_array
from unseam.data.idx import read_idx
from unseam.sweep import Store, read_spec
from unseam.training import Trial
from unseam.training.checkpoint import write_record

Case = tuple[str, Callable[[], object]]
BUDGET = 2 << 30
"""Bytes that opening a hostile file may take beyond what the process has."""
SECONDS, WAIT = 20, 200
"""Of computing and of waiting, after which it counts as hanging."""


def main() -> None:
    """Open every file in a process of its own, and fail where one is accepted, hangs, or ends in another error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=10, help="damaged copies of each file of a run")
    parser.add_argument("--seed", type=int, default=0, help="of the damage")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lost, tried = [], 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        trial = Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
        if (process := os.fork()) == 0:
            unseam.train(trial, out=place / "run", device="cpu", progress=False)
            os._exit(0)
        os.waitpid(process, 0)
        for title, work in cases(place, random.Random(given.seed), given.flips):
            tried += 1
            if problem := _opened(work):
                lost.append(f"{title}: {problem}")
    print(f"tried {tried}  survived {tried - len(lost)}  lost {len(lost)}", *lost, sep="\n")
    sys.exit(bool(lost))


def cases(place: Path, draw: random.Random, flips: int) -> Iterator[Case]:
    """All files, each with what opens it."""
    yield from records(place)
    yield from damaged(place, draw, flips)
    yield from specials(place)
    yield from arrays(place)
    yield from own_data(place)
    yield from stores(place)
    yield from shared(place)


def records(place: Path) -> Iterator[Case]:
    """Records of runs that say what is not so."""
    record = json.loads((place / "run" / "run.json").read_text())
    trial = record["trials"][0]
    changes = {
        "huge widths": {"trials": [trial | {"encoder_widths": [10**7, 10**7]}]},
        "huge latent": {"trials": [trial | {"latent": 10**9}]},
        "huge shape": {"shape": [10**6, 10**6]},
        "many members": {"trials": [trial] * 10_000},
        "a module": {"trials": [trial | {"objective": "this:d"}]},
        "a module as a world": {"trials": [trial | {"world": "this:d"}]},
        "a path as a file": {"files": {"../../etc/passwd": "sha256:0"}},
        "no trials": {"trials": []},
    }
    for key in ("trials", "shape", "sizes", "steps", "stopped", "files", "versions", "hardware", "worlds"):
        for wrong in (None, 7, "x", [None], {"a": []}, -1, [[]], 1e300):
            changes[f"{key} is {wrong}"] = {key: wrong}
    for key in trial:
        for wrong in (None, {"a": 1}, [[]], "x:y", -1, 10**400):
            changes[f"{key} is {str(wrong)[:9]}"] = {"trials": [trial | {key: wrong}]}
    del changes["world_options is {'a': 1}"]  # which is what a world of the user's own may have
    for number, (title, change) in enumerate(changes.items()):
        if (
            record | change == record
            or change == {"hardware": {"a": []}}
            or change == {"versions": {"a": []}}
        ):
            continue
        folder = place / f"record-{number}"
        shutil.copytree(place / "run", folder)
        write_record(folder, record | change)
        yield f"run.json: {title}", lambda folder=folder, title=title: _load(folder)
    for title, text in (("deep", "[" * 10**5), ("digits", '{"a": ' + "1" * 10**5 + "}"), ("list", "[]")):
        folder = place / f"text-{title}"
        shutil.copytree(place / "run", folder)
        (folder / "run.json").write_text(text)
        yield f"run.json: {title}", lambda folder=folder: _load(folder)


def damaged(place: Path, draw: random.Random, flips: int) -> Iterator[Case]:
    """Files of a run with a flipped bit, or cut short."""
    for name in ("run.json", "weights.safetensors", "history.parquet"):
        content = (place / "run" / name).read_bytes()
        for number in range(flips):
            folder = place / f"{name}-{number}"
            shutil.copytree(place / "run", folder)
            broken = bytearray(content)
            broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
            (folder / name).write_bytes(broken if number % 2 else content[: draw.randrange(len(content))])
            yield f"{name} damaged, {number}", lambda folder=folder: _load(folder)


def specials(place: Path) -> Iterator[Case]:
    """Pipes and devices in the place of files."""
    os.mkfifo(place / "pipe.npy")
    for name in ("run.json", "weights.safetensors", "history.parquet"):
        for number, target in enumerate((place / "pipe.npy", Path("/dev/zero"))):
            folder = place / f"special-{name}-{number}"
            shutil.copytree(place / "run", folder)
            (folder / name).unlink()
            (folder / name).symlink_to(target)
            yield f"{name} is {target.name}", lambda folder=folder: _load(folder)
    yield "data is a pipe", lambda: files.read_array(place / "pipe.npy")
    (place / "zero.npz").symlink_to("/dev/zero")
    yield "data is a device", lambda: files.read_array(place / "zero.npz")


def arrays(place: Path) -> Iterator[Case]:
    """Arrays and tables that unpack to more than they should, hold objects, or read other files."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 2)})
    with zipfile.ZipFile(place / "lies.npz", "w") as archive:
        archive.writestr("a.npy", head.getvalue())
    yield "npz that lies about its size", lambda: files.read_array(place / "lies.npz")
    yield "npz without its array", lambda: npz_array(place / "lies.npz", "b", (2, 2))
    yield "npz of another shape", lambda: npz_array(place / "lies.npz", "a", (2, 2))
    np.save(place / "objects.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    yield "npy of objects", lambda: files.read_array(place / "objects.npy")
    with gzip.open(place / "bomb.gz", "wb", 1) as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    yield "gzip bomb", lambda: read_idx(place / "bomb.gz")
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(30_000, "i4")), pa.array(["x" * 2**20]))
    pq.write_table(pa.table({"text": one}), place / "bomb.parquet", store_schema=False)
    yield "Parquet bomb", lambda: files.read_table(place / "bomb.parquet", {"step": "iu"})
    pd.DataFrame({"step": [[1]]}).to_parquet(place / "nested.parquet", index=False)
    yield "nested Parquet", lambda: files.read_table(place / "nested.parquet")
    (place / "secret").write_bytes(bytes(100))
    with h5py.File(place / "a.h5", "w") as file:
        file.create_group("group")
        file.create_dataset("outside", (10, 10), "u1", external=[(str(place / "secret"), 0, 100)])
        layout = h5py.VirtualLayout((10, 10), "u1")
        layout[:] = h5py.VirtualSource(str(place / "b.h5"), "images", shape=(10, 10))
        file.create_virtual_dataset("virtual", layout)
        file["link"] = h5py.ExternalLink(str(place / "b.h5"), "images")
        file.create_dataset("text", (10, 10), h5py.string_dtype())
    with h5py.File(place / "b.h5", "w") as file:
        file["images"] = np.zeros((10, 10), "u1")
    for name in ("group", "outside", "virtual", "link", "text", "absent"):
        yield f"HDF5 {name}", lambda name=name: list(hdf5_blocks(place / "a.h5", name, (10, 10)))


def own_data(place: Path) -> Iterator[Case]:
    """Data of the user's own: AnnData that leads to other files or claims to be endless, programs as images."""
    with h5py.File(place / "other.h5ad", "w") as file:
        file["X"], file["obs/label"] = np.ones((10, 4), "f4"), np.arange(10)
    huge = {"dtype": "f4", "chunks": (1000,)}
    makers: dict[str, Callable[[h5py.File], object]] = {
        "external link": lambda f: f.update({"X": h5py.ExternalLink("other.h5ad", "X")}),
        "soft link to one": lambda f: f.update(
            {"Y": h5py.ExternalLink("other.h5ad", "/"), "X": h5py.SoftLink("/Y/X")}
        ),
        "link to a pipe": lambda f: f.update({"X": h5py.ExternalLink("pipe.npy", "X")}),
        "link to itself": lambda f: f.update({"X": h5py.SoftLink("/X")}),
        "labels elsewhere": lambda f: f.update(
            {"X": np.ones((10, 4)), "obs": h5py.ExternalLink("other.h5ad", "obs")}
        ),
        "labels without end": lambda f: (
            f.update({"X": np.ones((10, 4))}),
            f.create_dataset("obs/label", (10**12,), **huge),
        ),
        "items without end": lambda f: f.create_dataset("X", (10**9, 10**6), "f4", chunks=(1000, 1000)),
        "a number": lambda f: f.update({"X": 1.0}),
        "rows without end": lambda f: (
            _sparse(f),
            f.create_dataset("X/indptr", (10**11,), "i8", chunks=(1000,)),
        ),
        "rows that are no numbers": lambda f: (_sparse(f), f.update({"X/indptr": np.full(11, np.nan)})),
        "columns of half": lambda f: (_sparse(f, 0.5), f.update({"X/indptr": np.arange(11)})),
    }
    for title, make in makers.items():
        path = place / f"{title}.h5ad"
        with h5py.File(path, "w") as file:
            make(file)
        factors = "label" if "label" in title else None
        yield f"AnnData: {title}", lambda path=path, factors=factors: open_data(path, factors=factors)
    for name, text in (
        ("program", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"),
        ("cut", b"\x89PNG\r\n\x1a\n"),
    ):
        (place / name).mkdir()
        (place / name / "a.png").write_bytes(text)
        yield f"image: {name}", lambda name=name: open_data(place / name)
    for name, text in (
        ("infinite", "a,b\n1,1e400\n2,3\n"),
        ("beyond", "a,b\n1,1e39\n2,3\n"),
        ("open", 'a,b\n"1,2\n'),
    ):
        (place / f"{name}.csv").write_text(text)
        yield f"CSV: {name}", lambda name=name: open_data(place / f"{name}.csv")
    for name, size, text in (("long", 2**63, b"{}"), ("deep", 10**5, b"[" * 10**5)):
        (place / f"{name}.safetensors").write_bytes(size.to_bytes(8, "little") + text)
        yield f"safetensors: {name}", lambda name=name: open_data(place / f"{name}.safetensors")


def _sparse(file: h5py.File, column: float = 0) -> None:
    group = file.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "shape": (10, 4)})
    group["data"], group["indices"] = np.ones(10), np.full(10, column)


def stores(place: Path) -> Iterator[Case]:
    """Stores and specs of sweeps."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(30_000, "i4")), pa.array(["x" * 2**20]))
    tables = {
        "nested": pa.table({"key": [["a"]]}),
        "no key": pa.table({"a": [1]}),
        "bomb": pa.table({"key": text}),
    }
    contents = {"no Parquet": b"abc"}
    for title, table in tables.items():
        sink = io.BytesIO()
        pq.write_table(table.replace_schema_metadata({"unseam.sweep": "1"}), sink)
        contents[title] = sink.getvalue()
    for title, content in contents.items():
        folder = place / f"store {title}" / "parts"
        folder.mkdir(parents=True)
        (folder / f"{hashlib.sha256(content).hexdigest()[:32]}-9.parquet").write_bytes(content)
        yield f"store: {title}", lambda folder=folder: Store(folder.parent).table()
    (place / "deep store").mkdir()
    (place / "deep store/store.json").write_text("[" * 10**5)
    yield "store: deep", lambda: Store(place / "deep store").settings()
    (place / "pipe.toml").symlink_to(place / "pipe.npy")
    yield "spec: a pipe", lambda: read_spec(place / "pipe.toml")


def shared(place: Path) -> Iterator[Case]:
    """Folders in Hugging Face layout."""
    whole = place / "shared"
    if (process := os.fork()) == 0:
        unseam.save_pretrained(
            unseam.load(place / "run")[0], whole, trial=unseam.load(place / "run").trials[0]
        )
        os._exit(0)
    os.waitpid(process, 0)
    config = json.loads((whole / "config.json").read_text())
    changes: list[dict[str, Any]] = [
        {"shape": wrong} for wrong in (None, [], "x", [-1], [1.5], [10**6, 10**6])
    ]
    changes += [{"trial": wrong} for wrong in (None, [], 7)]
    for key in config["trial"]:
        for wrong in (None, {"a": 1}, [[]], "x:y", -1, 10**400):
            if config["trial"][key] != wrong and (key, wrong) != ("world_options", {"a": 1}):
                changes.append({"trial": config["trial"] | {key: wrong}})
    for number, change in enumerate(changes):
        folder = place / f"shared-{number}"
        shutil.copytree(whole, folder)
        (folder / "config.json").write_text(json.dumps(config | change))
        yield (
            f"config.json {number}: {str(change)[:60]}",
            lambda folder=folder: unseam.from_pretrained(folder),
        )


def _load(folder: Path) -> None:
    before = set(sys.modules)
    try:
        unseam.load(folder)
    finally:
        if "this" in set(sys.modules) - before:
            os._exit(3)


def _opened(work: Callable[[], object]) -> str:
    """What is wrong with how a file was opened; nothing where it was refused with one line."""
    reading, writing = os.pipe()
    if (process := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BUDGET, used + BUDGET))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(WAIT)
        text = "was accepted"
        try:
            work()
        except (ValueError, OSError) as error:
            text = "" if str(error) and "\n" not in str(error) else f"{type(error).__name__}: {error!r}"[:300]
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"[:300]
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as source:
        text = source.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return text if status == 0 else f"ended with status {status}"


if __name__ == "__main__":
    main()
