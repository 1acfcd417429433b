"""Known decoders fitted as released: what the penalty's factor does to their scores, and what the bases do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unseam.drawing import COLOURS
from unseam.models import Encoding
from unseam.papers.artefact import Finding
from unseam.papers.bhowal2024.released import PASSES, gram_root, released_distances, released_fit
from unseam.papers.bhowal2024.rows import steps_in_words
from unseam.papers.bhowal2024.signs import ADDED, one_score

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["draw_fits", "judged_fits", "known_fits"]

FORMS = {
    "ten": "bases of as many vectors as latents",
    "full": "full bases",
    "norm": "full bases, each distance over its largest, as with --norm",
}
NAMED = {"ten": "bases of ten", "full": "full bases", "norm": "full bases, --norm"}
ACTIVE, PASSIVE = 0.05, 1.0
"""Variances of the posterior."""


def known_fits(*, starts: int, pixels: int, latent: int) -> pd.DataFrame:
    """Scores of bent linear decoders, fitted as released from many random starts under every factor.

    All latents of the first are active; of the second 0.7 are ``passive``: their posterior is the prior, and they
    have no columns. A row a number of ``passive`` latents and of ``passes``, a ``start`` and factor (``sign``): the
    score in three forms, relative to its largest over the factors. They are over the bases that models are scored on
    (``ten``), over those of the released code (``full``), and with each of its distances relative to its own largest
    (``norm``).

    >>> len(known_fits(starts=2, pixels=9, latent=3))
    24
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for passive in (0, round(0.7 * latent)):
        draw = torch.Generator().manual_seed(0)
        columns = torch.randn(latent, pixels, generator=draw) / 20
        columns[latent - passive :] = 0
        variance = torch.full((starts, latent), ACTIVE)
        variance[:, latent - passive :] = PASSIVE
        code = Encoding(torch.randn(starts, latent, generator=draw), variance)
        for passes in PASSES:
            scores = _scores(columns, code, passes)
            rows += [
                {"passive": passive, "passes": passes, "start": start, "sign": sign}
                | {name: float(part[place, start]) for name, part in scores.items()}
                for start in range(starts)
                for place, sign in enumerate(ADDED)
            ]
    return pd.DataFrame(rows)


def judged_fits(table: pd.DataFrame) -> Iterator[Finding]:
    """One decoder must have one score, from every start.

    >>> found = judged_fits(known_fits(starts=4, pixels=50, latent=3))
    >>> [one.note.split("factor ")[1] for one in found if "20 steps, full bases:" in one.quantity]
    ['for 100 % of 4 starts (17 % by chance)', 'for 100 % of 4 starts (17 % by chance)']
    """
    for (passive, passes), part in table.groupby(["passive", "passes"]):
        for name, words in FORMS.items():
            scores = part.pivot_table(index="start", columns="sign", values=name)[list(ADDED)].to_numpy(float)
            told = f"known decoder, {passive} passive latents, {steps_in_words(passes)}, {words}"
            yield one_score(told, scores, "starts")


def draw_fits(panel: Any, table: pd.DataFrame) -> None:
    """Scores after the most steps in every form; dashed without passive latents.

    >>> from unseam.drawing import panels
    >>> draw_fits(panels(["factors"])[1][0], known_fits(starts=2, pixels=9, latent=3))
    """
    last = table[table["passes"] == max(PASSES)]
    for passive, part in last.groupby("passive"):
        for place, (name, colour) in enumerate(zip(FORMS, COLOURS, strict=False)):
            across = [turn + 0.06 * (place - 1) for turn in range(len(ADDED))]
            found = part.groupby("sign")[name]
            mean, spread = (values.loc[list(ADDED)] for values in (found.mean(), found.std()))
            line, label = ("-", NAMED[name]) if passive else ("--", None)
            panel.errorbar(
                across, mean, spread, fmt=f"o{line}", color=colour, markersize=3, capsize=2, label=label
            )
    panel.set_xticks(range(len(ADDED)), [f"{sign:+g}" for sign in ADDED])
    panel.set_xlabel("factor of the penalty", fontsize=8)
    panel.set_ylabel("score as released, relative", fontsize=8)
    panel.legend(fontsize=7, frameon=False, loc="lower right")


def _scores(columns: Tensor, code: Encoding, passes: int) -> dict[str, Tensor]:
    """Every form (factor, start)."""
    fits = [
        released_fit(lambda z: (z @ columns).tanh(), code, sign=sign, passes=passes).matrix for sign in ADDED
    ]
    full = torch.stack([_one_by_one(fit) for fit in fits])
    ten = torch.stack([released_distances(gram_root(fit.double().mT @ fit.double())) for fit in fits])
    return {
        "ten": _relative(ten.mean(-1)),
        "full": _relative(full.mean(-1)),
        "norm": _relative(full).mean(-1),
    }


def _one_by_one(matrices: Tensor) -> Tensor:
    """Full bases of one matrix at a time: those of pictures take the memory of a picture squared."""
    return torch.stack([released_distances(one) for one in matrices]).double()


def _relative(values: Tensor) -> Tensor:
    """Over the factors, which come first."""
    return values / values.max(0).values
