"""Table 6 and Figure 4 of bhowal2024: the orthogonal deviation score, and MIG and MIG-sup against it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024.rows import (
    PRINTED,
    by_row,
    doubt_of,
    draw_cells,
    draw_path,
    score_orders,
    score_rows,
    unconverged,
    where_measured,
)
from unseam.papers.bhowal2024.runs import cells_of, select, train_setups, worlds
from unseam.papers.bhowal2024.scores import PATH, TABLES, printed_cells
from unseam.papers.bhowal2024.setups import FAMILIES, NAMES, PRESETS, Settings
from unseam.papers.claims import Cell, Correlation, Correlations, Orders, Values, mean_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE4", "OD", "TABLE6", "relative", "with_od"]

OD = printed_cells(
    digit=1e-4,
    dsprites=((0.9093, 0.02), (0.9400, 0.02), (0.9732, 0.02)),
    faces=((0.9002, 0.02), (0.9494, 0.01), (0.9857, 0.01)),
    shapes=((0.9543, 0.02), (0.9254, 0.01), (0.9864, 0.02)),
    mpi3d=((0.9086, 0.014), (0.9254, 0.016), (0.9466, 0.01)),
)
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
    >>> rows = pd.DataFrame({"world": "w", "steps": 9, "family": ["a", "b"], "beta": 1.0, "seed": 0})
    >>> spots = rows.assign(point=0, turned=[1.0, 2.0], stretched=[0.0, 0.0])
    >>> spots = spots.assign(jacobian_turned=1.0, jacobian_stretched=[1.0, 4.0])
    >>> with_od(rows, spots)[["od_paper", "od_paper_jacobian"]].round(2).to_numpy().tolist()
    [[0.33, 0.75], [0.67, 1.0]]
    """
    model = ["world", "steps", "family", "beta", "seed"]
    scored = points[model].copy()
    for name, prefix in (("od_paper", ""), ("od_paper_jacobian", "jacobian_")):
        rotated, stretched = (
            relative(points, f"{prefix}{kind}", compared) for kind in ("turned", "stretched")
        )
        scored[name] = (2 * rotated + stretched) / 3
    means = scored.groupby(model, as_index=False)[["od_paper", "od_paper_jacobian"]].mean()
    return members.merge(means, on=model, how="left", validate="one_to_one")


def relative(rows: pd.DataFrame, kind: str, among: Sequence[str]) -> pd.Series[float]:
    """A distance over its maximum at the point among the rows compared; 0 where all are 0 (§4.4).

    >>> import pandas as pd
    >>> relative(pd.DataFrame({"point": [0, 0, 1], "far": [1.0, 4.0, 0.0]}), "far", ()).tolist()
    [0.25, 1.0, 0.0]
    """
    largest = rows.groupby([*among, "point"])[kind].transform("max")
    found: pd.Series[float] = (rows[kind] / largest.where(largest > 0, 1.0)).where(largest > 0, 0.0)
    return found


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """The score of every model by the definition, and in the form that needs no other model."""
    tables = train_setups(settings.setups, place)
    if "members" in tables:
        tables["members"] = with_od(tables["members"], tables["points"])
    return select(tables, members=(*FORMS, "mig", "mig_sup"), path=PATH)


def _correlations(tables: Tables, *, forms: Sequence[str]) -> Iterator[Correlation]:
    """Of both scores and forms of the OD-Score, over models; those of one seed are compared, and drawn together."""
    for world, part in worlds(tables["members"]):
        for name, words, _ in TABLES:
            doubt = doubt_of(unconverged(tables["path"], name), world, FAMILIES)
            for form in forms:
                yield Correlation(
                    f"{NAMES[world]}: ρ of {words} and {FORMS[form]}",
                    part[form],
                    part[name],
                    groups=part["seed"],
                    doubt=doubt,
                )


NOTE = (
    "By the definition each distance is divided by its maximum over the three models of one seed at the point, "
    "so the "
    "score ranks models among themselves and has no meaning for one alone. All latents count in it, collapsed ones "
    "too, whose columns are noise. The invariant form is 1 − (det of the columns' correlations)^(1/d) over active "
    "latents."
)


@where_measured
def plot_table(tables: Tables) -> Figure:
    """Four forms of the score, with published cells of the first, and the Hadamard gap along training."""
    shown = [(name, words, OD if name == "od_paper" else None) for name, words in FORMS.items()]
    path = list(worlds(tables["path"]))
    titles = [f"Hadamard gap along training\n{NAMES[world]}" for world, _ in path]
    figure, rest = draw_cells(tables["members"], shown, more=titles)
    for panel, (_, part) in zip(rest, path, strict=True):
        draw_path(panel, part, "gap")
    return figure


@where_measured
def plot_figure(tables: Tables) -> Figure:
    """The layout of Figure 4, both scores by model, then against two forms of the OD-Score; one column per data set."""
    parts = list(worlds(tables["members"]))
    titles = [f"{words}\n{NAMES[world]}" for _, words, _ in TABLES for world, _ in parts]
    rows = 1 + len(PLOTTED)
    figure, axes = panels(titles * rows, rows=len(TABLES) * rows, width=3.4, height=2.1)
    rest = iter(axes)
    for name, _, published in TABLES:
        for world, part in parts:
            _bars(next(rest), part, name, published[PRINTED[world]])
    for form in PLOTTED:
        for name, _, _ in TABLES:
            for _, part in parts:
                _scatter(next(rest), part, form, name)
    handles = [*axes[-1].get_legend_handles_labels()[0], *axes[0].get_legend_handles_labels()[0]]
    figure.legend(handles=handles, fontsize=7, frameon=False, ncols=4, loc="outside upper center")
    return figure


def _bars(panel: Any, part: pd.DataFrame, name: str, published: Mapping[str, Cell]) -> None:
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
        x, y = (own[key].to_numpy(dtype=float) for key in (form, name))
        panel.plot(x, y, "o", color=colour, markersize=3, alpha=0.5)
        panel.errorbar(x.mean(), y.mean(), _reach(y), _reach(x), fmt="s", color=colour, label=one.family)
    panel.set_xlabel(FORMS[form], fontsize=8)


def _reach(values: Any) -> float:
    return float(values.mean()) - mean_interval(values)[0]


TABLE6 = Artefact(
    key="bhowal2024.table6",
    title="Table 6: OD-Score of VAE, β-VAE and β-TCVAE",
    claims=(
        Values(
            "Table 6: OD-Score of models by data set",
            functools.partial(
                score_rows, name="od_paper", words="OD-Score as defined", published=OD, path="cosine"
            ),
        ),
        *by_row(
            Orders,
            "Table 6: models in the order of their OD-Score",
            functools.partial(
                score_orders, name="od_paper", words="OD-Score as defined", published=OD, path="cosine"
            ),
        ),
        *by_row(
            Orders,
            "Table 6 in the form that does not depend on the models compared",
            functools.partial(
                score_orders, name="od_invariant", words="invariant OD-Score", published=OD, path="cosine"
            ),
            ours=True,
        ),
    ),
    presets=PRESETS,
    measure=measure,
    plot=plot_table,
    note=f"{NOTE} Cells and orders are in doubt where the mean cosine of active columns still moved by more than "
    "0.03.",
)
FIGURE4 = Artefact(
    key="bhowal2024.figure4",
    title="Figure 4: MIG and MIG-sup against OD-Score",
    claims=(
        Correlations(
            "Figure 4: the OD-Score falls as MIG and MIG-sup rise",
            functools.partial(_correlations, forms=("od_paper",)),
        ),
        Correlations(
            "Figure 4 in the form that does not depend on the models compared",
            functools.partial(_correlations, forms=("od_invariant", "od_invariant_fit")),
            ours=True,
        ),
    ),
    presets=PRESETS,
    measure=measure,
    plot=plot_figure,
    note=NOTE,
)
