"""Charts of one model, for the report and for files of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.charts import COLOURS, Bar, Dot, bars, columns, dots, legend, matrix, percent, scatter, standalone
from unseam.geometry import cosine_matrix, degenerate_points
from unseam.inspection import Inspection, latent_name
from unseam.report.matching import SCORES
from unseam.report.page import Panel
from unseam.report.study import Match, Study

__all__ = [
    "MOST",
    "cosine_panel",
    "cosines",
    "coupling_panel",
    "geometry_figures",
    "get_score",
    "information_panel",
    "precision_panel",
    "scores_panel",
    "seeds_panel",
    "spectrum_panel",
    "usage_panel",
]

MOST = 12
"""Latents in a chart, at most."""
POINTS = 48  # marks per latent in a chart
BASES = 3
LITTLE = 0.1  # nats: bars of latents that all cost less stay short


def geometry_figures(found: Inspection) -> dict[str, str]:
    """All charts that can be drawn of one inspection, as SVG files by name.

    >>> import unseam
    >>> sorted(geometry_figures(unseam.inspect(lambda z: z, torch.zeros(4, 2))))
    ['basis-1', 'basis-2', 'basis-3', 'cosine', 'norms', 'spectrum']
    """
    study = Study("", (found,))
    if found.pullback is None:
        return {}
    drawn = {"norms": _norms(study)}
    if study.active:
        drawn |= {"cosine": cosine_panel(study), "spectrum": spectrum_panel(study)}
    drawn |= {f"basis-{k + 1}": Panel(chart, "|V| at a point") for k, chart in enumerate(_bases(study))}
    if found.precision_error is not None:
        drawn["precision"] = Panel(_precisions(study)[0], "Posterior precision against that of Eq. 7")
    return {name: standalone(*panel[:2]) for name, panel in drawn.items()}


def seeds_panel(values: Mapping[str, Sequence[float | None]], title: str) -> str:
    """Dots of every seed, one row per model, as an SVG element that takes the colours of its page.

    Args:
        values: by model, one number per seed; what is not finite is left out.
        title: what the numbers are.

    >>> seeds_panel({"β-VAE": [0.2, 0.3]}, "DtO").startswith('<svg class="chart" role="img" aria-label="DtO')
    True
    """
    rows = {
        name: [
            Dot(value, f"c{place % (len(COLOURS) + 1)}", f"seed {seed}")
            for seed, value in enumerate(numbers)
            if value is not None and np.isfinite(value)
        ]
        for place, (name, numbers) in enumerate(values.items())
    }
    alt = "; ".join(f"{name} {', '.join(f'{dot.value:.2f}' for dot in row)}" for name, row in rows.items())
    return dots(rows, f"{title}: {alt}.", axis="one dot per seed")


def usage_panel(study: Study, studies: Sequence[Study]) -> Panel:
    """Bars of the KL of each latent, on one scale for all models, or else of the norm of its column."""
    found = study.found
    kl = None if found.polarised is None else found.polarised.kl
    weight = found.column_norms if kl is None else kl
    assert weight is not None
    costs = [float(s.found.polarised.kl.max()) for s in studies if s.found.polarised is not None]
    top = max(*costs, LITTLE) if kl is not None else float(weight.max())
    unit = "nats per item" if kl is not None else "norm of its Jacobian column"
    rows = [
        Bar(study.latent_name(latent), float(weight[latent]), "c0" if latent in study.active else "soft")
        for latent in study.order[:MOST]
    ]
    caption = "KL of each latent" if kl is not None else "Effect of each latent on the output"
    values = ", ".join(f"{row.label}: {row.value:.2f}" for row in rows)
    return Panel(
        bars(rows, unit, f"{caption}, in {unit}. {values}.", top=top), f"{caption} (grey: collapsed)"
    )


def cosines(found: Inspection, latents: Sequence[int]) -> NDArray[np.float64]:
    """Mean |cos| over points between the columns of some latents (latent, latent)."""
    assert found.pullback is not None
    chosen = list(latents)
    return _numbers(cosine_matrix(found.pullback[:, chosen][:, :, chosen]).double().mean(0))


def cosine_panel(study: Study) -> Panel:
    """Mean |cos| between the columns of active latents."""
    active = study.active[:MOST]
    names = [study.latent_name(latent) for latent in active]
    values = cosines(study.found, active)
    pairs = ", ".join(
        f"{names[i]} and {names[j]}: {values[i, j]:.2f}" for i in range(len(active)) for j in range(i)
    )
    drawn = matrix(values, names, list(map(latent_name, active)), f"Mean |cos| of active latents. {pairs}.")
    return Panel(drawn, "Mean |cos| between axes")


def spectrum_panel(study: Study) -> Panel:
    """Singular values at some points, one column per rank."""
    values = study.found.singular_values
    assert values is not None
    few = _spread(values)
    leading = few[:, : min(len(study.active), MOST)]
    marked = degenerate_points(leading).tolist()
    share = study.found.degenerate_fraction or 0.0
    marks = {
        str(rank + 1): [
            Dot(value, "ring c1", f"singular value {rank + 1} at a point, nearly equal to another")
            if ring
            else Dot(value, "fill thin c0", f"singular value {rank + 1} at a point")
            for value, ring in zip(leading[:, rank].tolist(), marked, strict=True)
        ]
        for rank in range(leading.shape[1])
    }
    alt = (
        f"Singular values of the Jacobian at {len(few)} points, mean by rank: "
        + ", ".join(f"{float(value):.3g}" for value in leading.mean(0))
        + f"; at {share:.0%} of all points two of them nearly coincide."
    )
    caption = f"Spectrum at {len(few)} points (rings: two values nearly coincide, {percent(share)} of all)"
    return Panel(columns(marks, alt, across="rank", along="singular value"), caption)


def precision_panel(study: Study) -> Panel:
    """Posterior precisions against those that the decoder implies (allen2024 Eq. 7)."""
    drawn, groups = _precisions(study)
    names = [(name, cls) for name, (*_, cls) in groups.items() if cls != "soft"]
    return Panel(drawn + legend(names), "Precision of each latent, one dot per item")


def coupling_panel(study: Study) -> Panel:
    """How much the strength of each latent changes with the others."""
    part = study.factorisation
    assert part is not None
    few = len(part.latents[:MOST])
    values = part.matrix[:few, :few].sqrt().numpy()
    names = [study.latent_name(latent) for latent in part.latents[:MOST]]
    across = list(map(latent_name, part.latents[:MOST]))
    off = [f"{names[i]} by {across[j]}: {values[i, j]:.2f}" for i in range(few) for j in range(few) if i != j]
    alt = (
        f"Change of each latent's strength with each other latent, per standard deviation. {', '.join(off)}."
    )
    return Panel(
        matrix(values, names, across, alt, top=max(1.0, float(values.max()))),
        "Coupling: change of a latent's strength (row) with another (column)",
    )


def information_panel(study: Study, match: Match) -> Panel:
    """Fraction of each factor that each latent explains."""
    order = study.order[:MOST]
    values = match.information[study.shown][list(order)]
    names = [latent_name(j) + ("" if j in study.active else " collapsed") for j in order]
    best = [
        f"{factor} is best explained by {latent_name(order[int(values[:, k].argmax())])} ({values[:, k].max():.2f})"
        for k, factor in enumerate(match.factors)
    ]
    alt = f"Mutual information of latents and factors over the factor's entropy. {'; '.join(best)}."
    drawn = matrix(values, names, list(match.factors), alt)
    return Panel(drawn, "Fraction of a factor that a latent explains")


def scores_panel(known: Sequence[Study], *, named: bool) -> Panel:
    """Scores of models with their intervals."""
    rows: dict[str, list[Dot]] = {}
    for metric, title in SCORES.items():
        marks = [(place, get_score(study, metric)) for place, study in enumerate(known)]
        found = [dot._replace(cls=f"c{place}") for place, dot in marks if dot is not None]
        if found:
            rows[title] = found
    alt = "; ".join(
        f"{title}: " + ", ".join(f"{d.name} {d.value:.2f}".strip() for d in row)
        for title, row in rows.items()
    )
    key = legend([(study.name, f"c{place}") for place, study in enumerate(known)]) if named else ""
    drawn = dots(rows, f"Scores with their intervals. {alt}.", axis="score, with its 95% interval", high=1.0)
    return Panel(key + drawn, "Disentanglement scores")


def get_score(study: Study, metric: str) -> Dot | None:
    """A score of the seed that is shown, with its interval."""
    assert study.match is not None
    table = study.match.scores
    rows = table[(table["metric"] == metric) & (table["member"] == study.shown)]
    if rows.empty or not np.isfinite(rows["score"].iloc[0]):
        return None
    score, low, high = (float(rows[key].iloc[0]) for key in ("score", "lower", "upper"))
    bounds = (low, high) if np.isfinite([low, high]).all() else (None, None)
    return Dot(score, "c0", study.name, *bounds)


def _norms(study: Study) -> Panel:
    """Norm of each latent's Jacobian column at some points."""
    assert study.found.pullback is not None
    norms = _spread(study.found.pullback.diagonal(dim1=-2, dim2=-1)).clamp(min=0).sqrt()
    marks = {
        latent_name(latent): [
            Dot(
                value,
                "fill thin c0" if latent in study.active else "fill thin soft",
                f"{latent_name(latent)} at a point",
            )
            for value in norms[:, latent].tolist()
        ]
        for latent in sorted(study.order[:MOST])
    }
    means = ", ".join(f"{name}: {np.mean([dot.value for dot in row]):.3g}" for name, row in marks.items())
    alt = f"Norm of each latent's Jacobian column at {len(norms)} points, mean by latent: {means}."
    drawn = columns(marks, alt, across="latent (grey: collapsed)", along="norm")
    return Panel(drawn, "Norm of each latent's Jacobian column")


def _bases(study: Study) -> list[str]:
    vectors = study.found.right_vectors
    assert vectors is not None
    order = study.order[:MOST]
    rows, ranks = list(map(latent_name, order)), [str(k + 1) for k in range(len(order))]
    charts = []
    for point in torch.linspace(0, len(vectors) - 1, min(BASES, len(vectors))).round().long().tolist():
        shown = _numbers(vectors[point][list(order), : len(order)].abs())
        largest = ", ".join(f"{value:.2f}" for value in shown.max(0))
        alt = f"Absolute right singular vectors at point {point}; the largest in each column are {largest}."
        charts.append(matrix(shown, rows, ranks, alt, numbers=False))
    return charts


def _precisions(
    study: Study,
) -> tuple[str, dict[str, tuple[NDArray[np.float64], NDArray[np.float64], str]]]:
    found = study.found
    assert found.pullback is not None and found.variance is not None
    expected = 1 + found.pullback.diagonal(dim1=-2, dim2=-1) / found.beta
    precision = (
        1 / found.variance
        if found.variance.ndim == 2
        else torch.linalg.inv(found.variance).diagonal(dim1=-2, dim2=-1)
    )
    groups = {
        study.latent_name(latent): (
            _numbers(_spread(expected)[:, latent]),
            _numbers(_spread(precision)[:, latent]),
            f"c{place}" if latent in study.active and place < len(COLOURS) else "soft",
        )
        for place, latent in enumerate(study.order[:MOST])
    }
    alt = "Posterior precision of each latent at some items against 1 + ‖column‖²/β; the line is where both are equal."
    across, along = "1 + ‖column‖²/β, from the decoder", "precision, from the encoder"
    return scatter(groups, alt, across=across, along=along), groups


def _spread(values: Tensor) -> Tensor:
    """Rows at some points, spread over all."""
    return values[torch.linspace(0, len(values) - 1, min(POINTS, len(values))).round().long()]


def _numbers(values: Tensor) -> NDArray[np.float64]:
    return values.detach().cpu().double().numpy()
