"""Every artefact at smoke scale: runs, draws, and survives the way to disk and back."""

import json

import pandas as pd
import pytest
from matplotlib.figure import Figure

from unseam.papers import SCALES, artefacts, committed, load_result, reproduce, results_folder, save_result
from unseam.papers.artefact import Finding, Outcome, Result, verdict

ARTEFACTS = artefacts()
each = pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=ARTEFACTS.keys())


@each
def test_smoke(artefact, tmp_path):
    result = reproduce(artefact, "smoke", device="cpu", folder=tmp_path / "work")
    assert result.outcome.findings
    assert isinstance(artefact.draw(result.outcome.tables), Figure)
    path = save_result(result, tmp_path)
    again = load_result(path)
    assert again.verdict == result.verdict
    assert [finding.quantity for finding in again.outcome.findings] == [
        finding.quantity for finding in result.outcome.findings
    ]
    assert isinstance(artefact.draw(again.outcome.tables), Figure), "the figure needs more than the tables on disk"
    assert committed(artefact, tmp_path).scale == "smoke"


@each
def test_says_what_it_is(artefact):
    assert set(artefact.presets) <= set(SCALES)
    assert "smoke" in artefact.presets
    for text in (artefact.title, artefact.claim, artefact.criterion):
        assert text
    assert all(text.endswith(".") for text in (artefact.claim, artefact.criterion))


@each
def test_committed_result_belongs_to_the_artefact_as_it_is(artefact):
    """A result whose settings are not those of a preset any more is stale."""
    result = committed(artefact, results_folder())
    if result is None:
        pytest.skip("no committed result")
    import dataclasses

    settings = json.loads(json.dumps(dataclasses.asdict(artefact.presets[result.scale])))
    assert json.loads(json.dumps(dict(result.settings))) == settings
    assert isinstance(artefact.draw(result.outcome.tables), Figure)


def finding(said):
    return Finding("", "", None, None, None, said)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (["reproduced", "reproduced"], "reproduced"),
        (["reproduced", "not reproduced"], "partly"),
        (["not reproduced"], "not reproduced"),
        (["cannot be run here", "reproduced"], "partly"),
        (["cannot be run here"], "cannot be run here"),
        ([], "cannot be run here"),
    ],
)
def test_verdict(said, expected):
    assert verdict(tuple(map(finding, said))) == expected


def test_what_a_result_cost_counts_trainings_that_were_ready():
    trainings = pd.DataFrame({"seconds": [40.0, 2.0], "hardware": ["GPU", "GPU"]})
    about = {"hardware": {"cores": 2}}
    found = [
        Result("a.b", "full", {}, Outcome((), tables), about, 3.0)
        for tables in ({}, {"trainings": trainings})
    ]
    assert [result.spent for result in found] == [(3.0, "2 cores"), (42.0, "GPU")]
    assert Result("a.b", "full", {}, found[1].outcome, about, 60.0).spent == (60.0, "2 cores")


def test_a_scale_that_an_artefact_lacks():
    artefact = ARTEFACTS["sikka2019.figure1"]
    with pytest.raises(ValueError, match="sikka2019.figure1 has the scales smoke, laptop, full, got 'huge'"):
        reproduce(artefact, "huge")


@pytest.mark.parametrize("text", ["{}", '{"findings": [{"colour": 1}], "tables": []}'])
def test_a_damaged_result(tmp_path, text):
    path = tmp_path / "figure1.smoke.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is no result of an artefact"):
        load_result(path)
