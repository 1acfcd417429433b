"""Correlations within settings and pooled, selection without labels, fronts, and the page that shows them."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unseam import sweep
from unseam.cli import app
from unseam.report import sweep_sections
from unseam.sweep import Question
from unseam.sweep.analysis import chain, contrasts, correlations, front, score_columns, selections
from unseam.sweep.store import Store, trial_row
from unseam.trial import Trial


def simpson(seeds=12):
    """Within β, orthogonality helps; over β, it seems to harm."""
    generator = np.random.default_rng(0)
    rows = []
    for beta in (1.0, 2.0, 4.0, 8.0, 16.0):
        for seed in range(seeds):
            chance = generator.normal()
            rows.append(
                {
                    "beta": beta,
                    "seed": seed,
                    "cosine": beta + chance,
                    "mig": beta - chance + generator.normal(),
                }
            )
    return pd.DataFrame(rows)


def test_correlations_within_settings_are_not_those_over_all():
    (found,) = correlations(simpson())
    assert found.within < -0.4 < 0.5 < found.pooled
    assert found.within_lower < found.within < found.within_upper < 0
    assert (found.models, found.groups) == (60, 5)


def test_within_correlation_of_one_setting_is_scipys():
    from scipy.stats import spearmanr

    table = simpson(30)[lambda frame: frame["beta"] == 4.0]
    expected = spearmanr(table["cosine"], table["mig"]).statistic
    (found,) = correlations(table)
    assert [found.within, found.pooled] == pytest.approx([expected, expected])


def test_models_that_are_compared_can_agree_in_a_measure_too():
    """Both follow the number of active latents, and nothing else."""
    generator = np.random.default_rng(0)
    active = np.repeat([1, 2, 3], 20)
    table = pd.DataFrame(
        {"seed": np.arange(60), "active": active, "precision_error": generator.normal(size=60)}
    )
    table["dto_active"], table["mig"] = active + 0.1 * generator.normal(size=(2, 60))
    plain, equal = (
        next(one for one in correlations(table, equal=names) if one.measure == "dto_active")
        for names in ((), ("active",))
    )
    assert plain.within > 0.8
    assert equal.within_lower < 0 < equal.within_upper
    assert (plain.groups, equal.groups) == (1, 3)
    table["hadamard_gap"] = active + 0.1 * generator.normal(size=60)
    section = next(one for one in sweep_sections(table) if one.title == "Does geometry predict scores?")
    row = next(row for row in section.numbers if row["measure"] == "DtO")
    assert row["within settings"].startswith(f"{plain.within:.2f} [")
    assert row["… and equally many active latents"].startswith(f"{equal.within:.2f} [".replace("-", "−"))
    for names, verdict in (((), "holds"), (("active",), "open")):
        (link,) = (one for one in chain(table, equal=names) if one.name == "Jacobian to density")
        assert link.verdict == verdict


def test_intervals_cover_nothing_as_often_as_they_should():
    generator = np.random.default_rng(1)
    outside = 0
    for number in range(100):
        table = pd.DataFrame({"beta": np.repeat(np.arange(6.0), 10), "seed": np.tile(np.arange(10), 6)})
        table["cosine"], table["mig"] = generator.normal(size=(2, 60))
        (found,) = correlations(table, seed=number)
        outside += not found.within_lower <= 0 <= found.within_upper
    assert outside <= 12


def test_too_few_models_have_no_correlation():
    (found,) = correlations(simpson(2))
    assert np.isnan(found.within)
    assert np.isfinite(found.pooled)
    assert selections(simpson(2)) == []


def test_selection_by_a_good_measure_gains_and_by_none_does_not():
    table = simpson()
    table["udr"] = np.random.default_rng(2).normal(size=len(table))
    by_cosine, by_udr = selections(table)
    assert 0 < by_cosine.lower < by_cosine.gain < by_cosine.best - by_cosine.random
    assert by_udr.lower < 0 < by_udr.upper
    assert by_cosine.random == pytest.approx(table["mig"].mean())
    assert by_cosine.fraction == pytest.approx(by_cosine.gain / (by_cosine.best - by_cosine.random))
    assert 0 < by_cosine.fraction_lower < by_cosine.fraction < by_cosine.fraction_upper
    assert np.isnan(selections(simpson(4)[lambda frame: frame["beta"] == 1.0])[0].lower)


def test_gains_over_few_settings_have_wide_intervals():
    """A bootstrap of two settings would only give the gains of the two."""
    from scipy.stats import ttest_1samp

    table = simpson(6)[lambda frame: frame["beta"] < 3]
    gains = []
    for _, rows in table.groupby("beta"):
        gains.append(rows.loc[rows["cosine"].idxmin(), "mig"] - rows["mig"].mean())
    (found,) = selections(table)
    expected = ttest_1samp(gains, 0).confidence_interval()
    assert (found.lower, found.upper) == pytest.approx((expected.low, expected.high))
    assert found.upper - found.lower > 5 * abs(gains[0] - gains[1])


def test_terms_of_objectives_and_metrics_without_factors_are_no_scores():
    columns = [
        "mig",
        "dci_completeness",
        "total_correlation",
        "udr",
        "udr_seeds",
        "mean_pairwise_information",
    ]
    assert score_columns(pd.DataFrame([dict.fromkeys(columns, 0.5)])) == ["mig", "dci_completeness"]


def linked(seeds=30):
    """Every link holds for one posterior; for the other the Jacobian says nothing about the density."""
    generator = np.random.default_rng(0)
    rows = []
    for posterior in ("diagonal", "full"):
        for seed in range(seeds):
            error = generator.normal()
            dto = error + 0.3 * generator.normal()
            density = (dto if posterior == "diagonal" else 0.0) + 0.3 * generator.normal()
            mig = -density + 0.3 * generator.normal()
            rows.append({"posterior": posterior, "seed": seed, "precision_error": error, "dto_active": dto,
                         "coupling_active": density, "hadamard_gap": 0.0, "mig": mig})  # fmt: skip
    return pd.DataFrame(rows)


def test_the_link_that_breaks_is_found_for_the_kind_of_model_that_breaks_it():
    found = {(one.name, one.kind): one for one in chain(linked())}
    open_ones = [key for key, one in found.items() if one.verdict != "holds"]
    assert open_ones == [("Jacobian to density", "full")]
    assert found[open_ones[0]].verdict == "open"
    assert (found[open_ones[0]].effect, found["density to factors", "full"].models) == ("coupling_active", 30)
    assert {one.verdict for one in chain(linked().assign(mig=lambda t: -t["mig"]))} == {
        "holds",
        "open",
        "reversed",
    }
    assert {one.verdict for one in chain(linked(2))} == {"undefined"}


def test_a_better_predictor_is_told_from_a_worse_one():
    table = simpson()
    generator = np.random.default_rng(3)
    table["replication"] = table["mig"] + 0.5 * generator.normal(size=len(table))
    table["udr"], table["dto_active"] = generator.normal(size=len(table)), -table["replication"]
    udr, dto = contrasts(table)
    assert 0 < udr.lower < udr.difference < udr.upper
    assert (dto.difference, dto.lower, dto.upper) == pytest.approx((0, 0, 0))


def test_questions_are_answered_with_intervals():
    asked = ("prediction", "chain", "selection", "contrast", "coupling_active", "absent", "")
    first, *_ = sweep_sections(linked(), [Question(f"ask {name}", name) for name in asked])
    said = {one.split("\n")[0].removeprefix("ask "): one.split("\n")[1:] for _, one in first.said}
    assert said["prediction"][0].startswith("MIG: as expected: DtO −0.")
    assert ", coupling −0." in said["prediction"][0]
    turned = [Question("ask", "prediction")]
    (section, *_) = sweep_sections(linked().assign(mig=lambda table: -table["mig"]), turned)
    assert "opposite to what is expected: DtO 0." in section.said[0][1]
    assert "holds for diagonal (" in said["chain"][1] and "; open for full (" in said["chain"][1]
    assert said["selection"][0].startswith("DtO: gain in MIG ")
    assert said["coupling_active"][0].startswith("posterior diagonal: coupling ")
    assert (
        said["contrast"]
        == said["absent"]
        == ["Not answered: what it takes was not measured, or for too few models."]
    )
    assert said[""] == []


def test_the_front_holds_what_nothing_exceeds():
    values = np.array([[1, 1], [2, 0], [0, 2], [1, 1], [0.5, 1], [np.nan, 9]])
    assert front(values).tolist() == [True, True, True, True, False, False]


def test_correlations_do_not_exceed_one():
    rows = [{"seed": s, "beta": b, "cosine": s + b, "mig": -s - b} for b in (0.0, 1.0) for s in range(3)]
    (found,) = correlations(pd.DataFrame(rows))
    assert found.within == found.within_lower == -1.0


def test_no_model_is_left_out_of_the_charts():
    """More kinds of models than there are colours."""
    rows = [
        {"objective": f"kind {k}", "beta": beta, "seed": seed, "cosine": k + beta + seed, "elbo": -beta}
        for k in range(8)
        for beta in (1.0, 2.0)
        for seed in (0, 1)
    ]
    (section,) = [one for one in sweep_sections(pd.DataFrame(rows)) if one.title == "Along β"]
    drawn = [group.panels[0].markup for group in section.groups]
    legends = [markup for markup in drawn if "legend" in markup]
    charts = [drawn[drawn.index(key) + 1] for key in legends]
    assert [len(re.findall("kind .", one)) for one in legends] == [6, 2]
    for key, chart in zip(legends, charts, strict=True):
        colours = re.findall(r'<span class="(c\d)"><i></i>(kind \d)', key)
        assert len({colour for colour, _ in colours}) == len(colours)
        for colour, name in colours:
            assert len(re.findall(rf'class="curve {colour}"', chart)) == 1
            assert f"{name}, β 1" in chart


def test_seeds_without_a_measure_are_not_counted_as_measured():
    table = linked().assign(stopped=None)
    table.loc[table.index[0], ["coupling_active", "stopped"]] = [np.nan, 3.0]
    (section, *_) = sweep_sections(table, [Question("ask", "coupling_active")])
    first, second = section.said[0][1].split("\n")[1:3]
    whole = len(table) // 2
    assert first.endswith(f"], {whole - 1} of {whole} seeds") and second.endswith(f"], {whole} seeds")


def test_a_page_of_an_unfinished_sweep_says_so(tmp_path):
    store = Store(tmp_path)
    spec = sweep.read_spec({"axes": {"seed": [0, 1, 2]}})
    store.settle(spec)
    about = {"device": "cpu", "revision": "x", "version_unseam": "0", "version_torch": "0", "elbo": 1.0}
    store.append([{**trial_row(spec.trials[0]), **about, "stopped": 4}])
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.exception
    found = json.loads(result.stdout)
    assert (found["models"], found["diverged"], found["missing"]) == (1, 1, 2)
    page = (tmp_path / "report.html").read_text()
    assert "1 diverged and have no measures. At least 2 models of its specs are not trained yet" in page
    store.append([{**trial_row(trial), **about, "stopped": None} for trial in spec.trials[1:]])
    assert sweep.open(tmp_path).missing == 0


def test_a_page_of_a_store(tmp_path):
    store = Store(tmp_path)
    store.settle(sweep.read_spec({"questions": ["Does it <matter>?"], "axes": {"seed": [0]}}))
    table = simpson(4)
    more = {"stopped": None, "run": "runs/a", "member": 3, "device": "cpu", "reconstruction": 1.0, "revision": "x",
            "version_unseam": "0", "version_torch": "0"}  # fmt: skip
    rows = [
        {
            **trial_row(Trial(beta=row["beta"], seed=int(row["seed"]))),
            "cosine": row["cosine"],
            "mig": row["mig"],
            **more,
        }
        for row in table.to_dict("records")
    ]
    store.append(rows)
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.exception
    found = json.loads(result.stdout)
    assert found["models"] == 20
    assert [one["groups"] for one in found["correlations"]] == [5]
    assert (found["links"], found["contrasts"], len(found["selections"])) == ([], [], 1)
    page = (tmp_path / "report.html").read_text()
    assert "Does it &lt;matter&gt;?" in page
    assert page.count(f'data-copy="unseam explore {tmp_path}/runs/a --member 3"') == 20
    assert "Along β" in page
    assert "Weights were not stored" not in page
    (best,) = (section for section in sweep_sections(table) if section.title == "Best models")
    assert best.prose[-1].startswith("Weights were not stored")
    titles = [section.title for section in sweep_sections(store.table())]
    assert titles == ["Along β", "Does geometry predict scores?", "Choosing without labels", "Best models"]


def test_a_store_without_rows_has_no_page(tmp_path):
    Store(tmp_path).settle(sweep.read_spec([Trial()]))
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert "has no row yet" in str(result.exception)


def test_the_committed_specs_are_whole(root):
    counts = {path.stem: len(sweep.read_spec(path).trials) for path in (root / "docs/specs").glob("*.toml")}
    assert counts == {"convergence": 128, "first": 40, "orthogonality": 1010, "pilot": 8, "transfer": 60}
