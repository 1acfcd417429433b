"""Theorem 2 of bhowal2024: neighbours in data space are neighbours in latent space, closer as the KL falls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Verdict, Workplace
from unseam.papers.bhowal2024.correlations import judged, rank_correlation
from unseam.papers.bhowal2024.neighbours import NEIGHBOURS
from unseam.papers.bhowal2024.rows import groups_of, judgement, where_measured
from unseam.papers.bhowal2024.runs import select, trained_groups
from unseam.papers.bhowal2024.setups import (
    CELLS,
    EVERY_CELL,
    LAPTOP,
    MANY_SPRITES,
    SHAPES,
    SMOKE,
    SPRITES,
    Cell,
    Group,
    GroupSettings,
)
from unseam.papers.rolinek2019.cells import mean_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["THEOREM2"]

MOST = 0.9
"""Share of overlapping posteriors that must be neighbours for part (a), which says all."""
ABOVE_CHANCE = 10.0
"""Or how many times chance for it to hold partly."""
CLOSE = {
    "near": ("E‖z − z'‖² of neighbours, as printed", 1),
    "near_means": ("squared distance of neighbours' means", 1),
    "overlap": ("the overlap of neighbours' posteriors", -1),
}
"""With the sign of the correlation that (b) asks for."""


def measure(settings: GroupSettings, place: Workplace) -> dict[str, pd.DataFrame]:
    """Neighbours of every model, their distances, and its KL."""
    return select(trained_groups(settings.groups, place), "members")


def judge(tables: Tables) -> Judgement:
    """Both parts of the theorem, for each group of models."""
    return judgement(tables, lambda found: _findings(found["members"]), NOTE)


def _findings(members: pd.DataFrame) -> Iterator[Finding]:
    for where, part in groups_of(members):
        group = ", ".join(where)
        yield _shared(group, part)
        for name, (words, sign) in CLOSE.items():
            quantity = f"{group}, (b): rank correlation of the KL and {words}"
            yield judged(quantity, rank_correlation(part, "kl", name), sign=sign)


def _shared(name: str, part: pd.DataFrame) -> Finding:
    shares, chance = part["shared"].to_numpy(dtype=float), float(part["shared_chance"].mean())
    lower, upper = mean_interval(shares)
    said: Verdict = "not reproduced"
    if shares.mean() >= MOST:
        said = "reproduced"
    elif shares.mean() >= ABOVE_CHANCE * chance:
        said = "partly"
    words = f"{name}, (a): share of the {NEIGHBOURS} most overlapping posteriors that are nearest neighbours' in data"
    return Finding(words, "all", float(shares.mean()), lower, upper, said, f"chance {chance:.4f}")


NOTE = (
    "E‖z − z'‖² over samples of two posteriors is the squared distance of their means plus both variances, summed over "
    "latents. As the KL vanishes it rises to twice the number of latents, its value for a collapsed model, however far "
    "apart the data are: part (b) cannot hold as printed over the whole range of KL. What falls is the distance of "
    "means, and what rises is the overlap, which is what the proof argues with."
)


@where_measured
def draw(tables: Tables) -> Figure:
    """Distance as printed, distance of means and overlap against the KL; crosses are what random pairs have."""
    parts = list(groups_of(tables["members"]))
    shown = (
        ("near", "far", "E‖z − z'‖² of neighbours"),
        ("near_means", "far_means", "‖μ − μ'‖² of neighbours"),
        ("overlap", None, "overlap of neighbours"),
        ("shared", "shared_chance", "neighbours among overlapping"),
    )
    titles = ["\n".join((words, *where)) for where, _ in parts for _, _, words in shown]
    figure, axes = panels(titles, rows=len(parts), width=2.9, height=2.4)
    turn = iter(axes)
    for _, part in parts:
        for near, far, _ in shown:
            _against(next(turn), part, near, far)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def _against(panel: Any, part: pd.DataFrame, near: str, far: str | None) -> None:
    for (family, own), colour in zip(part.groupby("family", sort=False), COLOURS, strict=False):
        panel.plot(own["kl"], own[near], "o", color=colour, markersize=3, alpha=0.8, label=str(family))
        if far is not None:
            panel.plot(own["kl"], own[far], "x", color=colour, markersize=3, alpha=0.4)
    panel.set_xlabel("KL in nats (crosses: random pairs)" if far else "KL in nats", fontsize=8)
    panel.set_ylim(bottom=0)


THEOREM2 = Artefact(
    key="bhowal2024.theorem2",
    title="Theorem 2: neighbours in data and in latent space",
    claim="(a) Posteriors that overlap with that of an item are those of its nearest neighbours in data space; (b) the "
    "lower the KL, the smaller the expected squared distance between samples of neighbours' posteriors.",
    criterion="(a) reproduced where 90 % of the ten most overlapping posteriors belong to the ten nearest items, "
    "partly where ten times as many do as by chance. (b) reproduced where the 95 % bootstrap interval of the rank "
    "correlation of KL and distance over models lies above zero, and below zero for the overlap. Long-trained models "
    "on sprites were added after the others were seen.",
    presets={
        "smoke": GroupSettings((Group(SMOKE[0], (*CELLS[1:], Cell("β-VAE", 0.1))),)),
        "laptop": GroupSettings((Group(LAPTOP[0], (*CELLS[1:], Cell("β-VAE", 0.25))),)),
        "full": GroupSettings((Group(MANY_SPRITES, EVERY_CELL), Group(SPRITES, CELLS), Group(SHAPES, CELLS))),
    },
    measure=measure,
    judge=judge,
    draw=draw,
)
