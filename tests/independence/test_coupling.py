"""Dependence of each factor on coordinates that are not its own."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import integrate, stats
from torch import nn
from torch.func import jvp
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unseam.geometry import jacobian
from unseam.independence import coupling

F64 = {"dtype": torch.float64}
EPS = torch.finfo(torch.float64).eps
NAN = float("nan")


@pytest.fixture
def points(generator):
    return torch.randn(30, 3, generator=generator, **F64)


def exponential(z):
    """z ↦ e^z of complex numbers."""
    return z[:, :1].exp() * torch.cat([z[:, 1:2].cos(), z[:, 1:2].sin()], 1)


def slopes(decoder, z, **options):
    return coupling(decoder, z, per_point=True, **options).per_point


def test_the_complex_exponential_in_closed_form(points):
    """Both norms are e^{z_1}: factors depend on z_1 with slope 1 and on z_2 not at all."""
    found = coupling(exponential, points[:, :2])
    torch.testing.assert_close(
        found.matrix, torch.tensor([[1.0, 0.0], [1.0, 0.0]], **F64), atol=100 * EPS, rtol=0
    )
    assert found.off_diagonal.item() == pytest.approx(0.5)
    assert found.standard_error.item() < 100 * EPS
    assert found.per_point is None


def test_linear_decoders_have_none(generator, points):
    matrix = torch.randn(7, 3, generator=generator, **F64)
    found = coupling(lambda z: z @ matrix.T, points)
    assert (found.matrix == 0).all() and found.off_diagonal == 0 and found.standard_error == 0


def test_separable_decoders_have_a_diagonal_matrix(generator):
    """sinh has norm cosh and slope tanh, whose mean square under the prior is known by quadrature."""
    z = torch.randn(4000, 2, generator=generator, **F64)
    found = coupling(torch.sinh, z)
    assert found.off_diagonal == 0
    expected, _ = integrate.quad(lambda t: np.tanh(t) ** 2 * stats.norm.pdf(t), -10, 10)
    error = z.tanh().square().std(0) / len(z) ** 0.5
    assert ((found.matrix.diagonal() - expected).abs() < 4 * error).all()


def test_a_product_of_latents_in_closed_form(points):
    """x = (z_1, z_1 z_2): norms √(1 + z_2²) and |z_1|."""
    a, b = points[:, 0], points[:, 1]
    expected = torch.zeros(len(points), 2, 2, **F64)
    expected[:, 0, 1] = b / (1 + b**2)
    expected[:, 1, 0] = 1 / a
    found = coupling(lambda z: torch.stack([z[:, 0], z[:, 0] * z[:, 1]], 1), points[:, :2], per_point=True)
    torch.testing.assert_close(found.per_point, expected)
    torch.testing.assert_close(found.matrix, expected.square().mean(0))
    means = (expected[:, 0, 1] ** 2 + expected[:, 1, 0] ** 2) / 2
    torch.testing.assert_close(found.off_diagonal, means.mean())
    torch.testing.assert_close(found.standard_error, torch.as_tensor(stats.sem(means.numpy())))


def test_against_finite_differences(network, points):
    step, expected = 1e-5, []
    for axis in torch.eye(3, **F64):
        ahead, behind = (jacobian(network, points + sign * step * axis).norm(dim=1).log() for sign in (1, -1))
        expected.append((ahead - behind) / (2 * step))
    # rounding over the step, beside the square of the step
    torch.testing.assert_close(
        slopes(network, points), torch.stack(expected, 2).detach(), rtol=0, atol=100 * EPS / step
    )


def test_against_forward_mode_twice(network, points):
    def lengths(z):
        return jacobian(network, z).norm(dim=1).log()

    expected = [jvp(lengths, (points,), (axis.expand_as(points),))[1] for axis in torch.eye(3, **F64)]
    torch.testing.assert_close(slopes(network, points), torch.stack(expected, 2).detach())


def test_differences_approach_derivatives_with_the_square_of_the_step(network, points):
    errors = [(slopes(network, points, step=h) - slopes(network, points)).norm().item() for h in (0.02, 0.01)]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.01)
    assert errors[1] < 0.01 * slopes(network, points).norm()


def test_steps_see_what_derivatives_of_piecewise_linear_decoders_miss(generator, points):
    """|z_1| shifts the norm of z_2 from 1 to 3 where z_1 changes its sign."""

    def kinked(z):
        return torch.stack([z[:, 0], 2 * z[:, 1] + F.relu(z[:, 0] + z[:, 1]) - F.relu(z[:, 0] - z[:, 1])], 1)

    with pytest.raises(
        ValueError, match="decoder must be smooth, but its column norms differ between points while"
    ):
        coupling(kinked, points[:, :2])
    assert coupling(kinked, points[:, :2], step=0.5).off_diagonal > 0
    z = torch.tensor([[0.0, 1.0]], **F64)
    found = slopes(kinked, z, step=2.0)
    ahead, behind = (
        jacobian(kinked, z + torch.tensor([[sign * 2.0, 0.0]], **F64)).norm(dim=1) for sign in (1, -1)
    )
    torch.testing.assert_close(found[:, :, 0], (ahead.log() - behind.log()) / 4)


def layers(latent, hidden, last, seed, *, width=32):
    generator = torch.Generator().manual_seed(seed)
    module = nn.Sequential(nn.Linear(latent, width), hidden, nn.Linear(width, 12), last).double()
    for parameter in module.requires_grad_(False).parameters():
        parameter.copy_(
            2 * torch.randn(parameter.shape, generator=generator, **F64) / parameter.shape[-1] ** 0.5
        )
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("hidden", "last"),
    [(nn.ReLU(), nn.Sigmoid()), (nn.ReLU(), nn.Tanh()), (nn.LeakyReLU(0.2), nn.Softplus())],
    ids=["relu sigmoid", "relu tanh", "leaky softplus"],
)
def test_kinks_behind_a_smooth_last_layer_are_refused(hidden, last, seed, dtype, points):
    decoder, z = layers(3, hidden, last, seed).to(dtype), points.to(dtype)
    with pytest.raises(ValueError, match="by more than their derivatives account for.*give step"):
        coupling(decoder, z)
    assert coupling(decoder, z, step=0.3).off_diagonal > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "hidden", [nn.Tanh(), nn.Softplus(), nn.Softplus(20.0), nn.ELU(), nn.GELU(), nn.SiLU()], ids=str
)
def test_smooth_layers_are_not_taken_for_kinks(hidden, seed, dtype, points):
    decoder, z = layers(3, hidden, nn.Sigmoid(), seed).to(dtype), points.to(dtype)
    assert coupling(decoder, z).off_diagonal > 0


@pytest.mark.parametrize(
    "decoder",
    [torch.sinh, lambda z: z**3, lambda z: torch.sin(4 * z), lambda z: z[:, :1] * z, lambda z: z.square()],
    ids=["sinh", "cubes", "waves", "products", "squares"],
)
def test_poles_of_log_norms_are_not_taken_for_kinks(decoder):
    """Where a column vanishes between points its log-norm has no value, but no jump either."""
    for seed in range(10):
        z = torch.randn(20, 3, generator=torch.Generator().manual_seed(seed), **F64)
        assert coupling(decoder, z).matrix.isfinite().all()


def test_a_relu_decoder_that_stays_in_one_piece_is_linear(points):
    found = coupling(lambda z: F.relu(z + 100), points)
    assert (found.matrix == 0).all()


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_scale_and_isometries_of_the_data_change_nothing(network, points, generator, scale):
    turn = torch.linalg.qr(torch.randn(8, 8, generator=generator, **F64)).Q
    found = coupling(lambda z: scale * network(z).flatten(1) @ turn, points)
    torch.testing.assert_close(found.matrix, coupling(network, points).matrix)


def test_order_and_sign_of_latents(network, points):
    order, signs = [2, 0, 1], torch.tensor([1.0, -1.0, 1.0], **F64)
    basis = torch.eye(3, **F64)[:, order] * signs
    turned, plain = coupling(network, points, basis=basis), coupling(network, points)
    torch.testing.assert_close(turned.matrix, plain.matrix[order][:, order])
    torch.testing.assert_close(turned.off_diagonal, plain.off_diagonal)


def test_a_basis_measures_rotated_coordinates(network, points, generator):
    basis = torch.linalg.qr(torch.randn(3, 3, generator=generator, **F64)).Q
    expected = coupling(lambda u: network(u @ basis.T), points @ basis).matrix
    torch.testing.assert_close(coupling(network, points, basis=basis).matrix, expected)
    torch.testing.assert_close(coupling(network, points, basis=basis.numpy()).matrix, expected)


def gradients_off(decoder):
    def inside(z):
        with torch.no_grad():
            scale = z[:, :1].exp()
        return scale * decoder(z)

    return inside


@pytest.mark.parametrize("wrap", [torch.no_grad(), gradients_off], ids=["all", "part"])
def test_decoders_that_switch_gradients_off(wrap, network, points):
    """Reverse mode would take what they compute for constant; forward mode does not."""
    expected = network if wrap is not gradients_off else (lambda z: z[:, :1, None].exp() * network(z))
    found = coupling(wrap(lambda z: network(z).flatten(1)), points)
    torch.testing.assert_close(found.matrix, coupling(expected, points).matrix)


class Sine(torch.autograd.Function):
    """A function with its own derivative: torch's forward mode, taken twice, finds a second one of zero."""

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


class Both(Sine):
    """The same, with a derivative in reverse mode too."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


def product(sine):
    return lambda z: torch.cat([sine(z), sine(z[:, :1]) * sine(z[:, 1:])], 1)


def test_decoders_with_their_own_derivatives(points):
    torch.testing.assert_close(coupling(product(Both.apply), points), coupling(product(torch.sin), points))


def test_second_derivatives_that_cannot_be_found_are_refused(points):
    message = (
        "decoder must have second derivatives that automatic differentiation finds, but they are not those of"
    )
    with pytest.raises(ValueError, match=message):
        coupling(product(Sine.apply), points)
    expected = coupling(product(torch.sin), points, step=0.1).matrix
    torch.testing.assert_close(coupling(product(Sine.apply), points, step=0.1).matrix, expected)


def through_numpy(z):
    """Reads numbers, which no tensor under torch.func gives."""
    scale = torch.as_tensor(2 + 0 * z.detach().numpy()[:, :1])
    return exponential(z) * scale


def test_decoder_that_torch_func_refuses_has_one_warning_and_its_coupling(points):
    with pytest.warns(
        UserWarning, match="decoder fails under torch.func.vmap, so its latents go one by one"
    ) as seen:
        found = coupling(through_numpy, points[:, :2], chunk_size=7)
    assert len(seen) == 1
    torch.testing.assert_close(
        found.matrix, coupling(exponential, points[:, :2]).matrix, atol=100 * EPS, rtol=0
    )


def test_known_and_unknown_layers_agree(network, points):
    torch.testing.assert_close(coupling(lambda z: network(1 * z), points), coupling(network, points))


class Largest(TorchDispatchMode):
    """Notes the size of every result."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.sizes += [value.numel() for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        return result


@pytest.mark.parametrize("wrap", [lambda decoder: decoder, torch.no_grad()], ids=["reverse", "forward"])
def test_memory_is_bounded_by_the_chunk(generator, wrap):
    decoder = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 500)).double()
    z = torch.randn(60, 3, generator=generator, **F64)
    with Largest() as seen:
        chunked = coupling(wrap(decoder.forward), z, chunk_size=5)
    assert max(seen.sizes) <= 5 * 3 * 500
    torch.testing.assert_close(chunked, coupling(decoder, z))


def test_chunks_numpy_types_and_inference_mode(network, points):
    expected = coupling(network, points).matrix
    torch.testing.assert_close(coupling(network, points.numpy(), chunk_size=7).matrix, expected)
    with torch.inference_mode():
        torch.testing.assert_close(coupling(network, 1 * points).matrix, expected)
    found = coupling(network, points.clone().requires_grad_())
    torch.testing.assert_close(found.matrix, expected)
    assert not found.matrix.requires_grad
    single = coupling(network.float(), points.float(), per_point=True)
    assert {part.dtype for part in single} == {torch.float32}
    torch.testing.assert_close(single.matrix.double(), expected, rtol=1e-4, atol=1e-5)


def test_weights_gather_no_gradients(network, points):
    coupling(network, points)
    assert all(parameter.grad is None for parameter in network.parameters())


# Degenerate decoders


def test_dead_latents_have_no_factor_and_form_no_pair(points):
    def dead(z):
        return torch.cat([exponential(z), 0 * z[:, 2:]], 1)

    found = coupling(dead, points)
    expected = torch.zeros(3, 3, **F64)
    expected[:2, 0] = 1
    torch.testing.assert_close(found.matrix, expected, atol=100 * EPS, rtol=0)
    assert found.off_diagonal.item() == pytest.approx(0.5)


def test_points_where_a_latent_is_dead_are_left_out():
    """The second latent lives where the first is positive, and its norm is e^{z_1} there."""

    def partly(z):
        gate = (z[:, :1] > 0).to(z.dtype)
        return torch.cat([z[:, :1], gate * z[:, :1].exp() * z[:, 1:]], 1)

    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]], **F64)
    found = coupling(partly, z)
    assert found.matrix[1, 0].item() == pytest.approx(1)
    assert found.off_diagonal.item() == pytest.approx(0.5)
    assert found.standard_error.isnan()


def test_one_latent_has_no_pair(points):
    found = coupling(torch.exp, points[:, :1])
    torch.testing.assert_close(found.matrix, torch.ones(1, 1, **F64))
    assert found.off_diagonal == 0 and found.standard_error == 0


def test_a_decoder_of_nothing(points):
    found = coupling(lambda z: 0 * z, points)
    assert (found.matrix == 0).all() and found.off_diagonal == 0


def test_one_point_has_no_standard_error(network, points):
    assert coupling(network, points[:1]).standard_error.isnan()


# Refusals, in the words of the Jacobian


MODES = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1)).double()
NORMS = nn.Sequential(nn.BatchNorm1d(3)).double()
REFUSED = {
    "dropout": (MODES, "decoder must be in evaluation mode, but Dropout '1' is in training mode"),
    "batch normalisation": (
        NORMS,
        "decoder must be in evaluation mode, but BatchNorm1d '0' is in training mode",
    ),
    "hidden dropout": (lambda z: F.dropout(z), "decoder must give the same output each time"),
    "mixing": (lambda z: z - z.mean(0), "decoder must treat each point on its own"),
    "rank": (lambda z: z.sum(1), r"decoder must map \(batch, latent\) to \(batch, \*data\), got"),
    "latents": (nn.Linear(5, 4).double(), r"decoder does not accept z \(batch, 3\)"),
    "NaN": (lambda z: torch.where(z > 0, z, NAN).exp(), "decoder must be finite and have finite derivatives"),
}


@pytest.mark.parametrize("basis", [None, torch.eye(3, **F64)], ids=["axes", "basis"])
@pytest.mark.parametrize("name", REFUSED)
def test_bad_decoders(name, basis, points):
    decoder, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        coupling(decoder, points, basis=basis)


def test_second_derivatives_must_be_finite(points):
    """|z|^1.5 has a derivative at 0, and no second one."""
    z = points.clone()
    z[3, 1] = 0

    def cusp(z):
        return torch.cat([z, z.abs() ** 1.5], 1)

    with pytest.raises(ValueError, match="decoder must have finite second derivatives, .* at 1 of 30 points"):
        coupling(cusp, z)


@pytest.mark.parametrize(
    ("z", "options", "message"),
    [
        (torch.zeros(3), {}, r"z must have shape \(batch, latent\), got shape \(3,\)"),
        (torch.zeros(2, 3, dtype=torch.int64), {}, "z must be floating, got torch.int64"),
        (torch.full((2, 3), NAN), {}, "z must be finite, got NaN or infinite values at 2 of 2 points"),
        (torch.zeros(2, 3), {"basis": torch.eye(2)}, r"basis must have shape \(3, 3\), got shape \(2, 2\)"),
        (torch.zeros(2, 3), {"basis": torch.ones(3, 3)}, "basis must have orthonormal columns"),
        (torch.zeros(2, 3), {"step": 0.0}, "step must be positive, got 0.0"),
        (torch.zeros(2, 3), {"step": math.inf}, "step must be finite, got inf"),
        (torch.zeros(2, 3), {"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
    ],
)
def test_bad_arguments(z, options, message):
    with pytest.raises(ValueError, match=message):
        coupling(lambda z: z, z, **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{}, {"step": 0.1}, {"basis": torch.eye(3)}], ids=str)
def test_a_cuda_device_gives_the_same_numbers(network, points, options):
    expected = coupling(network, points, **options).matrix
    found = coupling(network.cuda(), points.cuda(), **options).matrix
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), expected)
