"""Claims of the papers: frozen values that carry their rule in words and judge tables by it."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd

    Tables = Mapping[str, pd.DataFrame]

__all__ = [
    "ASSUMED_RUNS",
    "LEVEL",
    "OUTCOMES",
    "Bound",
    "Bounds",
    "Cell",
    "Claim",
    "Confusion",
    "Correlation",
    "Correlations",
    "Curve",
    "Finding",
    "Identities",
    "Identity",
    "Order",
    "Orders",
    "Outcome",
    "Row",
    "Trends",
    "Values",
    "bootstrap_indices",
    "holm",
    "mean_interval",
]

Floats = NDArray[np.float64]
Outcome = Literal["holds", "agrees", "false as printed", "differs", "cannot tell", "not run"]
OUTCOMES: tuple[Outcome, ...] = ("holds", "agrees", "false as printed", "differs", "cannot tell", "not run")

LEVEL = 0.05
"""Of every test, after Holm's correction within a claim."""
ASSUMED_RUNS = 10
"""Number of runs behind a published mean ± SD whose paper does not state it."""
RESAMPLINGS = 2000
MOST_CASES = 1000
"""Up to which the number of cases that a share needs is looked for."""
PERMUTATIONS = 10_000
"""Arrangements of a permutation test: all where there are at most so many, otherwise so many at random."""
SIMULATED = 4000
EXACT = 40
"""Runs up to which the distribution of a rank statistic is counted out."""
WIDEST = 3.0
"""Published SDs that the margin of a cell has at most: nearly all of the paper's own runs lie within."""


class Finding(NamedTuple):
    """What one claim says of one quantity: published beside measured, and whether they agree."""

    quantity: str
    published: str
    measured: float | None
    lower: float | None
    """Lower end of the 95 % interval, or none where the number is exact."""
    upper: float | None
    outcome: Outcome
    sd: float | None = None
    """Standard deviation over runs."""
    n: int | None = None
    """Number of runs, pairs, or random cases."""
    p: float | None = None
    """After Holm's correction within the claim: of the stated sign, or of the other one where the outcome differs."""
    note: str = ""
    ours: bool = False
    """Whether it is a check of our own, beyond what the paper claims."""


class Confusion(NamedTuple):
    """How often a rule lets models pass."""

    wrong: int
    """Wrong models that pass."""
    tried: int
    right: float = math.nan
    """Share of right models that would agree: runs drawn from the published cell, as many as ours; NaN without SD."""


@dataclass(frozen=True)
class Claim(ABC):
    """What a paper says of one or several quantities, and the rule that decides whether our tables agree.

    Attributes:
        says: the paper's statement, with where it stands (``Table 2: ...``).
        cases: what is compared, from the tables of an artefact; a kind of claim defines the type of a case.
        ours: whether it is a check of our own, beyond what the paper claims; these have a tally of their own.
    """

    says: str
    cases: Callable[[Tables], Iterable[Any]]
    ours: bool = False

    @property
    @abstractmethod
    def rule(self) -> str:
        """How an outcome is decided, in words."""

    @abstractmethod
    def findings(self, cases: Sequence[Any]) -> Iterator[Finding]:
        """Findings on all cases; a test is corrected for as many as there are."""

    def judge(self, tables: Tables) -> tuple[Finding, ...]:
        """What the tables say of this claim."""
        found = self.findings(list(self.cases(tables)))
        return tuple(finding._replace(ours=self.ours) for finding in found)


@dataclass(frozen=True)
class Case:
    """What a claim is about; a kind of claim has a kind of case."""

    quantity: str
    note: str = field(default="", kw_only=True)
    doubt: str = field(default="", kw_only=True)
    """Why nothing can be concluded whatever the numbers are, such as trainings that have not converged."""


# Statements without chance


@dataclass(frozen=True)
class Identity(Case):
    """A number that a statement fixes up to rounding."""

    published: str
    value: float
    """Largest deviation over ``n`` cases, or the number itself where the tolerance is around ``expected``."""
    tolerance: float
    expected: float = 0.0
    n: int | None = None


@dataclass(frozen=True)
class Identities(Claim):
    """Exact statements: an equation, or an inequality as the amount by which it is violated.

    >>> claim = Identities("Prop. 1: a = b", lambda tables: [Identity("a - b", "0", tables["t"]["gap"], 1e-9)])
    >>> claim.judge({"t": {"gap": 1e-12}})[0].outcome, claim.judge({"t": {"gap": 0.5}})[0].outcome
    ('holds', 'false as printed')
    """

    rule = (
        "Holds where the number equals the stated one within its tolerance, which allows for rounding, quadrature or "
        "a step of a grid and stands in the note; otherwise the statement is false as printed, and the number is the "
        "counterexample."
    )

    def findings(self, cases: Sequence[Identity]) -> Iterator[Finding]:
        """One finding per number."""
        for case in cases:
            value = float(case.value)
            outcome: Outcome = "cannot tell"
            if not math.isnan(value):
                outcome = "holds" if abs(value - case.expected) <= case.tolerance else "false as printed"
            around = f" around {case.expected:.3g}" if case.expected else ""
            note = _joined(f"tolerance {case.tolerance:.3g}{around}", case.note)
            yield Finding(case.quantity, case.published, value, None, None, outcome, n=case.n, note=note)


# Numbers over runs


@dataclass(frozen=True)
class Bound(Case):
    """A number that should lie within bounds: over runs, as a share of cases, or with an interval of its own."""

    published: str
    runs: ArrayLike = ()
    """One number per run."""
    least: float = -math.inf
    most: float = math.inf
    share: tuple[int, int] | None = None
    """Instead of runs: successes and random cases."""
    estimate: tuple[float, float, float] | None = None
    """Instead of runs: a number and the ends of its 95 % interval, such as a bootstrap's."""
    n: int | None = None
    """Runs behind an estimate."""
    wrong: Mapping[str, ArrayLike] = field(default_factory=dict)
    """The same number of models that should not pass, over their runs, by name."""


@dataclass(frozen=True)
class Bounds(Claim):
    """A mean over runs, or a share of random cases, that lies within stated bounds.

    Attributes:
        statistic: of the runs; the median where a mean would hide two modes.

    >>> claim = Bounds("§1: x is small", lambda tables: [Bound("x", "small", [0.1, 0.2, 0.15], most=0.5)])
    >>> claim.judge({})[0].outcome
    'agrees'
    """

    statistic: Literal["mean", "median"] = "mean"

    @property
    def rule(self) -> str:
        """How an outcome is decided, in words."""
        interval = "Student's t" if self.statistic == "mean" else "bootstrap"
        return (
            f"Agrees where the 95 % interval ({interval} for the {self.statistic} over runs, Clopper–Pearson for a "
            "share of cases, bootstrap over runs for other estimates) lies within the stated bounds, differs where it "
            "lies outside, and cannot be told where it contains a bound or there are fewer than three runs; the note "
            "says how many cases a share needs where it could not agree with any number of successes. A number "
            "without chance has no interval and is compared as it is. The bounds stand in the note, and beside them "
            "wrong models, which should lie outside, where the tables have some."
        )

    def findings(self, cases: Sequence[Bound]) -> Iterator[Finding]:
        """One finding per quantity."""
        from scipy.stats import binomtest

        for case in cases:
            runs = _finite(case.runs)
            n, counted, value, ends = len(runs), "", math.nan, (math.nan, math.nan)
            if case.share is not None:
                successes, n = case.share
                value, counted = successes / n, f"{successes} of {n}"
                reach = binomtest(*case.share).proportion_ci()
                ends = (float(reach.low), float(reach.high))
            elif case.estimate is not None:
                n, value, ends = case.n or 0, case.estimate[0], case.estimate[1:]
            elif n:
                value = self._middle(runs)
                ends = mean_interval(runs) if self.statistic == "mean" else median_interval(runs)
            shown: tuple[float | None, float | None] = (None, None) if n < 3 else ends
            few = "fewer than three runs" if n < 3 and (case.estimate is None or ends[0] != ends[1]) else ""
            lacking = "" if case.share is None or _can_agree(case, n) else _lacking(case, n)
            outcome: Outcome = "cannot tell"
            if not (case.doubt or few):
                if case.least <= ends[0] and ends[1] <= case.most:
                    outcome = "agrees"
                elif ends[1] < case.least or ends[0] > case.most:
                    outcome = "differs"
            yield Finding(
                case.quantity,
                case.published,
                None if math.isnan(value) else value,
                *shown,
                outcome,
                sd=_sd(runs),
                n=n,
                note=_joined(
                    counted, _limits(case), *self._controls(case), case.note, case.doubt, few, lacking
                ),
            )

    def confusion(self, tables: Tables) -> Confusion:
        """How many wrong models lie within the bounds."""
        notes = [note for case in self.cases(tables) for note in self._controls(case)]
        return Confusion(sum(note.endswith("within") for note in notes), len(notes))

    def decidable(self, tables: Tables) -> tuple[int, int]:
        """How many cases have enough runs, or cases of a share, to agree at all, and how many there are."""
        cases = list(self.cases(tables))
        enough = [
            _can_agree(case, case.share[1])
            if case.share is not None
            else case.estimate is not None or len(_finite(case.runs)) > 2
            for case in cases
        ]
        return sum(enough), len(cases)

    def _middle(self, runs: ArrayLike) -> float:
        return float(getattr(np, self.statistic)(_finite(runs)))

    def _controls(self, case: Bound) -> Iterator[str]:
        """Number of each wrong model that has runs, and whether it lies within the bounds."""
        for name, runs in ((name, runs) for name, runs in case.wrong.items() if len(_finite(runs))):
            middle = self._middle(runs)
            yield f"{name}: {middle:.3g}, {'within' if case.least <= middle <= case.most else 'outside'}"


def _limits(case: Bound) -> str:
    if math.isfinite(case.least) and math.isfinite(case.most):
        return f"bounds: {case.least:g} to {case.most:g}"
    return f"bound: at least {case.least:g}" if math.isinf(case.most) else f"bound: at most {case.most:g}"


def _can_agree(case: Bound, n: int) -> bool:
    """Whether the Clopper–Pearson interval of any number of successes among so many cases lies within the bounds."""
    from scipy.stats import beta

    successes = np.arange(n + 1)
    lower = np.nan_to_num(beta.ppf(0.025, successes, n - successes + 1), nan=0.0)
    upper = np.nan_to_num(beta.ppf(0.975, successes + 1, n - successes), nan=1.0)
    return bool(((case.least <= lower) & (upper <= case.most)).any())


def _lacking(case: Bound, n: int) -> str:
    needed = next((more for more in range(n + 1, MOST_CASES) if _can_agree(case, more)), None)
    return "no number of cases could agree" if needed is None else f"could agree with {needed} cases or more"


# Published cells


class Cell(NamedTuple):
    """A published number: mean ± SD over runs, or a number alone.

    >>> str(Cell(0.33, 0.15)), str(Cell(97.8))
    ('0.33 ± 0.15', '97.8')
    """

    mean: float
    sd: float | None = None
    n: int = ASSUMED_RUNS
    digit: float = 0.01
    """The last printed digit."""

    def __str__(self) -> str:
        if self.sd is None:
            return f"{self.mean:g}"
        places = max(0, -round(math.log10(self.digit)))
        return f"{self.mean:.{places}f} ± {self.sd:.{places}f}"

    @property
    def spread(self) -> float:
        """The SD, of half a printed digit at least; zero where none is printed."""
        return 0.0 if self.sd is None else max(self.sd, self.digit / 2)

    def differs_from(self, other: Cell) -> bool:
        """Whether the paper itself tells two cells apart.

        Welch's test at the published SD and number of runs; without an SD, printed digits that differ.

        >>> Cell(0.76, 0.08).differs_from(Cell(1.08, 0.15)), Cell(0.33, 0.18).differs_from(Cell(0.34, 0.35))
        (True, False)
        """
        if self.sd is None or other.sd is None:
            return abs(self.mean - other.mean) > max(self.digit, other.digit) / 2
        from scipy.stats import ttest_ind_from_stats

        ours, theirs = (self.mean, self.spread, self.n), (other.mean, other.spread, other.n)
        return bool(ttest_ind_from_stats(*ours, *theirs, equal_var=False).pvalue < LEVEL)


class Row(NamedTuple):
    """A row of a published table beside our runs of the same models."""

    words: str
    """The quantity and the data set."""
    published: Mapping[str, Cell]
    runs: Mapping[str, ArrayLike]
    """Our runs by the names of the cells; a name that is not among them is a wrong model for every cell."""
    notes: Mapping[str, str] = {}
    doubts: Mapping[str, str] = {}
    """Why nothing can be concluded from a model's runs, such as that these have not converged."""
    trivial: Mapping[str, float] = {}
    """Values of models without what the table is about, such as 0 of a collapsed one: wrong models for every cell."""

    def margin(self, name: str) -> tuple[float, str] | None:
        """Half the distance to the nearest cell that differs, or what caps it, in words; none where no cell does."""
        own = self.published[name]
        others = {
            f"half way to {other}": abs(cell.mean - own.mean) / 2
            for other, cell in self._others(name).items()
            if own.differs_from(cell)
        }
        if not others:
            return None
        if own.sd is not None:
            others[f"{WIDEST:g} published SDs"] = WIDEST * own.spread
        nearest = min(others, key=others.__getitem__)
        return others[nearest], nearest

    def is_wrong(self, model: str, name: str) -> bool:
        """Whether a model is a wrong one for a cell: another one, that the paper tells apart from it."""
        other = self._others(name).get(model)
        return model != name and (other is None or self.published[name].differs_from(other))

    def _others(self, name: str) -> dict[str, Cell]:
        """Cells of other models, trivial ones with exact values."""
        own = self.published[name]
        exact = {model: own._replace(mean=value, sd=own.sd and 0.0) for model, value in self.trivial.items()}
        return {model: cell for model, cell in {**self.published, **exact}.items() if model != name}


@dataclass(frozen=True)
class Values(Claim):
    """Published cells, by an equivalence test whose margin keeps the models of a row apart.

    Attributes:
        exclusive: whether rows are alternatives of which at most one can be right, such as readings of a text.

    >>> said = {"VAE": Cell(0.2, 0.02), "AE": Cell(0.8, 0.1)}
    >>> row = Row("DtO", said, {"VAE": [0.21, 0.19, 0.2, 0.22], "AE": [0.3, 0.35, 0.32, 0.33]})
    >>> [finding.outcome for finding in Values("Table 1", lambda tables: [row]).judge({})]
    ['agrees', 'differs']
    """

    exclusive: bool = False

    @property
    def rule(self) -> str:
        """How an outcome is decided, in words."""
        return (
            "A cell agrees where two one-sided Welch tests (5 % each) place our mean within a margin of the published "
            "one; it differs where our mean lies outside the margin by the same tests; otherwise it cannot be told. "
            "The margin is half the distance to the nearest cell of the row, or value of a model without what the "
            "table is about, such as 0 of a collapsed one, that differs from it by a Welch test (5 %) at the published "
            f"SD and number of runs ({ASSUMED_RUNS} where it is not stated); and at most {WIDEST:g} published SDs, "
            "within which nearly all of the paper's own runs lie. Where no cell differs, nothing can be told. A number "
            "without SD is compared with our median, by a 90 % bootstrap interval widened by its last digit, since the "
            "number and the margin are known to half of it each."
            + self.exclusive
            * " At most one alternative can be right: where several agree, none can be told."
        )

    def findings(self, cases: Sequence[Row]) -> Iterator[Finding]:
        """One finding per published cell that we have runs of."""
        found = [self._cell(row, name) for row in cases for name in row.published if name in row.runs]
        passed = sum(one.outcome == "agrees" for one in found)
        for one in found:
            if self.exclusive and passed > 1 and one.outcome == "agrees":
                note = _joined(one.note, f"would agree, as {passed} alternatives do")
                yield one._replace(outcome="cannot tell", note=note)
            else:
                yield one

    def _cell(self, row: Row, name: str) -> Finding:
        cell, runs, margin = row.published[name], _finite(row.runs[name]), row.margin(name)
        outcome, middle = equivalence(cell, runs, None if margin is None else margin[0])
        interval: tuple[float | None, float | None] = (None, None)
        if len(runs) > 2:
            interval = median_interval(runs) if cell.sd is None else mean_interval(runs)
        far = "no published cell of the row differs from it"
        if margin is not None:
            far = f"margin {margin[0]:.2g} ({margin[1]})"
        doubt = row.doubts.get(name, "")
        return Finding(
            f"{row.words}, {name}",
            str(cell),
            middle,
            *interval,
            "cannot tell" if doubt else outcome,
            sd=_sd(runs),
            n=len(runs),
            note=_joined(far, row.notes.get(name, ""), doubt),
        )

    def confusion(self, tables: Tables) -> Confusion:
        """How many wrong models pass, ours of another column or trivial ones, and which share of right ones would."""
        wrong = tried = 0
        right = []
        for row in self.cases(tables):
            for name, cell in row.published.items():
                margin = row.margin(name)
                limit = None if margin is None else margin[0]
                trivial = {model: np.full(ASSUMED_RUNS, value) for model, value in row.trivial.items()}
                for model, runs in {**row.runs, **trivial}.items():
                    if row.is_wrong(model, name):
                        tried += 1
                        wrong += equivalence(cell, _finite(runs), limit)[0] == "agrees"
                if name in row.runs:
                    right.append(_power(cell, len(_finite(row.runs[name])), limit))
        known = [share for share in right if not math.isnan(share)]
        return Confusion(wrong, tried, float(np.mean(known)) if known else math.nan)


def equivalence(cell: Cell, runs: Floats, margin: float | None) -> tuple[Outcome, float | None]:
    """Whether runs are equivalent to a published cell within a margin, and their mean or median.

    >>> equivalence(Cell(0.5, 0.1), np.array([0.5, 0.52, 0.48, 0.51]), 0.1)[0]
    'agrees'
    """
    if not len(runs):
        return "cannot tell", None
    middle = float(np.median(runs) if cell.sd is None else runs.mean())
    if margin is None or len(runs) < 3:
        return "cannot tell", middle
    if cell.sd is None:
        lower, upper = median_interval(runs, 1 - 2 * LEVEL)
        # the number is known to half a digit, and so is the margin, half the distance of two such numbers
        lower, upper = lower - cell.digit, upper + cell.digit
        apart = max(abs(lower - cell.mean), abs(upper - cell.mean))
        closest = max(lower - cell.mean, cell.mean - upper, 0.0)
    else:
        reach = float(_reach(cell, np.asarray(runs.std(ddof=1)), len(runs)))
        apart, closest = abs(middle - cell.mean) + reach, abs(middle - cell.mean) - reach
    return ("agrees" if apart <= margin else "differs" if closest > margin else "cannot tell"), middle


def _reach(cell: Cell, sd: Floats, n: int) -> Floats:
    """Half width of the 90 % interval of the difference of two means (Welch)."""
    from scipy import stats

    ours, theirs = sd**2 / n, cell.spread**2 / cell.n
    freedom = (ours + theirs) ** 2 / (ours**2 / (n - 1) + theirs**2 / (cell.n - 1))
    return np.asarray(stats.t.ppf(1 - LEVEL, freedom) * np.sqrt(ours + theirs))


def _power(cell: Cell, n: int, margin: float | None) -> float:
    """Share of right models that would agree, with the published mean itself a mean of its ``n`` runs."""
    if cell.sd is None:
        return math.nan
    if margin is None or n < 3:
        return 0.0
    draw = np.random.default_rng(0)
    truth = cell.mean + draw.normal(size=(SIMULATED, 1)) * cell.spread / math.sqrt(cell.n)
    runs = truth + cell.spread * draw.normal(size=(SIMULATED, n))
    apart = np.abs(runs.mean(1) - cell.mean) + _reach(cell, runs.std(1, ddof=1), n)
    return float((apart <= margin).mean())


# Orders and correlations: one-sided tests of a number's sign


class SignTest(NamedTuple):
    """A number that should have a sign."""

    value: float | None
    """None where there are too few runs."""
    lower: float
    """Infinite, as ``upper``, where the runs are too few for an interval."""
    upper: float
    p: tuple[float, float]
    """One-sided, of the stated sign and of the other one."""
    smallest: float
    """The smallest p that so many runs, with their ties, can give."""
    n: int
    counted: str = ""


@dataclass(frozen=True)
class _Signs(Claim):
    """Numbers whose sign is stated, tested one-sidedly within one family."""

    @abstractmethod
    def test(self, case: Any) -> tuple[SignTest, str]:
        """The test of a case, and the stated sign in words."""

    def findings(self, cases: Sequence[Any]) -> Iterator[Finding]:
        """One finding per number."""
        tests = [self.test(case) for case in cases]
        forward, backward = (holm([one.p[side] for one, _ in tests]) for side in (0, 1))
        for case, (one, said), ahead, behind in zip(cases, tests, forward, backward, strict=True):
            if one.value is None:
                note = _joined(case.note, "too few runs")
                yield Finding(case.quantity, said, None, None, None, "cannot tell", note=note)
                continue
            sign = 1 if getattr(case, "positive", False) else -1
            outcome: Outcome = "cannot tell"
            if not case.doubt and ahead < LEVEL and min(sign * one.lower, sign * one.upper) > 0:
                outcome = "agrees"
            elif not case.doubt and behind < LEVEL and max(sign * one.lower, sign * one.upper) < 0:
                outcome = "differs"
            note = _joined(one.counted + f"smallest attainable p {one.smallest:.2g}", case.note, case.doubt)
            lower, upper = (end if math.isfinite(end) else None for end in (one.lower, one.upper))
            p = behind if outcome == "differs" else ahead
            yield Finding(case.quantity, said, one.value, lower, upper, outcome, n=one.n, p=p, note=note)

    def decidable(self, tables: Tables) -> tuple[int, int]:
        """How many cases have the runs for an interval and p < 0.05 after Holm's correction, and how many there are."""
        tests = [self.test(case)[0] for case in self.cases(tables)]
        smallest = holm([one.smallest for one in tests])
        able = (p < LEVEL and math.isfinite(one.lower) for p, one in zip(smallest, tests, strict=True))
        return sum(able), len(tests)


@dataclass(frozen=True)
class Order(Case):
    """Runs that should lie below others; the quantity is that of the shift, lower less higher."""

    low: ArrayLike
    high: ArrayLike
    paired: bool = False
    """Whether runs at the same place belong together, such as models of one seed."""
    published: str = "< 0"


@dataclass(frozen=True)
class Orders(_Signs):
    """Runs of one kind lie below those of another.

    >>> pair = Order("DtO of VAE less AE's", [0.1, 0.2, 0.3, 0.2, 0.1], [0.8, 0.9, 1.0, 0.7, 0.9])
    >>> Orders("Table 2: VAE is lower", lambda tables: [pair]).judge({})[0].outcome
    'agrees'
    """

    rule = (
        "An order agrees where a one-sided test over runs (Mann–Whitney, or Wilcoxon's signed ranks where runs are "
        "paired) gives p < 0.05 after Holm's correction within this claim and the 95 % interval of the Hodges–Lehmann "
        "shift, which inverts that test, excludes zero; it differs where the same holds of the reverse order, whose p "
        "is then shown; otherwise it cannot be told."
    )

    def test(self, case: Order) -> tuple[SignTest, str]:
        """Rank tests and the shift that inverts them."""
        from scipy import stats

        low, high = np.asarray(case.low, dtype=float), np.asarray(case.high, dtype=float)
        if case.paired:
            known = np.isfinite(low) & np.isfinite(high)
            low, high = low[known], high[known]
        else:
            low, high = _finite(low), _finite(high)
        if min(len(low), len(high)) < 2:
            return SignTest(None, math.nan, math.nan, (1.0, 1.0), 1.0, 0), case.published
        ranks = stats.wilcoxon if case.paired else stats.mannwhitneyu
        p = (1.0, 1.0)
        if not case.paired or (low != high).any():
            ahead, behind = (ranks(low, high, alternative=side).pvalue for side in ("less", "greater"))
            p = (float(ahead), float(behind))
        n, counts = len(low), f"{len(low)} pairs, "
        if not case.paired:
            n, counts = len(low) + len(high), f"{len(low)} and {len(high)} runs, "
        smallest = _smallest(low, high, paired=case.paired)
        return SignTest(*shift(low, high, paired=case.paired), p, smallest, n, counts), case.published


def _smallest(low: Floats, high: Floats, *, paired: bool) -> float:
    """The smallest p of a rank test: of runs in the stated order, with their ties, among all arrangements of them."""
    if paired:
        return 0.5 ** int((low != high).sum())
    pooled = np.sort(np.concatenate([low, high]))
    last, m = pooled[len(low) - 1], len(low)
    alike, below = int((pooled == last).sum()), int((pooled < last).sum())
    return math.comb(alike, m - below) / math.comb(len(pooled), m)


@dataclass(frozen=True)
class Correlation(Case):
    """Two measures of the same runs."""

    first: ArrayLike
    second: ArrayLike
    groups: ArrayLike | None = None
    """Equal for values that belong together, such as those of one run, or of one cell of a design whose settings drive
    both measures: drawn together, and exchanged as a whole."""
    positive: bool = False
    strata: ArrayLike | None = None
    """Equal for values that are compared with one another alone, such as ranks among restarts: exchanged within."""


@dataclass(frozen=True)
class Correlations(_Signs):
    """Two measures go together, or against each other, over runs.

    >>> pair = Correlation("DtO and score", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.9, 0.8, 0.5, 0.4, 0.3, 0.2])
    >>> Correlations("Figure 3: DtO against the score", lambda tables: [pair]).judge({})[0].outcome
    'agrees'
    """

    rule = (
        "Spearman's ρ agrees where a one-sided permutation test gives p < 0.05 after Holm's correction within this "
        "claim and its 95 % bootstrap interval over runs excludes zero; it differs where the same holds with the "
        "sides exchanged, whose p is then shown; otherwise it cannot be told. Values of one run, or of one cell of a "
        "design whose settings drive both measures, are exchanged together, and ranks within their own group; all "
        f"arrangements are tried, or {PERMUTATIONS} at random where there are more."
    )

    def test(self, case: Correlation) -> tuple[SignTest, str]:
        """Permutations of the second measure, and a bootstrap interval."""
        said = "positive" if case.positive else "negative"
        values = np.stack([np.asarray(part, dtype=float) for part in (case.first, case.second)])
        known = np.isfinite(values).all(0)
        groups, strata = (
            None if labels is None else np.asarray(labels)[known] for labels in (case.groups, case.strata)
        )
        values = values[:, known]
        count = values.shape[1]
        if count < 4 or not np.ptp(values, axis=1).all():
            return SignTest(None, math.nan, math.nan, (1.0, 1.0), 1.0, count), said
        draws = bootstrap_indices(count, groups)
        if len({len(chosen) for chosen in draws}) == 1:
            drawn = rank_correlation(values[:, np.stack(draws)])
        else:
            drawn = np.array([rank_correlation(values[:, chosen]) for chosen in draws])
        lower, upper = (float(end) for end in np.nanquantile(drawn, (0.025, 0.975)))
        orders = arrangements(count, groups, strata)
        exchanged = rank_correlation(np.stack([np.broadcast_to(values[0], orders.shape), values[1][orders]]))
        along, rounding = exchanged if case.positive else -exchanged, 1e-9
        ahead, behind = along >= along[0] - rounding, along <= along[0] + rounding
        p = (float(ahead.mean()), float(behind.mean()))
        smallest = float((along >= along.max() - rounding).mean())
        return SignTest(float(exchanged[0]), lower, upper, p, smallest, count), said


def arrangements(
    count: int, groups: ArrayLike | None = None, strata: ArrayLike | None = None
) -> NDArray[np.int64]:
    """Indices (arrangement, value) of a permutation test, the first one in order; the same at every call.

    All of them where there are at most :data:`PERMUTATIONS`, otherwise so many, drawn at random.

    Args:
        count: how many values.
        groups: equal for values that are exchanged as a whole, with groups of the same size.
        strata: equal for values, or for the groups of them, that are exchanged with one another alone.

    >>> arrangements(4, groups=[0, 0, 1, 1]).tolist()
    [[0, 1, 2, 3], [2, 3, 0, 1]]
    >>> arrangements(4, strata=[0, 0, 1, 1]).tolist()
    [[0, 1, 2, 3], [0, 1, 3, 2], [1, 0, 2, 3], [1, 0, 3, 2]]
    """
    units = _members(np.arange(count) if groups is None else groups)
    blocked = _labels(np.zeros(count) if strata is None else strata)
    kinds = _labels([blocked[unit[0]] * (count + 1) + len(unit) for unit in units])
    blocks = [np.stack([units[place] for place in kind]) for kind in _members(kinds) if len(kind) > 1]
    if math.prod(math.factorial(len(block)) for block in blocks) <= PERMUTATIONS:
        every = [np.array(list(itertools.permutations(range(len(block))))) for block in blocks]
        chosen = np.indices([len(orders) for orders in every]).reshape(len(every), -1)
        each = [orders[own] for orders, own in zip(every, chosen, strict=True)]
    else:
        each = [np.tile(np.arange(len(block)), (PERMUTATIONS, 1)) for block in blocks]
        draw = np.random.default_rng(0)
        for orders in each:
            draw.permuted(orders[1:], axis=1, out=orders[1:])
    found = np.tile(np.arange(count), (len(each[0]) if each else 1, 1))
    for block, orders in zip(blocks, each, strict=True):
        found[:, block.ravel()] = block[orders].reshape(len(orders), -1)
    return found


def rank_correlation(values: Floats) -> Floats:
    """Spearman's ρ (...) of two samples (2, ..., value); NaN where one does not vary.

    >>> rank_correlation(np.array([[1.0, 2.0, 3.0], [1.0, 4.0, 9.0]])).round(6).tolist()
    1.0
    """
    from scipy.stats import rankdata

    ranks = rankdata(values, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    size = np.sqrt((centred**2).sum(-1)).prod(0)
    return np.divide(
        (centred[0] * centred[1]).sum(-1), size, out=np.full(size.shape, math.nan), where=size > 0
    )


# Curves


@dataclass(frozen=True)
class Curve(Case):
    """Values (abscissa, run) of a curve that should fall, or rise, all along."""

    published: str
    values: ArrayLike
    rising: bool = False


@dataclass(frozen=True)
class Trends(Claim):
    """A curve is monotonic along its whole length.

    Attributes:
        tolerance: the largest step against the trend that counts as none, as a fraction of the curve's range.

    >>> falling = Curve("KL", "decreasing", [[3.0, 3.1, 2.9], [2.0, 2.1, 1.9], [1.0, 1.1, 0.9]])
    >>> Trends("Prop. 2: KL falls", lambda tables: [falling]).judge({})[0].outcome
    'agrees'
    """

    tolerance: float = 0.02

    @property
    def rule(self) -> str:
        """How an outcome is decided, in words."""
        return (
            "A trend is judged by the largest change against it between any earlier and any later point of the mean "
            "curve, as a fraction of the curve's range: it agrees where the 95 % bootstrap limit over runs is at most "
            f"{self.tolerance:g}, differs where the lower limit is above that, and otherwise cannot be told. Exact "
            "curves hold or are false as printed by the same number. Runs with undefined values are left out."
        )

    def findings(self, cases: Sequence[Curve]) -> Iterator[Finding]:
        """One finding per curve."""
        for case in cases:
            values = np.asarray(case.values, dtype=float)
            if values.ndim != 2 or len(values) < 2:
                raise ValueError(f"values of a curve must be (abscissa, run), got shape {values.shape}")
            known = np.isfinite(values).all(0)
            left_out = f"{int((~known).sum())} runs with undefined values left out" if not known.all() else ""
            values = values[:, known] if case.rising else -values[:, known]
            exact, n = len(known) == 1, values.shape[1]
            against: float | None = None
            ends: tuple[float | None, float | None] = (None, None)
            outcome: Outcome = "cannot tell"
            if not case.doubt and (n >= 3 or (exact and n)) and np.ptp(values.mean(1)):
                against = float(_against(values.mean(1)[:, None])[0])
                lower = upper = against
                if not exact:
                    drawn = values[:, np.stack(bootstrap_indices(n))].mean(-1)
                    lower, upper = (float(end) for end in np.quantile(_against(drawn), (0.025, 0.975)))
                    ends = (lower, upper)
                if upper <= self.tolerance:
                    outcome = "holds" if exact else "agrees"
                elif lower > self.tolerance:
                    outcome = "false as printed" if exact else "differs"
            note = _joined(case.note, left_out, case.doubt)
            judged = None if exact or against is None else n
            yield Finding(case.quantity, case.published, against, *ends, outcome=outcome, n=judged, note=note)


def _against(curves: Floats) -> Floats:
    """Largest fall of rising curves (abscissa, curve) from an earlier to a later point, of their range."""
    fall = (np.maximum.accumulate(curves, axis=0) - curves).max(0)
    extent = np.ptp(curves, axis=0)
    return np.divide(fall, extent, out=np.zeros_like(fall), where=extent > 0)


# Statistics


def mean_interval(runs: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean over runs; NaN for fewer than two.

    >>> mean_interval([1.0, 1.0, 1.0])
    (1.0, 1.0)
    """
    from scipy import stats

    values = np.asarray(runs, dtype=float)
    if len(values) < 2:
        return math.nan, math.nan
    reach = float(stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return float(values.mean()) - reach, float(values.mean()) + reach


def median_interval(runs: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Bootstrap percentile interval of the median over runs."""
    values = np.asarray(runs, dtype=float)
    medians = np.median(values[np.stack(bootstrap_indices(len(values)))], axis=1)
    lower, upper = np.quantile(medians, ((1 - level) / 2, (1 + level) / 2))
    return float(lower), float(upper)


def bootstrap_indices(count: int, groups: ArrayLike | None = None) -> list[NDArray[np.int64]]:
    """Indices of bootstrap samples, the same at every call; values of one group are drawn together.

    >>> drawn = bootstrap_indices(4, groups=[0, 0, 1, 1])
    >>> len(drawn), all((0 in one) == (1 in one) for one in drawn)
    (2000, True)
    """
    members = _members(np.arange(count) if groups is None else groups)
    draws = np.random.default_rng(0).integers(len(members), size=(RESAMPLINGS, len(members)))
    return [np.concatenate([members[label] for label in draw]) for draw in draws]


def _members(labels: ArrayLike) -> list[NDArray[np.int64]]:
    """Places of the values of each label."""
    found = _labels(labels)
    return [np.flatnonzero(found == label) for label in range(int(found.max()) + 1)]


def _labels(labels: ArrayLike) -> NDArray[np.int64]:
    return np.unique(np.asarray(labels), return_inverse=True)[1]


def shift(low: Floats, high: Floats, *, paired: bool) -> tuple[float, float, float]:
    """Hodges–Lehmann estimate of a shift and the 95 % interval that inverts the rank test; infinite for too few runs.

    The median of all differences of runs, or of Walsh averages where runs are paired (Hodges and Lehmann 1963), and
    order statistics of them at the 2.5 % quantile of the test's distribution: exact up to 40 runs, otherwise normal.

    >>> shift(np.arange(6.0), np.arange(6.0) + 3, paired=True)
    (-3.0, -3.0, -3.0)
    """
    m, n = len(low), len(high)
    if paired:
        away = low - high
        differences, variance = (
            np.add.outer(away, away)[np.triu_indices(m)] / 2,
            m * (m + 1) * (2 * m + 1) / 24,
        )
    else:
        differences, variance = np.subtract.outer(low, high).ravel(), m * n * (m + n + 1) / 12
    ordered = np.sort(differences)
    if m + n <= EXACT:
        cut = int(np.searchsorted(_rank_distribution(m, 0 if paired else n), 0.025, side="right"))
    else:
        cut = int(len(ordered) / 2 - 1.959964 * math.sqrt(variance))
    ends = (float(ordered[cut - 1]), float(ordered[-cut])) if cut else (-math.inf, math.inf)
    return float(np.median(ordered)), *ends


def _rank_distribution(m: int, n: int) -> Floats:
    """Distribution function of the rank sum statistic of m and n runs, or of the signed rank sum of m pairs (n = 0)."""
    ranks = m + n
    ways = np.zeros((m + 1, ranks * (ranks + 1) // 2 + 1))
    ways[0, 0] = 1
    for rank in range(1, ranks + 1):
        ways[1:, rank:] += ways[:-1, :-rank]
    found = ways[m, m * (m + 1) // 2 :] if n else ways.sum(0)
    return np.cumsum(found) / found.sum()


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p values.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    scaled = np.asarray(p_values, dtype=float)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled)) if len(order) else scaled
    return [float(p) for p in corrected]


def _finite(runs: ArrayLike) -> Floats:
    values = np.asarray(runs, dtype=float).ravel()
    return values[np.isfinite(values)]


def _sd(runs: Floats) -> float | None:
    return float(runs.std(ddof=1)) if len(runs) > 1 else None


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
