"""The push-forward density, its factors, and the density along one component."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from unseam.geometry import column_cosine, hadamard_gap, pullback
from unseam.independence import axis_density, log_density, standard_normal

F64 = {"dtype": torch.float64}
EPS = torch.finfo(torch.float64).eps


@pytest.fixture
def points(generator):
    return torch.randn(40, 3, generator=generator, **F64)


def orthogonal(rows, columns, generator):
    return torch.linalg.qr(torch.randn(rows, columns, generator=generator, **F64)).Q


def exponential(z):
    """z ↦ e^z of complex numbers."""
    return z[:, :1].exp() * torch.cat([z[:, 1:].cos(), z[:, 1:].sin()], 1)


def test_a_linear_decoder_makes_a_gaussian(generator, points):
    matrix = torch.randn(3, 3, generator=generator, **F64)
    x = points @ matrix.T
    expected = stats.multivariate_normal(np.zeros(3), matrix @ matrix.T).logpdf(x.numpy())
    found = log_density(lambda z: z @ matrix.T, points).log_density
    torch.testing.assert_close(found, torch.as_tensor(expected))


def test_factors_of_a_linear_decoder_in_its_own_basis(generator, points):
    """Remark 1 of allen2024: each is a Gaussian of standard deviation s_i along u_i."""
    left, right = orthogonal(7, 3, generator), orthogonal(3, 3, generator)
    values = torch.tensor([3.0, 1.0, 0.2], **F64)
    found = log_density(lambda z: z @ (left * values @ right.T).T, points, basis=right)
    along = points @ right * values
    expected = torch.distributions.Normal(torch.zeros(3, **F64), values).log_prob(along)
    torch.testing.assert_close(found.factors, expected)
    torch.testing.assert_close(found.log_density, expected.sum(1))
    assert found.gap.max() < 100 * EPS


def test_elementwise_transforms_agree_with_torch_distributions(points):
    base = torch.distributions.Normal(torch.zeros(3, **F64), torch.ones(3, **F64))
    pushed = torch.distributions.TransformedDistribution(base, [torch.distributions.SigmoidTransform()])
    found = log_density(torch.sigmoid, points)
    torch.testing.assert_close(found.factors, pushed.log_prob(points.sigmoid()))
    torch.testing.assert_close(found.log_density, found.factors.sum(1))


def test_against_the_determinant(network, points):
    jacobians = torch.stack(
        [torch.autograd.functional.jacobian(lambda z: network(z[None]).flatten(), point) for point in points]
    )
    prior = torch.distributions.Normal(0, 1).log_prob(points).sum(1)
    expected = prior - torch.linalg.slogdet(jacobians.mT @ jacobians).logabsdet / 2
    torch.testing.assert_close(log_density(network, points).log_density, expected)


def test_the_gap_is_the_hadamard_gap_and_nothing_else(network, points):
    found = log_density(network, points)
    assert torch.equal(found.gap, hadamard_gap(pullback(network, points)))
    torch.testing.assert_close(found.log_density - found.factors.sum(1), found.gap)
    assert found.gap.min() > 0.01


def test_the_density_integrates_to_one_over_a_surface():
    """Areas come from the images of a grid of cells alone, densities from derivatives at their middles."""

    def surface(z):
        a, b = z.unbind(1)
        return torch.stack([a + 0.3 * b, b + 0.2 * a**2, torch.sin(a) * b / 2, torch.tanh(b)], 1)

    cells, reach = 400, 7.0
    ticks = torch.linspace(-reach, reach, cells + 1, **F64)
    corners = surface(torch.cartesian_prod(ticks, ticks)).unflatten(0, (cells + 1, cells + 1))
    first, second = corners[1:, 1:] - corners[:-1, :-1], corners[1:, :-1] - corners[:-1, 1:]
    gram = (first * first).sum(-1) * (second * second).sum(-1) - (first * second).sum(-1) ** 2
    middle = (ticks[1:] + ticks[:-1]) / 2
    density = log_density(surface, torch.cartesian_prod(middle, middle)).log_density.exp()
    mass = (gram.sqrt().flatten() / 2 * density).sum().item()
    # The mid-point rule errs by the square of the cell, here (14 / 400)² times second derivatives of order 1.
    assert mass == pytest.approx(1, abs=(2 * reach / cells) ** 2)


def test_the_density_does_not_depend_on_the_basis_but_its_factors_do(network, points, generator):
    basis = orthogonal(3, 3, generator)
    plain, turned = log_density(network, points), log_density(network, points, basis=basis)
    torch.testing.assert_close(turned.log_density, plain.log_density)
    assert (turned.gap - plain.gap).abs().min() > 1e-3
    torch.testing.assert_close(turned.factors.sum(1) + turned.gap, plain.factors.sum(1) + plain.gap)


def test_order_and_sign_of_latents(network, points):
    order, signs = [2, 0, 1], torch.tensor([1.0, -1.0, 1.0], **F64)
    basis = torch.eye(3, **F64)[:, order] * signs
    plain, turned = log_density(network, points), log_density(network, points, basis=basis)
    torch.testing.assert_close(turned.factors, plain.factors[:, order])
    torch.testing.assert_close(turned.gap, plain.gap)


def test_scale_of_the_data(network, points):
    plain, scaled = log_density(network, points), log_density(lambda z: 10 * network(z), points)
    torch.testing.assert_close(scaled.factors, plain.factors - math.log(10))
    torch.testing.assert_close(scaled.gap, plain.gap)


def test_other_priors(points):
    laplace = torch.distributions.Laplace(torch.zeros(1, **F64), 2.0)
    found = log_density(lambda z: 3 * z, points, prior=laplace.log_prob)
    torch.testing.assert_close(found.factors, laplace.log_prob(points) - math.log(3))


def test_the_standard_normal(points):
    torch.testing.assert_close(standard_normal(points), torch.as_tensor(stats.norm.logpdf(points)))


DEPENDENT = {
    "repeated column": lambda z: torch.stack([z.sum(1), z.sum(1)], 1),
    "fewer data than latents": lambda z: z[:, :2],
    "dead latent": lambda z: z * torch.tensor([1.0, 0.0, 1.0], dtype=z.dtype),
    "nothing": lambda z: 0 * z,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", DEPENDENT)
def test_a_density_that_does_not_exist_is_infinite(name, dtype, points):
    found = log_density(DEPENDENT[name], points.to(dtype))
    assert found.log_density.isposinf().all()
    assert found.gap.isfinite().all()
    columns = pullback(DEPENDENT[name], points.to(dtype)).diagonal(dim1=1, dim2=2)
    assert torch.equal(found.factors.isposinf(), columns == 0)
    assert found.factors[columns > 0].isfinite().all()


def test_a_short_column_is_no_loss_of_rank(points):
    found = log_density(lambda z: z * torch.tensor([1.0, 1e-20, 1e3], **F64), points)
    torch.testing.assert_close(found.log_density, found.factors.sum(1))
    torch.testing.assert_close(found.factors[:, 1], standard_normal(points[:, 1]) + 20 * math.log(10))


@pytest.mark.parametrize(("exponent", "infinite"), [(-6, False), (-9, True)])
def test_rank_is_lost_where_rounding_hides_the_angle(exponent, infinite):
    """Two unit columns at an angle φ: the Gram matrix knows sin²φ up to ε."""
    angle = 10.0**exponent
    matrix = torch.tensor([[1.0, math.cos(angle)], [0.0, math.sin(angle)]], **F64)
    found = log_density(lambda z: z @ matrix.T, torch.zeros(1, 2, **F64))
    assert found.log_density.isinf().item() == infinite
    if not infinite:
        expected = -math.log(2 * math.pi) - math.log(math.sin(angle))
        assert found.log_density.item() == pytest.approx(expected, rel=EPS / angle**2)


def test_gradients_reach_points_and_weights(network, points):
    z = points[:2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: log_density(network, z).log_density, z)
    log_density(network, points).log_density.sum().backward()
    assert network[0].weight.grad.abs().max() > 0


def test_chunks_numpy_and_types(network, points):
    expected = log_density(network, points).log_density
    torch.testing.assert_close(log_density(network, points, chunk_size=7).log_density, expected)
    torch.testing.assert_close(log_density(network, points.numpy()).log_density, expected)
    single = log_density(network.float(), points.float())
    assert {part.dtype for part in single} == {torch.float32}
    torch.testing.assert_close(single.log_density.double(), expected.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"basis": torch.eye(2)}, r"basis must have shape \(3, 3\), got shape \(2, 2\)"),
        ({"basis": 2 * torch.eye(3)}, "basis must have orthonormal columns, got products off by 3"),
        (
            {"basis": torch.full((3, 3), math.nan)},
            "basis must be finite, got",
        ),
        (
            {"basis": torch.eye(3), "prior": torch.exp},
            "prior must be the standard normal where a basis is given",
        ),
        (
            {"prior": lambda z: z.sum(1)},
            r"prior must give log p\(z_i\) in the shape of z \(40, 3\), got \(40,\)",
        ),
        ({"prior": lambda z: 0.0}, r"prior must give log p\(z_i\) in the shape of z \(40, 3\), got float"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
    ],
)
def test_bad_options(points, options, message):
    with pytest.raises(ValueError, match=message):
        log_density(lambda z: z, points, **options)


@pytest.mark.parametrize("basis", [None, torch.eye(3, **F64)], ids=["axes", "basis"])
def test_decoders_in_training_mode_are_refused(points, basis):
    decoder = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)).double()
    with pytest.raises(
        ValueError, match="decoder must be in evaluation mode, but Dropout '1' is in training mode"
    ):
        log_density(decoder, points, basis=basis)


# Along one component


@pytest.mark.parametrize("point", [[0.5, 1.0], [-1.0, 0.3]])
def test_rays_and_circles_of_the_exponential(point):
    """Along z_1 a log-normal distance from the origin, along z_2 a Gaussian of the circle's radius."""
    z = torch.tensor([point], **F64)
    ray = axis_density(exponential, z, 0)
    distance = ray.arc_length[0].numpy() + 1
    expected = stats.lognorm(1).logpdf(distance)
    near = distance > 0.01  # where the arc length has digits left beside 1
    # arcs are right to the fourth power of the spacing, 0.02; the log-density falls by up to 600 per unit there
    np.testing.assert_allclose(ray.log_density[0].numpy()[near], expected[near], atol=600 * 0.02**4)
    circle = axis_density(exponential, z, 1)
    radius = math.exp(point[0])
    torch.testing.assert_close(circle.arc_length[0], radius * circle.coordinate, rtol=0.02**4, atol=0)
    expected = stats.norm(scale=radius).logpdf(circle.arc_length[0])
    np.testing.assert_allclose(circle.log_density[0], expected, atol=8**2 * 0.02**4)


@pytest.mark.parametrize("latent", [0, 1, 2])
def test_the_density_along_a_curve_integrates_to_one(network, points, latent):
    found = axis_density(network, points[:5], latent)
    rounding = found.coordinate.numel() * EPS
    assert ((found.integral - 1).abs() <= found.error + rounding).all()
    assert (found.error < 1e-3).all()
    half = axis_density(network, points[:5], latent, nodes=201)
    assert (half.error > 4 * found.error).all()


def test_a_wrong_density_does_not_integrate_to_one(points, straight):
    """Arc length is taken from outputs, so a derivative that is not theirs shows."""
    found = axis_density(straight(torch.sinh), points[:1], 0)
    assert (found.integral - 1).abs() > 100 * found.error


def test_a_prior_cut_off_shows_in_the_integral(points):
    found = axis_density(lambda z: 3 * z, points[:1], 0, reach=1.0)
    inside = stats.norm.cdf(1) - stats.norm.cdf(-1)
    assert found.integral.item() == pytest.approx(inside, abs=1e-9)


def test_the_same_density_at_the_point_itself(network, points):
    """At the node that is the point, the density is the factor of the point."""
    z = points[:1].clone()
    z[0, 1] = 2.0
    found = axis_density(network, z, 1, reach=8.0, nodes=401)
    node = int((found.coordinate - 2.0).abs().argmin())
    assert found.coordinate[node].item() == pytest.approx(2.0, abs=1e-12)
    torch.testing.assert_close(found.log_density[0, node], log_density(network, z).factors[0, 1])


def test_a_curve_that_stands_still():
    z = torch.zeros(2, 2, **F64)
    cubic = axis_density(lambda z: z**3, z, 0)
    assert cubic.log_density.isposinf().sum(1).tolist() == [1, 1]
    assert cubic.integral.isposinf().all() and cubic.error.isposinf().all()
    dead = axis_density(lambda z: z * torch.tensor([1.0, 0.0], **F64), z, 1)
    assert dead.log_density.isposinf().all() and (dead.arc_length == 0).all()


@pytest.mark.parametrize("rate", [3.0, 5.0])
def test_ends_of_a_saturated_curve_are_left_out(rate):
    """tanh is 1 in double precision from about 19: the prior's mass beyond is all that is missing."""
    found = axis_density(lambda z: torch.tanh(rate * z), torch.zeros(1, 1, **F64), 0)
    assert found.log_density.isposinf().any()
    reached = found.coordinate[~found.log_density[0].isposinf()].abs().max().item()
    beyond = 2 * stats.norm.sf(reached - 0.04)  # and that of one node more
    assert abs(found.integral.item() - 1) <= found.error.item() + beyond + found.coordinate.numel() * EPS
    finer = axis_density(lambda z: torch.tanh(rate * z), torch.zeros(1, 1, **F64), 0, nodes=801)
    assert finer.error < found.error / 4


def test_mass_on_an_end_that_stands_still_is_missing():
    found = axis_density(torch.relu, torch.zeros(1, 1, **F64), 0)
    assert found.integral.item() == pytest.approx(0.5, abs=0.04 * stats.norm.pdf(0))  # of one node
    assert found.log_density[0, 0].isposinf()


def test_curves_in_single_precision_in_chunks_and_from_numpy(network, points):
    expected = axis_density(network, points[:2], 1)
    chunked = axis_density(network, points[:2].numpy(), 1, chunk_size=50)
    torch.testing.assert_close(chunked, expected)
    single = axis_density(network.float(), points[:2].float(), 1)
    assert {part.dtype for part in single} == {torch.float32}
    torch.testing.assert_close(single.arc_length.double(), expected.arc_length, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(single.integral.double(), expected.integral, rtol=0, atol=1e-3)


def test_curves_of_a_coupled_decoder_differ_and_those_of_a_separable_one_do_not():
    z = torch.tensor([[0.0, 0.0], [1.0, 0.0]], **F64)
    coupled, apart = axis_density(exponential, z, 1), axis_density(torch.sinh, z, 1)
    assert (coupled.log_density[0] - coupled.log_density[1]).abs().min() > 0.9
    torch.testing.assert_close(apart.log_density[0], apart.log_density[1])
    torch.testing.assert_close(apart.arc_length[0], apart.arc_length[1])
    assert column_cosine(pullback(exponential, z)).max() < 10 * EPS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latent": 3}, "latent must be from 0 to 2, got 3"),
        ({"latent": -1}, "latent must be from 0 to 2, got -1"),
        ({"nodes": 400}, r"nodes must be 4 k \+ 1, got 400"),
        ({"nodes": 1}, r"nodes must be at least 5, got 1"),
        ({"reach": 0.0}, "reach must be positive, got 0.0"),
        ({"reach": math.inf}, "reach must be finite, got inf"),
    ],
)
def test_bad_options_of_curves(points, options, message):
    with pytest.raises(ValueError, match=message):
        axis_density(lambda z: z, points, **{"latent": 0, **options})


def test_bad_decoders_of_curves(points):
    with pytest.raises(ValueError, match=r"decoder does not accept z \(batch, 3\)"):
        axis_density(nn.Linear(2, 4).double(), points, 0)
    with pytest.raises(ValueError, match="decoder must be in evaluation mode"):
        axis_density(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)).double(), points, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device_gives_the_same_numbers(network, points):
    expected = (
        log_density(network, points).log_density.detach(),
        axis_density(network, points[:2], 1).arc_length,
    )
    network, z = network.cuda(), points.cuda()
    found = log_density(network, z).log_density.detach(), axis_density(network, z[:2], 1).arc_length
    for there, here in zip(found, expected, strict=True):
        assert there.is_cuda
        torch.testing.assert_close(there.cpu(), here)
    turned = log_density(network, z, basis=torch.eye(3)).log_density
    torch.testing.assert_close(turned.cpu().detach(), expected[0])


def test_points_at_once_are_counted():
    with pytest.raises(ValueError, match="chunk_size must be"):
        axis_density(torch.sin, torch.zeros(2, 2), 0, reach=1.0, nodes=5, chunk_size=1e300)
