"""Which components a learned generator has found, and which no model could."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles

from unseam.independence import match_generators

F64 = {"dtype": torch.float64}
EPS = torch.finfo(torch.float64).eps
ROUNDING = 100 * EPS
ORDER, SIGNS = [2, 0, 3, 1], [1.0, -1.0, 1.0, -1.0]


def orthogonal(rows, columns, generator):
    return torch.linalg.qr(torch.randn(rows, columns, generator=generator, **F64)).Q


def rotation(angle):
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], **F64)


@pytest.fixture
def signed():
    """A signed permutation of four latents."""
    return torch.eye(4, **F64)[:, ORDER] * torch.tensor(SIGNS, **F64)


def components(values, generator):
    return orthogonal(9, 4, generator) * torch.tensor(values, **F64)


def test_distinct_singular_values_are_identified_up_to_order_and_sign(generator, signed):
    """Corollary 1.1 of allen2024; the rotation V of the truth leaves no trace."""
    columns = components([4.0, 3.0, 2.0, 1.0], generator)
    true = columns @ orthogonal(4, 4, generator).T
    found = match_generators(true, columns @ signed)
    assert found.identified.all()
    assert found.groups.unique().numel() == 4
    assert found.residual < ROUNDING and found.subspace_residual < ROUNDING
    assert found.angle.max() < ROUNDING
    torch.testing.assert_close(found.cosine, torch.ones(4, **F64))
    aligned = columns @ signed @ found.permutation
    torch.testing.assert_close(aligned.norm(dim=0), torch.tensor([4.0, 3.0, 2.0, 1.0], **F64))
    # the match undoes the permutation, up to the signs that the truth itself leaves open
    torch.testing.assert_close((signed @ found.permutation).abs(), torch.eye(4, **F64))


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 4, 1.2])
def test_repeated_singular_values_leave_the_basis_free_and_the_subspace_not(generator, signed, angle):
    columns = components([4.0, 2.0, 2.0, 1.0], generator)
    turn = torch.eye(4, **F64)
    turn[1:3, 1:3] = rotation(angle)
    true = columns @ orthogonal(4, 4, generator).T
    found = match_generators(true, columns @ turn @ signed)
    assert found.identified.tolist() == [True, False, False, True]
    assert found.groups.tolist() == [0, 1, 1, 2]
    assert found.subspace_residual < ROUNDING
    assert found.angle.max() < ROUNDING
    torch.testing.assert_close(found.cosine[[0, 3]], torch.ones(2, **F64))


def test_the_residual_counts_the_basis_within_a_group(generator):
    """Over a full turn within the group the residual goes from 0 to its worst, at an eighth of a turn, and back."""
    columns = components([4.0, 2.0, 2.0, 1.0], generator)
    residuals = []
    for angle in torch.linspace(0, math.pi / 2, 64).tolist():
        turn = torch.eye(4, **F64)
        turn[1:3, 1:3] = rotation(angle)
        residuals.append(match_generators(columns, columns @ turn).residual.item())
    worst = math.sqrt(2 * 2 * 2**2 * (1 - math.cos(math.pi / 4)) / (4**2 + 2 * 2**2 + 1))
    step = math.pi / 128
    assert max(residuals) <= worst + ROUNDING
    assert max(residuals) == pytest.approx(worst, abs=step)
    assert min(residuals) == pytest.approx(0, abs=step)


def test_a_rotated_solution_is_not_matched(generator):
    """PPCA's freedom: the same Gaussian, but the latents are no components."""
    columns = components([4.0, 3.0, 2.0, 1.0], generator)
    turned = columns @ orthogonal(4, 4, generator)
    torch.testing.assert_close(turned @ turned.T, columns @ columns.T)
    found = match_generators(columns, turned)
    assert found.identified.all()
    assert found.residual > 0.1 and found.subspace_residual > 0.1
    assert found.angle.max() > 0.1


def test_angles_against_scipy(generator):
    true = components([4.0, 2.0, 2.0, 1.0], generator)
    learned = true + 0.1 * torch.randn(9, 4, generator=generator, **F64)
    found = match_generators(true, learned)
    matched = (learned @ found.permutation).numpy()
    left, _, _ = np.linalg.svd(true.numpy(), full_matrices=False)
    for group in ([0], [1, 2], [3]):
        expected = subspace_angles(left[:, group], matched[:, group]).max()
        assert found.angle[group].tolist() == pytest.approx([expected] * len(group), rel=1e-9)


def test_residual_against_its_definition(generator):
    columns = components([4.0, 3.0, 2.0, 1.0], generator)
    learned = columns[:, ORDER] + 0.1 * torch.randn(9, 4, generator=generator, **F64)
    found = match_generators(columns, learned)
    signs = torch.sign((columns * (learned @ found.permutation)).sum(0))
    expected = (learned @ found.permutation * signs - columns).norm() / columns.norm()
    torch.testing.assert_close(found.residual, expected)


def test_length_counts_in_the_residual_and_not_in_the_match(generator, signed):
    columns = components([4.0, 3.0, 2.0, 1.0], generator)
    found = match_generators(columns, columns @ signed / 2)
    torch.testing.assert_close(found.cosine, torch.ones(4, **F64))
    assert found.residual.item() == pytest.approx(0.5)


def test_spare_latents_are_left_out(generator, signed):
    columns = components([4.0, 3.0, 2.0, 1.0], generator)
    spare = torch.zeros(9, 2, **F64)
    found = match_generators(columns, torch.cat([spare, columns @ signed], 1))
    assert found.permutation.shape == (6, 4)
    assert (found.permutation[:2] == 0).all()
    assert found.residual < ROUNDING


def test_missing_latents_leave_components_unmatched(generator):
    columns = components([4.0, 3.0, 2.0, 1.0], generator)
    found = match_generators(columns, columns[:, [0, 2]])
    torch.testing.assert_close(found.cosine, torch.tensor([1.0, 0.0, 1.0, 0.0], **F64), atol=ROUNDING, rtol=0)
    assert (found.permutation.abs().sum(0) == torch.tensor([1, 0, 1, 0])).all()
    assert found.residual.item() == pytest.approx(math.sqrt(10 / 30))
    assert found.angle[[1, 3]].tolist() == pytest.approx([math.pi / 2] * 2)


@pytest.mark.parametrize(("gap", "identified"), [(0.04, False), (0.06, True)])
def test_tolerance_is_relative_to_the_larger_value(generator, gap, identified):
    columns = components([100.0, 100.0 * (1 - gap), 10.0, 1.0], generator)
    assert match_generators(columns, columns).identified.tolist() == [identified, identified, True, True]
    assert match_generators(columns, columns, tolerance=2 * gap).identified[:2].tolist() == [False, False]


def test_a_chain_of_close_values_is_one_group(generator):
    columns = components([1.0, 0.97, 0.94, 0.91], generator)
    assert match_generators(columns, columns).groups.tolist() == [0, 0, 0, 0]


# Non-linear generators


def exponential(z):
    """z ↦ e^z of complex numbers: equal singular values at every point."""
    return z[:, :1].exp() * torch.cat([z[:, 1:].cos(), z[:, 1:].sin()], 1)


@pytest.fixture
def points(generator):
    return torch.randn(50, 2, generator=generator, **F64)


@pytest.mark.parametrize("decoder", [torch.sinh, exponential], ids=["separable", "exponential"])
@pytest.mark.parametrize("chunk_size", [None, 7])
def test_order_and_sign_of_nonlinear_components_are_undone(decoder, points, chunk_size):
    codes = -points.flip(1)
    found = match_generators(decoder, lambda u: decoder(-u.flip(1)), points, codes, chunk_size=chunk_size)
    assert found.permutation.tolist() == [[0.0, -1.0], [-1.0, 0.0]]
    torch.testing.assert_close(codes @ found.permutation, points)
    assert found.residual < ROUNDING


def test_equal_functions_of_different_coordinates_are_told_apart(points):
    """sinh in both: singular values cosh z_1 and cosh z_2 are equal functions, and a rotation is no match."""
    turn = rotation(0.5)
    found = match_generators(torch.sinh, lambda u: torch.sinh(u @ turn.T), points, points @ turn)
    assert found.identified.all()
    assert found.residual > 0.1 and found.subspace_residual > 0.1


@pytest.mark.parametrize("angle", [0.3, math.pi / 4])
def test_equal_values_at_every_point_leave_the_basis_free(points, angle):
    """A conformal generator stays orthogonal in every rotated basis, with the same distribution."""
    turn = rotation(angle)
    found = match_generators(exponential, lambda u: exponential(u @ turn.T), points, points @ turn)
    assert not found.identified.any()
    assert found.residual > 0.1
    assert found.subspace_residual < ROUNDING
    assert found.angle.max() < ROUNDING


def test_a_reparametrised_component_has_the_direction_and_not_the_length(points):
    found = match_generators(torch.sinh, lambda u: u, points, points.sinh())
    torch.testing.assert_close(found.cosine, torch.ones(2, **F64))
    lengths = points.cosh()
    expected = ((lengths - 1).square().sum() / lengths.square().sum()).sqrt()
    torch.testing.assert_close(found.residual, expected)


def test_linear_callables_agree_with_matrices(generator, points):
    columns = orthogonal(5, 2, generator) * torch.tensor([3.0, 1.0], **F64)
    turn = rotation(0.4)
    expected = match_generators(columns, columns @ turn)
    found = match_generators(lambda z: z @ columns.T, lambda u: u @ (columns @ turn).T, points, points @ turn)
    # the matrix's own components carry signs of their own
    torch.testing.assert_close(found.permutation.abs(), expected.permutation.abs())
    for field in ("cosine", "residual", "subspace_residual", "identified", "angle"):
        torch.testing.assert_close(getattr(found, field), getattr(expected, field))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_types_and_numpy(generator, dtype):
    columns = components([4.0, 3.0, 2.0, 1.0], generator).to(dtype)
    found = match_generators(columns.numpy(), columns.numpy())
    assert found.residual.dtype == found.cosine.dtype == found.angle.dtype == found.permutation.dtype == dtype
    assert found.residual < 100 * torch.finfo(dtype).eps


MATRIX = torch.eye(3, 2, **F64)
POINTS = torch.zeros(5, 2, **F64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MATRIX, torch.sinh), "true and learned must both be matrices or both be callables"),
        ((MATRIX, MATRIX, POINTS), "z and codes must be left out where the generators are matrices"),
        ((torch.sinh, torch.sinh), "z and codes must be given where the generators are callables"),
        (
            (torch.sinh, torch.sinh, POINTS, POINTS[:3]),
            "z and codes must have one row per point, got 5 and 3",
        ),
        (
            (MATRIX, MATRIX[0]),
            r"learned must have shape \(data, latent\), got shape \(2,\)",
        ),
        ((MATRIX.cfloat(), MATRIX), "true must be real, got torch.complex64"),
        ((MATRIX * math.nan, MATRIX), "true must be finite, got"),
        ((MATRIX, MATRIX[:2]), "true and learned must generate the same data dimensions, got 3 and 2"),
        ((MATRIX[:, [0, 0]], MATRIX), "true must have full column rank, got singular values from 1.41 to "),
        (
            (torch.sinh, lambda u: u[:, :1], POINTS, POINTS),
            "true and learned must generate the same data dimensions",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        match_generators(*arguments)


def test_bad_options():
    with pytest.raises(ValueError, match="tolerance must not be negative, got -1"):
        match_generators(MATRIX, MATRIX, tolerance=-1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device_gives_the_same_numbers(generator, signed, points):
    columns = components([4.0, 2.0, 2.0, 1.0], generator)
    there = match_generators(columns.cuda(), (columns @ signed).cuda())
    assert all(part.is_cuda for part in there)
    assert there.groups.tolist() == [0, 1, 1, 2] and there.subspace_residual < ROUNDING
    found = match_generators(torch.sinh, torch.sinh, points.cuda(), points.cuda())
    assert found.residual.is_cuda and found.residual == 0
