"""What the information, robustness and correlation metrics have in common."""

import dataclasses
import importlib

import numpy as np
import pytest
import torch

from unseam import metrics
from unseam.metrics import (
    IrsSettings,
    MccSettings,
    MigEntropySettings,
    MigSettings,
    MigSupSettings,
    ModularitySettings,
    R2Settings,
    irs,
    mcc,
    mig,
    mig_entropy,
    mig_sup,
    modularity,
    r2,
)

BATCH = 160
CASES = {
    "mig": (mig, MigSettings(points=100)),
    "mig (knn)": (mig, MigSettings(points=100, information="knn")),
    "mig_sup": (mig_sup, MigSupSettings(points=100)),
    "mig_sup (code)": (mig_sup, MigSupSettings(points=100, normalisation="code")),
    "mig_entropy": (mig_entropy, MigEntropySettings(samples=50, mixture=100)),
    "modularity": (modularity, ModularitySettings(points=100)),
    "irs": (irs, IrsSettings(points=100)),
    "mcc": (mcc, MccSettings(points=100)),
    "mcc (spearman)": (mcc, MccSettings(points=100, correlation="spearman")),
    "r2": (r2, R2Settings(train=60, test=40)),
    "r2 (nonlinear)": (r2, R2Settings(train=60, test=40, form="nonlinear")),
    "r2 (codes)": (r2, R2Settings(train=60, test=40, form="nonlinear", direction="codes")),
}
each_metric = pytest.mark.parametrize(("metric", "settings"), CASES.values(), ids=CASES.keys())
# In the entropy form noise belongs to a code's place: its own test allows for that.
NOT_SAMPLED = {name: case for name, case in CASES.items() if case[0] is not mig_entropy}
each_function = pytest.mark.parametrize("metric", [mig, mig_sup, mig_entropy, modularity, irs, mcc, r2])


@pytest.fixture
def factors(generator):
    return torch.stack([torch.randint(size, (BATCH,), generator=generator) for size in (3, 7)], 1)


@pytest.fixture
def codes(generator, factors):
    mixing = torch.randn(3, 2, 4, generator=generator, dtype=torch.float64)
    return factors.double() @ mixing + 0.3 * torch.randn(
        3, BATCH, 4, generator=generator, dtype=torch.float64
    )


@pytest.fixture
def variance(codes, generator):
    return 0.1 + torch.rand(codes.shape, generator=generator, dtype=torch.float64)


def numbers(result):
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, tuple):
        for part in result:
            yield from numbers(part)


@each_metric
def test_a_member_is_the_same_alone(metric, settings, codes, factors, variance):
    stacked = metric(codes, factors, variance=variance, preset=settings, generator=seeded())
    assert stacked.score.shape == (3,)
    for member in range(3):
        alone = metric(codes[member], factors, variance=variance[member], preset=settings, generator=seeded())
        assert alone.settings == stacked.settings
        pairs = zip(numbers(alone), numbers(stacked), strict=True)
        for found, expected in pairs:
            torch.testing.assert_close(found, expected[member], rtol=1e-12, atol=1e-12)


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


@each_metric
def test_first_come_score_and_interval_and_last_the_settings(metric, settings, codes, factors, variance):
    found = metric(codes, factors, variance=variance, preset=settings)
    assert found._fields[:2] == ("score", "interval")
    assert found._fields[-1] == "settings"
    assert type(found.settings) is type(settings)
    assert (found.interval.error > 0).all()
    torch.testing.assert_close((found.interval.lower + found.interval.upper) / 2, found.score)


@each_metric
def test_other_points_give_another_estimate(metric, settings, codes, factors, variance):
    first, same, other = (
        metric(codes, factors, variance=variance, preset=settings, generator=seeded(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.score, same.score)
    assert not torch.equal(first.score, other.score)
    # Student's t of 19 degrees exceeds six once in a hundred thousand times.
    spread = torch.hypot(first.interval.error, other.interval.error)
    assert ((first.score - other.score).abs() <= 6 * spread).all()


@pytest.mark.parametrize(("metric", "settings"), NOT_SAMPLED.values(), ids=NOT_SAMPLED.keys())
def test_invariant_to_order_and_sign_of_codes(metric, settings, codes, factors):
    order = [3, 1, 0, 2]
    sign = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    found = metric(codes[..., order] * sign, factors, preset=settings)
    torch.testing.assert_close(found.score, metric(codes, factors, preset=settings).score)


@each_metric
def test_invariant_to_scale_of_codes(metric, settings, codes, factors, variance):
    """Of each code on its own; for a code's weight or activity, of all by a factor that keeps them active."""
    scale = torch.tensor([1.0, 3.0, 10.0, 30.0], dtype=torch.float64)
    scale = torch.full_like(scale, 8.0) if metric is irs else scale
    expected = metric(codes, factors, variance=variance, preset=settings)
    found = metric(codes * scale, factors, variance=variance * scale**2, preset=settings)
    torch.testing.assert_close(found.score, expected.score)


@each_metric
def test_arrays_and_single_precision(metric, settings, codes, factors, variance):
    expected = metric(codes, factors, variance=variance, preset=settings)
    arrays = metric(codes.numpy(), factors.numpy(), variance=variance.numpy(), preset=settings)
    assert torch.equal(arrays.score, expected.score)
    assert expected.score.dtype == torch.float64
    single = metric(codes.float(), factors, variance=variance.float(), preset=settings)
    torch.testing.assert_close(single.score, expected.score, rtol=0, atol=1e-5)


@each_metric
@pytest.mark.parametrize("batch", [2, 3, 19])
def test_few_points(metric, settings, codes, factors, variance, batch):
    found = metric(codes[:, :batch], factors[:batch], variance=variance[:, :batch], preset=settings)
    assert all(part.isnan().all() for part in found.interval)
    assert all(part.isfinite().all() for part in numbers(found._replace(interval=())))


@each_metric
def test_one_point_is_refused(metric, settings, codes, factors, variance):
    with pytest.raises(ValueError, match="codes must have at least 2 points"):
        metric(codes[:, :1], factors[:1], variance=variance[:, :1], preset=settings)


@each_metric
def test_constant_codes_and_factors_give_numbers(metric, settings, codes, factors, variance):
    codes = codes.clone()
    codes[0, :, 1] = codes[1] = 0.1
    table = torch.cat([factors, torch.ones_like(factors[:, :1])], 1)
    found = metric(codes, table, variance=variance, preset=settings)
    assert all(part.isfinite().all() for part in numbers(found))


@each_metric
@pytest.mark.parametrize("discrete", [True, False])
def test_one_code_and_one_factor(metric, settings, codes, factors, variance, discrete):
    found = metric(
        codes[..., :1], factors[:, :1], discrete=[discrete], variance=variance[..., :1], preset=settings
    )
    assert found.score.isfinite().all()


@each_metric
def test_values_that_occur_once(metric, settings, codes, factors, variance):
    once = torch.arange(BATCH)[:, None]
    found = metric(codes, once, variance=variance, preset=settings)
    assert all(part.isfinite().all() for part in numbers(found))


@each_metric
def test_members_in_parts_are_the_same(metric, settings, codes, factors, variance, monkeypatch):
    """With room for few numbers at once, every loop over parts takes more than one."""
    expected = metric(codes, factors, variance=variance, preset=settings)

    def small(count, numbers, device):
        most = max(1, 2**10 // max(numbers, 1))
        return (slice(start, start + most) for start in range(0, count, most))

    for module in ("mutual_information", "mig_entropy", "irs", "mcc", "r2"):
        monkeypatch.setattr(importlib.import_module(f"unseam.metrics.{module}"), "row_slices", small)
    found = metric(codes, factors, variance=variance, preset=settings)
    torch.testing.assert_close(found.score, expected.score, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.interval.error, expected.interval.error, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@each_metric
def test_a_device_gives_the_same(metric, settings, codes, factors, variance):
    expected = metric(codes, factors, variance=variance, preset=settings)
    found = metric(codes.cuda(), factors, variance=variance.cuda(), preset=settings)
    for there, here in zip(numbers(found), numbers(expected), strict=True):
        assert there.is_cuda
        torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-9)


DRAWN, FITTED = {"points": 10_000}, {"train": 10_000, "test": 5_000}
STUDY = {
    "BetaVaeSettings": FITTED | {"batch": 64, "bins": 20},
    "DciSettings": FITTED
    | {
        "splits": "exact",
        "bins": 128,
        "candidates": 32,
        "precision": "float64",
        "rounds": 100,
        "depth": 3,
        "rate": 0.1,
    },
    "DisentanglementSettings": {"points": None, "train_share": 0.8, "neighbours": 5, "form": "normalised"},
    "ExplicitnessSettings": FITTED | {"penalty": 1.0, "bins": 20},
    "FactorVaeSettings": FITTED | DRAWN | {"batch": 64, "prune": 0.05, "bins": 20},
    "IrsSettings": DRAWN | {"bins": 20, "quantile": 0.99},
    "MccSettings": DRAWN | {"correlation": "pearson"},
    "MigSettings": DRAWN | {"bins": 20, "information": "binned", "neighbours": 3},
    "MigEntropySettings": {"samples": 10_000, "mixture": None, "bins": 20, "excluded": ()},
    "MigSupSettings": DRAWN | {"bins": 20, "normalisation": "factor", "active_variance": 0.01},
    "ModularitySettings": DRAWN | {"bins": 20},
    "PairwiseInformationSettings": DRAWN | {"bins": 20},
    "R2Settings": FITTED | {"form": "linear", "direction": "factors", "neighbours": 5},
    "SapSettings": FITTED | {"penalty": 0.01},
    "TotalCorrelationSettings": DRAWN,
    "UdrSettings": {
        "points": 1000,
        "similarity": "lasso",
        "alpha": 0.1,
        "informative_kl": 0.01,
        "average": "sides",
    },
}
FAST = {
    "DciSettings": {"splits": "binned", "precision": "float32"},
    "DisentanglementSettings": {"points": 5000},
    "FactorVaeSettings": {"train": 2000, "test": 1000},
    "MigEntropySettings": {"samples": 1000, "mixture": 5000},
    "UdrSettings": {"points": 500},
}


@pytest.mark.parametrize("name", STUDY)
def test_presets_are_those_that_stored_scores_name(name):
    """Scores are compared by the name of their preset, so that its numbers stay what they were."""
    kind, numbers = getattr(metrics, name), STUDY[name]
    assert dataclasses.asdict(kind.resolve("dlib")) == numbers
    changed = FAST.get(name) or {key: value // 5 for key, value in numbers.items() if key in (DRAWN | FITTED)}
    assert dataclasses.asdict(kind.resolve("fast")) == numbers | changed


@each_function
def test_presets(metric, codes, factors, variance):
    for preset in ("dlib", "fast"):
        found = metric(codes, factors, variance=variance, preset=preset)
        used = dataclasses.asdict(found.settings)
        assert sum(used.get(name) or 0 for name in ("points", "samples", "train", "test")) == BATCH
    with pytest.raises(ValueError, match="preset must be one of dlib, fast, got 'best'"):
        metric(codes, factors, variance=variance, preset="best")


@each_function
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": torch.full((BATCH, 2), torch.nan)}, "codes must be finite"),
        ({"codes": torch.zeros(BATCH)}, "codes must have shape"),
        ({"factors": np.zeros((BATCH + 1, 2))}, f"got {BATCH} codes and {BATCH + 1} factors"),
        ({"factors": torch.full((BATCH, 2), torch.nan)}, "factors must be finite"),
        ({"discrete": [True]}, "discrete must have one entry per factor \\(2\\)"),
    ],
)
def test_bad_input_is_named(metric, codes, factors, variance, change, message):
    given = {"codes": codes, "factors": factors, "variance": variance} | change
    if "codes" in change:
        given["variance"] = torch.ones(given["codes"].shape)
    with pytest.raises(ValueError, match=message):
        metric(given.pop("codes"), given.pop("factors"), **given)
