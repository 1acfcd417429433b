"""Whether a decoder's components exist, and whether they depend on each other."""

from __future__ import annotations

from typing import NamedTuple

import torch

from unseam.geometry import FisherWeighted
from unseam.independence._fields import Active, hold_passive
from unseam.independence.curvilinear import Curvilinear, ReferenceCurves, curvilinear
from unseam.independence.integrability import Integrability, integrability
from unseam.independence.testing import IndependenceTest, Statistic, independence_test
from unseam.inputs import Array, Decoder, check_number

__all__ = ["ComponentCase", "component_case"]

# Points whose brackets are measured before coordinates are computed.
_JUDGED = 128


class ComponentCase(NamedTuple):
    """Which case of allen2024 §3.2.3 a decoder is."""

    case: int | None
    """1: components exist and depend on each other; 2: no dependence was found; ``None``: no components, or
    undecided."""
    verdict: str
    """The same in words, with the numbers."""
    test: IndependenceTest | None
    """The test of independence on the coordinates, where there are any."""
    integrability: Integrability
    """Whether components exist, from at most 128 of the points."""
    coordinates: Curvilinear | None
    """Coordinates of every point, where components exist."""
    used: int
    """Points that the test used: reached by every coordinate, with every field identified."""


def component_case(
    decoder: Decoder,
    z: Array,
    *,
    generator: torch.Generator,
    level: float = 0.05,
    method: str | Statistic = "hsic",
    permutations: int = 199,
    reference: ReferenceCurves | None = None,
    degeneracy: float = 0.05,
    likelihood: FisherWeighted | None = None,
    active: Active = None,
    step: float | None = None,
    chunk_size: int | None = None,
) -> ComponentCase:
    r"""Whether the components of a decoder are independent: case (1) or case (2) of allen2024 §3.2.3.

    .. math:: p(u) = \prod_i p(u_i) \;?

    First whether there are components at all (:func:`integrability`), then their coordinates u
    (:func:`curvilinear`) at draws of the prior, then a permutation test of their independence
    (:func:`independence_test`). In case (1) the decoder entangles the latents: what it generates need not be a
    product of independent components. In case (2) it is one, though the components may be curves that no
    rotation of the latents straightens, and that data cannot distinguish from others. As with any test, case (2) says
    that no dependence was found with so many points.

    A decoder with orthogonal columns has its latents for coordinates, so it is always case (2), coupled or
    not (:func:`coupling`).

    Args:
        decoder: map from (batch, latent) to (batch, \*data) that treats each point on its own.
        z: independent draws of the prior (batch, latent).
        generator: source of the permutations.
        level: p-value below which components count as dependent.
        method, permutations: as for :func:`independence_test`.
        reference, degeneracy, likelihood, active, chunk_size: as for :func:`curvilinear`; collapsed latents
            must be left out of ``active``.
        step: as for :func:`integrability`, for decoders with kinks (ReLU) and three latents or more.

    Returns:
        The case, and everything it rests on. It is undecided where fewer than half of the points have all
        coordinates, or fewer than 20.

    >>> draws = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    >>> matrix = torch.tensor([[3.0, 1.0], [0.0, 1.0]])
    >>> component_case(lambda z: z @ matrix, draws, generator=torch.Generator().manual_seed(0)).case
    2
    """
    points, _, moving = hold_passive(z, None if reference is None else reference.base, active)
    check_number("level", level, above=0, below=1)
    if len(moving) < 2:
        raise ValueError(
            "z must have at least two latents, active where given, for components to depend on each other, got 1"
        )
    exist = integrability(
        decoder,
        points[:_JUDGED],
        likelihood=likelihood,
        active=moving,
        degeneracy=degeneracy,
        step=step,
        chunk_size=chunk_size,
    )
    if not exist.exist:
        return ComponentCase(None, exist.verdict, None, exist, None, 0)
    found = curvilinear(
        decoder,
        points,
        reference=reference,
        degeneracy=degeneracy,
        likelihood=likelihood,
        active=moving,
        chunk_size=chunk_size,
    )
    sure = (found.reached & (found.confidence >= 0.5)).all(1)
    used = int(sure.sum())
    if used < max(20, len(points) / 2):
        verdict = (
            f"undecided: only {used} of {len(points)} points have all coordinates; try another base, longer "
            f"curves or a wider box"
        )
        return ComponentCase(None, verdict, None, exist, found, used)
    test = independence_test(
        found.coordinates[sure], method=method, generator=generator, permutations=permutations
    )
    case = 1 if test.p_value.item() < level else 2
    return ComponentCase(case, _verdict(case, test, used, len(points)), test, exist, found, used)


def _verdict(case: int, test: IndependenceTest, used: int, given: int) -> str:
    chance = f"p = {test.p_value.item():.2g} with {used} of {given} points"
    if case == 1:
        return (
            f"case 1: components exist but depend on each other ({chance}): the decoder entangles its latents"
        )
    return f"case 2: components exist and no dependence between them was found ({chance})"
