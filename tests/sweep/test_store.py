"""Stores: what is a row, who works on what."""

import hashlib
import io
import json
import os
import warnings

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unseam import sweep
from unseam.sweep.store import MANY, Store, row_trial, trial_row
from unseam.trial import Trial

TRIALS = [Trial(world="linear", likelihood="gaussian", seed=seed) for seed in range(6)]


@pytest.fixture(params=["folder", "memory"])
def store(request, tmp_path):
    return Store(
        tmp_path / "store" if request.param == "folder" else f"memory://{tmp_path.name}-{os.getpid()}"
    )


def rows(*numbers, **more):
    return [{**trial_row(TRIALS[number]), "mig": 0.1 * number, **more} for number in numbers]


def test_rows_come_back_once_each_with_the_columns_of_all_parts(store):
    store.append(rows(0, 1, cause=None))
    store.append(rows(1, 2, cause="its loss", dci=1))
    table = Store(store.address).table().sort_values("seed")
    assert table["seed"].tolist() == [0, 1, 2]
    assert Store(store.address).keys() == {trial.key() for trial in TRIALS[:3]}
    assert table["dci"].isna().tolist()[0]
    assert [row_trial(row) for row in table.to_dict("records")] == TRIALS[:3]


def test_every_trial_comes_back_from_its_row():
    trials = [
        Trial(),
        Trial(epsilon=1e-4, encoder_widths=(), world="linear", world_options={"size": 5, "ratio": 1.5}),
        Trial(objective="factor_vae", gamma=30, posterior="full", likelihood="gaussian", train_fraction=0.5),
    ]
    table = pd.DataFrame([trial_row(trial) for trial in trials])
    assert [row_trial(row) for row in table.to_dict("records")] == trials


def test_many_small_parts_become_one_with_the_same_rows(store):
    for number in range(MANY):
        store.append(rows(number % 6, number=number))
    before = store.table().sort_values("key", ignore_index=True)
    store.merge()
    assert len(store.parts()) == 1
    pd.testing.assert_frame_equal(store.table().sort_values("key", ignore_index=True), before)


def test_what_was_not_written_whole_by_a_sweep_is_no_row(tmp_path):
    store = Store(tmp_path)
    store.append(rows(0))
    (part,) = (tmp_path / "parts").iterdir()
    (tmp_path / "parts" / "foreign.parquet").write_bytes(part.read_bytes())
    (tmp_path / "parts" / f".{part.name}.1.part").write_bytes(part.read_bytes())
    (tmp_path / "parts" / f"{'0' * 32}-1.parquet").write_bytes(part.read_bytes()[:-20])
    with pytest.warns(UserWarning, match="is not what was written; its rows are left out"):
        assert len(Store(tmp_path).table()) == 1
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.warns(UserWarning, match="not what was written"):
        assert not Store(tmp_path).keys()


def test_a_reader_sees_all_rows_while_parts_are_merged(tmp_path, monkeypatch):
    store = Store(tmp_path)
    for number in range(MANY):
        store.append(rows(number % 6, number=number))
    reader = Store(tmp_path)
    names = reader.parts()
    store.merge()
    listed = iter([names])
    monkeypatch.setattr(reader, "parts", lambda folder: next(listed, None) or Store(tmp_path).parts(folder))
    assert len(reader.table()) == 6


def test_keys_are_all_there_while_parts_are_merged(tmp_path, monkeypatch):
    """One that seemed missing would be trained again."""
    store = Store(tmp_path)
    for number in range(3):
        store.append(rows(number))
    reader, listed = Store(tmp_path), iter([store.parts()])
    monkeypatch.setattr("unseam.sweep.store.MANY", 2)
    store.merge()
    monkeypatch.setattr(reader, "parts", lambda folder: next(listed, None) or Store(tmp_path).parts(folder))
    assert len(reader.keys()) == 3


def test_of_two_rows_of_one_trial_the_earlier_counts_in_whatever_part(store, monkeypatch):
    for number, when in enumerate(("03", "01", "02")):
        store.append(rows(0, dci=float(number), created=f"2026-01-{when}"))
        store.append(rows(1 + number, created="2026-01-09"))
    assert store.table().set_index("seed").loc[0, "dci"] == 1.0
    monkeypatch.setattr("unseam.sweep.store.MANY", 2)
    store.merge()
    assert store.table().set_index("seed").loc[0, "dci"] == 1.0


def test_no_two_hold_one_trial_and_a_released_claim_is_free(store):
    first = store.hold(TRIALS[:3])
    assert store.hold(TRIALS[2:]) is None
    second = store.hold(TRIALS[3:])
    assert second is not None
    first.release()
    (left,) = (claim for claim in store.claims() if not claim.living)
    third = store.hold(TRIALS[:3], instead=left.token)
    assert third is not None
    with pytest.raises(OSError, match="taken over"):
        first.check()
    first._gone.clear()
    first._write()  # as a late renewal would
    with pytest.raises(OSError, match="taken over"):
        first.check()
    third.check()
    store.remove(f"claims/{first.token}.json")
    for holding in (second, third):
        holding.check()
        holding.finish()
    assert store.claims() == []


def test_the_claim_of_a_dead_process_is_free_and_that_of_another_machine_lapses(store):
    record = {
        "token": "a",
        "mark": f"{'0' * 8}-1-1",
        "released": False,
        "keys": [TRIALS[0].key()],
        "step": 0,
        "steps": 1,
    }
    store.write("claims/a.json", json.dumps(record).encode())
    assert store.hold(TRIALS[:1]) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unseam.sweep.store.EXPIRY", -1.0)
        store.hold(TRIALS[:1], instead="a").finish()
    from unseam.locks import mark

    dead = mark().split("-")
    store.write("claims/b.json", json.dumps(record | {"mark": f"{dead[0]}-{2**22 + 1}-1"}).encode())
    store.hold(TRIALS[:1]).finish()


def test_rows_of_one_store_are_measured_alike(store):
    spec = sweep.read_spec({"axes": {"seed": [0, 1]}})
    store.settle(sweep.read_spec({"score": {"points": 8}}))  # of which nothing was measured
    store.settle(spec)
    store.append(rows(0))
    store.settle(sweep.read_spec({"axes": {"beta": [0, 1]}, "questions": ["Why?"]}))
    assert sweep.open(store.address).questions == [("Why?", "")] or store.local is None
    with pytest.raises(ValueError, match="measured with score.points = 500, got 9; use the same"):
        store.settle(sweep.read_spec({"score": {"points": 9}}))


def test_a_store_that_is_none_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="a sweep writes it"):
        sweep.open(tmp_path / "absent")
    (tmp_path / "store.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        sweep.open(tmp_path)
    (tmp_path / "store.json").write_text(json.dumps({"format": 99, "score": {}}))
    with pytest.raises(ValueError, match="has format 99"):
        sweep.open(tmp_path)


def test_a_full_disk_leaves_no_part(tmp_path, monkeypatch):
    store = Store(tmp_path)

    def full(path, content):
        path.write_bytes(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unseam.sweep.store._write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        store.append(rows(0))
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Store(tmp_path).table().empty


def hostile_part(store, table):
    """A part under its digest, as whoever writes to a store can make one."""
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"unseam.sweep": "1"}), sink)
    name = hashlib.sha256(sink.getvalue()).hexdigest()[:32]
    store.write(f"parts/{name}-9.parquet", sink.getvalue())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"key": [["a"]]}), "must hold plain columns, got nested ones"),
        (pa.table({"key": [1]}), "must have a column 'key' of text"),
        (pa.table({"score": [0.5]}), "must have a column 'key' of text"),
    ],
)
def test_parts_of_other_kinds_are_refused(table, message, tmp_path):
    store = Store(tmp_path)
    hostile_part(store, table)
    with pytest.raises(ValueError, match=message):
        store.table()


def test_a_part_that_unpacks_to_more_than_memory_is_refused(tmp_path, monkeypatch):
    store = Store(tmp_path)
    hostile_part(store, pa.table({"key": ["a" * 100] * 50_000}))
    monkeypatch.setattr("unseam.geometry.memory.free_memory", lambda device: 1 << 20)
    with pytest.raises(ValueError, match="needs 0.0 GB of memory"):
        store.table()


def test_pipes_and_deep_records_in_a_store_neither_hang_nor_surprise(tmp_path):
    store = Store(tmp_path)
    (tmp_path / "claims").mkdir()
    for name, text in (("deep", "[" * 10**5), ("list", "[]"), ("mark", '{"keys": ["a"], "token": "a", "mark": 7, '
                       '"released": false, "step": 1, "steps": 1}')):  # fmt: skip
        (tmp_path / f"claims/{name}.json").write_text(text)
    assert store.claims() == []
    (tmp_path / "store.json").write_text("[" * 10**5)
    with pytest.raises(ValueError, match="store.json is damaged"):
        store.settings()
    (tmp_path / "parts").mkdir()
    os.mkfifo(tmp_path / "parts" / f"{'a' * 32}-9.parquet")
    with pytest.raises(ValueError, match="must be a regular file, got a pipe"):
        store.keys()


def test_rows_of_a_store_import_no_module_that_they_name(tmp_path, monkeypatch):
    (tmp_path / "hostile_rows.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    row = trial_row(Trial()) | {"objective": "hostile_rows:X"}
    Store(tmp_path / "s").append([row])
    with pytest.raises(ValueError, match="'hostile_rows:X' is code that is not imported yet"):
        _ = sweep.open(tmp_path / "s").trials
