"""Eqs. 9 to 13, Theorems 1 and 2 of allen2024: where the push-forward density factorises, and where it does not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.independence import coupling, log_density
from unseam.inputs import Decoder
from unseam.papers.allen2024._decoders import (
    arc_coordinates,
    arc_independence,
    general,
    linear,
    polar,
    separable,
)
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Identities, Identity
from unseam.papers.draws import Seeded, normal, orthonormal, uniform
from unseam.papers.plots import Figure, Tables, finish
from unseam.papers.tables import of_tables, table_of

__all__ = ["PUSH_FORWARD"]

KINDS = ("linear, axes V", "linear, axes z", "orthogonal, separable", "orthogonal, coupled", "general")
ZERO, LEVEL = 1e-9, 0.01
FEW = 0.1
"""Share of decoders that may be rejected: as many as are here cannot show that it is the level itself."""


@dataclass(frozen=True)
class Settings(Seeded):
    """Random decoders of each kind, and the points at which each is measured."""

    decoders: int = scaled(2, 20, 50)
    latent: int = 2
    data: int = 6
    points: int = scaled(100, 1000)
    tested: int = scaled(200, 2000, 4000)
    permutations: int = scaled(99, 199)
    shown: int = 150


def measure(settings: Settings, place: Workplace) -> Tables:
    """Hadamard gap, coupling, and dependence of arc lengths of every decoder, in double precision."""
    random = settings.generator()
    rows: list[dict[str, Any]] = []
    arcs: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    for number in range(settings.decoders):
        for kind, (decoder, basis, latent) in _cases(settings, random).items():
            z = normal(settings.tested, latent, generator=random).to(place.device)
            arcs[kind].append(arc_coordinates(decoder, z, basis=basis))
            gap = log_density(decoder, z[: settings.points], basis=basis).gap
            coupled = coupling(decoder, z[: settings.points], basis=basis).off_diagonal
            gaps = {"gap": float(gap.mean()), "largest gap": float(gap.abs().max())}
            rows.append({"kind": kind, "decoder": number} | gaps | {"coupling": float(coupled)})
    tests, shown = [], []
    for kind, own in arcs.items():
        test = arc_independence(torch.stack(own), settings)
        columns = {"p-value": test.p_value, "distance correlation": test.pairwise.amax((-2, -1))}
        tests.append(table_of({"kind": kind, "decoder": range(len(own))} | columns))
        first, second = own[0][: settings.shown, :2].mT
        shown.append(table_of({"kind": kind, "first": first, "second": second}))
    table = pd.DataFrame(rows).merge(pd.concat(tests), on=["kind", "decoder"])
    return {"decoders": table, "arcs": pd.concat(shown, ignore_index=True).round(3)}


def _cases(settings: Settings, random: torch.Generator) -> dict[str, tuple[Decoder, Tensor | None, int]]:
    """Decoders, the basis (latent, latent) in which each is looked at, none for the axes, and their latents."""
    latent, data = settings.latent, settings.data
    weights = normal(data, latent, generator=random)
    right = torch.linalg.svd(weights, full_matrices=False).Vh.mT
    frame = orthonormal(max(data, 2 * latent), 2 * latent, generator=random)
    bends = 0.5 + uniform(2, latent, generator=random)
    growth = 0.25 + 0.5 * float(torch.rand((), generator=random))
    inner, outer = (normal(*shape, generator=random) for shape in ((data - latent, latent), (data, data)))
    return {
        KINDS[0]: (linear(weights), right, latent),
        KINDS[1]: (linear(weights), None, latent),
        KINDS[2]: (separable(frame, bends), None, latent),
        KINDS[3]: (polar(growth), None, 2),
        KINDS[4]: (general(2 * inner, outer), None, latent),
    }


def _parts(tables: Tables, *kinds: str) -> Iterator[tuple[str, pd.DataFrame]]:
    table = tables["decoders"]
    for kind in kinds:
        yield kind, table[table["kind"] == kind]


@of_tables
def _density_cases(tables: Tables, *kinds: str) -> Iterator[Identity]:
    for kind, own in _parts(tables, *kinds):
        words = f"{kind}: largest gap between log-density and sum of log-factors, nats"
        note = f"coupling {own['coupling'].mean():.3g} on average"
        yield Identity(words, "0", float(own["largest gap"].max()), ZERO, n=len(own), note=note)


@of_tables
def _share_cases(tables: Tables, *kinds: str, dependent: bool = False) -> Iterator[Bound]:
    """Rejections of independent components, with general decoders, or where these are meant linear ones, as wrong."""
    said = f"at least {1 - FEW:g}: nearly all" if dependent else f"at most {FEW:g}: few"
    least, most = (1 - FEW, math.inf) if dependent else (-math.inf, FEW)
    ((name, other),) = _parts(tables, KINDS[0 if dependent else 4])
    wrong = {name: other["p-value"] <= LEVEL}
    for kind, own in _parts(tables, *kinds):
        words = f"{kind}: share of decoders whose components are found dependent at level {LEVEL:g}"
        share = (int((own["p-value"] <= LEVEL).sum()), len(own))
        yield Bound(words, said, (), least, most, share=share, wrong=wrong)


def _positive_cases(tables: Tables) -> Iterator[Bound]:
    ((name, other),) = _parts(tables, KINDS[0])
    for kind, own in _parts(tables, KINDS[1], KINDS[4]):
        words = f"{kind}: gap between log-density and sum of log-factors, median over decoders, nats"
        yield Bound(words, "above 0", own["largest gap"], least=ZERO, wrong={name: other["largest gap"]})


def plot(tables: Tables) -> Figure:
    """Arc lengths of the two components at random points, for one decoder of each kind."""
    table, arcs = tables["decoders"], tables["arcs"]
    figure, axes = panels(list(KINDS), width=2.1, height=2.35)
    for panel, kind in zip(axes, KINDS, strict=True):
        own, points = table[table["kind"] == kind], arcs[arcs["kind"] == kind]
        factorises = bool((own["p-value"] > LEVEL).mean() > 0.5) and own["largest gap"].max() <= ZERO
        colour = COLOURS[0 if factorises else 1]
        panel.plot(points["first"], points["second"], ".", markersize=2, color=colour)
        gap, coupled, correlation = own[["gap", "coupling", "distance correlation"]].mean()
        short = ["0" if abs(value) < ZERO else f"{value:.2f}" for value in (gap, coupled)]
        finish(panel, f"gap {short[0]}, coupling {short[1]}\ndistance correlation {correlation:.2f}")
        panel.set(xticks=[], yticks=[])
    finish(axes[0], y="arc length, second component")
    return figure


PUSH_FORWARD = Artefact(
    key="allen2024.push_forward",
    title="Where the push-forward density factorises: linear, orthogonal and general decoders",
    claims=(
        Identities(
            "Theorems 1 and 2: the factors multiply to the density where the Jacobian has orthogonal columns",
            _density_cases(KINDS[0], KINDS[2], KINDS[3]),
        ),
        Bounds("Theorem 1: components of a linear decoder are independent", _share_cases(KINDS[0])),
        Bounds(
            "Theorem 2: components are independent wherever the Jacobian has orthogonal columns",
            _share_cases(KINDS[2], KINDS[3]),
        ),
        Bounds(
            "§3.2.3: for other axes and general decoders the factors do not multiply to the density",
            _positive_cases,
            statistic="median",
        ),
        Bounds("§3.2.3: general decoders have dependent components", _share_cases(KINDS[4], dependent=True)),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
    note="Components are measured as arc lengths along the sub-manifolds through each point, of which the factors of "
    "Eq. 13 are densities. Orthogonality makes the factors multiply to the density; they belong to independent "
    "components only if no norm ‖∂x/∂z_i‖ depends on another latent, which orthogonality alone does not give.",
)
