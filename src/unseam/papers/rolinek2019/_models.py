"""Models small enough for exact evidence and ELBO: linear ones in closed form, tanh decoders by quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from unseam.papers.rolinek2019._descent import Descent, descend
from unseam.papers.rolinek2019._draws import normal, normal_grid

__all__ = [
    "Curved",
    "best_diagonal_loss",
    "best_elbo",
    "curved_elbo",
    "curved_evidence",
    "draw_curved",
    "linear_elbo",
    "linear_evidence",
]


def linear_evidence(weights: Tensor, x: Tensor, noise: float, prior: Tensor | None = None) -> Tensor:
    """Log p(x) (...) of x = Wz + noise with z ~ N(0, I), or another covariance (..., latent, latent): normal."""
    spread = weights if prior is None else weights @ prior
    eye = torch.eye(weights.shape[-2], dtype=weights.dtype, device=weights.device)
    covariance = spread @ weights.mT + noise * eye
    return torch.distributions.MultivariateNormal(torch.zeros_like(x), covariance).log_prob(x)


def linear_elbo(weights: Tensor, x: Tensor, noise: float, mean: Tensor, covariance: Tensor) -> Tensor:
    """ELBO (...) of the same model with q = N(mean, covariance), in closed form (Eq. 2)."""
    missed = x - (weights @ mean[..., None])[..., 0]
    spread = (weights.mT @ weights * covariance).sum((-2, -1))
    fit = -(missed.square().sum(-1) + spread) / (2 * noise) - x.shape[-1] / 2 * math.log(2 * math.pi * noise)
    return fit - _kl(mean, torch.linalg.cholesky(covariance))


def best_diagonal_loss(weights: Tensor, noise: float) -> Tensor:
    """Nats (...) between log p(x) and the ELBO of the best diagonal posterior, the same for every x."""
    precision = weights.mT @ weights / noise
    precision = precision + torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    return (precision.diagonal(dim1=-2, dim2=-1).log().sum(-1) - torch.logdet(precision)) / 2


class Curved(NamedTuple):
    """Decoders W tanh(Az + b) of two latents, one datum each, with normal noise of this variance."""

    first: Tensor
    """A (decoder, width, 2)."""
    offset: Tensor
    """b (decoder, width)."""
    second: Tensor
    """W (decoder, data, width)."""
    x: Tensor
    """(decoder, data), drawn from the model."""
    code: Tensor
    """The z it was drawn at (decoder, 2)."""
    noise: float

    def decode(self, z: Tensor) -> Tensor:
        """Means (decoder, node, data) at z (decoder, node, 2)."""
        return torch.tanh(z @ self.first.mT + self.offset[:, None]) @ self.second.mT

    def turned(self, turn: Tensor) -> Curved:
        """Dec(Uᵀz) for U (decoder, 2, 2), Eq. 9."""
        return self._replace(first=self.first @ turn.mT)

    def first_few(self, count: int) -> Curved:
        """So many of the decoders."""
        return self._each(lambda part: part[:count])

    def repeat(self, times: int) -> Curved:
        """Each decoder so many times."""
        return self._each(lambda part: part.repeat_interleave(times, 0))

    def to(self, device: torch.device) -> Curved:
        """The same on a device."""
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Curved:
        first, offset, second, x, code = map(change, self[:-1])
        return Curved(first, offset, second, x, code, self.noise)

    def log_prob(self, z: Tensor) -> Tensor:
        """Log p(x|z) (decoder, node)."""
        missed = (self.decode(z) - self.x[:, None]).square().sum(-1)
        return -(missed / self.noise + self.x.shape[1] * math.log(2 * math.pi * self.noise)) / 2


def draw_curved(decoders: int, *, width: int, data: int, noise: float, generator: torch.Generator) -> Curved:
    """Random weights with outputs of size one, and a datum of each model."""
    first = normal(decoders, width, 2, generator=generator)
    offset = normal(decoders, width, generator=generator) / 2
    second = normal(decoders, data, width, generator=generator) / math.sqrt(width)
    code = normal(decoders, 2, generator=generator)
    drawn = Curved(first, offset, second, normal(decoders, data, generator=generator), code, noise)
    return drawn._replace(x=drawn.decode(code[:, None])[:, 0] + math.sqrt(noise) * drawn.x)


def curved_evidence(model: Curved, step: float, scale: Tensor | None = None) -> Tensor:
    """Log p(x) (decoder,) by quadrature over z ~ N(0, I), or over N(0, diag scale²)."""
    place, weight = normal_grid(step, like=model.x)
    place = place if scale is None else place * scale
    found = model.log_prob(place.expand(len(model.x), -1, -1))
    return torch.logsumexp(found + weight.log(), 1)


def curved_elbo(model: Curved, mean: Tensor, factor: Tensor, step: float, *, reach: float = 8.0) -> Tensor:
    """ELBO (decoder,) with q = N(mean, L Lᵀ) for lower triangular L (decoder, 2, 2), the expectation by quadrature."""
    place, weight = normal_grid(step, reach, like=model.x)
    return model.log_prob(mean[:, None] + place @ factor.mT) @ weight - _kl(mean, factor)


def best_elbo(model: Curved, start: Tensor, *, diagonal: bool, step: float, iterations: int) -> Descent:
    """The largest ELBO over normal posteriors, from these means and a width of a third; losses are −ELBO."""
    numbers = 4 if diagonal else 5

    def loss(at: Tensor) -> Tensor:
        return -curved_elbo(model, at[:, :2], _factor(at), step, reach=6.0)

    first = torch.cat([start, start.new_full((len(start), numbers - 2), -1.0)], 1)
    first[:, 4:] = 0.0
    return descend(loss, first, iterations=iterations)


def _factor(at: Tensor) -> Tensor:
    """Lower triangular L (member, 2, 2) from log diagonal and, where there is one, the entry below it."""
    below = at[:, 4:] if at.shape[1] > 4 else torch.zeros_like(at[:, :1])
    scale = at[:, 2:4].exp()
    rows = [scale[:, :1], torch.zeros_like(below), below, scale[:, 1:]]
    return torch.cat(rows, 1).unflatten(1, (2, 2))


def _kl(mean: Tensor, factor: Tensor) -> Tensor:
    """KL (...) of N(mean, L Lᵀ) from N(0, I)."""
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return (mean.square().sum(-1) + factor.square().sum((-2, -1)) - log_det - mean.shape[-1]) / 2
