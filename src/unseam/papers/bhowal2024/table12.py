"""Tables 1 and 2 of bhowal2024: local decoders with and without a non-linearity, and the stochastic loss they tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Finding, Judgement, Workplace
from unseam.papers.bhowal2024.rows import PRINTED, cells_of, judgement, where_measured, worlds
from unseam.papers.bhowal2024.rules import PAIRED_RULE, paired, unsettled
from unseam.papers.bhowal2024.runs import at_cell, select, trained
from unseam.papers.bhowal2024.setups import NAMES, PRESETS, Settings

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["TABLE1", "TABLE2"]

Errors = Mapping[str, Mapping[str, tuple[float, float]]]
LOCAL: Errors = {
    "dSprites": {"β-TCVAE": (0.9209, 0.8502), "β-VAE": (0.8394, 0.7829), "VAE": (0.4693, 0.4166)},
    "3DFaces": {"β-TCVAE": (0.8679, 0.8088), "β-VAE": (0.8080, 0.7694), "VAE": (0.4956, 0.4236)},
    "3DShapes": {"β-TCVAE": (0.8848, 0.8122), "β-VAE": (0.8244, 0.7944), "VAE": (0.4856, 0.4266)},
    "MPI3D": {"β-TCVAE": (0.9646, 0.8624), "β-VAE": (0.5240, 0.8043), "VAE": (0.5024, 0.4832)},
}
"""Error of the linear local decoder, and with one non-linearity; MPI3D's β-VAE contradicts the claim."""
LOSS: Errors = {
    "dSprites": {"β-TCVAE": (0.4866, 0.4532), "β-VAE": (0.5243, 0.4907), "VAE": (0.6680, 0.6643)},
    "3DFaces": {"β-TCVAE": (0.5690, 0.5498), "β-VAE": (0.5799, 0.5296), "VAE": (0.6039, 0.5887)},
    "3DShapes": {"β-TCVAE": (0.7257, 0.6879), "β-VAE": (0.7215, 0.7010), "VAE": (0.7344, 0.7316)},
    "MPI3D": {"β-TCVAE": (0.7836, 0.7818), "β-VAE": (0.8001, 0.7908), "VAE": (0.8042, 0.8014)},
}
"""Error of the stochastic loss by the Jacobian, and by the non-linear local decoder."""
LABELS = {"jacobian": "Jacobian", "linear": "linear", "nonlinear": "non-linear"}
SETTLED = 0.01
"""Relative change over the last doubling of the steps up to which an error has settled."""
WORDS = {
    "linear": "error, non-linear against linear",
    "total_jacobian": "stochastic loss over all points, non-linear fit against Jacobian",
    "loss_jacobian": "stochastic loss point by point, non-linear fit against Jacobian",
    "loss_linear": "control: stochastic loss point by point, non-linear fit against linear fit",
}


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """Held-out errors of local decoders, and of the stochastic loss that they and the Jacobian predict."""
    return select([trained(settings.setups, place)], "members", "fits")


def judge_local(tables: Tables) -> Judgement:
    """The errors of both local decoders."""
    return judgement(tables, lambda found: _reductions(found, LOCAL, "linear", "nonlinear"), NOTE)


def judge_loss(tables: Tables) -> Judgement:
    """Errors of the stochastic loss by the Jacobian, by a linear and by a non-linear local decoder."""
    return judgement(tables, _losses, LOSS_NOTE)


def _losses(tables: Tables) -> Iterator[Finding]:
    yield from _reductions(tables, LOSS, "total_jacobian", "total_nonlinear")
    yield from _reductions(tables, None, "loss_jacobian", "loss_nonlinear")
    yield from _reductions(tables, None, "loss_linear", "loss_nonlinear")


def _reductions(tables: Tables, published: Errors | None, worse: str, better: str) -> Iterator[Finding]:
    for world, part in worlds(tables["members"]):
        fits = tables["fits"][tables["fits"]["world"] == world]
        for one, own in cells_of(part):
            said = "lower, if the non-linearity is the reason" if worse == "loss_linear" else "lower"
            if published is not None:
                before, after = published[PRINTED[world]][one.family]
                said = f"{100 * (1 - after / before):.1f} % lower ({before} → {after})"
            drift, note = _settling_of(at_cell(fits, one))
            if worse == "linear":
                note += f", least squares {own['exact'].mean():.4g}"
            quantity = f"{NAMES[world]}, {one.family}: {WORDS[worse]}, % lower"
            yield unsettled(paired(quantity, said, own[better], own[worse], note), drift, SETTLED)


def _settling_of(fits: pd.DataFrame) -> tuple[float, str]:
    """The largest relative change of an error over the last doubling of the steps, and words for it."""
    path = fits.groupby("steps")[["linear", "nonlinear"]].mean().sort_index()
    moved = float((path.iloc[-1] / path.iloc[-2] - 1).abs().max())
    return moved, f"errors moved by {100 * moved:.2g} % from {path.index[-2]} to {path.index[-1]} steps"


NOTE = (
    "Errors are held-out squared errors of the local decoder as a share of the stochastic loss E‖d(μ + ε) − d(μ)‖², so "
    "that 1 is the error of predicting no change at all. Both forms have the same noises, start, optimiser, rate and "
    "steps. The paper does not say what its errors are divided by, so differences are judged by their sign and a least "
    "size, not by the published one."
)
LOSS_NOTE = (
    "Errors are absolute errors of the predicted stochastic loss, relative to the sampled one, at the same held-out "
    "noises: of its sum over points, as A.8.2 has it, and point by point, then averaged. A fit sees the whole width "
    "of the posterior where a Jacobian sees its centre, so a linear fit is the control: what it gains over the "
    "Jacobian is not the non-linearity's."
)


@where_measured
def draw_local(tables: Tables) -> Figure:
    """Errors of both local decoders, one line per model, and how they converged."""
    return _draw(tables, ("linear", "nonlinear"), path=True)


@where_measured
def draw_loss(tables: Tables) -> Figure:
    """Errors of the stochastic loss, one line per model."""
    return _draw(tables, ("loss_jacobian", "loss_linear", "loss_nonlinear"), path=False)


def _draw(tables: Tables, names: tuple[str, ...], *, path: bool) -> Figure:
    parts = list(worlds(tables["members"]))
    titles = [NAMES[world] for world, _ in parts]
    titles += [f"{NAMES[world]}: settling" for world, _ in parts] if path else []
    figure, axes = panels(titles, rows=1 + path, width=4.2, height=2.5)
    for panel, (_, part) in zip(axes, parts, strict=False):
        _lines(panel, part, names)
    if path:
        for panel, (_, part) in zip(axes[len(parts) :], worlds(tables["fits"]), strict=True):
            _settling(panel, part)
    axes[0].set_ylabel("relative error, held out", fontsize=8)
    return figure


def _lines(panel: Any, part: pd.DataFrame, names: tuple[str, ...]) -> None:
    """Each model as a line through the errors of its approximations, models side by side."""
    ticks: list[float] = []
    labels: list[str] = []
    for place, ((one, own), colour) in enumerate(zip(cells_of(part), COLOURS, strict=False)):
        across = [place * (len(names) + 1) + turn for turn in range(len(names))]
        for _, row in own.iterrows():
            panel.plot(across, row[list(names)], "o-", color=colour, markersize=3, linewidth=0.7, alpha=0.7)
        ticks += across
        labels += [LABELS[name.removeprefix("loss_")] for name in names]
        panel.annotate(
            one.family,
            (sum(across) / len(across), 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontsize=8,
            color=colour,
        )
    panel.set_xticks(ticks, labels, rotation=40, ha="right")
    panel.margins(y=0.15)


def _settling(panel: Any, part: pd.DataFrame) -> None:
    for (one, own), colour in zip(cells_of(part), COLOURS, strict=False):
        means = own.groupby("steps")[["linear", "nonlinear"]].mean()
        panel.plot(means.index, means["linear"], "o--", color=colour, markersize=3, linewidth=1)
        panel.plot(
            means.index, means["nonlinear"], "o-", color=colour, markersize=3, linewidth=1, label=one.family
        )
    panel.set_xscale("log")
    panel.set_xticks(sorted(set(part["steps"])), [f"{steps:g}" for steps in sorted(set(part["steps"]))])
    panel.minorticks_off()
    panel.set_xlabel("steps of the fit (dashed: linear)", fontsize=8)
    panel.legend(fontsize=7, frameon=False)


TABLE1 = Artefact(
    key="bhowal2024.table1",
    title="Table 1: local decoder, linear against one non-linearity",
    claim="A local decoder with one non-linearity approximates the decoder around a posterior's mean better than a "
    "linear one, for all models and data sets.",
    criterion=f"{PAIRED_RULE} Nothing is reproduced by fits that have not settled, whose error changes by more than "
    "1 % over the last doubling of their steps.",
    presets=PRESETS,
    measure=measure,
    judge=judge_local,
    draw=draw_local,
)
TABLE2 = Artefact(
    key="bhowal2024.table2",
    title="Table 2: stochastic loss, Jacobian against a non-linear local decoder",
    claim="A non-linear local decoder tells the stochastic part of the reconstruction loss better than a Jacobian.",
    criterion=f"{PAIRED_RULE} Fits must have settled as in Table 1. The control asks whether the non-linear fit also "
    "does better than a linear one.",
    presets=PRESETS,
    measure=measure,
    judge=judge_loss,
    draw=draw_loss,
)
