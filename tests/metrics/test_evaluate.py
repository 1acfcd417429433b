"""One table of many metrics: the rows are what each metric gives alone."""

import dataclasses
import json
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from unseam import metrics
from unseam.metrics import Interval, evaluate
from unseam.metrics.evaluate import METRICS

CHEAP = ("mig", "mig_sup", "modularity", "irs", "mcc", "total_correlation")
COLUMNS = ["member", "metric", "score", "lower", "upper", "error", "preset", "settings", "note"]


@dataclasses.dataclass(frozen=True)
class CountSettings:
    points: int = 3


class Count(NamedTuple):
    score: torch.Tensor
    interval: Interval
    settings: CountSettings


def count(codes, factors, *, discrete=None, variance=None, preset="dlib", generator=None):
    """A metric of one's own: the number of points that it was shown, with a random error."""
    score = torch.full((len(codes),), float(len(factors)))
    error = torch.rand(len(codes), generator=generator)
    return Count(score, Interval(score - error, score + error, error), CountSettings(len(factors)))


@pytest.fixture
def factors(generator):
    return torch.randint(4, (400, 3), generator=generator)


@pytest.fixture
def codes(factors, generator):
    return factors + 0.3 * torch.randn(2, 400, 3, generator=generator, dtype=torch.float64)


def test_every_metric_of_the_room_is_evaluated():
    contract = {"mig", "mig_sup", "dci", "sap", "factor_vae_score", "beta_vae_score", "modularity", "explicitness",
                "irs", "disentanglement_score", "mcc", "r2", "total_correlation", "udr"}  # fmt: skip
    names = [metric.__name__ for metric in METRICS]
    assert contract <= set(names)
    assert all(getattr(metrics, name) is metric for name, metric in zip(names, METRICS, strict=True))


def test_rows_are_what_each_metric_gives_alone(codes, factors):
    table = evaluate(codes, factors, CHEAP, preset="fast")
    assert list(table.columns) == COLUMNS
    assert list(table["metric"]) == [*CHEAP, *CHEAP]
    assert list(table["member"]) == [0] * len(CHEAP) + [1] * len(CHEAP)
    for name in CHEAP:
        alone = getattr(metrics, name)(codes, factors, preset="fast")
        rows = table[table["metric"] == name]
        assert rows["score"].tolist() == alone.score.tolist()
        for field in ("lower", "upper", "error"):
            assert rows[field].tolist() == getattr(alone.interval, field).tolist()
        assert set(rows["settings"]) == {json.dumps(dataclasses.asdict(alone.settings), sort_keys=True)}
        assert set(rows["preset"]) == {"fast"}


def test_members_alone_give_the_rows_of_the_stack(codes, factors):
    together = evaluate(codes, factors, CHEAP, preset="fast")
    alone = evaluate(codes[1], factors, CHEAP, preset="fast")
    second = together[together["member"] == 1].reset_index(drop=True).assign(member=0)
    pd.testing.assert_frame_equal(second, alone, rtol=1e-12)


def test_same_seed_same_table_other_seed_other_draws(codes, factors):
    first, again, other = (
        evaluate(codes, factors, ["irs", count], generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(first, again)
    assert not first["error"].equals(other["error"])


def test_a_row_does_not_depend_on_the_others(codes, factors):
    source = torch.Generator()
    alone = evaluate(codes, factors, [count], generator=source.manual_seed(5))
    with_others = evaluate(codes, factors, ["mig", "irs", count], generator=source.manual_seed(5))
    rows = with_others[with_others["metric"] == "count"].reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, alone)


def test_arrays_and_tables_are_as_good_as_tensors(codes, factors):
    expected = evaluate(codes, factors, CHEAP, preset="fast")
    pd.testing.assert_frame_equal(evaluate(codes.numpy(), factors.numpy(), CHEAP, preset="fast"), expected)
    pd.testing.assert_frame_equal(
        evaluate(codes, pd.DataFrame(factors.numpy()), CHEAP, preset="fast"), expected
    )


def test_discrete_reaches_the_metrics(codes, factors):
    whole, real = (
        evaluate(codes, factors, ["mig"], discrete=[flag] * 3, preset=metrics.MigSettings(bins=3))["score"]
        for flag in (True, False)
    )
    assert not whole.equals(real)


def test_without_variance_two_are_left_out_and_it_says_why(codes, factors):
    table = evaluate(codes[:, :100], factors[:100], preset="fast")
    names = [metric.__name__ for metric in METRICS]
    after_dci = names.index("dci") + 1
    names[after_dci:after_dci] = ["dci_completeness", "dci_informativeness"]
    assert list(table["metric"]) == 2 * names
    left = table[table["note"] != ""]
    assert set(left["metric"]) == {"mig_entropy", "udr"}
    assert set(left["note"]) == {"needs a posterior of positive variance"}
    assert left["score"].isna().all()
    assert table[table["note"] == ""][["score", "lower", "upper", "error"]].notna().all(axis=None)


def test_with_variance_they_are_there(codes, factors):
    variance = torch.full_like(codes[:, :100], 0.1)
    table = evaluate(codes[:, :100], factors[:100], variance=variance, preset="fast")
    assert (table["note"] == "").all()
    alone = evaluate(codes[0, :100], factors[:100], variance=variance[0], preset="fast")
    left = alone[alone["note"] != ""]
    assert left[["metric", "note"]].values.tolist() == [["udr", "needs two members or more"]]


def test_udr_is_that_of_the_posteriors_kl(codes, factors):
    variance = torch.full_like(codes, 0.1)
    kl = ((codes.square() + variance - 1 - variance.log()) / 2).mean(1)
    expected = metrics.udr(codes, kl, preset="fast").score
    found = evaluate(codes, factors, ["udr"], variance=variance, preset="fast")["score"]
    assert found.tolist() == expected.tolist()


def test_metrics_of_ones_own_and_partial_ones(codes, factors):
    def scaled(*given, scale, **options):
        found = count(*given, **options)
        return found._replace(score=scale * found.score)

    table = evaluate(codes, factors, [count, partial(scaled, scale=2)])
    assert list(table["metric"]) == ["count", "scaled(scale=2)"] * 2
    assert table["score"].tolist() == [400.0, 800.0] * 2


def test_presets_by_metric(codes, factors):
    few = metrics.MigSettings(bins=5)
    table = evaluate(codes[0], factors, ["mig", "irs"], preset={"mig": few})
    assert table["preset"].tolist() == ["MigSettings", "dlib"]
    assert json.loads(table["settings"][0])["bins"] == 5


@pytest.mark.parametrize(
    "asked, preset, message",
    [
        ("mig", "dlib", "metrics must be a sequence of names or functions, got 'mig'"),
        (["gim"], "dlib", "metrics must be functions or among mig, mig_sup, .*, got 'gim'"),
        (["mig", metrics.mig], "dlib", "metrics must differ in name, got 'mig' twice"),
        ([partial(metrics.mig, preset="fast")], "dlib", "metrics must leave the preset to evaluate"),
        (["mig"], {"sap": "fast"}, "preset must name metrics among mig, got sap"),
        (["mig"], "slow", "preset must be one of dlib, fast, got 'slow'"),
    ],
)
def test_bad_requests(codes, factors, asked, preset, message):
    with pytest.raises(ValueError, match=message):
        evaluate(codes, factors, asked, preset=preset)


@pytest.mark.parametrize("name", ["mig_entropy", "udr"])
def test_what_does_not_fit_is_an_error_where_it_was_asked_for(codes, factors, name):
    with pytest.raises(ValueError, match="variance must hold the posterior's variances for .*, got none"):
        evaluate(codes, factors, [name])


def test_points_without_a_posterior_leave_the_same_two_out(codes, factors):
    few = codes[:, :60]
    table = evaluate(few, factors[:60], variance=torch.zeros_like(few), preset="fast")
    assert set(table[table["note"] != ""]["metric"]) == {"mig_entropy", "udr"}


def test_scores_that_have_an_interval_have_a_row(codes, factors):
    table = evaluate(codes[0], factors, ["dci"], preset="fast").set_index("metric")
    alone = metrics.dci(codes[0], factors, preset="fast")
    assert list(table.index) == ["dci", "dci_completeness", "dci_informativeness"]
    assert table["score"].tolist() == [
        alone.score.item(),
        alone.completeness.item(),
        alone.informativeness.item(),
    ]
    assert table["upper"].tolist() == [
        alone.interval.upper.item(),
        alone.completeness_interval.upper.item(),
        alone.informativeness_interval.upper.item(),
    ]


def test_shapes_that_do_not_fit(codes, factors):
    with pytest.raises(
        ValueError, match="codes and factors must have one row per point, got 400 codes and 3 factors"
    ):
        evaluate(codes, factors[:3])
    with pytest.raises(ValueError, match="codes must be finite, got 2 entries"):
        evaluate(np.full((1, 2), np.nan), factors[:1])


def test_a_metric_of_ones_own_takes_what_it_names(codes, factors):
    def spread(codes, factors):
        return float(codes.std())

    def seeded(codes, factors, generator):
        return torch.rand(1, generator=generator)

    draw = torch.Generator().manual_seed(0)
    table = evaluate(codes, factors, [spread, seeded], generator=draw).set_index("metric")
    assert table.loc["spread", "score"].tolist() == pytest.approx([float(one.std()) for one in codes])
    assert table.loc["seeded", "score"].between(0, 1).all()
