"""Matrices whose answer is known: what a score of deviation from orthogonality must say of them."""

from __future__ import annotations

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
LONGER = (1.0, 3.0)
"""Factors of all lengths."""
FORMS = {
    "released": "score as released",
    "defined": "score as defined in §4.4",
    "invariant": "invariant form",
}


def known_matrices(*, draws: int, data: int, latent: int) -> pd.DataFrame:
    """Scores of matrices with and without orthogonal columns, of the same lengths, in no order, and all longer.

    A row a ``draw``, ``kind`` and factor of all lengths (``longer``): the score as ``released``, as ``defined``, where
    all kinds are compared with each other, and in its ``invariant`` form.

    >>> len(known_matrices(draws=2, data=6, latent=3))
    12
    """
    import pandas as pd

    draw = torch.Generator().manual_seed(0)
    rows: list[dict[str, Any]] = []
    for turn in range(draws):
        entries = torch.randn(data, latent + 1, generator=draw, dtype=torch.float64)
        lengths = 0.5 + 1.5 * torch.rand(latent, generator=draw, dtype=torch.float64)
        random = entries[:, :latent] / torch.linalg.vector_norm(entries[:, :latent], dim=0)
        orthogonal, shared = torch.linalg.qr(entries).Q.split([latent, 1], dim=1)
        oblique = (1 - COSINE) ** 0.5 * orthogonal + COSINE**0.5 * shared
        for longer in LONGER:
            kinds = longer * lengths * torch.stack([orthogonal, random, oblique])
            scores = {
                "released": released_score(kinds).tolist(),
                "defined": geometry.od_score(kinds.unsqueeze(1))[:, 0].tolist(),
                "invariant": geometry.od_score(kinds, form="invariant").tolist(),
            }
            rows += [
                {"draw": turn, "kind": kind, "longer": longer}
                | {name: part[place] for name, part in scores.items()}
                for place, kind in enumerate(MATRICES)
            ]
    return pd.DataFrame(rows)


def judged_matrices(matrices: pd.DataFrame) -> Iterator[Finding]:
    """A deviation from orthogonality is 0 without any, more for random and oblique columns, and no matter of units.

    >>> found = judged_matrices(known_matrices(draws=6, data=9, latent=3))
    >>> {one.verdict for one in list(found)[4:]}
    {'reproduced'}
    """
    wide = matrices.pivot_table(index="draw", columns=["kind", "longer"], values=list(FORMS))
    for name, words in FORMS.items():
        first, longer = (wide[name, "orthogonal", scale].to_numpy(dtype=float) for scale in LONGER)
        for quantity, values in (
            ("score of orthogonal columns", first),
            (f"orthogonal columns {LONGER[1]:g} times as long, change of the score", longer - first),
        ):
            zero = bool((abs(values) < SAME).all())
            said: Verdict = "reproduced" if zero else "not reproduced"
            found = float(values.mean()), *mean_interval(values)
            yield Finding(f"matrices, {words}: {quantity}", "0", *found, said)
        for kind, which in (("random", "random ones"), ("oblique", f"oblique ones (cosines {COSINE:g})")):
            other = wide[name, kind, LONGER[0]].to_numpy(dtype=float)
            means = f"orthogonal {first.mean():.2f}, {kind} {other.mean():.2f} ± {other.std(ddof=1):.2f}"
            yield lower(
                f"matrices, {words}: orthogonal columns less {which} of the same lengths", first, other, means
            )


def draw_matrices(panel: Any, matrices: pd.DataFrame) -> None:
    """Bars of the three scores: three kinds of columns, and orthogonal ones that are longer.

    >>> from unseam.drawing import panels
    >>> draw_matrices(panels(["matrices"])[1][0], known_matrices(draws=2, data=6, latent=3))
    """
    shown = [*((kind, LONGER[0]) for kind in MATRICES), (MATRICES[0], LONGER[1])]
    for place, name in enumerate(FORMS):
        for turn, (kind, longer) in enumerate(shown):
            values = matrices[(matrices["kind"] == kind) & (matrices["longer"] == longer)][name]
            label = None if place else kind + ("" if longer == 1 else f", {longer:g} × as long")
            across = place + 0.2 * (turn - 1.5)
            bar = panel.bar(across, values.mean(), 0.18, yerr=values.std(), color=COLOURS[turn], label=label)
            panel.bar_label(bar, [f"{values.mean():.2g}" if values.mean() > SAME else "0"], fontsize=5)
    panel.set_xticks(range(3), ["as released", "as defined", "invariant"])
    panel.set_ylabel("score, lower should be orthogonal", fontsize=8)
    panel.legend(fontsize=7, frameon=False)
