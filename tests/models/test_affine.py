"""Stacked affine layers against the framework's own, member by member."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, vmap

from unseam.models import MLP, Bernoulli, initialise
from unseam.models.affine import StackedLinear, stacked_linear
from unseam.models.bernoulli import StackedBernoulli
from unseam.models.products import stacked


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def test_values_and_gradients():
    x, weight, bias = draw(3, 5, 4), draw(3, 2, 4, seed=1), draw(3, 2, seed=2)
    ours = stacked_linear(x, weight, bias)
    theirs = torch.stack([F.linear(x[m], weight[m], bias[m]) for m in range(3)])
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)
    cotangent = draw(3, 5, 2, seed=3).detach()
    for one, other in zip(
        torch.autograd.grad(ours, (x, weight, bias), cotangent),
        torch.autograd.grad(theirs, (x, weight, bias), cotangent),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)
        assert one.is_contiguous()


def test_narrow_products_give_gradients_of_the_parameters_type():
    x, weight, bias = (draw(2, *shape).detach().float() for shape in ((5, 4), (3, 4), (3,)))
    weight.requires_grad_()
    y = stacked_linear(x.bfloat16(), weight, bias)
    (slope,) = torch.autograd.grad(y.float().sum(), weight)
    assert (y.dtype, slope.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(slope, x.sum(1, keepdim=True).expand(2, 3, 4), rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [(5,), (2, 5), ()])
def test_layers_compute_the_same(bias, batch):
    layer = nn.Linear(4, 3, bias=bias, dtype=torch.float64)
    twin = stacked(nn.Sequential(layer))[0]
    assert isinstance(twin, StackedLinear)
    members = {name: torch.stack([value, -value]) for name, value in layer.named_parameters()}
    x = draw(2, *batch, 4)
    ours, theirs = (
        vmap(lambda member, x, network=network: functional_call(network, member, (x,)))(members, x)
        for network in (twin, layer)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


def test_a_network_trains_the_same():
    network = MLP((1, 4, 4), (6,), (2, 3), activation="tanh").double()
    initialise(network, generator=torch.Generator().manual_seed(0))
    members = {
        name: torch.stack([value, 2 * value]).detach().requires_grad_()
        for name, value in network.named_parameters()
    }
    x = draw(2, 5, 1, 4, 4).detach()
    slopes = []
    for one in (network, stacked(network)):
        y = vmap(lambda member, x, one=one: functional_call(one, member, (x,)))(members, x)
        slopes.append(torch.autograd.grad(y.sin().sum(), list(members.values())))
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-12, atol=1e-12)


def test_a_member_alone_is_refused():
    with pytest.raises(NotImplementedError, match="works under vmap over members only"):
        StackedLinear(nn.Linear(4, 2))(torch.zeros(5, 4))


def test_a_stacked_bernoulli_is_the_plain_one():
    x, logits = torch.rand(2, 5, 1, 3, 3).double(), draw(2, 5, 1, 3, 3)
    assert isinstance(stacked(nn.Sequential(Bernoulli()))[0], StackedBernoulli)
    ours, theirs = (vmap(one.log_prob)(x, logits) for one in (StackedBernoulli(), Bernoulli()))
    torch.testing.assert_close(ours, theirs)
    with pytest.raises(ValueError, match="shape"):
        vmap(StackedBernoulli().log_prob)(x, logits[..., :2])
