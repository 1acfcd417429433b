"""Five decoders and the three measurements that tell them apart."""

import math

import pytest
import torch

from unseam.geometry import pullback, right_basis
from unseam.independence import axis_density, coupling, log_density

F64 = {"dtype": torch.float64}
# Rounding of a sum over two latents and two data dimensions, in units that squares and logarithms leave near 1.
ROUNDING = 1000 * torch.finfo(torch.float64).eps


def rotation(degrees):
    angle = math.radians(degrees)
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], **F64)


LEFT, RIGHT, SCALES = rotation(30), rotation(35), torch.tensor([2.0, 0.7], **F64)


def linear_orthogonal(z):
    return z * SCALES @ LEFT.T


def linear_rotated(z):
    return linear_orthogonal(z @ RIGHT)


def separable(z):
    return torch.stack([z[:, 0].sinh(), (2 * z[:, 1]).asinh()], 1) @ LEFT.T


def orthogonal_coupled(z):
    return z[:, :1].exp() * torch.cat([z[:, 1:].cos(), z[:, 1:].sin()], 1)


def rotated_nonlinear(z):
    return separable(z @ RIGHT)


# Which of gap and coupling vanish along the latent axes, and which in the basis of right singular vectors.
TABLE = {
    linear_orthogonal: ((True, True), (True, True)),
    linear_rotated: ((False, True), (True, True)),
    separable: ((True, True), (True, True)),
    orthogonal_coupled: ((True, False), (True, False)),
    rotated_nonlinear: ((False, False), (True, True)),
}
each_decoder = pytest.mark.parametrize("decoder", TABLE, ids=lambda decoder: decoder.__name__)


@pytest.fixture
def points(generator):
    return torch.randn(200, 2, generator=generator, **F64)


def vanishing(decoder, z, basis=None):
    """Whether gap and coupling are zero at every point; each is either rounding or plainly there."""
    gap = log_density(decoder, z, basis=basis).gap
    found = coupling(decoder, z, basis=basis)
    assert gap.max() < ROUNDING or gap.mean() > 0.05
    assert found.off_diagonal < ROUNDING**2 or found.off_diagonal > max(0.05, 5 * found.standard_error)
    return bool(gap.max() < ROUNDING), bool(found.off_diagonal < ROUNDING**2)


@each_decoder
def test_gap_and_coupling_along_the_latent_axes(decoder, points):
    assert vanishing(decoder, points) == TABLE[decoder][0]


@each_decoder
def test_gap_and_coupling_in_the_basis_of_right_singular_vectors(decoder, points):
    basis = right_basis(pullback(decoder, points).mean(0)).right_vectors
    assert vanishing(decoder, points, basis) == TABLE[decoder][1]


@each_decoder
def test_the_gap_in_closed_form(decoder, points):
    found = log_density(decoder, points).gap
    expected = torch.zeros_like(found)
    if decoder in (linear_rotated, rotated_nonlinear):
        inner = points @ RIGHT
        scales = SCALES.expand_as(inner)
        if decoder is rotated_nonlinear:
            scales = torch.stack([inner[:, 0].cosh(), 2 / (1 + 4 * inner[:, 1] ** 2).sqrt()], 1)
        norms = (scales**2 @ (RIGHT**2).T).sqrt()
        expected = norms.log().sum(1) - scales.log().sum(1)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=ROUNDING)


def test_the_coupling_in_closed_form(points):
    inner = points
    expected = torch.zeros(2, 2, **F64)
    expected[0, 0] = inner[:, 0].tanh().square().mean()
    expected[1, 1] = (4 * inner[:, 1] / (1 + 4 * inner[:, 1] ** 2)).square().mean()
    torch.testing.assert_close(coupling(separable, points).matrix, expected)
    turned = coupling(rotated_nonlinear, points @ RIGHT.T, basis=RIGHT)
    torch.testing.assert_close(turned.matrix, expected)


@each_decoder
def test_the_product_of_the_factors_is_the_density_where_the_gap_vanishes(decoder, points):
    """Eqs. 11 and 13 of allen2024."""
    found = log_density(decoder, points)
    closes = torch.allclose(found.factors.sum(1), found.log_density, rtol=0, atol=ROUNDING)
    assert closes == TABLE[decoder][0][0]


@each_decoder
def test_a_component_has_one_density_on_all_of_its_curves_where_the_coupling_vanishes(decoder, generator):
    """What the last step of Theorem 2's proof says: moving along one component leaves the other factors alone."""
    z = torch.tensor([[-1.0, 0.5], [0.0, 0.5], [1.0, 0.5]], **F64)
    found = axis_density(decoder, z, 1)
    assert ((found.integral - 1).abs() <= found.error + found.coordinate.numel() * ROUNDING).all()
    alike = torch.allclose(found.log_density, found.log_density[:1], rtol=0, atol=ROUNDING)
    assert alike == TABLE[decoder][0][1]


def test_an_injective_orthogonal_decoder_may_be_coupled(points):
    """A spiral staircase over e^z meets every assumption of Theorem 2, and its factors still depend on each other."""

    def staircase(z):
        return torch.cat([orthogonal_coupled(z), z[:, 1:]], 1)

    assert vanishing(staircase, points) == (True, False)
    found = coupling(staircase, points)
    slope = torch.sigmoid(2 * points[:, 0])  # of log √(1 + e^{2 z_1})
    torch.testing.assert_close(found.matrix[1, 0], slope.square().mean())
    torch.testing.assert_close(found.off_diagonal, slope.square().mean() / 2)


@each_decoder
def test_both_vanish_exactly_on_flat_coordinates(decoder, points):
    """Then the metric is diag(g_1(z_1), g_2(z_2)): lengths of the two components are Cartesian coordinates."""
    metric = pullback(decoder, points)
    same_first = pullback(decoder, torch.stack([points[:, 0], points[:, 1].flip(0)], 1))
    same_second = pullback(decoder, torch.stack([points[:, 0].flip(0), points[:, 1]], 1))
    diagonal = metric[:, 0, 1].abs().max() < ROUNDING * metric.amax()
    own = torch.allclose(metric[:, 0, 0], same_first[:, 0, 0], rtol=ROUNDING) and torch.allclose(
        metric[:, 1, 1], same_second[:, 1, 1], rtol=ROUNDING
    )
    assert (bool(diagonal) and own) == all(TABLE[decoder][0])


@pytest.mark.parametrize("decoder", TABLE, ids=lambda decoder: decoder.__name__)
def test_densities_on_three_curves_coincide_where_components_are_independent(decoder):
    starts = torch.tensor([[value, 0.0] for value in (-1.0, 0.0, 1.0)], dtype=torch.float64)
    first, *others = axis_density(decoder, starts, 1).log_density.exp()
    assert all(torch.allclose(first, other) for other in others) == TABLE[decoder][0][1]
