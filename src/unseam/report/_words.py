"""Numbers and names as sentences of a report have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseam.report.study import Study

__all__ = [
    "NO_GAP",
    "counted",
    "joined",
    "label",
    "latents",
    "numbers",
    "percent",
    "plain",
    "said",
    "signed",
    "spread",
    "titled",
]

MOST = 8
NO_GAP = 0.05  # nats: practically none


def joined(parts: Sequence[str]) -> str:
    """Parts with commas, and an "and" before the last."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def latents(positions: Sequence[int]) -> str:
    """Latents as the subject of a sentence, of many only the first."""
    if len(positions) == 1:
        return f"latent {positions[0]}"
    if len(positions) > MOST:
        return f"latents {', '.join(map(str, positions[:MOST]))} and {len(positions) - MOST} more"
    return f"latents {joined([str(position) for position in positions])}"


def label(study: Study, latent: int) -> str:
    """A latent with the factor that it tells most of."""
    factor = study.factor(latent)
    return f"{latent} · {factor}" if factor else str(latent)


def percent(value: float) -> str:
    """A part of one, with a decimal where it is small."""
    return f"{value:.1%}" if abs(value) < 0.0995 else f"{value:.0%}"


def plain(value: float) -> str:
    """Two decimals, or as many digits as a small number needs."""
    return f"{value:.2f}" if abs(value) >= 0.095 or value == 0 else f"{value:.2g}"


def signed(value: float) -> str:
    """Two decimals with a proper minus, and none before a zero."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def counted(count: int, what: str) -> str:
    """So many of something."""
    return f"{count} {what}{'s' * (count != 1)}"


def spread(values: Sequence[float | None], form: str = "{:.2f}") -> str:
    """A number over seeds: its mean, and its standard deviation where there are several."""
    seen = [value for value in values if value is not None and np.isfinite(value)]
    if not seen:
        return "–"
    mean = form.format(np.mean(seen))
    return mean if len(seen) < 2 else f"{mean} ± {form.format(np.std(seen))}"


def titled(study: Study, studies: Sequence[Study]) -> str:
    """A model's name, where there are several."""
    return study.name if len(studies) > 1 else ""


def said(studies: Sequence[Study], texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """What is said of each model; those without a word are left out."""
    pairs = zip(studies, texts, strict=True)
    return tuple((titled(study, studies), text) for study, text in pairs if text)


def numbers(values: Tensor) -> NDArray[np.float64]:
    """A tensor as charts take it."""
    return values.detach().cpu().double().numpy()
