"""Beyond bhowal2024: which measure without labels tracks which score, over many models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pandas as pd

from unseam.drawing import panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024._runs import cells_of, groups_of, select, train_setups
from unseam.papers.bhowal2024._setups import LAPTOP, MANY, SMOKE, Settings
from unseam.papers.bhowal2024.scores import with_od
from unseam.papers.claims import Correlation, Correlations
from unseam.papers.plots import Figure, Tables, finish, intervals, legend_below, reference, where_measured
from unseam.papers.tables import of_tables

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
SCOPES = {"all": "over all models", "cells": "among restarts"}
JUDGED = (("od_paper", "od_invariant"), ("mig", "dci"))
"""Measures and scores of the claims; the figure shows all."""


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """Every measure and score of every model; the OD-Score as defined is relative to all models of a group."""
    tables = train_setups(settings.setups, place)
    if "members" in tables:
        points = tables["points"]
        tables["members"] = with_od(tables["members"], points, compared=("world", "steps"))
    found = select(tables, members=("steps", *MEASURES, *SCORED))
    return found | ({"correlations": correlations(found)} if "members" in found else {})


def correlations(tables: Tables) -> pd.DataFrame:
    """Every measure against every score, over all models of a group and among restarts, with 95 % intervals."""
    rows = []
    for group, part in groups_of(tables["members"]):
        for scope in SCOPES:
            found = Correlations("", _cases(scope, tuple(MEASURES), tuple(SCORED))).judge({"members": part})
            for (name, score), one in zip(itertools.product(MEASURES, SCORED), found, strict=True):
                rows.append((group, scope, name, score, one.measured, one.lower, one.upper))
    return pd.DataFrame(rows, columns=["group", "scope", "measure", "score", "rho", "lower", "upper"])


@of_tables
def _cases(
    tables: Tables, scope: str, measures: Sequence[str], scores: Sequence[str]
) -> Iterator[Correlation]:
    for group, part in groups_of(tables["members"]):
        for name, score in itertools.product(measures, scores):
            words = f"{group}, {SCOPES[scope]}: ρ of {MEASURES[name]} and {SCORED[score]}"
            first, second = (_within(part, one, scope) for one in (name, score))
            groups, strata = (cells_of(part) if scope == one else None for one in SCOPES)
            yield Correlation(words, first, second, groups, strata=strata)


def _within(part: pd.DataFrame, column: str, scope: str) -> pd.Series[float]:
    """Values, or for restarts ranks among the models of one family and β less their mean."""
    if scope == "all":
        return part[column]
    ranks = part.groupby(["family", "beta"])[column].rank()
    means: pd.Series[float] = ranks.groupby([part["family"], part["beta"]]).transform("mean")
    return ranks - means


@where_measured
def plot(tables: Tables) -> Figure:
    """Correlations with their intervals: one row of panels per group, one panel per score, one colour per scope."""
    groups = list(tables["correlations"].groupby("group", sort=False))
    names = [str(group).replace(", ", "\n") for group, _ in groups]
    titles = [f"{words}\n{name}" for name, words in itertools.product(names, SCORED.values())]
    figure, axes = panels(titles, rows=len(groups), width=2.9, height=2.8)
    for panel, ((_, part), score) in zip(axes, itertools.product(groups, SCORED), strict=True):
        own = part[part["score"] == score].set_index("scope")[["rho", "lower", "upper"]]
        kinds = {words: own.loc[scope].to_numpy().T for scope, words in SCOPES.items()}
        intervals(
            panel, list(MEASURES.values()) if score == next(iter(SCORED)) else [""] * len(MEASURES), kinds
        )
        reference(panel, x=0, linestyle="-")
        finish(panel, "rank correlation", xlim=(-1.05, 1.05))
    legend_below(figure, axes[:1], 2)
    return figure


BEYOND = Artefact(
    key="bhowal2024.beyond",
    title="Beyond the paper: DtO, cosine, Hadamard gap and OD-Score against four scores",
    claims=tuple(
        Correlations(
            f"The more orthogonal a decoder, the more disentangled its codes, {words}",
            _cases(scope, *JUDGED),
            ours=True,
        )
        for scope, words in SCOPES.items()
    ),
    presets={"smoke": Settings(SMOKE[:1]), "laptop": Settings(LAPTOP), "full": Settings(MANY)},
    measure=measure,
    plot=plot,
    note="Every measure is low for orthogonal columns, so that negative correlations are expected. Family and β drive "
    "measures and scores, so over all models those of one family and β are exchanged together. 'Among restarts' "
    "ranks models of one family and β among themselves: what is left when the effect of the objective on both is "
    "removed. The OD-Score as defined is relative to all models of a group.",
)
