"""Subject: a model as everything that measures one takes it, whoever trained it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from unseam.inputs import ordinary_modes
from unseam.inspection import Inspection, inspect

__all__ = ["Subject"]

MANY = 128
"""Most latents that are all measured unless asked for."""
PROBES, POINTS = 32, 4
"""Of more latents so many are sampled, at so many points: standard errors are calibrated from some 30 on."""
PRIOR = 1000
"""Draws from the prior where there are neither points nor data."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A decoder z (batch, latent) -> (batch, *parameter), and what else is known of the model.

    Attributes:
        name: what to call it.
        decoder: the map; it treats each point on its own.
        latent: number of latents.
        likelihood: of :mod:`unseam.models`, or any with ``fisher_weight`` and ``mean``; ``None`` where the outputs are
            the data themselves.
        encoder: x -> (mean, variance or covariance), or ``None``.
        beta: weight of the KL term in training, or ``None`` where it is unknown or there is none.
        z: points (batch, latent) to measure at, or ``None``.
        x: data (batch, *data) whose posterior means are the points to measure at, or ``None``.

    >>> Subject("mine", lambda z: 2 * z, 2).picture(torch.ones(1, 2))
    tensor([[2., 2.]])
    """

    name: str
    decoder: Callable[[Tensor], Tensor]
    latent: int
    likelihood: Any = None
    encoder: Callable[[Tensor], Any] | None = None
    beta: float | None = None
    z: Tensor | None = field(default=None, repr=False)
    x: Tensor | None = field(default=None, repr=False)

    @property
    def kind(self) -> tuple[torch.device, torch.dtype]:
        """Device and type of the decoder's weights; single precision on the host where it has none."""
        if isinstance(self.decoder, torch.nn.Module):
            for parameter in self.decoder.parameters():
                return parameter.device, parameter.dtype
        return torch.device("cpu"), torch.float32

    def points(self, z: Any) -> Tensor:
        """Points (batch, latent) on the decoder's device and of its type."""
        device, dtype = self.kind
        return torch.as_tensor(z, device=device, dtype=dtype).reshape(-1, self.latent)

    def prior(self, points: int, generator: torch.Generator) -> Tensor:
        """Draws from N(0, I) (points, latent) on the decoder's device and of its type."""
        return self.points(torch.randn(points, self.latent, generator=generator))

    def mean_output(self, z: Tensor) -> Tensor:
        """E[x|z] (batch, *data), differentiable."""
        output = torch.as_tensor(self.decoder(z))
        return output if self.likelihood is None else self.likelihood.mean(output)

    @torch.no_grad()
    def picture(self, z: Any) -> Tensor:
        """E[x|z] (batch, *data) at points of any type, without gradients."""
        return self.mean_output(self.points(z))

    @torch.no_grad()
    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior means (batch, latent) and covariances (batch, latent, latent) of data, on the host."""
        if self.encoder is None:
            raise ValueError(f"{self.name} has no encoder, so a picture has no point")
        device, dtype = self.kind
        mean, variance = (torch.as_tensor(part).detach() for part in self.encoder(x.to(device, dtype)))
        covariance = variance if variance.ndim > mean.ndim else torch.diag_embed(variance)
        return mean.double().cpu(), covariance.double().cpu()

    @ordinary_modes()
    def inspect(
        self,
        *,
        active: Any = None,
        latents: str | int | None = None,
        points: int | None = None,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Inspection:
        """The local geometry at ``z``, at the posterior means of ``x``, or else at draws from the prior.

        Args:
            active: as in :func:`unseam.inspection.inspect`.
            latents: the same; by default all where there are up to 128, else a sample of 32.
            points: how many of the points to measure at, spread over them; by default all of them, 1000 draws from the
                prior, and 4 points where latents are sampled by default.
            generator: source of the draws, of baselines and of probes; one seeded with 0 by default.
            chunk_size: as in :func:`unseam.inspection.inspect`.
            progress: called with how many columns of how many were sampled.
        """
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        if latents is None:
            latents = PROBES if self.latent > MANY else "all"
            points = POINTS if points is None and self.latent > MANY else points
        z, x, where = self.z, None if self.encoder is None else self.x, ""
        if z is None and x is None:
            z = self.prior(points or PRIOR, generator)
            where = f"{len(z)} draws from N(0, I)"
        z, x = (_spread(rows, points) for rows in (z, x))
        found = inspect(
            self.decoder,
            z,
            encoder=None if x is None else self.encoder,
            x=x,
            likelihood=self.likelihood,
            beta=1.0 if self.beta is None else self.beta,
            active=active,
            latents=latents,
            generator=generator,
            chunk_size=chunk_size,
            progress=progress,
        )
        return replace(found, where=where, beta_known=self.beta is not None)


def _spread(rows: Tensor | None, points: int | None) -> Tensor | None:
    """So many of the rows, spread over them."""
    if rows is None or points is None or len(rows) <= points:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, points, dtype=torch.float64).round().long()]
