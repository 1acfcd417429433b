"""A walk along a sub-manifold: the curve through a point that follows one singular vector."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.explore.exhibit import Exhibit
from unseam.independence import submanifold

__all__ = ["Walk", "walk"]

# Coarse on purpose: it is only looked at, and must be ready while the slider moves.
_TOLERANCE, _STEPS = 3e-3, 24


class Walk(NamedTuple):
    """A curve at nodes, and how far along it each lies."""

    component: int
    lengths: Tensor
    """Arc length in latent space (step,), ascending, 0 at the start."""
    nodes: Tensor
    """z (step, latent)."""
    ended: tuple[str, str]
    """Why it ended, before its start and after it."""

    def at(self, length: float) -> tuple[float, ...]:
        """The point at an arc length, on the straight line between nodes; the end, beyond it."""
        where = torch.searchsorted(self.lengths, torch.tensor(float(length), dtype=torch.float64))
        right = int(where.clamp(1, len(self.lengths) - 1))
        left, span = right - 1, self.lengths[right] - self.lengths[right - 1]
        part = float(((length - self.lengths[left]) / span.clamp(min=1e-12)).clamp(0.0, 1.0))
        point = self.nodes[left] + part * (self.nodes[right] - self.nodes[left])
        return tuple(float(value) for value in point)


def walk(exhibit: Exhibit, member: int, z: tuple[float, ...], component: int, *, length: float = 3.0) -> Walk:
    r"""The curve through a point along one right singular vector, both ways.

    .. math:: \dot z = \pm v_i(z), \qquad W^{1/2} J = U S V^\top

    the sub-manifold of allen2024 §3.2.3, by :func:`unseam.independence.submanifold` over active latents.

    Args:
        exhibit: whose models.
        member: which of them.
        z: where it starts (latent,).
        component: place of the singular vector at the start, 0 for the largest singular value.
        length: greatest arc length to either side, in latent space.

    >>> from unseam.explore import exhibit_decoder
    >>> found = walk(exhibit_decoder(lambda z: z * torch.tensor([1.0, 3.0]), latent=2), 0, (0.0, 0.0), 0)
    >>> [round(value, 6) for value in found.at(1.5)]
    [0.0, 1.5]
    """
    subject, codes = exhibit.subjects[member], exhibit.codes(member)
    far = max(codes.limit, max(map(abs, z))) + length
    found = submanifold(
        subject.decoder,
        subject.points(z)[0],
        component,
        length=length,
        steps=_STEPS,
        box=far,
        likelihood=subject.likelihood,
        active=sorted(codes.active) or [0],
        rtol=_TOLERANCE,
    )
    first, last = (str(reason) for reason in found.ended)
    return Walk(component, found.latent_length.double().cpu(), found.points.double().cpu(), (first, last))
