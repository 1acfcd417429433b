"""scikit-learn's boosted classifier, the trees of a round grown side by side."""

from __future__ import annotations

import copy
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier

__all__ = ["SideBySide"]

Array = NDArray[Any]


class SideBySide(GradientBoostingClassifier):  # type: ignore[misc]
    """scikit-learn's classifier, its rounds of one tree a class cut into parts that an executor does at once.

    Given the residuals, the trees of a round do not depend on each other. A part is scikit-learn's own round for a
    model of some of the classes, which sees their columns alone and draws from where the trees before have left the
    generator. So every number is what it is when the trees are grown in turn.
    """

    executor: Executor | None = None
    """Who does the parts; none for one tree after the other."""
    parts: int = 1
    """Parts of a round."""

    def _fit_stage(
        self,
        i: int,
        X: Array,
        y: Array,
        raw_predictions: Array,
        sample_weight: Array,
        sample_mask: Array,
        random_state: np.random.RandomState,
        **sparse: Any,
    ) -> Array:
        """Round i of scikit-learn, whose name, arguments and result these are; adds to the raw predictions."""
        weights, classes = (sample_weight, sample_mask), raw_predictions.shape[1]
        if self.executor is None or classes == 1:
            return super()._fit_stage(i, X, y, raw_predictions, *weights, random_state, **sparse)
        gradient = self._loss.gradient(y_true=y, raw_prediction=raw_predictions)
        size, waiting = -(-classes // self.parts), []
        for first in range(0, classes, size):
            own = slice(first, min(first + size, classes))
            grow = self._part(own, gradient[:, own])._fit_stage
            draws = copy.deepcopy(random_state)
            arguments = (i, X, y - first, raw_predictions[:, own], *weights, draws)
            waiting.append(self.executor.submit(grow, *arguments, **sparse))
            # A tree draws one seed, for the order that it tries codes in.
            random_state.randint(2**31 - 1, size=own.stop - own.start)
        for one in waiting:
            one.result()
        return raw_predictions

    def _part(self, own: slice, gradient: Array) -> SideBySide:
        """A model of some of the classes, with the gradient of all of them."""
        part = copy.copy(self)
        part.executor = None
        part.estimators_ = self.estimators_[:, own]
        part.n_trees_per_iteration_ = own.stop - own.start
        part._loss = copy.copy(self._loss)
        part._loss.gradient = lambda **_: gradient
        return part
