"""Metrics accumulated over batches, and metrics of the user's own that return plain numbers."""

import pandas as pd
import pytest
import torch

from unseam.metrics import Meter, evaluate


@pytest.fixture
def given():
    draw = torch.Generator().manual_seed(0)
    factors = torch.randint(4, (400, 2), generator=draw)
    codes = factors[None] + 0.1 * torch.randn(3, 400, 2, generator=draw, dtype=torch.float64)
    return codes, factors, torch.rand(3, 400, 2, generator=draw, dtype=torch.float64)


def test_batches_give_what_all_codes_give_at_once(given):
    codes, factors, variance = given
    names = ["mig", "mig_entropy", "sap"]
    meter = Meter(names, preset="fast")
    for start in range(0, 400, 64):
        part = slice(start, start + 64)
        meter.update(codes[:, part], factors[part].numpy(), variance[:, part])
    pd.testing.assert_frame_equal(
        meter.compute(), evaluate(codes, factors, names, variance=variance, preset="fast")
    )
    meter.reset()
    with pytest.raises(ValueError, match="compute needs codes: call update first"):
        meter.compute()


def test_meter_refuses_batches_that_do_not_fit(given):
    codes, factors, variance = given
    meter = Meter(["mig"])
    with pytest.raises(
        ValueError, match="codes and factors must have the same number of items, got 400 and 3"
    ):
        meter.update(codes, factors[:3])
    meter.update(codes, factors)
    with pytest.raises(ValueError, match="variance must be given for all batches or for none"):
        meter.update(codes, factors, variance)


def spread(codes, factors, **_):
    return float(codes.var())


def spread_per_member(codes, factors, **_):
    return codes.var(dim=(1, 2))


def three(codes, factors, **_):
    return [1.0, 2.0]


@pytest.mark.parametrize("metric", [spread, spread_per_member])
def test_plain_numbers_are_scores_of_each_member(given, metric):
    codes, factors, _ = given
    table = evaluate(codes, factors, [metric])
    assert table["score"].tolist() == pytest.approx([float(one.var()) for one in codes])
    assert table["lower"].isna().all()


def test_another_number_of_scores_is_refused(given):
    with pytest.raises(ValueError, match=r"a metric must return one number per member \(3\).*got 2 numbers"):
        evaluate(*given[:2], [three])
