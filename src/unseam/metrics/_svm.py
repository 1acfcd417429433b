"""Linear support vector machines on one feature, many at once, solved exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Lines", "fit", "predict"]

# Newton's method ends after finitely many steps, a handful in practice.
_STEPS = 100
_HALVINGS = 40


class Lines(NamedTuple):
    """Decision lines :math:`w x + b`, one a class, or one in all for two classes."""

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


def fit(values: Tensor, labellings: Sequence[Tensor], *, penalty: float) -> list[Lines]:
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
    return [Lines(*pair) for pair in zip(weight.split(sizes, -1), intercept.split(sizes, -1), strict=True)]


def predict(lines: Lines, values: Tensor) -> Tensor:
    """Class (member, latent, test) whose line is highest, or above 0 for two classes, at values (member, test, latent).

    The highest line is a piecewise constant function of x: each line is highest between its crossings with those
    less steep and those steeper, if anywhere.
    """
    x = values.mT.contiguous()
    weight, intercept = lines
    if weight.shape[-1] == 1:
        return (x * weight + intercept > 0).long()
    rise = weight[..., :, None] - weight[..., None, :]
    fall = intercept[..., None, :] - intercept[..., :, None]
    place = torch.arange(weight.shape[-1], device=x.device)
    crossing = fall / torch.where(rise == 0, 1.0, rise)
    low = torch.where(rise > 0, crossing, -torch.inf).amax(-1)
    high = torch.where(rise < 0, crossing, torch.inf).amin(-1)
    parallel = (rise == 0) & ((fall > 0) | ((fall == 0) & (place < place[:, None])))
    start, order = torch.where((low < high) & ~parallel.any(-1), low, torch.inf).sort(-1)
    # A line that begins exactly at x counts, and the first one begins at −∞.
    return order.gather(-1, torch.searchsorted(start, x, right=True).sub_(1).clamp_(min=0))


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
    state = _evaluated(table, point)
    for _ in range(_STEPS):
        step = -_solved(state.hessian, state.gradient)
        slope = (step * state.gradient).sum(-1)
        size = torch.ones_like(slope)
        for _ in range(_HALVINGS):
            trial = _evaluated(table, point + size[..., None] * step)
            # Beyond rounding of the objective no decrease can be seen.
            enough = trial.objective <= state.objective * (1 + 1e-14) + 1e-4 * size * slope
            if enough.all():
                break
            size = torch.where(enough, size, size / 2)
        point = point + size[..., None] * step
        settled = (trial.places == state.places).all(0) & (size == 1)
        state = trial
        if settled.all():
            break
    return point


def _solved(hessian: Tensor, gradient: Tensor) -> Tensor:
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


def _evaluated(table: _Table, point: Tensor) -> _State:
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
    inside = _between(table.sums, first, last)
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


def _between(sums: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Sums (search, 3, problem, class) of 1, x and x² between two places."""
    shape = (len(first), *sums.shape)
    low, high = (place[:, None].expand(-1, 2, -1, -1) for place in (first, last))
    moments = sums.expand(shape).gather(3, high) - sums.expand(shape).gather(3, low)
    return torch.cat([(last - first)[:, None].to(sums.dtype), moments], 1)
