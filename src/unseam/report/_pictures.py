"""What can be looked at: traversals, reconstructions, principal directions."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from unseam.charts import Canvas, Look, Scale, data_url, percent, pixels, signed_pixels, significant
from unseam.charts import strip as join_pictures
from unseam.inspection import latent_name
from unseam.report.page import Group, Panel, Section
from unseam.report.study import Study

__all__ = ["pictures", "signed_picture", "strip"]

# Characters that pictures may take: together with the charts of six models less than the 8 MB of a page.
TRAVERSALS, DIRECTIONS, RECONSTRUCTIONS = 3_000_000, 2_000_000, 1_000_000
SIDE = 96  # larger pictures are subsampled
CURVE = 128  # values of a curve that are drawn
WIDE, TALL = 62.0, 44.0  # of a small curve

Draw = Callable[[int], list[str]]


def _reconstructed(known: Sequence[Study], several: bool, every: int) -> list[str]:
    """A row of data, and one per model."""
    rows: list[str] = []
    for study in known:
        assert study.pictures is not None
        data, drawn = study.pictures
        span = _span(data, data.shape[1:])
        if not rows:
            rows.append(_row("data", (), strip(data, "Some items of the data.", span=span, every=every)))
        alt = f"Reconstructions of the same items by {study.name}."
        name = study.name if several else "reconstruction"
        rows.append(_row(name, (), strip(drawn, alt, span=span, every=every)))
    return rows


def pictures(studies: Sequence[Study]) -> Section | None:
    """Items with their reconstructions, one row per active latent by importance, and principal directions."""
    known = [study for study in studies if study.walks is not None]
    if not known:
        return None
    drawn = [study for study in studies if study.pictures is not None]
    shapes = [study.walks.frames.shape[2:] for study in known if study.walks is not None]
    signs = (
        "each colour lighter where it grows, darker where it falls"
        if any(Look(shape, 0.0, 1.0).is_coloured for shape in shapes)
        else "orange: up, blue: down"
        if any(map(_is_picture, shapes))
        else "above the line: up, below it: down"
    )
    walks = _fit(lambda every: [_traversal(study, every) for study in known], TRAVERSALS)
    arrows = _fit(lambda every: [_pairs(study, every) for study in known], DIRECTIONS)
    several = len(studies) > 1
    captions = "Latent traversals", f"Principal directions, and below each its main latent ({signs})"
    groups = [
        Group(
            study.name if several else "",
            tuple(
                Panel(m, c, wide=not several and m is made[0])
                for m, c in zip(made, captions, strict=True)
                if m
            ),
        )
        for study, *made in zip(known, walks, arrows, strict=True)
    ]
    if drawn:
        rows = _fit(lambda every: _reconstructed(drawn, several, every), RECONSTRUCTIONS)
        items = Panel(_grid(rows, still=True), "Items of the data, and their reconstructions", wide=several)
        groups = [Group("", (items,)), *groups] if several else [Group("", (*groups[0].panels, items))]
    return Section(
        "What does each latent do?",
        (
            "Each row moves one latent, all others fixed; the most important come first. A disentangled latent changes "
            "one thing that has a name, and is a principal direction: an orthogonal step that changes the output most.",
        ),
        groups=tuple(groups),
        how=(
            "The start is the point (with an encoder, the posterior mean) nearest to the mean of all. The standard "
            "deviation of a latent is that over all points, with an encoder that of the aggregate posterior. Outputs "
            "are the likelihood's mean. The Jacobian norm, how much a small step changes the output, is the root mean "
            "square over points of the Fisher-weighted column.",
            "Principal directions: right singular vectors v of the Fisher-weighted Jacobian at the start, with their "
            "singular values s; below each, the latent with the largest share, the square of its entry in v. Changes "
            "are derivatives of the mean output, each on its own scale.",
        ),
    )


def _traversal(study: Study, every: int) -> str:
    made = study.walks
    assert made is not None
    rows, span = [], _span(made.frames, made.frames.shape[2:])
    moved = [latent for latent in made.latents if latent in study.active] or list(made.latents[:1])
    for place, latent in enumerate(moved):
        name = study.latent_name(latent)
        alt = f"{name}: outputs as it moves from −2 to +2 standard deviations."
        drawn = strip(made.frames[place], alt, span=span, every=every)
        collapsed = "" if latent in study.active else " · collapsed"
        rows.append(_row(f"{name}{collapsed}", _facts(study, latent), drawn))
    hidden = len(study.active) - len(moved)
    more = f"<p class='caption'>{hidden} less important latents are not shown.</p>" if hidden > 0 else ""
    return _grid([*rows, '<div class="ends"><span>−2 σ</span><span>0</span><span>+2 σ</span></div>']) + more


def _facts(study: Study, latent: int) -> list[str]:
    """How much a latent changes the output; what it costs, and what it explains."""
    found, factor = study.found, study.factor(latent)
    norms = found.column_norms
    facts = [] if found.polarised is None else [f"KL {float(found.polarised.kl[latent]):.2f} nats"]
    if factor and study.match is not None:
        facts.append(f"{study.match.information[study.shown, latent].max():.0%} of {factor}")
    first = [] if norms is None else [f"Jacobian norm {float(norms[latent]):.2f}"]
    return [*first, *filter(None, [", ".join(facts)])]


def _pairs(study: Study, every: int) -> str:
    found = study.directions
    if found is None:
        return ""
    cells = []
    for place, (main, share, value) in enumerate(zip(found.main, found.share, found.values, strict=True)):
        alt = f"Change of the output along v{place + 1}, a principal direction."
        upper = signed_picture(found.singular[place], alt, every=every)
        lower = signed_picture(
            found.columns[place], f"Change of the output along {latent_name(main)}.", every=every
        )
        cells.append(
            f'<div class="arrow">{upper}<b>v{place + 1}</b><small>s = {value:.2f}</small>{lower}'
            f"<b>{html.escape(study.latent_name(main))}</b><small>{percent(share)} of v{place + 1}</small></div>"
        )
    return f'<div class="arrows">{"".join(cells)}</div>'


def strip(frames: NDArray[np.float32], label: str, *, span: tuple[float, float], every: int = 1) -> str:
    """Frames (frame, *data) beside each other as one element, ``span`` from black to white.

    Args:
        frames: outputs of a decoder; what is no picture is drawn as small curves.
        label: what they show, for those who cannot see it.
        span: values that are black and white.
        every: of pictures, draw every first, second, fourth … pixel.

    >>> strip(np.zeros((3, 1, 4, 4), "float32"), "three frames", span=(0.0, 1.0))[:39]
    '<img class="strip" src="data:image/png;'
    """
    if not _is_picture(frames.shape[1:]):
        return _curves(frames, label, span)
    few = _subsample(frames, every)
    look = Look(few.shape[1:], span[0], span[1] if span[1] > span[0] else span[0] + 1.0)
    drawn = [pixels(torch.from_numpy(frame), look) for frame in few]
    sheet = join_pictures(drawn if look.is_coloured else [picture[..., :1] for picture in drawn])
    gap = (sheet.shape[1] - len(drawn) * drawn[0].shape[1]) // max(1, len(drawn) - 1)
    size = f'{_size(sheet)} data-frames="{len(drawn)}" data-gap="{gap}"'
    return f'<img class="strip" src="{data_url(sheet, level=9)}" {size} alt="{html.escape(label)}">'


def signed_picture(change: NDArray[np.float32], label: str, *, every: int = 1) -> str:
    """One signed output (*data): up in orange, down in blue, grey where nothing changes; colours as themselves.

    >>> signed_picture(np.zeros((1, 4, 4), "float32"), "no change")[:14]
    '<img src="data'
    """
    reach = float(np.abs(change).max()) or 1.0
    if not _is_picture(change.shape):
        return _curves(change[None], label, (-reach, reach))
    few = _subsample(change[None], every)[0]
    sheet = signed_pixels(torch.from_numpy(few), Look(few.shape, 0.0, 1.0), reach)
    return f'<img src="{data_url(sheet, level=9)}" {_size(sheet)} alt="{html.escape(label)}">'


def _curves(frames: NDArray[np.float32], label: str, span: tuple[float, float]) -> str:
    """Data that are no pictures: each frame a small curve, or bars where there are few values."""
    rows = frames.reshape(len(frames), -1)
    rows = rows[:, :: max(1, -(-rows.shape[1] // CURVE))]
    canvas = Canvas(WIDE * len(rows) - 6, TALL + 4)
    y = Scale(min(span[0], 0.0), max(span[1], 0.0), 2 + TALL, 2)
    for place, row in enumerate(rows):
        left = WIDE * place
        canvas.line(left, y(0), left + WIDE - 6, y(0), "grid")
        if len(row) > 16:
            step = (WIDE - 6) / (len(row) - 1)
            path = " ".join(f"{left + k * step:.1f},{y(float(v)):.1f}" for k, v in enumerate(row))
            canvas.add("polyline", points=path, cls="curve c0")
            continue
        step = (WIDE - 6) / len(row)
        for k, value in enumerate(row):
            top, bottom = sorted((y(float(value)), y(0)))
            tip, height = f"value {k}: {significant(float(value))}", max(0.5, bottom - top)
            width = max(1.0, step - 1)
            canvas.add("rect", "", tip, x=left + k * step, y=top, width=width, height=height, cls="fill c0")
    return canvas.svg(label)


def _fit(draw: Draw, budget: int) -> list[str]:
    """Pictures with every first, second, fourth … pixel: the first result of ``draw`` that fits the budget."""
    made: list[str] = []
    for every in (1, 2, 4, 8, 16):
        made = draw(every)
        if sum(map(len, made)) <= budget:
            break
    return made


def _row(what: str, facts: Sequence[str], markup: str) -> str:
    small = "".join(f"<small>{html.escape(fact)}</small>" for fact in facts)
    return f'<div class="what"><b>{html.escape(what)}</b>{small}</div>{markup}'


def _grid(rows: Sequence[str], *, still: bool = False) -> str:
    return f'<div class="walk{" still" if still else ""}">{"".join(rows)}</div>'


def _span(values: NDArray[np.float32], shape: tuple[int, ...]) -> tuple[float, float]:
    """What is black and what is white: 0 and 1, unless the values leave that range."""
    low, high = float(values.min()), float(values.max())
    inside = low >= -0.01 and high <= 1.01
    return (0.0, 1.0) if inside and _is_picture(shape) else (low, high)


def _is_picture(shape: tuple[int, ...]) -> bool:
    return Look(shape, 0.0, 1.0).is_picture


def _subsample(frames: NDArray[np.float32], every: int) -> NDArray[np.float32]:
    few = every * max(1, -(-max(frames.shape[-2:]) // SIDE))
    return np.ascontiguousarray(frames[..., ::few, ::few])


def _size(sheet: NDArray[np.uint8]) -> str:
    return f'width="{sheet.shape[1]}" height="{sheet.shape[0]}"'
