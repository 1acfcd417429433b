"""Committed trainings are found under the names that the code gives them."""

import json
from pathlib import Path

import pytest

from unseam.papers.trainings import training_name
from unseam.trial import Trial

FILES = sorted((Path(__file__).parents[2] / "results").glob("*/trainings/*.json"))


def test_there_are_some():
    assert len(FILES) > 90


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_training_is_found_under_its_name(file):
    record = json.loads(file.read_text())
    grid = record["trials"]
    members = [
        {name: value["each"][member] if is_varied(value) else value for name, value in grid.items()}
        for member in range(grid.pop("members"))
    ]
    trials = [Trial(**fields) for fields in members]
    assert training_name(trials, record["measured"]) == file.stem


def is_varied(value):
    return isinstance(value, dict) and value.keys() == {"each"}
