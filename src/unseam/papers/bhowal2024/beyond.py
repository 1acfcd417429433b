"""Beyond bhowal2024: which measure without labels tracks which score, over many models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.papers.bhowal2024.correlations import (
    SCOPES,
    Correlation,
    Scope,
    differences,
    judged,
    rank_correlation,
)
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
    Group,
    GroupSettings,
)
from unseam.papers.bhowal2024.table6 import with_od

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

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
WORDS = {
    "all": "over all models",
    "families": "within families",
    "cells": "within cells",
    "between": "between cells",
}
JUDGED = ("all", "families", "cells")
FEWEST_CELLS = 5
"""Below which their means are not ranked, a choice: three have six orders only, five have 120."""


def measure(settings: GroupSettings, place: Workplace) -> dict[str, pd.DataFrame]:
    """Rank correlation of every measure with every score, over all models, within families and cells, and between."""
    parts = [_correlated(tables) for tables in trained_groups(settings.groups, place)]
    return select(parts, "correlations", "differences", "members")


def _correlated(tables: Tables) -> Tables:
    import pandas as pd

    if "members" not in tables:
        return tables
    members = with_od(tables["members"], tables["points"], compared=("world",))
    named = members[["world", "steps"]].iloc[0].to_dict()
    return {
        **tables,
        "correlations": pd.DataFrame([named | row for row in _rows(members)]),
        "differences": pd.DataFrame([named | row for row in _differences(members)]),
        "members": members,
    }


def judge(tables: Tables) -> Judgement:
    """The sign of every correlation but those between cells."""
    return judgement(tables, lambda found: _findings(found["correlations"]), NOTE)


def _findings(correlations: pd.DataFrame) -> Iterator[Finding]:
    for where, own in groups_of(correlations):
        for _, row in own[own["scope"].isin(JUDGED)].iterrows():
            yield _finding(where, row)


def _scopes(members: pd.DataFrame) -> list[Scope]:
    """All but families that are cells, having one β each, and means of too few cells to be ranked."""
    cells = members[["family", "beta"]].drop_duplicates()
    useful = {"families": cells["family"].duplicated().any(), "between": len(cells) >= FEWEST_CELLS}
    return [scope for scope in SCOPES if useful.get(scope, True)]


def _rows(members: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for scope, measure_name, score in itertools.product(_scopes(members), MEASURES, SCORED):
        found = rank_correlation(members, measure_name, score, scope=scope)
        yield {"scope": scope, "measure": measure_name, "score": score} | found._asdict()


def _differences(members: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for scope, score in itertools.product(_scopes(members), SCORED):
        for one, other, found in differences(members, tuple(MEASURES), score, scope=scope):
            yield {"scope": scope, "score": score, "measure": one, "less": other} | found._asdict()


def _finding(where: tuple[str, str], row: pd.Series[Any]) -> Finding:
    words = f"{MEASURES[row['measure']]} and {SCORED[row['score']]}"
    found = Correlation(*(row[name] for name in Correlation._fields))
    return judged(f"{', '.join((*where, WORDS[row['scope']]))}: rank correlation of {words}", found)


NOTE = (
    "Every measure is low for orthogonal columns, so the chain from orthogonality to disentanglement asks for "
    "negative correlations. 'Within families' ranks models of one family among themselves, with all their β; 'within "
    "cells' those of one family and β: what is left when everything that an objective does to both is taken out. One "
    "correlation in forty would lie below zero by chance. The OD-Score as defined is normalised over all models of a "
    "group. Differences of correlations, over the same resampled models, are in a table."
)


@where_measured
def draw(tables: Tables) -> Figure:
    """Correlations with their intervals: a row of panels per group, a panel per score, colours for scopes."""
    table = tables["correlations"]
    groups = list(groups_of(table))
    titles = ["\n".join((words, *where)) for where, _ in groups for words in SCORED.values()]
    figure, axes = panels(titles, rows=len(groups), width=2.9, height=2.8)
    handles: dict[str, Any] = {}
    for panel, ((_, group), score) in zip(axes, itertools.product(groups, SCORED), strict=True):
        own = group[group["score"] == score]
        scopes = [scope for scope in SCOPES if scope in set(own["scope"])]
        for turn, scope in enumerate(scopes):
            some = own[own["scope"] == scope].set_index("measure").loc[list(MEASURES)]
            colour = COLOURS[SCOPES.index(scope)]
            height = [place + 0.2 * (turn - (len(scopes) - 1) / 2) for place in range(len(some))]
            panel.hlines(height, some["lower"], some["upper"], color=colour, linewidth=1.3)
            (handles[WORDS[scope]],) = panel.plot(some["rho"], height, "o", color=colour, markersize=4)
        panel.set_yticks(range(len(MEASURES)), MEASURES.values() if score == next(iter(SCORED)) else [])
        panel.invert_yaxis()
        panel.set_xlim(-1.05, 1.05)
        panel.axvline(0, color="grey", linewidth=0.7)
        panel.set_xlabel("rank correlation", fontsize=8)
    names = list(handles)
    figure.legend(
        handles.values(), names, fontsize=7, frameon=False, ncols=len(names), loc="outside lower center"
    )
    return figure


BEYOND = Artefact(
    key="bhowal2024.beyond",
    title="Beyond the paper: DtO, cosine, Hadamard gap and OD-Score against four scores",
    claim="The more orthogonal a decoder, the better it disentangles: every measure of orthogonality correlates with "
    "every score, among restarts of one model too.",
    criterion="The 95 % bootstrap interval of a rank correlation lies below zero: over all models, within families, "
    "where these have several β, and within cells of one family and β; correlations between cells are in the table.",
    presets={
        "smoke": GroupSettings((Group(SMOKE[0], CELLS),)),
        "laptop": GroupSettings((Group(LAPTOP[0], CELLS),)),
        "full": GroupSettings((Group(MANY_SPRITES, EVERY_CELL), Group(SPRITES, CELLS), Group(SHAPES, CELLS))),
    },
    measure=measure,
    judge=judge,
    draw=draw,
)
