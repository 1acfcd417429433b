"""Kinds of tables that codes and factors come as: every metric takes them, or says which argument it does not take."""

import numpy as np
import pandas as pd
import pytest
import torch

from unseam.metrics import evaluate
from unseam.metrics._inputs import check_inputs
from unseam.metrics.evaluate import METRICS
from unseam.metrics.udr import udr

SUPERVISED = [metric for metric in METRICS if metric is not udr]
PRESETS = {"dci": "fast", "factor_vae_score": "fast", "beta_vae_score": "fast", "mig_entropy": "fast"}
POINTS = 60
BITS = np.random.default_rng(0).integers(0, 2, (POINTS, 2))
CODES = BITS + 0.4 * np.random.default_rng(1).normal(size=(POINTS, 2))
WORDS = np.array(["heart", "square"])[BITS]
KINDS = {
    "bool": BITS.astype(bool),
    "bool tensor": torch.as_tensor(BITS.astype(bool)),
    "int8 over its range": np.where(BITS == 1, 127, -128).astype(np.int8),
    "int16 over its range": np.where(BITS == 1, 2**15 - 1, -(2**15)).astype(np.int16),
    "uint8": BITS.astype(np.uint8),
    "uint16": BITS.astype(np.uint16),
    "uint32": BITS.astype(np.uint32),
    "uint64": BITS.astype(np.uint64),
    "uint32 tensor": torch.as_tensor(BITS.astype(np.uint32)),
    "backwards": np.ascontiguousarray(BITS[::-1])[::-1],
    "other byte order": BITS.astype(">i4"),
    "list": BITS.tolist(),
    "words": WORDS,
    "objects": WORDS.astype(object),
    "frame of words": pd.DataFrame(WORDS, columns=["a", "b"]),
    "frame of categories": pd.DataFrame(WORDS, columns=["a", "b"]).astype("category"),
    "frame of booleans": pd.DataFrame(BITS.astype(bool)),
    "frame of both": pd.DataFrame({"a": WORDS[:, 0], "b": BITS[:, 1].astype(np.uint16)}),
    "frame of nullable integers": pd.DataFrame(BITS).astype("Int64"),
}


def scores(codes, factors):
    """Of every metric, each called itself."""
    variance = torch.full((POINTS, 2), 0.1, dtype=torch.float64)
    return torch.stack(
        [
            metric(codes, factors, variance=variance, preset=PRESETS.get(metric.__name__, "dlib")).score
            for metric in SUPERVISED
        ]
    )


@pytest.fixture(scope="module")
def expected():
    found = scores(CODES, BITS)
    assert found.dtype == torch.float64
    return found


@pytest.mark.parametrize("factors", KINDS.values(), ids=KINDS.keys())
def test_factors_of_any_kind(factors, expected):
    torch.testing.assert_close(scores(CODES, factors), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "codes",
    [
        pd.DataFrame(CODES),
        np.ascontiguousarray(CODES[::-1])[::-1],
        CODES.astype(">f8"),
        np.asfortranarray(CODES),
    ],
    ids=["frame", "backwards", "other byte order", "columns"],
)
def test_codes_of_any_kind(codes, expected):
    torch.testing.assert_close(scores(codes, BITS), expected, rtol=1e-9, atol=1e-9)


def test_scores_of_single_precision_are_double():
    assert scores(CODES.astype(np.float32), BITS).dtype == torch.float64
    variance = torch.full((POINTS, 2), 0.1)
    for metric in SUPERVISED:
        preset = PRESETS.get(metric.__name__, "dlib")
        found = metric(CODES.astype(np.float32), BITS, variance=variance, preset=preset)
        assert {part.dtype for part in (found.score, *found.interval)} == {torch.float64}
    both = np.stack([CODES, -CODES]).astype(np.float32)
    assert udr(both, torch.ones(2, 2)).score.dtype == torch.float64


@pytest.mark.parametrize("metric", [*SUPERVISED[:-3], evaluate], ids=lambda metric: metric.__name__)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": WORDS}, "codes must hold numbers"),
        ({"codes": pd.DataFrame(WORDS)}, "codes must hold numbers, got"),
        ({"codes": BITS * 1j}, "codes must be real, got complex128"),
        ({"generator": 3}, "generator must be a torch.Generator .* got 3"),
        ({"factors": pd.DataFrame(WORDS).mask(BITS > 0)}, "factors must be finite"),
        ({"factors": BITS.astype("datetime64[s]")}, "factors must hold numbers"),
        ({"factors": WORDS, "discrete": [True, False]}, "discrete must be true for factor 1"),
        ({"variance": WORDS}, "variance must hold numbers"),
    ],
)
def test_what_is_not_taken_is_named(metric, change, message):
    given = {"codes": CODES, "factors": BITS, "variance": np.ones((POINTS, 2))} | change
    with pytest.raises(ValueError, match=message):
        metric(given.pop("codes"), given.pop("factors"), **given)


def test_which_columns_of_a_frame_are_discrete():
    frame = pd.DataFrame({"shape": ["b", "a", "b"], "x": [0.5, 1.0, 2.0], "flag": [True, False, True]})
    found = check_inputs(torch.zeros(3, 1), frame)
    assert found.discrete == (True, False, True)
    assert found.factors.tolist() == [[1, 0.5, 1], [0, 1.0, 0], [1, 2.0, 1]]
