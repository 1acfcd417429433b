"""Points and tangents through known layers, against torch's own derivatives."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, jacfwd, stack_module_state, vmap
from torch.nn.utils import parametrizations

from unseam.geometry.structure import push
from unseam.models import MLP, BatchNorm, build, faces_decoder, initialise, shapes_decoder, study_decoder

LATENT = 3


def filled(module, seed=0):
    """A module in double precision and evaluation mode, every parameter and statistic drawn."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64) / 2
                value.copy_(drawn.abs() + 0.5 if name.endswith("running_var") else drawn)
    return module


def derivative(decoder, z):
    """Jacobian (batch, latent, *data) point by point, by torch alone."""
    return vmap(jacfwd(lambda point: decoder(point[None])[0]))(z).movedim(-1, 1)


def assert_pushed(decoder, z):
    pushed = push(decoder, z)
    assert pushed is not None
    torch.testing.assert_close(pushed.primal, decoder(z), rtol=0, atol=1e-12)
    expected = derivative(decoder, z)
    assert pushed.shape == decoder(z).shape
    torch.testing.assert_close(pushed.tangents.expand_as(expected), expected, rtol=1e-10, atol=1e-10)


@pytest.fixture
def points(generator):
    return torch.randn(5, LATENT, generator=generator, dtype=torch.float64)


ACTIVATIONS = [
    *(nn.ReLU(), nn.ReLU(inplace=True), nn.LeakyReLU(0.2), nn.LeakyReLU(0.1, inplace=True), nn.Tanh()),
    *(nn.Sigmoid(), nn.Softplus(), nn.Softplus(beta=2.0, threshold=1.0), nn.ELU(), nn.ELU(0.5, inplace=True)),
    *(nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU(), nn.SiLU(inplace=True), nn.Mish(), nn.SELU()),
    *(nn.CELU(), nn.Hardtanh(), nn.ReLU6(), nn.Hardswish(), nn.LogSigmoid(), nn.Softsign(), nn.Identity()),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_activations(activation, points):
    assert_pushed(
        filled(nn.Sequential(nn.Linear(LATENT, 6), activation, nn.Linear(6, 4), activation)), points
    )


class Recast(nn.Module):
    """A layer between changes of type that change nothing here."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, z):
        return self.layer(z.to(torch.float64)).to(z.dtype)


LAYERS = {
    "affine": nn.Linear(LATENT, 4),
    "without bias": nn.Linear(LATENT, 4, bias=False),
    "two affine": nn.Sequential(nn.Linear(LATENT, 6), nn.Linear(6, 4)),
    "nothing": nn.Sequential(),
    "nested": nn.Sequential(
        nn.Sequential(nn.Linear(LATENT, 6), nn.Tanh()), nn.Sequential(nn.Sequential(nn.Linear(6, 4)))
    ),
    "pictures out": nn.Sequential(
        nn.Linear(LATENT, 8), nn.Tanh(), nn.Linear(8, 8), nn.Unflatten(1, (2, 2, 2))
    ),
    "there and back": nn.Sequential(
        nn.Linear(LATENT, 8), nn.Unflatten(1, (2, 4)), nn.Tanh(), nn.Flatten(), nn.Linear(8, 4)
    ),
    "affine on the last axis": nn.Sequential(nn.Linear(LATENT, 8), nn.Unflatten(1, (2, 4)), nn.Linear(4, 3)),
    "dropout": nn.Sequential(nn.Linear(LATENT, 4), nn.Dropout(0.5), nn.Tanh()),
    "convolution": nn.Sequential(
        nn.Linear(LATENT, 32), nn.Unflatten(1, (2, 4, 4)), nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.Tanh()
    ),
    "convolution of constant tangents": nn.Sequential(
        nn.Unflatten(1, (LATENT, 1, 1)), nn.ConvTranspose2d(LATENT, 2, 4), nn.ReLU(inplace=True)
    ),
    "transposed convolution": nn.Sequential(
        nn.Linear(LATENT, 8),
        nn.Tanh(),
        nn.Unflatten(1, (2, 2, 2)),
        nn.ConvTranspose2d(2, 4, 4, stride=2, padding=1, groups=2),
        nn.ELU(),
        nn.ConvTranspose2d(4, 1, 3, stride=2, padding=1, output_padding=1, bias=False),
    ),
    "one and three dimensions": nn.Sequential(
        nn.Linear(LATENT, 16),
        nn.Unflatten(1, (2, 8)),
        nn.Conv1d(2, 4, 3),
        nn.SiLU(),
        nn.Unflatten(1, (2, 2, 1)),
        nn.Flatten(4),
        nn.ConvTranspose3d(2, 1, (1, 1, 2)),
    ),
    "batch normalisation": nn.Sequential(
        nn.Linear(LATENT, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Unflatten(1, (2, 2, 2)), nn.BatchNorm2d(2)
    ),
    "batch normalisation without weights": nn.Sequential(
        nn.Linear(LATENT, 8), nn.Tanh(), nn.Unflatten(1, (2, 2, 2)), nn.BatchNorm2d(2, affine=False)
    ),
    "batch normalisation of our own": nn.Sequential(
        nn.Linear(LATENT, 8), nn.Unflatten(1, (2, 2, 2)), nn.Tanh(), BatchNorm(2), nn.ReLU(inplace=True)
    ),
    "precision": Recast(nn.Linear(LATENT, 4)),
    "sampling": nn.Sequential(
        nn.Linear(LATENT, 16),
        nn.Tanh(),
        nn.Unflatten(1, (4, 2, 2)),
        nn.PixelShuffle(2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(2),
        nn.Upsample(scale_factor=2),
    ),
    "perceptron": MLP(LATENT, (6, 5), (2, 3), activation="gelu"),
    "linear perceptron": MLP(LATENT, (), 4),
    "weight normalisation": nn.Sequential(
        parametrizations.weight_norm(nn.Linear(LATENT, 6)), nn.Tanh(), nn.Linear(6, 4)
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, points):
    assert_pushed(filled(LAYERS[name]), points)


@pytest.mark.parametrize("make", [study_decoder, faces_decoder, shapes_decoder])
def test_published_convolutional_decoders(make, points):
    decoder = make(LATENT, (1, 64, 64)).double().eval()
    initialise(decoder, generator=torch.Generator().manual_seed(0))
    assert_pushed(decoder, points[:2])


def test_methods_functions_and_their_parameters_at_the_time(points):
    model = build((4,), latent=LATENT, decoder_widths=(5,)).double()
    initialise(model, generator=torch.Generator().manual_seed(0))
    assert_pushed(model.decode, points)
    replaced = {"layers.0.weight": 2 * model.decoder.layers[0].weight}
    assert_pushed(lambda z: functional_call(model.decoder, replaced, (z,)), points)


def test_functions_of_known_layers(points, generator):
    first = torch.randn(8, LATENT, generator=generator, dtype=torch.float64)
    kernel = torch.randn(2, 1, 3, 3, generator=generator, dtype=torch.float64)

    def decoder(z):
        h = F.linear(z, first).sigmoid().view(-1, 2, 2, 2)
        assert h.dim() == h.ndim == 4
        assert h.size() == h.shape
        assert h.dtype == torch.float64
        assert h.device == z.device
        y = torch.tanh(F.conv_transpose2d(h, kernel, stride=2)).reshape(h.size(0), -1).unsqueeze(1)
        return torch.flatten(y.contiguous(), 1)

    assert_pushed(decoder, points)


def test_hooks_take_part(points):
    decoder = filled(nn.Sequential(nn.Linear(LATENT, 6), nn.Tanh(), nn.Linear(6, 4)))
    plain = push(decoder, points).tangents
    decoder[0].register_forward_hook(lambda module, inputs, output: output.sin())
    assert_pushed(decoder, points)
    assert not torch.allclose(push(decoder, points).tangents, plain)


def test_a_result_that_two_branches_use_is_not_overwritten(points):
    """Reused activations, once changed in place before and once after."""
    first, second = filled(nn.Linear(LATENT, 4)), filled(nn.Linear(4, 4), seed=1)

    def decoder(z):
        h = first(z)
        y = F.relu(h)
        second(h)
        F.elu(h, inplace=True)
        second(y)
        return second(h)

    assert_pushed(decoder, points)


def overwritten_view(z):
    h = F.linear(z, torch.ones(4, LATENT, dtype=torch.float64))
    y = h.view(-1, 2, 2)
    F.relu(h, inplace=True)
    return y


UNKNOWN = {
    "arithmetic": lambda z: 2 * z,
    "sum": lambda z: z - z.mean(0),
    "running sum": lambda z: z.cumsum(0),
    "softmax": lambda z: z.softmax(1),
    "slice": lambda z: z[:, 1:],
    "tensor": lambda z: torch.zeros(5, 4),
    "points merged": lambda z: z.view(1, -1),
    "points in the second place": lambda z: F.linear(z, torch.ones(5, 3).double()).view(-1, 5).flatten(0),
    "no data": lambda z: z.flatten(0),
    "random": nn.Dropout(0.5).train(),
    "statistics of the batch": nn.BatchNorm1d(LATENT).double().train(),
    "statistics of the batch, always": nn.BatchNorm1d(LATENT, track_running_stats=False).double().eval(),
    "parameters of an activation": nn.PReLU(LATENT).double(),
    "layer normalisation": nn.LayerNorm(LATENT).double(),
    "view overwritten": overwritten_view,
    "integers": lambda z: z.view(torch.int64),
    "another type": lambda z: z.to(torch.int64),
    "a product of two": lambda z: F.linear(z, z),
    "a constant for each point": lambda z: torch.addcmul(z.new_zeros(5, LATENT), z, torch.ones(5, 1)),
    "scaled by points": lambda z: torch.addcmul(torch.zeros(3), torch.ones(3), z),
    "as weight": lambda z: F.linear(torch.ones(5, LATENT).double(), z),
    "numpy": lambda z: torch.as_tensor(z.numpy()),
    "wrong number of latents": nn.Linear(2, 4).double(),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_anything_else_is_left_to_torch(name, points):
    assert push(UNKNOWN[name], points) is None


def test_out_of_memory_is_not_hidden(points):
    def decoder(z):
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        push(decoder, points)


def test_a_last_product_waits(points):
    decoder = filled(nn.Sequential(nn.Linear(LATENT, 4), nn.Tanh(), nn.Linear(4, 6), nn.Unflatten(1, (2, 3))))
    pushed = push(decoder, points)
    primal, tangents, weight, bias = pushed.last_product
    assert weight is decoder[2].weight
    assert bias is decoder[2].bias
    torch.testing.assert_close(primal, decoder[:2](points))
    torch.testing.assert_close(tangents, derivative(decoder[:2], points))
    assert pushed.shape == (5, 2, 3)
    assert pushed.tangents.shape == (5, 3, 2, 3)
    assert pushed.last_product is None


def test_members_of_a_stack_push_their_own_parameters(points):
    decoders = [filled(copy.deepcopy(LAYERS["transposed convolution"]), seed) for seed in range(2)]
    parameters, _ = stack_module_state(decoders)
    found = vmap(lambda own: push(lambda z: functional_call(decoders[0], own, (z,)), points).tangents)(
        parameters
    )
    torch.testing.assert_close(found, torch.stack([push(decoder, points).tangents for decoder in decoders]))
