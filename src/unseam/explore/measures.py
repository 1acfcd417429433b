"""How a rotation of the latent space, and β, affect a whole model: the curves under the dials."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.charts import decimals
from unseam.explore.exhibit import Exhibit
from unseam.explore.rotation import Rotation, rotated_pullback, rotation_matrix
from unseam.geometry import pullback, restrict
from unseam.inspection import compare_axes
from unseam.metrics import mig

__all__ = [
    "ANGLES",
    "QUANTITIES",
    "Measured",
    "beta_curve",
    "measure",
    "mig_curve",
    "pullbacks",
    "rotation_curve",
]

QUANTITIES = (
    ("squared error", "c0", 4),
    ("active latents", "c3", 0),
    ("DtO / random", "c4", 2),
    ("mean |cos|", "c1", 2),
    ("MIG", "c2", 2),
)
"""Name, class of the curve and number of decimals of what :class:`Measured` holds, in its order."""

ANGLES = tuple(7.5 * step for step in range(13))
"""Degrees at which a rotation is measured."""

# Points whose geometry is averaged, and derivatives in all: a tenth of a second for small decoders, two for large ones.
_POINTS, _DERIVATIVES = 96, 2048


class Measured(NamedTuple):
    """A model at a glance; what cannot be measured of it is ``None``."""

    reconstruction: float | None
    """Mean squared error per pixel over items of the world."""
    active: int
    """Number of active latents."""
    dto: float | None
    """DtO over active latents where singular values are distinct, as a fraction of that of random rotations."""
    cosine: float | None
    """Mean ``|cos|`` over active latents; of fewer than two it is undefined."""
    mig: float | None
    """Over active latents; without any it is undefined."""


def measure(exhibit: Exhibit, member: int, rotation: Rotation | None = None) -> Measured:
    """Reconstruction, active latents, orthogonality and MIG of one model, along rotated axes where asked.

    >>> from unseam.explore import exhibit_decoder
    >>> exhibit = exhibit_decoder(lambda z: z * torch.tensor([3.0, 1.0]), latent=2)
    >>> measure(exhibit, 0).dto, round(measure(exhibit, 0, Rotation(0, 1, 45.0)).cosine, 6)
    (0.0, 0.8)
    """
    rotation = None if rotation is not None and rotation.degrees == 0 else rotation
    return exhibit.once(("measured", member, rotation), lambda: _measure(exhibit, member, rotation))


def rotation_curve(exhibit: Exhibit, member: int, first: int, second: int) -> list[tuple[float, Measured]]:
    """What is measured of a model with two of its axes rotated, from 0 to 90 degrees.

    >>> from unseam.explore import exhibit_decoder
    >>> curve = rotation_curve(exhibit_decoder(lambda z: z * torch.tensor([3.0, 1.0]), latent=2), 0, 0, 1)
    >>> [round(found.dto, 6) for angle, found in curve if angle in (0.0, 90.0)]
    [0.0, 0.0]
    """
    return [(angle, measure(exhibit, member, Rotation(first, second, angle))) for angle in ANGLES]


def mig_curve(exhibit: Exhibit, member: int, first: int, second: int) -> list[float] | None:
    """MIG of a model with two of its axes rotated, at :data:`ANGLES`; ``None`` where no factors are known.

    >>> from unseam.explore import exhibit_decoder
    >>> mig_curve(exhibit_decoder(lambda z: 2 * z, latent=2), 0, 0, 1)
    """
    latent = exhibit.subjects[member].latent
    found = [
        _mig(exhibit, member, rotation_matrix(latent, Rotation(first, second, angle))) for angle in ANGLES
    ]
    scores = [score for score in found if score is not None]
    return scores if len(scores) == len(ANGLES) else None


def beta_curve(exhibit: Exhibit, member: int) -> list[tuple[float, Measured]]:
    """What is measured of the members that differ from one in β alone, by β (allen2024 Fig. 2).

    >>> from unseam.explore import exhibit_decoder
    >>> [beta for beta, _ in beta_curve(exhibit_decoder(lambda z: 2 * z, latent=2, beta=4.0), 0)]
    [4.0]
    """
    betas = ((exhibit.subjects[other].beta, other) for other in exhibit.betas[member])
    return [(beta, measure(exhibit, other)) for beta, other in betas if beta is not None]


def pair_table(first: Measured, second: Measured) -> str:
    """Numbers of two models as the rows of an HTML table; what cannot be measured of either is left out."""
    rows = [
        (name, decimals(one, digits), decimals(two, digits))
        for (name, _, digits), one, two in zip(QUANTITIES, first, second, strict=True)
        if one is not None or two is not None
    ]
    cells = "".join(f"<tr><th scope='row'>{name}</th><td>{a}</td><td>{b}</td></tr>" for name, a, b in rows)
    head = "<thead><tr><td></td><th scope='col'>this</th><th scope='col'>other</th></tr></thead>"
    return f"<table>{head}<tbody>{cells}</tbody></table>"


@torch.no_grad()
def _measure(exhibit: Exhibit, member: int, rotation: Rotation | None) -> Measured:
    subject, codes = exhibit.subjects[member], exhibit.codes(member)
    matrix = rotation_matrix(subject.latent, rotation)
    error = dto = cosine = None
    if len(codes.active) > 1:
        pull = restrict(rotated_pullback(pullbacks(exhibit, member), matrix), sorted(codes.active))
        found = compare_axes(pull)
        dto = None if found.dto is None else found.dto / exhibit.random_dto(len(codes.active))
        cosine = found.cosine
    if len(codes.mean):
        items, rotated = exhibit.items[:_POINTS], codes.mean @ matrix.mT
        # the rotated decoder at the rotated codes: the error is measured, not assumed to stay
        pictures = subject.picture(rotated[:_POINTS] @ matrix)
        error = float((pictures.cpu().double() - items.double()).square().mean())
    return Measured(error, len(codes.active), dto, cosine, _mig(exhibit, member, matrix))


def _mig(exhibit: Exhibit, member: int, matrix: Tensor) -> float | None:
    """MIG of the codes along the rotated axes of active latents, where there are any, and factors."""
    codes, active = exhibit.codes(member).mean, sorted(exhibit.codes(member).active)
    if not len(codes) or not active or not exhibit.factor_names or exhibit.world is None:
        return None
    discrete = [size > 0 for size in exhibit.world.factor_sizes]
    rotated = (codes @ matrix.mT)[:, active]
    return float(mig(rotated, exhibit.factors, discrete=discrete, preset="fast").score)


def pullbacks(exhibit: Exhibit, member: int) -> Tensor:
    """Pullbacks (point, latent, latent) of one model at codes of items, or at points of N(0, I) where it has none."""

    def compute() -> Tensor:
        subject, codes = exhibit.subjects[member], exhibit.codes(member)
        points = max(8, min(_POINTS, _DERIVATIVES // subject.latent))
        z = codes.mean[:: max(1, len(codes.mean) // points)][:points]
        if not len(z):
            generator = torch.Generator().manual_seed(1)
            z = torch.randn(points, subject.latent, generator=generator, dtype=torch.float64)
        found = pullback(subject.decoder, subject.points(z), likelihood=subject.likelihood)
        return found.double().cpu()

    return exhibit.once(("pullbacks", member), compute)
