"""Every artefact at smoke scale: runs, plots, is judged, and survives the way to disk and back."""

import dataclasses
import inspect
import json
import zlib

import pandas as pd
import pytest
from matplotlib.figure import Figure

from unseam.data import MissingFileError
from unseam.papers import (
    OUTCOMES,
    SCALES,
    Finding,
    Result,
    Tally,
    artefacts,
    committed,
    load_result,
    reproduce,
    results_folder,
    save_result,
)
from unseam.papers.artefact import Artefact, missing_table
from unseam.papers.claims import Bounds, Correlations, Identities, Orders
from unseam.trial import Trial

ARTEFACTS = artefacts()
each = pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=ARTEFACTS.keys())


SECONDS = {
    "allen2024.collapse",
    "allen2024.diagonal_hessian",
    "allen2024.piecewise_linear",
    "allen2024.plateaus",
    "allen2024.traversals",
    "bhowal2024.audit",
    "bhowal2024.beyond",
    "bhowal2024.figure4",
    "bhowal2024.lemma5",
    "bhowal2024.losses",
    "bhowal2024.table2",
    "bhowal2024.table4",
    "bhowal2024.table5",
    "bhowal2024.table6",
    "bhowal2024.theorem1",
    "bhowal2024.theorem1c",
    "bhowal2024.theorem2",
    "rolinek2019.along",
    "rolinek2019.maps",
    "rolinek2019.pca",
    "rolinek2019.table1_nonlinear",
    "rolinek2019.table2_nonlinear",
    "rolinek2019.theorem2",
    "sikka2019.figure1",
    "sikka2019.figure3",
}
"""Artefacts that take several seconds at the smallest scale."""


def _first_of_its_measurement(artefact):
    measure = inspect.unwrap(getattr(artefact.measure, "func", artefact.measure))
    return artefact is next(
        other
        for other in ARTEFACTS.values()
        if inspect.unwrap(getattr(other.measure, "func", other.measure)).__module__ == measure.__module__
    )


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Trainings that artefacts of a paper share."""
    return tmp_path_factory.mktemp("trainings")


@pytest.mark.parametrize(
    "artefact",
    [
        pytest.param(
            artefact,
            id=key,
            marks=() if _first_of_its_measurement(artefact) and key not in SECONDS else pytest.mark.slow,
        )
        for key, artefact in ARTEFACTS.items()
    ],
)
def test_smoke(artefact, tmp_path, shared):
    result = reproduce(artefact, "smoke", device="cpu", folder=tmp_path / "work", shared=shared)
    assert result.findings
    assert {finding.outcome for finding in result.findings} <= set(OUTCOMES)
    path = save_result(result, tmp_path)
    again = load_result(path, artefact)
    assert repr(again.findings) == repr(result.findings), "findings need more than the tables on disk"
    assert isinstance(artefact.plot(again.tables), Figure)
    assert committed(artefact, tmp_path).scale == "smoke"


@each
def test_says_what_it_is(artefact):
    assert set(artefact.presets) <= set(SCALES)
    assert "smoke" in artefact.presets
    assert artefact.title and artefact.claims
    for claim in artefact.claims:
        assert claim.says and claim.rule.endswith(".")


@each
def test_committed_results_belong_to_the_artefact_as_it_is(artefact):
    """A result whose settings are not those of a preset any more is stale."""
    paths = [
        results_folder() / artefact.paper / f"{artefact.name}.{scale}.json" for scale in artefact.presets
    ]
    held = [path for path in paths if path.exists()]
    if not held:
        pytest.skip("no committed result")
    for path in held:
        result = load_result(path, artefact)
        settings = json.loads(json.dumps(dataclasses.asdict(artefact.presets[result.scale])))
        assert changed(json.loads(json.dumps(dict(result.settings)))) == changed(settings)
        assert result.findings
        assert not result.about["revision"].endswith("-dirty")


def changed(settings):
    """Settings in which trials are without fields at their defaults, as a new field makes no result stale."""
    if isinstance(settings, list):
        return [changed(part) for part in settings]
    if not isinstance(settings, dict):
        return settings
    default = json.loads(json.dumps(dataclasses.asdict(Trial()))) if "optimiser" in settings else {}
    return {
        name: changed(value)
        for name, value in settings.items()
        if name not in default or value != default[name]
    }


@each
def test_a_claim_of_measured_numbers_has_numbers(artefact):
    """Agreement and difference rest on an interval, and say over how many runs."""
    result = committed(artefact, results_folder())
    if result is None:
        pytest.skip("no committed result")
    present = {name: table for name, table in result.tables.items() if name != "missing"}
    if not present:
        pytest.skip("its data files are not here")
    for claim in artefact.claims:
        if isinstance(claim, Bounds | Orders | Correlations):
            for finding in claim.judge(present):
                if finding.outcome in ("agrees", "differs"):
                    assert finding.n == 1 or (finding.n and finding.lower is not None), (
                        "exact, or with an interval"
                    )


def finding(outcome):
    return Finding("", "", None, None, None, outcome)


@pytest.mark.parametrize(
    ("outcomes", "expected", "words"),
    [
        (["holds", "agrees"], (2, 0, 0, 2, 0), "2 of 2"),
        (["holds", "differs", "cannot tell"], (1, 1, 1, 3, 0), "1 of 3, 1 differs, 1 cannot be told"),
        (["not run"], (0, 0, 0, 0, 1), "not run"),
        (["false as printed", "differs"], (0, 2, 0, 2, 0), "0 of 2, 2 differ"),
        ([], (0, 0, 0, 0, 0), "no claims of the paper"),
    ],
)
def test_tally(outcomes, expected, words):
    found = Tally.of(map(finding, outcomes))
    assert found == expected and str(found) == words


@pytest.mark.parametrize(
    ("claims", "ours"),
    [
        ((Identities("exact", lambda tables: ()), Bounds("measured", lambda tables: (), ours=True)), True),
        ((Identities("exact", lambda tables: ()), Bounds("measured", lambda tables: ())), False),
    ],
)
def test_a_missing_data_set_is_missed_by_the_claims_that_need_data(claims, ours):
    """Exact statements of the paper are judged without it."""
    artefact = Artefact("a.b", "nothing", claims, {}, lambda settings, place: {}, lambda tables: Figure())
    missing = missing_table({"MPI3D": MissingFileError("not in /here", "fetch it first")})
    (found,) = artefact.judge(missing)
    assert (found.outcome, found.ours) == ("not run", ours)


def result(tables, seconds, about):
    nothing = Artefact("a.b", "nothing", (), {}, lambda settings, place: {}, lambda tables: Figure())
    return Result(nothing, "full", {}, tables, about, seconds)


def test_what_a_result_cost_counts_stored_trainings():
    trainings = pd.DataFrame({"seconds": [40.0, 2.0], "hardware": ["GPU", "GPU"]})
    about = {"hardware": {"cores": 2}, "revision": "abc"}
    assert result({}, 3.0, about).spent == (3.0, "2 cores")
    assert result({"trainings": trainings}, 3.0, about).spent == (42.0, "GPU")
    assert result({"trainings": trainings}, 60.0, about).spent == (60.0, "2 cores")


def test_a_training_without_a_revision_is_of_an_unknown_one():
    trainings = pd.DataFrame({"seconds": [1.0], "hardware": ["GPU"]})
    about = {"revision": "abc"}
    assert result({"trainings": trainings}, 1.0, about).revisions == ("abc", "unknown")
    assert result({"trainings": trainings.assign(revision="def")}, 1.0, about).revisions == ("abc", "def")


def test_a_data_set_that_is_missing_was_not_run():
    missing = pd.DataFrame({"world": ["MPI3D"], "need": ["fetch it"]})
    (found,) = result({"missing": missing}, 1.0, {}).findings
    assert (found.quantity, found.outcome, found.note) == ("MPI3D", "not run", "fetch it")


def test_a_scale_that_an_artefact_lacks():
    artefact = ARTEFACTS["sikka2019.figure1"]
    with pytest.raises(ValueError, match="sikka2019.figure1 has the scales smoke, laptop, full, got 'huge'"):
        reproduce(artefact, "huge")


@pytest.mark.parametrize("text", ["{}", '{"scale": "full", "settings": {}, "tables": {}}'])
def test_a_damaged_result(tmp_path, text):
    path = tmp_path / "figure1.smoke.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not the result of an artefact"):
        load_result(path, ARTEFACTS["sikka2019.figure1"])


def test_committed_tables_are_used_and_small():
    """What the wheel ships: every table named by a record, at most 1.2 MB compressed."""
    papers = {key.partition(".")[0] for key in ARTEFACTS}
    records = sorted(path for paper in papers for path in results_folder().glob(f"{paper}/*.json"))
    named = {
        path.parent / "tables" / file
        for path in records
        for file in json.loads(path.read_text())["tables"].values()
    }
    held = set(results_folder().glob("*/tables/*.csv"))
    assert held == named
    assert sum(len(zlib.compress(path.read_bytes())) for path in (*records, *held)) <= 1_200_000
