"""Tables of trainings on disk: found again by what they depend on, under names that do not change."""

from typing import NamedTuple

import pandas as pd
import pytest

from unseam.papers.kept import digest, kept
from unseam.papers.rolinek2019.runs import _digest
from unseam.papers.rolinek2019.setups import LINEAR, SPRITES


class Tables(NamedTuple):
    members: pd.DataFrame
    trainings: pd.DataFrame


def made():
    return Tables(pd.DataFrame({"a": [1.0, 2.5]}), pd.DataFrame({"hardware": ["a processor"]}))


def test_what_was_made_is_found_again(tmp_path):
    first = kept(tmp_path / "deep", "linear-1", Tables, made)
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == [
        "linear-1.members.csv",
        "linear-1.trainings.csv",
    ]
    again = kept(tmp_path / "deep", "linear-1", Tables, lambda: pytest.fail("made again"))
    for one, other in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_half_of_it_is_not_enough(tmp_path):
    kept(tmp_path, "linear-1", Tables, made)
    (tmp_path / "linear-1.trainings.csv").unlink()
    with pytest.raises(pytest.fail.Exception):
        kept(tmp_path, "linear-1", Tables, lambda: pytest.fail("made again"))


@pytest.mark.parametrize("damage", [b"a\n1.0\n2", b"", b"a\n1.0\n1,2,3\n", b"\xff\xfe\n"])
def test_a_damaged_table_is_named(tmp_path, damage):
    kept(tmp_path, "linear-1", Tables, made)
    (tmp_path / "linear-1.members.csv").write_bytes(damage)
    with pytest.raises(ValueError, match=r"linear-1.members.csv is damaged; delete it"):
        kept(tmp_path, "linear-1", Tables, made)


def test_without_a_folder_nothing_is_kept():
    assert kept(None, "linear-1", Tables, made).members["a"].tolist() == [1.0, 2.5]


def test_digests_tell_settings_apart_and_do_not_change():
    assert digest([{"a": 1, "b": 2}]) == digest([{"b": 2, "a": 1}])
    assert digest([{"a": 1}]) != digest([{"a": 2}])
    assert _digest(LINEAR, "AE") == "c90657fa6c46"
    assert _digest(SPRITES, "β-VAE") == "0f1ca0a0e54f"
