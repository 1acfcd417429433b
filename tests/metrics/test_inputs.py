"""Checks, draws and bins that all metrics share."""

import dataclasses
import math
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from unseam.metrics import Interval
from unseam.metrics._inputs import (
    AbstractSettings,
    check_codes,
    check_inputs,
    classes,
    default_generator,
    draw_distinct,
    draw_points,
    equal_width,
    labels,
    row_slices,
)

CPU = torch.device("cpu")


@pytest.fixture
def codes(generator):
    return torch.randn(3, 50, 2, generator=generator, dtype=torch.float64)


@pytest.fixture
def factors(generator):
    return torch.randint(4, (50, 2), generator=generator)


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).normal(size=997),
        np.random.default_rng(1).integers(0, 41, 500).astype(float),
        np.arange(10) / 9,
        np.arange(8) / 7 * 0.3 + 1e6,
        np.array([0.0, 1e-300]),
        np.linspace(-3, 5, 21),
    ],
    ids=["normal", "integers", "ninths", "far", "tiny", "edges"],
)
@pytest.mark.parametrize("bins", [1, 7, 20])
def test_bins_are_those_of_numpy(values, bins):
    edges = np.histogram(values, bins)[1]
    expected = np.digitize(values, edges[:-1]) - 1
    assert equal_width(torch.as_tensor(values), bins).tolist() == expected.tolist()


def test_rows_are_binned_on_their_own(codes):
    rows = codes[0].T
    assert torch.equal(equal_width(rows, 5), torch.stack([equal_width(row, 5) for row in rows]))


def test_a_constant_lies_in_one_bin():
    assert equal_width(torch.full((2, 4), 0.1, dtype=torch.float64), 20).tolist() == [[0] * 4] * 2


def test_classes_are_labels_or_bins(codes):
    table = torch.stack([torch.tensor([5, 5, 9, 7]), torch.tensor([0, 1, 9, 10])], 1)
    given = check_inputs(codes[:, :4], table, discrete=[True, False])
    assert classes(given, 2).tolist() == [[0, 0], [0, 0], [2, 1], [1, 1]]


def test_labels_are_positions_among_the_values():
    assert labels(torch.tensor([[7.0, 1.0], [-2.0, 1.0], [7.0, 0.0]])).tolist() == [[1, 1], [0, 1], [1, 0]]


def test_members_get_an_axis(codes, factors):
    assert check_inputs(codes[0], factors).codes.shape == (1, 50, 2)
    assert not check_inputs(codes[0], factors).stacked
    assert check_inputs(codes, factors).stacked


def test_arrays_and_tables_give_the_same(codes, factors):
    frame = pd.DataFrame({"shape": factors[:, 0].numpy(), "size": factors[:, 1].double().numpy()})
    found = check_inputs(codes.numpy(), frame)
    assert found.discrete == (True, False)
    assert torch.equal(found.factors, factors.double())
    assert check_inputs(codes, factors).discrete == (True, True)
    assert check_inputs(codes, factors.numpy(), discrete=[False, True]).discrete == (False, True)


def test_factors_are_numbers_once_drawn(codes, factors):
    for points in (None, 10):
        found = draw_points(check_inputs(codes, factors), points, torch.Generator())
        assert found.factors.dtype == torch.float64


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64", "uint64", "bool"])
def test_whole_numbers_are_codes(factors, kind):
    expected = check_inputs(factors.double() % 2, factors).codes
    for codes in ((factors % 2).numpy().astype(kind), pd.DataFrame((factors % 2).numpy().astype(kind))):
        found = check_inputs(codes, factors, variance=codes).codes
        assert found.dtype == torch.float64
        assert torch.equal(found, expected)
    if kind in ("int8", "bool"):
        assert torch.equal(check_inputs((factors % 2).to(getattr(torch, kind)), factors).codes, expected)


def test_half_precision_is_widened(codes, factors):
    assert check_inputs(codes.half(), factors).codes.dtype == torch.float32


def test_finite_codes_whose_sum_overflows_pass(factors):
    assert check_inputs(torch.full((50, 2), 3e38), factors).codes.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"codes": torch.zeros(50)},
            r"codes must have shape \(batch, latent\) or \(member, batch, latent\), got",
        ),
        ({"codes": torch.zeros(50, 0)}, r"codes must have shape .* got shape \(50, 0\)"),
        ({"codes": torch.zeros(0, 2)}, r"codes must have shape .* got shape \(0, 2\)"),
        ({"codes": torch.zeros(3, 0, 2)}, r"codes must have shape .* got shape \(3, 0, 2\)"),
        ({"codes": torch.zeros(49, 2)}, "one row per point, got 49 codes and 50 factors"),
        ({"codes": torch.zeros(50, 2) * 1j}, "codes must be real, got torch.complex64"),
        ({"codes": torch.full((50, 2), torch.nan)}, "codes must be finite, got 100 entries"),
        ({"factors": torch.zeros(50)}, r"factors must have shape \(batch, factor\), got shape \(50,\)"),
        ({"factors": torch.full((50, 2), torch.inf)}, "factors must be finite"),
        ({"factors": torch.zeros(50, 2) * 1j}, "factors must be real, got torch.complex64"),
        ({"discrete": [True]}, "discrete must have one entry per factor \\(2\\), got 1"),
        (
            {"variance": torch.ones(50, 2)},
            r"variance must have the shape of codes \(3, 50, 2\), got shape \(50, 2\)",
        ),
        ({"variance": -torch.ones(3, 50, 2)}, "variance must not be negative, got 300 negative entries"),
    ],
)
def test_bad_input_is_named(codes, factors, change, message):
    given = {"codes": codes, "factors": factors} | change
    with pytest.raises(ValueError, match=message):
        check_inputs(given.pop("codes"), given.pop("factors"), **given)


def test_missing_entries_of_a_table_are_named(codes):
    frame = pd.DataFrame({"a": [1.0, None] * 25})
    with pytest.raises(ValueError, match="factors must be finite"):
        check_inputs(codes, frame)


def test_unsupervised_has_no_factors(codes):
    found = draw_points(check_codes(codes[0]), 10, torch.Generator())
    assert found.codes.shape == (1, 10, 2)
    assert found.factors.shape == (10, 0)
    with pytest.raises(ValueError, match="codes must have shape"):
        check_codes(torch.zeros(4))


def test_members_share_the_points_that_are_drawn(codes, factors, generator):
    row = torch.arange(50.0, dtype=torch.float64)
    stacked = torch.stack([row, -row]).view(2, 50, 1)
    found = draw_points(check_inputs(stacked, factors, variance=stacked.abs()), 7, generator)
    assert torch.equal(found.codes[0], -found.codes[1])
    assert torch.equal(found.variance[0], found.codes[0])
    assert torch.equal(found.factors, factors[found.codes[0, :, 0].long()].double())


@pytest.mark.parametrize(("batch", "count"), [(40, 5), (40, 10), (40, 39), (40, 40), (1_000, 100)])
def test_distinct_points_are_all_equally_likely(batch, count, generator):
    draws = 2_000
    hits = torch.zeros(batch)
    for _ in range(draws):
        index = draw_distinct(batch, count, generator)
        assert len(index.unique()) == len(index) == count
        hits[index] += 1
    share = count / batch
    error = (share * (1 - share) / draws) ** 0.5
    # Five standard errors: one in a thousand of such tests would fail by chance for 1 000 points.
    assert (hits / draws - share).abs().max() <= 5 * error


def test_distinct_points_come_in_random_order(generator):
    first = torch.stack([draw_distinct(1_000, 50, generator)[0] for _ in range(400)]).double()
    # Uniform on 0 … 999: mean 499.5 and deviation 288.7.
    assert abs(first.mean() - 499.5) < 4 * 288.7 / 20


def test_parts_cover_everything_once():
    found = torch.cat([torch.arange(10)[part] for part in row_slices(10, 2**19, CPU)])
    assert found.tolist() == list(range(10))
    assert len(list(row_slices(10, 2**30, CPU))) == 10


def test_a_generator_of_its_own_is_seeded():
    assert torch.equal(
        torch.rand(3, generator=default_generator(None)), torch.rand(3, generator=default_generator(None))
    )


@pytest.mark.parametrize("given", [3, "cpu", np.random.default_rng(0)])
def test_what_is_no_generator_is_named(given):
    with pytest.raises(ValueError, match=r"generator must be a torch.Generator .*, got"):
        default_generator(given)


@dataclasses.dataclass(frozen=True)
class Some(AbstractSettings):
    changes: ClassVar = {"fast": {"points": 1}}

    points: int = 3


def test_presets_are_names_or_settings():
    assert Some.resolve("dlib") == Some()
    assert Some.resolve("fast") == Some(1)
    assert Some.resolve(Some(7)) == Some(7)
    with pytest.raises(ValueError, match="preset must be one of dlib, fast, got 'slow'"):
        Some.resolve("slow")
    with pytest.raises(ValueError, match="preset must be a name or Some, got dict"):
        Some.resolve({})


class Outer(NamedTuple):
    score: torch.Tensor
    interval: Interval
    names: tuple[str, ...]


def test_results_lose_the_member_axis_where_codes_had_none(codes, factors):
    found = Outer(torch.zeros(1), Interval(*torch.zeros(3, 1, 2)), ("a",))
    assert check_inputs(codes, factors).unstack(found) is found
    alone = check_inputs(codes[0], factors).unstack(found)
    assert (alone.score.shape, alone.interval.error.shape, alone.names) == ((), (2,), ("a",))


@dataclasses.dataclass(frozen=True)
class Bounded(AbstractSettings):
    points: int | None = None
    bins: Annotated[int, {"least": 2}] = 5
    form: Literal["a", "b"] = "a"
    rate: Annotated[float, {"above": 0}] = 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"points": 0}, "points must be at least 1, got 0"),
        ({"bins": 1}, "bins must be at least 2, got 1"),
        ({"form": "c"}, "form must be 'a' or 'b', got 'c'"),
        ({"rate": math.nan}, "rate must be positive, got nan"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Bounded(**settings)
