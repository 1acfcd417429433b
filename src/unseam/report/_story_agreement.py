"""The posterior against the decoder, in words and charts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unseam.drawing import COLOURS
from unseam.inspection.verdict import AGREES, ROUGHLY
from unseam.report._panels import legend, scatter
from unseam.report._words import label, numbers, signed, titled
from unseam.report.page import Group, Panel, Section
from unseam.report.study import Study

__all__ = ["agreement"]

MOST = 12  # latents in a chart
POINTS = 48  # marks of a latent in a chart


def agreement(studies: Sequence[Study]) -> Section | None:
    """Eq. 7 of allen2024, where there is a posterior."""
    known = [study for study in studies if study.found.precision_error is not None]
    if not known:
        return None
    return Section(
        "Do encoder and decoder agree?",
        (
            "The encoder says not only where an item lies, but how sure it is. It should be surest about the latents "
            "that change the output most: what changes much is easy to read off. Theory makes that exact. The "
            "precision of each latent, one over its variance, should be 1 + ‖column‖²/β, where the column is how the "
            "output changes with that latent. Points on the dashed line do as theory says.",
        ),
        said=tuple((titled(study, studies), _agrees(study)) for study in known),
        groups=tuple(Group(titled(study, studies), (_precisions(study),)) for study in known),
        how=(
            "Eq. 7 of allen2024: Σ⁻¹ = I + DᵀA²D/β, with D the decoder's Jacobian and A² the Fisher information of "
            "the likelihood. The error is the relative Frobenius distance of the diagonals, averaged over the points; "
            "the part off the diagonal, relative to the whole matrix, is what a diagonal posterior cannot follow.",
        ),
    )


def _agrees(study: Study) -> str:
    found = study.found
    error, law = found.precision_error, found.variance_law
    assert error is not None and found.variance is not None
    word = (
        "agree"
        if error.diagonal < AGREES
        else "agree roughly"
        if error.diagonal < ROUGHLY
        else "do not agree"
    )
    beyond = (
        f", and {error.off_diagonal:.0%} of what theory asks for lies off the diagonal, where it cannot follow"
        if found.variance.ndim == 2
        else f", and by {error.off_diagonal:.0%} off the diagonal"
    )
    text = (
        f"Posterior and decoder {word}: at β = {found.beta:g} the precisions differ from theory by "
        f"{error.diagonal:.0%}{beyond if found.latent > 1 else ''}."
    )
    if law is not None and law.slope is not None:
        text += (
            " Twice the squared column norm should come with half the variance, a slope of −1 where columns are long "
            f"beside β; here the slope is {signed(law.slope)}."
        )
    return text


def _precisions(study: Study) -> Panel:
    found = study.found
    assert found.pullback is not None and found.variance is not None
    expected = 1 + found.pullback.diagonal(dim1=-2, dim2=-1) / found.beta
    precision = (
        1 / found.variance
        if found.variance.ndim == 2
        else torch.linalg.inv(found.variance).diagonal(dim1=-2, dim2=-1)
    )
    few = torch.linspace(0, len(expected) - 1, min(POINTS, len(expected))).round().long()
    groups = {
        f"latent {label(study, latent)}": (
            numbers(expected[few, latent]),
            numbers(precision[few, latent]),
            f"c{place}" if latent in study.live and place < len(COLOURS) else "dead",
        )
        for place, latent in enumerate(study.order[:MOST])
    }
    alt = "Posterior precision of each latent at some items against 1 + ‖column‖²/β; the line is where both are equal."
    drawn = scatter(
        groups, alt, across="1 + ‖column‖²/β, from the decoder", along="precision, from the encoder"
    )
    names = [(name.removeprefix("latent "), cls) for name, (*_, cls) in groups.items() if cls != "dead"]
    return Panel(drawn + legend(names), "One colour a latent, one dot an item (grey: the rest)")
