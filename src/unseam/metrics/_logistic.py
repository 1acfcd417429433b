"""Logistic regressions of all members at once, run to their optimum by Newton's method."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

__all__ = ["multinomial", "one_vs_rest"]

# Newton's method doubles its digits with each step once it is near.
_STEPS = 100
_HALVINGS = 40
# Distance from the least objective, in nats over all points, from which its last step is taken.
_NEAR = 1e-10
# Columns beyond which products of every two of them are not stored: matrix products of so many are fast themselves.
_WIDE = 64

Evaluation = tuple[Tensor, Tensor]


def one_vs_rest(x: Tensor, hot: Tensor, penalty: float) -> Tensor:
    """Weights and intercept (member, class, column + 1) of a regression for each class against all others.

    The optimum of scikit-learn's ``LogisticRegression`` for two classes: the intercept is free, and half the squared
    weights over C are added to the negative log-likelihood.

    Args:
        x: (member, point, column), float64, best about its mean.
        hot: whether each point is in each class (point, class), float64; each has points on both sides.
        penalty: C.
    """
    x, ridge = _with_ones(x, penalty)
    products, side = _products(x), 1 - 2 * hot.T
    start = x.new_zeros((len(x), hot.shape[1], x.shape[-1]))
    start[..., -1] = hot.mean(0).logit()

    def evaluate(weights: Tensor) -> Evaluation:
        scores = weights @ x.mT
        return scores, (weights.square() * ridge).sum(-1) / 2 - logsigmoid(-side * scores).sum(-1)

    def derivatives(weights: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        probability = scores.sigmoid()
        # Where all probabilities saturate the intercept has no curvature of its own.
        hessian = _curvature(probability * (1 - probability), x, products) + ridge.clamp(min=_NEAR).diag()
        return (probability - hot.T) @ x + ridge * weights, hessian

    return _minimum(start, evaluate, derivatives)


def multinomial(x: Tensor, hot: Tensor, penalty: float) -> Tensor:
    """Weights and intercept (member, class, column + 1) of one regression of all classes.

    The optimum of scikit-learn's ``LogisticRegression``: of three classes or more each has weights of its own, all
    penalised; of two the second alone has.

    Args:
        x: (member, point, column), float64, best about its mean.
        hot: whether each point is in each class (point, class), float64; each has points.
        penalty: C.
    """
    if hot.shape[1] == 2:
        return pad(one_vs_rest(x, hot[:, 1:], penalty), (0, 0, 1, 0))
    x, ridge = _with_ones(x, penalty)
    products, classes, width = _products(x), hot.shape[1], x.shape[-1]
    start = x.new_zeros((len(x), classes, width))
    start[..., -1] = hot.mean(0).log()
    first, second = torch.triu_indices(classes, classes, device=x.device)
    same = (first == second).to(x.dtype)[:, None]

    def evaluate(weights: Tensor) -> Evaluation:
        scores = weights.unflatten(-1, (classes, width)) @ x.mT
        lost = scores.logsumexp(1).sum(-1) - (scores * hot.T).sum((1, 2))
        return scores, (weights.square() * ridge.repeat(classes)).sum(-1) / 2 + lost

    def derivatives(weights: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        share = scores.softmax(1)
        gradient = ((share - hot.T) @ x).flatten(1) + ridge.repeat(classes) * weights
        blocks = _curvature(share[:, first] * (same - share[:, second]), x, products)
        hessian = blocks.new_empty((len(x), classes, classes, width, width))
        hessian[:, first, second] = hessian[:, second, first] = blocks
        # All intercepts can move together at no cost; this keeps them from it, and changes nothing else.
        hessian[..., -1, -1] += len(hot) / classes
        hessian = hessian.transpose(2, 3).flatten(1, 2).flatten(2)
        return gradient, hessian + ridge.repeat(classes).diag()

    return _minimum(start.flatten(1), evaluate, derivatives).unflatten(-1, (classes, width))


def _with_ones(x: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """A column for the intercept (member, point, column + 1), and how much each weight's square costs."""
    ridge = x.new_full((x.shape[-1] + 1,), 1 / penalty)
    ridge[-1] = 0
    return torch.cat([x, torch.ones_like(x[..., :1])], -1), ridge


def _products(x: Tensor) -> Tensor | None:
    """Products (member, pair, point) of every two columns; none where they would be too many to keep."""
    width = x.shape[-1]
    if width > _WIDE:
        return None
    first, second = torch.triu_indices(width, width, device=x.device)
    columns = x.mT.contiguous()
    return columns[:, first].mul_(columns[:, second])


def _curvature(weight: Tensor, x: Tensor, products: Tensor | None) -> Tensor:
    """Σ w x xᵀ (member, sum, column, column) over points (member, point, column) with weights (member, sum, point)."""
    if products is None:
        return torch.stack([(x.mT * one[:, None]) @ x for one in weight.unbind(1)], 1)
    width = x.shape[-1]
    first, second = torch.triu_indices(width, width, device=x.device)
    found = x.new_empty((*weight.shape[:2], width, width))
    found[..., first, second] = found[..., second, first] = weight @ products.mT
    return found


def _minimum(
    weights: Tensor,
    evaluate: Callable[[Tensor], Evaluation],
    derivatives: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Tensor:
    """Weights (..., weight) that minimise convex objectives (...), each step halved until it gains enough.

    Args:
        weights: where to start.
        evaluate: scores and objectives at weights.
        derivatives: gradients and Hessians at weights and their scores.

    Warns where the least is not reached.
    """
    scores, objective = evaluate(weights)
    for _ in range(_STEPS):
        gradient, hessian = derivatives(weights, scores)
        step = -torch.linalg.solve(hessian, gradient)
        slope = (step * gradient).sum(-1)
        near = -slope / 2 < _NEAR
        if bool(near.all()):
            return weights + step
        size, scores, objective = _step(weights, step, slope, objective, evaluate)
        weights = weights + size[..., None] * step
        if bool((near | (size == 0)).all()):
            break
    left = float((-slope / 2).max())
    warnings.warn(
        f"a logistic regression did not converge: its objective is about {left:.1g} nats above the least, "
        f"where {_NEAR:g} was wanted; codes may be nearly dependent, or of very different sizes",
        RuntimeWarning,
        stacklevel=2,
    )
    return weights


def _step(
    weights: Tensor, step: Tensor, slope: Tensor, objective: Tensor, evaluate: Callable[[Tensor], Evaluation]
) -> tuple[Tensor, Tensor, Tensor]:
    """How much of its step (...) each takes, and scores and objectives there; nothing where no part gains enough."""
    size = torch.ones_like(slope)
    for _ in range(_HALVINGS):
        scores, trial = evaluate(weights + size[..., None] * step)
        enough = trial <= objective * (1 + 1e-14) + 1e-4 * size * slope
        if bool(enough.all()):
            return size, scores, trial
        size = torch.where(enough, size, size / 2)
    size = torch.where(enough, size, 0.0)
    return size, *evaluate(weights + size[..., None] * step)
