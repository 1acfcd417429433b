"""What a turn of the latent space, and β, do to a whole model: the curves under the dials."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.explore.exhibit import Exhibit
from unseam.explore.turning import Turn, rotation, turned_pullback
from unseam.geometry import column_cosine, distance_to_orthogonality, pullback, restrict, right_basis
from unseam.metrics import mig

__all__ = ["Measured", "beta_curve", "measure", "turn_curve"]

# Points whose geometry is averaged: a tenth of a second.
_POINTS = 96


class Measured(NamedTuple):
    """A model at a glance; what cannot be measured of it is ``None``."""

    reconstruction: float | None
    """Mean squared error of a pixel over items of the world."""
    alive: int
    dto: float
    """Mean DtO over live latents, of that of random rotations."""
    cosine: float
    """Mean ``|cos|`` over live latents."""
    mig: float | None


def measure(exhibit: Exhibit, member: int, turn: Turn | None = None) -> Measured:
    """Reconstruction, live latents, orthogonality and MIG of one model, along turned axes where asked.

    >>> from unseam.charts import Look
    >>> from unseam.explore.subject import Subject
    >>> stretch = Subject("stretch", lambda z: z * torch.tensor([3.0, 1.0]), 2)
    >>> exhibit = Exhibit([stretch], Look((2,), -3.0, 3.0))
    >>> measure(exhibit, 0).dto, round(measure(exhibit, 0, Turn(0, 1, 45.0)).cosine, 6)
    (0.0, 0.8)
    """
    turn = None if turn is not None and turn.degrees == 0 else turn
    return exhibit.once(("measured", member, turn), lambda: _measure(exhibit, member, turn))


def turn_curve(exhibit: Exhibit, member: int, first: int, second: int) -> list[tuple[float, Measured]]:
    """What is measured of a model with two of its axes turned, from 0 to 90 degrees.

    >>> from unseam.charts import Look
    >>> from unseam.explore.subject import Subject
    >>> stretch = Subject("stretch", lambda z: z * torch.tensor([3.0, 1.0]), 2)
    >>> curve = turn_curve(Exhibit([stretch], Look((2,), -3.0, 3.0)), 0, 0, 1)
    >>> [round(found.dto, 6) for angle, found in curve if angle in (0.0, 90.0)]
    [0.0, 0.0]
    """
    angles = [7.5 * step for step in range(13)]
    return [(angle, measure(exhibit, member, Turn(first, second, angle))) for angle in angles]


def beta_curve(exhibit: Exhibit, member: int) -> list[tuple[float, Measured]]:
    """What is measured of the members that differ from one in β alone, by β (allen2024 Fig. 2).

    >>> from unseam.charts import Look
    >>> from unseam.explore.subject import Subject
    >>> beta_curve(Exhibit([Subject("one", lambda z: 2 * z, 2, beta=4.0)], Look((2,), -3.0, 3.0)), 0)[0][0]
    4.0
    """
    betas = ((exhibit.subjects[other].beta, other) for other in exhibit.betas[member])
    return [(beta, measure(exhibit, other)) for beta, other in betas if beta is not None]


@torch.no_grad()
def _measure(exhibit: Exhibit, member: int, turn: Turn | None) -> Measured:
    subject, codes = exhibit.subjects[member], exhibit.codes(member)
    matrix = torch.eye(subject.latent, dtype=torch.float64)
    if turn is not None:
        matrix = rotation(subject.latent, turn)
    metric = turned_pullback(_pullbacks(exhibit, member), matrix)
    kept = sorted(codes.alive) or [0]
    pull = restrict(metric, kept)
    chance = exhibit.random_dto(len(kept)) if len(kept) > 1 else 1.0
    dto = float(distance_to_orthogonality(right_basis(pull).right_vectors).mean()) / chance
    cosine = float(column_cosine(pull).mean())
    error = score = None
    if len(codes.mean):
        items, turned = exhibit.items[:_POINTS], codes.mean @ matrix.mT
        # the turned decoder at the turned codes: what is said to stay is measured, not assumed
        pictures = subject.picture(turned[:_POINTS] @ matrix)
        error = float((pictures.cpu().double() - items.double()).square().mean())
        if exhibit.factor_names:
            sizes = exhibit.world.factor_sizes if exhibit.world is not None else ()
            found = mig(turned, exhibit.factors, discrete=[size > 0 for size in sizes], preset="fast")
            score = float(found.score)
    return Measured(error, len(codes.alive), dto, cosine, score)


def _pullbacks(exhibit: Exhibit, member: int) -> Tensor:
    """Pullbacks of one model at codes of items, or at points of N(0, I) where it has none."""

    def compute() -> Tensor:
        subject, codes = exhibit.subjects[member], exhibit.codes(member)
        z = codes.mean[:: max(1, len(codes.mean) // _POINTS)][:_POINTS]
        if not len(z):
            generator = torch.Generator().manual_seed(1)
            z = torch.randn(_POINTS, subject.latent, generator=generator, dtype=torch.float64)
        found = pullback(subject.decoder, subject.points(z), likelihood=subject.likelihood)
        return found.double().cpu()

    return exhibit.once(("pullbacks", member), compute)
