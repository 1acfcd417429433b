"""What users pass: arrays of every layout are taken, the rest is refused by a message that names the argument."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from unseam.advice import advise
from unseam.geometry import active_latents, column_cosine, cosine_matrix, jacobian, right_basis
from unseam.independence import hsic, lie_brackets
from unseam.inputs import as_floating, as_mask, as_tensor, check_choice, check_count, check_flag, check_number
from unseam.metrics import mcc
from unseam.theory import data_moments, data_thresholds, optimal_precision, sample_thresholds

GRAM = np.array([[4.0, 1.0], [1.0, 2.0]])


def read_only(array):
    copy = array.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS = {
    "list": lambda array: array.tolist(),
    "reversed": lambda array: array[::-1].copy()[::-1],
    "big-endian": lambda array: array.astype(">f8"),
    "long double": lambda array: array.astype(np.longdouble),
    "Fortran": np.asfortranarray,
    "read-only": read_only,
    "frame": pd.DataFrame,
    "nullable frame": lambda array: pd.DataFrame(array).astype("Float64"),
    "parameter": lambda array: torch.nn.Parameter(torch.from_numpy(array.copy())),
    "masked, none masked": np.ma.masked_array,
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_layout_gives_the_same_numbers(layout):
    given = as_floating("x", layout(GRAM))
    assert given.dtype == torch.float64
    assert given.tolist() == GRAM.tolist()


FUNCTIONS = {
    "right_basis": (right_basis, GRAM),
    "column_cosine": (column_cosine, GRAM),
    "optimal_precision": (optimal_precision, GRAM),
    "hsic": (hsic, np.random.default_rng(0).normal(size=(20, 2))),
    "jacobian": (lambda z: jacobian(torch.sin, z), np.random.default_rng(0).normal(size=(4, 2))),
    "mcc": (
        lambda codes: mcc(codes, np.arange(40).reshape(20, 2) % 3),
        np.random.default_rng(0).normal(size=(20, 2)),
    ),
}


@pytest.mark.parametrize("layout", ["reversed", "big-endian", "read-only", "frame"])
@pytest.mark.parametrize(("function", "array"), FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_functions_take_every_layout(function, array, layout):
    results = function(torch.from_numpy(array.copy())), function(LAYOUTS[layout](array))
    expected, found = (result if isinstance(result, torch.Tensor) else result[0] for result in results)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("abc", "x must hold numbers, got 'abc'"),
        (None, "x must hold numbers, got None"),
        ({"a": 1}, "x must hold numbers, got dict"),
        ([[1.0], [1.0, 2.0]], "x must hold numbers, got list"),
        (np.array(["a"]), "x must hold numbers, got <U1"),
        (np.array([1], "datetime64[s]"), r"x must hold numbers, got datetime64\[s\]"),
        (pd.DataFrame({"a": ["b"]}), "x must hold numbers, got "),
        (np.array([1j]), "x must be real, got complex128"),
        (torch.tensor([1j]), "x must be real, got torch.complex64"),
        (torch.eye(2).to_sparse(), "x must be a dense tensor, got one of layout torch.sparse_coo"),
        (torch.zeros(2, device="meta"), "x must be a tensor with values, got one on the device meta"),
        (np.ma.masked_array([1.0], [True]), "x must have no masked entries"),
        ([1.0, math.nan], "x must be finite, got 1 entries"),
        (torch.tensor([math.inf, math.nan]), "x must be finite, got 2 entries"),
    ],
)
def test_what_is_refused_names_the_argument(value, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        as_floating("x", value)


@pytest.mark.parametrize(
    ("shape", "sizes", "fits"),
    [
        ("(batch, latent)", (2, 3), True),
        ("(batch, latent)", (2, 0), False),
        ("(batch, latent)", (2,), False),
        ("(..., latent, latent)", (3, 3), True),
        ("(..., latent, latent)", (0, 3, 3), True),
        ("(..., latent, latent)", (4, 2, 3), False),
        ("(..., latent, latent)", (0, 0), False),
        ("(latent,) or (batch, latent)", (3,), True),
        ("(latent,) or (batch, latent)", (1, 2, 3), False),
        ("(batch, *data)", (2, 3, 4, 5), True),
        ("(batch, *data)", (2,), False),
        ("(batch, *data)", (2, 0), False),
    ],
)
def test_shapes(shape, sizes, fits):
    if fits:
        assert as_tensor("x", torch.zeros(sizes), shape).shape == sizes
    else:
        with pytest.raises(ValueError, match="x must have shape"):
            as_tensor("x", torch.zeros(sizes), shape)


def test_tensors_stay_as_they_are_and_integers_become_exact():
    given = torch.zeros(2, requires_grad=True)
    assert as_tensor("x", given) is given
    assert as_tensor("x", np.array([2**63 + 1], np.uint64)).dtype == torch.float64
    for kind in (np.uint16, np.uint32, np.uint64):  # of which torch has few operations
        assert as_tensor("x", np.array([7], kind)).dtype == torch.int64
    assert as_floating("x", torch.ones(1, dtype=torch.bfloat16)).dtype == torch.float32
    assert as_floating("x", [True, False]).tolist() == [1.0, 0.0]


def test_masks_keep_their_kind():
    assert as_mask("active", np.array([True, False])).dtype == torch.bool
    assert as_mask("active", [2, 0]).tolist() == [2, 0]
    with pytest.raises(ValueError, match="active must be a mask or indices, got torch.float64"):
        as_mask("active", [0.5])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "beta must be positive, got 0$"),
        (math.nan, "beta must be positive, got nan"),
        (math.inf, "beta must be finite, got inf"),
        (0.0, "beta must be positive, got 0.0$"),
        (np.float32(-0.5), "beta must be positive, got -0.5$"),
        (True, "beta must be a number, got True"),
        ("1", "beta must be a number, got '1'"),
        (1 + 0j, "beta must be a number, got "),
        (np.ones(1), r"beta must be a number, got float64 of shape \(1,\)"),
        (np.ones(1, int), r"beta must be a number, got int64 of shape \(1,\)"),
        (torch.ones(2, dtype=torch.int64), "beta must be a number, got "),
        (torch.zeros((), device="meta"), "beta must be a number, got "),
    ],
)
def test_numbers(value, message):
    with pytest.raises(ValueError, match=message):
        check_number("beta", value, above=0)
    assert check_number("beta", torch.tensor(0.5), above=0) == 0.5
    assert check_number("beta", torch.tensor(2), above=0) == check_number("beta", np.int64(2), above=0) == 2.0
    assert check_number("beta", np.array(0.5), above=0) == 0.5


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"least": 0}, "share must not be negative, got 7"),
        ({"least": 0, "most": 1}, r"share must lie in \[0, 1\], got 7"),
        ({"above": 0, "below": 1}, r"share must lie in \(0, 1\), got 7"),
        ({"below": 1}, "share must be below 1, got 7"),
        ({"most": 2}, "share must be at most 2, got 7"),
        ({"above": 9}, "share must be above 9, got 7"),
    ],
)
def test_bounds_are_written_as_intervals(bounds, message):
    value = -7 if bounds == {"least": 0} else 7
    with pytest.raises(ValueError, match=message.replace("got 7", f"got {value}")):
        check_number("share", value, **bounds)


@pytest.mark.parametrize("value", [1.0, True, "1", None, torch.tensor(True)])
def test_counts_are_integers(value):
    with pytest.raises(ValueError, match="points must be an integer, got"):
        check_count("points", value)
    assert check_count("points", torch.tensor(3)) == 3
    assert check_count("points", 4, 1, 4) == 4 and check_count("points", 1, 1, 4) == 1
    with pytest.raises(ValueError, match="points must be from 1 to 4, got 5"):
        check_count("points", 5, 1, 4)


def test_choices_and_flags():
    with pytest.raises(ValueError, match="form must be 'a', 'b' or 'c', got 3"):
        check_choice("form", 3, ("a", "b", "c"))
    with pytest.raises(ValueError, match="data must be True or False, got 'yes'"):
        check_flag("data", "yes")


# Results that were wrong


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ([[1.0, 7.3], [0.0, 1.0]], "pullback must be symmetric"),
        ([[1.0, 5.0], [5.0, 1.0]], "pullback must be positive semi-definite"),
        ([[-1.0, 0.5], [0.5, 1.0]], "pullback must be positive semi-definite"),
    ],
)
def test_cosines_are_of_gram_matrices(metric, message):
    for function in (column_cosine, cosine_matrix):
        with pytest.raises(ValueError, match=message):
            function(torch.tensor(metric))


def test_cosines_do_not_round_above_one():
    column = torch.rand(9, 1, generator=torch.Generator().manual_seed(0)).expand(9, 4) * torch.tensor(
        [1, 3, 7, 0.1]
    )
    for scale in torch.logspace(-6, 6, 25):
        metric = (scale * column).mT @ (scale * column)
        assert float(column_cosine(metric)) <= 1
        assert float(cosine_matrix(metric).max()) <= 1


def test_a_threshold_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="threshold must be a number, got nan"):
        active_latents(torch.zeros(3, 2), torch.ones(3, 2), threshold=math.nan)


def test_advice_refuses_complex_data():
    with pytest.raises(ValueError, match="target must be real, got complex128"):
        advise(np.ones((3, 2)) * 1j)


def test_brackets_of_mixed_precision_are_those_of_double():
    metric, derivative = torch.diag(torch.tensor([9.0, 4.0, 1.0])), torch.ones(3, 3, 3)
    expected = lie_brackets(metric.double(), derivative.double())
    for pair in ((metric, derivative.double()), (metric.double(), derivative)):
        torch.testing.assert_close(lie_brackets(*pair), expected)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_few_points_have_the_thresholds_of_their_covariance(likelihood):
    x = torch.rand(12, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 3] = 0.5  # constant
    expected = data_thresholds(data_moments([x]), likelihood)
    found = sample_thresholds(x, likelihood)
    assert found.shape == (30,)
    assert int((found > 0).sum()) == 11
    torch.testing.assert_close(found[:11], expected[:11], rtol=1e-9, atol=0)


def test_advice_on_few_large_pictures_needs_no_matrix_of_their_pixels():
    x = torch.rand(20, 3, 128, 128, generator=torch.Generator().manual_seed(0))
    found = advise(x)  # 49 152 values: their covariance would take 19 GB
    assert (found.points, len(found.thresholds), int((found.thresholds > 0).sum())) == (20, 49152, 19)
