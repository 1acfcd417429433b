"""One model as the explorer sees it: a decoder, how its outputs look, and an encoder where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unseam.models import AbstractLikelihood

__all__ = ["Subject"]


@dataclass(frozen=True, eq=False)
class Subject:
    """A decoder z (batch, latent) -> (batch, *parameter) that can be looked at.

    Attributes:
        name: what it is called on the page.
        decoder: the map; it treats each point on its own.
        latent: number of latents.
        likelihood: what the decoder's outputs mean; ``None`` where they are the data themselves.
        encoder: x -> (mean, variance or covariance), or ``None``.
        beta: weight of the KL term in training, or ``None``.

    >>> Subject("mine", lambda z: 2 * z, 2).picture(torch.ones(1, 2))
    tensor([[2., 2.]])
    """

    name: str
    decoder: Callable[[Tensor], Tensor]
    latent: int
    likelihood: AbstractLikelihood | None = None
    encoder: Callable[[Tensor], Any] | None = None
    beta: float | None = None

    @property
    def kind(self) -> tuple[torch.device, torch.dtype]:
        """Where the decoder's weights live and what they are; single precision on the host where it has none."""
        if isinstance(self.decoder, torch.nn.Module):
            for parameter in self.decoder.parameters():
                return parameter.device, parameter.dtype
        return torch.device("cpu"), torch.float32

    def points(self, z: Any) -> Tensor:
        """Points (batch, latent) as the decoder wants them."""
        device, dtype = self.kind
        return torch.as_tensor(z, device=device, dtype=dtype).reshape(-1, self.latent)

    @torch.no_grad()
    def picture(self, z: Any) -> Tensor:
        """E[x|z] (batch, *data) at points."""
        output = self.decoder(self.points(z))
        return output if self.likelihood is None else self.likelihood.mean(output)

    @torch.no_grad()
    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior means (batch, latent) and covariances (batch, latent, latent) of data, on the host."""
        if self.encoder is None:
            raise ValueError(f"{self.name} has no encoder, so a picture has no point")
        device, dtype = self.kind
        mean, variance = (torch.as_tensor(part).detach() for part in self.encoder(x.to(device, dtype)))
        covariance = variance if variance.ndim > mean.ndim else torch.diag_embed(variance)
        return mean.double().cpu(), covariance.double().cpu()
