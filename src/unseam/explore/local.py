"""The geometry of a decoder at one point, as numbers and as pictures."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseam.charts import Bar, Pixels, bars, decimals, matrix, signed_pixels, significant
from unseam.explore.exhibit import Exhibit
from unseam.explore.rotation import Rotation, rotated_pullback, rotation_matrix
from unseam.geometry import (
    cosine_matrix,
    jacobian,
    restrict,
    right_basis,
)
from unseam.inspection import compare_axes
from unseam.inspection.axes import Axes
from unseam.inspection.words import TERMS

__all__ = ["Local", "explain_terms", "local_view"]


class Local(NamedTuple):
    """What moving each active latent does at one point."""

    latents: tuple[int, ...]
    """Which latents, in the order of everything below."""
    columns: tuple[Pixels, ...]
    """Columns of the Jacobian, of the data's mean, as pictures on one scale."""
    directions: tuple[Pixels, ...]
    """What moves along each singular vector, likewise, in the order of the singular values."""
    norms: tuple[float, ...]
    """Lengths of the columns of W^½ J."""
    cosines: tuple[tuple[float, ...], ...]
    """``|cos|`` between those columns."""
    singular_values: tuple[float, ...]
    """Descending."""
    right_vectors: tuple[tuple[float, ...], ...]
    """V, one row per latent and one column per singular vector."""
    dto: float | None
    """Undefined where two singular values nearly coincide; like the next three, of fewer than two columns that change
    anything."""
    random_dto: float | None
    """DtO of random rotations of as many latents."""
    cosine: float | None
    """Mean ``|cos|``."""
    gap: float | None
    """Hadamard gap in nats."""
    degenerate: bool
    """Whether two singular values differ by less than 5 %."""


@torch.no_grad()
def local_view(exhibit: Exhibit, member: int, z: Tensor, rotation: Rotation | None = None) -> Local:
    r"""The geometry of one model at one point, over its active latents.

    .. math:: W^{1/2} J = U S V^\top, \qquad J' = J\,R^\top

    Args:
        exhibit: whose models.
        member: which of them.
        z: the point (latent,) in the model's own space.
        rotation: R, of the axes to look along in place of its own.

    >>> from unseam.explore import exhibit_decoder
    >>> exhibit = exhibit_decoder(lambda z: z * torch.tensor([3.0, 1.0]), latent=2)
    >>> found = local_view(exhibit, 0, torch.zeros(2))
    >>> found.dto, found.singular_values
    (0.0, (3.0, 1.0))
    """
    subject = exhibit.subjects[member]
    point = subject.points(z)
    raw = jacobian(subject.decoder, point)[0].double()
    weighted, shown = raw, raw
    if subject.likelihood is not None:
        output = subject.decoder(point)
        weight = subject.likelihood.fisher_weight(output).flatten().double()
        weighted = weight.sqrt()[:, None] * raw
        shown = jacobian(subject.picture, point)[0].double()
    metric = weighted.mT @ weighted
    matrix = rotation_matrix(subject.latent, rotation).to(metric.device)
    latents = list(exhibit.codes(member).active) or [0]
    pull = restrict(rotated_pullback(metric, matrix), latents)
    basis = right_basis(pull)
    columns = (shown @ matrix.mT)[:, latents]
    along = columns @ basis.right_vectors
    scale = float(max(columns.abs().max(), along.abs().max()))
    cosines, norms = cosine_matrix(pull).clamp(max=1.0), pull.diagonal().clamp(min=0).sqrt()
    # collapse is not orthogonality: a column that changes nothing has no direction
    present = cosines.diagonal() > 0
    cosines[~(present[:, None] & present)] = torch.nan
    axes = compare_axes(pull, basis) if len(exhibit.codes(member).active) > 1 else Axes()
    defined = axes.cosine is not None
    return Local(
        latents=tuple(latents),
        columns=tuple(signed_pixels(column, exhibit.look, scale) for column in columns.mT),
        directions=tuple(signed_pixels(column, exhibit.look, scale) for column in along.mT),
        norms=_floats(norms),
        cosines=tuple(_floats(row) for row in cosines),
        singular_values=_floats(basis.singular_values),
        right_vectors=tuple(_floats(row) for row in basis.right_vectors),
        dto=axes.dto,
        random_dto=exhibit.random_dto(len(latents)) if defined else None,
        cosine=axes.cosine,
        gap=axes.hadamard_gap,
        degenerate=bool(axes.degenerate_fraction),
    )


def cosine_chart(found: Local, names: list[str]) -> str:
    """|cos| between columns of the Jacobian: pale where orthogonal."""
    values = np.array(found.cosines)
    np.fill_diagonal(values, np.nan)
    label = f"Mean |cos| between columns {decimals(found.cosine)}"
    return matrix(values, names, names, label, numbers=len(names) <= 5, size=170)


def spectrum_chart(found: Local) -> str:
    """Singular values as bars."""
    rows = [Bar(f"v{k + 1}", value, "c1") for k, value in enumerate(found.singular_values)]
    label = "Singular values " + ", ".join(significant(value) for value in found.singular_values)
    return bars(rows, "singular value", label, top=max(found.singular_values) or 1.0, width=205, height=170)


def _floats(values: Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in values.tolist())


def explain_terms() -> str:
    """What the numbers of the geometry mean, as markup that is folded away.

    >>> explain_terms()[:23]
    '<details class="terms">'
    """
    meant = {term: TERMS[term] for term in ("axes", "|cos|", "Hadamard gap", "DtO")}
    meant["random"] = "what random rotations of as many axes have"
    rows = "".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in meant.items())
    return f'<details class="terms"><summary>What these numbers mean</summary><dl>{rows}</dl></details>'
