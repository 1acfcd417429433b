"""The first links in words and charts: who is alive, are the axes orthogonal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from unseam.geometry import cosine_matrix, degenerate_points
from unseam.inspection import Inspection, verdict
from unseam.inspection.verdict import CLEARLY, MANY_DEGENERATE, NEARLY, POLARISED
from unseam.report._panels import Bar, Dot, bars, dots, matrix, ranks
from unseam.report._words import NO_GAP, joined, label, latents, numbers, percent, said, titled
from unseam.report.page import Group, Panel, Section
from unseam.report.study import Study

__all__ = ["alive", "axes"]

MOST = 12  # latents in a chart
POINTS = 48  # marks of a latent in a chart
BASES = 3
LITTLE = 0.1  # nats: bars of latents that all cost less stay short


def alive(studies: Sequence[Study]) -> Section:
    """Who is in use."""
    return Section(
        "Who is alive?",
        (
            "The model squeezes each item into a few numbers, its latents. Training makes every latent pay for the "
            "information that it carries. One that is not worth its price collapses: it becomes noise, and the "
            "decoder learns to ignore it. So the first question is which latents are in use. Theory pictures live "
            "latents as sharply known and collapsed ones as pure noise, the polarised regime, and builds on that.",
        ),
        said=said(studies, [_lives(study) for study in studies]),
        groups=tuple(
            Group(titled(s, studies), (Panel(*_use(s, studies)),))
            for s in studies
            if s.found.active is not None
        ),
        how=(
            "The price is the KL divergence of a latent's posterior from the prior, in nats (1 nat = 1.44 bits), "
            "averaged over the items; a latent is alive above 0.01 nats. Where there is no encoder to ask, it is "
            "alive if its Jacobian column is at least 1% as long as the longest. The polarised regime is Definition 1 "
            "of rolinek2019: the error is that of the KL term when live latents are taken to have no variance to "
            "speak of and collapsed ones to be the prior; the paper calls 3% polarised. Of a posterior with a full "
            "covariance the bars are of each latent alone; together they carry more, for how they vary together counts "
            "too.",
        ),
    )


def _lives(study: Study) -> str:
    found = study.found
    if found.active is None:
        return verdict(found).sentences[0]
    dead = [latent for latent in study.order if latent not in study.live]
    if not study.live:
        return "No latent is alive: whatever they are, the output stays the same."
    verb = "is" if len(study.live) == 1 else "are"
    listed = f"{latents(study.live)}{', the most important first' * (len(study.live) > 1)}"
    fate = f"{latents(dead)} collapsed" if dead else "none collapsed"
    text = (
        f"{len(study.live)} of {found.latent} latents {verb} alive ({listed}); {fate}."
        if found.latent > 1
        else "Its only latent is alive."
    )
    if found.polarised is not None:
        together = "Together they carry" if found.latent > 1 else "It carries"
        text += f" {together} {_carried(found):.2f} nats an item."
    if found.delta_kl is not None and found.polarised is not None:
        mixed = ", though not every latent is one or the other" if bool(found.polarised.mixed.any()) else ""
        text += f" Taking the polarised regime literally misses this KL by {percent(found.delta_kl)}, " + (
            f"close enough to build on{mixed}."
            if found.delta_kl < POLARISED
            else "so theory is an approximation here."
        )
    return text


def _carried(found: Inspection) -> float:
    """Mean KL of the whole posterior: of a full covariance more than the sum over its latents alone."""
    assert found.polarised is not None
    alone, variance = float(found.polarised.kl.sum()), found.variance
    if variance is None or variance.ndim == 2:
        return alone
    diagonal = variance.double().diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return alone + 0.5 * float((diagonal - torch.linalg.slogdet(variance.double()).logabsdet).mean())


def _use(study: Study, studies: Sequence[Study]) -> tuple[str, str]:
    """Bars of the KL of each latent, on one scale for all models, or else of the length of its column."""
    found, order = study.found, study.order[:MOST]
    kl = None if found.polarised is None else found.polarised.kl
    weight = found.column_norms if kl is None else kl
    assert weight is not None
    costs = [float(s.found.polarised.kl.max()) for s in studies if s.found.polarised is not None]
    top = max(*costs, LITTLE) if kl is not None else float(weight.max())
    unit = "nats an item" if kl is not None else "norm of its Jacobian column"
    rows = [
        Bar(label(study, latent), float(weight[latent]), "c0" if latent in study.live else "dead")
        for latent in order
    ]
    caption = "What each latent costs" if kl is not None else "How far each latent moves the output"
    name = ", ".join(f"latent {row.label}: {row.value:.2f}" for row in rows)
    return bars(rows, unit, f"{caption}, in {unit}. {name}.", top=top), f"{caption} (grey: collapsed)"


def axes(studies: Sequence[Study]) -> Section | None:
    """Orthogonality: DtO against chance, cosines, singular vectors and values."""
    known = [
        study for study in studies if study.found.dto_active is not None or study.found.probes is not None
    ]
    if not known:
        return None
    return Section(
        "Are the axes at right angles?",
        (
            "Move one latent a little, and the output changes in some direction. Do so for each latent, and you have "
            "the decoder's axes. The papers' claim is that a diagonal posterior pulls these axes to right angles, "
            "and that this is what lets each latent stand for one thing. The distance to orthogonality (DtO) is 0 "
            "where the axes are the decoder's own principal directions; chance says what it is for axes that know "
            "nothing of each other. Between two axes |cos| is 0 at a right angle and 1 where they agree.",
        ),
        said=tuple((titled(study, studies), _angles(study)) for study in known),
        groups=tuple(
            Group(titled(s, studies), _angle_panels(s)) for s in known if s.found.pullback is not None
        ),
        how=(
            "DtO (rolinek2019 Eq. 29) is the Frobenius distance of V, the right singular vectors of the "
            "Fisher-weighted Jacobian restricted to live latents, from the nearest signed permutation, averaged over "
            "the points. Baselines: uniformly random rotations of as many latents; matrices with entries from U[0, 1], "
            "the random decoders of the paper's Table 2; and, where the decoder can be drawn anew, itself with fresh "
            "weights (over all latents).",
            "|cos| is taken between columns at each point, then averaged. |V| is a permutation matrix, one dark cell "
            "in each row and column, where axes and principal directions agree. Where two singular values differ by "
            "less than 5%, their directions are arbitrary: those points are drawn as rings.",
        ),
        numbers=tuple(_cosine_rows(known, studies)),
    )


def _angles(study: Study) -> str:
    found = study.found
    if found.dto_active is None or found.random_dto is None or study.chance is None:
        return " ".join(verdict(found).sentences[1:])
    word = (
        "nearly orthogonal"
        if study.chance < NEARLY
        else "more orthogonal than chance"
        if study.chance < CLEARLY
        else "no more orthogonal than chance"
    )
    text = (
        f"The axes are {word}: DtO is {found.dto_active:.2f} over live latents, {study.chance:.0%} of the "
        f"{found.random_dto.haar:.2f} that random rotations have ({_others(found)}). Mean |cos| between "
        f"axes is {found.cosine:.2f}, the Hadamard gap {found.hadamard_gap:.2f} nats."
    )
    share = found.degenerate_fraction or 0.0
    if share >= MANY_DEGENERATE:
        text += (
            f" At {share:.0%} of the points two singular values nearly coincide; there directions, and so DtO, are "
            "arbitrary: read |cos| instead."
        )
    elif study.chance >= CLEARLY and found.hadamard_gap is not None and found.hadamard_gap < NO_GAP:
        text += (
            " The two differ because the axes are near right angles, but so alike in length that the decoder's "
            "principal directions lie elsewhere."
        )
    return text


def _others(found: Inspection) -> str:
    chance = found.random_dto
    assert chance is not None
    others = [f"U[0, 1] matrices have {chance.uniform:.2f}"]
    if chance.module is not None:
        others.append(f"this decoder with fresh weights, over all latents, {chance.module:.2f}")
    return joined(others)


def _angle_panels(study: Study) -> tuple[Panel, ...]:
    live = study.live[:MOST]
    names = [label(study, latent) for latent in live]
    cosines = _cosines(study.found, live)
    pairs = ", ".join(
        f"{names[i]} and {names[j]}: {cosines[i, j]:.2f}" for i in range(len(live)) for j in range(i)
    )
    short = [str(latent) for latent in live]
    return (
        Panel(_ruler(study), "DtO, and what chance gives"),
        Panel(
            matrix(cosines, names, short, f"Mean |cos| of live latents. {pairs}."), "Mean |cos| between axes"
        ),
        _spectrum(study),
        Panel(_bases(study), "|V| at three points: latents in rows, singular directions in columns"),
    )


def _ruler(study: Study) -> str:
    found = study.found
    chance = found.random_dto
    assert chance is not None
    rows = {
        "this model": [
            Dot(one.dto_active, "c0", name)
            for one, name in zip(study.inspections, study.members, strict=True)
            if one.dto_active is not None
        ],
        "random rotations": [_baseline(chance.haar, chance.haar_std)],
        "U[0, 1] matrices": [_baseline(chance.uniform, chance.uniform_std)],
    }
    if chance.module is not None:
        rows["fresh weights"] = [_baseline(chance.module, chance.module_std or 0.0)]
    own = study.found.dto_active
    alt = ", ".join(
        f"{name} {row[0].value if name != 'this model' or own is None else own:.2f}"
        for name, row in rows.items()
    )
    return dots(rows, f"Distance to orthogonality: {alt}.", axis="DtO (bars: ± one standard deviation)")


def _baseline(value: float, error: float) -> Dot:
    return Dot(value, "dead", "", value - error, value + error)


def _cosines(found: Inspection, live: Sequence[int]) -> NDArray[np.float64]:
    assert found.pullback is not None
    metric = found.pullback[:, list(live)][:, :, list(live)].double()
    return numbers(cosine_matrix(metric).mean(0).clamp(max=1.0))


def _cosine_rows(known: Sequence[Study], studies: Sequence[Study]) -> list[dict[str, str]]:
    rows = []
    for study in known:
        if study.found.pullback is None:
            continue
        live = study.live[:MOST]
        cosines = _cosines(study.found, live)
        for place, latent in enumerate(live):
            for other in range(place):
                row = {"model": study.name} if len(studies) > 1 else {}
                row |= {
                    "latents": f"{live[other]} and {latent}",
                    "mean |cos|": f"{cosines[place, other]:.3f}",
                }
                rows.append(row)
    return rows


def _spectrum(study: Study) -> Panel:
    values = study.found.singular_values
    assert values is not None
    few = values[torch.linspace(0, len(values) - 1, min(POINTS, len(values))).round().long()]
    leading = few[:, : min(len(study.live), MOST)]
    marked = degenerate_points(leading)
    share = study.found.degenerate_fraction or 0.0
    alt = (
        f"Singular values of the Jacobian at {len(few)} points, mean by rank: "
        + ", ".join(f"{float(value):.3g}" for value in leading.mean(0))
        + f"; at {share:.0%} of all points two of them nearly coincide."
    )
    drawn = ranks(numbers(leading), marked.cpu().numpy(), alt, across="singular value, by rank", along="size")
    return Panel(
        drawn, f"Spectrum at {len(few)} points (rings: two values nearly coincide, {percent(share)} of all)"
    )


def _bases(study: Study) -> str:
    vectors = study.found.right_vectors
    assert vectors is not None
    order = study.order[:MOST]
    parts = []
    for point in torch.linspace(0, len(vectors) - 1, min(BASES, len(vectors))).round().long().tolist():
        shown = vectors[point][list(order), : len(order)].abs()
        alt = (
            f"Absolute right singular vectors at point {point}; the largest in each column are "
            + ", ".join(f"{float(value):.2f}" for value in shown.amax(0))
        )
        rows, columns = [str(latent) for latent in order], [str(k + 1) for k in range(len(order))]
        parts.append(matrix(numbers(shown), rows, columns, f"{alt}.", numbers=False))
    return f'<div class="bases">{"".join(parts)}</div>'
