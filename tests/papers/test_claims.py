"""Kinds of claims: outcomes that can fail, statistics against independent implementations, power."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from unseam.papers.claims import (
    Bound,
    Bounds,
    Cell,
    Correlation,
    Correlations,
    Curve,
    Identities,
    Identity,
    Order,
    Orders,
    Row,
    SignTest,
    Trends,
    Values,
    arrangements,
    equivalence,
    holm,
    mean_interval,
    median_interval,
    rank_correlation,
    shift,
)

DRAW = np.random.default_rng(0)


def outcome(kind, case, **options):
    (found,) = kind("says", lambda tables: [case], **options).judge({})
    return found.outcome


def normal(mean, sd, n, seed=0):
    return mean + sd * np.random.default_rng(seed).normal(size=n)


# Exact statements


@pytest.mark.parametrize(
    ("value", "expected"), [(1e-12, "holds"), (-0.5, "false as printed"), (math.nan, "cannot tell")]
)
def test_identities(value, expected):
    assert outcome(Identities, Identity("a", "0", value, 1e-9)) == expected


@pytest.mark.parametrize("expected", [0.0, 2.0])
def test_identities_hold_up_to_their_tolerance(expected):
    for away, said in (
        (0.25, "holds"),
        (-0.25, "holds"),
        (0.26, "false as printed"),
        (-0.26, "false as printed"),
    ):
        assert outcome(Identities, Identity("a", "", expected + away, 0.25, expected)) == said


def test_tolerances_are_shown():
    cases = [Identity("a", "0", 0.0, 1e-9, note="rounding"), Identity("b", "1", 1.0, 0.05, 1.0)]
    found = Identities("says", lambda tables: cases).judge({})
    assert [one.note for one in found] == ["tolerance 1e-09; rounding", "tolerance 0.05 around 1"]


def test_further_checks_are_marked():
    claim = Identities("says", lambda tables: [Identity("a", "0", 0.0, 1e-9)], ours=True)
    assert claim.judge({})[0].ours


# Bounds


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([0.1, 0.12, 0.11, 0.09], "agrees"),
        ([0.9, 0.92, 0.91, 0.89], "differs"),
        ([0.1, 0.9, 0.5, 0.45], "cannot tell"),
        ([0.1, 0.1], "cannot tell"),
    ],
)
def test_bounds_over_runs(runs, expected):
    assert outcome(Bounds, Bound("x", "below one half", runs, most=0.5)) == expected


@pytest.mark.parametrize(
    ("lower", "upper", "said"),
    [
        (0.25, 0.75, "agrees"),
        (0.24, 0.5, "cannot tell"),
        (0.5, 0.76, "cannot tell"),
        (0.1, 0.24, "differs"),
        (0.1, 0.25, "cannot tell"),
        (0.76, 0.9, "differs"),
        (0.75, 0.9, "cannot tell"),
        (0.1, 0.9, "cannot tell"),
    ],
)
def test_bounds_on_both_sides(lower, upper, said):
    case = Bound("x", "", least=0.25, most=0.75, estimate=(0.5, lower, upper), n=3)
    enough, few = Bounds("says", lambda tables: [case, replace(case, n=2)]).judge({})
    assert (enough.outcome, enough.lower, enough.upper) == (said, lower, upper)
    assert (few.outcome, few.lower, few.upper) == ("cannot tell", None, None)


def test_bounds_of_a_median_see_past_a_second_mode():
    runs = [0.98] * 24 + [0.1] * 6
    claim = Bound("x", "most", runs, least=0.9)
    assert outcome(Bounds, claim, statistic="median") == "agrees"
    assert outcome(Bounds, claim) == "cannot tell"


def test_shares_have_clopper_pearson_intervals():
    claim = Bounds("says", lambda tables: [Bound("x", "all", share=(95, 100), least=0.85)])
    (found,) = claim.judge({})
    reach = stats.binomtest(95, 100).proportion_ci()
    assert (found.lower, found.upper, found.n) == (reach.low, reach.high, 100)
    assert found.outcome == "agrees"


def test_shares_of_too_few_cases_say_how_many_are_needed():
    """Even 20 of 20 have a lower limit of 0.83; 36 of 36 reach 0.9."""
    few, enough = (Bound("x", "all", share=(n, n), least=0.9) for n in (20, 36))
    claim = Bounds("says", lambda tables: [few, enough, Bound("y", "small", [0.1, 0.2], most=0.5)])
    short, long, _ = claim.judge({})
    assert (short.outcome, long.outcome) == ("cannot tell", "agrees")
    assert short.note == "20 of 20; bound: at least 0.9; could agree with 36 cases or more"
    assert "could agree" not in long.note
    assert stats.binomtest(35, 35).proportion_ci().low < 0.9 <= stats.binomtest(36, 36).proportion_ci().low
    assert claim.decidable({}) == (1, 3)
    (never,) = Bounds("says", lambda tables: [replace(few, least=1.0)]).judge({})
    assert never.note.endswith("no number of cases could agree")


def test_wrong_models_are_shown_and_counted_beside_bounds():
    wrong = {"AE": [0.9, 0.8], "random": [0.4, np.nan], "never run": []}
    case = Bound("x", "small", [0.1, 0.12, 0.11], most=0.5, wrong=wrong)
    claim = Bounds("says", lambda tables: [case])
    assert claim.judge({})[0].note == "bound: at most 0.5; AE: 0.85, outside; random: 0.4, within"
    assert claim.confusion({})[:2] == (1, 2)


def test_what_has_not_converged_tells_nothing():
    assert outcome(Bounds, Bound("x", "", [0.1] * 5, most=0.5, doubt="not converged")) == "cannot tell"


# Published cells


def test_equivalence_is_two_one_sided_welch_tests():
    """Against scipy's t test from summary statistics, at both ends of the margin."""
    cell, margin = Cell(0.5, 0.1, n=8), 0.12
    for seed in range(40):
        runs = normal(0.55, 0.15, 7, seed)
        ours = (runs.mean(), runs.std(ddof=1), len(runs))

        def p(shift, side, ours=ours):
            theirs = (cell.mean + shift, cell.sd, cell.n)
            return stats.ttest_ind_from_stats(*ours, *theirs, equal_var=False, alternative=side).pvalue

        agrees = p(-margin, "greater") <= 0.05 and p(margin, "less") <= 0.05
        differs = p(-margin, "less") < 0.05 or p(margin, "greater") < 0.05
        expected = "agrees" if agrees else "differs" if differs else "cannot tell"
        assert equivalence(cell, runs, margin)[0] == expected


def test_more_scatter_makes_agreement_harder():
    cell = Cell(0.0, 0.0)
    steady, scattered = normal(0.01, 0.005, 10), normal(0.2, 0.34, 10)
    assert equivalence(cell, steady, 0.15)[0] == "agrees"
    assert equivalence(cell, scattered, 0.15)[0] == "cannot tell"


def test_cells_that_the_paper_cannot_tell_apart_are_not_wrong_models():
    row = Row("DtO", {"AE": Cell(0.33, 0.18), "full": Cell(0.34, 0.35), "VAE": Cell(0.0, 0.0)}, {})
    assert not row.is_wrong("full", "AE") and row.is_wrong("VAE", "AE") and row.is_wrong("random", "AE")
    assert row.margin("AE") == (0.165, "half way to VAE")


def test_a_margin_is_at_most_three_published_sds():
    """A model far from a narrow cell does not agree because all others are farther still."""
    row = Row("DtO", {"VAE": Cell(0.18, 0.02), "AE": Cell(0.54, 0.13)}, {"VAE": normal(0.013, 0.002, 10)})
    assert row.margin("VAE") == (pytest.approx(0.06), "3 published SDs")
    assert outcome(Values, row) == "differs"
    assert outcome(Values, row._replace(runs={"VAE": normal(0.19, 0.02, 10)})) == "agrees"


def test_a_collapsed_model_agrees_with_no_cell():
    """Its value takes part in the margin where the paper tells it apart, and is counted as a wrong model."""
    said = {"β-VAE": Cell(0.17, 0.1), "β-TCVAE": Cell(0.72, 0.08)}
    row = Row("MIG-sup", said, {"β-VAE": np.full(6, 0.001)})
    assert row.margin("β-VAE") == (pytest.approx(0.275), "half way to β-TCVAE")
    assert outcome(Values, row) == "agrees", "half way to the other cell reaches below zero"
    known = row._replace(trivial={"a collapsed model": 0.0})
    assert known.margin("β-VAE") == (pytest.approx(0.085), "half way to a collapsed model")
    assert outcome(Values, known) == "differs"
    assert Values("says", lambda tables: [known]).confusion({})[:2] == (0, 3)
    at_zero = Row("DtO", {"VAE": Cell(0.0, 0.0), "AE": Cell(0.3, 0.1)}, {}, trivial={"trivial": 0.0})
    assert not at_zero.is_wrong("trivial", "VAE") and at_zero.is_wrong("trivial", "AE")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(99.78, "agrees"), (99.68, "cannot tell"), (99.5, "differs"), (100.0, "cannot tell")],
)
def test_a_number_without_sd_is_known_to_half_a_digit(value, expected):
    """Half way between 99.8 and 99.5 is anywhere from 0.1 to 0.2: with 99.85 and 99.45, 100 is within."""
    assert equivalence(Cell(99.8, None, digit=0.1), np.full(5, value), 0.15)[0] == expected


def test_a_row_without_differences_tells_nothing():
    row = Row("DtO", {"a": Cell(0.5, 0.3), "b": Cell(0.52, 0.3)}, {"a": [0.5, 0.51, 0.49]})
    assert outcome(Values, row) == "cannot tell"


def test_a_number_without_sd_is_compared_with_the_median():
    said = {"few": Cell(97.8, None, digit=0.1), "ten": Cell(90.6, None, digit=0.1)}
    runs = [97.5] * 20 + [20.0] * 6
    (found,) = Values("says", lambda tables: [Row("share", said, {"few": runs})]).judge({})
    assert (found.measured, found.outcome) == (97.5, "agrees")


def test_of_exclusive_alternatives_at_most_one_agrees():
    """Two readings of a text that both fit are not told apart; one that does not fit still differs."""
    said = {"VAE": Cell(0.2, 0.02), "AE": Cell(0.8, 0.1)}
    fits, misses = [0.21, 0.19, 0.2, 0.22], [0.7, 0.72, 0.71, 0.69]
    rows = [Row(name, said, {"VAE": runs}) for name, runs in (("a", fits), ("b", fits), ("c", misses))]
    for given, expected in (
        (rows, ["cannot tell", "cannot tell", "differs"]),
        (rows[1:], ["agrees", "differs"]),
    ):
        claim = Values("says", lambda tables, given=given: given, exclusive=True)
        assert [one.outcome for one in claim.judge({})] == expected
    assert "none can be told" in claim.rule and "alternative" not in Values("says", claim.cases).rule


def test_wrong_models_are_counted_and_right_ones_simulated():
    said = {"VAE": Cell(0.2, 0.05), "AE": Cell(0.8, 0.1)}
    runs = {"VAE": normal(0.2, 0.05, 10), "AE": normal(0.79, 0.1, 10, 1), "random": normal(0.81, 0.05, 10, 2)}
    claim = Values("says", lambda tables: [Row("DtO", said, runs)])
    found = claim.confusion({})
    assert (found.wrong, found.tried) == (1, 4), "the random model passes for the AE"
    assert found.right > 0.95
    scattered = {"VAE": Cell(0.2, 0.5), "AE": Cell(0.8, 0.5)}
    wide = Values("says", lambda tables: [Row("DtO", scattered, runs)])
    assert wide.confusion({}).right < 0.2, "cells as wide as their distance cannot be agreed with"


# Orders


def test_orders_are_corrected_within_a_claim():
    low, high = normal(0.0, 1.0, 8), normal(1.5, 1.0, 8, 1)
    case = Order("x", low, high)
    (alone,) = Orders("says", lambda tables: [case]).judge({})
    assert alone.p == pytest.approx(stats.mannwhitneyu(low, high, alternative="less").pvalue)
    many = Orders("says", lambda tables: [case] * 40).judge({})
    assert many[0].p == pytest.approx(40 * alone.p)
    assert (alone.outcome, many[0].outcome) == ("agrees", "cannot tell")
    (uneven,) = Orders("says", lambda tables: [Order("x", low, high[:5])]).judge({})
    assert uneven.note == f"8 and 5 runs, smallest attainable p {1 / math.comb(13, 5):.2g}"


@pytest.mark.parametrize(
    ("p", "ends", "said"),
    [
        ((0.0499, 1.0), (-2.0, -1.0), "agrees"),
        ((0.0501, 1.0), (-2.0, -1.0), "cannot tell"),
        ((0.0499, 1.0), (-2.0, 0.1), "cannot tell"),
        ((1.0, 0.0499), (1.0, 2.0), "differs"),
        ((1.0, 0.0501), (1.0, 2.0), "cannot tell"),
        ((1.0, 0.0499), (-0.1, 2.0), "cannot tell"),
    ],
)
def test_signs_need_p_below_the_level_and_an_interval_on_one_side(p, ends, said):
    class Known(Orders):
        def test(self, case):
            return SignTest(sum(ends) / 2, *ends, p, min(p), 8), case.published

    claim = Known("says", lambda tables: [Order("x", (), ())])
    assert claim.judge({})[0].outcome == said
    assert claim.decidable({}) == (int(min(p) < 0.05), 1)


def test_the_reverse_order_differs():
    low, high = normal(0.0, 0.1, 8), normal(1.0, 0.1, 8, 1)
    assert outcome(Orders, Order("x", high, low)) == "differs"
    assert outcome(Orders, Order("x", low, high, paired=True)) == "agrees"


def test_the_deciding_p_is_shown():
    low, high = normal(0.0, 0.1, 8), normal(1.0, 0.1, 8, 1)
    (found,) = Orders("says", lambda tables: [Order("x", high, low)]).judge({})
    assert found.outcome == "differs"
    assert found.p == pytest.approx(stats.mannwhitneyu(high, low, alternative="greater").pvalue)
    first = np.arange(8.0)
    (found,) = Correlations("says", lambda tables: [Correlation("x", first, first)]).judge({})
    assert (found.outcome, found.p) == ("differs", pytest.approx(1e-4))


@pytest.mark.parametrize(("m", "n"), [(6, 6), (9, 5), (18, 30), (25, 25)])
@pytest.mark.parametrize("paired", [True, False])
def test_intervals_of_orders_invert_their_test(m, n, paired):
    """A shift just inside an end is not rejected at 2.5 %, and one just outside is."""
    low, high = normal(0.0, 1.0, m), normal(0.5, 2.0, m if paired else n, 1)
    middle, lower, upper = shift(low, high, paired=paired)
    assert lower < middle < upper
    test = stats.wilcoxon if paired else stats.mannwhitneyu
    for end, side, outwards in ((lower, "greater", -1e-6), (upper, "less", 1e-6)):
        outside, inside = (
            test(low - end - step, high, alternative=side, method="exact").pvalue
            for step in (outwards, -outwards)
        )
        slack = 1e-3 if m + n > 40 else 0.0
        assert outside <= 0.025 + slack and inside > 0.025 - slack


def test_too_few_runs_have_no_interval():
    low, high = np.arange(5.0), np.arange(5.0) + 3
    (found,) = Orders("says", lambda tables: [Order("x", low, high, paired=True)]).judge({})
    assert found.p == pytest.approx(1 / 32) and (found.lower, found.upper) == (None, None)
    assert found.outcome == "cannot tell", "p of 0.031 two-sided is above 5 %"


def test_an_order_of_most_runs_is_not_undone_by_one_outlier():
    """The rank test and the interval are of the same number, where a mean would follow the outlier."""
    low, high = np.append(np.zeros(19) + normal(0, 0.01, 19), 50.0), np.ones(20) + normal(0, 0.01, 20, 1)
    assert mean_interval(low - high)[1] > 0
    assert outcome(Orders, Order("x", low, high)) == "agrees"


def test_ties_raise_the_smallest_attainable_p():
    notes = []
    for low, high in (
        ([0, 0, 1, 2], [3, 4, 5, 6]),
        ([0, 0, 1, 1], [1, 1, 1, 1]),
        ([0, 1, 2, 3], [4, 5, 6, 7]),
    ):
        (found,) = Orders("says", lambda tables, pair=(low, high): [Order("x", *pair)]).judge({})
        notes.append(found.note)
    assert [float(note.split()[-1]) for note in notes] == pytest.approx([1 / 70, 15 / 70, 1 / 70], rel=0.05)
    pairs = Order("x", [0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 0, 0], paired=True)
    (found,) = Orders("says", lambda tables: [pairs]).judge({})
    assert found.note.endswith(f"{1 / 16:.2g}"), "equal pairs say nothing"


def test_too_few_pairs_say_so():
    (found,) = Orders("says", lambda tables: [Order("x", [0, 0, 0], [1, 2, 3], paired=True)]).judge({})
    assert found.outcome == "cannot tell" and "smallest attainable p 0.12" in found.note


def test_orders_that_their_runs_cannot_decide_are_counted():
    few, many = (Order("x", range(n), range(1, n + 1), paired=True) for n in (3, 12))
    assert Orders("says", lambda tables: [few, many]).decidable({}) == (1, 2)
    pair = Correlation("x", [1, 2, 3, 4], [1, 2, 3, 5])
    assert Correlations("says", lambda tables: [pair]).decidable({}) == (1, 1), "1/24"
    assert Correlations("says", lambda tables: [pair, pair]).decidable({}) == (0, 2)


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


# Curves and correlations


def test_a_trend_is_judged_along_the_whole_curve():
    scatter = 0.005 * DRAW.normal(size=(6, 10))
    falling = np.linspace(1, 0, 6)[:, None] + scatter
    dips = np.array([1.0, 0.5, 0.1, 0.2, 0.3, 0.35])[:, None] + scatter
    assert outcome(Trends, Curve("x", "vanishes", falling)) == "agrees"
    assert outcome(Trends, Curve("x", "vanishes", dips)) == "differs"
    assert outcome(Trends, Curve("x", "rises", falling, rising=True)) == "differs"


def test_slow_rises_add_up():
    """Many small steps against the trend are as bad as one large one."""
    curve = np.concatenate([np.linspace(1, 0, 10), np.linspace(0, 0.3, 40)])[:, None]
    assert outcome(Trends, Curve("x", "decreasing", curve)) == "false as printed"


def test_undefined_values_and_flat_curves_show_no_trend():
    rising = np.linspace(0, 1, 6)[:, None] + 0.005 * DRAW.normal(size=(6, 8))
    holes = rising.copy()
    holes[2, :3] = np.nan
    assert outcome(Trends, Curve("x", "decreasing", holes)) == "differs", "the other five runs still say so"
    assert outcome(Trends, Curve("x", "decreasing", np.full((6, 5), np.nan))) == "cannot tell"
    assert outcome(Trends, Curve("x", "decreasing", np.ones((6, 5)))) == "cannot tell"
    assert outcome(Trends, Curve("x", "decreasing", -rising[:, :2])) == "cannot tell", "two runs are too few"
    with pytest.raises(ValueError, match=r"values of a curve must be \(abscissa, run\), got shape \(6,\)"):
        outcome(Trends, Curve("x", "decreasing", rising[:, 0]))


def test_estimates_of_few_runs_tell_nothing():
    few = Bound("x", "small", estimate=(0.1, 0.05, 0.15), most=0.5, n=2)
    assert outcome(Bounds, few) == "cannot tell"
    assert outcome(Bounds, replace(few, n=3)) == "agrees"
    exact = Bounds("says", lambda tables: [replace(few, estimate=(0.1, 0.1, 0.1), n=1)]).judge({})[0]
    assert (exact.outcome, exact.lower, exact.upper) == ("agrees", None, None), "a number without chance"


def test_correlations():
    first = DRAW.normal(size=60)
    assert outcome(Correlations, Correlation("x", first, -first + DRAW.normal(size=60))) == "agrees"
    assert outcome(Correlations, Correlation("x", first, first)) == "differs"
    assert outcome(Correlations, Correlation("x", first, DRAW.normal(size=60))) == "cannot tell"
    assert outcome(Correlations, Correlation("x", first, first, positive=True)) == "agrees"


def test_correlations_are_scipys_permutation_test():
    """All pairings of few values; the smallest attainable p is one arrangement of them."""
    first, second = DRAW.normal(size=6), DRAW.normal(size=6)
    (found,) = Correlations("says", lambda tables: [Correlation("x", first, second)]).judge({})
    theirs = stats.permutation_test(
        (second,),
        lambda own: stats.spearmanr(first, own).statistic,
        permutation_type="pairings",
        alternative="less",
        n_resamples=math.factorial(6),
    )
    assert found.p == pytest.approx(theirs.pvalue)
    assert f"smallest attainable p {1 / math.factorial(6):.2g}" in found.note


def test_few_values_cannot_correlate_significantly():
    """Three groups have six arrangements, so that no correlation between them is significant."""
    first = np.repeat([0.0, 1.0, 2.0], 10) + 0.01 * DRAW.normal(size=30)
    case = Correlation("x", first, first, groups=np.repeat([0, 1, 2], 10), positive=True)
    assert outcome(Correlations, case) == "cannot tell"
    assert outcome(Correlations, replace(case, groups=None)) == "agrees"


def test_trends_that_all_runs_share_are_no_correlation_of_runs():
    """Two measures that only change with time, in every run alike, are exchanged with their run."""
    time = np.tile(np.arange(3.0), 8)
    first, second = (10 * time + DRAW.normal(size=24) for _ in range(2))
    case = Correlation("x", first, second, positive=True)
    assert outcome(Correlations, replace(case, groups=np.repeat(np.arange(8), 3))) == "cannot tell"
    assert outcome(Correlations, case) == "agrees"


def test_levels_of_strata_are_no_correlation_within_them():
    level = np.repeat(np.arange(4.0), 6)
    first, second = (10 * level + DRAW.normal(size=24) for _ in range(2))
    case = Correlation("x", first, second, positive=True)
    assert outcome(Correlations, replace(case, strata=level)) == "cannot tell"
    assert outcome(Correlations, Correlation("x", first, first, positive=True, strata=level)) == "agrees"


@pytest.mark.slow
def test_correlations_of_noise_are_rarely_significant():
    noise = np.random.default_rng(5).normal(size=(200, 2, 9))
    cases = [Correlation("x", first, second) for first, second in noise]
    found = [Correlations("says", lambda tables, one=one: [one]).judge({})[0] for one in cases]
    for rare in (("agrees", "cannot tell"), ("differs",)):
        assert np.mean([one.p < 0.05 and one.outcome in rare for one in found]) <= 0.09


def test_arrangements_keep_groups_and_strata():
    groups, strata = np.array([0, 1, 0, 2, 1, 2, 3]), np.array([0, 0, 1, 1, 1, 2, 2])
    blocks = arrangements(7, groups=groups)
    assert len(blocks) == 6 and (blocks[:, 6] == 6).all(), "the group of another size stays"
    assert {tuple(groups[row[[0, 2]]]) for row in blocks} == {(0, 0), (1, 1), (2, 2)}
    within = arrangements(7, strata=strata)
    assert len(within) == 2 * 6 * 2 and (strata[within] == strata).all()
    cells = arrangements(8, groups=[0, 0, 1, 1, 2, 2, 3, 3], strata=[0, 0, 0, 0, 1, 1, 1, 1])
    assert cells.tolist() == [
        [*first, *second] for first in ([0, 1, 2, 3], [2, 3, 0, 1]) for second in ([4, 5, 6, 7], [6, 7, 4, 5])
    ]
    many = arrangements(12)
    assert len(many) == 10_000 and (np.sort(many, axis=1) == np.arange(12)).all()
    assert (many[0] == np.arange(12)).all() and len(np.unique(many, axis=0)) > 9990


def test_rank_correlation_is_scipys():
    samples = DRAW.normal(size=(2, 5, 30)).round(1)
    expected = [stats.spearmanr(*samples[:, row]).statistic for row in range(5)]
    assert rank_correlation(samples) == pytest.approx(expected)


@pytest.mark.slow
def test_intervals_have_their_coverage():
    """Over many samples the intervals contain the truth about as often as they say."""
    samples = np.random.default_rng(1).normal(size=(400, 12))
    inside = [low <= 0 <= high for low, high in map(mean_interval, samples)]
    assert 0.92 <= np.mean(inside) <= 0.98
    medians = [low <= 0 <= high for low, high in map(median_interval, samples[:150])]
    assert 0.88 <= np.mean(medians) <= 0.99
