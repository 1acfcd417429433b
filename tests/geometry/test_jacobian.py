"""The decoder's Jacobian and its pullback."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from unseam.geometry import jacobian, pullback


@pytest.fixture
def points(generator):
    return torch.randn(5, 3, generator=generator, dtype=torch.float64)


@pytest.fixture
def decoder(generator):
    """A tanh network from three latents to pictures of two by four."""
    return network(generator)


def network(generator):
    module = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 8), nn.Unflatten(1, (2, 4))).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    return module


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
def test_chunks_change_nothing_but_the_number_of_points_at_once(decoder, points, function, chunk_size):
    seen = []

    def spy(z):
        seen.append(len(z))
        return decoder(z)

    found = function(spy, points, chunk_size=chunk_size)
    torch.testing.assert_close(found, function(decoder, points))
    assert max(seen) == min(chunk_size, 5)
    assert sum(seen) == 5


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


def test_members_of_a_stack_have_their_own_metric(generator, points):
    decoders = [network(generator) for _ in range(3)]
    parameters, buffers = stack_module_state(decoders)

    def one(parameters, buffers, z):
        return pullback(lambda z: functional_call(decoders[0], (parameters, buffers), (z,)), z)

    found = vmap(one, in_dims=(0, 0, None))(parameters, buffers, points)
    torch.testing.assert_close(found, torch.stack([pullback(decoder, points) for decoder in decoders]))


@pytest.mark.parametrize(
    ("z", "message"),
    [
        (torch.zeros(3), r"z must have shape \(batch, latent\), got shape \(3,\)"),
        (torch.zeros(2, 3, 1), r"z must have shape \(batch, latent\), got shape \(2, 3, 1\)"),
        (torch.zeros(2, 3, dtype=torch.int64), "z must be floating, got torch.int64"),
        (torch.zeros(0, 3), r"z must hold at least one point and one latent, got shape \(0, 3\)"),
        (torch.zeros(2, 0), r"z must hold at least one point and one latent, got shape \(2, 0\)"),
    ],
)
@pytest.mark.parametrize("function", [jacobian, pullback])
def test_bad_points_are_refused(function, z, message):
    with pytest.raises(ValueError, match=message):
        function(lambda z: z, z)


@pytest.mark.parametrize("function", [jacobian, pullback])
def test_bad_chunk_size_is_refused(function, points):
    with pytest.raises(ValueError, match="chunk_size must be at least 1 or None, got 0"):
        function(lambda z: z, points, chunk_size=0)


@pytest.mark.parametrize("decode", [lambda z: z.sum(1), lambda z: z[:2], lambda z: z.sum()])
def test_decoder_that_loses_the_batch_is_refused(decode, points):
    with pytest.raises(ValueError, match=r"decoder must map \(batch, latent\) to \(batch, \*data\), got"):
        jacobian(decode, points)
