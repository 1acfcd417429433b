"""The figure of Propositions 1 to 4: what each of their conditions is needed for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unseam.drawing import COLOURS, panels
from unseam.papers.artefact import Outcome

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["draw_propositions"]


def draw_propositions(outcome: Outcome) -> Figure:
    """What distinct singular values, a full covariance and an unbiased decoder are needed for."""
    titles = [
        "Prop. 1: columns that are nearly orthogonal",
        "Props. 2, 3: what notices a rotation",
        "Prop. 4: the bias it leaves out",
    ]
    figure, axes = panels(titles, width=3.1, height=2.6)
    _draw_lengths(axes[0], outcome.tables["lengths"])
    _draw_turns(axes[1], outcome.tables["angles"])
    _draw_biases(axes[2], outcome.tables["biases"])
    return figure


def _draw_lengths(panel: Any, lengths: pd.DataFrame) -> None:
    for colour, (cosine, own) in zip(COLOURS, lengths.groupby("cosine", sort=False), strict=False):
        panel.plot(own["gap"], own["closed form"], color=colour, linewidth=1.2, label=f"cosine {cosine:g}")
        panel.plot(own["gap"][::2], own["dto"][::2], ".", color=colour, markersize=4)
    panel.set(xscale="log", yscale="log")
    panel.set_xlabel("ratio of the columns' lengths − 1", fontsize=8)
    panel.set_ylabel("DtO of V", fontsize=8)
    panel.legend(fontsize=7, frameon=False, loc="lower left")


def _draw_turns(panel: Any, angles: pd.DataFrame) -> None:
    """ELBO below its best over angles, each decoder turned so that its best angle is zero."""
    labels = {"diagonal": "ELBO, diagonal posterior", "full": "ELBO, full posterior", "evidence": "log p(x)"}
    for place, (_, own) in enumerate(angles.groupby("decoder")):
        best = float(own["angle"].iloc[int(own["diagonal"].argmin())])
        # a quarter turn exchanges the latents: angles are known up to 90°
        shift = (own["angle"] - best + 45) % 90 - 45
        order = shift.argsort()
        for kind, colour, style in zip(labels, COLOURS, ("-", "--", ":"), strict=False):
            sign = 1 if kind == "evidence" else -1
            value = sign * own[kind]
            panel.plot(
                shift.iloc[order],
                (value - value.max()).iloc[order],
                style,
                color=colour,
                linewidth=1.0 if kind == "diagonal" else 1.6,
                label=None if place else labels[kind],
            )
    panel.set_xticks(range(-45, 46, 45))
    panel.set_ylim(bottom=1.5 * panel.get_ylim()[0])
    panel.set_xlabel("rotation from the best angle, degrees", fontsize=8)
    panel.set_ylabel("below the best angle, nats", fontsize=8)
    panel.legend(fontsize=7, frameon=False, loc="lower center")


def _draw_biases(panel: Any, biases: pd.DataFrame) -> None:
    for colour, (miss, own) in zip(COLOURS, biases.groupby("miss", sort=False), strict=False):
        panel.plot(own["spread"], own["median"], color=colour)
        panel.fill_between(own["spread"], own["lower"], own["upper"], color=colour, alpha=0.2, linewidth=0)
        words = f"x missed by {miss:g} of its spread"
        panel.annotate(
            words,
            own[["spread", "median"]].iloc[0],
            (2, 3),
            textcoords="offset points",
            fontsize=7,
            color=colour,
        )
    panel.set(xscale="log", yscale="log")
    panel.set_xlabel("σ of the posterior", fontsize=8)
    panel.set_ylabel("|L_rec − L̄_rec − L̂_rec| over L̂_rec", fontsize=8)
