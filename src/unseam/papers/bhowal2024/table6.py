"""Table 6 and Figure 4 of bhowal2024: the orthogonal deviation score, and MIG and MIG-sup against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.papers.bhowal2024.correlations import judged, rank_correlation
from unseam.papers.bhowal2024.rows import (
    PRINTED,
    cells_of,
    draw_cells,
    judgement,
    where_measured,
    worlds,
)
from unseam.papers.bhowal2024.rules import (
    PAIRED_ORDER_RULE,
    SETTLED,
    SETTLED_RULE,
    by_seed,
    moved,
    ordered_pairs,
    score_findings,
    unsettled,
)
from unseam.papers.bhowal2024.runs import select, trained
from unseam.papers.bhowal2024.scores import TABLES, draw_settling
from unseam.papers.bhowal2024.setups import NAMES, PRESETS, Settings
from unseam.papers.bhowal2024.signs import relative
from unseam.papers.rolinek2019.cells import CELL_RULE, Published, mean_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE4", "OD", "TABLE6", "with_od"]

OD: Mapping[str, Mapping[str, Published]] = {
    "dSprites": {
        "β-TCVAE": Published(0.9093, 0.02),
        "β-VAE": Published(0.9400, 0.02),
        "VAE": Published(0.9732, 0.02),
    },
    "3DFaces": {
        "β-TCVAE": Published(0.9002, 0.02),
        "β-VAE": Published(0.9494, 0.01),
        "VAE": Published(0.9857, 0.01),
    },
    "3DShapes": {
        "β-TCVAE": Published(0.9543, 0.02),
        "β-VAE": Published(0.9254, 0.01),
        "VAE": Published(0.9864, 0.02),
    },
    "MPI3D": {
        "β-TCVAE": Published(0.9086, 0.014),
        "β-VAE": Published(0.9254, 0.016),
        "VAE": Published(0.9466, 0.01),
    },
}
FORMS = {
    "od_paper": "OD-Score (M_D, as defined)",
    "od_paper_jacobian": "OD-Score (Jacobian, as defined)",
    "od_invariant": "invariant OD-Score (Jacobian, active)",
    "od_invariant_fit": "invariant OD-Score (M_D, active)",
}
PLOTTED = ("od_paper", "od_invariant")
"""Forms that scores are drawn against."""


def with_od(
    members: pd.DataFrame, points: pd.DataFrame, *, compared: Sequence[str] = ("world", "seed")
) -> pd.DataFrame:
    """Models with the OD-Score of §4.4: each distance over its maximum at the point, among models compared.

    ‖U − Û‖ and ‖V − I‖ are equal (see :func:`unseam.geometry.od_distances`), so one of them counts twice.

    Args:
        members: rows of models.
        points: their distances at every point.
        compared: models that agree in these are compared; by default those of one seed, one of each family.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"world": "w", "family": ["a", "b"], "beta": 1.0, "seed": 0})
    >>> spots = rows.assign(point=0, turned=[1.0, 2.0], stretched=[0.0, 0.0])
    >>> spots = spots.assign(jacobian_turned=1.0, jacobian_stretched=[1.0, 4.0])
    >>> with_od(rows, spots)[["od_paper", "od_paper_jacobian"]].round(2).to_numpy().tolist()
    [[0.33, 0.75], [0.67, 1.0]]
    """
    model = ["world", "family", "beta", "seed"]
    scored = points[model].copy()
    for name, prefix in (("od_paper", ""), ("od_paper_jacobian", "jacobian_")):
        turned, stretched = (
            relative(points, f"{prefix}{kind}", compared) for kind in ("turned", "stretched")
        )
        scored[name] = (2 * turned + stretched) / 3
    means = scored.groupby(model, as_index=False)[["od_paper", "od_paper_jacobian"]].mean()
    return members.merge(means, on=model, how="left", validate="one_to_one")


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """The score of every model by the definition, and in the form that needs no other model."""
    tables = trained(settings.setups, place)
    if "members" in tables:
        tables["members"] = with_od(tables["members"], tables["points"])
    return select([tables], "members", "path")


def judge_table(tables: Tables) -> Judgement:
    """Cells and orders of Table 6, and its orders in the invariant form."""
    return judgement(tables, lambda found: _findings(found["members"]), NOTE)


def judge_figure(tables: Tables) -> Judgement:
    """Rank correlation of both scores with the OD-Score, over the models of each data set."""
    return judgement(tables, _correlations, NOTE)


def _findings(members: pd.DataFrame) -> Iterator[Finding]:
    yield from score_findings(
        members, "od_paper", FORMS["od_paper"], OD, larger_is_better=False, compare=by_seed
    )
    yield from _invariant(members)


def _invariant(members: pd.DataFrame) -> Iterator[Finding]:
    """The published orders in the form that does not depend on who is compared."""
    for world, part in worlds(members):
        for low, high in ordered_pairs(OD[PRINTED[world]], larger_is_better=False):
            words = f"{NAMES[world]}: {FORMS['od_invariant']} of {low} less that of {high}"
            yield by_seed(words, part, "od_invariant", low, high)


def _correlations(tables: Tables) -> Iterator[Finding]:
    for world, part in worlds(tables["members"]):
        for name, words, _ in TABLES:
            moves = [move for (where, _), move in moved(tables["path"], name).items() if where == world]
            for form in ("od_paper", "od_invariant", "od_invariant_fit"):
                quantity = f"{NAMES[world]}: rank correlation of {words} and {FORMS[form]}"
                found = judged(quantity, rank_correlation(part, form, name))
                yield unsettled(found, max(moves), SETTLED)


NOTE = (
    "By the definition each distance is divided by its maximum over the three models of one seed at the point, so the "
    "score ranks models among themselves and has no meaning for one alone. All latents count in it, passive ones too, "
    "whose columns are noise. The invariant form is 1 − (det of the columns' correlations)^(1/d) over active latents."
)


@where_measured
def draw_table(tables: Tables) -> Figure:
    """Four forms of the score, models beside published cells where they are comparable, and how the gap settled."""
    shown = [(name, words, OD if name == "od_paper" else None) for name, words in FORMS.items()]
    path = list(worlds(tables["path"]))
    titles = [f"Hadamard gap while training\n{NAMES[world]}" for world, _ in path]
    figure, rest = draw_cells(tables["members"], shown, more=titles)
    for panel, (_, part) in zip(rest, path, strict=True):
        draw_settling(panel, part, "gap")
    return figure


@where_measured
def draw_figure(tables: Tables) -> Figure:
    """The layout of Figure 4, both scores by model, then against two forms of the OD-Score; a column per data set."""
    parts = list(worlds(tables["members"]))
    titles = [f"{words}\n{NAMES[world]}" for _, words, _ in TABLES for world, _ in parts]
    rows = 1 + len(PLOTTED)
    figure, axes = panels(titles * rows, rows=len(TABLES) * rows, width=3.4, height=2.1)
    turn = iter(axes)
    for name, _, published in TABLES:
        for world, part in parts:
            _bars(next(turn), part, name, published[PRINTED[world]])
    for form in PLOTTED:
        for name, _, _ in TABLES:
            for _, part in parts:
                _scatter(next(turn), part, form, name)
    handles = [*axes[-1].get_legend_handles_labels()[0], *axes[0].get_legend_handles_labels()[0]]
    figure.legend(handles=handles, fontsize=7, frameon=False, ncols=4, loc="outside upper center")
    return figure


def _bars(panel: Any, part: pd.DataFrame, name: str, published: Mapping[str, Published]) -> None:
    for place, ((one, own), colour) in enumerate(zip(cells_of(part), COLOURS, strict=False)):
        values = own[name].to_numpy(dtype=float)
        panel.bar(place, values.mean(), 0.6, color=colour, alpha=0.8, yerr=_reach(values), capsize=3)
        label = None if place else "published"
        panel.plot(place, published[one.family].mean, "_", color="black", markersize=14, label=label)
    names = [one.family for one, _ in cells_of(part)]
    panel.set_xticks(range(len(names)), names)


def _scatter(panel: Any, part: pd.DataFrame, form: str, name: str) -> None:
    """Models as dots, and the mean of each family with its 95 % intervals."""
    for (one, own), colour in zip(cells_of(part), COLOURS, strict=False):
        across, along = (own[key].to_numpy(dtype=float) for key in (form, name))
        panel.plot(across, along, "o", color=colour, markersize=3, alpha=0.5)
        panel.errorbar(
            across.mean(),
            along.mean(),
            _reach(along),
            _reach(across),
            fmt="s",
            color=colour,
            label=one.family,
        )
    panel.set_xlabel(FORMS[form], fontsize=8)


def _reach(values: Any) -> float:
    lower, _ = mean_interval(values)
    return 0.0 if lower is None else float(values.mean()) - lower


TABLE6 = Artefact(
    key="bhowal2024.table6",
    title="Table 6: OD-Score of VAE, β-VAE and β-TCVAE",
    claim="Local decoders of β-TCVAE and β-VAE are closer to orthogonal columns than VAE's, by the OD-Score.",
    criterion=f"{CELL_RULE} {PAIRED_ORDER_RULE} VAE must lie above both others, and these in their published order "
    "where their published means differ by more than their spreads together; the same with the invariant form, which "
    "was first asked for neighbours in the published order.",
    presets=PRESETS,
    measure=measure,
    judge=judge_table,
    draw=draw_table,
)
FIGURE4 = Artefact(
    key="bhowal2024.figure4",
    title="Figure 4: MIG and MIG-sup against OD-Score",
    claim="As MIG and MIG-sup increase the OD-Score decreases: orthogonality promotes disentanglement.",
    criterion="The 95 % bootstrap interval of the rank correlation over the models of a data set lies below zero, for "
    f"the score as defined and for its invariant form, of the Jacobian and of M_D. {SETTLED_RULE} The "
    "form of M_D and the last rule were added after the others were seen.",
    presets=PRESETS,
    measure=measure,
    judge=judge_figure,
    draw=draw_figure,
)
