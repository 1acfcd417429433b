"""A chart of one quantity over seeds, a row a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unseam.report._panels import Dot, dots

__all__ = ["seeds_panel"]


def seeds_panel(values: Mapping[str, Sequence[float]], title: str) -> str:
    """Dots of every seed, one row a model, as an SVG element that takes the colours of its page.

    Args:
        values: by model, one number a seed; what is not finite is left out.
        title: what the numbers are.

    >>> seeds_panel({"β-VAE": [0.2, 0.3]}, "DtO").startswith('<svg class="chart" role="img" aria-label="DtO')
    True
    """
    rows = {
        name: [
            Dot(float(value), f"c{place % 5}", f"seed {seed}")
            for seed, value in enumerate(numbers)
            if np.isfinite(value)
        ]
        for place, (name, numbers) in enumerate(values.items())
    }
    said = "; ".join(f"{name} {', '.join(f'{dot.value:.2f}' for dot in row)}" for name, row in rows.items())
    return dots(rows, f"{title}: {said}.", axis="one dot a seed")
