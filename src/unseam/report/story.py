"""The chain as a story: all sections of a report, from what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from unseam.report._glance import glance
from unseam.report._story_advice import absent, change
from unseam.report._story_agreement import agreement
from unseam.report._story_factors import factorises, factors
from unseam.report._story_geometry import alive, axes
from unseam.report._story_pictures import directions, reconstructions, walks
from unseam.report.page import Section
from unseam.report.study import Study

__all__ = ["sections"]


def sections(studies: Sequence[Study]) -> list[Section]:
    """The parts of a report, in order; those that no model has are left out.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> [part.title for part in sections([Study("mine", (found,))])]
    ['At a glance', 'Who is alive?', 'Are the axes at right angles?', 'What to change']
    """
    if not studies:
        raise ValueError("studies must hold at least one model, got none")
    parts = (
        glance(studies),
        reconstructions(studies),
        alive(studies),
        agreement(studies),
        axes(studies),
        factorises(studies),
        factors(studies),
        walks(studies),
        directions(studies),
        change(studies),
        absent(studies),
    )
    return [part for part in parts if part is not None]
