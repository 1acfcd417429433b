"""Tables 4, 5 and 6 and Figure 4 of bhowal2024: MIG, MIG-sup and the orthogonal deviation score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024._rows import (
    Published,
    by_row,
    doubt_of,
    draw_cells,
    draw_path,
    score_orders,
    score_rows,
    unconverged,
    where_measured,
)
from unseam.papers.bhowal2024._runs import cells_of, select, train_setups, worlds
from unseam.papers.bhowal2024._setups import FAMILIES, NAMES, PRESETS, SHAPES, SMOKE, Settings, smoke
from unseam.papers.claims import Cell, Correlation, Correlations, Orders, Values, mean_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["FIGURE4", "MIG", "MIG_SUP", "OD", "TABLE4", "TABLE5", "TABLE6", "TABLES", "relative", "with_od"]


def _cells(*rows: tuple[tuple[float, float], ...], digit: float = 0.01) -> Published:
    """A table of means and SDs; columns are β-TCVAE, β-VAE and VAE, and the number of runs is not stated."""
    return {
        row: {family: Cell(*pair, digit=digit) for family, pair in zip(FAMILIES, pairs, strict=True)}
        for row, pairs in zip(("dSprites", "3DFaces", "3DShapes", "MPI3D"), rows, strict=True)
    }


MIG = _cells(
    ((0.52, 0.1), (0.25, 0.1), (0.16, 0.05)),
    ((0.58, 0.02), (0.44, 0.05), (0.19, 0.02)),
    ((0.40, 0.1), (0.46, 0.14), (0.20, 0.08)),
    ((0.32, 0.1), (0.24, 0.08), (0.14, 0.06)),
)
MIG_SUP = _cells(
    ((0.52, 0.08), (0.17, 0.1), (0.14, 0.02)),
    ((0.60, 0.08), (0.46, 0.04), (0.20, 0.03)),
    ((0.50, 0.1), (0.60, 0.05), (0.14, 0.04)),
    ((0.60, 0.15), (0.46, 0.15), (0.10, 0.06)),
)
OD = _cells(
    ((0.9093, 0.02), (0.9400, 0.02), (0.9732, 0.02)),
    ((0.9002, 0.02), (0.9494, 0.01), (0.9857, 0.01)),
    ((0.9543, 0.02), (0.9254, 0.01), (0.9864, 0.02)),
    ((0.9086, 0.014), (0.9254, 0.016), (0.9466, 0.01)),
    digit=1e-4,
)
TABLES = (("mig", "MIG", MIG), ("mig_sup", "MIG-sup", MIG_SUP))
"""Columns of Tables 4 and 5, their words and published cells."""
OTHER = {
    "mig": ("mig_binned", "MIG, binned"),
    "mig_sup": ("mig_sup_code", "MIG-sup, binned, over the code's entropy"),
}
FORMS = {
    "od_paper": "OD-Score (M_D, as defined)",
    "od_invariant": "invariant OD-Score (Jacobian, active)",
    "od_invariant_fit": "invariant OD-Score (M_D, active)",
}
PATH = ("step", "mig", "mig_sup", "gap", "cosine")
"""Of what is measured along training."""


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """MIG and MIG-sup of every model, in two forms, at the end of training and before."""
    columns = [name for kind, (other, _) in OTHER.items() for name in (kind, other)]
    return select(train_setups(settings.setups, place), members=columns, path=PATH)


def measure_od(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """The OD-Score of every model by the definition, and in the form that needs no other model."""
    tables = train_setups(settings.setups, place)
    if "members" in tables:
        tables["members"] = with_od(tables["members"], tables["points"])
    return select(tables, members=(*FORMS, "mig", "mig_sup"), path=PATH)


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
    >>> with_od(rows, rows.assign(point=0, turned=[1.0, 2.0], stretched=0.0))["od_paper"].round(2).tolist()
    [0.33, 0.67]
    """
    model = ["world", "steps", "family", "beta", "seed"]
    rotated, stretched = (relative(points, kind, compared) for kind in ("turned", "stretched"))
    scored = points.assign(od_paper=(2 * rotated + stretched) / 3)
    means = scored.groupby(model, as_index=False)[["od_paper"]].mean()
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


def _correlations(*forms: str) -> Callable[[Tables], Iterator[Correlation]]:
    """Of both scores and forms of the OD-Score; models of one seed, which are compared, are drawn together."""

    def cases(tables: Tables) -> Iterator[Correlation]:
        for world, part in worlds(tables["members"]):
            for name, words, _ in TABLES:
                doubt = doubt_of(unconverged(tables["path"], name), world, FAMILIES)
                for form in forms:
                    quantity = f"{NAMES[world]}: ρ of {words} and {FORMS[form]}"
                    pair = Correlation(quantity, part[form], part[name], part["seed"], strata=part["seed"])
                    yield pair._replace(doubt=doubt)

    return cases


# Figures


def _plot_scores(
    tables: Tables, shown: Sequence[tuple[str, str, Published | None]], name: str, words: str
) -> Figure:
    """Models beside published cells, and a score along training."""
    path = list(worlds(tables["path"]))
    titles = [f"{words} along training\n{NAMES[world]}" for world, _ in path]
    figure, rest = draw_cells(tables["members"], shown, more=titles)
    for panel, (_, part) in zip(rest, path, strict=True):
        draw_path(panel, part, name)
    return figure


@where_measured
def plot_od(tables: Tables) -> Figure:
    """Three forms of the OD-Score, with published cells of the first, and the Hadamard gap along training."""
    shown = [(name, words, OD if name == "od_paper" else None) for name, words in FORMS.items()]
    return _plot_scores(tables, shown, "gap", "Hadamard gap")


@where_measured
def plot_figure(tables: Tables) -> Figure:
    """MIG and MIG-sup against two forms of the OD-Score; one column per data set."""
    parts = list(worlds(tables["members"]))
    shown = [(form, name, words) for form in list(FORMS)[:2] for name, words, _ in TABLES]
    titles = [f"{words}\n{NAMES[world]}" for _, _, words in shown for world, _ in parts]
    figure, axes = panels(titles, rows=len(shown), width=3.4, height=2.1)
    rest = iter(axes)
    for form, name, _ in shown:
        for _, part in parts:
            _scatter(next(rest), part, form, name)
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, frameon=False, ncols=3, loc="outside upper center")
    return figure


def _scatter(panel: Any, part: pd.DataFrame, form: str, name: str) -> None:
    """Models as dots, and the mean of each family with its 95 % intervals."""
    for (one, own), colour in zip(cells_of(part), COLOURS, strict=False):
        x, y = (own[key].to_numpy(dtype=float) for key in (form, name))
        panel.plot(x, y, "o", color=colour, markersize=3, alpha=0.5)
        reach = [float(values.mean()) - mean_interval(values)[0] for values in (y, x)]
        panel.errorbar(x.mean(), y.mean(), *reach, fmt="s", color=colour, label=one.family)
    panel.set_xlabel(FORMS[form], fontsize=8)


# Artefacts


def _score_table(number: int, name: str, words: str, published: Published, smallest: Settings) -> Artefact:
    @where_measured
    def plot(tables: Tables) -> Figure:
        return _plot_scores(tables, [(name, words, published), (*OTHER[name], published)], name, words)

    return Artefact(
        key=f"bhowal2024.table{number}",
        title=f"Table {number}: {words} of VAE, β-VAE and β-TCVAE",
        claims=(
            Values(f"Table {number}: {words} of models by data set", score_rows(name, words, published)),
            *by_row(
                Orders,
                f"Table {number}: models in the order of their {words}",
                score_orders(name, words, published),
            ),
        ),
        presets=PRESETS | {"smoke": smallest},
        measure=measure,
        plot=plot,
        note="Scores are in the entropy form that the paper cites, of samples of the posteriors, without dSprites' "
        "shape and the faces' identity, as in the released code; those of binned means and all factors are in the "
        "table. Epochs, batch size, number of latents and of runs are not published.",
    )


NOTE = (
    "By the definition each distance is divided by its maximum over the three models of one seed at the point, so the "
    "score ranks models among themselves and has no meaning for one alone. All latents count in it, collapsed ones "
    "too, whose columns are noise. The invariant form is 1 − (det of the columns' correlations)^(1/d) over active "
    "latents."
)
TABLE4 = _score_table(4, *TABLES[0], Settings((*SMOKE, smoke(SHAPES))))
TABLE5 = _score_table(5, *TABLES[1], Settings(SMOKE))
TABLE6 = Artefact(
    key="bhowal2024.table6",
    title="Table 6: OD-Score of VAE, β-VAE and β-TCVAE",
    claims=(
        Values(
            "Table 6: OD-Score of models by data set",
            score_rows("od_paper", "OD-Score as defined", OD, path="cosine"),
        ),
        *by_row(
            Orders,
            "Table 6: models in the order of their OD-Score",
            score_orders("od_paper", "OD-Score as defined", OD, path="cosine"),
        ),
        *by_row(
            Orders,
            "Table 6 in the form that does not depend on the models compared",
            score_orders("od_invariant", "invariant OD-Score", OD, path="cosine"),
            ours=True,
        ),
    ),
    presets=PRESETS,
    measure=measure_od,
    plot=plot_od,
    note=f"{NOTE} Models are in doubt where the mean cosine of active columns still moved by more than 0.03.",
)
FIGURE4 = Artefact(
    key="bhowal2024.figure4",
    title="Figure 4: MIG and MIG-sup against OD-Score",
    claims=(
        Correlations("Figure 4: the OD-Score falls as MIG and MIG-sup rise", _correlations("od_paper")),
        Correlations(
            "Figure 4 in the form that does not depend on the models compared",
            _correlations("od_invariant", "od_invariant_fit"),
            ours=True,
        ),
    ),
    presets=PRESETS,
    measure=measure_od,
    plot=plot_figure,
    note=NOTE,
)
