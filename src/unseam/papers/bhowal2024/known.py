"""Matrices whose answer is known: what a score of deviation from orthogonality must say of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from unseam import geometry
from unseam.drawing import COLOURS
from unseam.papers.artefact import Finding, Verdict
from unseam.papers.bhowal2024.released import released_score
from unseam.papers.bhowal2024.rules import lower
from unseam.papers.rolinek2019.cells import mean_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["draw_matrices", "judged_matrices", "known_matrices"]

SAME = 1e-6
MATRICES = ("orthogonal", "random", "oblique")
"""Random columns are nearly orthogonal where data have many dimensions; oblique ones share a direction."""
COSINE = 0.5
"""Between any two oblique columns."""
LENGTHS = (0.5, 1.0, 2.0, 12.0)
"""Mean lengths of columns; the random start of the released fit has 12 for pictures of 64 × 64."""
FORMS = {
    "released": "score as released",
    "defined": "score as defined in §4.4",
    "invariant": "invariant form",
}
NAMED = {"released": "as released", "defined": "as defined", "invariant": "invariant"}


def known_matrices(*, draws: int, data: int, latent: int) -> pd.DataFrame:
    """Scores of matrices with and without orthogonal columns, of the same lengths, in no order.

    A row a ``draw``, ``kind`` and mean ``length``, around which columns differ by up to a half: the score as
    ``released``, as ``defined``, where all kinds are compared with each other, and in its ``invariant`` form.

    >>> len(known_matrices(draws=2, data=6, latent=3))
    24
    """
    import pandas as pd

    draw = torch.Generator().manual_seed(0)
    rows: list[dict[str, Any]] = []
    for turn in range(draws):
        entries = torch.randn(data, latent + 1, generator=draw, dtype=torch.float64)
        unequal = 0.5 + torch.rand(latent, generator=draw, dtype=torch.float64)
        random = entries[:, :latent] / torch.linalg.vector_norm(entries[:, :latent], dim=0)
        orthogonal, shared = torch.linalg.qr(entries).Q.split([latent, 1], dim=1)
        oblique = (1 - COSINE) ** 0.5 * orthogonal + COSINE**0.5 * shared
        for length in LENGTHS:
            kinds = length * unequal * torch.stack([orthogonal, random, oblique])
            scores = {
                "released": released_score(kinds).tolist(),
                "defined": geometry.od_score(kinds.unsqueeze(1))[:, 0].tolist(),
                "invariant": geometry.od_score(kinds, form="invariant").tolist(),
            }
            rows += [
                {"draw": turn, "kind": kind, "length": length}
                | {name: part[place] for name, part in scores.items()}
                for place, kind in enumerate(MATRICES)
            ]
    return pd.DataFrame(rows)


def judged_matrices(matrices: pd.DataFrame) -> Iterator[Finding]:
    """A deviation from orthogonality is 0 without any, more for random and oblique columns, and no matter of units.

    >>> found = judged_matrices(known_matrices(draws=6, data=9, latent=3))
    >>> {one.verdict for one in list(found)[10:]}
    {'reproduced'}
    """
    wide = matrices.pivot_table(index="draw", columns=["kind", "length"], values=list(FORMS))
    for name, words in FORMS.items():
        scores = {
            (kind, length): wide[name, kind, length].to_numpy(dtype=float)
            for kind in MATRICES
            for length in LENGTHS
        }
        first, longest = scores["orthogonal", 1.0], scores["orthogonal", LENGTHS[-1]]
        for quantity, values in (
            ("score of orthogonal columns of mean length 1", first),
            (f"change of it with a mean length of {LENGTHS[-1]:g}", longest - first),
        ):
            zero = bool((abs(values) < SAME).all())
            said: Verdict = "reproduced" if zero else "not reproduced"
            found = float(values.mean()), *mean_interval(values)
            yield Finding(f"matrices, {words}: {quantity}", "0", *found, said)
        lengths = (
            LENGTHS if name == "released" else (1.0,)
        )  # the others do not depend on it, as was just asked
        for kind, length in itertools.product(MATRICES[1:], lengths):
            low, other = scores["orthogonal", length], scores[kind, length]
            yield lower(
                f"matrices, {words}: orthogonal columns less {kind} ones, mean length {length:g}",
                low,
                other,
                f"orthogonal {low.mean():.2f}, {kind} {other.mean():.2f} ± {other.std(ddof=1):.2f}, orthogonal below "
                f"in {(low < other).mean():.0%} of draws",
            )


def draw_matrices(panel: Any, matrices: pd.DataFrame) -> None:
    """By how much random and oblique columns score more than orthogonal ones, at every length.

    >>> from unseam.drawing import panels
    >>> draw_matrices(panels(["matrices"])[1][0], known_matrices(draws=2, data=6, latent=3))
    """
    wide = matrices.pivot_table(index="draw", columns=["kind", "length"], values=list(FORMS))
    ticks = []
    for place, name in enumerate(FORMS):
        for turn, length in enumerate(LENGTHS):
            across = place + 0.2 * (turn - 1.5)
            ticks.append(across)
            for kind, colour in zip(MATRICES[1:], COLOURS, strict=False):
                more = wide[name, kind, length] - wide[name, "orthogonal", length]
                label = kind if place == turn == 0 else None
                panel.errorbar(across, more.mean(), more.std(), fmt="o", color=colour, capsize=2, label=label)
        below = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "top", "fontsize": 8}
        panel.annotate(NAMED[name], (place, -0.12), **below)
    panel.axhline(0, color="grey", linewidth=0.7)
    panel.set_xticks(ticks, [f"{length:g}" for length in LENGTHS] * len(FORMS), fontsize=7)
    panel.set_ylabel("score less that of orthogonal columns", fontsize=8)
    panel.legend(fontsize=7, frameon=False, loc="lower right")
