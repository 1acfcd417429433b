"""Scores of the same codes by the library disent and by scikit-learn's building blocks."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import mutual_info_score
from sklearn.svm import LinearSVC

from unseam.metrics import (
    dci,
    factor_vae_score,
    mean_pairwise_information,
    mig,
    sap,
    total_correlation,
    wasserstein_correlation,
)
from unseam.metrics._inputs import check_inputs
from unseam.metrics._splits import halves
from unseam.metrics.dci import DciSettings
from unseam.metrics.factor_vae_score import FactorVaeSettings

ROOT = Path(__file__).resolve().parents[2]
PEERS = runpy.run_path(str(ROOT / "benchmarks" / "peers.py"))
KEPT = json.loads((Path(__file__).parent / "disent.json").read_text())
DRAWS = KEPT["draws"]
SIZES = PEERS["SIZES"]


@pytest.fixture(scope="module")
def codes():
    return torch.from_numpy(PEERS["grid_codes"]())


@pytest.fixture(scope="module")
def factors():
    return torch.from_numpy(PEERS["grid_factors"]())


def rows(seed, count, sizes=SIZES):
    """Rows of the grid that disent drew."""
    return torch.from_numpy(PEERS["rows"](seed, count, sizes))


def arranged(drawn, train, seed, codes, factors):
    """Disent's points in such an order that ours trains on those that it trained on, and ours' split."""
    split = halves(train, len(drawn) - train, check_inputs(codes[drawn], factors[drawn]), seeded(seed))
    order = torch.empty_like(drawn)
    order[split.train], order[split.test] = drawn[:train], drawn[train:]
    return codes[order], factors[order], split


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def constant(codes):
    """The dead code without its noise."""
    return torch.cat([codes[:, :-1], torch.zeros_like(codes[:, :1])], 1)


def test_both_sides_speak_of_the_same_codes(codes):
    assert KEPT["codes"]["sizes"] == list(SIZES)
    assert PEERS["checksum"](codes.numpy()) == pytest.approx(KEPT["codes"]["checksum"], rel=1e-12)


@pytest.mark.parametrize("draw", DRAWS["mig"], ids=lambda draw: f"seed {draw['seed']}")
def test_mig_on_the_same_points(draw, codes, factors):
    index = rows(draw["seed"], 10_000)
    found = mig(codes[index], factors[index])
    assert found.settings.points == 10_000
    assert found.score.item() == pytest.approx(draw["discrete_score"], abs=1e-12)


@pytest.mark.parametrize("case", ["unsupervised", "unsupervised, constant code"])
def test_dependence_of_codes_on_the_same_points(case, codes):
    for draw in DRAWS[case][:3]:
        points = codes[rows(draw["seed"], 10_000)]
        points = points if case == "unsupervised" else constant(points)
        distance = wasserstein_correlation(points)
        assert mean_pairwise_information(points).score.item() == pytest.approx(draw["mi_score"], abs=1e-12)
        assert distance.score.item() == pytest.approx(draw["gauss_wasser_corr"], abs=1e-12)
        assert distance.normalised.item() == pytest.approx(draw["gauss_wasser_corr_norm"], abs=1e-12)


def test_total_correlation_on_the_same_points_and_without_a_constant_code_where_disent_has_none(codes):
    for draw, lost in zip(DRAWS["unsupervised"][:3], DRAWS["unsupervised, constant code"][:3], strict=True):
        points = codes[rows(draw["seed"], 10_000)]
        assert total_correlation(points).score.item() == pytest.approx(draw["gauss_total_corr"], abs=1e-12)
        assert lost["gauss_total_corr"] is None
        alive = total_correlation(points[:, :-1]).score
        torch.testing.assert_close(total_correlation(constant(points)).score, alive)


@pytest.mark.parametrize("draw", DRAWS["sap"][:4], ids=lambda draw: f"seed {draw['seed']}")
def test_sap_on_the_same_points(draw, codes, factors):
    """Only where LinearSVC stops makes a difference: a few of 5 000 test points, in a gap's mean less than 1e-3."""
    points, values, _ = arranged(rows(draw["seed"], 15_000), 10_000, draw["seed"], codes, factors)
    found = sap(points, values, generator=seeded(draw["seed"]))
    assert abs(found.score.item() - draw["score"]) < 1e-3


def test_sap_over_draws(codes, factors):
    ours = [sap(codes, factors, generator=seeded(seed)).score.item() for seed in range(8)]
    assert_same_mean(ours, [draw["score"] for draw in DRAWS["sap"]])


def test_predictability_is_that_of_a_linear_svm_run_to_its_end(codes, factors):
    points, values, split = arranged(rows(0, 15_000), 10_000, 0, codes, factors)
    found = sap(points, values, generator=seeded(0)).predictability[:, :2]
    for code, factor in np.ndindex(*found.shape):
        x, y = points[:, code : code + 1].numpy(), values[:, factor].numpy()
        machine = LinearSVC(C=0.01, class_weight="balanced", tol=1e-9, max_iter=10_000)
        machine.fit(x[split.train], y[split.train])
        assert found[code, factor].item() == machine.score(x[split.test], y[split.test])


def test_information_is_scikit_learns(codes, factors):
    index = rows(0, 10_000)
    found = mig(codes[index], factors[index]).information
    for code, factor in np.ndindex(*found.shape):
        x, y = codes[index, code].numpy(), factors[index, factor].numpy()
        bins = np.digitize(x, np.histogram_bin_edges(x, 20)[1:-1])
        assert found[code, factor].item() == pytest.approx(mutual_info_score(y, bins), abs=1e-12)


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("factor_vae", FactorVaeSettings(prune=0.0)),
        ("factor_vae, without the dead code", FactorVaeSettings()),
    ],
)
@pytest.mark.slow
def test_factor_vae_score_over_draws(case, settings, codes, factors):
    """Without pruning a dead code may win votes; disent never prunes, so it gets the codes without."""
    found = [factor_vae_score(codes, factors, preset=settings, generator=seeded(seed)) for seed in range(6)]
    assert_same_mean([one.score.item() for one in found], [draw["eval_accuracy"] for draw in DRAWS[case]])
    assert_same_mean(
        [one.train_score.item() for one in found], [draw["train_accuracy"] for draw in DRAWS[case]]
    )


def test_constant_code_has_no_vote_where_disent_gives_it_all(codes, factors):
    score = factor_vae_score(codes[:, :-1], factors).score
    assert factor_vae_score(constant(codes), factors).score == score
    lost = [draw["eval_accuracy"] for draw in DRAWS["factor_vae, constant code"]]
    right = round(5_000 * sum(lost))
    assert stats.binomtest(right, 5_000 * len(lost), 1 / len(SIZES)).pvalue > 0.001


@pytest.mark.parametrize("splits", ["exact", "binned"])
def test_dci_on_the_same_points(splits, codes, factors):
    """Which of equally good splits is taken, or which bins, makes less of a difference than other points."""
    draw = DRAWS["dci, coarse grid"][0]
    few, values = (torch.from_numpy(PEERS["coarse"](table.numpy())) for table in (codes, factors))
    drawn = rows(draw["seed"], 1_000, PEERS["COARSE"])
    points, values, _ = arranged(drawn, 500, draw["seed"], few, values)
    settings = DciSettings(train=500, test=500, splits=splits)
    found = dci(points, values, preset=settings, generator=seeded(draw["seed"]))
    for ours, interval, theirs in (
        (found.score, found.interval, draw["disentanglement"]),
        (found.completeness, found.completeness_interval, draw["completeness"]),
        (found.informativeness, found.informativeness_interval, draw["informativeness_test"]),
    ):
        assert abs(ours.item() - theirs) < interval.error


def assert_same_mean(ours, theirs):
    """Welch's test at the level 0.001."""
    assert stats.ttest_ind(ours, theirs, equal_var=False).pvalue > 0.001
