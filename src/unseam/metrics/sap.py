"""Separated attribute predictability: how much better a factor's best code predicts it than its second best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseam.metrics._inputs import AbstractFitted, Checked, check_inputs, map_members, metric
from unseam.metrics._splits import Halves, gap, halves, leave_out_means, mean_over_varying, split_sizes
from unseam.metrics.intervals import GROUPS, Interval, with_interval

__all__ = ["Sap", "SapSettings", "sap"]

# Of a code or factor whose variance is below this the squared correlation counts as 0, as in the study.
_NO_VARIANCE = 1e-12
# Newton's method ends after finitely many steps, a handful in practice.
_STEPS = 100
_HALVINGS = 40


@dataclass(frozen=True)
class SapSettings(AbstractFitted):
    """Parameters of :func:`sap`."""

    penalty: Annotated[float, {"above": 0}] = 0.01
    """Cost C of a margin violation."""


class Sap(NamedTuple):
    """Separated attribute predictability, and what it is made of."""

    score: Tensor
    """Mean gap over the factors that vary, () or (member,), in [0, 1]."""
    interval: Interval
    """Of the score."""
    predictability: Tensor
    """Accuracy or squared correlation (..., latent, factor)."""
    gaps: Tensor
    """Best code's predictability less the second best's (..., factor)."""
    settings: SapSettings
    """As used: with as many points as there were."""


@metric(SapSettings, check_inputs)
def sap(given: Checked, settings: SapSettings, source: torch.Generator) -> Sap:
    r"""How much better the best code predicts each factor than the second best (Kumar et al. 2018).

    .. math:: \frac{1}{K} \sum_k \left( S_{j_1(k), k} - S_{j_2(k), k} \right)

    with :math:`j_1, j_2` the codes of largest :math:`S_{jk}`: for a discrete factor the held-out accuracy of a
    linear support vector machine on code j alone (one-vs-rest, balanced classes, C = 0.01), for a continuous
    factor the squared correlation on the training points. The machines are those of scikit-learn's
    ``LinearSVC``, whose optimum is found exactly here, where ``LinearSVC`` stops within its tolerance.

    Unchanged by order and sign of codes. Not by their scale: the penalty sees it, above all for small codes. Nor by a
    shift: ``LinearSVC`` penalises the intercept as it does the weight, so a code far from 0 in units of its spread
    (10 000 times, say) cannot be cut at all and predicts one class. Centre such codes first; posterior means are
    centred nearly enough.

    A constant code predicts one class always, of three or more the most frequent, and has squared correlation 0.
    Constant factors are left out of the mean, which is 0 if all are. A class that no training point has is never
    predicted. With one code the second best counts as 0.

    Returns:
        The score and its parts; the interval leaves out groups of the points scored on, without refitting.

    >>> factors = torch.cartesian_prod(torch.arange(2), torch.arange(2)).repeat(100, 1)
    >>> sap(factors.double(), factors).predictability.round(decimals=1)
    tensor([[1.0000, 0.5000],
            [0.5000, 1.0000]], dtype=torch.float64)
    """
    given = given.rescaled(small=False)
    train, test = split_sizes(settings.train, settings.test, given.codes.shape[1])
    split = halves(train, test, given, source)
    scores = _predictabilities(given, split, settings.penalty)
    gaps = gap(scores.mT)
    means = mean_over_varying(gaps, given)
    settings = replace(settings, train=train, test=test)
    return Sap(*with_interval(means), scores[0], gaps[0], settings)


def _predictabilities(given: Checked, split: Halves, penalty: float) -> Tensor:
    """Accuracy or squared correlation (1 + group, member, latent, factor), with all points, then without each group."""
    chosen = [factor for factor, is_discrete in enumerate(given.discrete) if is_discrete]
    accuracies = iter(_accuracies(given, chosen, split, penalty).unbind(-1) if chosen else ())
    columns = [
        next(accuracies) if is_discrete else _squared_correlation(given, factor, split)
        for factor, is_discrete in enumerate(given.discrete)
    ]
    # Few points make fewer groups, and there may be fewer to test on than to train on.
    variants = min(len(column) for column in columns)
    return torch.stack([column[:variants] for column in columns], -1)


def _accuracies(given: Checked, chosen: Sequence[int], split: Halves, penalty: float) -> Tensor:
    """Held-out accuracy (1 + group, member, latent, factor) with all test points, then without each group."""
    columns = [given.factors[split.train, factor] for factor in chosen]
    found = [torch.unique(column, return_inverse=True) for column in columns]
    varied = [labels for values, labels in found if len(values) > 1]
    most = max(len(values) for values, _ in found)

    def measure(codes: Tensor) -> Tensor:
        train, test = codes[:, split.train].double(), codes[:, split.test].double()
        lines = iter(_fit_lines(train, varied, penalty=penalty) if varied else ())
        shares = []
        for factor, (values, _) in zip(chosen, found, strict=True):
            guess = values[_predict_lines(next(lines), test)] if len(values) > 1 else values[:, None, None]
            right = (guess == given.factors[split.test, factor]).expand(len(codes), codes.shape[2], -1)
            shares.append(leave_out_means(right, split.test_groups))
        return torch.stack(shares, -1)

    numbers = given.codes.shape[2] * (4 * len(split.train) * (1 + len(chosen)) + (6 + most) * len(split.test))
    return torch.cat(map_members(given.codes, numbers, measure), 1)


def _squared_correlation(given: Checked, factor: int, split: Halves) -> Tensor:
    """Squared correlation (1 + group, member, latent) of the training points, then without each group."""
    x = given.codes[:, split.train].double()
    y = given.factors[split.train, factor]
    x, y = x - x.mean(1, keepdim=True), y - y.mean()
    count = min(GROUPS, len(y))
    hot = torch.nn.functional.one_hot(split.train_groups, count).double()
    powers = torch.stack([torch.ones_like(x), x, x.square(), x * y[:, None]])
    parts = torch.einsum("smbl,bg->gsml", powers, hot)
    own = torch.einsum("sb,bg->gs", torch.stack([y, y.square()]), hot)[:, :, None, None]
    sums, sum_y = (torch.cat([part.sum(0, keepdim=True), part.sum(0) - part]) for part in (parts, own))
    number, total_x, total_xx, total_xy = sums.unbind(1)
    total_y, total_yy = sum_y.unbind(1)
    number = number.clamp(min=1)
    cross = total_xy - total_x * total_y / number
    spread_x, spread_y = total_xx - total_x**2 / number, total_yy - total_y**2 / number
    least = _NO_VARIANCE * number
    flat = (spread_x <= least) | (spread_y <= least)
    return torch.where(flat, 0.0, cross**2 / torch.where(flat, 1.0, spread_x * spread_y))


class _Lines(NamedTuple):
    """Decision lines :math:`w x + b`, one per class, or a single one for two classes."""

    weight: Tensor
    """w (member, latent, class)."""
    intercept: Tensor
    """b (member, latent, class)."""


class _Table(NamedTuple):
    """Values sorted, then once more within the classes of each labelling, and running sums over it all."""

    values: Tensor
    """(problem, (1 + labelling) · train)."""
    sums: Tensor
    """Sums of x and x² over the values before each place (2, problem, (1 + labelling) · train + 1)."""
    start: Tensor
    """Where each class begins (class,), over all labellings."""
    end: Tensor
    """Where it ends (class,)."""
    own: Tensor
    """Cost (class,) of a violation by a point of the class."""
    other: Tensor
    """Cost (class,) of a violation by any other point."""
    train: int


def _fit_lines(values: Tensor, labellings: Sequence[Tensor], *, penalty: float) -> list[_Lines]:
    r"""Support vector machines one-vs-rest with balanced classes, of one feature each, for several labellings.

    .. math:: \min_{w, b} \tfrac12 (w^2 + b^2) + C \sum_i c_i \max(0, 1 - y_i (w x_i + b))^2

    as scikit-learn's ``LinearSVC(C, class_weight="balanced")`` does: the points of the class at hand weigh
    :math:`c = n / (K n_k)`, all others 1; with two classes there is one line and each class has its own weight.

    The points inside the margin are those beyond a threshold, so that with the values sorted once a step of
    Newton's method looks up running sums and passes over no points; steps end when no point changes sides.

    Args:
        values: features x (member, train, latent), float64.
        labellings: classes (train,) of every point, from 0 without gaps, at least two.
        penalty: C.

    Returns:
        For each labelling its lines.
    """
    member, train, latent = values.shape
    columns = values.mT.reshape(member * latent, train)
    counts = [torch.bincount(labels) for labels in labellings]
    found = _newton(_table(columns, labellings, counts, penalty))
    weight, intercept = (part.view(member, latent, -1) for part in found.unbind(-1))
    sizes = [1 if len(count) == 2 else len(count) for count in counts]
    return [_Lines(*pair) for pair in zip(weight.split(sizes, -1), intercept.split(sizes, -1), strict=True)]


def _predict_lines(lines: _Lines, values: Tensor) -> Tensor:
    """Class (member, latent, test) of the highest line (for two: by its sign) at values (member, test, latent)."""
    scores = values.mT[..., None] * lines.weight[:, :, None] + lines.intercept[:, :, None]
    return (scores[..., 0] > 0).long() if scores.shape[-1] == 1 else scores.argmax(-1)


def _table(columns: Tensor, labellings: Sequence[Tensor], counts: Sequence[Tensor], penalty: float) -> _Table:
    train = columns.shape[-1]
    ordered, order = columns.sort(-1)
    values = torch.cat(
        [ordered, *(ordered.gather(-1, _by_class(labels, order)) for labels in labellings)], -1
    )
    sums = torch.nn.functional.pad(torch.stack([values, values.square()]).cumsum(-1), (1, 0))
    start, end, own, other = [], [], [], []
    for place, count in enumerate(counts, 1):
        chosen = slice(1, 2) if len(count) == 2 else slice(None)
        ends = train * place + count.cumsum(0)
        weights = penalty * train / (len(count) * count.double())
        start.append((ends - count)[chosen])
        end.append(ends[chosen])
        own.append(weights[chosen])
        other.append(weights[:1] if len(count) == 2 else torch.full_like(weights, penalty))
    return _Table(values, sums, torch.cat(start), torch.cat(end), torch.cat(own), torch.cat(other), train)


def _by_class(labels: Tensor, order: Tensor) -> Tensor:
    """Places of sorted points, class after class, each class sorted."""
    sorted_labels = labels[order]
    if labels.device.type == "cpu" and len(labels) and int(labels.max()) < 2**15:
        # NumPy sorts 16-bit integers by counting, an order of magnitude faster.
        return torch.from_numpy(np.argsort(sorted_labels.short().numpy(), axis=-1, kind="stable"))
    return sorted_labels.argsort(dim=-1, stable=True)


def _newton(table: _Table) -> Tensor:
    """Weights and intercepts (problem, class, 2) that solve all problems."""
    point = table.values.new_zeros((len(table.values), len(table.own), 2))
    state = _evaluate(table, point)
    for _ in range(_STEPS):
        step = -_solve(state.hessian, state.gradient)
        slope = (step * state.gradient).sum(-1)
        size = torch.ones_like(slope)
        for _ in range(_HALVINGS):
            trial = _evaluate(table, point + size[..., None] * step)
            # Beyond rounding of the objective no decrease can be seen.
            enough = trial.objective <= state.objective * (1 + 1e-14) + 1e-4 * size * slope
            if enough.all():
                break
            size = torch.where(enough, size, size / 2)
        point = point + size[..., None] * step
        converged = (trial.places == state.places).all(0) & (size == 1)
        state = trial
        if converged.all():
            break
    return point


def _solve(hessian: Tensor, gradient: Tensor) -> Tensor:
    """Two equations in two unknowns, by Cramer's rule: hessian as its entries (xx, x1, 11)."""
    xx, x, one = hessian.unbind(-1)
    first, second = gradient.unbind(-1)
    # At least 1, for the penalty alone gives that, and the moments have a determinant of their own.
    determinant = xx * one - x.square()
    return torch.stack([one * first - x * second, xx * second - x * first], -1) / determinant[..., None]


class _State(NamedTuple):
    objective: Tensor
    gradient: Tensor
    hessian: Tensor
    places: Tensor


def _evaluate(table: _Table, point: Tensor) -> _State:
    """Objective (problem, class), its derivatives, and where the margins cut the sorted values."""
    weight, intercept = (point + 0.0).unbind(-1)  # + 0 turns −0 into 0, whose sign a quotient would carry on
    # Sums over points of the class with w x + b < 1, then over all points and those of the class with w x + b > −1.
    start, end = table.start.expand_as(weight), table.end.expand_as(weight)
    low = torch.stack([start, torch.zeros_like(start), start])
    high = torch.stack([end, torch.full_like(end, table.train), end])
    side = torch.tensor([1.0, -1.0, -1.0], dtype=weight.dtype, device=weight.device)[:, None, None]
    threshold = torch.nan_to_num((side - intercept) / weight, nan=0.0, posinf=torch.inf, neginf=-torch.inf)
    place = _search(table, threshold, low, high)
    below = (weight >= 0) == (side > 0)
    first, last = torch.where(below, low, place), torch.where(below, place, high)
    inside = _range_sums(table.sums, first, last)
    objective = point.square().sum(-1) / 2
    gradient, hessian = point, torch.tensor([1.0, 0.0, 1.0], dtype=weight.dtype, device=weight.device)
    for cost, sign, (one, x, xx) in ((table.own, 1.0, inside[0]), (table.other, -1.0, inside[1] - inside[2])):
        # Σ (1 − s (w x + b))² over the points inside the margin, s the sign.
        rest = 1 - sign * intercept
        objective = objective + cost * (
            rest.square() * one - 2 * sign * rest * weight * x + weight.square() * xx
        )
        slope = torch.stack([weight * xx - sign * rest * x, weight * x - sign * rest * one], -1)
        gradient = gradient + 2 * cost[:, None] * slope
        hessian = hessian + 2 * cost[:, None] * torch.stack([xx, x, one], -1)
    return _State(objective, gradient, hessian, place)


def _search(table: _Table, threshold: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """First place (3, problem, class) between two whose value is at least the threshold, by bisection."""
    rows = torch.arange(len(table.values), device=low.device)[:, None] * table.values.shape[1]
    values = table.values.flatten()
    for _ in range(int((high - low).max()).bit_length()):
        middle = (low + high) // 2
        less = (values[(rows + middle).clamp_(max=len(values) - 1)] < threshold) & (low < high)
        low, high = torch.where(less, middle + 1, low), torch.where(less, high, middle)
    return low


def _range_sums(sums: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Sums (search, 3, problem, class) of 1, x and x² between two places."""
    shape = (len(first), *sums.shape)
    low, high = (place[:, None].expand(-1, 2, -1, -1) for place in (first, last))
    moments = sums.expand(shape).gather(3, high) - sums.expand(shape).gather(3, low)
    return torch.cat([(last - first)[:, None].to(sums.dtype), moments], 1)
