"""Mixed second derivatives of a decoder's log-volume."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import integrate, stats
from torch import nn

from unseam.geometry import jacobian
from unseam.independence import coupling, mixed_derivative
from unseam.independence.coupling import _volume_forward, _volume_reverse

F64 = {"dtype": torch.float64}
EPS = torch.finfo(torch.float64).eps
NAN = float("nan")


@pytest.fixture
def points(generator):
    return torch.randn(30, 3, generator=generator, **F64)


def stereographic(z):
    """The plane onto the unit sphere without its north pole."""
    square = z.square().sum(1, keepdim=True)
    return torch.cat([2 * z, square - 1], 1) / (1 + square)


def exponential(z):
    """z ↦ e^z of complex numbers."""
    return z[:, :1].exp() * torch.cat([z[:, 1:2].cos(), z[:, 1:2].sin()], 1)


def curvatures(decoder, z, **options):
    return mixed_derivative(decoder, z, per_point=True, **options).per_point


# Closed forms


def test_the_sphere_in_closed_form(points):
    """The volume is 4 / (1 + r²)², so that ∂²/∂z_1∂z_2 of its logarithm is 8 z_1 z_2 / (1 + r²)²."""
    a, b = points[:, 0], points[:, 1]
    scale = 1 + a**2 + b**2
    expected = torch.empty(len(points), 2, 2, **F64)
    expected[:, 0, 0] = 8 * a**2 / scale**2 - 4 / scale
    expected[:, 1, 1] = 8 * b**2 / scale**2 - 4 / scale
    expected[:, 0, 1] = expected[:, 1, 0] = 8 * a * b / scale**2
    found = mixed_derivative(stereographic, points[:, :2], per_point=True)
    torch.testing.assert_close(found.per_point, expected)
    torch.testing.assert_close(found.matrix, expected.square().mean(0))
    torch.testing.assert_close(found.off_diagonal, expected[:, 0, 1].square().mean())
    sem = stats.sem(expected[:, 0, 1].square().numpy())
    torch.testing.assert_close(found.standard_error, torch.as_tensor(sem))
    assert not found.singular.any()


def test_the_sphere_under_the_prior_by_quadrature(generator):
    """r²/2 is a standard exponential variable, and E[cos² sin²] over the circle 1/8."""
    expected, _ = integrate.quad(lambda s: 4 * s**2 / (1 + s) ** 4 * math.exp(-s / 2), 0, np.inf)
    found = mixed_derivative(stereographic, torch.randn(4000, 2, generator=generator, **F64))
    assert abs(found.off_diagonal.item() - expected) < 4 * found.standard_error.item()


def exact(decoder, points):
    return mixed_derivative(decoder, points).off_diagonal.item() <= (1000 * EPS) ** 2


def test_products_over_latents_have_none(generator, points):
    """Coupled, orthogonal or oblique: what counts is the volume alone."""
    matrix = torch.randn(7, 3, generator=generator, **F64)
    assert exact(lambda z: z @ matrix.T, points)
    assert exact(torch.sinh, points)
    assert exact(exponential, points[:, :2]) and coupling(exponential, points[:, :2]).off_diagonal > 0.4
    # a spiral staircase, with volume e^{z_1} √(1 + e^{2 z_1})
    assert exact(lambda z: torch.cat([exponential(z), z[:, 1:]], 1), points[:, :2])
    # a shear, which is neither orthogonal nor uncoupled, with volume 1
    assert exact(lambda z: torch.stack([z[:, 0], z[:, 1] + z[:, 0].sin()], 1), points[:, :2])


def test_an_orthogonal_decoder_without_coupling_is_a_product_and_one_with_coupling_need_not_be(points):
    assert coupling(stereographic, points).off_diagonal > 0.1
    assert mixed_derivative(stereographic, points).off_diagonal > 0.05


# References


def naive(decoder, point):
    """Hessian at one point, by reverse mode throughout."""

    def volume(z):
        columns = torch.autograd.functional.jacobian(
            lambda one: decoder(one[None])[0].flatten(), z, create_graph=True
        )
        return torch.linalg.slogdet(columns.T @ columns).logabsdet / 2

    return torch.autograd.functional.hessian(volume, point)


def test_against_reverse_mode_throughout(network, points):
    expected = torch.stack([naive(network, point) for point in points[:8]])
    torch.testing.assert_close(curvatures(network, points[:8]), expected)


def test_against_finite_differences_of_the_jacobians_determinant(network, points):
    step = 1e-4

    def volume(shift):
        return torch.linalg.slogdet(
            jacobian(network, points + shift).mT @ jacobian(network, points + shift)
        ).logabsdet

    first, second = step * torch.eye(3, **F64)[:2]
    change = (
        volume(first + second) - volume(first - second) - volume(second - first) + volume(-first - second)
    )
    expected = (change / (8 * step**2)).detach()
    found = curvatures(network, points)[:, 0, 1]
    # rounding over the square of the step, beside the square of the step
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1000 * EPS / step**2)


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Softplus(), nn.GELU()], ids=str)
def test_both_ways_agree(activation, points, generator):
    decoder = layers(activation, generator)
    directions = torch.eye(3, **F64)
    torch.testing.assert_close(
        _volume_forward(decoder, points, directions), _volume_reverse(decoder, points, directions)
    )


def test_differences_approach_derivatives_with_the_square_of_the_step(network, points):
    expected = curvatures(network, points)
    errors = [(curvatures(network, points, step=h) - expected).norm().item() for h in (0.02, 0.01)]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.01)
    assert errors[1] < 0.01 * expected.norm()


# Invariances


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_scale_and_isometries_of_the_data_change_nothing(network, points, generator, scale):
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator, **F64)).Q
    found = mixed_derivative(lambda z: scale * network(z).flatten(1) @ rotation, points)
    torch.testing.assert_close(found.matrix, mixed_derivative(network, points).matrix)


def test_order_and_sign_of_latents(network, points):
    order, signs = [2, 0, 1], torch.tensor([1.0, -1.0, 1.0], **F64)
    basis = torch.eye(3, **F64)[:, order] * signs
    permuted, plain = mixed_derivative(network, points, basis=basis), mixed_derivative(network, points)
    torch.testing.assert_close(permuted.matrix, plain.matrix[order][:, order])
    torch.testing.assert_close(permuted.off_diagonal, plain.off_diagonal)


def test_another_unit_of_each_latent_multiplies_by_its_slopes(network, points):
    """z_i = sinh(u_i) / 2 adds Σ log φ_i' to the log-volume, which has no mixed derivative."""
    u = (2 * points).asinh()
    slopes = u.cosh() / 2
    expected = curvatures(network, points) * slopes[:, :, None] * slopes[:, None, :]
    found = curvatures(lambda u: network(u.sinh() / 2), u)
    apart = ~torch.eye(3, dtype=torch.bool)
    torch.testing.assert_close(found[:, apart], expected[:, apart])


def test_products_stay_products_under_other_units_but_not_in_other_bases(points):
    assert exact(lambda u: exponential(u.sinh()), points[:, :2])
    bent = lambda z: exponential(torch.stack([z[:, 0].asinh(), z[:, 1]], 1))  # noqa: E731
    assert exact(bent, points[:, :2])
    rotation = torch.tensor([[0.8, -0.6], [0.6, 0.8]], **F64)
    assert mixed_derivative(bent, points[:, :2], basis=rotation).off_diagonal > 0.01


def test_a_basis_measures_rotated_coordinates(network, points, generator):
    basis = torch.linalg.qr(torch.randn(3, 3, generator=generator, **F64)).Q
    expected = basis.T @ curvatures(network, points) @ basis
    torch.testing.assert_close(curvatures(network, points, basis=basis), expected)
    torch.testing.assert_close(curvatures(network, points, basis=basis.numpy()), expected)


# Decoders of every kind


def layers(activation, generator, *, width=32):
    module = nn.Sequential(nn.Linear(3, width), activation, nn.Linear(width, 12), nn.Sigmoid()).double()
    for parameter in module.requires_grad_(False).parameters():
        parameter.copy_(
            2 * torch.randn(parameter.shape, generator=generator, **F64) / parameter.shape[-1] ** 0.5
        )
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("activation", [nn.ReLU(), nn.LeakyReLU(0.2), nn.ELU()], ids=str)
def test_kinks_are_refused_and_measured_by_steps(activation, dtype, points, generator):
    decoder, z = layers(activation, generator).to(dtype), points.to(dtype)
    with pytest.raises(ValueError, match="by more than derivatives account for.*give step"):
        mixed_derivative(decoder, z)
    assert mixed_derivative(decoder, z, step=0.3).off_diagonal > 0


def test_a_piecewise_linear_decoder_whose_volume_is_a_step(points):
    def kinked(z):
        return torch.stack([z[:, 0], 2 * z[:, 1] + F.relu(z[:, 0] + z[:, 1]) - F.relu(z[:, 0] - z[:, 1])], 1)

    with pytest.raises(ValueError, match="its volume differs between points while all of its derivatives"):
        mixed_derivative(kinked, points[:, :2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_volumes_of_a_linear_decoder_may_differ_by_rounding(points, dtype):
    weights = torch.tensor([[1.0, 0.3, 0.0, 0.2], [0.0, 2.0, 0.1, 0.7], [0.5, 0.0, 0.9, 0.4]], dtype=dtype)

    def scaled(z):
        size = 1 + z.detach().norm(dim=1, keepdim=True)
        return (z / size) @ weights * size

    z = points.to(dtype)
    volume = torch.stack([jacobian(scaled, z[k : k + 1])[0] for k in range(len(z))])
    assert float((volume - volume[0]).abs().max()) > 0
    assert float(mixed_derivative(scaled, z).matrix.abs().max()) == 0
    assert float(coupling(scaled, z).matrix.abs().max()) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "activation", [nn.Tanh(), nn.Softplus(20.0), nn.GELU(), nn.SiLU(), nn.Mish()], ids=str
)
def test_smooth_layers_are_not_taken_for_kinks(activation, dtype, points, generator):
    decoder, z = layers(activation, generator), points
    found = mixed_derivative(decoder.to(dtype), z.to(dtype))
    expected = mixed_derivative(decoder.double(), z, step=1e-3)
    torch.testing.assert_close(found.matrix.double(), expected.matrix, rtol=0.01, atol=0.01)


def test_decoders_that_switch_gradients_off(network, points):
    """Reverse mode would take what they compute for constant; forward mode does not."""

    def partly(z):
        with torch.no_grad():
            scale = z.sin().sum(1).exp()[:, None, None]
        return scale * network(z)

    expected = mixed_derivative(lambda z: z.sin().sum(1).exp()[:, None, None] * network(z), points)
    torch.testing.assert_close(mixed_derivative(partly, points).matrix, expected.matrix)
    whole = torch.no_grad()(lambda z: network(z).flatten(1))
    torch.testing.assert_close(
        mixed_derivative(whole, points).matrix, mixed_derivative(network, points).matrix
    )


def test_derivatives_that_cannot_be_found_are_refused(points):
    class Sine(torch.autograd.Function):
        """A function with its own forward derivative alone, whose second derivative torch takes for zero."""

        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * ctx.saved_tensors[0].cos()

    def product(sine):
        return lambda z: torch.cat([z, sine(z[:, :1]) * sine(z[:, 1:])], 1)

    with pytest.raises(
        ValueError, match="decoder must have third derivatives that automatic differentiation"
    ):
        mixed_derivative(product(Sine.apply), points)
    expected = mixed_derivative(product(torch.sin), points, step=0.1).matrix
    torch.testing.assert_close(mixed_derivative(product(Sine.apply), points, step=0.1).matrix, expected)


def test_chunks_numpy_types_and_inference_mode(network, points):
    expected = mixed_derivative(network, points).matrix
    torch.testing.assert_close(mixed_derivative(network, points.numpy(), chunk_size=7).matrix, expected)
    with torch.inference_mode():
        torch.testing.assert_close(mixed_derivative(network, 1 * points).matrix, expected)
    found = mixed_derivative(network, points.clone().requires_grad_(), per_point=True)
    torch.testing.assert_close(found.matrix, expected)
    assert not any(part.requires_grad for part in found)
    assert all(parameter.grad is None for parameter in network.parameters())
    single = mixed_derivative(network.float(), points.float(), per_point=True)
    assert {part.dtype for part in single} == {torch.float32, torch.bool}
    torch.testing.assert_close(single.matrix.double(), expected, rtol=1e-3, atol=1e-4)


# Degenerate decoders


def test_dead_latents_have_no_volume(points):
    found = mixed_derivative(lambda z: torch.cat([stereographic(z[:, :2]), 0 * z[:, 2:]], 1), points)
    expected = torch.zeros(3, 3, **F64)
    expected[:2, :2] = mixed_derivative(stereographic, points[:, :2]).matrix
    torch.testing.assert_close(found.matrix, expected)
    assert not found.singular.any()


def test_points_without_a_density_are_left_out(points):
    """Columns (1, z_2) and (1, z_1 + 1) are dependent where z_2 = z_1 + 1."""

    def decoder(z):
        return torch.stack([z.sum(1), z[:, 0] * z[:, 1] + z[:, 1]], 1)

    z = points[:, :2].clone()
    z[:5, 1] = z[:5, 0] + 1
    found, kept = mixed_derivative(decoder, z, per_point=True), mixed_derivative(decoder, z[5:])
    assert found.singular.tolist() == [True] * 5 + [False] * 25
    torch.testing.assert_close(found.matrix, kept.matrix)
    torch.testing.assert_close(found.standard_error, kept.standard_error)
    assert (found.per_point[:5] == 0).all()


def test_a_decoder_without_a_density_anywhere(points):
    found = mixed_derivative(lambda z: z.sum(1, keepdim=True) * torch.ones(1, 2, **F64), points)
    assert found.singular.all() and found.off_diagonal.isnan() and found.matrix.isnan().all()


def test_one_latent_has_no_pair(points):
    found = mixed_derivative(torch.sinh, points[:, :1])
    torch.testing.assert_close(found.matrix[0, 0], points[:, 0].cosh().pow(-4).mean())
    assert found.off_diagonal == 0 and found.standard_error == 0


def test_one_point_has_no_standard_error(network, points):
    assert mixed_derivative(network, points[:1]).standard_error.isnan()


def test_differences_beside_a_point_without_a_density():
    """x = (z_1 + z_2, z_1² + z_2) loses rank at z_1 = 1/2, one step of both latents away from the first point."""

    def decoder(z):
        return torch.stack([z.sum(1), z[:, 0] ** 2 + z[:, 1]], 1)

    z = torch.tensor([[0.25, 0.0], [2.0, 0.0]], **F64)
    assert mixed_derivative(decoder, z, step=0.25).singular.tolist() == [True, False]


# Refusals


def test_third_derivatives_must_be_finite(points):
    z = points.clone()
    z[3, 1] = 0

    def cusp(z):
        return torch.cat([z, z[:, :1] * z.abs() ** 2.5], 1)

    with pytest.raises(ValueError, match="decoder must have finite third derivatives, .* at 1 of 30 points"):
        mixed_derivative(cusp, z)


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1)).double(), "must be in evaluation mode, but Dropout"),
        (lambda z: z - z.mean(0), "decoder must treat each point on its own"),
        (lambda z: z.sum(1), r"decoder must map \(batch, latent\) to \(batch, \*data\), got"),
        (lambda z: torch.where(z > 0, z, NAN), "decoder must be finite and have finite derivatives"),
    ],
    ids=["dropout", "mixing", "rank", "NaN"],
)
def test_bad_decoders(decoder, message, points):
    with pytest.raises(ValueError, match=message):
        mixed_derivative(decoder, points)


@pytest.mark.parametrize(
    ("z", "options", "message"),
    [
        (torch.zeros(3), {}, r"z must have shape \(batch, latent\), got shape \(3,\)"),
        (torch.zeros(2, 3, dtype=torch.int64), {}, "z must be floating, got torch.int64"),
        (torch.zeros(2, 3), {"basis": torch.eye(2)}, r"basis must have shape \(3, 3\), got shape \(2, 2\)"),
        (torch.zeros(2, 3), {"step": 0.0}, "step must be positive, got 0.0"),
        (torch.zeros(2, 3), {"step": math.inf}, "step must be finite, got inf"),
        (torch.zeros(2, 3), {"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
    ],
)
def test_bad_arguments(z, options, message):
    with pytest.raises(ValueError, match=message):
        mixed_derivative(lambda z: z, z, **options)
