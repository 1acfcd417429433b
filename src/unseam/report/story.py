"""The chain as a story: a verdict on every link, then all sections of a report, from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Literal

import numpy as np

from unseam.advice import Advice
from unseam.charts import Dot, columns, decimals, percent, significant
from unseam.geometry.gaussians import gaussians, kl
from unseam.inspection import Inspection, Orthogonality, latent_name
from unseam.inspection.todo import todo
from unseam.inspection.verdict import (
    describe_activity,
    describe_agreement,
    describe_dto,
    describe_orthogonality,
    describe_probes,
    describe_regime,
)
from unseam.inspection.words import join_words
from unseam.report._panels import (
    MOST,
    cosine_panel,
    coupling_panel,
    get_score,
    information_panel,
    precision_panel,
    scores_panel,
    seeds_panel,
    usage_panel,
)
from unseam.report._pictures import pictures
from unseam.report.matching import SCORES
from unseam.report.page import Group, Panel, Section
from unseam.report.study import EXPLAINS, Factorisation, Match, Study

__all__ = ["sections"]

PRODUCT, SMALL_GAP = 0.05, 0.5  # nats of density gap
WEAK, STRONG = 0.2, 0.6  # of a latent's strength, per standard deviation of another; and of MIG
ROUNDING = 1e-9
UNUSED = 0.1  # of the longest column: what the decoder hardly uses

Named = tuple[tuple[str, str], ...]


def sections(studies: Sequence[Study]) -> list[Section]:
    """The parts of a report, in order: the verdict on every link first; parts that no model has are left out.

    >>> import torch, unseam
    >>> found = unseam.inspect(lambda z: z * torch.tensor([3.0, 1.0]), torch.zeros(4, 2))
    >>> [part.title for part in sections([Study("mine", (found,))])]
    ['Verdict on each link', 'Which latents are active?', 'Are the axes orthogonal?', 'What to change']
    """
    if not studies:
        raise ValueError("studies must hold at least one model, got none")
    parts = (
        _verdict(studies),
        pictures(studies),
        _activity(studies),
        _orthogonality(studies),
        _factors(studies),
        _changes(studies),
        _missing(studies),
    )
    unfolded = ("What to change", "What is missing, and why", "Verdict on each link")
    return [
        part._replace(folded=len(studies) > 1 and part.title not in unfolded)
        for part in parts
        if part is not None
    ]


# The verdict


def _verdict(studies: Sequence[Study]) -> Section:
    """One row per link of the chain, one column per model; all numbers are folded away."""
    names = [study.name for study in studies]
    heads = names if len(set(names)) == len(names) else [f"{k + 1}: {name}" for k, name in enumerate(names)]
    links: dict[str, Callable[[Study], str]] = {
        "Is the posterior diagonal?": _judge_posterior,
        "Are the axes orthogonal?": _judge_axes,
        "Are the components independent?": _judge_density,
        "Are they the factors?": _judge_factors,
    }
    table = tuple(
        {"link": question} | {head: judge(study) for head, study in zip(heads, studies, strict=True)}
        for question, judge in links.items()
    )
    remarks = tuple(
        (study.name if len(studies) > 1 else "", f"Note: {line}.")
        for study in studies
        for line in study.remarks
    )
    return Section(
        "Verdict on each link",
        (_introduce(studies),),
        table=table,
        said=remarks,
        groups=_compare_seeds(studies),
        numbers=_numbers(studies, heads),
    )


def _introduce(studies: Sequence[Study]) -> str:
    text = (
        "In theory, a diagonal posterior makes the decoder's axes (columns of its Jacobian) orthogonal, orthogonal "
        "axes make latents independent components, and these can be the factors of the data."
    )
    most = max(len(study.inspections) for study in studies)
    if most > 1:
        seeds = f"{most}" if all(len(study.inspections) == most for study in studies) else f"up to {most}"
        several = len(studies) > 1
        shown = [s.members[s.shown] + (f" ({s.name})" if several else "") for s in studies]
        text += f" ± is over {seeds} seeds; all else shows the median one, {', '.join(shown)}."
    return text


def _judge_posterior(study: Study) -> str:
    kind = study.found.posterior
    if kind is None:
        return "Not known: no encoder was given"
    if kind == "point":
        return "No: codes are points"
    active = f"; {_count_active(study)} latents active"
    errors = [one.precision_error.diagonal for one in study.inspections if one.precision_error is not None]
    agrees = f"; precisions {_mean(errors, '{:.0%}')} from those that the decoder implies" if errors else ""
    return f"{'Yes' if kind == 'diagonal' else 'No: a full covariance'}{active}{agrees}"


def _judge_axes(study: Study) -> str:
    found = study.found
    if found.probes is not None:
        return "Not measured: latents were sampled" + (
            "" if found.cosine is None else f"; |cos| {found.cosine:.2f}"
        )
    grades = [one.orthogonality for one in study.inspections]
    if found.orthogonality is None or found.random_axes is None:
        return "Undefined: fewer than two active latents"
    word = {Orthogonality.NEARLY: "Nearly", Orthogonality.PARTLY: "Partly", Orthogonality.NOT: "No"}
    alike = grades.count(found.orthogonality)
    seeds = "" if len(grades) == 1 else f" in {alike} of {len(grades)} seeds"
    cosine = _mean([one.cosine for one in study.inspections])
    chance = _mean([one.random_axes and one.random_axes.cosine for one in study.inspections], spread=False)
    return f"{word[found.orthogonality]}{seeds}; |cos| {cosine}, rotated at random {chance}"


def _judge_density(study: Study) -> str:
    part = study.factorisation
    if part is None and study.found.crowded:
        return "Undefined: fewer directions than active latents"
    if part is None:
        return "Undefined: fewer than two active latents" if len(study.active) < 2 else "Not measured"
    change = float(np.sqrt(part.coupling))
    grade = max(_grade(part.density_gap, PRODUCT, SMALL_GAP), _grade(change, WEAK, STRONG))
    words = ("Nearly", "Partly", "No")[grade]
    return f"{words}; density gap {significant(part.density_gap, 2)} nats, coupling {percent(change)}"


def _judge_factors(study: Study) -> str:
    if study.match is None:
        return "Not known: no factors to compare with"
    scores, whole = study.match.mean("mig"), study.match.mean("mig", "score_all")
    seen = [value for value in scores if np.isfinite(value)]
    if not seen:
        return f"Undefined: no active latent; over all latents MIG {_mean(whole)}"
    word = ("Mostly", "Partly", "No")[2 - _grade(float(np.mean(seen)), WEAK, STRONG)]
    beside = "" if scores == whole else f" (over all latents {_mean(whole)})"
    return f"{word}; MIG over active latents {_mean(scores)}{beside}"


def _grade(value: float, low: float, high: float) -> int:
    """0 below both limits, 1 between, 2 above."""
    return int(value >= low) + int(value >= high)


def _compare_seeds(studies: Sequence[Study]) -> tuple[Group, ...]:
    """Orthogonality and scores of every seed, where there are models to compare."""
    if len(studies) < 2 or len({study.name for study in studies}) < len(studies):
        return ()
    strips: dict[str, dict[str, Sequence[float | None]]] = {
        "Axes: mean |cos|, 0 is best": {s.name: [one.cosine for one in s.inspections] for s in studies}
    }
    if any(study.match is not None for study in studies):
        strips["Factors: MIG over active latents, 1 is best"] = {
            s.name: [] if s.match is None else s.match.mean("mig") for s in studies
        }
    return tuple(Group("", (Panel(seeds_panel(values, title), title),)) for title, values in strips.items())


def _numbers(studies: Sequence[Study], heads: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Every number: one row per quantity, one column per model."""

    def over(value: Callable[[Inspection], float | None], form: str = "{:.2f}") -> list[str]:
        return [_mean([value(found) for found in study.inspections], form) for study in studies]

    def compared(name: Literal["cosine", "hadamard_gap", "dto_active"]) -> list[str]:
        return [
            _mean(
                [getattr(one, name) for one in s.inspections], lacking="–" if s.found.probes else "undefined"
            )
            for s in studies
        ]

    def factorised(show: Callable[[Factorisation], str]) -> list[str]:
        lacking = ["undefined" if len(s.active) < 2 or s.found.crowded else "–" for s in studies]
        return [
            none if s.factorisation is None else show(s.factorisation)
            for s, none in zip(studies, lacking, strict=True)
        ]

    def scored(metric: str, latents: Literal["score", "score_all"]) -> list[str]:
        return [
            "–" if s.match is None else _mean(s.match.mean(metric, latents), lacking="undefined")
            for s in studies
        ]

    rows = {
        "Active latents": [_count_active(study) for study in studies],
        "Eq. 7 error, diagonal": over(
            lambda one: one.precision_error and one.precision_error.diagonal, "{:.0%}"
        ),
        "Mean |cos|": compared("cosine"),
        "Mean |cos|, rotated at random": over(lambda one: one.random_axes and one.random_axes.cosine),
        "Hadamard gap, nats": compared("hadamard_gap"),
        "Hadamard gap, rotated at random": over(lambda one: one.random_axes and one.random_axes.hadamard_gap),
        "DtO, active latents": compared("dto_active"),
        "DtO of random rotations": over(lambda one: one.random_dto and one.random_dto.haar),
        "DtO of U[0, 1] matrices": over(lambda one: one.random_dto and one.random_dto.uniform),
        "DtO with fresh weights": over(lambda one: one.random_dto and one.random_dto.module),
        "Points where singular values coincide": over(attrgetter("degenerate_fraction"), "{:.0%}"),
        "Density gap, nats": factorised(lambda part: significant(part.density_gap)),
        "Coupling": factorised(lambda part: percent(float(np.sqrt(part.coupling)))),
    }
    for metric, title in SCORES.items():
        rows |= {
            f"{title}, active latents": scored(metric, "score"),
            f"{title}, all": scored(metric, "score_all"),
        }
    return tuple(
        {"quantity": quantity} | dict(zip(heads, cells, strict=True))
        for quantity, cells in rows.items()
        if any(cell != "–" for cell in cells)
    )


def _count_active(study: Study) -> str:
    counts = [int(found.active.sum()) for found in study.inspections if found.active is not None]
    if not counts:
        return "–"
    return f"{'–'.join(map(str, sorted({min(counts), max(counts)})))} of {study.found.latent}"


def _mean(
    values: Sequence[float | None], form: str = "{:.2f}", *, spread: bool = True, lacking: str = "–"
) -> str:
    """A number over seeds: its mean, and its sample standard deviation where there are several.

    How many have the number is said where not all do.
    """
    seen = [value for value in values if value is not None and np.isfinite(value)]
    if not seen:
        return lacking
    mean = form.format(np.mean(seen))
    count = f" (n = {len(seen)})" if len(seen) < len(values) else ""
    return (
        mean + count
        if len(seen) < 2 or not spread
        else f"{mean} ± {form.format(np.std(seen, ddof=1))}{count}"
    )


# The links


def _activity(studies: Sequence[Study]) -> Section:
    return Section(
        "Which latents are active?",
        (
            "A latent that is not worth its KL collapses, and the decoder ignores it. In theory, the posterior "
            "precision of an active one is 1 + ‖column‖²/β, with its column of the decoder's Jacobian (dashed line)."
            if any(study.found.precision_error is not None for study in studies)
            else "A latent has collapsed where the decoder ignores it: its column of the Jacobian is then zero.",
        ),
        said=_describe(studies, studies, _describe_use),
        groups=_draw(
            [study for study in studies if study.found.active is not None],
            studies,
            lambda study: (
                usage_panel(study, studies),
                *((precision_panel(study),) if study.found.precision_error is not None else ()),
            ),
        ),
        how=(
            "KL divergence of a latent's posterior from the prior in nats, mean over items; active above 0.01 nats. "
            "Without an encoder: a Jacobian column at least 1% as long as the longest. Polarised (rolinek2019 Def. 1): "
            "the KL changes by less than 3% when active latents get a negligible variance and collapsed ones the "
            "prior. "
            "Eq. 7 of allen2024: Σ⁻¹ = I + DᵀA²D/β, with D the decoder's Jacobian and A² the Fisher information of the "
            "likelihood; errors are relative Frobenius distances, mean over points.",
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
    lines = [describe_activity(found, study.order), *probes, carried, describe_regime(found)]
    return " ".join(filter(None, [*lines, describe_agreement(found), study.returns]))


def _orthogonality(studies: Sequence[Study]) -> Section | None:
    known = [s for s in studies if s.found.orthogonality is not None or s.found.probes is not None]
    if not known:
        return None
    return Section(
        "Are the axes orthogonal?",
        (
            "Between two orthogonal axes |cos| is 0. Latents are independent components if, besides, moving one does "
            "not change how strongly another acts: that is the coupling.",
        ),
        said=_describe(known, studies, _describe_axes),
        groups=_draw(
            [s for s in known if s.found.pullback is not None],
            studies,
            lambda s: (cosine_panel(s), *((coupling_panel(s),) if s.factorisation is not None else ())),
        ),
        how=(
            "Columns of the Fisher-weighted Jacobian of active latents. |cos| is taken at each point, then averaged; "
            "the Hadamard gap is Σ log‖column‖ − ½ log det JᵀWJ. Both are compared with those of the same decoder "
            "after random rotations of its latents: below a quarter of them axes are nearly, below three quarters "
            "partly orthogonal. DtO (rolinek2019 Eq. 29) is the Frobenius distance of the right singular vectors from "
            "the nearest signed permutation, at points whose singular values differ by 5% or more.",
            "Density gap, for the decoder followed by its likelihood's mean: log p(x) less the sum over active latents "
            "of log p(z_i) − log‖∂x/∂z_i‖ (allen2024 Eqs. 9 to 13). Coupling: root of E[(∂ log‖∂x/∂z_i‖ / ∂z_j)²] "
            "over pairs i ≠ j, each latent in units of its standard deviation over the data; for piecewise linear "
            "decoders by differences over ± 0.1.",
        ),
    )


def _describe_axes(study: Study) -> str:
    found = study.found
    if found.probes is not None:
        return " ".join(filter(None, describe_probes(found, found.probes)))
    return " ".join(
        filter(None, [describe_orthogonality(found), describe_dto(found), _describe_density(study)])
    )


def _describe_density(study: Study) -> str:
    part = study.factorisation
    if part is None:
        return ""
    gap = (
        "so the density is practically a product of factors",
        "a small deviation from a product",
        "so the density is far from a product",
    )[_grade(part.density_gap, PRODUCT, SMALL_GAP)]
    digits = 2 if part.density_gap >= 0.1 else 3
    change = float(np.sqrt(part.coupling))
    word = ("hardly", "clearly", "strongly")[_grade(change, WEAK, STRONG)]
    return (
        f"The density gap is {part.density_gap:.{digits}f} ± {part.density_gap_error:.{digits}f} nats, {gap}. Latents "
        f"{word} change each other's strength: by about {percent(change)} per standard deviation."
    )


def _factors(studies: Sequence[Study]) -> Section | None:
    known = [study for study in studies if study.match is not None]
    if not known:
        return None
    first = _get_match(known[0])
    scores = scores_panel(known, named=len(studies) > 1)
    informations = [information_panel(study, _get_match(study)) for study in known]
    scored = (scores,) if any(get_score(study, metric) for study in known for metric in SCORES) else ()
    return Section(
        "Do the latents match the factors?",
        (
            f"Factors made each item: {join_words(first.factors)}. Look for one dark cell in each column. Scores are "
            "over active latents (over all: in the table of the verdict).",
        ),
        said=_describe(known, studies, _describe_match),
        groups=(Group("", (informations[0], *scored)),)
        if len(studies) == 1
        else (
            *(Group(study.name, (panel,)) for study, panel in zip(known, informations, strict=True)),
            *(Group("All models", (panel,)) for panel in scored),
        ),
        numbers=tuple(row for study in known for row in _information_rows(study, len(studies) > 1)),
        how=(
            "Mutual information of each code, in 20 bins, with each factor, over the factor's entropy, from "
            f"{first.points} items. MIG and SAP: lead of the best latent over the second for each factor. DCI: each "
            "latent "
            "about one factor. FactorVAE: a latent constant whenever its factor is. MCC: correlation after the best "
            "matching. Means of collapsed latents can follow a factor although the decoder ignores them: scores over "
            "all "
            "latents count them. Intervals are 95%, over items.",
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
        f"{latent_name(j)} explains {shares[j].max():.0%} of {found.factors[int(shares[j].argmax())]}"
        for j in explaining[:6]
    ]
    text = f"{join_words(parts)}." if parts else "No active latent explains a substantial part of any factor."
    best = shares[list(study.active)].max(0, initial=0.0)
    left = [name for name, share in zip(found.factors, best, strict=True) if share < EXPLAINS]
    if left and parts:
        text += f" No active latent explains much of {join_words(left)}."
    row = get_score(study, "mig")
    if row is None:
        return text + " Without an active latent, scores are undefined."
    known = row.lower is not None and row.upper is not None
    interval = f" [{decimals(row.lower)}, {decimals(row.upper)}]" if known else ""
    whole = found.mean("mig", "score_all")[study.shown]
    beside = "" if whole == row.value else f"; {decimals(whole)} over all latents"
    return f"{text} MIG over active latents: {decimals(row.value)}{interval}{beside}."


def _information_rows(study: Study, named: bool) -> list[dict[str, str]]:
    found = _get_match(study)
    model = {"model": study.name} if named else {}
    return [
        model
        | {"latent": f"{latent_name(latent)}{'' if latent in study.active else ' (collapsed)'}"}
        | {
            name: f"{share:.3f}"
            for name, share in zip(found.factors, found.information[study.shown][latent], strict=True)
        }
        for latent in study.order[:MOST]
    ]


# What to do


def _changes(studies: Sequence[Study]) -> Section:
    """Which β, how many latents, and what the findings ask for."""
    alike: dict[tuple[object, ...], list[Study]] = {}  # those that share data and β
    for study in studies:
        if study.advice is not None and _has_thresholds(study):
            key = (study.found.beta, study.advice.likelihood, *study.advice.thresholds[:MOST].tolist())
            alike.setdefault(key, []).append(study)
    return Section(
        "What to change",
        (),
        said=_describe(studies, studies, _advise),
        groups=tuple(
            Group(
                join_words([s.name for s in same]) if len(studies) > 1 else "", (_threshold_panel(same[0]),)
            )
            for same in alike.values()
        ),
        how=(
            "The thresholds are eigenvalues of the data's covariance, weighted by 1/σ² for a Gaussian likelihood, or "
            "by "
            "1/(m(1 − m)) for Bernoulli pixels with mean m (allen2024 Eqs. 4 and 7, sikka2019 Eq. 23). Exact for "
            "linear "
            "decoders and a Gaussian likelihood; others follow several directions with one latent and keep fewer."
            + _sampled(studies),
        )
        if alike
        else (),
    )


def _sampled(studies: Sequence[Study]) -> str:
    """From how many items thresholds were computed."""
    given = [study.advice for study in studies if study.advice is not None]
    items = join_words([str(count) for count in sorted({advice.points for advice in given})])
    few = any(2 * len(advice.thresholds) > advice.points for advice in given)
    return f" Computed from {items} items, drawn at random where there are more." + (
        " Of items this wide more would show more directions at small β: `unseam advise` reads 50 000." * few
    )


def _advise(study: Study) -> str:
    found, given = study.found, study.advice
    steps = todo(found)
    active, text = len(study.active), ""
    if given is not None and _has_thresholds(study):
        text = "" if found.beta_known else "The weight of the KL term is not known. "
        text += (
            f"At β = {found.beta:g} a linear decoder would keep "
            f"{_count(given.active_count(found.beta), 'direction')} of the data; this one uses {active} of "
            f"{_count(found.latent, 'latent')}. {_advise_beta(study, given)}"
        )
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
    wanted = study.found.factors or 0
    if not 0 < wanted <= len(_positive(given)):
        return ""
    low, high = given.range(wanted)
    low = low if low > ROUNDING * high else 0.0
    active, beta = len(study.active), study.found.beta
    if wanted == active:
        return "That is as many as there are factors. "
    fewer = active < wanted
    span = f"from {low:.3g} to {high:.3g}" if f"{low:.3g}" != f"{high:.3g}" else f"of about {high:.3g}"
    text = f"To keep {wanted}, one per factor, a linear decoder would need β {span}"
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
    return Section("What is missing, and why", (), said=lines) if lines else None


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
