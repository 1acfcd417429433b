"""The last links in words and charts: does the density factorise, do codes match the factors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unseam.report._panels import Dot, dots, legend, matrix
from unseam.report._words import NO_GAP, joined, label, percent, signed, titled
from unseam.report.matching import SCORES
from unseam.report.page import Group, Panel, Section
from unseam.report.study import TELLS, Match, Study

__all__ = ["factorises", "factors"]

MOST = 12
SMALL_GAP = 0.5  # nats
WEAK, STRONG = 0.2, 0.6  # of a latent's strength, for a standard deviation of another


def factorises(studies: Sequence[Study]) -> Section | None:
    """Gap and coupling of the push-forward density."""
    known = [study for study in studies if study.factorisation is not None]
    if not known:
        return None
    return Section(
        "Do the latents act independently?",
        (
            "Random latents, sent through the decoder, make new data. Is what comes out made of independent parts, one "
            "a latent? That takes two things. The axes must be at right angles, or the density is not the product of "
            "its parts: the gap says by how much. And moving one latent must not change how strongly another acts: "
            "the coupling says by how much it does.",
        ),
        said=tuple((titled(study, studies), _independent(study)) for study in known),
        groups=tuple(Group(titled(study, studies), (_couplings(study),)) for study in known),
        how=(
            "For the decoder followed by its likelihood's mean, at posterior means. The gap is log p(x) less the sum "
            "over live latents of log p(z_i) − log‖∂x/∂z_i‖ (allen2024 Eqs. 9 to 13), which is the Hadamard gap of "
            "that map's Jacobian; ± is the standard error over the points. It may differ from the gap above, which "
            "weighs outputs by their Fisher information.",
            "The coupling is the root of E[(∂ log‖∂x/∂z_i‖ / ∂z_j)²] over pairs i ≠ j, with each latent in units of "
            "its own standard deviation over the data. The diagonal of the matrix is no fault: it only says that a "
            "component is not Gaussian. For decoders with kinks, slopes are differences over ± 0.1.",
        ),
    )


def _independent(study: Study) -> str:
    part = study.factorisation
    assert part is not None
    gap = (
        "so the density is practically the product of its parts"
        if part.gap < NO_GAP
        else "a small departure from a product"
        if part.gap < SMALL_GAP
        else "so the density is far from a product"
    )
    digits = 2 if part.gap >= 0.1 else 3
    change = float(np.sqrt(part.coupling))
    word = "hardly" if change < WEAK else "clearly" if change < STRONG else "strongly"
    return (
        f"The gap is {part.gap:.{digits}f} ± {part.gap_error:.{digits}f} nats, {gap}. Latents {word} change each "
        f"other's strength: a step of one standard deviation in one changes how far another reaches by about "
        f"{percent(change)}."
    )


def _couplings(study: Study) -> Panel:
    part = study.factorisation
    assert part is not None
    few = len(part.latents[:MOST])
    values = part.matrix[:few, :few].sqrt().numpy()
    names = [label(study, latent) for latent in part.latents[:MOST]]
    across = [str(latent) for latent in part.latents[:MOST]]
    off = [f"{names[i]} by {across[j]}: {values[i, j]:.2f}" for i in range(few) for j in range(few) if i != j]
    alt = f"How much each latent's strength changes with each other latent, per standard deviation. {', '.join(off)}."
    return Panel(
        matrix(values, names, across, alt, top=max(1.0, float(values.max()))),
        f"Change of each latent's strength (row) with each latent (column), at {part.points} points",
    )


def factors(studies: Sequence[Study]) -> Section | None:
    """Codes against known factors."""
    known = [study for study in studies if study.match is not None]
    if not known:
        return None
    names = _matched(known[0]).factors
    return Section(
        "Are the latents the factors?",
        (
            f"Here it is known what made each item: {joined(names)}. A latent that stands for one of these tells much "
            "of it and nothing of the others. So look for one dark cell in each column, with no second one beside it. "
            "The scores say the same in one number each; 1 is best.",
        ),
        said=tuple((titled(study, studies), _tells(study)) for study in known),
        groups=(Group("", (_informations(known[0]), _scores(known, studies))),)
        if len(studies) == 1
        else (
            *(Group(study.name, (_informations(study),)) for study in known),
            Group("All of them", (_scores(known, studies),)),
        ),
        numbers=tuple(_rows(known, studies)),
        how=(
            "Mutual information of each code, cut into 20 bins, with each factor, over the entropy of the factor, so 1 "
            f"means told completely; from {_matched(known[0]).points} items. Collapsed latents are listed too: their "
            "means may still carry something, but the decoder does not use it.",
            "MIG and SAP ask how far the best latent is ahead of the second for each factor, DCI whether each latent "
            "is about one factor, the FactorVAE score whether a latent keeps still when its factor does, MCC for the "
            "correlation after the best matching. Intervals are 95%, over items.",
        ),
    )


def _matched(study: Study) -> Match:
    assert study.match is not None
    return study.match


def _tells(study: Study) -> str:
    found = _matched(study)
    told = found.information[study.shown]
    live = [latent for latent in study.live if told[latent].max() >= TELLS]
    parts = [
        f"latent {j} tells {told[j].max():.0%} of {found.factors[int(told[j].argmax())]}" for j in live[:6]
    ]
    # a factor's name keeps its capitals
    text = f"L{joined(parts)[1:]}." if parts else "No live latent tells a fair part of any factor."
    left = [
        name for k, name in enumerate(found.factors) if told[list(study.live), k].max(initial=0.0) < TELLS
    ]
    if left and parts:
        text += f" No live latent tells much of {joined(left)}."
    row = _score(study, "mig")
    if row is not None:
        text += f" The gap between the best and the second best latent (MIG) is {signed(row.value)} of 1"
        text += (
            "."
            if row.lower is None or row.upper is None
            else f", [{signed(row.lower)}, {signed(row.upper)}]."
        )
    return text


def _informations(study: Study) -> Panel:
    found = _matched(study)
    order = study.order[:MOST]
    values = found.information[study.shown][list(order)]
    names = [str(latent) if latent in study.live else f"{latent} collapsed" for latent in order]
    best = [
        f"{factor} is told best by latent {order[int(values[:, k].argmax())]} ({values[:, k].max():.2f})"
        for k, factor in enumerate(found.factors)
    ]
    alt = f"Mutual information of latents and factors over the factor's entropy. {'; '.join(best)}."
    return Panel(
        matrix(values, names, list(found.factors), alt),
        "Part of each factor (column) that each latent (row) tells",
    )


def _scores(known: Sequence[Study], studies: Sequence[Study]) -> Panel:
    rows: dict[str, list[Dot]] = {}
    for metric, title in SCORES.items():
        marks = [(place, _score(study, metric)) for place, study in enumerate(known)]
        found = [dot._replace(cls=f"c{place}") for place, dot in marks if dot is not None]
        if found:
            rows[title] = found
    alt = "; ".join(
        f"{title}: " + ", ".join(f"{d.name} {d.value:.2f}".strip() for d in row)
        for title, row in rows.items()
    )
    names = [(study.name, f"c{place}") for place, study in enumerate(known)]
    key = legend(names) if len(studies) > 1 else ""
    drawn = dots(rows, f"Scores with their intervals. {alt}.", axis="score, with its 95% interval", high=1.0)
    return Panel(key + drawn, "Scores of the field")


def _score(study: Study, metric: str) -> Dot | None:
    """A score of the seed that is shown."""
    table = _matched(study).scores
    rows = table[(table["metric"] == metric) & (table["member"] == study.shown)]
    if rows.empty or not np.isfinite(rows["score"].iloc[0]):
        return None
    score, low, high = (float(rows[key].iloc[0]) for key in ("score", "lower", "upper"))
    bounds = (low, high) if np.isfinite([low, high]).all() else (None, None)
    return Dot(score, "c0", study.name, *bounds)


def _rows(known: Sequence[Study], studies: Sequence[Study]) -> list[dict[str, str]]:
    rows = []
    for study in known:
        found = _matched(study)
        for latent in study.order[:MOST]:
            state = "" if latent in study.live else " (collapsed)"
            row = {"model": study.name} if len(studies) > 1 else {}
            row |= {"latent": f"{latent}{state}"}
            shares = found.information[study.shown][latent]
            row |= {name: f"{share:.3f}" for name, share in zip(found.factors, shares, strict=True)}
            rows.append(row)
    return rows
