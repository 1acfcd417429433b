"""Closest signed permutations against brute force, SciPy's assignment and the published integer programme."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp

from unseam.geometry import signed_permutation
from unseam.geometry.permutation import _by_bids, _by_scipy, _by_subsets

F64 = {"dtype": torch.float64}


def orthogonal(points, latent, generator):
    return torch.linalg.qr(torch.randn(points, latent, latent, generator=generator, **F64)).Q


def distance(matrix, permutation):
    """The objective of Eq. S72."""
    return (matrix - permutation).abs().sum((-2, -1))


def assert_signed_permutations(found):
    assert set(found.unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert (found.abs().sum(-1) == 1).all()
    assert (found.abs().sum(-2) == 1).all()


def by_brute_force(matrix):
    latent = len(matrix)
    return min(
        distance(matrix, torch.diag(torch.tensor(signs, **F64))[list(order)]).item()
        for order in itertools.permutations(range(latent))
        for signs in itertools.product([1.0, -1.0], repeat=latent)
    )


def by_integer_programme(matrix):
    """Eq. S75 as it stands: variables P⁺, P⁻ (binary) and D (continuous), each latent × latent."""
    latent = len(matrix)
    size = latent**2
    identity, zero = np.eye(size), np.zeros((size, size))
    rows = np.kron(np.eye(latent), np.ones(latent))
    columns = np.kron(np.ones(latent), np.eye(latent))
    flat = np.asarray(matrix).ravel()
    constraints = [
        LinearConstraint(np.hstack([identity, -identity, -identity]), ub=flat),
        LinearConstraint(np.hstack([-identity, identity, -identity]), ub=-flat),
        LinearConstraint(np.hstack([rows, rows, zero[:latent]]), 1, 1),
        LinearConstraint(np.hstack([columns, columns, zero[:latent]]), 1, 1),
    ]
    result = milp(
        np.repeat([0.0, 0.0, 1.0], size),
        constraints=constraints,
        integrality=np.repeat([1, 1, 0], size),
        bounds=Bounds(0, np.repeat([1, 1, np.inf], size)),
    )
    assert result.success
    return result.fun


def test_a_signed_permutation_is_its_own():
    matrix = torch.tensor([[0.0, -1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]])
    assert signed_permutation(matrix).tolist() == matrix.tolist()


@pytest.mark.parametrize("angle", [0.1, 0.7, 0.9, 2.0, 3.0, 4.0, 5.5])
def test_rotations_of_the_plane(angle):
    """The closest is the nearest turn by quarters."""
    quarter = round(angle / (math.pi / 2)) * math.pi / 2
    turn, expected = (
        torch.tensor([[math.cos(by), -math.sin(by)], [math.sin(by), math.cos(by)]], **F64)
        for by in (angle, quarter)
    )
    assert signed_permutation(turn).tolist() == expected.round().tolist()


@pytest.mark.parametrize("latent", [1, 2, 3, 4])
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_any_matrix_against_brute_force(generator, latent, scale):
    matrix = scale * torch.randn(6, latent, latent, generator=generator, **F64)
    found = signed_permutation(matrix)
    assert_signed_permutations(found)
    expected = torch.tensor([by_brute_force(one) for one in matrix], **F64)
    torch.testing.assert_close(distance(matrix, found), expected)


@pytest.mark.parametrize("latent", [2, 3, 5, 7])
@pytest.mark.parametrize("kind", ["orthogonal", "any"])
def test_against_the_integer_programme(generator, latent, kind):
    matrix = orthogonal(4, latent, generator)
    if kind == "any":
        matrix = 2 * torch.randn(4, latent, latent, generator=generator, **F64)
    expected = torch.tensor([by_integer_programme(one) for one in matrix], **F64)
    torch.testing.assert_close(distance(matrix, signed_permutation(matrix)), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("latent", [1, 2, 3, 5, 6, 7, 8, 10, 13, 20])
def test_against_scipy_assignment(generator, latent):
    matrix = orthogonal(60, latent, generator)
    found = signed_permutation(matrix)
    assert_signed_permutations(found)
    for one, permutation in zip(matrix.numpy(), found.numpy(), strict=True):
        rows, columns = linear_sum_assignment(np.abs(one), maximize=True)
        expected = np.zeros_like(one)
        expected[rows, columns] = np.sign(one[rows, columns])
        np.testing.assert_array_equal(permutation, expected)


@pytest.mark.parametrize("latent", [13, 20, 33])
def test_bids_find_the_assignment_of_scipy(generator, latent):
    weight = orthogonal(100, latent, generator).abs()
    # nearly diagonal, as those of a trained decoder, and far from it
    order = torch.randperm(latent, generator=generator)
    weight[:50] = (weight[:50] / 3 + torch.eye(latent)[order]).clamp(max=1)
    torch.testing.assert_close(_by_bids(weight), _by_scipy(weight), rtol=0, atol=0)


@pytest.mark.parametrize("values", [1, 2, 3])
@pytest.mark.parametrize(
    ("solve", "latent"),
    [(solve, latent) for solve in (_by_subsets, _by_scipy, _by_bids) for latent in (1, 2, 4, 7)]
    + [(_by_bids, 13), (_by_bids, 24)],
)
def test_every_solver_is_exact_with_ties(generator, solve, latent, values):
    weight = torch.randint(0, values, (80, latent, latent), generator=generator).double()
    columns = solve(weight)
    assert (columns.sort(-1).values == torch.arange(latent)).all()
    found = weight.gather(-1, columns.unsqueeze(-1)).sum((-2, -1))
    expected = [one[linear_sum_assignment(one, maximize=True)].sum() for one in weight.numpy()]
    assert found.tolist() == expected


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9).flatmap(
        lambda latent: arrays(np.float64, (2, latent, latent), elements=st.floats(-2, 2, width=32))
    )
)
def test_no_assignment_is_better(matrix):
    found = signed_permutation(matrix)
    assert_signed_permutations(found)
    gain = np.minimum(np.abs(matrix), 1)
    for one, permutation, weight in zip(matrix, found.numpy(), gain, strict=True):
        best = np.abs(one).sum() + len(one) - 2 * weight[linear_sum_assignment(weight, maximize=True)].sum()
        assert np.abs(one - permutation).sum() == pytest.approx(best, abs=1e-12)


def test_closest_in_the_frobenius_norm_for_orthogonal_matrices(generator):
    matrix = orthogonal(10, 4, generator)
    found = (matrix - signed_permutation(matrix)).norm(dim=(1, 2))
    orders = torch.eye(4, **F64)[torch.tensor(list(itertools.permutations(range(4))))]
    signs = torch.tensor(list(itertools.product([1.0, -1.0], repeat=4)), **F64)
    every = (signs[:, None, :, None] * orders).reshape(-1, 4, 4)
    expected = (matrix[:, None] - every).norm(dim=(2, 3)).amin(1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("latent", [3, 8])
def test_follows_signed_permutations_of_rows_and_columns(generator, latent):
    matrix = orthogonal(10, latent, generator)
    left, right = (signed_permutation(orthogonal(1, latent, generator))[0] for _ in range(2))
    torch.testing.assert_close(
        signed_permutation(left @ matrix @ right), left @ signed_permutation(matrix) @ right, rtol=0, atol=0
    )


def test_zero_entries_count_as_positive():
    assert signed_permutation(torch.zeros(2, 2)).sum() == 2
    assert signed_permutation(-torch.zeros(8, 8)).sum() == 8


@pytest.mark.parametrize("latent", [4, 8])
def test_leading_axes_types_and_parts(generator, latent, monkeypatch):
    matrix = orthogonal(12, latent, generator)
    expected = signed_permutation(matrix)
    assert signed_permutation(matrix.float()).dtype == torch.float32
    torch.testing.assert_close(
        signed_permutation(matrix.view(3, 4, latent, latent).numpy()), expected.view(3, 4, latent, latent)
    )
    torch.testing.assert_close(signed_permutation(matrix[0]), expected[0])
    monkeypatch.setattr("unseam.geometry.permutation._AT_ONCE", {"cpu": 5})
    torch.testing.assert_close(signed_permutation(matrix), expected)
    assert signed_permutation(matrix[:0]).shape == (0, latent, latent)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.zeros(3), r"matrix must have shape \(..., latent, latent\), got shape \(3,\)"),
        (torch.zeros(4, 3, 2), r"matrix must have shape \(..., latent, latent\), got shape \(4, 3, 2\)"),
        (torch.zeros(0, 0), r"matrix must have shape \(..., latent, latent\), got shape \(0, 0\)"),
        (torch.eye(2, dtype=torch.complex64), "matrix must be real, got torch.complex64"),
        (torch.tensor([[math.nan]]), "matrix must be finite, got 1 entries that are NaN or infinite"),
    ],
)
def test_bad_matrices_are_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        signed_permutation(matrix)
