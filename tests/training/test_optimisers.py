"""Stacked optimisers against ``torch.optim``, one member at a time."""

import pytest
import torch

from unseam.training import AdaGrad, Adam, Sgd

RATES = [0.1, 0.003]
CASES = [
    (Adam(), lambda p, lr: torch.optim.Adam(p, lr=lr)),
    (
        Adam(betas=(0.5, 0.9), epsilon=1e-4),
        lambda p, lr: torch.optim.Adam(p, lr=lr, betas=(0.5, 0.9), eps=1e-4),
    ),
    (AdaGrad(), lambda p, lr: torch.optim.Adagrad(p, lr=lr)),
    (AdaGrad(accumulator=0.1), lambda p, lr: torch.optim.Adagrad(p, lr=lr, initial_accumulator_value=0.1)),
    (Sgd(), lambda p, lr: torch.optim.SGD(p, lr=lr)),
    (Sgd(momentum=0.9), lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("update", "reference"), CASES)
def test_agrees_with_torch(update, reference, dtype):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 7, dtype=dtype, generator=generator)
    target = torch.randn(2, 7, dtype=dtype, generator=generator)
    flat, state = start.clone(), update.state(start)
    rate = torch.tensor(RATES, dtype=dtype)[:, None]
    for step in range(1, 51):
        update(
            flat, torch.sinh(flat - target) / 3, state, rate, torch.tensor(float(step), dtype=torch.float64)
        )
    for member, lr in enumerate(RATES):
        alone = start[member].clone().requires_grad_()
        optimiser = reference([alone], lr)
        for _ in range(50):
            alone.grad = torch.sinh(alone.detach() - target[member]) / 3
            optimiser.step()
        tolerance = 1e-12 if dtype == torch.float64 else 2e-5
        torch.testing.assert_close(flat[member], alone.detach(), rtol=tolerance, atol=tolerance)
