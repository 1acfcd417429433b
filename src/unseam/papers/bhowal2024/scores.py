"""Tables 4 and 5 of bhowal2024: MIG and MIG-sup of the three models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.papers.bhowal2024.rows import cells_of, draw_cells, judgement, where_measured, worlds
from unseam.papers.bhowal2024.rules import SETTLED_RULE, moved, score_findings
from unseam.papers.bhowal2024.runs import select, trained
from unseam.papers.bhowal2024.setups import NAMES, PRESETS, SHAPES, SMOKE, Settings, smoke
from unseam.papers.rolinek2019.cells import CELL_RULE, ORDER_RULE, Published

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["MIG", "MIG_SUP", "TABLE4", "TABLE5", "TABLES", "draw_settling"]

Scores = Mapping[str, Mapping[str, Published]]
MIG: Scores = {
    "dSprites": {
        "β-TCVAE": Published(0.52, 0.1),
        "β-VAE": Published(0.25, 0.1),
        "VAE": Published(0.16, 0.05),
    },
    "3DFaces": {
        "β-TCVAE": Published(0.58, 0.02),
        "β-VAE": Published(0.44, 0.05),
        "VAE": Published(0.19, 0.02),
    },
    "3DShapes": {
        "β-TCVAE": Published(0.40, 0.1),
        "β-VAE": Published(0.46, 0.14),
        "VAE": Published(0.20, 0.08),
    },
    "MPI3D": {"β-TCVAE": Published(0.32, 0.1), "β-VAE": Published(0.24, 0.08), "VAE": Published(0.14, 0.06)},
}
MIG_SUP: Scores = {
    "dSprites": {
        "β-TCVAE": Published(0.52, 0.08),
        "β-VAE": Published(0.17, 0.1),
        "VAE": Published(0.14, 0.02),
    },
    "3DFaces": {
        "β-TCVAE": Published(0.60, 0.08),
        "β-VAE": Published(0.46, 0.04),
        "VAE": Published(0.20, 0.03),
    },
    "3DShapes": {
        "β-TCVAE": Published(0.50, 0.1),
        "β-VAE": Published(0.60, 0.05),
        "VAE": Published(0.14, 0.04),
    },
    "MPI3D": {"β-TCVAE": Published(0.60, 0.15), "β-VAE": Published(0.46, 0.15), "VAE": Published(0.10, 0.06)},
}
TABLES = (("mig", "MIG", MIG), ("mig_sup", "MIG-sup", MIG_SUP))
"""Columns of Tables 4 and 5, their words and published cells."""
RULE = (
    f"{CELL_RULE} {ORDER_RULE} VAE must score below both others, and these in their published order where their "
    f"published means differ by more than their spreads together. {SETTLED_RULE}"
)


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """MIG and MIG-sup of every model, in several normalisations, at the end of training and before."""
    return select([trained(settings.setups, place)], "members", "path")


def judge_mig(tables: Tables) -> Judgement:
    """Cells and orders of Table 4."""
    return judgement(tables, lambda found: _findings(found, "mig", "MIG", MIG), NOTE)


def judge_mig_sup(tables: Tables) -> Judgement:
    """Cells and orders of Table 5."""
    return judgement(tables, lambda found: _findings(found, "mig_sup", "MIG-sup", MIG_SUP), NOTE)


def _findings(tables: Tables, name: str, words: str, published: Scores) -> Iterator[Finding]:
    moving = moved(tables["path"], name)
    return score_findings(tables["members"], name, words, published, larger_is_better=True, moving=moving)


NOTE = (
    "Scores are in the entropy form that the paper cites, of samples of the posteriors, without dSprites' shape and "
    "the faces' identity, as in the released code; those of binned means and all factors are in the table. Twins "
    "stand in the place of dSprites and 3D Shapes: the same grid of factors, other pictures. Epochs, batch size and "
    "number of latents are not published, so that cells test the ballpark and orders the claim."
)


@where_measured
def draw_mig(tables: Tables) -> Figure:
    """MIG, in the entropy form and binned, models beside published cells, and how it settled."""
    return _draw(tables, "mig", "MIG", MIG, ("mig_binned", "MIG, binned"))


@where_measured
def draw_mig_sup(tables: Tables) -> Figure:
    """MIG-sup in the entropy form, and binned by the code's entropy, and how it settled."""
    return _draw(
        tables, "mig_sup", "MIG-sup", MIG_SUP, ("mig_sup_code", "MIG-sup, binned, by the code's entropy")
    )


def _draw(tables: Tables, name: str, words: str, published: Scores, other: tuple[str, str]) -> Figure:
    path = tables["path"]
    titles = [f"{words} while training\n{NAMES[world]}" for world, _ in worlds(path)]
    figure, rest = draw_cells(tables["members"], [(name, words, published), (*other, published)], more=titles)
    for panel, (_, part) in zip(rest, worlds(path), strict=True):
        draw_settling(panel, part, name)
    return figure


def draw_settling(panel: Any, part: pd.DataFrame, name: str) -> None:
    """What was recorded while training: models as thin lines, means of families as thick ones.

    >>> import pandas as pd
    >>> from unseam.drawing import panels
    >>> path = pd.DataFrame({"family": "VAE", "beta": 1.0, "seed": 0, "step": [5, 10], "mig": [0.1, 0.2]})
    >>> draw_settling(panels(["MIG"])[1][0], path, "mig")
    """
    for (one, own), colour in zip(cells_of(part), COLOURS, strict=False):
        for _, model in own.groupby("seed"):
            panel.plot(model["step"], model[name], color=colour, linewidth=0.5, alpha=0.4)
        means = own.groupby("step")[name].mean()
        panel.plot(means.index, means, "o-", color=colour, markersize=3, linewidth=1.5, label=one.family)
    panel.set_xticks(sorted(part["step"].unique()))
    panel.set_xlabel("steps", fontsize=8)
    panel.margins(y=0.25)
    panel.legend(fontsize=7, frameon=False, ncols=3, loc="upper left")


TABLE4 = Artefact(
    key="bhowal2024.table4",
    title="Table 4: MIG of VAE, β-VAE and β-TCVAE",
    claim="β-TCVAE and β-VAE disentangle better than VAE by MIG, on every data set.",
    criterion=RULE,
    presets=PRESETS | {"smoke": Settings((*SMOKE, smoke(SHAPES)))},
    measure=measure,
    judge=judge_mig,
    draw=draw_mig,
)
TABLE5 = Artefact(
    key="bhowal2024.table5",
    title="Table 5: MIG-sup of VAE, β-VAE and β-TCVAE",
    claim="β-TCVAE and β-VAE disentangle better than VAE by MIG-sup, on every data set.",
    criterion=RULE,
    presets=PRESETS,
    measure=measure,
    judge=judge_mig_sup,
    draw=draw_mig_sup,
)
