"""The worked example of rolinek2019 §4: what a budget of precision buys for a linear decoder and its rotations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.geometry import stochastic_minimum
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Identities, Identity
from unseam.papers.draws import Seeded, largest_cosine, normal, plane_rotations, uniform
from unseam.papers.plots import Figure, Tables, finish, lines
from unseam.papers.rolinek2019._descent import Descent, descend
from unseam.papers.tables import table_of
from unseam.theory import precision_optimum

__all__ = ["WORKED_EXAMPLE"]

FIRST = torch.tensor([[4.0, 1.0], [-3.0, 1.0], [5.0, -1.0]], dtype=torch.float64)
"""M1 (Eq. 24)."""
ANGLES = {"M1": 0.0, "M2": 45.0}
"""Rotation of the latents in degrees: M2 = M1 R_45ᵀ."""
PRINTED, MEANT = "−Σ log σ² = C", "−Σ log σ = C"
READINGS = {MEANT: 1.0, PRINTED: 0.5}
"""The two readings of the constraint, and how much of C is spent on −Σ log σ."""
RATIO = 3 / 50
"""σx²/σy² at M1's minimum (Eq. 25)."""
# Relative distance from the closed form up to which a numerical minimum is the same number.
SAME = 1e-9


@dataclass(frozen=True)
class Settings(Seeded):
    """Budgets C, random starts of each minimisation, and angles of the figure."""

    budgets: tuple[float, ...] = scaled((0.0, 1.0, 2.0), (0.0, 0.5, 1.0, 2.0, 3.0, 4.0))
    starts: int = scaled(5, 100, 1000)
    spread: float = 2.0
    """Standard deviation of log σ at the start."""
    angles: int = scaled(9, 61, 181)
    iterations: int = scaled(80, 200)


def measure(settings: Settings, place: Workplace) -> Tables:
    """Minimise over σ for both matrices, both readings and every C; at every angle; and over the angle too."""
    random = settings.generator()
    cases = [
        {"matrix": name, "reading": reading, "budget": budget, "angle": angle, "spent": share * budget}
        for name, angle in ANGLES.items()
        for reading, share in READINGS.items()
        for budget in settings.budgets
    ]
    minima = _over_variances(pd.DataFrame(cases), settings, random, place)
    degrees = torch.linspace(-30, 150, settings.angles, dtype=torch.float64)
    angles = _over_variances(pd.DataFrame({"angle": degrees, "spent": 0.0}), settings, random, place)
    rotated = _over_rotations(pd.DataFrame({"budget": settings.budgets}), settings, random, place)
    return {"minima": minima, "exponents": _exponents(minima), "angles": angles, "rotated": rotated}


def rotate_latents(degrees: Tensor) -> Tensor:
    """M1 R_θᵀ (..., 3, 2): M1 after a rotation of the latents by θ."""
    rotation = plane_rotations(torch.deg2rad(degrees))
    return FIRST.to(rotation) @ rotation.mT


def expected(matrix: Tensor, log_deviation: Tensor) -> Tensor:
    """E‖Mε‖² (...) = Σ_j ‖c_j‖² σ_j² for M (..., data, latent) and log σ (..., latent)."""
    return (matrix.square().sum(-2) * (2 * log_deviation).exp()).sum(-1)


def within(free: Tensor, budget: Tensor) -> Tensor:
    """Log σ (..., latent) shifted alike until −Σ log σ is the budget (...)."""
    return free - (free.sum(-1) + budget)[..., None] / free.shape[-1]


def _over_variances(
    cases: pd.DataFrame, settings: Settings, random: torch.Generator, place: Workplace
) -> pd.DataFrame:
    """Problem (22) at each case's angle, with −Σ log σ = spent: best and worst of its starts, and the closed form."""
    angle, spent = (torch.tensor(cases[name].to_numpy(), device=place.device) for name in ("angle", "spent"))
    matrix = rotate_latents(angle)
    many, budget = matrix.repeat_interleave(settings.starts, 0), spent.repeat_interleave(settings.starts)
    start = settings.spread * normal(len(many), 2, generator=random).to(place.device)
    done = descend(lambda free: expected(many, within(free, budget)), start, iterations=settings.iterations)
    log_deviation = within(done.place, budget)
    ratio = (2 * (log_deviation[:, 0] - log_deviation[:, 1])).exp().view(len(cases), -1)
    exact = [
        float(stochastic_minimum(own.mT @ own, float(budget), reading="deviation").loss)
        for own, budget in zip(matrix, spent, strict=True)
    ]
    found = _ends(done, exact) | {
        "ratio from": ratio.amin(1),
        "ratio to": ratio.amax(1),
        "distance from 3/50": (ratio - RATIO).abs().amax(1),
    }
    return cases.join(table_of(found))


def _over_rotations(
    cases: pd.DataFrame, settings: Settings, random: torch.Generator, place: Workplace
) -> pd.DataFrame:
    """Problem (22) over the angle as well (Eq. 27), with −Σ log σ = budget."""
    budget = torch.tensor(cases["budget"].to_numpy(), device=place.device).repeat_interleave(settings.starts)
    angle = 2 * math.pi * uniform(len(budget), 1, generator=random)
    free = settings.spread * normal(len(budget), 2, generator=random)

    def matrix(at: Tensor) -> Tensor:
        return rotate_latents(torch.rad2deg(at[:, 0]))

    done = descend(
        lambda at: expected(matrix(at), within(at[:, 1:], budget)),
        torch.cat([angle, free], 1).to(place.device),
        iterations=settings.iterations,
    )
    # −Σ log σ² is twice −Σ log σ
    exact = [math.exp(precision_optimum(FIRST[None], 2 * one).loss) for one in cases["budget"]]
    cosine = largest_cosine(matrix(done.place)).view(len(cases), -1).amax(1)
    return cases.join(table_of(_ends(done, exact) | {"cosine": cosine}))


def _ends(done: Descent, exact: list[float]) -> dict[str, Tensor]:
    """Closed form of each case, best and worst of its starts, and the largest relative distance between them."""
    values = done.value.view(len(exact), -1)
    form = values.new_tensor(exact)
    return {
        "closed form": form,
        "least": values.amin(1),
        "most": values.amax(1),
        "relative error": (values / form[:, None] - 1).abs().amax(1),
    }


def _exponents(minima: pd.DataFrame) -> pd.DataFrame:
    """Slope in C of the logarithm of each matrix's minimum, under both readings."""
    rows = [
        (*kind, slope, abs(slope + 1))
        for kind, own in minima.groupby(["matrix", "reading"], sort=False)
        for slope in np.polyfit(own["budget"], np.log(own["least"]), 1)[:1]
    ]
    return pd.DataFrame(rows, columns=["matrix", "reading", "exponent", "distance from −1"])


def _multiple(own: pd.DataFrame) -> float:
    """A minimum as a multiple of e^-C."""
    return float((own["least"] * own["budget"].map(math.exp)).mean())


def _minimum_cases(tables: Tables) -> Iterator[Identity]:
    minima = tables["minima"][tables["minima"]["reading"] == MEANT]
    for name, words, printed in (("M1", "Eq. 25: M1", 24.5), ("M2", "Eq. 26: M1 rotated by 45°", 52.4)):
        own = minima[minima["matrix"] == name]
        quantity, error = f"{words}, least loss times e^C", float(own["relative error"].max())
        note = f"every start and C within a relative {error:.1g} of the closed form"
        yield Identity(quantity, f"{printed}", _multiple(own), 0.05, printed, len(own), note=note)
    first = minima[minima["matrix"] == "M1"]
    yield Identity("Eq. 25: σx²/σy² there", "3/50", float(first["ratio to"].mean()), 1e-6, 0.06, len(first))


def _closed_cases(tables: Tables) -> Iterator[Identity]:
    for name, words in (("minima", "over σ"), ("rotated", "over σ and the rotation")):
        quantity = f"least loss {words}: largest relative distance from the closed form"
        yield Identity(quantity, "0", float(tables[name]["relative error"].max()), SAME)


def _rotation_cases(tables: Tables) -> Iterator[Identity]:
    rotated = tables["rotated"]
    words = "Eq. 27: least loss over σ and the rotation, times e^C"
    yield Identity(words, "below 24.5", _multiple(rotated), 1e-4, 2 * math.sqrt(134))
    words, cosine = "Eq. 28: largest cosine between the columns there", float(rotated["cosine"].max())
    yield Identity(words, "0", cosine, 1e-6, note="M1's own: 0.33")


def _exponent_cases(tables: Tables, reading: str) -> Iterator[Identity]:
    own = tables["exponents"][tables["exponents"]["reading"] == reading]
    words = f"Eqs. 25, 26: exponent of the minima in C, if {reading}"
    note = "it fixes σxσy = e^(-C/2)" if reading == PRINTED else ""
    yield Identity(words, "−1", float(own["exponent"].iloc[0]), 1e-6, -1.0, note=note)


def plot(tables: Tables) -> Figure:
    """The least objective against the rotation, against C under both readings, and what lies around it in σ."""
    minima, angles, rotated = (tables[name] for name in ("minima", "angles", "rotated"))
    titles = ["least objective against the rotation", "against the shares of precision", "against C"]
    figure, axes = panels(titles, width=3.1, height=2.6)
    _draw_angles(axes[0], angles, rotated)
    _draw_shares(axes[1], minima)
    for reading, style in {MEANT: "-", PRINTED: "--"}.items():
        own, form = minima[minima["reading"] == reading], dict[str, Any](by="matrix", colours=COLOURS[1:])
        lines(axes[2], own, "budget", "closed form", style=style, label=f"{{}}, {reading}", **form)
        lines(axes[2], own, "budget", "most", style=".", label="", markersize=5, **form)
    finish(axes[2], "C", "least E‖Mε‖²", yscale="log", legend="best")
    return figure


def _draw_angles(panel: Any, angles: pd.DataFrame, rotated: pd.DataFrame) -> None:
    panel.plot(angles["angle"], angles["closed form"], color="0.6", linewidth=1.2)
    panel.plot(angles["angle"], angles["most"], ".", color=COLOURS[0], markersize=3)
    lengths = FIRST.square().sum(0)
    tilt = math.degrees(math.atan2(2 * float(FIRST.prod(1).sum()), float(lengths[0] - lengths[1])) / 2)
    best = _multiple(rotated)
    marks = [
        ("M1: 24.5", 0.0, 24.5, (-4, -12), "right"),
        ("M2: 52.4", 45.0, 52.4, (-8, 4), "right"),
        (f"orthogonal columns: {best:.1f}", -tilt, best, (4, -12), "left"),
    ]
    for colour, (words, angle, value, offset, side) in zip(COLOURS[1:], marks, strict=False):
        panel.plot(angle, value, "o", color=colour, markersize=5)
        look = {"textcoords": "offset points", "fontsize": 8, "color": colour, "ha": side}
        panel.annotate(words, (angle, value), offset, **look)
    panel.set_xticks(range(-45, 151, 45))
    x, y = "angle of the latents' rotation, degrees", "least E‖Mε‖², times e^C"
    finish(panel, x, y, xlim=(-38, 155), ylim=(18, 57))


def _draw_shares(panel: Any, minima: pd.DataFrame) -> None:
    """E‖Mε‖² at C = 0 as precision moves from one latent to the other."""
    share = torch.linspace(-5, 5, 101, dtype=torch.float64)
    log_deviation = torch.stack([share / 4, -share / 4], -1)
    start = minima[(minima["reading"] == MEANT) & (minima["budget"] == minima["budget"].min())]
    for colour, (name, angle) in zip(COLOURS[1:], ANGLES.items(), strict=False):
        matrix = rotate_latents(torch.tensor(angle, dtype=torch.float64))
        panel.plot(share.exp(), expected(matrix, log_deviation), color=colour, label=name)
        own = start[start["matrix"] == name].iloc[0]
        panel.plot(own["ratio to"], own["least"] * math.exp(own["budget"]), "o", color=colour, markersize=5)
    panel.axvline(RATIO, color="0.6", linewidth=0.8, linestyle=":")
    panel.annotate("3/50", (RATIO, 300), (4, 0), textcoords="offset points", fontsize=8)
    panel.set(xscale="log", yscale="log")
    panel.set_yticks([25, 50, 100, 200], ["25", "50", "100", "200"])
    panel.minorticks_off()
    finish(panel, "σx²/σy²", "E‖Mε‖², times e^C", legend="lower right")


WORKED_EXAMPLE = Artefact(
    key="rolinek2019.worked_example",
    title="§4: a linear decoder, and the same with its latents rotated",
    claims=(
        Identities(
            "§4: the decoder M1 has the least stochastic loss 24.5 e^-C at σx²/σy² = 3/50, and 52.4 e^-C after a "
            "rotation of the latents by 45° (Eqs. 25, 26)",
            _minimum_cases,
        ),
        Identities(
            "§4.2: the best rotation has a lower loss, with orthogonal columns (Eqs. 27, 28)", _rotation_cases
        ),
        Identities(
            "Eqs. 25 and 26 decrease as e^-C under the printed constraint (23)",
            partial(_exponent_cases, reading=PRINTED),
        ),
        Identities(
            "Eqs. 25 and 26 decrease as e^-C under −Σ log σ = C",
            partial(_exponent_cases, reading=MEANT),
            ours=True,
        ),
        Identities("The minima are those of the closed form", _closed_cases, ours=True),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
)
