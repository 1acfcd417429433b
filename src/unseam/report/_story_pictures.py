"""What can be looked at: reconstructions, traversals, singular directions."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from unseam.report._strips import drawing, fitting, is_picture, strip
from unseam.report._words import label, percent, titled
from unseam.report.page import Group, Panel, Section
from unseam.report.study import Study

__all__ = ["directions", "reconstructions", "walks"]

# Characters that pictures may take: together with the charts of six models less than the 8 MB of a page.
WALKED, TURNED, DRAWN = 3_000_000, 2_000_000, 1_000_000


def reconstructions(studies: Sequence[Study]) -> Section | None:
    """Data, and what models make of them."""
    known = [study for study in studies if study.pictures is not None]
    if not known:
        return None
    rows = fitting(lambda thin: _drawn(known, len(studies) > 1, thin), DRAWN)
    return Section(
        "What the model sees, and what it draws",
        (
            "In the first row are items of the data; below, each is sent through the encoder, which keeps only its "
            "latents, and drawn again by the decoder from those few numbers.",
        ),
        groups=(Group("", (Panel(_grid(rows, still=True), "", wide=True),)),),
    )


def _drawn(known: Sequence[Study], several: bool, thin: int) -> list[str]:
    """A row of data, and one of each model's drawings."""
    rows: list[str] = []
    for study in known:
        assert study.pictures is not None
        data, drawn = study.pictures
        span = _span(data)
        if not rows:
            rows.append(_row("data", (), strip(data, "Some items of the data.", span=span, thin=thin)))
        alt = f"The same items as {study.name} draws them."
        name = study.name if several else "drawn again"
        rows.append(_row(name, (), strip(drawn, alt, span=span, thin=thin)))
    return rows


def walks(studies: Sequence[Study]) -> Section | None:
    """One row a latent, by importance."""
    prose = (
        "Each row starts from one point in the middle of all and moves a single latent from −2 to +2 standard "
        "deviations, while all others stand still. A disentangled latent changes one thing that has a name; a "
        "collapsed one changes nothing. The most important latents come first, with the factor they tell most of "
        "where factors are known, and with the norm of their Jacobian column: how far a small step moves the "
        "output."
    )
    how = (
        "The start is the point, of an encoder the posterior mean, nearest to the mean of all. The standard deviation "
        "of a latent is that over all points, with an encoder that of the aggregate posterior: the variance of its "
        "means plus the mean of its variances. Outputs are the likelihood's mean. The norm is the root mean square "
        "over points of the Fisher-weighted column."
    )
    known = [study for study in studies if study.walks is not None]
    return _wide(known, studies, _walk, WALKED, Section("What does each latent do?", (prose,), how=(how,)))


def _walk(study: Study, thin: int) -> str:
    found, made = study.found, study.walks
    assert made is not None
    rows, span = [], _span(made.frames)
    for place, latent in enumerate(made.latents):
        alive = latent in study.live
        factor = study.factor(latent)
        what = f"latent {label(study, latent)}" if alive else f"latent {latent} · collapsed"
        named = f"Latent {latent}, {factor}" if factor else f"Latent {latent}"
        alt = f"{named}: outputs as it moves from −2 to +2 standard deviations."
        rows.append(_row(what, _facts(study, latent), strip(made.frames[place], alt, span=span, thin=thin)))
    hidden = found.latent - len(made.latents)
    more = f"<p class='caption'>{hidden} less important latents are not shown.</p>" if hidden else ""
    return _grid([*rows, '<div class="ends"><span>−2 σ</span><span>0</span><span>+2 σ</span></div>']) + more


def _facts(study: Study, latent: int) -> list[str]:
    """How far a latent moves the output; what it costs, and what it tells."""
    found, factor = study.found, study.factor(latent)
    norms = found.column_norms
    facts = [] if found.polarised is None else [f"KL {float(found.polarised.kl[latent]):.2f} nats"]
    if factor and study.match is not None:
        facts.append(f"{study.match.information[study.shown, latent].max():.0%} of {factor}")
    first = [] if norms is None else [f"Jacobian norm {float(norms[latent]):.2f}"]
    return [*first, *filter(None, [", ".join(facts)])]


def directions(studies: Sequence[Study]) -> Section | None:
    """Singular directions beside the latents' own."""
    known = [study for study in studies if study.directions is not None]
    coloured = any(is_picture(s.directions.singular.shape[1:]) for s in known if s.directions is not None)
    signs = "orange: up, blue: down" if coloured else "above the line: up, below it: down"
    prose = (
        "Every decoder has principal directions at a point: the step in latent space that changes its output "
        f"most, the next one at right angles to it, and so on. Here is how the output changes along each ({signs}), "
        "and below it how it changes along the one latent that takes part in it most. Where both are alike, the "
        "latents are the decoder's own directions, and no rotation is hidden between them."
    )
    how = (
        "Right singular vectors v of the Fisher-weighted Jacobian at the start of the traversals, and the derivative "
        "of the mean output along them. The share is the square of the latent's entry in v. Each picture is on its "
        "own scale. With fewer live latents than all, as many directions are shown as live."
    )
    return _wide(
        known, studies, _pairs, TURNED, Section("The decoder's own directions", (prose,), how=(how,))
    )


def _pairs(study: Study, thin: int) -> str:
    found = study.directions
    assert found is not None
    cells = []
    for place, (main, share, value) in enumerate(zip(found.main, found.share, found.values, strict=True)):
        upper = drawing(
            found.singular[place], f"Change of the output along singular direction {place + 1}.", thin=thin
        )
        lower = drawing(found.columns[place], f"Change of the output along latent {main}.", thin=thin)
        cells.append(
            f'<div class="arrow">{upper}<b>direction {place + 1}</b><small>singular value {value:.2f}</small>{lower}'
            f"<b>latent {html.escape(label(study, main))}</b><small>{percent(share)} of it</small></div>"
        )
    return f'<div class="arrows">{"".join(cells)}</div>'


def _wide(
    known: Sequence[Study],
    studies: Sequence[Study],
    draw: Callable[[Study, int], str],
    budget: int,
    section: Section,
) -> Section | None:
    """The section with what is drawn of each model that is known; none where that is no model."""
    if not known:
        return None
    drawn = fitting(lambda thin: [draw(study, thin) for study in known], budget)
    panels = [(Panel(markup, "", wide=True),) for markup in drawn]
    groups = (Group(titled(study, studies), panel) for study, panel in zip(known, panels, strict=True))
    return section._replace(groups=tuple(groups))


def _row(what: str, facts: Sequence[str], markup: str) -> str:
    small = "".join(f"<small>{html.escape(fact)}</small>" for fact in facts)
    return f'<div class="what"><b>{html.escape(what)}</b>{small}</div>{markup}'


def _grid(rows: Sequence[str], *, still: bool = False) -> str:
    return f'<div class="walk{" still" if still else ""}">{"".join(rows)}</div>'


def _span(values: NDArray[np.float32]) -> tuple[float, float]:
    """What is black and what is white: 0 and 1, unless the values leave that range."""
    low, high = float(values.min()), float(values.max())
    inside = low >= -0.01 and high <= 1.01
    return (0.0, 1.0) if inside and is_picture(values.shape[-3:]) else (low, high)
