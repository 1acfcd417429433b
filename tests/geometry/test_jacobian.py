"""The decoder's Jacobian and its pullback."""

import importlib

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils import parametrizations
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unseam.geometry import jacobian, pullback
from unseam.geometry.structure import push


@pytest.fixture
def points(generator):
    return torch.randn(5, 3, generator=generator, dtype=torch.float64)


@pytest.fixture
def decoder(network):
    return network


class Logistic:
    """The Fisher weight of Bernoulli logits."""

    def fisher_weight(self, output):
        return output.sigmoid() * (1 - output.sigmoid())


def test_linear_map_gives_its_matrix(generator, points):
    matrix = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    found = jacobian(lambda z: z @ matrix.T + 1, points)
    torch.testing.assert_close(found, matrix.expand(5, 7, 3))


def test_against_reverse_mode(decoder, points):
    expected = [
        torch.autograd.functional.jacobian(lambda z: decoder(z[None])[0].flatten(), point) for point in points
    ]
    torch.testing.assert_close(jacobian(decoder, points), torch.stack(expected))


def test_against_finite_differences(decoder, points):
    step = 1e-6
    columns = []
    for j in range(3):
        shift = step * torch.eye(3, dtype=torch.float64)[j]
        columns.append((decoder(points + shift) - decoder(points - shift)).flatten(1) / (2 * step))
    torch.testing.assert_close(jacobian(decoder, points), torch.stack(columns, -1), rtol=0, atol=1e-8)


def test_pullback_is_the_weighted_gram_matrix(decoder, points):
    columns, output = jacobian(decoder, points), decoder(points).flatten(1)
    plain = torch.einsum("bni,bnj->bij", columns, columns)
    torch.testing.assert_close(pullback(decoder, points), plain)
    success = output.sigmoid()
    weighted = torch.einsum("bni,bn,bnj->bij", columns, success * (1 - success), columns)
    torch.testing.assert_close(pullback(decoder, points, likelihood=Logistic()), weighted)


def test_pullback_is_minus_the_hessian_of_a_log_likelihood_linear_in_z(generator, points):
    """allen2024 Eq. 6: exact where the decoder's own Hessian is zero."""
    matrix = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    x = torch.rand(7, generator=generator, dtype=torch.float64)

    def log_likelihood(z):
        logits = matrix @ z
        return (x * logits - nn.functional.softplus(logits)).sum()

    hessian = torch.autograd.functional.hessian(log_likelihood, points[0])
    found = pullback(lambda z: z @ matrix.T, points[:1], likelihood=Logistic())
    torch.testing.assert_close(found[0], -hessian)


def test_rotation_of_latents_rotates_the_metric(decoder, points, generator):
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    turned = pullback(lambda z: decoder(z @ rotation.T), points @ rotation)
    torch.testing.assert_close(turned, rotation.T @ pullback(decoder, points) @ rotation)


@pytest.mark.parametrize("chunk_size", [1, 2, 5, 9])
@pytest.mark.parametrize("function", [jacobian, pullback])
@pytest.mark.parametrize("known", [True, False])
def test_chunks_change_nothing_but_the_number_of_points_at_once(decoder, points, function, chunk_size, known):
    seen = []

    def spy(z):
        seen.append(len(z))
        return decoder(z if known else 1 * z)

    found = function(spy, points, chunk_size=chunk_size)
    torch.testing.assert_close(found, function(decoder, points))
    assert max(seen) == min(chunk_size, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_type_of_z_is_kept(decoder, points, dtype):
    assert jacobian(decoder.to(dtype), points.to(dtype)).dtype == dtype
    assert pullback(decoder.to(dtype), points.to(dtype)).dtype == dtype


def test_numpy_points_are_accepted(decoder, points):
    found = jacobian(decoder, np.asarray(points))
    torch.testing.assert_close(found, jacobian(decoder, points))


def test_pullback_can_be_trained_through(decoder, points):
    """Gradients in the parameters and in z, against finite differences."""

    def objective(weight, z):
        replaced = {**dict(decoder.named_parameters()), "0.weight": weight}
        metric = pullback(lambda z: functional_call(decoder, replaced, (z,)), z, likelihood=Logistic())
        return metric.square().sum()

    weight = decoder[0].weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(objective, (weight, points[:2].clone().requires_grad_()))


def test_members_of_a_stack_have_their_own_metric(make_network, generator, points):
    decoders = [make_network(generator) for _ in range(3)]
    parameters, buffers = stack_module_state(decoders)

    def one(parameters, buffers, z):
        return pullback(lambda z: functional_call(decoders[0], (parameters, buffers), (z,)), z)

    found = vmap(one, in_dims=(0, 0, None))(parameters, buffers, points)
    torch.testing.assert_close(found, torch.stack([pullback(decoder, points) for decoder in decoders]))


def unknown(decoder):
    """The same decoder, with a step that only torch's own forward mode can follow."""
    return lambda z: decoder(1 * z)


@pytest.mark.parametrize("function", [jacobian, pullback])
def test_known_layers_agree_with_forward_mode(decoder, points, function):
    torch.testing.assert_close(
        function(decoder, points), function(unknown(decoder), points), rtol=1e-10, atol=1e-10
    )
    assert push(decoder, points) is not None
    assert push(unknown(decoder), points) is None


@pytest.fixture
def wide(generator):
    """A matrix U S Vᵀ of chosen singular values, 40 x 3, its V, and the linear decoder that it makes."""
    left, right = (
        torch.linalg.qr(torch.randn(size, 3, generator=generator, dtype=torch.float64)).Q for size in (40, 3)
    )
    values = torch.tensor([10.0, 2.0, 0.5], dtype=torch.float64)
    decoder = nn.Linear(3, 40).double()
    with torch.no_grad():
        decoder.weight.copy_(left * values @ right.T)
    return decoder, left, values, right


@pytest.mark.parametrize("wrap", [lambda decoder: decoder, unknown], ids=["known", "unknown"])
def test_linear_decoder_of_chosen_singular_values(wide, points, wrap):
    decoder, left, values, right = wide
    with torch.no_grad():
        found = jacobian(wrap(decoder), points)
        metric = pullback(wrap(decoder), points)
    torch.testing.assert_close(found, (left * values @ right.T).expand(5, 40, 3))
    torch.testing.assert_close(metric, (right * values**2 @ right.T).expand(5, 3, 3))


class Largest(TorchDispatchMode):
    """Notes the size of every result and the names of operations."""

    def __init__(self):
        super().__init__()
        self.sizes, self.names = [], set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.names.add(func._schema.name)
        values = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        self.sizes += [value.numel() for value in values if not value.is_meta]
        return result


@pytest.mark.parametrize("likelihood", [None, Logistic()], ids=["identity", "Fisher"])
@pytest.mark.parametrize("wrap", [lambda decoder: decoder, unknown], ids=["known", "unknown"])
def test_pullback_never_holds_the_jacobian_of_all_points(generator, wrap, likelihood):
    decoder = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 500))
    z = torch.randn(200, 3, generator=generator)
    with torch.no_grad(), Largest() as seen:
        pullback(wrap(decoder), z, likelihood=likelihood, chunk_size=10)
    assert max(seen.sizes) <= 10 * 3 * 500
    with torch.no_grad(), Largest() as seen:
        jacobian(decoder, z, chunk_size=10)
    assert max(seen.sizes) == 200 * 3 * 500


def test_outputs_of_a_wide_last_layer_are_not_formed(generator):
    decoder = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 300), nn.Unflatten(1, (3, 100))).double()
    z = torch.randn(100, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        with Largest() as seen:
            found = pullback(decoder, z, chunk_size=50)
        assert max(seen.sizes) < 50 * 300
        assert "aten::linalg_qr" in seen.names
        torch.testing.assert_close(found, pullback(unknown(decoder), z), rtol=1e-10, atol=1e-12)
        columns = jacobian(decoder, z)
        torch.testing.assert_close(found, columns.mT @ columns, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("points, outputs", [(2, 300), (100, 8), (100, 4)])
def test_outputs_are_formed_where_that_is_cheaper(generator, points, outputs):
    decoder = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, outputs))
    with torch.no_grad(), Largest() as seen:
        pullback(decoder, torch.randn(points, 3, generator=generator))
    assert "aten::linalg_qr" not in seen.names


def test_a_last_layer_that_cancels_keeps_its_accuracy(generator):
    """Tangents in a direction that the last matrix shrinks: its Gram matrix in float32 would lose them."""
    left = torch.linalg.qr(torch.randn(60, 4, generator=generator, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64)).Q
    weight = left * torch.tensor([1.0, 1.0, 1.0, 1e-3], dtype=torch.float64) @ right.T
    decoder = nn.Sequential(nn.Linear(1, 4, bias=False), nn.Softplus(), nn.Linear(4, 60)).double()
    with torch.no_grad():
        decoder[0].weight.copy_(2 * right[:, 3:])
        decoder[2].weight.copy_(weight)
        z = torch.zeros(200, 1, dtype=torch.float64)
        expected = jacobian(decoder, z).square().sum(1).squeeze(1)
        found = pullback(decoder.float(), z.float())[:, 0, 0].double()
        gram = (decoder[2].weight.T @ decoder[2].weight).double()
    tangent = decoder[0].weight.detach().double()[:, 0] / 2
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=0)
    assert abs(tangent @ gram @ tangent - expected[0]) > 1e-3 * expected[0]


def test_normalised_weights_are_new_in_every_chunk(generator):
    decoder = nn.Sequential(
        nn.Linear(3, 4), nn.Tanh(), parametrizations.weight_norm(nn.Linear(4, 50))
    ).double()
    z = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(pullback(decoder, z, chunk_size=7), pullback(unknown(decoder), z))


def test_the_metric_is_symmetric_to_the_last_bit(decoder, points):
    for likelihood in (None, Logistic()):
        metric = pullback(decoder.float(), points.float(), likelihood=likelihood)
        assert torch.equal(metric, metric.mT)


def test_the_number_of_points_at_once_is_chosen_from_memory(decoder, points, monkeypatch):
    asked = []

    def two(*given):
        asked.append(given)
        return 2

    monkeypatch.setattr(importlib.import_module("unseam.geometry.jacobian"), "points_at_once", two)
    seen = []
    decoder.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    pullback(decoder, points)
    assert asked == [(3, 8, torch.float64, torch.device("cpu"))]
    assert seen[-3:] == [2, 2, 1]


@pytest.mark.parametrize("wrap", [lambda decoder: decoder, unknown], ids=["known", "unknown"])
def test_pullback_and_jacobian_pass_gradients_to_z_and_to_every_weight(decoder, points, wrap):
    names, weights = zip(*decoder.named_parameters(), strict=True)

    def both(z, *weights):
        own = dict(zip(names, weights, strict=True))
        decode = wrap(lambda z: functional_call(decoder, own, (z,)))
        return pullback(decode, z, likelihood=Logistic()), pullback(decode, z), jacobian(decode, z)

    weights = [weight.detach().clone().requires_grad_() for weight in weights]
    assert torch.autograd.gradcheck(both, (points[:2].clone().requires_grad_(), *weights))


def test_gradients_reach_the_weights_from_points_without(decoder, points):
    """Checks and chunks do not cut the graph."""
    pullback(decoder, points, chunk_size=2).sum().backward()
    found = decoder[0].weight.grad.clone()
    decoder.zero_grad()
    jacobian(decoder, points).square().sum().backward()
    assert found.shape == (6, 3)
    columns = jacobian(decoder, points)
    decoder.zero_grad()
    (columns.mT @ columns).sum().backward()
    torch.testing.assert_close(decoder[0].weight.grad, found)


@pytest.mark.parametrize("wrap", [lambda decoder: decoder, unknown], ids=["known", "unknown"])
def test_measuring_in_inference_mode_and_under_autocast(decoder, points, wrap):
    expected = jacobian(decoder, points).detach()
    with torch.inference_mode():
        torch.testing.assert_close(jacobian(wrap(decoder), points), expected)
        torch.testing.assert_close(pullback(wrap(decoder), 1 * points), expected.mT @ expected)
    decoder, points = decoder.float(), points.float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = jacobian(wrap(decoder), points)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=0.05, atol=0.05)


def test_a_derivative_that_the_decoder_defines_is_respected(points, straight):
    found = jacobian(straight(torch.tanh), points)
    torch.testing.assert_close(found, torch.eye(3).double().expand(5, 3, 3))


def through_numpy(z):
    """Reads numbers, which no tensor under vmap gives."""
    scale = torch.as_tensor(z.detach().numpy()[:, :1] > 0)
    return z * z[:, :1] * scale


def test_decoder_that_fails_under_vmap_goes_latent_by_latent_with_one_warning(points):
    with pytest.warns(
        UserWarning, match="decoder fails under torch.func.vmap, so its latents go one by one"
    ) as seen:
        found = jacobian(through_numpy, points, chunk_size=2)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    expected = [
        torch.autograd.functional.jacobian(lambda z: through_numpy(z[None])[0], point) for point in points
    ]
    torch.testing.assert_close(found, torch.stack(expected))


class Backward(torch.autograd.Function):
    """A function without a forward-mode derivative."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@pytest.mark.parametrize("function", [jacobian, pullback])
def test_decoder_without_forward_mode_is_refused(points, function):
    with pytest.raises(ValueError, match="decoder cannot be differentiated in forward mode: "):
        function(Backward.apply, points)


@pytest.mark.parametrize("function", [jacobian, pullback])
def test_bad_chunk_size_is_refused(function, points):
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        function(lambda z: z, points, chunk_size=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_weight_more_precise_than_a_half_precision_decoder(dtype):
    from unseam.models import Gaussian

    z = torch.tensor([[0.5, 2.0]])
    found = pullback(lambda z: z**2, z.to(dtype), likelihood=Gaussian(variance=0.25))
    expected = pullback(lambda z: z**2, z, likelihood=Gaussian(variance=0.25))
    torch.testing.assert_close(found.float(), expected)
