"""Theorem 2 of bhowal2024: neighbours in data space are neighbours in latent space, closer as the KL falls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pandas as pd

from unseam.drawing import panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024._measures import NEIGHBOURS
from unseam.papers.bhowal2024._runs import cells_of, groups_of, select, train_setups
from unseam.papers.bhowal2024._setups import CELLS, LAPTOP, MANY, SMOKE, Cell, Settings
from unseam.papers.claims import Bound, Bounds, Correlation, Correlations
from unseam.papers.plots import Figure, Tables, finish, lines, where_measured
from unseam.papers.tables import of_tables

__all__ = ["THEOREM2"]

MOST = 0.9
"""Fraction of overlapping posteriors that must be neighbours for part (a), which says all."""
ABOVE_CHANCE = 10.0
CLOSE = {
    "near": ("E‖z − z'‖² of neighbours", True),
    "near_means": ("squared distance of neighbours' means", True),
    "overlap": ("overlap of neighbours' posteriors", False),
}
"""With the sign of the correlation with the KL that (b) asks for."""


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """Neighbours of every model, their distances, and its KL."""
    columns = ("steps", "kl", *CLOSE, "far", "far_means", "shared", "shared_chance")
    return select(train_setups(settings.setups, place), members=columns)


@of_tables
def _shared(tables: Tables, times_chance: float | None = None) -> Iterator[Bound]:
    for group, part in groups_of(tables["members"]):
        least, said = MOST, f"all (at least {MOST:g})"
        if times_chance is not None:
            least = times_chance * float(part["shared_chance"].mean())
            said = f"at least {least:.2g}, {times_chance:g} times chance"
        words = f"fraction of the {NEIGHBOURS} most overlapping posteriors that are nearest neighbours'"
        wrong = {"chance": part["shared_chance"]}
        yield Bound(f"{group}: {words}", said, part["shared"], least=least, wrong=wrong)


@of_tables
def _correlations(tables: Tables, *names: str) -> Iterator[Correlation]:
    for group, part in groups_of(tables["members"]):
        for name in names:
            words, positive = CLOSE[name]
            quantity = f"{group}: ρ of the KL and {words}"
            yield Correlation(quantity, part["kl"], part[name], cells_of(part), positive)


@where_measured
def plot(tables: Tables) -> Figure:
    """Distance as printed, distance of means and overlap against the KL; crosses are those of random pairs."""
    parts = list(groups_of(tables["members"]))
    shown = (
        ("near", "far", "E‖z − z'‖² of neighbours"),
        ("near_means", "far_means", "‖μ − μ'‖² of neighbours"),
        ("overlap", None, "overlap of neighbours"),
        ("shared", "shared_chance", "neighbours among overlapping"),
    )
    titles = [f"{words}\n{group.replace(', ', chr(10))}" for group, _ in parts for _, _, words in shown]
    figure, axes = panels(titles, rows=len(parts), width=2.9, height=2.4)
    for panel, ((_, part), (near, far, _)) in zip(axes, itertools.product(parts, shown), strict=True):
        lines(panel, part, "kl", near, by="family", style="o", markersize=3, alpha=0.8)
        if far is not None:
            lines(panel, part, "kl", far, by="family", style="x", label="", markersize=3, alpha=0.4)
        finish(panel, "KL in nats (crosses: random pairs)" if far else "KL in nats", ylim=(0, None))
    finish(axes[0], legend="best")
    return figure


THEOREM2 = Artefact(
    key="bhowal2024.theorem2",
    title="Theorem 2: neighbours in data and in latent space",
    claims=(
        Bounds(
            "Theorem 2 (a): overlapping posteriors are those of nearest neighbours in data space", _shared()
        ),
        Correlations(
            "Theorem 2 (b): the lower the KL, the smaller E‖z − z'‖² of neighbours", _correlations("near")
        ),
        Bounds(
            "Overlapping posteriors are those of nearest neighbours far more often than by chance",
            _shared(ABOVE_CHANCE),
            ours=True,
        ),
        Correlations(
            "Theorem 2 (b) as its proof argues: the lower the KL, the closer the means and the larger the overlap",
            _correlations("near_means", "overlap"),
            ours=True,
        ),
    ),
    presets={
        "smoke": Settings((SMOKE[0].replace(cells=(*CELLS[1:], Cell("β-VAE", 0.1))),)),
        "laptop": Settings((LAPTOP[0].replace(cells=(*CELLS[1:], Cell("β-VAE", 0.25))),)),
        "full": Settings(MANY),
    },
    measure=measure,
    plot=plot,
    note="Part (a) is met by 90 % here. E‖z − z'‖² over samples of two posteriors is the squared distance of their "
    "means plus both variances, summed over latents. As the KL vanishes it rises to twice the number of latents, its "
    "value for a collapsed model, however far apart the data are: part (b) cannot hold as printed over the whole range "
    "of KL.",
)
