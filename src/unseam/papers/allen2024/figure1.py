"""Figure 1 of allen2024: how lines through a point map under a linear and an orthogonal non-linear decoder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unseam.drawing import COLOURS, panels
from unseam.geometry import jacobian
from unseam.inputs import Decoder
from unseam.papers.allen2024._decoders import linear, polar, sheared
from unseam.papers.artefact import Artefact, Workplace, presets_of, scaled
from unseam.papers.claims import Bound, Bounds, Identities, Identity
from unseam.papers.draws import plane_rotations
from unseam.papers.plots import Figure, Tables, arrow, blank
from unseam.papers.tables import table_of

__all__ = ["FIGURE1"]

PANELS = ("linear", "orthogonal", "linear, lines along z", "general")
DRAWN = 24
"""Intervals at which curves are stored, for the figure."""


@dataclass(frozen=True)
class Settings:
    """Where the lines pass and how finely they are followed; two latents and two data dimensions, as drawn."""

    lines: int = scaled(3, 5)
    reach: float = 1.4
    nodes: int = scaled(11, 61, 1201)
    angle: float = 35.0
    growth: float = 0.25


def measure(settings: Settings, place: Workplace) -> Tables:
    """Images of the lines, their directions against the left singular vectors, and how they cross."""
    curves, checks, frames = [], [], []
    offset, along = (
        torch.linspace(-settings.reach, settings.reach, count, dtype=torch.float64)
        for count in (settings.lines, settings.nodes)
    )
    first = torch.stack(torch.meshgrid(offset, along, indexing="ij"), -1).flip(-1)
    for name, (decoder, right) in _decoders(settings).items():
        # points z (direction, line, node, 2): line k of direction i passes at offset k along the other one
        lines = torch.stack([first, first.flip(-1)]) @ right.mT
        drawn = lines[:, :, :: max(1, settings.nodes // DRAWN)]
        way, line, _ = torch.cartesian_prod(*(torch.arange(size) for size in drawn.shape[:3])).mT
        points = dict(zip(("z1", "z2"), drawn.flatten(0, 2).mT, strict=True))
        points |= dict(zip(("x1", "x2"), decoder(drawn.flatten(0, 2)).mT, strict=True))
        curves.append(table_of({"decoder": name, "direction": way, "line": line} | points))
        checks.append({"decoder": name} | _checks(lines, right, decoder))
        # singular vectors where the middle lines cross: right ones v, and s u at the image x
        point = torch.zeros(1, 2, dtype=torch.float64)
        left, scale, vectors = torch.linalg.svd(jacobian(decoder, point)[0])
        found = torch.cat([vectors, decoder(point).expand(2, 2), (left * scale).mT], 1).numpy()
        columns = ["v1", "v2", "x1", "x2", "u1", "u2"]
        frames.append(pd.DataFrame(found, columns=columns).assign(decoder=name))
    joined = {"curves": pd.concat(curves).round(3), "bases": pd.concat(frames)}
    return {**joined, "checks": pd.DataFrame(checks)}


def _decoders(settings: Settings) -> dict[str, tuple[Decoder, Tensor]]:
    """Each decoder with the directions (latent, latent) along which lines are drawn, in columns."""
    degrees = torch.tensor([settings.angle, -20.0], dtype=torch.float64)
    (turn, other), identity = plane_rotations(torch.deg2rad(degrees)), torch.eye(2, dtype=torch.float64)
    weights = other @ torch.diag(torch.tensor([1.6, 0.6], dtype=torch.float64)) @ turn.mT
    return {
        PANELS[0]: (linear(weights), turn),
        PANELS[1]: (polar(settings.growth), identity),
        PANELS[2]: (linear(weights), identity),
        PANELS[3]: (sheared(0.7, 0.8), identity),
    }


def _checks(lines: Tensor, right: Tensor, decoder: Decoder) -> dict[str, float]:
    """Degrees between tangents and singular vectors, between crossing curves, and of bending along a curve."""
    slopes = jacobian(decoder, lines.flatten(0, 2)).double()
    tangents = torch.nn.functional.normalize(slopes @ right, dim=-2)
    left = torch.linalg.svd(slopes).U
    # both directions at every point, matched to the closest singular vector
    cosine = (left.mT @ tangents).abs().clamp(max=1)
    straight = torch.maximum(cosine[:, 0, 0] * cosine[:, 1, 1], cosine[:, 0, 1] * cosine[:, 1, 0]).sqrt()
    crossing = (tangents[:, :, 0] * tangents[:, :, 1]).sum(-1).abs()
    own = torch.stack([part[..., place] for place, part in enumerate(tangents.unflatten(0, lines.shape[:3]))])
    bend = (own * own[:, :, :1]).sum(-1).clamp(-1, 1)
    # exact near 0, where the arc cosine loses half of the digits
    off, bent = (torch.atan2((1 - c.square()).clamp(min=0).sqrt(), c) for c in (straight, bend))
    angles = {
        "off the singular vectors": off,
        "off a right angle": crossing.clamp(max=1).asin(),
        "bend": bent,
    }
    return {name: math.degrees(float(angle.max())) for name, angle in angles.items()}


def _zero_cases(tables: Tables) -> Iterator[Identity]:
    for panel, column, said in (
        (PANELS[0], "bend", "images of lines are lines"),
        (PANELS[0], "off the singular vectors", "parallel to the basis U"),
        (PANELS[1], "off the singular vectors", "parallel to the local basis U"),
        (PANELS[1], "off a right angle", "orthogonal where they meet"),
    ):
        words, angle = _angle(tables, panel, column)
        yield Identity(words, f"0: {said}", angle, 1e-5)


def _positive_cases(tables: Tables) -> Iterator[Bound]:
    for panel, column, said, other in (
        (PANELS[1], "bend", "sub-manifolds are curves", PANELS[0]),
        (PANELS[2], "off a right angle", "lines along z, not V", PANELS[1]),
        (PANELS[3], "off a right angle", "a general decoder", PANELS[1]),
    ):
        (words, angle), wrong = _angle(tables, panel, column), {other: [_angle(tables, other, column)[1]]}
        yield Bound(words, f"above 1: {said}", estimate=(angle, angle, angle), least=1.0, n=1, wrong=wrong)


def _angle(tables: Tables, panel: str, column: str) -> tuple[str, float]:
    words = f"{panel}: largest {'bend of a curve' if column == 'bend' else f'angle {column}'}, degrees"
    return words, float(tables["checks"].set_index("decoder")[column][panel])


def plot(tables: Tables) -> Figure:
    """Lines in the latent plane above, their images below, singular bases as arrows."""
    titles = ["Linear f: along V", "Orthogonal f: along z", "Linear f: along z", "General f: along z"]
    figure, axes = panels([f"{title}, Z" for title in titles] + ["X"] * 4, rows=2, width=2.2, height=2.1)
    cells = itertools.product((("z1", "z2", "v"), ("x1", "x2", "u")), PANELS)
    for panel, ((first, second, vector), name) in zip(axes, cells, strict=True):
        own, basis = (tables[table][tables[table]["decoder"] == name] for table in ("curves", "bases"))
        for (_, line), part in own.groupby(["direction", "line"]):
            middle = line == own["line"].max() // 2
            look = {"linewidth": 1.6, "linestyle": "--"} if middle else {"linewidth": 0.6}
            panel.plot(part[first], part[second], color=COLOURS[part["direction"].iloc[0]], **look)
        starts = basis[["x1", "x2"]].to_numpy() if vector == "u" else np.zeros((2, 2))
        for start, way in zip(starts, basis[[f"{vector}1", f"{vector}2"]].to_numpy(), strict=True):
            arrow(panel, start, start + 0.8 * way)
        blank(panel)
    return figure


FIGURE1 = Artefact(
    key="allen2024.figure1",
    title="Figure 1: lines along singular vectors, and along the axes of an orthogonal decoder",
    claims=(
        Identities(
            "Figure 1: a linear decoder maps lines along its right singular vectors to lines along the left ones; one "
            "with an orthogonal Jacobian maps axis-parallel lines to curves along the local left singular vectors, "
            "orthogonal where they meet",
            _zero_cases,
        ),
        Bounds(
            "Figure 1, controls: the curves bend, and lines along other axes or of a general decoder do not meet at "
            "right angles",
            _positive_cases,
            ours=True,
        ),
    ),
    presets=presets_of(Settings),
    measure=measure,
    plot=plot,
)
