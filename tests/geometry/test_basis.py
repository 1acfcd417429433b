"""Right singular basis from pullbacks, Jacobians and decoders."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

import unseam.geometry.basis as basis_module
from unseam.geometry import (
    degenerate_points,
    jacobian,
    jacobian_basis,
    local_basis,
    pullback,
    restrict,
    restricted_basis,
    right_basis,
)
from unseam.geometry._jacobi import one_sided, two_sided

F64 = {"dtype": torch.float64}
CONDITIONS = [(torch.float64, 1e6), (torch.float64, 1e3), (torch.float32, 1e4), (torch.float32, 30.0)]


def orthonormal(*shape, generator):
    return torch.linalg.qr(torch.randn(*shape, generator=generator, **F64)).Q


def conditioned(generator, condition, *, points=7, data=30, latent=5):
    """Matrices U S Vᵀ, their singular values and their right vectors."""
    values = torch.logspace(0, -math.log10(condition), latent, **F64)
    vectors = orthonormal(points, latent, latent, generator=generator)
    left = orthonormal(points, data, latent, generator=generator)
    return left * values @ vectors.mT, values, vectors


def canonical_signs(vectors):
    largest = vectors.abs().argmax(-2, keepdim=True)
    return vectors * vectors.gather(-2, largest).sign()


def assert_basis(found, values, vectors, *, tolerance):
    dtype = found.singular_values.dtype
    expected = values.expand_as(found.singular_values).to(dtype)
    torch.testing.assert_close(found.singular_values, expected, rtol=tolerance, atol=0)
    torch.testing.assert_close(
        found.right_vectors, canonical_signs(vectors).to(dtype), rtol=0, atol=10 * tolerance
    )


class Logistic:
    """The Fisher weight of Bernoulli logits."""

    def fisher_weight(self, output):
        return output.sigmoid() * (1 - output.sigmoid())


# Closed forms and references


@pytest.mark.parametrize("latent", [1, 2, 3, 5, 16, 33, 40])
def test_known_singular_values_and_vectors(generator, latent):
    columns, values, vectors = conditioned(generator, 10.0, data=50, latent=latent)
    assert_basis(right_basis(columns.mT @ columns), values, vectors, tolerance=1e-12)
    assert_basis(jacobian_basis(columns), values, vectors, tolerance=1e-12)


def test_against_scipy(generator):
    columns = torch.randn(6, 9, 4, generator=generator, **F64)
    found, direct = right_basis(columns.mT @ columns), jacobian_basis(columns)
    for index, matrix in enumerate(columns.numpy()):
        _, values, transposed = scipy.linalg.svd(matrix, full_matrices=False)
        expected = torch.as_tensor(values), canonical_signs(torch.as_tensor(transposed.T))
        for basis in (found, direct):
            torch.testing.assert_close(basis.singular_values[index], expected[0], rtol=1e-12, atol=0)
            torch.testing.assert_close(basis.right_vectors[index], expected[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("latent", [1, 2, 3, 5, 10, 16])
def test_rotations_against_lapack(generator, latent):
    """The way of a CUDA device, taken here on the processor."""
    columns = torch.randn(20, 2 * latent, latent, generator=generator, **F64)
    gram = columns.mT @ columns
    eigenvalues, vectors = two_sided(gram)
    expected = torch.linalg.eigvalsh(gram)
    identity = torch.eye(latent, **F64).expand_as(gram)
    torch.testing.assert_close(eigenvalues.sort(-1).values, expected, rtol=1e-11, atol=0)
    torch.testing.assert_close(vectors.mT @ vectors, identity, rtol=0, atol=1e-13)
    torch.testing.assert_close(
        vectors * eigenvalues.unsqueeze(-2) @ vectors.mT, gram, rtol=0, atol=1e-12 * latent
    )
    values, right = one_sided(columns)
    torch.testing.assert_close(values.sort(-1).values, expected.sqrt(), rtol=1e-11, atol=0)
    torch.testing.assert_close(right.mT @ right, identity, rtol=0, atol=1e-13)
    torch.testing.assert_close((columns @ right).norm(dim=1), values, rtol=1e-12, atol=0)


def test_both_ways_give_the_same_basis(generator, monkeypatch):
    columns = torch.randn(9, 8, 4, generator=generator, **F64)
    lapack = right_basis(columns.mT @ columns), jacobian_basis(columns)
    monkeypatch.setattr(basis_module, "_graded_matrices", lambda values: torch.arange(len(values)))
    rotations = right_basis(columns.mT @ columns), jacobian_basis(columns)
    torch.testing.assert_close(rotations, lapack, rtol=1e-11, atol=1e-12)


def test_reconstructs_the_pullback(generator):
    columns = torch.randn(5, 9, 4, generator=generator, **F64)
    values, vectors = right_basis(columns.mT @ columns)
    torch.testing.assert_close(vectors * values.square().unsqueeze(-2) @ vectors.mT, columns.mT @ columns)


# Accuracy


@pytest.mark.parametrize(("dtype", "condition"), CONDITIONS)
@pytest.mark.parametrize("latent", [2, 5, 40])
def test_jacobian_basis_loses_nothing_to_the_condition(generator, dtype, condition, latent):
    columns, *_ = conditioned(generator, condition, data=60, latent=latent)
    columns = columns.to(dtype)  # rounding moves the small singular values: the truth is that of the rounded
    _, values, transposed = torch.linalg.svd(columns.double(), full_matrices=False)
    tolerance = 1e-7 if dtype == torch.float32 else 1e-11
    assert_basis(jacobian_basis(columns), values, transposed.mT, tolerance=tolerance)


@pytest.mark.parametrize(("dtype", "condition"), CONDITIONS)
@pytest.mark.parametrize("latent", [2, 5, 40])
def test_local_basis_of_ill_conditioned_decoders(generator, dtype, condition, latent):
    matrix = conditioned(generator, condition, points=1, data=60, latent=latent)[0][0].to(dtype)
    _, values, transposed = torch.linalg.svd(matrix.double(), full_matrices=False)
    found = local_basis(lambda z: z @ matrix.T, torch.zeros(3, latent, dtype=dtype))
    assert found.singular_values.dtype == dtype
    tolerance = torch.finfo(dtype).eps ** 0.5
    assert_basis(found, values, transposed.mT.expand(3, -1, -1), tolerance=tolerance)


@pytest.mark.parametrize(("dtype", "condition"), [(torch.float64, 1e6), (torch.float32, 1e4)])
def test_the_pullback_alone_would_lose_them(generator, dtype, condition):
    matrix, values, _ = conditioned(generator, condition, points=1)
    metric = pullback(lambda z: z @ matrix[0].to(dtype).T, torch.zeros(1, 5, dtype=dtype))
    error = (right_basis(metric).singular_values.double() / values - 1).abs().max()
    assert error > torch.finfo(dtype).eps ** 0.5


@pytest.mark.parametrize(("dtype", "condition", "redone"), [
    (torch.float64, 1e6, 3), (torch.float64, 1e3, 0), (torch.float32, 1e4, 3), (torch.float32, 10.0, 0),
])  # fmt: skip
def test_only_points_that_lost_are_redone(generator, monkeypatch, dtype, condition, redone):
    counts = [0]

    def counted(decoder, z, **options):
        counts.append(len(z))
        return jacobian(decoder, z, **options)

    monkeypatch.setattr(basis_module, "jacobian", counted)
    matrix = conditioned(generator, condition, points=1)[0][0].to(dtype)
    local_basis(lambda z: z @ matrix.T, torch.zeros(3, 5, dtype=dtype))
    assert sum(counts) == redone


@pytest.mark.parametrize("exact", [right_basis, jacobian_basis])
def test_short_columns_keep_their_digits(generator, exact):
    """Passive latents: the condition that counts is that of the columns at unit length."""
    columns = torch.randn(8, 20, 5, generator=generator, **F64)
    lengths = torch.tensor([1.0, 1e-12, 1e-30, 1e6, 1e-3], **F64)
    scaled = columns * lengths
    found = exact(scaled.mT @ scaled if exact is right_basis else scaled)
    # So far apart, singular values are what Gram and Schmidt leave of the columns, from long to short.
    order = [3, 0, 4, 1, 2]
    expected = torch.linalg.qr(columns[:, :, order]).R.diagonal(dim1=-2, dim2=-1).abs() * lengths[order]
    torch.testing.assert_close(found.singular_values, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(
        found.right_vectors, torch.eye(5, **F64)[:, order].expand(8, 5, 5), rtol=0, atol=1e-3
    )


def test_short_columns_cost_no_digits_even_under_squaring(generator):
    columns = torch.randn(8, 20, 5, generator=generator, **F64) * torch.tensor([1, 1e-9, 1e-20, 1e3, 1e-6])
    torch.testing.assert_close(
        right_basis(columns.mT @ columns), jacobian_basis(columns), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_any_scale(generator, scale):
    columns = torch.randn(4, 7, 3, generator=generator, **F64)
    expected = jacobian_basis(columns)
    for found in (jacobian_basis(columns * scale), right_basis((columns.mT @ columns) * scale**2)):
        torch.testing.assert_close(
            found.singular_values / scale, expected.singular_values, rtol=1e-11, atol=0
        )
        torch.testing.assert_close(found.right_vectors, expected.right_vectors, rtol=0, atol=1e-11)


# Canonical form


def test_sorted_with_positive_leading_entries(generator):
    columns = torch.randn(50, 6, 4, generator=generator, **F64)
    for values, vectors in (right_basis(columns.mT @ columns), jacobian_basis(columns)):
        assert (values.diff(dim=-1) <= 0).all()
        assert (vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True)) > 0).all()


def test_of_equally_large_entries_the_first_is_positive():
    """(1, -1)/√2 and (1, 1)/√2, whichever entry rounding makes larger."""
    for nudge in (-1e-12, 0.0, 1e-12):
        metric = torch.tensor([[2.0 + nudge, -1.0], [-1.0, 2.0 - nudge]], **F64)
        expected = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], **F64) / math.sqrt(2)
        torch.testing.assert_close(right_basis(metric).right_vectors, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_orthogonal_columns_keep_their_axes(generator, dtype):
    """Repeated singular values leave V open: columns that are orthogonal up to rounding are not turned."""
    columns = (3 * orthonormal(20, 9, 4, generator=generator)).to(dtype)
    found = right_basis(columns.mT @ columns)
    tolerance = 1e2 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        found.singular_values, torch.full((20, 4), 3.0, dtype=dtype), rtol=tolerance, atol=0
    )
    assert (found.right_vectors.abs().sum((-2, -1)) == 4).all()
    exact = right_basis(4 * torch.eye(3, dtype=dtype))
    torch.testing.assert_close(exact.right_vectors, torch.eye(3, dtype=dtype), rtol=0, atol=0)


def test_repeated_values_of_turned_columns_span_their_space(generator):
    vectors = orthonormal(3, 3, generator=generator)
    metric = vectors * torch.tensor([4.0, 4.0, 1.0], **F64) @ vectors.T
    found = right_basis(metric)
    torch.testing.assert_close(found.singular_values, torch.tensor([2.0, 2.0, 1.0], **F64))
    space = found.right_vectors[:, :2]
    torch.testing.assert_close(space @ space.T, vectors[:, :2] @ vectors[:, :2].T)


@pytest.mark.parametrize("latent", [3, 40])
def test_dead_latents_have_value_zero_and_their_own_axis(generator, latent):
    columns = torch.randn(4, 60, latent, generator=generator, **F64)
    columns[:, :, 1] = 0
    for found in (right_basis(columns.mT @ columns), jacobian_basis(columns)):
        torch.testing.assert_close(found.singular_values[:, -1], torch.zeros(4, **F64), rtol=0, atol=1e-6)
        axis = torch.eye(latent, **F64)[1].expand(4, latent)
        torch.testing.assert_close(found.right_vectors[:, :, -1], axis, rtol=0, atol=1e-12)


def test_dead_latents_are_no_reason_to_start_again(monkeypatch):
    monkeypatch.setattr(basis_module, "jacobian", None)
    found = local_basis(lambda z: z * torch.tensor([1.0, 0.0, 1e-15], **F64), torch.zeros(2, 3, **F64))
    torch.testing.assert_close(found.singular_values[0], torch.tensor([1.0, 1e-15, 0.0], **F64))


def test_zero_matrices():
    for found in (right_basis(torch.zeros(2, 3, 3)), jacobian_basis(torch.zeros(2, 4, 3))):
        assert found.singular_values.tolist() == [[0, 0, 0]] * 2
        assert found.right_vectors.tolist() == torch.eye(3).expand(2, 3, 3).tolist()


@pytest.mark.parametrize("latent", [4, 35])
def test_fewer_outputs_than_latents(generator, latent):
    columns = torch.randn(3, 2, latent, generator=generator, **F64)
    found = jacobian_basis(columns)
    torch.testing.assert_close(found.singular_values[:, :2], torch.linalg.svdvals(columns))
    torch.testing.assert_close(
        found.singular_values[:, 2:], torch.zeros(3, latent - 2, **F64), rtol=0, atol=1e-12
    )
    gram = found.right_vectors.mT @ found.right_vectors
    torch.testing.assert_close(gram, torch.eye(latent, **F64).expand_as(gram))


# Invariances, shapes, types


def test_rotation_of_the_data_changes_nothing(generator):
    columns = torch.randn(4, 9, 3, generator=generator, **F64)
    turned = orthonormal(9, 9, generator=generator) @ columns
    torch.testing.assert_close(jacobian_basis(turned), jacobian_basis(columns))


def test_rotation_of_the_latents_turns_the_basis(generator):
    columns = torch.randn(4, 9, 3, generator=generator, **F64)
    rotation = orthonormal(3, 3, generator=generator)
    found, before = jacobian_basis(columns @ rotation.T), jacobian_basis(columns)
    torch.testing.assert_close(found.singular_values, before.singular_values)
    torch.testing.assert_close(found.right_vectors, canonical_signs(rotation @ before.right_vectors))


def test_leading_axes_and_numpy(generator):
    columns = torch.randn(6, 7, 3, generator=generator, **F64)
    metric = columns.mT @ columns
    values, vectors = right_basis(metric)
    found = right_basis(metric.view(2, 3, 3, 3).numpy())
    torch.testing.assert_close(found, (values.view(2, 3, 3), vectors.view(2, 3, 3, 3)), rtol=0, atol=0)
    torch.testing.assert_close(jacobian_basis(columns.numpy()), jacobian_basis(columns), rtol=0, atol=0)
    torch.testing.assert_close(right_basis(metric[0]).singular_values, values[0], rtol=0, atol=0)
    assert right_basis(torch.zeros(0, 3, 3)).right_vectors.shape == (0, 3, 3)


def test_local_basis_weighs_by_the_likelihood(generator):
    first, last = (torch.randn(*shape, generator=generator, **F64) for shape in ((3, 6), (6, 8)))

    def network(z):
        return (z @ first).tanh() @ last

    z = torch.randn(5, 3, generator=generator, **F64)
    weight = Logistic().fisher_weight(network(z)).sqrt().unsqueeze(-1)
    expected = jacobian_basis(weight * jacobian(network, z))
    torch.testing.assert_close(local_basis(network, z, likelihood=Logistic()), expected, rtol=1e-9, atol=1e-9)
    assert not local_basis(network, z.requires_grad_()).singular_values.requires_grad


@pytest.mark.parametrize("chunk_size", [None, 1, 2])
def test_local_basis_redoes_weighted_points(generator, chunk_size):
    matrix = conditioned(generator, 1e6, points=1)[0][0]
    shift = torch.randn(30, generator=generator, **F64)

    def decoder(z):
        return z @ matrix.T + shift

    z = torch.randn(3, 5, generator=generator, **F64)
    weight = Logistic().fisher_weight(decoder(z)).sqrt().unsqueeze(-1)
    found = local_basis(decoder, z, likelihood=Logistic(), chunk_size=chunk_size)
    torch.testing.assert_close(found, jacobian_basis(weight * matrix), rtol=1e-9, atol=1e-9)


# Active latents and degenerate spectra


@pytest.mark.parametrize("active", [[True, False, True, True], [0, 2, 3], np.array([0, 2, 3])])
def test_restriction_drops_columns(generator, active):
    columns = torch.randn(5, 9, 4, generator=generator, **F64)
    kept = columns[:, :, [0, 2, 3]]
    active = torch.tensor(active) if isinstance(active[0], bool) else active
    found = restrict(columns.mT @ columns, active)
    torch.testing.assert_close(found, kept.mT @ kept)
    torch.testing.assert_close(right_basis(found), jacobian_basis(kept), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("active", "message"),
    [
        ([], "active must keep at least one latent, got none"),
        (torch.zeros(3, dtype=torch.bool), "active must keep at least one latent, got none"),
        ([0, 3], r"active must name each latent at most once, from 0 to 2, got \[0, 3\]"),
        ([-1], r"active must name each latent at most once, from 0 to 2, got \[-1\]"),
        ([1, 1], r"active must name each latent at most once, from 0 to 2, got \[1, 1\]"),
        (
            [True, False],
            r"active must be a mask of shape \(3,\) or a list of indices, got torch.bool of shape \(2,\)",
        ),
        (torch.ones(3), r"active must be a mask or indices, got torch.float32"),
    ],
)
def test_restriction_refuses(active, message):
    with pytest.raises(ValueError, match=message):
        restrict(torch.eye(3), active)


@pytest.mark.parametrize(("dtype", "condition"), [(torch.float64, 1e6), (torch.float32, 1e3)])
def test_restricted_basis_keeps_its_digits(generator, dtype, condition):
    """Two small singular values close together, a dead latent beside them: the squares lose the plane they span."""
    values = torch.tensor([1.0, 1.5 / condition, 1 / condition], **F64)
    turned = orthonormal(3, 3, generator=generator)
    columns = orthonormal(30, 3, generator=generator) * values @ turned.T
    matrix = torch.cat([columns, torch.zeros(30, 1, **F64)], 1)[:, [0, 3, 1, 2]].to(dtype)
    z, active = torch.zeros(2, 4, dtype=dtype), [0, 2, 3]
    metric = pullback(lambda z: z @ matrix.T, z)
    found = restricted_basis(metric, active, lambda z: z @ matrix.T, z)
    expected = jacobian_basis(matrix[:, active].expand(2, 30, 3))
    tolerance = 1e2 * condition * torch.finfo(dtype).eps
    torch.testing.assert_close(found.singular_values, expected.singular_values, rtol=tolerance, atol=0)
    torch.testing.assert_close(found.right_vectors, expected.right_vectors, rtol=0, atol=tolerance)
    squared = right_basis(restrict(metric, active))
    assert (squared.singular_values / expected.singular_values - 1).abs().max() > tolerance


def test_restricted_basis_asks_the_decoder_only_where_it_must(generator, monkeypatch):
    monkeypatch.setattr(basis_module, "jacobian", None)
    columns = torch.randn(9, 3, generator=generator, **F64)
    doubled = torch.cat([columns, columns[:, :1]], 1)  # dependent columns, of which one is kept
    mask = torch.tensor([True, True, True, False])
    found = restricted_basis(
        (doubled.T @ doubled)[None], mask, lambda z: z @ doubled.T, torch.zeros(1, 4, **F64)
    )
    torch.testing.assert_close(found, jacobian_basis(columns[None]))


def test_restricted_basis_needs_the_points_of_its_pullback():
    with pytest.raises(
        ValueError, match=r"pullback must hold a matrix for each of 3 points, got shape \(2, 2, 2\)"
    ):
        restricted_basis(torch.eye(2).expand(2, 2, 2), [0], lambda z: z, torch.zeros(3, 2))


def test_degenerate_points_by_hand():
    values = torch.tensor([[4.0, 3.9, 1.0], [4.0, 3.7, 1.0], [1.0, 0.0, 0.0], [0.94, 1.0, 0.1]])
    assert degenerate_points(values).tolist() == [True, False, True, False]
    assert degenerate_points(values[:, [2, 0, 1]]).tolist() == [True, False, True, False]
    assert degenerate_points(1e-9 * values).tolist() == [True, False, True, False]
    assert degenerate_points(values.numpy(), tolerance=0.1).tolist() == [True, True, True, True]
    assert degenerate_points(values[:, :1]).tolist() == [False] * 4


@pytest.mark.parametrize(
    ("values", "tolerance", "message"),
    [
        (torch.tensor(1.0), 0.05, r"singular_values must have shape \(..., latent\), got shape \(\)"),
        (
            torch.tensor([1.0, -1.0]),
            0.05,
            "singular_values must not be negative|singular_values must be finite",
        ),
        (
            torch.tensor([1.0, math.nan]),
            0.05,
            "singular_values must not be negative|singular_values must be finite",
        ),
        (torch.tensor([1.0]), -0.1, "tolerance must not be negative, got -0.1"),
    ],
)
def test_degenerate_points_refuses(values, tolerance, message):
    with pytest.raises(ValueError, match=message):
        degenerate_points(values, tolerance=tolerance)


# Bad input


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (torch.full((2, 2), math.nan), "pullback must be finite, got 4 entries that are NaN or infinite"),
        (torch.diag(torch.tensor([1.0, math.inf])), "pullback must be finite, got 1 entries"),
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), "pullback must be symmetric"),
        (
            torch.diag(torch.tensor([1.0, -0.5])),
            "pullback must be positive semi-definite, got an eigenvalue of -0.5",
        ),
        (
            torch.tensor([[0.0, 1.0], [1.0, 0.0]]),
            "pullback must be positive semi-definite, got an eigenvalue of -1",
        ),
    ],
)
def test_bad_pullbacks_are_refused(metric, message):
    with pytest.raises(ValueError, match=message):
        right_basis(metric)


def test_what_has_no_pullbacks_shape_or_type_is_refused(no_pullback):
    metric, message = no_pullback
    with pytest.raises(ValueError, match=message):
        right_basis(metric)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (torch.zeros(3), r"jacobian must have shape \(..., data, latent\), got shape \(3,\)"),
        (torch.zeros(3, 0, 2), r"jacobian must have shape \(..., data, latent\), got shape \(3, 0, 2\)"),
        (torch.full((3, 2), math.nan), "jacobian must be finite, got 6 entries"),
    ],
)
def test_bad_jacobians_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        jacobian_basis(columns)


def test_local_basis_refuses_what_the_pullback_refuses():
    with pytest.raises(ValueError, match=r"z must have shape \(batch, latent\), got shape \(3,\)"):
        local_basis(torch.sin, torch.zeros(3))
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        local_basis(torch.sin, torch.zeros(3, 2), chunk_size=0)
