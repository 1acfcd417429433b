"""Beyond bhowal2024: which measure without labels tracks which score, over many models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Outcome, Workplace
from unseam.papers.bhowal2024.correlations import SCOPES, rank_correlation
from unseam.papers.bhowal2024.rows import worlds
from unseam.papers.bhowal2024.runs import trained
from unseam.papers.bhowal2024.setups import CELLS, EVERY_CELL, LAPTOP, NAMES, SMOKE, SPRITES, Cell, Setup
from unseam.papers.bhowal2024.table6 import with_od

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["BEYOND"]

MEASURES = {
    "od_paper": "OD-Score as defined",
    "od_invariant": "invariant OD-Score",
    "dto": "DtO",
    "dto_active": "DtO, active latents",
    "cosine": "cosine",
    "gap": "Hadamard gap",
}
SCORED = {"mig": "MIG", "mig_sup": "MIG-sup", "dci": "DCI", "disent": "k-NN score"}
WORDS = {"all": "over all models", "within": "within cells", "between": "between cells"}


@dataclass(frozen=True)
class Settings:
    """A data set, and the cells whose models are compared."""

    setup: Setup
    cells: tuple[Cell, ...]


def measure(settings: Settings, place: Workplace) -> Outcome:
    """Rank correlation of every measure with every score, over all models, within cells and between them."""
    import pandas as pd

    tables, missing = trained((settings.setup,), place, cells=settings.cells)
    if not tables:
        return Outcome(missing, {})
    members = with_od(tables["members"], tables["points"], compared=("world",))
    rows = list(_rows(members))
    found = [_finding(row) for row in rows if row["family"] == "all" and row["scope"] != "between"]
    correlations = pd.DataFrame(rows)
    shown = {"correlations": correlations, "members": members, "trainings": tables["trainings"]}
    return Outcome((*found, *missing), shown, NOTE)


def _rows(members: pd.DataFrame) -> Iterator[dict[str, Any]]:
    families = [(family, own) for family, own in members.groupby("family", sort=False)]
    for world, part in worlds(members):
        for scope in SCOPES:
            groups = [("all", part)]
            if scope == "all":
                groups += [(str(family), own[own["world"] == world]) for family, own in families]
            for family, own in groups:
                for measure_name in MEASURES:
                    for score in SCORED:
                        rho, lower, upper, models = rank_correlation(own, measure_name, score, scope=scope)
                        yield {
                            "world": world,
                            "scope": scope,
                            "family": family,
                            "measure": measure_name,
                            "score": score,
                            "rho": rho,
                            "lower": lower,
                            "upper": upper,
                            "models": models,
                        }


def _finding(row: dict[str, Any]) -> Finding:
    words = f"{MEASURES[row['measure']]} and {SCORED[row['score']]}"
    return Finding(
        f"{NAMES[row['world']]}, {WORDS[row['scope']]}: rank correlation of {words}",
        "negative",
        row["rho"],
        row["lower"],
        row["upper"],
        "reproduced" if row["upper"] < 0 else "not reproduced",
        f"{row['models']} models",
    )


NOTE = (
    "Every measure is low for orthogonal columns, so the chain from orthogonality to disentanglement asks for negative "
    "correlations. 'Within cells' ranks models of one family and β among themselves: what is left when everything that "
    "an objective does to both is taken out. The OD-Score as defined is normalised over all models here."
)


def draw(outcome: Outcome) -> Figure:
    """Correlations with their intervals: a panel a score, rows of measures, colours for scopes."""
    if not outcome.tables:
        return panels(["the data set is not here"], width=3.6, height=1.0)[0]
    table = outcome.tables["correlations"]
    table = table[table["family"] == "all"]
    name = NAMES[str(table["world"].iloc[0])]
    figure, axes = panels([f"{words}\n{name}" for words in SCORED.values()], width=2.9, height=2.8)
    for panel, score in zip(axes, SCORED, strict=True):
        own = table[table["score"] == score]
        for turn, (scope, colour) in enumerate(zip(SCOPES, COLOURS, strict=False)):
            some = own[own["scope"] == scope].set_index("measure").loc[list(MEASURES)]
            height = [place + 0.22 * (turn - 1) for place in range(len(some))]
            panel.hlines(height, some["lower"], some["upper"], color=colour, linewidth=1.3)
            panel.plot(some["rho"], height, "o", color=colour, markersize=4, label=WORDS[scope])
        panel.set_yticks(range(len(MEASURES)), MEASURES.values() if panel is axes[0] else [])
        panel.invert_yaxis()
        panel.set_xlim(-1.05, 1.05)
        panel.axvline(0, color="grey", linewidth=0.7)
        panel.set_xlabel("rank correlation", fontsize=8)
    axes[-1].legend(fontsize=7, loc="lower right", framealpha=0.9)
    return figure


BEYOND = Artefact(
    key="bhowal2024.beyond",
    title="Beyond the paper: DtO, cosine, Hadamard gap and OD-Score against four scores",
    claim="The more orthogonal a decoder, the better it disentangles: every measure of orthogonality correlates with "
    "every score, among restarts of one model too.",
    criterion="The 95 % bootstrap interval of a rank correlation lies below zero, over all models and within cells of "
    "one family and β; correlations within each family and between cells are in the table.",
    presets={
        "smoke": Settings(SMOKE[0], CELLS),
        "laptop": Settings(LAPTOP[0], CELLS),
        "full": Settings(SPRITES, EVERY_CELL),
    },
    measure=measure,
    draw=draw,
)
