"""Rules that compare measured cells with published ones and with each other, fixed before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unseam.papers.artefact import Finding, Verdict
from unseam.papers.bhowal2024.rows import PRINTED, cells_of, worlds
from unseam.papers.bhowal2024.setups import NAMES
from unseam.papers.rolinek2019.cells import Published, cell, mean_interval, order

if TYPE_CHECKING:
    import pandas as pd

    Compare = Callable[[str, pd.DataFrame, str, str, str], Finding]

__all__ = [
    "SETTLED",
    "PAIRED_ORDER_RULE",
    "PAIRED_RULE",
    "SETTLED_RULE",
    "by_seed",
    "lower",
    "moved",
    "ordered_pairs",
    "paired",
    "score_findings",
    "unsettled",
]

PAIRED_RULE = (
    "A cell is reproduced where a one-sided Wilcoxon signed-rank test over models, paired by model, gives p < 0.05 "
    "and the mean gain is 1 % or more, partly where it is less: each model's error is a mean over points and over "
    "noises that were not fitted, the same for both."
)
PAIRED_ORDER_RULE = "An order holds where a one-sided Wilcoxon signed-rank test over seeds gives p < 0.05."
SETTLED = 0.03
SETTLED_RULE = (
    f"Nothing is reproduced by a cell whose mean over models still moves by more than {SETTLED:g} in the last "
    "quarter of training."
)
LEVEL = 0.05
LEAST = 1.0
"""Per cent of an error that a gain must have: what errors may still move by where they count as settled."""


def paired(quantity: str, published: str, better: ArrayLike, worse: ArrayLike, note: str = "") -> Finding:
    """By how many per cent of ``worse`` the paired ``better`` is smaller, by :data:`PAIRED_RULE`.

    >>> paired("error", "7.7 %", [0.9, 0.8, 0.9, 0.8, 0.85], [1.0, 1.0, 1.1, 1.0, 1.0]).verdict
    'reproduced'
    """
    low, high = np.asarray(better, dtype=float), np.asarray(worse, dtype=float)
    saved = 100 * (1 - low / high)
    chance = _signed_rank(low, high)
    lowest, highest = mean_interval(saved)
    words = f"{high.mean():.4g} → {low.mean():.4g} over {len(low)} models, p = {chance:.2g}"
    said: Verdict = "not reproduced"
    if chance < LEVEL:
        said = "reproduced" if saved.mean() >= LEAST else "partly"
    note = f"{words}; {note}" if note else words
    return Finding(quantity, published, float(saved.mean()), lowest, highest, said, note)


def lower(quantity: str, low: ArrayLike, high: ArrayLike, note: str = "") -> Finding:
    """Whether paired values lie below others, by :data:`PAIRED_ORDER_RULE`; measured is the mean difference.

    >>> lower("gap", [0.1, 0.2, 0.1, 0.3, 0.2], [0.5, 0.6, 0.4, 0.9, 0.7]).verdict
    'reproduced'
    """
    first, second = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    known = np.isfinite(first) & np.isfinite(second)
    first, second = first[known], second[known]
    if len(first) < 2:
        return Finding(quantity, "< 0", None, None, None, "not reproduced", "too few active latents")
    chance = _signed_rank(first, second)
    lowest, highest = mean_interval(first - second)
    words = f"p = {chance:.2g} over {len(first)} pairs"
    return Finding(
        quantity,
        "< 0",
        float((first - second).mean()),
        lowest,
        highest,
        "reproduced" if chance < LEVEL else "not reproduced",
        f"{note}; {words}" if note else words,
    )


def by_seed(quantity: str, members: pd.DataFrame, name: str, low: str, high: str) -> Finding:
    """:func:`lower` for a score of two families, paired by seed: models of one seed are compared with each other.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"family": ["VAE"] * 5 + ["β-VAE"] * 5, "seed": [0, 1, 2, 3, 4] * 2, "a": range(10)})
    >>> by_seed("a", rows, "a", "VAE", "β-VAE").measured
    -5.0
    """
    wide = members.pivot_table(index="seed", columns="family", values=name, dropna=False)
    means = ", ".join(f"{family} {wide[family].mean():.3f}" for family in wide)
    return lower(quantity, wide[low], wide[high], means)


def score_findings(
    members: pd.DataFrame,
    name: str,
    words: str,
    published: Mapping[str, Mapping[str, Published]],
    *,
    larger_is_better: bool,
    compare: Compare | None = None,
    moving: Mapping[tuple[str, str], float] | None = None,
) -> Iterator[Finding]:
    """Cells of a table of scores, then the orders that its published means tell apart.

    Orders are tested over all runs of two families, or as ``compare`` has it. ``moving`` says how far the mean of a
    data set and family still moved.

    >>> import pandas as pd
    >>> from unseam.papers.bhowal2024.setups import CELLS
    >>> rows = pd.DataFrame([{"world": "w", "family": one.family, "beta": one.beta, "a": 0.5} for one in CELLS])
    >>> said = {"dSprites": dict.fromkeys(("β-TCVAE", "β-VAE", "VAE"), Published(0.5, 0.1))}
    >>> found = score_findings(rows.assign(world="sprites"), "a", "A", said, larger_is_better=True)
    >>> [one.verdict for one in found][2:4]
    ['reproduced', 'not reproduced']
    """
    for world, part in worlds(members):
        said = published[PRINTED[world]]
        runs: dict[str, Any] = {one.family: own[name].to_numpy(dtype=float) for one, own in cells_of(part)}
        drift = {family: (moving or {}).get((world, family), 0.0) for family in runs}
        for family, values in runs.items():
            found = cell(f"{NAMES[world]}, {family}: {words}", said[family], values)
            yield unsettled(found, drift[family], SETTLED)
        for low, high in ordered_pairs(said, larger_is_better=larger_is_better):
            quantity = f"{NAMES[world]}: {words} of {low} less that of {high}"
            if compare is None:
                found = order(quantity, runs[low], runs[high])
            else:
                found = compare(quantity, part, name, low, high)
            yield unsettled(found, max(drift[low], drift[high]), SETTLED)


def ordered_pairs(published: Mapping[str, Published], *, larger_is_better: bool) -> Iterator[tuple[str, str]]:
    """Families of which the first should have the lower score.

    VAE is worse than both others in all of the paper's rows; the other two are compared where their published means
    differ by more than their spreads together.

    >>> said = {"β-TCVAE": Published(0.5, 0.1), "β-VAE": Published(0.2, 0.1), "VAE": Published(0.1, 0.1)}
    >>> list(ordered_pairs(said, larger_is_better=True))
    [('VAE', 'β-VAE'), ('VAE', 'β-TCVAE'), ('β-VAE', 'β-TCVAE')]
    """
    first, second = published["β-TCVAE"], published["β-VAE"]
    pairs = [("VAE", "β-VAE"), ("VAE", "β-TCVAE")]
    if abs(first.mean - second.mean) > float(np.hypot(first.std, second.std)):
        ahead = (first.mean > second.mean) == larger_is_better
        pairs.append(("β-VAE", "β-TCVAE") if ahead else ("β-TCVAE", "β-VAE"))
    for worse, better in pairs:
        yield (worse, better) if larger_is_better else (better, worse)


def moved(path: pd.DataFrame, name: str) -> dict[tuple[str, str], float]:
    """How far the mean over models of each data set and family moved from the last mark to the end of training.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"world": "w", "family": "VAE", "beta": 1.0, "step": [5, 5, 10, 10], "a": [1, 2, 2, 3]})
    >>> moved(rows, "a")
    {('w', 'VAE'): 1.0}
    """
    found: dict[tuple[str, str], float] = {}
    for world, part in worlds(path):
        for one, own in cells_of(part):
            means = own.groupby("step")[name].mean().sort_index().to_numpy(dtype=float)
            found[world, one.family] = float(abs(means[-1] - means[-2])) if len(means) > 1 else 0.0
    return found


def unsettled(finding: Finding, moved: float, most: float, *, of: str = "") -> Finding:
    """A finding about what had not settled: nothing is reproduced by it, and it says why.

    >>> found = Finding("MIG", "0.5", 0.5, None, None, "reproduced", "± 0.1")
    >>> unsettled(found, 0.2, 0.1).verdict, unsettled(found, 0.05, 0.1).verdict
    ('partly', 'reproduced')
    """
    if moved <= most:
        return finding
    said: Verdict = "partly" if finding.verdict == "reproduced" else finding.verdict
    return finding._replace(
        verdict=said, note=f"{finding.note}; not settled: moved by {moved:.2g} {of}".rstrip()
    )


def _signed_rank(low: NDArray[np.float64], high: NDArray[np.float64]) -> float:
    from scipy import stats

    return float(stats.wilcoxon(low, high, alternative="less").pvalue) if (low != high).any() else 1.0
