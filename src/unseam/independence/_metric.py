"""Derivatives of a decoder's metric."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jvp, vmap

from unseam.geometry import FisherWeighted, pullback
from unseam.geometry.checks import check_decoder
from unseam.geometry.memory import points_at_once
from unseam.inputs import Decoder

__all__ = ["LAYERS", "Metric"]

Way = Callable[[Tensor], Tensor]

LAYERS = 8
"""Reverse mode stores every layer's output, not only the widest: room for about so many, and their tangents."""


class Metric:
    """The pullback G of some latents of a decoder, and its derivatives.

    These are exact: forward mode over forward mode, or where torch does not nest it (SiLU, Mish) reverse mode over
    forward mode, which takes about as many passes and more memory.

    Args:
        decoder: map from (batch, latent) to (batch, *data).
        points: where it will be measured (batch, latent).
        moving: indices of the latents that count.
        likelihood: weights the metric.
        chunk_size: number of points differentiated at once.
    """

    def __init__(
        self,
        decoder: Decoder,
        points: Tensor,
        moving: Tensor,
        likelihood: FisherWeighted | None,
        chunk_size: int | None,
    ) -> None:
        self.decoder, self.moving, self.likelihood, self.chunk_size = decoder, moving, likelihood, chunk_size
        self.directions = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)[moving]
        self.glance = check_decoder(decoder, points)
        self.proven: Way | None = None

    def value(self, points: Tensor) -> Tensor:
        """G (batch, b, c)."""
        return self._moving(
            pullback(self.decoder, points, likelihood=self.likelihood, chunk_size=self.chunk_size)
        )

    def derivatives(self, points: Tensor) -> Tensor:
        """∂G/∂z_a of the moving latents (batch, a, b, c)."""
        way = self._way()
        tangents = LAYERS if way == self._reverse else len(self.moving) + 1
        return torch.cat([way(part) for part in points.split(self._size(tangents))])

    def along(self, points: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        """G and its derivative along a direction at each point (batch, latent), (batch, b, c) both."""
        if self._way() == self._reverse:
            slopes = torch.einsum("nabc,na->nbc", self.derivatives(points), directions[:, self.moving])
            return self.value(points), slopes
        size = self._size(2)
        parts = zip(points.split(size), directions.split(size), strict=True)
        found = [jvp(self._whole, (part,), (direction,))[:2] for part, direction in parts]
        value, slope = (self._moving(torch.cat(part)) for part in zip(*found, strict=True))
        return value, slope

    def differences(self, points: Tensor, step: float) -> Tensor:
        """The same by central differences."""
        found = []
        for direction in self.directions:
            ahead, behind = (self.value(points + sign * step * direction) for sign in (1, -1))
            found.append((ahead - behind) / (2 * step))
        return torch.stack(found, 1)

    def _size(self, tangents: int) -> int:
        """Points at once, where each of the pullback's passes carries so many tangents."""
        z, widest = self.glance.z, self.glance.widest
        return self.chunk_size or points_at_once((z.shape[1] + 1) * tangents, widest, z.dtype, z.device)

    def _way(self) -> Way:
        """The way that torch can go, tried at one point."""
        if self.proven is not None:
            return self.proven
        for way in (self._forward, self._reverse):
            try:
                way(self.glance.z[:1])
            except (RuntimeError, ValueError) as error:
                reason = error
            else:
                self.proven = way
                return way
        raise ValueError(
            "decoder must have second derivatives that automatic differentiation finds; give step to measure "
            f"differences instead ({reason})"
        ) from reason

    def _forward(self, points: Tensor) -> Tensor:
        def along(direction: Tensor) -> Tensor:
            _, change, *_ = jvp(self._whole, (points,), (direction.expand_as(points),))
            return change

        try:
            found = vmap(along, 0, 1)(self.directions)
        except RuntimeError:  # the pullback has warned of a decoder that vmap refuses
            found = torch.stack([along(direction) for direction in self.directions], 1)
        return self._moving(found)

    def _reverse(self, points: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            z = points.detach().clone().requires_grad_()
            metric = self._moving(self._whole(z))
            count = len(self.moving)
            found = points.new_zeros(*points.shape, count, count)
            for row in range(count if metric.requires_grad else 0):
                for column in range(row + 1):
                    (gradient,) = torch.autograd.grad(metric[:, row, column].sum(), z, retain_graph=True)
                    found[:, :, row, column] = found[:, :, column, row] = gradient
        return found[:, self.moving]

    def _whole(self, points: Tensor) -> Tensor:
        return pullback(self.decoder, points, likelihood=self.likelihood)

    def _moving(self, metric: Tensor) -> Tensor:
        return metric[..., self.moving[:, None], self.moving]
