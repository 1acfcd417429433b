"""Synthetic encoders and worlds, and what metrics must say of them by their definitions."""

import itertools
import json
import math

import pandas as pd
import pytest
import torch

from unseam.metrics import encoders, validation_grid, worlds
from unseam.metrics.evaluate import METRICS

GRID = 4 * 4 * 6 * 6
WORLDS = {world.name: world for world in worlds()}
ENCODERS = {encoder.name: encoder for encoder in encoders()}
BY_NAME = {metric.__name__: metric for metric in METRICS}
EXACT = {"rtol": 0, "atol": 1e-7}  # codes are rounded to nine decimals

each_world = pytest.mark.parametrize("world", WORLDS)
each_encoder = pytest.mark.parametrize("encoder", ENCODERS)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def factors_of(world, points=GRID):
    return WORLDS[world].draw(points, seeded())


def codes_of(encoder, factors):
    return ENCODERS[encoder].encode(factors, seeded(1))


def share(condition):
    """Share of points and the standard error it has where points are independent."""
    found = condition.double().mean().item()
    return found, math.sqrt(max(found * (1 - found), 1e-9) / len(condition))


# Worlds


def test_uniform_world_holds_every_combination_equally_often():
    rows, counts = factors_of("uniform", 3 * GRID + 5).unique(dim=0, return_counts=True)
    assert len(rows) == GRID
    assert set(counts.tolist()) == {3}


@pytest.mark.parametrize("factor, size", [(0, 4), (1, 4), (2, 6), (3, 6)])
def test_correlated_world_has_uniform_margins(factor, size):
    values = factors_of("correlated", 20_000)[:, factor]
    for value in range(size):
        found, error = share(values == value)
        assert abs(found - 1 / size) < 4 * error


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 3), (2, 3)])
def test_correlated_world_has_its_correlation(pair):
    """Two normals of correlation ρ are both above their medians with probability 1/4 + asin ρ / 2π = 1/3."""
    values = factors_of("correlated", 20_000)[:, list(pair)]
    above = values >= torch.tensor([2 if factor < 2 else 3 for factor in pair])
    found, error = share(above.all(1))
    assert abs(found - 1 / 3) < 4 * error


@pytest.mark.parametrize("factor, size", [(0, 4), (1, 4), (2, 6), (3, 6)])
def test_imbalanced_world_halves_from_value_to_value(factor, size):
    values = factors_of("imbalanced", 20_000)[:, factor]
    for value in range(size):
        found, error = share(values == value)
        assert abs(found - 2.0**-value / (2 - 2.0 ** (1 - size))) < 4 * error


def test_continuous_world_is_uniform():
    values = factors_of("continuous", 20_000)
    assert values.dtype == torch.float64
    assert values.min() >= 0 and values.max() < 1
    torch.testing.assert_close(
        values.mean(0), torch.full((4,), 0.5).double(), rtol=0, atol=4 / math.sqrt(12 * 20_000)
    )


# Encoders


@each_world
@each_encoder
def test_encoders_are_functions_of_factors_and_generator(world, encoder):
    factors = factors_of(world)
    kept = factors.clone()
    first, second = codes_of(encoder, factors), codes_of(encoder, factors)
    assert torch.equal(first, second) and torch.equal(factors, kept)
    assert first.dtype == torch.float64 and first.isfinite().all() and len(first) == len(factors)


LOSSLESS = ["perfect", "permuted", "scaled", "monotone", "steep", "rotated 15°", "rotated 30°", "rotated 45°",
            "entangled pairs", "merged", "duplicated"]  # fmt: skip


@pytest.mark.parametrize("encoder", LOSSLESS)
def test_encoders_that_mix_lose_nothing(encoder):
    codes = codes_of(encoder, factors_of("uniform"))
    assert len(codes.unique(dim=0)) == GRID


@each_world
def test_perfect_codes_are_standardised_factors(world):
    factors = factors_of(world)
    codes = codes_of("perfect", factors)
    torch.testing.assert_close(codes.mean(0), torch.zeros(4).double(), **EXACT)
    torch.testing.assert_close(codes.std(0, correction=0), torch.ones(4).double(), **EXACT)
    correlation = torch.corrcoef(torch.cat([codes, factors.double()], 1).T)[:4, 4:]
    torch.testing.assert_close(correlation.diagonal(), torch.ones(4).double(), **EXACT)


@pytest.mark.parametrize("angle", [15, 30, 45])
def test_rotations_turn_each_pair(angle):
    factors = factors_of("correlated")
    perfect, turned = codes_of("perfect", factors), codes_of(f"rotated {angle}°", factors)
    for pair in (slice(0, 2), slice(2, 4)):
        before, after = (torch.view_as_complex(codes[:, pair].contiguous()) for codes in (perfect, turned))
        torch.testing.assert_close((after / before).angle(), torch.full((len(after),), math.radians(angle)).double(),
                                   **EXACT)  # fmt: skip
        torch.testing.assert_close(after.abs(), before.abs(), **EXACT)


def test_entangled_pairs_are_radius_and_angle():
    factors = factors_of("continuous")
    perfect, polar = codes_of("perfect", factors), codes_of("entangled pairs", factors)
    first = torch.polar(polar[:, 0], polar[:, 1])
    torch.testing.assert_close(torch.view_as_real(first), perfect[:, :2], **EXACT)


def test_merged_codes_are_digits_of_one_number():
    factors = factors_of("uniform")
    codes = codes_of("merged", factors)
    number = 4 * factors[:, 0] + factors[:, 1]
    torch.testing.assert_close(4 * (codes[:, 0] - codes[:, 0].min()), number.double(), **EXACT)


@pytest.mark.parametrize("level", [0.1, 0.3, 1.0])
def test_noise_has_its_level(level):
    factors = factors_of("uniform", 20 * GRID)
    noise = codes_of(f"noisy {level:g}", factors) - codes_of("perfect", factors)
    assert noise.std().item() == pytest.approx(level, rel=4 / math.sqrt(2 * noise.numel()))
    assert noise.mean().abs() < 4 * level / math.sqrt(noise.numel())


def test_added_and_left_out_codes():
    factors = factors_of("imbalanced")
    perfect = codes_of("perfect", factors)
    assert torch.equal(codes_of("missing", factors), perfect[:, :3])
    assert torch.equal(codes_of("duplicated", factors), perfect[:, [0, 1, 2, 3, 0]])
    for name, scale in (("with collapsed codes", 0.01), ("with noise codes", 1.0)):
        codes = codes_of(name, factors)
        assert torch.equal(codes[:, :4], perfect)
        assert codes[:, 4:].std().item() == pytest.approx(scale, rel=4 / math.sqrt(2 * 4 * GRID))


# What must hold by definition


@pytest.fixture(scope="module")
def cells():
    """Results by metric, world and encoder, each computed once from one grid's worth of points."""
    kept = {}

    def cell(metric, world, encoder):
        key = metric, world, encoder
        if key not in kept:
            factors = factors_of(world)
            kept[key] = BY_NAME[metric](
                codes_of(encoder, factors), factors, preset=PRESET.get(metric, "dlib")
            )
        return kept[key]

    return cell


# On the whole grid factors are exactly independent, so these hold up to rounding.
ROTATED = {f"rotated {angle}°": math.cos(math.radians(angle)) for angle in (15, 30, 45)}
BY_DEFINITION = {
    "mig": {
        **dict.fromkeys(("perfect", "permuted", "scaled", "monotone"), 1),
        "merged": 1,  # a factor may share its code
        "duplicated": 3 / 4,  # but not have two
        "missing": 3 / 4,
        "rotated 45°": 0,  # a reflection of the grid exchanges the two codes
    },
    "mig_sup": {
        **dict.fromkeys(("perfect", "permuted", "scaled", "monotone", "with collapsed codes"), 1),
        "merged": 2 / 3,  # one of three codes has two factors
        "duplicated": 1,
        "missing": 1,
        "rotated 45°": 0,
    },
    "modularity": {
        **dict.fromkeys(("perfect", "permuted", "scaled", "monotone", "duplicated", "missing"), 1),
        "merged": (2 + 2 / 3) / 3,  # 1 − 1 / (K − 1) for the code with two of four factors
        "rotated 45°": 2 / 3,
    },
    "mcc": {
        **dict.fromkeys(
            ("perfect", "permuted", "scaled", "duplicated", "with collapsed codes", "with noise codes"), 1
        ),
        "missing": 3 / 4,
        "merged": (4 / math.sqrt(17) + 2) / 4,  # z = 4 v₀ + v₁ goes to v₀, and v₁ has none
        **ROTATED,
    },
    "r2": dict.fromkeys(("perfect", "permuted", "scaled", "duplicated", *ROTATED), 1),
    "irs": dict.fromkeys(("perfect", "permuted", "scaled", "monotone", "steep", "duplicated", "missing"), 1),
    "total_correlation": dict.fromkeys(("perfect", "permuted", "scaled", *ROTATED), 0),
    "mean_pairwise_information": {
        **dict.fromkeys(("perfect", "permuted", "scaled", "monotone"), 0),
        "duplicated": math.log(4) / 10,  # one of ten pairs shares a factor of four values
    },
    "dci": {
        **dict.fromkeys(("perfect", "permuted", "scaled", "monotone", "steep"), 1),
        "merged": 3 / 4,  # half of all importance lies in a code that is half of each of two of four factors
    },
    "factor_vae_score": dict.fromkeys(
        ("perfect", "permuted", "scaled", "monotone", "steep", "duplicated", "with collapsed codes"), 1
    ),
}
PRESET = {"dci": "fast", "factor_vae_score": "fast", "beta_vae_score": "fast", "explicitness": "fast"}


@pytest.mark.parametrize(
    "metric, encoder, expected",
    [
        (metric, encoder, value)
        for metric, values in BY_DEFINITION.items()
        for encoder, value in values.items()
    ],
)
def test_score_on_the_whole_grid_is_that_of_the_definition(cells, metric, encoder, expected):
    assert cells(metric, "uniform", encoder).score.item() == pytest.approx(expected, abs=1e-7)


GAPS = ("mig", "sap", "disentanglement_score")
# Boosted trees keep the order up to splits that are equally good, and are among the definitions above.
MOST = (
    "mig",
    "mig_sup",
    "modularity",
    "sap",
    "factor_vae_score",
    "disentanglement_score",
    "mcc",
    "r2",
    "irs",
)


@each_world
@pytest.mark.parametrize("metric", MOST)
def test_order_of_codes_does_not_matter(cells, metric, world):
    perfect, permuted = (cells(metric, world, encoder).score for encoder in ("perfect", "permuted"))
    torch.testing.assert_close(permuted, perfect, **EXACT)


@each_world
@pytest.mark.parametrize("metric", [metric for metric in MOST if metric not in ("sap", "irs")])
def test_scale_of_codes_does_not_matter(cells, metric, world):
    """Not so for SAP, whose penalty sees the scale, nor for IRS, whose weights do."""
    perfect, scaled = (cells(metric, world, encoder).score for encoder in ("perfect", "scaled"))
    torch.testing.assert_close(scaled, perfect, **EXACT)


@each_world
@pytest.mark.parametrize("metric", GAPS)
def test_a_copy_of_a_code_closes_the_gap_of_its_factor(cells, metric, world):
    perfect, duplicated = cells(metric, world, "perfect"), cells(metric, world, "duplicated")
    assert duplicated.gaps[0].item() == pytest.approx(0, abs=1e-7)
    assert duplicated.score.item() == pytest.approx(perfect.gaps[1:].sum().item() / 4, abs=1e-7)


@each_world
@pytest.mark.parametrize("metric", ["mig_sup", "modularity"])
def test_a_copy_of_a_code_is_as_good_as_the_code(cells, metric, world):
    perfect, duplicated = cells(metric, world, "perfect"), cells(metric, world, "duplicated")
    per_code = {"mig_sup": "gaps", "modularity": "per_code"}[metric]
    first = getattr(perfect, per_code)
    torch.testing.assert_close(getattr(duplicated, per_code), first[[0, 1, 2, 3, 0]], **EXACT)


@each_world
@pytest.mark.parametrize("metric", ["mig_sup", "factor_vae_score"])
def test_codes_below_the_threshold_do_not_count(cells, metric, world):
    perfect, dead = (cells(metric, world, encoder).score for encoder in ("perfect", "with collapsed codes"))
    torch.testing.assert_close(dead, perfect, **EXACT)


@pytest.mark.parametrize("world", ["uniform", "continuous"])
@pytest.mark.parametrize("metric", [*GAPS, "mig_sup", "modularity", "dci", "mcc", "irs", "factor_vae_score"])
def test_a_rotation_by_45_degrees_costs_more_than_the_error(cells, metric, world):
    """Where factors are independent and symmetric, so that the two codes of a pair know equally much of each."""
    perfect, rotated = cells(metric, world, "perfect"), cells(metric, world, "rotated 45°")
    assert rotated.interval.upper < perfect.interval.lower


@pytest.mark.parametrize("metric", ["factor_vae_score", "beta_vae_score"])
def test_factors_of_a_pair_at_45_degrees_are_told_apart_by_chance(cells, metric):
    found = cells(metric, "uniform", "rotated 45°")
    assert abs(found.score.item() - 1 / 2) < 4 * math.sqrt(1 / 4 / found.settings.test)


def test_votes_for_a_missing_factor_are_lost(cells):
    found = cells("factor_vae_score", "uniform", "missing")
    assert abs(found.score.item() - 3 / 4) < 4 * math.sqrt(3 / 16 / found.settings.test)


@each_world
@pytest.mark.parametrize("metric", ["mig", "mcc", "r2", "disentanglement_score"])
def test_more_noise_is_worse(cells, metric, world):
    scores = [cells(metric, world, encoder).score for encoder in ("noisy 0.1", "noisy 0.3", "noisy 1")]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("level", [0.1, 0.3, 1.0])
def test_noise_of_a_known_level_has_its_correlation(cells, level):
    """Corr(v, v + s ε) = 1 / √(1 + s²), with a standard error of at most 1 / √n for each of four factors."""
    found = cells("mcc", "uniform", f"noisy {level:g}").score.item()
    assert abs(found - 1 / math.sqrt(1 + level**2)) < 4 / math.sqrt(4 * GRID)


# The grid


def test_grid_is_tidy_and_in_order():
    grid = validation_grid(["mig", "mcc"], points=GRID)
    assert list(grid.columns) == ["metric", "world", "encoder", "score", "lower", "upper"]
    expected = itertools.product(("mig", "mcc"), WORLDS, ENCODERS)
    assert list(grid[["metric", "world", "encoder"]].itertuples(index=False, name=None)) == list(expected)
    assert (grid["lower"] <= grid["score"]).all() and (grid["score"] <= grid["upper"]).all()


def test_grid_is_the_same_for_the_same_seed_and_metric_by_metric():
    first, again = (validation_grid(["mig", "mcc"], points=GRID, generator=seeded(3)) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    alone = validation_grid(["mcc"], points=GRID, generator=seeded(3))
    pd.testing.assert_frame_equal(first[first["metric"] == "mcc"].reset_index(drop=True), alone)
    other = validation_grid(["mig"], points=GRID, generator=seeded(4))
    assert not other["score"].equals(first[first["metric"] == "mig"]["score"])


def test_grid_needs_a_whole_one():
    with pytest.raises(ValueError, match="points must be at least those of one grid, 576, got 500"):
        validation_grid(["mig"], points=500)


@pytest.fixture(scope="module")
def kept(root):
    path = root / "docs" / "_static" / "validation.csv"
    return pd.read_csv(path), json.loads(path.with_suffix(".json").read_text("utf8"))


def test_kept_grid_covers_every_metric_world_and_encoder(kept):
    table, record = kept
    named = {metric.__name__ for metric in METRICS} - {"mig_entropy", "udr"}
    named |= {"dci_completeness", "dci_informativeness"}
    assert set(itertools.product(named, WORLDS, ENCODERS)) == set(
        table[["metric", "world", "encoder"]].itertuples(index=False, name=None)
    )
    assert {"seed", "points", "presets", "versions", "hardware", "revision"} <= record.keys()


def test_kept_grid_is_what_its_record_says(kept):
    table, record = kept
    again = validation_grid(
        ["mig"],
        points=record["points"],
        preset=record["presets"]["mig"],
        generator=seeded(record["seed"]),
    )
    rows = table[table["metric"] == "mig"].reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, again, rtol=1e-5, atol=1e-8)  # written with six digits


def test_points_must_be_a_count():
    with pytest.raises(ValueError, match="points must be a"):
        validation_grid(["mig"], points=torch.ones(3))
