"""The chain as a story: all sections of a report, from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from unseam.advice import Advice
from unseam.charts import Dot, columns, decimals, percent, significant
from unseam.geometry.gaussians import gaussians, kl
from unseam.inspection import Inspection
from unseam.inspection.todo import todo
from unseam.inspection.verdict import (
    describe_activity,
    describe_agreement,
    describe_dto,
    describe_orthogonality,
    describe_probes,
    describe_regime,
    describe_variances,
)
from unseam.inspection.words import join_words
from unseam.report._panels import (
    MOST,
    basis_panel,
    cosine_panel,
    cosines,
    coupling_panel,
    dto_panel,
    get_score,
    information_panel,
    precision_panel,
    scores_panel,
    spectrum_panel,
    usage_panel,
)
from unseam.report._pictures import directions, reconstructions, traversals
from unseam.report.matching import SCORES
from unseam.report.page import Group, Panel, Section
from unseam.report.study import EXPLAINS, Match, Study

__all__ = ["sections"]

EXPLAINED = 3  # models, at most, beside which there is room for explanations
PRODUCT, SMALL_GAP = 0.05, 0.5  # nats of density gap
WEAK, STRONG = 0.2, 0.6  # of a latent's strength, per standard deviation of another
ROUNDING = 1e-9
UNUSED = 0.1  # of the longest column: what the decoder hardly uses
MEANINGS = {
    "mig": "lead of the best latent over the second, per factor",
    "dci": "each latent about one factor",
    "sap": "lead of the best latent as a predictor",
    "factor_vae_score": "a latent constant whenever its factor is",
    "mcc": "correlation of latents with factors",
}

Named = tuple[tuple[str, str], ...]


def sections(studies: Sequence[Study]) -> list[Section]:
    """The parts of a report, in order; those that no model has are left out.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> [part.title for part in sections([Study("mine", (found,))])]
    ['At a glance', 'Which latents are active?', 'Are the axes orthogonal?', 'What to change']
    """
    if not studies:
        raise ValueError("studies must hold at least one model, got none")
    parts = (
        _overview(studies),
        reconstructions(studies),
        _activity(studies),
        _agreement(studies),
        _orthogonality(studies),
        _independence(studies),
        _factors(studies),
        traversals(studies),
        directions(studies),
        _changes(studies),
        _missing(studies),
    )
    return [part for part in parts if part is not None]


def _overview(studies: Sequence[Study]) -> Section:
    """All findings in one table: one row per quantity, one column per model, and the ideal value."""

    def over(value: Callable[[Inspection], float | None], form: str) -> list[str]:
        return [_mean([value(found) for found in study.inspections], form) for study in studies]

    known = [study.match for study in studies if study.match is not None]
    parts = [study.factorisation for study in studies]
    lines = [
        (
            "Active latents",
            [_count_active(study) for study in studies],
            f"{len(known[0].factors)}, one per factor" if known else "one per factor",
            "number of latents in use",
        ),
        (
            "Posterior off theory",
            over(lambda found: found.precision_error and found.precision_error.diagonal, "{:.0%}"),
            "0%",
            "disagreement of encoder and decoder",
        ),
        (
            "DtO, fraction of chance",
            over(attrgetter("dto_of_chance"), "{:.0%}"),
            "0%",
            "distance of the axes to orthogonality",
        ),
        ("Mean |cos|", over(attrgetter("cosine"), "{:.2f}"), "0", "0 where two axes are orthogonal"),
        (
            "Density gap, nats",
            ["–" if part is None else significant(part.gap) for part in parts],
            "0",
            "deviation from independent components",
        ),
        (
            "Coupling, per σ",
            ["–" if part is None else percent(float(np.sqrt(part.coupling))) for part in parts],
            "0%",
            "effect of one latent on another's strength",
        ),
        *(
            (
                title,
                ["–" if s.match is None else _mean(s.match.mean(metric)) for s in studies],
                "1",
                MEANINGS[metric],
            )
            for metric, title in SCORES.items()
        ),
    ]
    names = [study.name for study in studies]
    heads = names if len(set(names)) == len(names) else [f"{k + 1}: {name}" for k, name in enumerate(names)]
    table = tuple(
        {"quantity": quantity}
        | dict(zip(heads, cells, strict=True))
        | {"ideal": ideal}
        | ({"meaning": meaning} if len(studies) <= EXPLAINED else {})
        for quantity, cells, ideal, meaning in lines
        if any(cell != "–" for cell in cells)
    )
    return Section("At a glance", (_introduce(studies),), table=table, said=_remark(studies))


def _remark(studies: Sequence[Study]) -> Named:
    """Who is unfinished, who diverged: said before any number."""
    several = len(studies) > 1
    return tuple(
        (study.name if several else "", f"Note: {line}.") for study in studies for line in study.remarks
    )


def _introduce(studies: Sequence[Study]) -> str:
    text = (
        "The papers explain disentanglement by a chain: a diagonal posterior makes the columns of the decoder's "
        "Jacobian, its axes, orthogonal; orthogonal axes make the latents independent components of what is "
        "generated; and independent components can be the factors of the data. Each row below is one link, and each "
        "has a section."
    )
    most = max(len(study.inspections) for study in studies)
    if most > 1:
        seeds = f"{most}" if all(len(study.inspections) == most for study in studies) else f"up to {most}"
        several = len(studies) > 1
        shown = [s.members[s.shown] + (f" ({s.name})" if several else "") for s in studies]
        text += (
            f" Numbers with ± are means over {seeds} seeds and their sample standard deviations; sentences and "
            "figures show the median one: "
        )
        text += f"{', '.join(shown)}."
    return text


def _count_active(study: Study) -> str:
    counts = [int(found.active.sum()) for found in study.inspections if found.active is not None]
    if not counts:
        return "–"
    return f"{'–'.join(map(str, sorted({min(counts), max(counts)})))} of {study.found.latent}"


def _mean(values: Sequence[float | None], form: str = "{:.2f}") -> str:
    """A number over seeds: its mean, and its sample standard deviation where there are several.

    How many have the number is said where not all do.
    """
    seen = [value for value in values if value is not None and np.isfinite(value)]
    if not seen:
        return "–"
    mean = form.format(np.mean(seen))
    count = f" (n = {len(seen)})" if len(seen) < len(values) else ""
    return mean + count if len(seen) < 2 else f"{mean} ± {form.format(np.std(seen, ddof=1))}{count}"


def _activity(studies: Sequence[Study]) -> Section:
    return Section(
        "Which latents are active?",
        (
            "The model encodes each item as a few numbers, its latents. The KL term of the objective charges every "
            "latent for the information that it carries. One that is not worth its price collapses: it becomes noise, "
            "and the decoder learns to ignore it. So the first question is which latents are in use. In the polarised "
            "regime of the theory, active latents are known precisely and collapsed ones are pure noise.",
        ),
        said=_describe(studies, studies, _describe_use),
        groups=_draw(
            [study for study in studies if study.found.active is not None],
            studies,
            lambda study: (usage_panel(study, studies),),
        ),
        how=(
            "The price is the KL divergence of a latent's posterior from the prior, in nats (1 nat = 1.44 bits), "
            "averaged over the items; a latent is active above 0.01 nats. Without an encoder, it is active if its "
            "Jacobian column is at least 1% as long as the longest. The polarised regime is Definition 1 of "
            "rolinek2019: the error is that of the KL term when active latents are assigned a negligible variance and "
            "collapsed ones the prior; the paper calls an error below 3% polarised. For a posterior with a full "
            "covariance the bars show each latent alone; together they carry more, because they covary.",
        ),
    )


def _describe_use(study: Study) -> str:
    found = study.found
    carried = ""
    if found.polarised is not None and study.active and found.mean is not None and found.variance is not None:
        # for a full covariance more than the sum over its latents alone
        total = float(kl(gaussians(found.mean.double(), found.variance.double())).mean())
        subject = "Together they carry" if found.latent > 1 else "It carries"
        carried = f"{subject} {total:.2f} nats per item."
    probes = (
        [] if found.probes is None or found.active is not None else describe_probes(found, found.probes)[:1]
    )
    return " ".join(
        filter(None, [describe_activity(found, study.order), *probes, carried, describe_regime(found)])
    )


def _agreement(studies: Sequence[Study]) -> Section | None:
    known = [study for study in studies if study.found.precision_error is not None]
    if not known:
        return None
    return Section(
        "Do encoder and decoder agree?",
        (
            "The encoder gives not only the position of an item, but also its uncertainty. It should be most certain "
            "about the latents that change the output most, because large changes are easy to read off. Theory makes "
            "that exact: the precision of each latent, one over its variance, should be 1 + ‖column‖²/β, where the "
            "column is the derivative of the output with respect to that latent. Points on the dashed line agree with "
            "theory.",
        ),
        said=_describe(
            known, studies, lambda s: f"{describe_agreement(s.found)} {describe_variances(s.found)}"
        ),
        groups=_draw(known, studies, lambda study: (precision_panel(study),)),
        how=(
            "Eq. 7 of allen2024: Σ⁻¹ = I + DᵀA²D/β, with D the decoder's Jacobian and A² the Fisher information of "
            "the likelihood. The error is the relative Frobenius distance of the diagonals, averaged over the points; "
            "the part off the diagonal, relative to the whole matrix, is what a diagonal posterior cannot represent.",
        ),
    )


def _orthogonality(studies: Sequence[Study]) -> Section | None:
    known = [
        study for study in studies if study.found.dto_active is not None or study.found.probes is not None
    ]
    if not known:
        return None
    return Section(
        "Are the axes orthogonal?",
        (
            "Move one latent a little, and the output changes in some direction. These directions, one per latent, are "
            "the decoder's axes. The papers claim that a diagonal posterior makes them orthogonal, and that this is "
            "what lets each latent represent one thing. The distance to orthogonality (DtO) is 0 where the axes are "
            "the decoder's principal directions; the baselines show its value for unrelated axes. Between two axes "
            "|cos| is 0 where they are orthogonal and 1 where they coincide.",
        ),
        said=_describe(known, studies, _describe_axes),
        groups=_draw(
            [study for study in known if study.found.pullback is not None],
            studies,
            lambda study: (dto_panel(study), cosine_panel(study), spectrum_panel(study), basis_panel(study)),
        ),
        how=(
            "DtO (rolinek2019 Eq. 29) is the Frobenius distance of V, the right singular vectors of the "
            "Fisher-weighted Jacobian restricted to active latents, from the nearest signed permutation, averaged over "
            "the points. Baselines: uniformly random rotations of as many latents; matrices with entries from U[0, 1], "
            "the random decoders of the paper's Table 2; and, where the decoder can be re-initialised, itself with "
            "fresh weights (over all latents).",
            "|cos| is taken between columns at each point, then averaged. |V| is a permutation matrix, one dark cell "
            "in each row and column, where axes and principal directions agree. Where two singular values differ by "
            "less than 5%, their directions are arbitrary: those points are drawn as rings.",
        ),
        numbers=tuple(
            row for s in known if s.found.pullback is not None for row in _cosine_rows(s, len(studies) > 1)
        ),
    )


def _describe_axes(study: Study) -> str:
    found = study.found
    if found.probes is not None:
        return " ".join(filter(None, describe_probes(found, found.probes)))
    return " ".join(filter(None, [describe_orthogonality(found), describe_dto(found)]))


def _cosine_rows(study: Study, named: bool) -> list[dict[str, str]]:
    active = study.active[:MOST]
    values = cosines(study.found, active)
    model = {"model": study.name} if named else {}
    return [
        model | {"latents": f"{active[other]} and {latent}", "mean |cos|": f"{values[place, other]:.3f}"}
        for place, latent in enumerate(active)
        for other in range(place)
    ]


def _independence(studies: Sequence[Study]) -> Section | None:
    known = [study for study in studies if study.factorisation is not None]
    if not known:
        return None
    return Section(
        "Do the latents act independently?",
        (
            "Random latents, mapped by the decoder, generate new data. Does the generated density have independent "
            "components, one per latent? That takes two things. The axes must be orthogonal, or the density is not the "
            "product of its factors: the density gap measures the deviation. And moving one latent must not change how "
            "strongly another acts: the coupling measures how much it does.",
        ),
        said=_describe(known, studies, _describe_density),
        groups=_draw(known, studies, lambda study: (coupling_panel(study),)),
        how=(
            "For the decoder followed by its likelihood's mean, at posterior means. The density gap is log p(x) less "
            "the sum over active latents of log p(z_i) − log‖∂x/∂z_i‖ (allen2024 Eqs. 9 to 13), which is the Hadamard "
            "gap of that map's Jacobian; ± is the standard error over the points. It may differ from the Hadamard gap "
            "above, which weights outputs by their Fisher information.",
            "The coupling is the root of E[(∂ log‖∂x/∂z_i‖ / ∂z_j)²] over pairs i ≠ j, with each latent in units of "
            "its own standard deviation over the data. The diagonal of the matrix only shows that a component is not "
            "Gaussian. For piecewise linear decoders, slopes are differences over ± 0.1.",
        ),
    )


def _describe_density(study: Study) -> str:
    part = study.factorisation
    assert part is not None
    gap = (
        "so the density is practically a product of factors"
        if part.gap < PRODUCT
        else "a small deviation from a product"
        if part.gap < SMALL_GAP
        else "so the density is far from a product"
    )
    digits = 2 if part.gap >= 0.1 else 3
    change = float(np.sqrt(part.coupling))
    word = "hardly" if change < WEAK else "clearly" if change < STRONG else "strongly"
    return (
        f"The density gap is {part.gap:.{digits}f} ± {part.gap_error:.{digits}f} nats, {gap}. Latents {word} change "
        f"each other's strength: a step of one standard deviation in one changes the effect of another by about "
        f"{percent(change)}."
    )


def _factors(studies: Sequence[Study]) -> Section | None:
    known = [study for study in studies if study.match is not None]
    if not known:
        return None
    first = _get_match(known[0])
    scores = scores_panel(known, named=len(studies) > 1)
    informations = [information_panel(study, _get_match(study)) for study in known]
    return Section(
        "Do the latents match the factors?",
        (
            f"The factors that generated each item are known: {join_words(first.factors)}. A latent that represents "
            "one of them explains much of it and nothing of the others. So look for one dark cell in each column, with "
            "no second one next to it. The scores summarise this in one number each; 1 is best.",
        ),
        said=_describe(known, studies, _describe_match),
        groups=(Group("", (informations[0], scores)),)
        if len(studies) == 1
        else (
            *(Group(study.name, (panel,)) for study, panel in zip(known, informations, strict=True)),
            Group("All models", (scores,)),
        ),
        numbers=tuple(row for study in known for row in _information_rows(study, len(studies) > 1)),
        how=(
            "Mutual information of each code, in 20 bins, with each factor, over the entropy of the factor, so 1 means "
            f"fully explained; from {first.points} items. Collapsed latents are listed too: their means may still "
            "carry information, but the decoder does not use it.",
            "MIG and SAP measure the lead of the best latent over the second for each factor, DCI whether each latent "
            "is about one factor, the FactorVAE score whether a latent is constant whenever its factor is, MCC the "
            "correlation after the best matching. Intervals are 95%, over items.",
        ),
    )


def _get_match(study: Study) -> Match:
    assert study.match is not None
    return study.match


def _describe_match(study: Study) -> str:
    found = _get_match(study)
    shares = found.information[study.shown]
    explaining = [latent for latent in study.active if shares[latent].max() >= EXPLAINS]
    parts = [
        f"latent {j} explains {shares[j].max():.0%} of {found.factors[int(shares[j].argmax())]}"
        for j in explaining[:6]
    ]
    # a factor's name keeps its capitals
    text = (
        f"L{join_words(parts)[1:]}."
        if parts
        else "No active latent explains a substantial part of any factor."
    )
    best = shares[list(study.active)].max(0, initial=0.0)
    left = [name for name, share in zip(found.factors, best, strict=True) if share < EXPLAINS]
    if left and parts:
        text += f" No active latent explains much of {join_words(left)}."
    row = get_score(study, "mig")
    if row is not None:
        known = row.lower is not None and row.upper is not None
        interval = f", [{decimals(row.lower)}, {decimals(row.upper)}]" if known else ""
        text += (
            f" The MIG, the lead of the best latent over the second, is {decimals(row.value)} of 1{interval}."
        )
    return text


def _information_rows(study: Study, named: bool) -> list[dict[str, str]]:
    found = _get_match(study)
    model = {"model": study.name} if named else {}
    return [
        model
        | {"latent": f"{latent}{'' if latent in study.active else ' (collapsed)'}"}
        | {
            name: f"{share:.3f}"
            for name, share in zip(found.factors, found.information[study.shown][latent], strict=True)
        }
        for latent in study.order[:MOST]
    ]


def _changes(studies: Sequence[Study]) -> Section:
    """Which β, how many latents, and what the findings ask for."""
    alike: dict[tuple[object, ...], list[Study]] = {}  # those that share data and β
    for study in studies:
        if study.advice is not None and _has_thresholds(study):
            key = (study.found.beta, study.advice.likelihood, *study.advice.thresholds[:MOST].tolist())
            alike.setdefault(key, []).append(study)
    return Section(
        "What to change",
        (
            "The weight β of the KL term sets the price of information. For a linear decoder theory predicts from the "
            "data alone at which price each latent collapses; other decoders represent several of those directions by "
            "one latent, and keep fewer. Together with the findings above, this suggests what to try next.",
        ),
        said=_describe(studies, studies, _advise),
        groups=tuple(
            Group(
                join_words([s.name for s in same]) if len(studies) > 1 else "", (_threshold_panel(same[0]),)
            )
            for same in alike.values()
        ),
        how=(
            "The thresholds are the eigenvalues of the data's covariance, weighted by 1/σ² for a Gaussian likelihood, "
            "or pixel by pixel by 1/(m(1 − m)) for a Bernoulli one with mean m: a latent of a linear model is active "
            "while β is below its threshold (allen2024 Eqs. 4 and 7, sikka2019 Eq. 23). Exact for linear decoders and "
            "a Gaussian likelihood, a guide for others." + _sampled(studies),
        ),
    )


def _sampled(studies: Sequence[Study]) -> str:
    """From how many items thresholds were computed."""
    counts = sorted({study.advice.points for study in studies if study.advice is not None})
    if not counts:
        return ""
    items = join_words([str(count) for count in counts])
    return f" Computed from {items} items, drawn at random where there are more."


def _advise(study: Study) -> str:
    found, given = study.found, study.advice
    steps = todo(found, factors=None if study.match is None else len(study.match.factors))
    active, text = len(study.active), ""
    if given is not None and _has_thresholds(study):
        text = (
            f"At β = {found.beta:g} a linear decoder would keep "
            f"{_count(given.active_count(found.beta), 'direction')} of the data; this one has "
            f"{_count(found.latent, 'latent')}, of which {active} "
            f"{'is' if active == 1 else 'are'} active. "
        )
        text += _advise_beta(study, given)
    elif found.posterior == "point":
        text = "Its codes are points, without a posterior, and so there is no price to set. "
    if 0 < active < found.latent and steps.beta >= 0 and _ignores_collapsed(found):
        text += (
            f"Its {_count(found.latent - active, 'collapsed latent')} could be left out at hardly any cost. "
        )
    return "\n".join([f"{text}To do:", *steps.steps])


def _ignores_collapsed(found: Inspection) -> bool:
    norms, active = found.column_norms, found.active
    return norms is not None and active is not None and bool(norms[~active].max() < UNUSED * norms.max())


def _advise_beta(study: Study, given: Advice) -> str:
    """The β that would keep as many latents as there are factors."""
    wanted = 0 if study.match is None else len(study.match.factors)
    if not 0 < wanted <= len(_positive(given)):
        return ""
    low, high = given.range(wanted)
    low = low if low > ROUNDING * high else 0.0
    active, beta = len(study.active), study.found.beta
    if wanted == active:
        return "That is as many as there are factors. "
    fewer = active < wanted
    text = f"To keep {wanted}, one per factor, a linear decoder would need β from {low:.3g} to {high:.3g}"
    if high <= beta if fewer else low > beta:
        return f"{text}, {'smaller' if fewer else 'larger'} than now. "
    if study.found.latent < wanted:
        return f"{text}. "
    return f"{text}; this one keeps {'fewer' if fewer else 'more'} than a linear one would. "


def _threshold_panel(study: Study) -> Panel:
    assert study.advice is not None
    values, beta = _positive(study.advice)[:MOST], study.found.beta
    marks = {
        str(k + 1): [Dot(value, "fill c0" if value > beta else "fill soft", f"latent {k + 1} collapses at β")]
        for k, value in enumerate(values)
    }
    caption = "β at which each latent of a linear decoder collapses"
    alt = f"{caption}: {', '.join(f'{value:.3g}' for value in values)}; trained with {beta:g}."
    rule = Dot(beta, name=f"β = {beta:g} here") if beta > 0 else None
    return Panel(columns(marks, alt, across="latent of a linear decoder", along="β", rule=rule), caption)


def _has_thresholds(study: Study) -> bool:
    """Whether thresholds are known, and there is a KL term for them to apply to."""
    known = study.advice is not None and len(_positive(study.advice)) > 0
    return known and study.found.posterior in ("diagonal", "full")


def _positive(given: Advice) -> list[float]:
    """Thresholds above rounding."""
    values = given.thresholds
    return [float(value) for value in values[values > ROUNDING * values.max()]] if len(values) else []


def _missing(studies: Sequence[Study]) -> Section | None:
    lines = tuple(
        (f"{study.name}: {gap.part}" if len(studies) > 1 else gap.part, gap.why)
        for study in studies
        for gap in study.missing
    )
    if not lines:
        return None
    return Section(
        "What is missing, and why", ("These parts of a report need more than was given.",), said=lines
    )


def _describe(known: Sequence[Study], studies: Sequence[Study], describe: Callable[[Study], str]) -> Named:
    """What is said of each model, with its name where there are several."""
    pairs = ((study.name if len(studies) > 1 else "", describe(study).strip()) for study in known)
    return tuple((name, text) for name, text in pairs if text)


def _draw(
    known: Sequence[Study], studies: Sequence[Study], draw: Callable[[Study], tuple[Panel, ...]]
) -> tuple[Group, ...]:
    return tuple(Group(study.name if len(studies) > 1 else "", draw(study)) for study in known)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
