"""Batch normalisation from elementary operations."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

__all__ = ["BatchNorm"]


@final
class BatchNorm(nn.Module):
    r"""Batch normalisation of pictures (Ioffe & Szegedy 2015, Algorithm 1), as ``nn.BatchNorm2d`` computes it.

    .. math:: y = \gamma \, (x - \mu) / \sqrt{v + \varepsilon} + \beta

    with the mean μ and variance v of each channel over batch and pixels in training, and their running averages
    (momentum 0.1, unbiased variance) in evaluation. Names of parameters and buffers are torch's. The framework's own
    layer asks for the memory layout of its input, which ``vmap`` over members does not answer on CUDA.

    Args:
        channels: number of channels.
        device: where parameters and buffers are made.

    >>> layer = BatchNorm(2)
    >>> layer(torch.tensor([0.0, 2.0]).view(2, 1, 1, 1).expand(2, 2, 1, 1)).flatten().tolist()[::2]
    [-0.9999949932098389, 0.9999949932098389]
    """

    momentum = 0.1
    epsilon = 1e-5

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, channels: int, *, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, device=device))
        self.bias = nn.Parameter(torch.zeros(channels, device=device))
        self.register_buffer("running_mean", torch.zeros(channels, device=device))
        self.register_buffer("running_var", torch.ones(channels, device=device))
        self.register_buffer("num_batches_tracked", torch.tensor(0, device=device))

    def reset_parameters(self) -> None:
        """Scale 1, shift 0 and fresh statistics."""
        with torch.no_grad():
            self.weight.fill_(1.0)
            self.bias.zero_()
        self.reset_running_stats()

    def reset_running_stats(self) -> None:
        """Fresh statistics."""
        self.running_mean.zero_()
        self.running_var.fill_(1.0)
        self.num_batches_tracked.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise pictures (batch, channel, height, width)."""
        mean, variance = self._statistics(x) if self.training else (self.running_mean, self.running_var)
        scale = self.weight * (variance + self.epsilon).rsqrt()
        shift = self.bias - mean * scale
        return torch.addcmul(_map(shift), x, _map(scale)).to(x.dtype)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each channel, noted in the running averages."""
        wide = x.to(self.running_mean.dtype)
        variance, mean = torch.var_mean(wide, dim=(0, 2, 3), correction=0)
        count = x.shape[0] * x.shape[2] * x.shape[3]
        with torch.no_grad():
            for running, now in (
                (self.running_mean, mean.detach()),
                (self.running_var, variance.detach() * (count / max(1, count - 1))),
            ):
                running.mul_(1 - self.momentum).add_(now * self.momentum)
            self.num_batches_tracked.add_(1)
        return mean, variance


def _map(values: Tensor) -> Tensor:
    return values[:, None, None]
