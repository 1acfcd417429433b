"""What to change, from theory and from the findings; and what is missing, and why."""

from __future__ import annotations

from collections.abc import Sequence

from unseam.advice import Advice
from unseam.inspection import verdict
from unseam.inspection.verdict import NEARLY
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
    lives, text = len(study.live), ""
    if given is not None and _priced(study):
        text = (
            f"At β = {found.beta:g} a linear decoder would find {counted(given.alive(found.beta), 'direction')} of the "
            f"data worth the price; this one has {counted(found.latent, 'latent')} and uses {lives}. "
        )
        text += _range(study, given)
    elif _point(study):
        text = "Its codes are points, without a posterior, and so there is no price to set. "
    if 0 < lives < found.latent and _idle(study):
        text += (
            f"Its {counted(found.latent - lives, 'collapsed latent')} could be left out at hardly any cost. "
        )
    if found.variance is not None and found.variance.ndim == 3:
        text += "Its posterior has a full covariance, which leaves the axes free to turn. "
    known = "To do" if found.variance is not None else "To do, if it was trained as a β-VAE"
    return "\n".join([f"{text}{known}:", *_steps(study)])


def _steps(study: Study) -> tuple[str, ...]:
    """What to do: the inspection's advice, save where it speaks of a β or of other latents that are not there."""
    if _point(study):
        if study.chance is None or study.chance < NEARLY:
            return ("nothing",)
        return (
            "train it as a β-VAE with a diagonal posterior: nothing pulls an autoencoder's axes to right angles",
        )
    if study.found.latent == 1 and study.live:
        return ("give it more latents: a single one has no axes to compare",)
    return verdict(study.found).advice


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
    if study.found.latent < wanted:
        return f"{text}, and this one more latents. "
    if high <= beta if fewer else low > beta:
        return f"{text}: {'smaller' if fewer else 'larger'} than now. "
    return f"{text}; this one keeps {'fewer, so try a smaller' if fewer else 'more, so try a larger'} β than now. "


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
    return study.advice is not None and len(_positive(study.advice)) > 0 and _spreads(study)


def _point(study: Study) -> bool:
    """Whether its encoder gives points."""
    return study.found.variance is not None and not _spreads(study)


def _spreads(study: Study) -> bool:
    """Whether it has a posterior that is more than a point."""
    return study.found.variance is not None and bool((study.found.variance != 0).any())


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
