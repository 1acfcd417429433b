"""Stacked convolutions against the framework's own, member by member."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from unseam.models import study_decoder, study_encoder
from unseam.models.initialisation import initialise
from unseam.models.products import (
    Geometry,
    StackedConvolution,
    stacked,
    stacked_convolution,
    stacked_transposed_convolution,
)

GEOMETRIES = [
    Geometry(4, 2, 1),
    Geometry(2, 2, 0),
    Geometry(4, 1, 0),
    Geometry(1, 1, 0),
    Geometry(3, 1, 1),
    Geometry(6, 2, 2),
]
CHANNELS = [(1, 8), (3, 5), (8, 1), (8, 16)]


def draw(*shape, seed=0):
    return torch.randn(
        *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ).requires_grad_()


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(("inputs", "outputs"), CHANNELS)
@pytest.mark.parametrize("transposed", [False, True])
def test_values_and_gradients(geometry, inputs, outputs, transposed):
    kernel, stride, padding = geometry
    x = draw(3, 2, 8, 6, inputs)
    weight = draw(3, *((inputs, outputs) if transposed else (outputs, inputs)), kernel, kernel, seed=1)
    bias = draw(3, outputs, seed=2)
    ours = (stacked_transposed_convolution if transposed else stacked_convolution)(x, weight, bias, geometry)
    theirs = torch.stack([
        (F.conv_transpose2d if transposed else F.conv2d)(x[m].permute(0, 3, 1, 2), weight[m], bias[m], stride, padding)
        for m in range(3)
    ]).permute(0, 1, 3, 4, 2)  # fmt: skip
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    cotangent = draw(*theirs.shape, seed=3).detach()
    for one, other in zip(
        torch.autograd.grad(ours, (x, weight, bias), cotangent),
        torch.autograd.grad(theirs, (x, weight, bias), cotangent),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types_gather_the_same_windows(dtype):
    """Values that every type holds exactly give exact sums: wide-word copies must not mix them up."""
    x = torch.randint(-2, 3, (2, 3, 8, 8, 8), generator=torch.Generator().manual_seed(0)).to(dtype)
    weight = torch.randint(-1, 2, (2, 8, 8, 4, 4), generator=torch.Generator().manual_seed(1)).to(dtype)
    bias = torch.zeros(2, 8)
    for function in (stacked_convolution, stacked_transposed_convolution):
        narrow = function(x, weight, bias, Geometry(4, 2, 1)).double()
        exact = function(x.double(), weight.double(), bias.double(), Geometry(4, 2, 1))
        torch.testing.assert_close(narrow, exact, rtol=2**-8, atol=0)


@pytest.mark.parametrize(
    "build", [lambda: study_encoder((1, 64, 64), 6), lambda: study_decoder(3, (3, 64, 64))]
)
def test_networks_compute_the_same(build):
    networks = [build().double() for _ in range(2)]
    for seed, network in enumerate(networks):
        initialise(network, generator=torch.Generator().manual_seed(seed))
    shape = (1, 64, 64) if isinstance(networks[0][0], nn.Conv2d) else (3,)
    x = draw(2, 4, *shape).detach()
    twin = stacked(networks[0])
    parameters, _ = stack_module_state(networks)
    ours = vmap(lambda p, x: functional_call(twin, p, (x,)))(parameters, x)
    theirs = torch.stack([network(x[m]) for m, network in enumerate(networks)])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    ours_grad = torch.autograd.grad(ours.sin().sum(), list(parameters.values()))
    for m, network in enumerate(networks):
        theirs_grad = torch.autograd.grad(network(x[m]).sin().sum(), list(network.parameters()))
        for one, other in zip(ours_grad, theirs_grad, strict=True):
            torch.testing.assert_close(one[m], other, rtol=1e-9, atol=1e-9)


def test_the_original_is_left_alone():
    network = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU())
    twin = stacked(network)
    assert isinstance(network[0], nn.Conv2d)
    assert [name for name, _ in twin.named_parameters()] == [name for name, _ in network.named_parameters()]


def test_other_convolutions_are_kept():
    odd = nn.Conv2d(4, 4, 3, 2, 1, groups=2)
    assert isinstance(stacked(nn.Sequential(odd))[0], nn.Conv2d)
    with pytest.raises(ValueError, match="layer must be square, ungrouped"):
        StackedConvolution(odd)


def test_a_member_alone_is_refused():
    with pytest.raises(NotImplementedError, match="works under vmap over members only"):
        StackedConvolution(nn.Conv2d(1, 8, 4, 2, 1))(torch.zeros(1, 1, 8, 8))


def test_pictures_that_a_convolution_does_not_cover_are_refused():
    layer = StackedConvolution(nn.Conv2d(1, 8, 4, 2, 1))
    members = {name: torch.stack([value] * 2) for name, value in layer.named_parameters()}
    with pytest.raises(ValueError, match="must cover its pictures exactly, got .7, 7."):
        vmap(lambda member, x: functional_call(layer, member, (x,)))(members, torch.zeros(2, 3, 1, 7, 7))


def test_single_pixels_in_double_precision():
    x = draw(2, 3, 8, 1, 1).detach().permute(0, 1, 3, 4, 2)
    weight, bias = draw(2, 8, 8, 4, 4, seed=1), draw(2, 8, seed=2)
    ours = stacked_transposed_convolution(x, weight, bias, Geometry(4, 1, 0))
    theirs = torch.stack([F.conv_transpose2d(x[m].permute(0, 3, 1, 2), weight[m], bias[m]) for m in range(2)])
    torch.testing.assert_close(ours, theirs.permute(0, 1, 3, 4, 2), rtol=1e-12, atol=1e-12)
