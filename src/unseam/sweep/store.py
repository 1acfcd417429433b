"""Store: rows of finished trials as Parquet parts in a folder or at any fsspec address, and who works on which."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
import secrets
import shutil
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

from unseam.files import DiskFullError, check_parquet, first_line, open_file, remove_folder, write_atomically
from unseam.locks import EXPIRY, HEARTBEAT, LockedError, alive, mark
from unseam.sweep.analysis import settings_of
from unseam.sweep.spec import Spec
from unseam.trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Claim", "Holding", "Store", "piece_name", "trial_row"]

FORMAT = 1
SMALL, MANY = 1 << 24, 32
"""Parts below so many bytes are merged once there are so many of them."""
_PART = re.compile(r"(?P<digest>[0-9a-f]{32})-(?P<rows>\d+)\.parquet")
ATTEMPTS = 5
T = TypeVar("T")


class Claim(NamedTuple):
    """Who works, or worked, on which trials."""

    token: str
    keys: tuple[str, ...]
    living: bool
    """Whether its process still works on them."""
    step: int
    """Steps done, of all trials together."""
    steps: int
    """Steps to do."""
    instead: str = ""
    """Token of the claim that this one replaces."""
    measured: float = 0.0
    """Fraction of the measures that were taken after the training."""

    @property
    def models(self) -> float:
        """Models that its work so far amounts to: training and measuring count half each, since neither time is known.

        >>> Claim("a", ("x", "y"), True, 100, 200, measured=0.0).models
        0.5
        """
        return len(self.keys) * (0.5 * self.step / max(1, self.steps) + 0.5 * self.measured)


class Store:
    """A folder, or any address that fsspec knows, with the rows of a sweep.

    Rows lie in ``parts/``, files that are named after the digest of their content and written whole: one that is cut
    short, changed or of another origin is not read. Of two rows of one trial the earlier one counts. ``seeds/`` holds
    comparisons of the seeds of a setting that were made after its rows. ``claims/`` says who works on what: a process
    writes its claim, then looks for others of the same trials, and withdraws where there is one, so that of any two at
    most one goes on. A claim is renewed while its process lives, and lapses after :data:`unseam.locks.EXPIRY` by the
    clock of the store; the claim that replaces it names it, so that its process learns of it whenever it comes back.

    Args:
        address: of the store, e.g. ``sweeps/beta`` or ``s3://bucket/beta``.

    >>> store = Store("memory://an-example")
    >>> with store.hold([Trial()]) as holding:
    ...     store.hold([Trial()])
    """

    def __init__(self, address: str | Path) -> None:
        import fsspec

        self.address = str(address)
        self.fs, self.root = fsspec.core.url_to_fs(self.address)
        self.local = Path(self.root) if "file" in (self.fs.protocol, *self.fs.protocol) else None
        self._keys: dict[str, frozenset[str]] = {}

    # Files

    def read(self, name: str) -> bytes:
        """The content of a file."""
        if self.local is not None:
            with open_file(self.local / name) as file:
                return file.read()
        content: bytes = self.fs.cat_file(f"{self.root}/{name}")
        return content

    def _record(self, name: str) -> dict[str, Any]:
        """A file that holds a JSON object."""
        try:
            record = json.loads(self.read(name))
        except FileNotFoundError:
            raise
        except (ValueError, RecursionError):
            raise ValueError(f"{self.address}/{name} is damaged; restore the file") from None
        if not isinstance(record, dict):
            raise ValueError(f"{self.address}/{name} must hold a JSON object; restore the file")
        return record

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole: readers see all of it or what was there before."""
        if self.local is not None:
            write_atomically(self.local / name, lambda temporary: _write_bytes(temporary, content))
        else:
            self.fs.pipe_file(f"{self.root}/{name}", content)

    def names(self, folder: str) -> list[str]:
        """Files of one of its folders; none where there is no such folder."""
        self.fs.invalidate_cache()
        try:
            found = self.fs.ls(f"{self.root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        return sorted(name for path in found if not (name := path.rpartition("/")[2]).startswith("."))

    def remove(self, name: str) -> None:
        """Remove a file, where it is there."""
        with suppress(FileNotFoundError):  # another process was faster
            self.fs.rm_file(f"{self.root}/{name}")

    # Settings

    def settle(self, spec: Spec) -> None:
        """Record a spec, after its settings were compared with those of the rows that are there."""
        score = spec.score.to_dict()
        before, rows = self.settings(), self.names("parts")
        if before is None and rows:
            raise ValueError(f"{self.address} holds rows without store.json; choose another folder")
        if before is None or (before["score"] != score and not rows and not self.claims()):
            self.write("store.json", json.dumps({"format": FORMAT, "score": score}, indent=1).encode())
        elif before["score"] != score:
            apart = [key for key, value in score.items() if before["score"].get(key) != value]
            raise ValueError(
                f"{self.address} holds rows measured with score.{apart[0]} = {before['score'].get(apart[0])!r}, got "
                f"{score[apart[0]]!r}; use the same, or another store"
            )
        about = {
            "name": spec.name,
            "questions": list(spec.questions),
            "trials": len(spec.trials),
            "spec": dict(spec.source),
        }
        text = json.dumps(about, indent=1, sort_keys=True, default=str).encode()
        self.write(f"specs/{hashlib.sha256(text).hexdigest()[:16]}.json", text)

    def settings(self) -> dict[str, Any] | None:
        """What ``store.json`` says; nothing where there is none."""
        try:
            record = self._record("store.json")
        except FileNotFoundError:
            return None
        if not isinstance(record.get("score"), dict):
            raise ValueError(f"{self.address}/store.json does not describe a sweep; restore the file")
        if record.get("format") != FORMAT:
            raise ValueError(f"{self.address} has format {record.get('format')}, this version reads {FORMAT}")
        return record

    def specs(self) -> list[dict[str, Any]]:
        """Name, questions and source of every spec that was run here."""
        return [self._record(f"specs/{name}") for name in self.names("specs")]

    # Rows

    def append(self, rows: Sequence[Mapping[str, Any]], folder: str = "parts") -> None:
        """Write rows of finished trials, or comparisons of seeds, as one part."""
        import pyarrow as pa

        self._append(pa.Table.from_pylist([dict(row) for row in rows], schema=_schema(rows)), folder)
        self.merge(folder)

    def _append(self, table: pa.Table, folder: str) -> str:
        import pyarrow.parquet as pq

        sink = io.BytesIO()
        note = {b"unseam.sweep": str(FORMAT).encode()}
        pq.write_table(table.replace_schema_metadata(note), sink, compression="zstd")
        digest = hashlib.sha256(sink.getvalue()).hexdigest()[:32]
        name = f"{digest}-{table.num_rows}.parquet"
        self.write(f"{folder}/{name}", sink.getvalue())
        return name

    def parts(self, folder: str = "parts") -> list[str]:
        """Names of the parts."""
        return [name for name in self.names(folder) if _PART.fullmatch(name)]

    def keys(self) -> frozenset[str]:
        """Keys of the trials that have a row."""

        def held(name: str) -> frozenset[str] | None:
            if name not in self._keys:
                if (part := self._part(f"parts/{name}", ["key"])) is None:
                    return None
                self._keys[name] = frozenset(part["key"].to_pylist())
            return self._keys[name]

        return frozenset().union(*self._each("parts", held))

    def table(self) -> pd.DataFrame:
        """All rows, one per trial; comparisons of seeds where they are of all seeds that a setting has."""
        rows = _deduplicated(self._rows("parts")).to_pandas(split_blocks=True)
        return compare_all(rows, self._rows("seeds").to_pandas())

    def _rows(self, folder: str) -> pa.Table:
        """All rows, those of one trial as often as parts hold it."""
        import pyarrow as pa

        held = self._each(folder, lambda name: self._part(f"{folder}/{name}"))
        if not held:
            return pa.table({"key": pa.array([], pa.string())})
        return pa.concat_tables(held, promote_options="permissive")

    def _each(self, folder: str, read: Callable[[str], T | None]) -> list[T]:
        """What is read of every part but the damaged ones, all of one moment: others may merge parts meanwhile."""
        for _ in range(ATTEMPTS):
            names = self.parts(folder)
            found = [read(name) for name in names]
            if all(one is not None for one in found) or self.parts(folder) == names:
                return [one for one in found if one is not None]
        raise OSError(f"{self.address}/{folder} changes while it is read; try again")

    def _part(self, name: str, columns: list[str] | None = None) -> pa.Table | None:
        """A part, or nothing where it is gone or not what was written."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            content = self.read(name)
        except FileNotFoundError:
            return None
        if hashlib.sha256(content).hexdigest()[:32] != name.rpartition("/")[2][:32]:
            warnings.warn(
                f"{self.address}/{name} is not what was written; its rows are left out", stacklevel=3
            )
            return None
        try:
            check_parquet(io.BytesIO(content), f"{self.address}/{name}")
            file = pq.ParquetFile(pa.BufferReader(content))
        except pa.ArrowException as error:
            raise ValueError(
                f"{self.address}/{name} is damaged ({first_line(error)}); restore or remove it"
            ) from None
        if (written := (file.schema_arrow.metadata or {}).get(b"unseam.sweep")) != str(FORMAT).encode():
            raise ValueError(f"{self.address}/{name} has format {written!r}, this version reads {FORMAT}")
        if "key" not in file.schema_arrow.names or file.schema_arrow.field("key").type != pa.string():
            raise ValueError(f"{self.address}/{name} must have a column 'key' of text; restore or remove it")
        return file.read(columns=columns).replace_schema_metadata(None)

    def merge(self, folder: str = "parts") -> None:
        """Make one part of many small ones."""
        import pyarrow as pa

        names = self.parts(folder)
        if len(names) < MANY:
            return
        held = {}
        for path in (f"{folder}/{name}" for name in names):
            with suppress(FileNotFoundError):  # merged by another process meanwhile
                if self.fs.size(f"{self.root}/{path}") < SMALL and (part := self._part(path)) is not None:
                    held[path] = part
        if len(held) < MANY:
            return
        rows = pa.concat_tables(held.values(), promote_options="permissive")
        merged = self._append(_deduplicated(rows) if folder == "parts" else rows, folder)
        for path in held.keys() - {f"{folder}/{merged}"}:
            self.remove(path)

    # Claims

    def claims(self) -> list[Claim]:
        """Who works on what, and what was left unfinished."""
        found = [claim for name in self.names("claims") if (claim := self._claim(name)) is not None]
        replaced = {claim.instead for claim in found}
        return [claim for claim in found if claim.token not in replaced]

    def _claim(self, name: str) -> Claim | None:
        try:
            record = self._record(f"claims/{name}")
            keys, token, owner = tuple(record["keys"]), record["token"], record["mark"]
            living: bool | None = not record["released"]
            if living:
                living = alive(owner)
                if living is None:
                    age = self._now() - self.fs.modified(f"{self.root}/claims/{name}").timestamp()
                    living = age < EXPIRY
            instead = record.get("instead", "")
            if not all(isinstance(text, str) for text in (token, instead, *keys)):
                return None
            step, steps, measured = (
                int(record["step"]),
                int(record["steps"]),
                float(record.get("measured", 0.0)),
            )
            return Claim(token, keys, bool(living), step, steps, instead, measured)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return None  # gone, or no claim

    def _now(self) -> float:
        """The time by the clock of the store."""
        name = f"clock-{secrets.token_hex(4)}"
        self.write(name, b"")
        try:
            return float(self.fs.modified(f"{self.root}/{name}").timestamp())
        finally:
            self.remove(name)

    def hold(self, trials: Sequence[Trial], instead: str = "") -> Holding | None:
        """Claim trials, or nothing where another process works on one of them.

        Args:
            trials: what to work on.
            instead: token of a claim that is no longer held, which this one replaces.
        """
        holding = Holding(self, trials, instead)
        wanted = set(holding.keys)
        others = (claim for claim in self.claims() if claim.token != holding.token)
        if any(claim.living and wanted & set(claim.keys) for claim in others):
            holding.finish()
            return None
        if instead:
            self.remove(f"claims/{instead}.json")
        return holding

    # Checkpoints and weights

    @contextmanager
    def workspace(self, name: str) -> Iterator[Path]:
        """A folder on this machine for the checkpoints of a stack, with what the store has of them."""
        if self.local is not None:
            yield self.local / "work" / name
            return
        with tempfile.TemporaryDirectory() as folder:
            with (
                suppress(FileNotFoundError),
                zipfile.ZipFile(io.BytesIO(self.read(f"work/{name}.zip"))) as packed,
            ):
                size, free = sum(file.file_size for file in packed.infolist()), shutil.disk_usage(folder).free
                if size > free:
                    raise DiskFullError(
                        f"work/{name}.zip of {self.address} unpacks to {size / 1e9:.1f} GB, but {folder} has "
                        f"{free / 1e9:.1f} GB free"
                    )
                packed.extractall(Path(folder) / name)
            yield Path(folder) / name

    def upload(self, folder: Path) -> None:
        """Save the checkpoint in a workspace, where that is not in the store itself."""
        if self.local is None and (folder / "run.json").exists():
            sink = io.BytesIO()
            with zipfile.ZipFile(sink, "w") as packed:
                for path in sorted(folder.iterdir()):
                    if path.is_file() and not path.name.endswith((".part", ".lock")):
                        packed.write(path, path.name)
            self.write(f"work/{folder.name}.zip", sink.getvalue())

    def discard(self, name: str) -> None:
        """Remove the checkpoints of a stack."""
        if self.local is not None:
            remove_folder(self.local / "work" / name)
        else:
            self.remove(f"work/{name}.zip")

    def save_run(self, folder: Path) -> str:
        """Save a run as ``runs/NAME``, and return that."""
        for path in sorted(folder.iterdir(), key=lambda path: path.name == "run.json"):
            if path.is_file() and not path.name.startswith("."):
                self.write(f"runs/{folder.name}/{path.name}", path.read_bytes())
        return f"runs/{folder.name}"


@dataclass
class Holding:
    """A claim of this process, renewed until it is finished or released.

    As a context it is released at an error, so that others may go on at once, and finished otherwise.
    """

    store: Store
    trials: Sequence[Trial]
    instead: str = ""

    def __post_init__(self) -> None:
        self.token, self.step, self.measured = secrets.token_hex(8), 0, 0.0
        self._gone, self._writing = threading.Event(), threading.Lock()
        self.keys = tuple(trial.key() for trial in self.trials)
        self._write()
        threading.Thread(target=self._renew, daemon=True, name=f"claim {self.token}").start()

    @property
    def name(self) -> str:
        """What the stack's checkpoints are named after."""
        return piece_name(self.keys)

    def check(self) -> None:
        """Raise :class:`LockedError` where another process has taken over, as after a long suspension."""
        held = any(claim.token == self.token for claim in self.store.claims())
        if not held or self.store.keys() & set(self.keys):
            raise LockedError(f"trials of {self.store.address} were taken over by another process")

    def release(self) -> None:
        """Leave the trials, and their checkpoints, to whoever comes next."""
        with self._writing:
            self._gone.set()
            if self.store.fs.exists(self._path):
                self._write()

    def finish(self) -> None:
        """Remove the claim."""
        with self._writing:
            self._gone.set()
            self.store.remove(f"claims/{self.token}.json")

    def __enter__(self) -> Holding:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.finish() if kind is None else self.release()

    @property
    def _path(self) -> str:
        return f"{self.store.root}/claims/{self.token}.json"

    def _write(self) -> None:
        record = {
            "token": self.token,
            "mark": mark(),
            "released": self._gone.is_set(),
            "keys": list(self.keys),
            "instead": self.instead,
            "step": self.step * len(self.keys),
            "steps": sum(trial.steps for trial in self.trials),
            "measured": self.measured,
        }
        self.store.write(f"claims/{self.token}.json", json.dumps(record).encode())

    def _renew(self) -> None:
        while not self._gone.wait(HEARTBEAT / 5):
            with suppress(OSError), self._writing:
                if not self._gone.is_set() and self.store.fs.exists(self._path):
                    self._write()


def piece_name(keys: Iterable[str]) -> str:
    """The name of a stack: a digest of its trials.

    >>> piece_name(["a", "b"]) == piece_name(["b", "a"])
    True
    """
    return hashlib.sha256(" ".join(sorted(keys)).encode()).hexdigest()[:16]


def trial_row(trial: Trial) -> dict[str, Any]:
    """A trial as the first columns of its row; sequences as JSON.

    >>> row = trial_row(Trial(beta=4))
    >>> row["key"] == Trial(beta=4.0).key(), row["beta"], row["encoder_widths"]
    (True, 4.0, '[256, 256]')
    """
    floats = {
        name
        for name, hint in get_type_hints(Trial).items()
        if float in (hint, *getattr(hint, "__args__", ()))
    }
    row: dict[str, Any] = {"key": trial.key()}
    for name, value in trial.to_dict().items():
        if isinstance(value, list | dict):
            row[name] = json.dumps(value)
        else:
            row[name] = float(value) if name in floats and value is not None else value
    return row


def row_trial(row: Mapping[str, Any]) -> Trial:
    """The trial of a row.

    >>> row_trial(trial_row(Trial(beta=4.0))) == Trial(beta=4.0)
    True
    """
    record = {}
    for item in dataclasses.fields(Trial):
        value = row.get(item.name)
        if value is None or value != value:
            continue
        record[item.name] = json.loads(value) if isinstance(item.default, tuple) else value
    return Trial.from_dict(record)


def _schema(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Numbers, truth values and text; null where there is none, which other parts may have."""
    import pyarrow as pa

    kinds: dict[str, Any] = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        found = {type(value) for row in rows if (value := row.get(name)) is not None}
        one: Any = found.pop() if len(found) == 1 else float if found else None
        kinds[name] = {bool: pa.bool_(), str: pa.string(), int: pa.int64(), None: pa.null()}.get(
            one, pa.float64()
        )
    return pa.schema(list(kinds.items()))


def _deduplicated(table: pa.Table) -> pa.Table:
    """One row of each key: the earliest, whatever part it lies in."""
    import numpy as np

    keys = table["key"].to_pandas()
    if not keys.duplicated().any():
        return table
    frame = table.select([name for name in ("created", "stack") if name in table.column_names]).to_pandas()
    order = frame.sort_values(list(frame), kind="stable").index.to_numpy() if len(frame.columns) else None
    order = np.arange(len(keys)) if order is None else order
    first = np.flatnonzero(~keys.iloc[order].duplicated())
    return table.take(np.sort(order[first]))


def compare_all(rows: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """A table whose comparisons of seeds are of all seeds that a setting has by now, and undefined otherwise.

    A column ``x`` is a comparison where a column ``x_seeds`` says how many seeds took part.

    Args:
        rows: of a store.
        later: comparisons that were made since, which replace those of fewer seeds.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"key": ["a", "b"], "seed": [0, 1], "udr": [0.5, 0.5], "udr_seeds": [2, 2]})
    >>> more = pd.DataFrame({"key": ["c"], "seed": [2], "udr": [0.5], "udr_seeds": [1]})
    >>> compare_all(pd.concat([rows, more], ignore_index=True), pd.DataFrame())["udr"].isna().all()
    np.True_
    """
    import numpy as np

    counts = [str(name) for name in dict.fromkeys([*rows, *later]) if str(name).endswith("_seeds")]
    if rows.empty or not counts:
        return rows
    sound = rows["stopped"].isna().to_numpy() if "stopped" in rows else np.ones(len(rows), dtype=bool)
    groups = settings_of(rows)
    seeds = np.bincount(groups, weights=sound)[groups]
    found: dict[str, Any] = {}
    for count in counts:
        name = count.removesuffix("_seeds")
        compared, value = (
            rows[column].to_numpy(dtype=float) if column in rows else np.full(len(rows), np.nan)
            for column in (count, name)
        )
        if count in later:
            newest = later.sort_values(count).drop_duplicates("key", keep="last").set_index("key")
            newest = newest.reindex(rows["key"])
            since = np.nan_to_num(newest[count].to_numpy(dtype=float)) > np.nan_to_num(compared)
            compared = np.where(since, newest[count].to_numpy(dtype=float), compared)
            value = np.where(since, newest[name].to_numpy(dtype=float), value)
            if (why := newest.get(f"{name}_note")) is not None:
                found[f"{name}_note"] = np.where(since, why, rows.get(f"{name}_note", why))
        stale = sound & (compared != seeds) & (seeds > 1) & ~np.isnan(compared)
        found |= {name: np.where(compared == seeds, value, np.nan), count: compared}
        if stale.any():
            note = [f"{a:.0f} of {b:.0f} seeds compared" for a, b in zip(compared, seeds, strict=True)]
            before: Any = found.get(f"{name}_note", rows.get(f"{name}_note"))
            found[f"{name}_note"] = np.where(stale, np.array(note, dtype=object), before)
    return rows.assign(**found)


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)
