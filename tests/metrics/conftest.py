"""What several tests of metrics draw."""

import pytest
import torch


@pytest.fixture
def mixed():
    """A function of a seed: codes that mix factors, and the factors, of a thousand points of their own."""

    def draw(seed, noise=1.0):
        source = torch.Generator().manual_seed(seed)
        factors = torch.stack([torch.randint(size, (1000,), generator=source) for size in (3, 6, 8, 10)], 1)
        values = (factors - factors.double().mean(0)) / factors.double().std(0)
        mixing = torch.eye(4, dtype=torch.float64) + 0.55 * torch.ones(4, 4, dtype=torch.float64).triu(1)
        return values @ mixing + noise * torch.randn(1000, 4, generator=source, dtype=torch.float64), factors

    return draw
