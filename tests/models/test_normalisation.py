"""Batch normalisation against the framework's, in both modes."""

import pytest
import torch
from torch import nn

from unseam.models import BatchNorm


@pytest.mark.parametrize("training", [True, False])
def test_agrees_with_torch(training):
    generator = torch.Generator().manual_seed(0)
    ours, theirs = BatchNorm(3).double(), nn.BatchNorm2d(3).double()
    state = {
        name: torch.rand(value.shape, generator=generator).double() for name, value in ours.named_parameters()
    }
    theirs.load_state_dict({**theirs.state_dict(), **state})
    ours.load_state_dict(theirs.state_dict())
    for step in range(3):
        x = 2 + 3 * torch.randn(4, 3, 5, 6, dtype=torch.float64, generator=generator)
        one, other = (x.clone().requires_grad_() for _ in range(2))
        ours.train(training or step < 2), theirs.train(training or step < 2)
        left, right = ours(one), theirs(other)
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
        left.sin().sum().backward(), right.sin().sum().backward()
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-10, atol=1e-12)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-12, atol=1e-12)
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-10, atol=1e-12)


def test_half_precision_input_keeps_exact_statistics():
    layer = BatchNorm(2)
    x = torch.randn(64, 2, 4, 4, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    assert layer(x).dtype == torch.bfloat16
    torch.testing.assert_close(layer.running_mean, 0.1 * x.float().mean((0, 2, 3)))


def test_reset():
    layer = BatchNorm(2)
    layer(torch.ones(2, 2, 1, 1))
    layer.reset_parameters()
    assert layer.running_mean.tolist() == [0, 0]
    assert int(layer.num_batches_tracked) == 0
