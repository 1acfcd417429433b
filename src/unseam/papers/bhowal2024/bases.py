"""A known decoder fitted as released: what the penalty's sign does to its score, and what the choice of bases does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unseam.drawing import COLOURS
from unseam.models import Encoding
from unseam.papers.artefact import Finding
from unseam.papers.bhowal2024.released import PASSES, gram_root, released_distances, released_fit
from unseam.papers.bhowal2024.rows import published_cell
from unseam.papers.bhowal2024.setups import FAMILIES
from unseam.papers.bhowal2024.signs import ADDED
from unseam.papers.bhowal2024.table6 import OD
from unseam.papers.rolinek2019.cells import mean_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["draw_fits", "judged_fits", "known_fits"]

FORMS = {
    "ten": "bases of as many vectors as latents",
    "full": "full bases, as released",
    "norm": "full bases, each distance over its largest, as with --norm",
}
NAMED = {"ten": "bases of ten", "full": "full bases", "norm": "full bases, --norm"}
SAME = 1e-6


def known_fits(*, starts: int, pixels: int, latent: int) -> pd.DataFrame:
    """Scores of one bent linear decoder, fitted as released from many random starts under every factor.

    A row a number of ``passes``, ``start`` and factor (``sign``): the score in three forms, relative to its largest
    over the factors. They are over the bases that models are scored on (``ten``), over those of the released code
    (``full``), and with each of its distances relative to its own largest (``norm``).

    >>> len(known_fits(starts=2, pixels=9, latent=3))
    12
    """
    import pandas as pd

    draw = torch.Generator().manual_seed(0)
    columns = torch.randn(latent, pixels, generator=draw) / 20
    code = Encoding(torch.randn(starts, latent, generator=draw), torch.full((starts, latent), 0.05))
    rows: list[dict[str, Any]] = []
    for passes in PASSES:
        fits = [
            released_fit(lambda z: (z @ columns).tanh(), code, sign=sign, passes=passes).matrix
            for sign in ADDED
        ]
        full = torch.stack([_one_by_one(fit) for fit in fits])
        ten = torch.stack([released_distances(gram_root(fit.double().mT @ fit.double())) for fit in fits])
        scores = {
            "ten": _relative(ten.mean(-1)),
            "full": _relative(full.mean(-1)),
            "norm": _relative(full).mean(-1),
        }
        rows += [
            {"passes": passes, "start": start, "sign": sign}
            | {name: float(part[place, start]) for name, part in scores.items()}
            for start in range(starts)
            for place, sign in enumerate(ADDED)
        ]
    return pd.DataFrame(rows)


def judged_fits(table: pd.DataFrame) -> Iterator[Finding]:
    """One decoder must have one score, from every start.

    >>> found = judged_fits(known_fits(starts=4, pixels=50, latent=3))
    >>> {one.verdict for one in found}
    {'not reproduced'}
    """
    for passes, part in table.groupby("passes"):
        for name, words in FORMS.items():
            scores = part.pivot_table(index="start", columns="sign", values=name)[list(ADDED)].to_numpy(
                dtype=float
            )
            apart = scores.max(1) - scores.min(1)
            means = ", ".join(
                f"{sign:+g}: {value:.3f}" for sign, value in zip(ADDED, scores.mean(0), strict=True)
            )
            follows = float((np.diff(scores, axis=1) > 0).all(1).mean())
            turns = "one pass" if passes == 1 else f"{passes} passes"
            yield Finding(
                f"known decoder, {turns}, {words}: one decoder under three signs, largest less smallest",
                "0: one decoder, one score",
                float(apart.mean()),
                *mean_interval(apart),
                "reproduced" if apart.max() < SAME else "not reproduced",
                f"{means}; ordered by the factor from {100 * follows:.0f} % of {len(apart)} starts (17 % by chance)",
            )


def draw_fits(panel: Any, table: pd.DataFrame) -> None:
    """Scores after the most passes in every form, beside what Table 6 has for the models that got these factors.

    >>> from unseam.drawing import panels
    >>> draw_fits(panels(["signs"])[1][0], known_fits(starts=2, pixels=9, latent=3))
    """
    last = table[table["passes"] == max(PASSES)].groupby("sign")
    for place, (name, colour) in enumerate(zip(FORMS, COLOURS, strict=False)):
        across = [turn + 0.08 * (place - 1) for turn in range(len(ADDED))]
        mean, spread = (found.loc[list(ADDED)] for found in (last[name].mean(), last[name].std()))
        panel.errorbar(
            across, mean, spread, fmt="o-", color=colour, markersize=3, capsize=2, label=NAMED[name]
        )
    for turn, family in enumerate(FAMILIES):
        label = None if turn else "published, dSprites"
        published_cell(panel, turn + 0.24, OD["dSprites"][family], color="black", label=label)
    panel.set_xticks(
        range(len(ADDED)), [f"{sign:+g}\n({family})" for sign, family in zip(ADDED, FAMILIES, strict=True)]
    )
    panel.set_xlabel("factor of the penalty (whose it is)", fontsize=8)
    panel.set_ylabel("score as released, relative", fontsize=8)
    panel.legend(fontsize=7, frameon=False, loc="lower right")


def _one_by_one(matrices: Tensor) -> Tensor:
    """Full bases of one matrix at a time: those of pictures take the memory of a picture squared."""
    return torch.stack([released_distances(one) for one in matrices]).double()


def _relative(values: Tensor) -> Tensor:
    """Over the factors, which come first."""
    return values / values.max(0).values
