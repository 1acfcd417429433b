"""How much of the factors' variance codes explain, and back, by linear and by nearest-neighbour regression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from unseam.metrics._inputs import AbstractFitted, Checked, check_inputs, draw_points, metric, row_slices
from unseam.metrics._splits import split_sizes
from unseam.metrics._tables import Grouping, grouping
from unseam.metrics.intervals import Interval, groups, with_interval

__all__ = ["R2", "R2Settings", "r2"]


@dataclass(frozen=True)
class R2Settings(AbstractFitted):
    """How regressions are fitted and scored."""

    form: Literal["linear", "nonlinear"] = "linear"
    """Which regression the score is of: ``"linear"`` or ``"nonlinear"``."""
    direction: Literal["factors", "codes"] = "factors"
    """What the score's regression explains: ``"factors"`` by codes, or ``"codes"`` by factors."""
    neighbours: int = 5
    """Neighbours of the non-linear regression."""


# Products of standardised inputs round by about 1e-14; 10 000 ties move no squared distance by more than 1e-8.
_TIE = 1e-12


class R2(NamedTuple):
    """Explained shares of variance."""

    score: Tensor
    """Mean share by the settings' regression, () or (member,)."""
    interval: Interval
    """95 % interval of the score, over the test points."""
    linear: Tensor
    """Share of each factor ([member,] factor) that a linear map of the codes explains."""
    nonlinear: Tensor
    """Share of each factor ([member,] factor) that nearest neighbours among codes explain."""
    linear_back: Tensor
    """Share of each code ([member,] latent) that a linear map of the factors explains."""
    nonlinear_back: Tensor
    """Share of each code ([member,] latent) that nearest neighbours among factors explain."""
    settings: R2Settings
    """The parameters."""


@metric(R2Settings, check_inputs)
def r2(given: Checked, settings: R2Settings, source: torch.Generator) -> R2:
    r"""Coefficient of determination of regressions between codes and factors on points they were not fitted on.

    .. math:: R^2 = 1 - \frac{\sum_n (y_n - \hat y(x_n))^2}{\sum_n (y_n - \bar y)^2}

    over the test points, averaged over the targets y that vary among them. The linear regression is least
    squares with an intercept in closed form; of codes that depend on each other linearly it takes the
    shortest weights. The non-linear one averages the nearest training points in Euclidean distance of
    standardised inputs, ties broken at random: it has nothing to fit, so all members are regressed at once by
    matrix products, and from factors to codes one search serves all members. It needs more points the more
    inputs vary, so noise codes lower it. Factors count by their values as numbers, whether discrete or not.

    A constant target has a share of 0 and is left out of the mean; a constant input explains nothing.
    Unchanged by order and sign of codes; linear: by any invertible linear map of them.

    Returns:
        Shares, at most 1, and below 0 where the mean would have been the better guess.

    >>> grid = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    >>> found = r2(grid.double() @ torch.tensor([[1.0, 2.0], [1.0, -1.0]]).double(), grid)
    >>> found.linear
    tensor([1., 1.], dtype=torch.float64)
    """
    given = given.rescaled()
    train, test = split_sizes(settings.train, settings.test, given.codes.shape[1])
    given = draw_points(given, train + test, source)
    order = torch.randperm(train + test, generator=source, device=source.device).to(given.codes.device)
    grouped = grouping(groups(test, source), test, given.codes.device)
    settings = replace(settings, train=train, test=test)
    x, y = given.codes[:, order].double(), given.factors[order].double()[None]
    shares = {
        (form, direction): _share(_split(*sides, train), grouped, form, settings.neighbours)
        for direction, sides in (("factors", (x, y)), ("codes", (y, x)))
        for form in ("linear", "nonlinear")
    }
    used, varies = shares[settings.form, settings.direction]
    score = (used * varies).sum(-1) / varies.sum(-1).clamp(min=1)
    linear, nonlinear, linear_back, nonlinear_back = (share[0] for share, _ in shares.values())
    return R2(*with_interval(score), linear, nonlinear, linear_back, nonlinear_back, settings)


class _Split(NamedTuple):
    """Inputs and targets (member or 1, point, column) to fit and to score on, standardised by the former."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def _split(x: Tensor, y: Tensor, train: int) -> _Split:
    """Centred inputs at unit variance, constant ones 0, and targets about the mean of those to fit on."""
    constant = x[:, :train].amax(1, keepdim=True) == x[:, :train].amin(1, keepdim=True)
    away = x - x[:, :train].mean(1, keepdim=True)
    spread = torch.where(constant, 1.0, away[:, :train].square().mean(1, keepdim=True).sqrt())
    x = torch.where(constant, 0.0, away / spread)
    y = y - y[:, :train].mean(1, keepdim=True)
    return _Split(x[:, :train], y[:, :train], x[:, train:], y[:, train:])


def _share(split: _Split, grouped: Grouping, form: str, neighbours: int) -> tuple[Tensor, Tensor]:
    """Shares (1 + group, member, target) and which targets vary, all test points and without each group."""
    guess = _linear(split) if form == "linear" else _nearest(split, neighbours)
    target = split.test_y.expand_as(guess)
    constant = target.amax(1) == target.amin(1)
    target, guess = target[:, grouped.order], guess[:, grouped.order]
    left, first, second = (
        _sums(part, grouped) for part in ((target - guess).square(), target, target.square())
    )
    spread = second - first.square() / grouped.sizes.clamp(min=1)[:, None, None]
    varies = (spread > second[:1] * target.shape[1] * torch.finfo(target.dtype).eps) & ~constant
    return torch.where(varies, 1 - left / torch.where(varies, spread, 1.0), 0.0), varies


def _linear(split: _Split) -> Tensor:
    """Least-squares guesses (member, test, target)."""
    gram, cross = split.train_x.mT @ split.train_x, split.train_x.mT @ split.train_y
    # Singular values are the inputs' squared, so what rounding leaves of a dependent one is of this size.
    tolerance = gram.shape[-1] * split.train_x.shape[1] * torch.finfo(gram.dtype).eps
    weight = torch.linalg.pinv(gram, rtol=tolerance, hermitian=True) @ cross
    return split.test_x @ weight


def _nearest(split: _Split, neighbours: int) -> Tensor:
    """Mean targets (member, test, target) of each test point's nearest training points."""
    k = min(neighbours, split.train_x.shape[1])
    index = _nearest_points(split.train_x, split.test_x, k)
    members, targets = max(len(split.train_x), len(split.train_y)), split.train_y.shape[2]
    index, values = index.expand(members, -1, -1), split.train_y.expand(members, -1, -1)
    found = []
    for part in row_slices(members, index[0].numel() * targets, index.device):
        place = index[part].flatten(1)[..., None].expand(-1, -1, targets)
        found.append(values[part].gather(1, place).unflatten(1, (-1, k)).mean(2))
    return torch.cat(found)


def _nearest_points(train: Tensor, test: Tensor, k: int) -> Tensor:
    """Places (member, test, k) of the nearest training points, a part of the distances at a time."""
    found = torch.empty(*test.shape[:2], k, dtype=torch.int64, device=test.device)
    # Of points equally far, as on a grid, the earlier in random order are nearer, by more than products round.
    later = torch.arange(train.shape[1], dtype=train.dtype, device=train.device) * _TIE
    length = (train.square().sum(-1) + later)[:, None]
    for member in row_slices(len(train), train.shape[1], train.device):
        held = train[member].mT
        for point in row_slices(test.shape[1], len(train[member]) * train.shape[1], train.device):
            # Less the test point's own length, which is the same for all.
            away = torch.baddbmm(length[member], test[member, point], held, alpha=-2)
            found[member, point] = away.topk(k, largest=False, sorted=False).indices
    return found


def _sums(values: Tensor, grouped: Grouping) -> Tensor:
    """Sums (1 + group, member, column) over values (member, point, column) in the order of their groups."""
    total = values.sum(1)
    within = total.new_zeros(grouped.groups, *total.shape).index_add_(0, grouped.of, values.transpose(0, 1))
    return torch.cat([total[None], total - within])
