"""Networks: sizes as published, values against plain torch, stacked members against members alone."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacfwd, stack_module_state, vmap

from unseam.models import (
    MLP,
    BatchNorm,
    activation,
    faces_decoder,
    faces_encoder,
    initialise,
    shapes_decoder,
    shapes_encoder,
    study_decoder,
    study_encoder,
)

ENCODERS = {"study": study_encoder, "faces": faces_encoder, "shapes": shapes_encoder}
DECODERS = {"study": study_decoder, "faces": faces_decoder, "shapes": shapes_decoder}


def ready(module, seed=0, scheme="torch"):
    module = module.double()
    initialise(module, generator=torch.Generator().manual_seed(seed), scheme=scheme)
    return module


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


# Fully connected


def test_mlp_is_its_formula(generator):
    network = ready(MLP((2, 3), (5, 4), (2, 2), activation="tanh"))
    x = torch.randn(7, 2, 3, generator=generator, dtype=torch.float64)
    first, second, third = (network.layers[index] for index in (0, 2, 4))
    hidden = torch.tanh(x.reshape(7, 6) @ first.weight.T + first.bias)
    hidden = torch.tanh(hidden @ second.weight.T + second.bias)
    expected = (hidden @ third.weight.T + third.bias).reshape(7, 2, 2)
    torch.testing.assert_close(network(x), expected)
    assert count(network) == 6 * 5 + 5 + 5 * 4 + 4 + 4 * 4 + 4


def test_mlp_without_widths_is_affine(generator):
    network = ready(MLP(3, (), 2))
    a, b = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    zero = network(torch.zeros(5, 3).double())
    torch.testing.assert_close(network(a + b) - zero, network(a) + network(b) - 2 * zero)


def test_mlp_takes_any_leading_axes(generator):
    network = ready(MLP((2, 3), (5,), (4, 1)))
    x = torch.randn(6, 7, 2, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(network(x)[2, 3], network(x[2, 3]))


@pytest.mark.parametrize(
    "name, function",
    [
        ("relu", torch.relu),
        ("tanh", torch.tanh),
        ("sigmoid", torch.sigmoid),
        ("leaky_relu", lambda x: torch.where(x > 0, x, 0.2 * x)),
        ("softplus", lambda x: torch.log1p(x.exp())),
        ("elu", lambda x: torch.where(x > 0, x, x.expm1())),
        ("gelu", lambda x: x * torch.special.ndtr(x)),
        ("silu", lambda x: x * x.sigmoid()),
    ],
)
def test_activations(name, function):
    x = torch.linspace(-3, 3, 50).double()
    torch.testing.assert_close(activation(name)(x), function(x))


# Convolutional


def sizes(network):
    """(kind, inputs, outputs, kernel, stride, padding) of each layer with weights, batch norms by their size."""
    rows = []
    for layer in network:
        if isinstance(layer, nn.Linear):
            rows.append(("linear", layer.in_features, layer.out_features))
        elif isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            kind = "conv" if isinstance(layer, nn.Conv2d) else "deconv"
            geometry = (layer.kernel_size[0], layer.stride[0], layer.padding[0])
            rows.append((kind, layer.in_channels, layer.out_channels, *geometry))
        elif isinstance(layer, BatchNorm):
            rows.append(("norm", len(layer.weight)))
    return rows


PUBLISHED = {
    "study encoder": (
        lambda: study_encoder((1, 64, 64), 20),
        [
            ("conv", 1, 32, 4, 2, 1),
            ("conv", 32, 32, 4, 2, 1),
            ("conv", 32, 64, 2, 2, 0),
            ("conv", 64, 64, 2, 2, 0),
            ("linear", 1024, 256),
            ("linear", 256, 20),
        ],
    ),
    "study decoder": (
        lambda: study_decoder(10, (1, 64, 64)),
        [
            ("linear", 10, 256),
            ("linear", 256, 1024),
            ("deconv", 64, 64, 4, 2, 1),
            ("deconv", 64, 32, 4, 2, 1),
            ("deconv", 32, 32, 4, 2, 1),
            ("deconv", 32, 1, 4, 2, 1),
        ],
    ),
    "faces encoder": (
        lambda: faces_encoder((1, 64, 64), 20),
        [
            ("conv", 1, 32, 4, 2, 1),
            ("norm", 32),
            ("conv", 32, 32, 4, 2, 1),
            ("norm", 32),
            ("conv", 32, 64, 4, 2, 1),
            ("norm", 64),
            ("conv", 64, 64, 4, 2, 1),
            ("norm", 64),
            ("conv", 64, 512, 4, 1, 0),
            ("norm", 512),
            ("conv", 512, 20, 1, 1, 0),
        ],
    ),
    "faces decoder": (
        lambda: faces_decoder(10, (1, 64, 64)),
        [
            ("deconv", 10, 512, 1, 1, 0),
            ("norm", 512),
            ("deconv", 512, 64, 4, 1, 0),
            ("norm", 64),
            ("deconv", 64, 64, 4, 2, 1),
            ("norm", 64),
            ("deconv", 64, 64, 4, 2, 1),
            ("norm", 64),
            ("deconv", 64, 32, 4, 2, 1),
            ("norm", 32),
            ("deconv", 32, 1, 4, 2, 1),
        ],
    ),
    "shapes encoder": (
        lambda: shapes_encoder((3, 64, 64), 20),
        [
            ("conv", 3, 32, 4, 2, 1),
            ("conv", 32, 32, 4, 2, 1),
            ("conv", 32, 64, 4, 2, 1),
            ("conv", 64, 64, 4, 2, 1),
            ("norm", 64),
            ("conv", 64, 256, 4, 1, 0),
            ("norm", 256),
            ("conv", 256, 20, 1, 1, 0),
        ],
    ),
    "shapes decoder": (
        lambda: shapes_decoder(10, (3, 64, 64)),
        [
            ("conv", 10, 64, 1, 1, 0),
            ("deconv", 64, 64, 4, 1, 0),
            ("deconv", 64, 64, 4, 2, 1),
            ("deconv", 64, 32, 4, 2, 1),
            ("deconv", 32, 32, 4, 2, 1),
            ("deconv", 32, 3, 4, 2, 1),
        ],
    ),
}


@pytest.mark.parametrize("make, expected", PUBLISHED.values(), ids=PUBLISHED.keys())
def test_layers_are_the_published_ones(make, expected):
    with torch.device("meta"):
        assert sizes(make()) == expected


def test_study_parameter_count():
    """By hand, with one channel and ten latents."""
    with torch.device("meta"):
        encoder, decoder = study_encoder((1, 64, 64), 20), study_decoder(10, (1, 64, 64))
    assert count(encoder) == 544 + 16_416 + 8_256 + 16_448 + 262_400 + 5_140
    assert count(decoder) == 2_816 + 263_168 + 65_600 + 32_800 + 16_416 + 513


@pytest.mark.parametrize("channels", [1, 3, 6])
@pytest.mark.parametrize("name", DECODERS)
def test_pictures_in_pictures_out(name, channels):
    with torch.device("meta"):
        features = ENCODERS[name]((channels, 64, 64), 27)(torch.zeros(2, channels, 64, 64))
        pictures = DECODERS[name](6, (channels, 64, 64))(torch.zeros(2, 6))
    assert features.shape == (2, 27)
    assert pictures.shape == (2, channels, 64, 64)


def test_hidden_layers_end_in_relu_and_outputs_do_not():
    for name in DECODERS:
        for network in (ENCODERS[name]((1, 64, 64), 4), DECODERS[name](2, (1, 64, 64))):
            weighted = [
                layer for layer in network if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d)
            ]
            assert sum(isinstance(layer, nn.ReLU) for layer in network) == len(weighted) - 1
            assert not isinstance(network[-1], nn.ReLU | BatchNorm)


@pytest.mark.parametrize("name", DECODERS)
def test_channels_last_goes_through_the_convolutions(name, generator):
    """The picture comes out channels-last when the first picture inside is, so no convolution copies."""
    decoder = DECODERS[name](3, (3, 64, 64)).to(memory_format=torch.channels_last)
    initialise(decoder, generator=torch.Generator().manual_seed(0))
    first = next(i for i, layer in enumerate(decoder) if isinstance(layer, nn.Unflatten))
    inside = decoder[: first + 1](torch.randn(2, 3, generator=generator))
    pictures = decoder[first + 1 :](inside.contiguous(memory_format=torch.channels_last))
    assert pictures.is_contiguous(memory_format=torch.channels_last)


# Stacks


def alone_and_stacked(members, inputs):
    """Outputs and buffers of members run one by one, and of the stack under vmap."""
    parameters, buffers = stack_module_state(members)
    skeleton = copy.deepcopy(members[0]).to("meta")
    stacked = vmap(lambda p, b, x: functional_call(skeleton, (p, b), (x,)))(parameters, buffers, inputs)
    alone = torch.stack([member(x) for member, x in zip(members, inputs, strict=True)])
    own = {name: torch.stack([member.get_buffer(name) for member in members]) for name in buffers}
    return alone, stacked, own, buffers, parameters


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("half", ["encoder", "decoder"])
def test_a_member_of_a_stack_is_the_member_alone(name, half, training, generator):
    if half == "encoder":
        members = [ready(ENCODERS[name]((1, 64, 64), 4), seed) for seed in range(3)]
        inputs = torch.rand(3, 4, 1, 64, 64, generator=generator, dtype=torch.float64)
    else:
        members = [ready(DECODERS[name](2, (1, 64, 64)), seed) for seed in range(3)]
        inputs = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    for member in members:
        for layer in member:
            if isinstance(layer, BatchNorm):  # statistics unlike the fresh ones, and unlike each other
                layer.running_mean.uniform_(-0.1, 0.1, generator=generator)
                layer.running_var.uniform_(0.5, 2.0, generator=generator)
        member.train(training)
    before = {key: value.clone() for key, value in members[0].named_buffers()}
    alone, stacked, own, buffers, parameters = alone_and_stacked(members, inputs)
    torch.testing.assert_close(stacked, alone, rtol=1e-9, atol=1e-12)
    for key, value in own.items():
        torch.testing.assert_close(buffers[key], value, rtol=1e-9, atol=1e-12)
        assert torch.equal(before[key], members[0].get_buffer(key)) != training
    stacked.square().mean().backward()
    alone.square().mean().backward()
    for key, value in parameters.items():
        expected = torch.stack([member.get_parameter(key).grad for member in members])
        torch.testing.assert_close(value.grad, expected, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_have_forward_mode_jacobians(name, generator):
    decoder = ready(DECODERS[name](2, (1, 64, 64))).eval()
    z = torch.randn(1, 2, generator=generator, dtype=torch.float64)
    jacobian = jacfwd(decoder)(z)[0, 0, ::16, ::16, 0]
    step = 1e-6 * torch.eye(2).double().unsqueeze(1)
    difference = torch.stack([(decoder(z + h) - decoder(z - h))[0, 0, ::16, ::16] / 2e-6 for h in step], -1)
    torch.testing.assert_close(jacobian, difference, rtol=1e-4, atol=1e-8)


# Errors


def test_unknown_activation():
    with pytest.raises(ValueError, match=r"activation must be one of relu, .*, got 'swish'"):
        MLP(3, (2,), 1, activation="swish")


@pytest.mark.parametrize(
    "inputs, outputs, argument", [(0, 1, "inputs"), ((), 1, "inputs"), (1, (2, -1), "outputs")]
)
def test_sizes_must_be_positive(inputs, outputs, argument):
    with pytest.raises(
        ValueError, match=f"{argument} must be a positive size or a shape of positive sizes, got"
    ):
        MLP(inputs, (), outputs)


@pytest.mark.parametrize("widths", [(3, 0), 5])
def test_widths_must_be_positive(widths):
    with pytest.raises(ValueError, match="widths must be a sequence of positive sizes, got"):
        MLP(3, widths, 1)


def test_input_must_have_the_shape():
    with pytest.raises(ValueError, match=r"x must have shape \(batch, 1, 8, 8\), got \(2, 1, 9, 8\)"):
        MLP((1, 8, 8), (), 1)(torch.zeros(2, 1, 9, 8))


@pytest.mark.parametrize("shape", [(3,), (1, 28, 28), (64, 64)])
@pytest.mark.parametrize("name", DECODERS)
def test_pictures_must_be_64_by_64(name, shape):
    with pytest.raises(ValueError, match=r"\w+ needs 64x64 pictures \(channel, 64, 64\), got shape \("):
        ENCODERS[name](shape, 4)
    with pytest.raises(ValueError, match=r"\w+ needs 64x64 pictures \(channel, 64, 64\), got shape \("):
        DECODERS[name](2, shape)
