"""Boosted trees on several threads: the same numbers, and an end when one is asked for."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier

from unseam.metrics import _boosting
from unseam.metrics._boosting import boost_exact

F64 = {"dtype": torch.float64}
TRAIN = 300
SIZES = (2, 3, 7, 1)


@pytest.fixture
def targets(generator):
    return torch.stack([torch.randint(size, (400,), generator=generator) for size in SIZES], 1).double()


@pytest.fixture
def codes(targets, generator):
    """Noise of few values: many splits are equally good, and the generator decides."""
    mixed = targets @ torch.randn(4, 5, generator=generator, **F64)
    return (mixed + torch.randn(2, 400, 5, generator=generator, **F64)).round()


@pytest.fixture
def groups(generator):
    return torch.randperm(TRAIN, generator=generator) % 20


@pytest.mark.parametrize("workers", [1, 2, 3, 16])
def test_any_number_of_threads_grows_scikit_learn_s_trees(codes, targets, groups, workers):
    found = boost_exact(codes, targets, [True] * 4, groups, rounds=5, workers=workers)
    for member in range(2):
        x = codes[member].numpy()
        for factor in range(3):
            model = GradientBoostingClassifier(n_estimators=5, random_state=0)
            model.fit(x[:TRAIN], targets[:TRAIN, factor].numpy())
            importance = found.importance[0, member, :, factor].numpy()
            assert (importance == np.abs(model.feature_importances_)).all()
            assert (found.predicted[member, :, factor].numpy() == model.predict(x)).all()


def test_threads_change_nothing(codes, targets, groups):
    arguments = (codes, targets, [True, True, True, False], groups)
    alone, many = (boost_exact(*arguments, rounds=4, workers=workers) for workers in (1, 4))
    assert torch.equal(alone.importance, many.importance)
    assert torch.equal(alone.predicted, many.predicted)


def test_one_processor_needs_no_threads(codes, targets, groups, monkeypatch):
    monkeypatch.setattr(_boosting, "ThreadPoolExecutor", None)
    assert boost_exact(codes, targets, [True] * 4, groups, rounds=1, workers=1).importance.isfinite().all()


@pytest.fixture
def interruptible():
    """Ctrl-C raises, also where the tests were started with it ignored, as background jobs are."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot send itself Ctrl-C there")
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_ends_all_threads_soon(codes, targets, groups, workers, interruptible):
    before = threading.active_count()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        boost_exact(codes, targets, [True] * 4, groups, rounds=100_000, workers=workers)
    assert time.perf_counter() - start < 60  # all rounds would take an hour
    assert threading.active_count() == before


def test_a_member_that_fails_stops_the_others(codes, targets, groups):
    before = threading.active_count()
    codes[1] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        boost_exact(codes, targets, [True] * 4, groups, rounds=100_000, workers=2)
    assert threading.active_count() == before
