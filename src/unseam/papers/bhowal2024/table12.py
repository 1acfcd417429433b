"""Tables 1 and 2 of bhowal2024: local decoders with and without a non-linearity, and their stochastic loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Artefact, Workplace
from unseam.papers.bhowal2024._rows import PRINTED, by_row, where_measured
from unseam.papers.bhowal2024._runs import cells_of, select, train_setups, worlds
from unseam.papers.bhowal2024._setups import NAMES, PRESETS, Settings
from unseam.papers.claims import Cell, Order, Orders, Row, Values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from unseam.papers.artefact import Tables

__all__ = ["LOCAL", "LOSS", "TABLE1", "TABLE2"]

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
CONVERGED = 0.01
"""Relative change over the last doubling of the steps up to which a fit counts as converged."""
LOSSES = ("loss_jacobian", "loss_linear", "loss_nonlinear")


def measure(settings: Settings, place: Workplace) -> dict[str, pd.DataFrame]:
    """Held-out errors of local decoders, and of the stochastic loss that they and the Jacobian predict."""
    members = ("linear", "nonlinear", *LOSSES, "total_jacobian", "total_nonlinear")
    return select(
        train_setups(settings.setups, place), members=members, fits=("steps", "linear", "nonlinear")
    )


def _orders(better: str, worse: str, words: str) -> Callable[[Tables], Iterator[Order]]:
    """Errors of the same models by two approximations."""

    def cases(tables: Tables) -> Iterator[Order]:
        for world, part in worlds(tables["members"]):
            doubts = _unconverged(tables["fits"], world)
            for one, own in cells_of(part):
                quantity = f"{NAMES[world]}, {one.family}: {words}"
                doubt = doubts.get(one.family, "")
                yield Order(quantity, own[better], own[worse], paired=True, doubt=doubt)

    return cases


def _gains(better: str, worse: str, words: str, published: Errors) -> Callable[[Tables], Iterator[Row]]:
    """By how many per cent an error is lower, beside the published gain."""

    def cases(tables: Tables) -> Iterator[Row]:
        for world, part in worlds(tables["members"]):
            said = {
                family: Cell(round(100 * (1 - after / before), 1), digit=0.1)
                for family, (before, after) in published[PRINTED[world]].items()
            }
            runs = {one.family: 100 * (1 - own[better] / own[worse]) for one, own in cells_of(part)}
            doubts = _unconverged(tables["fits"], world)
            yield Row(f"{NAMES[world]}: {words}, % lower", said, runs, doubts=doubts)

    return cases


def _unconverged(fits: pd.DataFrame, world: str) -> dict[str, str]:
    """Families whose local fits moved by more than 1 % over the last doubling of their steps."""
    found = {}
    for one, own in cells_of(fits[fits["world"] == world]):
        path = own.groupby("steps")[["linear", "nonlinear"]].mean().sort_index()
        moved = float((path.iloc[-1] / path.iloc[-2] - 1).abs().max())
        if moved > CONVERGED:
            found[one.family] = (
                f"fits have not converged: moved by {moved:.1%} over the last doubling of their steps"
            )
    return found


@where_measured
def plot_local(tables: Tables) -> Figure:
    """Errors of both local decoders, one line per model."""
    return _plot(tables["members"], ("linear", "nonlinear"))


@where_measured
def plot_loss(tables: Tables) -> Figure:
    """Errors of the stochastic loss, one line per model."""
    return _plot(tables["members"], LOSSES)


def _plot(members: pd.DataFrame, names: tuple[str, ...]) -> Figure:
    parts = list(worlds(members))
    figure, axes = panels([NAMES[world] for world, _ in parts], width=4.2, height=2.5)
    for panel, (_, part) in zip(axes, parts, strict=True):
        _lines(panel, part, names)
    axes[0].set_ylabel("relative error, held out", fontsize=8)
    return figure


def _lines(panel: Any, part: pd.DataFrame, names: tuple[str, ...]) -> None:
    """Each model as a line through the errors of its approximations, models side by side."""
    ticks: list[float] = []
    labels: list[str] = []
    for place, ((one, own), colour) in enumerate(zip(cells_of(part), COLOURS, strict=False)):
        across = [place * (len(names) + 1) + offset for offset in range(len(names))]
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


TABLE1 = Artefact(
    key="bhowal2024.table1",
    title="Table 1: local decoder, linear against one non-linearity",
    claims=(
        *by_row(
            Orders,
            "Table 1: one non-linearity lowers the error of the local decoder",
            _orders("nonlinear", "linear", "error, non-linear less linear"),
        ),
        Values(
            "Table 1: by how much one non-linearity lowers the error of the local decoder",
            _gains("nonlinear", "linear", "error of the non-linear local decoder", LOCAL),
        ),
    ),
    presets=PRESETS,
    measure=measure,
    plot=plot_local,
    note="Errors are held-out squared errors of the local decoder as a fraction of the stochastic loss "
    "E‖d(μ + ε) − d(μ)‖², so that predicting no change has an error of 1. Both forms have the same noises, start, "
    "optimiser, rate and steps. The paper does not say what its errors are divided by; relative gains do not depend on "
    "it.",
)
TABLE2 = Artefact(
    key="bhowal2024.table2",
    title="Table 2: stochastic loss, Jacobian against a non-linear local decoder",
    claims=(
        *by_row(
            Orders,
            "Table 2: a non-linear local decoder predicts the sum of the stochastic loss better than the Jacobian",
            _orders("total_nonlinear", "total_jacobian", "error of the sum, non-linear fit less Jacobian"),
        ),
        *by_row(
            Orders,
            "Table 2: a non-linear local decoder predicts the stochastic loss of each point better than the Jacobian",
            _orders("loss_nonlinear", "loss_jacobian", "error per point, non-linear fit less Jacobian"),
        ),
        Values(
            "Table 2: by how much a non-linear local decoder predicts the stochastic loss better",
            _gains("total_nonlinear", "total_jacobian", "error of the sum", LOSS),
        ),
        *by_row(
            Orders,
            "Control of Table 2: the non-linear fit also predicts the stochastic loss better than a linear fit",
            _orders("loss_nonlinear", "loss_linear", "error per point, non-linear less linear fit"),
            ours=True,
        ),
    ),
    presets=PRESETS,
    measure=measure,
    plot=plot_loss,
    note="Errors are absolute errors of the predicted stochastic loss, relative to the sampled one, at the same "
    "held-out noises: of its sum over points, as in A.8.2, and per point, then averaged. A fit uses the whole width of "
    "the posterior where a Jacobian uses its centre, so a linear fit is the control: its gain over the Jacobian is not "
    "due to a non-linearity.",
)
