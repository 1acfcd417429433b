"""scikit-learn's gradient-boosted trees, one model a factor, factors and classes side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor, as_completed
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, log_softmax
from sklearn.ensemble import GradientBoostingRegressor
from torch import Tensor

from unseam.metrics._boosting import Boosted
from unseam.metrics._rounds import SideBySide

__all__ = ["grow"]

Array = NDArray[Any]


class _Task(NamedTuple):
    """One factor of one member."""

    codes: Array
    target: Array
    discrete: bool
    groups: Array
    rounds: int
    depth: int
    rate: float

    @property
    def trees(self) -> int:
        """Trees a round, at the most: what the task costs."""
        return len(np.unique(self.target)) if self.discrete else 1


def grow(
    codes: Tensor,
    targets: Tensor,
    discrete: Sequence[bool],
    groups: Tensor,
    *,
    rounds: int = 100,
    depth: int = 3,
    rate: float = 0.1,
    workers: int | None = None,
) -> Boosted:
    """scikit-learn's boosting, with the arguments and results of :func:`unseam.metrics._boosting.boost`.

    Factors side by side, and the trees of a round, one a class, side by side too, so that a factor of many values
    keeps no processor waiting. Threads, not processes: trees are grown without the interpreter's lock, codes are not
    copied, and nothing is left behind when the work is interrupted.
    """
    tasks = [
        _Task(table, column, is_discrete, groups.cpu().numpy(), rounds, depth, rate)
        for table in codes.cpu().numpy()
        for column, is_discrete in zip(targets.cpu().numpy().T, discrete, strict=True)
    ]
    found = _all_fitted(tasks, workers or _processors())
    shape = (len(codes), len(discrete))
    importance = torch.stack([torch.from_numpy(part) for part, _ in found]).unflatten(0, shape)
    predicted = torch.stack([torch.from_numpy(part) for _, part in found]).unflatten(0, shape)
    return Boosted(importance.permute(2, 0, 3, 1).to(codes.device), predicted.mT.to(codes.device))


def _processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _all_fitted(tasks: Sequence[_Task], workers: int) -> list[tuple[Array, Array]]:
    """What :func:`_fitted` finds of every task, with so many threads that grow trees."""
    if workers == 1:
        return [_fitted(task) for task in tasks]
    stop = Event()

    def unless_stopped(*_: object) -> None:
        if stop.is_set():
            raise CancelledError

    with ThreadPoolExecutor(workers) as factors, ThreadPoolExecutor(workers) as trees:
        # Those with most trees first, so that little is left when there is nothing more to begin with.
        order = sorted(range(len(tasks)), key=lambda place: -tasks[place].trees)
        found = {
            place: factors.submit(_fitted, tasks[place], unless_stopped, trees, workers) for place in order
        }
        try:
            for one in as_completed(found.values()):
                one.result()
            return [found[place].result() for place in range(len(tasks))]
        finally:
            # Where a factor failed, or somebody lost patience, the others end with their round.
            stop.set()
            factors.shutdown(wait=False, cancel_futures=True)


def _fitted(
    task: _Task,
    monitor: Callable[..., None] | None = None,
    trees: Executor | None = None,
    parts: int = 1,
) -> tuple[Array, Array]:
    """Importances (variant, latent) and predictions (point,) of one factor."""
    train = len(task.groups)
    x, y = task.codes[:train], task.target[:train]
    variants = int(task.groups.max()) + 2
    if (y == y[0]).all():
        return np.zeros((variants, x.shape[1])), np.full(len(task.codes), y[0])
    options = {"n_estimators": task.rounds, "max_depth": task.depth, "learning_rate": task.rate}
    model: Any = (SideBySide if task.discrete else GradientBoostingRegressor)(random_state=0, **options)
    if task.discrete:
        model.executor, model.parts = trees, parts
    model.fit(x, y, monitor=monitor)
    importance = _importances(model, x, y, task)
    # Splits that gain nothing come out a rounding error below 0; the study takes absolute values too.
    importance[0] = np.abs(model.feature_importances_)
    return importance, model.predict(task.codes).astype(np.float64)


def _importances(model: Any, x: Array, y: Array, task: _Task) -> Array:
    """Importances (variant, latent): with all points, then without each group of them, the trees kept."""
    rows = np.ascontiguousarray(x, dtype=np.float32)
    groups = int(task.groups.max()) + 1
    total = np.zeros((groups + 1, x.shape[1]))
    # The residuals after the last round are no tree's.
    for trees, residual in zip(model.estimators_, _residuals(model, x, y, task.discrete), strict=False):
        for column, tree in zip(residual.T, trees, strict=True):
            _credit(total, tree.tree_, tree.tree_.apply(rows), column, task.groups, groups)
    sums = total.sum(1, keepdims=True)
    return np.divide(total, sums, out=np.zeros_like(total), where=sums > 0)


def _residuals(model: Any, x: Array, y: Array, discrete: bool) -> Any:
    """What each round's trees were fitted to (train, tree)."""
    if not discrete:
        yield (y - y.mean())[:, None]
        for raw in model.staged_predict(x):
            yield (y - raw)[:, None]
        return
    hot = (y[:, None] == model.classes_).astype(np.float64)
    share = hot.mean(0)
    if len(share) == 2:
        yield hot[:, 1:] - share[1]
        for raw in model.staged_decision_function(x):
            yield hot[:, 1:] - expit(raw).reshape(-1, 1)
        return
    yield hot - share
    for raw in model.staged_decision_function(x):
        yield hot - np.exp(log_softmax(raw, axis=1))


def _credit(total: Array, tree: Any, leaf: Array, residual: Array, group: Array, groups: int) -> None:
    """Add to each code's importance what its splits in one tree lower the squared error."""
    cell, shape = leaf * groups + group, (tree.node_count, groups)
    sums = np.bincount(cell, residual, minlength=shape[0] * groups).reshape(shape)
    counts = np.bincount(cell, minlength=shape[0] * groups).reshape(shape).astype(np.float64)
    left, right = tree.children_left, tree.children_right
    split = np.flatnonzero(left >= 0)
    for node in split[::-1]:  # children come after their parents
        sums[node] = sums[left[node]] + sums[right[node]]
        counts[node] = counts[left[node]] + counts[right[node]]
    sums, counts = (np.c_[part.sum(1), part.sum(1, keepdims=True) - part] for part in (sums, counts))
    # Squared sums over numbers: a node's squared error is the sum of squares less this.
    explained = sums**2 / np.maximum(counts, 1)
    decrease = explained[left[split]] + explained[right[split]] - explained[split]
    np.add.at(total.T, tree.feature[split], np.maximum(decrease, 0))
