"""What Figures 2 and 3 share: findings on curves over β, and panels of minimum, mean and maximum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unseam.drawing import COLOURS
from unseam.papers.artefact import Finding

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TITLES", "Curve", "bands", "curve", "findings"]

TITLES = ("A  ELBO", "B  TIE", "C  reconstruction objective", "D  conditional independence loss")
"""Of the panels that both figures have."""

SHOWN = ("elbo", "tie_aligned", "reconstruction", "kl")
NEAR_ONE = 2.0
"""The largest ELBO is "around β = 1" up to this factor."""
RISE = 0.02
"""A curve is decreasing when no step up is larger than this part of its range."""
RESAMPLINGS = 1000

Over = Literal["mean", "minimum"]


class Curve(NamedTuple):
    """A term against β, over the seeds.

    >>> Curve(np.array([1.0]), np.array([[2.0, 4.0]]), "mean").value
    array([3.])
    """

    beta: NDArray[np.float64]
    """(beta,), rising."""
    values: NDArray[np.float64]
    """(beta, seed)."""
    over: Over

    @property
    def value(self) -> NDArray[np.float64]:
        """Mean or minimum over the seeds (beta,)."""
        return _over(self.values, self.over)

    def interval(
        self, statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> tuple[float, float]:
        """95 % interval of a statistic of curves (beta, ...) -> (...), from resampled seeds."""
        seeds = self.values.shape[1]
        drawn = np.random.default_rng(0).integers(seeds, size=(RESAMPLINGS, seeds))
        found = statistic(np.stack([_over(self.values[:, one], self.over) for one in drawn], axis=1))
        lower, upper = np.quantile(found, (0.025, 0.975))
        return float(lower), float(upper)


def curve(table: pd.DataFrame, name: str, over: Over = "mean") -> Curve:
    """The curve of a column ``name`` of a table with columns ``beta`` and ``seed``.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"beta": [2.0, 1.0, 2.0, 1.0], "seed": [0, 0, 1, 1], "kl": [1.0, 3.0, 2.0, 5.0]})
    >>> curve(table, "kl").value
    array([4. , 1.5])
    """
    wide = table.pivot(index="beta", columns="seed", values=name)
    return Curve(wide.index.to_numpy(dtype=float), wide.to_numpy(dtype=float), over)


def findings(table: pd.DataFrame, *, over: Over) -> list[Finding]:
    """What the captions of Figures 2 and 3 claim of panels A to D, for each batch size.

    Args:
        table: one row a network, as ``deep.measured`` returns it.
        over: what of the inference error over initialisations the caption speaks of.

    >>> import pandas as pd
    >>> rows = {"batch": 1, "beta": [0.5, 1.0, 2.0], "seed": 0, "elbo": [1, 2, 1], "tie": [5, 3, 4]}
    >>> rows |= {"tie_aligned": [2, 1, 3], "reconstruction": [3, 2, 1], "kl": [1, 2, 0]}
    >>> rows |= {f"fresh_{name}": rows[name] for name in ("elbo", "tie", "tie_aligned")}
    >>> [finding.verdict for finding in findings(pd.DataFrame(rows), over="mean")]
    ['reproduced', 'reproduced', 'reproduced', 'reproduced', 'not reproduced']
    """
    found = []
    batches = sorted(set(table["batch"]))
    for batch in batches:
        part = table[table["batch"] == batch]
        which = "" if len(batches) == 1 else f", batches of {batch}"
        found += [
            _highest(part, which),
            _lowest(part, "tie_aligned", over, f"B: β of the least TIE, {over}, aligned{which}"),
            _lowest(part, "tie", over, f"B: β of the least TIE, {over}, raw{which}"),
            _decreasing(part, "reconstruction", "C: largest rise of the reconstruction objective", which),
            _decreasing(part, "kl", "D: largest rise of the conditional independence loss", which),
        ]
    return found


def _highest(table: pd.DataFrame, which: str) -> Finding:
    elbo, fresh = curve(table, "elbo"), curve(table, "fresh_elbo")
    best = float(elbo.beta[elbo.value.argmax()])
    return Finding(
        f"A: β of the largest ELBO{which}",
        "around 1",
        best,
        *elbo.interval(lambda drawn: elbo.beta[drawn.argmax(0)]),
        "reproduced" if 1 / NEAR_ONE <= best <= NEAR_ONE else "not reproduced",
        f"on fresh data {fresh.beta[fresh.value.argmax()]:.3g}",
    )


def _lowest(table: pd.DataFrame, name: str, over: Over, words: str) -> Finding:
    error, fresh = curve(table, name, over), curve(table, f"fresh_{name}", over)
    value = error.value
    least = int(value.argmin())
    # zero where the least value is itself at an end, which then is no optimum
    above = [error.interval(lambda drawn, end=end: drawn[end] - drawn[least])[0] for end in (0, -1)]  # type: ignore[misc]
    return Finding(
        words,
        "not monotonic, with an optimal β",
        float(error.beta[least]),
        *error.interval(lambda drawn: error.beta[drawn.argmin(0)]),
        "reproduced" if min(above) > 0 else "not reproduced",
        f"{value[least]:.3g} nats there, {value[0]:.3g} at β = {error.beta[0]:.3g}, {value[-1]:.3g} at "
        f"β = {error.beta[-1]:.3g}; on fresh data least at {fresh.beta[fresh.value.argmin()]:.3g} "
        f"with {fresh.value.min():.3g} nats",
    )


def _decreasing(table: pd.DataFrame, name: str, words: str, which: str) -> Finding:
    shown = curve(table, name)

    def rise(drawn: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.diff(drawn, axis=0).max(0).clip(0) / np.ptp(drawn, axis=0)

    largest = float(rise(shown.value))
    return Finding(
        f"{words} from one β to the next, of its range{which}",
        "decreasing",
        largest,
        *shown.interval(rise),
        "reproduced" if largest <= RISE else "not reproduced",
    )


def _over(values: NDArray[np.float64], over: Over) -> NDArray[np.float64]:
    return values.mean(1) if over == "mean" else values.min(1)


def bands(axes: Sequence[Any], table: pd.DataFrame, *, over: Over) -> None:
    """Draw panels A to D: mean solid, minimum and maximum dashed, a vertical line at the extremum of A and B.

    >>> import pandas as pd
    >>> from unseam.drawing import panels
    >>> rows = {"batch": 1, "beta": [0.5, 1.0], "seed": 0, "tie": 1.0} | {name: 1.0 for name in SHOWN}
    >>> figure, axes = panels(TITLES, rows=2)
    >>> bands(axes, pd.DataFrame(rows | {f"fresh_{name}": 1.0 for name in SHOWN}), over="mean")
    >>> axes[0].get_xscale()
    'log'
    """
    from matplotlib.ticker import LogFormatter, NullFormatter

    batches = sorted(set(table["batch"]))
    for batch, colour in zip(batches, COLOURS, strict=False):
        part = table[table["batch"] == batch]
        for panel, name in zip(axes, SHOWN, strict=False):
            _band(panel, curve(part, name), colour, "mean" if len(batches) == 1 else f"batches of {batch}")
            fresh = curve(part, f"fresh_{name}")
            panel.plot(fresh.beta, fresh.value, "-.", color=colour, linewidth=0.8, label="mean, fresh data")
        raw = curve(part, "tie")
        axes[1].plot(raw.beta, raw.value, ":", color=colour, linewidth=1.2, label="mean, raw")
        _mark(axes[0], raw.beta[curve(part, "elbo").value.argmax()], colour)
        _mark(axes[1], raw.beta[curve(part, "tie_aligned", over).value.argmin()], colour)
    for panel in axes:
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_xlabel("β", fontsize=8)
        panel.set_ylabel("nats", fontsize=8)
    axes[1].set_yscale("log")
    axes[1].yaxis.set_major_formatter(LogFormatter())
    axes[1].yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes[1].tick_params(which="minor", labelsize=7)
    axes[1].legend(fontsize=6.5, frameon=False)


def _band(panel: Any, shown: Curve, colour: str, label: str) -> None:
    panel.plot(shown.beta, shown.value, color=colour, linewidth=1.6, label=label)
    for edge in (shown.values.min(1), shown.values.max(1)):
        panel.plot(shown.beta, edge, "--", color=colour, linewidth=0.8)
    panel.fill_between(
        shown.beta, shown.values.min(1), shown.values.max(1), color=colour, alpha=0.12, linewidth=0
    )


def _mark(panel: Any, beta: float, colour: str) -> None:
    panel.axvline(beta, color=colour, linewidth=0.8, linestyle="--", alpha=0.6)
