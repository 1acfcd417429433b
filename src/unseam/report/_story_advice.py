"""What to change, from theory and from the findings; and what is missing, and why."""

from __future__ import annotations

from collections.abc import Sequence

from unseam.advice import Advice
from unseam.inspection.todo import todo
from unseam.report._chart import Canvas, Scale, short
from unseam.report._words import counted, joined, said
from unseam.report.page import Group, Panel, Section
from unseam.report.study import Study

__all__ = ["absent", "change"]

SHOWN = 12
ROUNDING = 1e-9
IDLE = 0.1  # of the longest column: what the decoder hardly uses


def change(studies: Sequence[Study]) -> Section:
    """Which β, how many latents."""
    known = [study for study in studies if _priced(study)]
    return Section(
        "What to change",
        (
            "The weight β of the KL term sets the price of information. For a linear decoder theory says from the data "
            "alone at which price each latent gives up; other decoders follow several of those directions with one "
            "latent, and keep fewer. Together with the findings above, that says what to try next.",
        ),
        said=said(studies, [_advice(study) for study in studies]),
        groups=tuple(
            Group(joined([s.name for s in alike]) if len(studies) > 1 else "", (_thresholds(alike[0]),))
            for alike in _alike(known)
        ),
        how=(
            "The thresholds are the eigenvalues of the data's covariance, weighted by 1/σ² for a Gaussian likelihood, "
            "or pixel by pixel by 1/(m(1 − m)) for a Bernoulli one with mean m: a latent of a linear model lives while "
            "β is below its threshold (allen2024 Eqs. 4 and 7, sikka2019 Eq. 23). Exact for linear decoders and a "
            "Gaussian likelihood, a guide for others.",
        ),
    )


def absent(studies: Sequence[Study]) -> Section | None:
    """Parts that could not be computed."""
    lines = [
        (f"{study.name}: {gap.part}" if len(studies) > 1 else gap.part, gap.why)
        for study in studies
        for gap in study.missing
    ]
    if not lines:
        return None
    return Section(
        "What is missing, and why",
        ("These parts of a report need more than was there.",),
        said=tuple(lines),
    )


def _advice(study: Study) -> str:
    found, given = study.found, study.advice
    steps = todo(found, factors=None if study.match is None else len(study.match.factors))
    lives, text = len(study.live), ""
    if given is not None and _priced(study):
        text = (
            f"At β = {found.beta:g} a linear decoder would find "
            f"{counted(given.active_count(found.beta), 'direction')} of the data worth the price; this one has "
            f"{counted(found.latent, 'latent')} and uses {lives}. "
        )
        text += _range(study, given)
    elif found.posterior == "point":
        text = "Its codes are points, without a posterior, and so there is no price to set. "
    if 0 < lives < found.latent and steps.beta >= 0 and _idle(study):
        text += (
            f"Its {counted(found.latent - lives, 'collapsed latent')} could be left out at hardly any cost. "
        )
    return "\n".join([f"{text}{steps.lead}:", *steps.steps])


def _idle(study: Study) -> bool:
    """Whether the decoder hardly moves with its collapsed latents."""
    norms, active = study.found.column_norms, study.found.active
    return norms is not None and active is not None and bool(norms[~active].max() < IDLE * norms.max())


def _range(study: Study, given: Advice) -> str:
    """The β that would keep as many as there are factors."""
    if study.match is None:
        return ""
    wanted = len(study.match.factors)
    if wanted > len(_positive(given)):
        return ""
    low, high = given.range(wanted)
    low = low if low > ROUNDING * high else 0.0
    lives, beta = len(study.live), study.found.beta
    if wanted == lives:
        return "That is as many as there are factors. "
    fewer = lives < wanted
    text = f"To keep {wanted}, one a factor, a linear decoder would need β from {low:.3g} to {high:.3g}"
    if high <= beta if fewer else low > beta:
        return f"{text}, {'smaller' if fewer else 'larger'} than now. "
    if study.found.latent < wanted:
        return f"{text}. "
    return f"{text}; this one keeps {'fewer' if fewer else 'more'} than a linear one would. "


def _thresholds(study: Study) -> Panel:
    given = study.advice
    assert given is not None
    values = [float(value) for value in _positive(given)[:SHOWN]]
    beta = study.found.beta
    canvas = Canvas(330, 230)
    seen = [*values, beta] if beta > 0 else values
    y = Scale(min(seen) * 0.7, max(seen) * 1.4, 180, 22, log=True)
    for tick in y.ticks(4):
        canvas.line(50, y(tick), 330, y(tick), "grid")
        canvas.text(44, y(tick), short(tick), anchor="end", cls="soft")
    wide = 276 / len(values)
    for place, value in enumerate(values):
        centre = 52 + wide * (place + 0.5)
        canvas.text(centre, 194, str(place + 1), anchor="middle", cls="soft")
        cls = "fill c0" if value > beta else "fill dead"
        canvas.add(
            "circle",
            "",
            f"latent {place + 1} dies at β = {short(value)}",
            cx=centre,
            cy=y(value),
            r=4.5,
            cls=cls,
        )
    if beta > 0:
        canvas.line(50, y(beta), 330, y(beta), "now")
        canvas.text(326, y(beta) - 9, f"β = {beta:g} here", anchor="end")
    canvas.text(190, 214, "latent of a linear decoder", anchor="middle", cls="soft")
    canvas.text(0, 8, "β", cls="soft")
    alt = "β at which each latent of a linear decoder dies: " + ", ".join(f"{value:.3g}" for value in values)
    return Panel(
        canvas.svg(f"{alt}; trained with {beta:g}."), "β at which each latent of a linear decoder dies"
    )


def _priced(study: Study) -> bool:
    """Whether thresholds are known, and there is a KL term for them to speak of."""
    known = study.advice is not None and len(_positive(study.advice)) > 0
    return known and study.found.posterior in ("diagonal", "full")


def _alike(known: Sequence[Study]) -> list[list[Study]]:
    """Those that share data and β."""
    seen: dict[tuple[object, ...], list[Study]] = {}
    for study in known:
        assert study.advice is not None
        key = (study.found.beta, study.advice.likelihood, *study.advice.thresholds[:SHOWN].tolist())
        seen.setdefault(key, []).append(study)
    return list(seen.values())


def _positive(given: Advice) -> list[float]:
    """Thresholds that are more than rounding."""
    values = given.thresholds
    return [float(value) for value in values[values > ROUNDING * values.max()]] if len(values) else []
