"""Tables of trainings on disk: found again by what they depend on, under names that do not change."""

import json
from collections import namedtuple
from typing import NamedTuple

import pandas as pd
import pytest

from unseam.papers import results_folder
from unseam.papers.kept import digest, kept
from unseam.papers.rolinek2019.runs import _digest
from unseam.papers.rolinek2019.setups import LINEAR, SPRITES


class Tables(NamedTuple):
    members: pd.DataFrame
    trainings: pd.DataFrame


def made():
    return Tables(pd.DataFrame({"a": [1 / 3, 2.5]}), pd.DataFrame({"hardware": ["a processor"]}))


FILES = ["linear-1.json", "linear-1.members.csv", "linear-1.trainings.csv"]


def test_what_was_made_is_found_again(tmp_path):
    first = kept(tmp_path / "deep", "linear-1", Tables, made)
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == FILES
    again = kept(tmp_path / "deep", "linear-1", Tables, lambda: pytest.fail("made again"))
    for one, other in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_a_missing_table_is_named_and_nothing_is_made_again(tmp_path):
    kept(tmp_path, "linear-1", Tables, made)
    (tmp_path / "linear-1.trainings.csv").unlink()
    with pytest.raises(
        ValueError, match=r"linear-1.trainings.csv is missing; bring it back, or delete linear-1\.\* "
    ):
        kept(tmp_path, "linear-1", Tables, lambda: pytest.fail("made again"))


@pytest.mark.parametrize(
    "damage",
    [b"a\n0.333333\n2", b"", b"a\n0.333333\n1,2,3\n", b"\xff\xfe\n", b"a\n0.333333\n", b"b\n0.333333\n2.5\n"],
)
def test_a_damaged_table_is_named(tmp_path, damage):
    """Cut in a line or between two, emptied, not text, or of other columns."""
    kept(tmp_path, "linear-1", Tables, made)
    (tmp_path / "linear-1.members.csv").write_bytes(damage)
    with pytest.raises(ValueError, match=r"linear-1.members.csv is damaged; bring it back"):
        kept(tmp_path, "linear-1", Tables, made)


def test_damaged_checksums_are_named(tmp_path):
    kept(tmp_path, "linear-1", Tables, made)
    (tmp_path / "linear-1.json").write_text('{"linear-1.members')
    with pytest.raises(ValueError, match=r"linear-1.json is damaged; bring it back"):
        kept(tmp_path, "linear-1", Tables, made)


def test_lines_may_end_as_a_checkout_has_them(tmp_path):
    kept(tmp_path, "linear-1", Tables, made)
    table = tmp_path / "linear-1.members.csv"
    table.write_bytes(table.read_bytes().replace(b"\n", b"\r\n"))
    assert kept(tmp_path, "linear-1", Tables, made).members["a"].tolist() == [0.333333, 2.5]


@pytest.mark.parametrize("paper", ["bhowal2024", "rolinek2019"])
def test_committed_trainings_are_whole(paper):
    folder = results_folder() / paper / "trainings"
    tables, names = {path.name for path in folder.glob("*.csv")}, []
    for sums in folder.glob("*.json"):
        names = list(json.loads(sums.read_text()))
        kind = namedtuple("Kept", [name.split(".")[1] for name in names])
        kept(folder, sums.stem, kind, lambda: pytest.fail("made again"))
        tables -= set(names)
    assert names and not tables


def test_without_a_folder_nothing_is_kept():
    assert kept(None, "linear-1", Tables, made).members["a"].tolist() == [1 / 3, 2.5]


def test_digests_tell_settings_apart_and_do_not_change():
    assert digest([{"a": 1, "b": 2}]) == digest([{"b": 2, "a": 1}])
    assert digest([{"a": 1}]) != digest([{"a": 2}])
    assert _digest(LINEAR, "AE") == "c90657fa6c46"
    assert _digest(SPRITES, "β-VAE") == "0f1ca0a0e54f"
