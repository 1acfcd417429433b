"""Metrics on the codes of a whole world: against disent and scikit-learn, in ensembles, and how they grow."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier
from torch import Tensor

from benchmarks.peers import SIZES, grid_codes, grid_factors
from benchmarks.timing import seconds_per_call
from unseam.metrics import (
    MigSettings,
    SapSettings,
    beta_vae_score,
    dci,
    factor_vae_score,
    irs,
    mcc,
    mean_pairwise_information,
    mig,
    modularity,
    sap,
    total_correlation,
    validation_grid,
)
from unseam.metrics._inputs import check_inputs
from unseam.metrics._splits import halves

__all__ = ["metrics"]

LATENT, TRAIN, TEST = 10, 10_000, 5_000
# Of the validation grid, whose 68 cells scikit-learn takes half an hour to score at full size.
GRID_POINTS = 1_000
MEMBERS = (1, 8, 64)
POINTS = (15_000, 150_000)
DRAWS = 5
# What disent has too: ours, and the name of its score.
SHARED: dict[str, tuple[Callable[..., Any], str]] = {
    "mig": (mig, "discrete_score"),
    "sap": (sap, "score"),
    "factor_vae": (factor_vae_score, "eval_accuracy"),
}
# What is tensor operations from end to end.
TENSOR: dict[str, Callable[..., Any]] = {
    "mig": mig,
    "sap": sap,
    "factor_vae": factor_vae_score,
    "beta_vae": beta_vae_score,
    "modularity": modularity,
    "irs": irs,
    "mcc": mcc,
    "total_correlation": total_correlation,
    "mean_pairwise_information": mean_pairwise_information,
}


def metrics(device: torch.device, *, peer: Path | None = None) -> Iterator[dict[str, Any]]:
    """One row per way to score the same codes, then rows of growth in members, latents and points."""
    codes = torch.from_numpy(grid_codes()).to(device)
    factors = torch.from_numpy(grid_factors()).to(device)
    yield from _against_disent(codes, factors, peer)
    yield from _against_scikit_learn(codes, factors)
    yield from _validation(device)
    yield from _members(factors)
    yield from _latents(codes, factors)
    yield from _points(codes, factors)


def _against_disent(codes: Tensor, factors: Tensor, peer: Path | None) -> Iterator[dict[str, Any]]:
    if peer is None:
        print("metrics: disent is left out, because --peer names no Python that has it", flush=True)
    theirs = {} if peer is None else _disent(peer)
    for name, (metric, key) in SHARED.items():
        row = _scored(f"ours, {name}", metric, codes, factors)
        yield row
        for draws in [theirs[name]] if name in theirs else []:
            scores = [draw[key] for draw in draws]
            seconds = float(np.median([draw["seconds"] for draw in draws]))
            error = float(np.std(scores, ddof=1))
            yield _row(f"disent, {name}", codes, seconds, row["s"], float(np.mean(scores)), error)


def _disent(peer: Path) -> dict[str, list[dict[str, float]]]:
    """Its draws of points, each scored and timed by its own Python."""
    options = ["--draws", str(DRAWS), "--output", "-", "--metrics", *SHARED]
    found = subprocess.run(
        [peer, "-m", "benchmarks.peers", *options],
        cwd=Path(__file__).parent.parent,
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(found.stdout)["draws"]


def _against_scikit_learn(codes: Tensor, factors: Tensor) -> Iterator[dict[str, Any]]:
    """DCI's disentanglement, each way from as many points; times the reference preset."""
    row = _scored("ours, dci", dci, codes, factors, repeats=1)
    yield row
    yield _scored("ours, dci fast", partial(dci, preset="fast"), codes, factors, row["s"])
    seconds, score = _boosting(codes, factors)
    yield _row("scikit-learn, dci, factors in parallel", codes, seconds, row["s"], score, "–")


def _boosting(codes: Tensor, factors: Tensor) -> tuple[float, float]:
    """Time of scikit-learn's boosting, factors with most values first, and the disentanglement it gives."""
    # The points that ours draws by default, in its order.
    split = halves(TRAIN, TEST, check_inputs(codes, factors), torch.Generator().manual_seed(0))
    index = torch.cat([split.train, split.test])
    points, values = codes[index].cpu().numpy(), factors[index].cpu().numpy()
    order = np.argsort(SIZES)[::-1]
    with Parallel(n_jobs=cpu_count()) as pool:
        # Workers are started, and have imported what they need, before the clock is.
        pool(delayed(_importance)(points[:200], values[:200, 0], 100) for _ in range(2 * cpu_count()))
        start = time.perf_counter()
        found = pool(delayed(_importance)(points, values[:, factor], TRAIN) for factor in order)
        seconds = time.perf_counter() - start
    importance = np.stack(found, 1)
    share = importance / importance.sum(1, keepdims=True)
    entropy = -(share * np.log(share, out=np.zeros_like(share), where=share > 0)).sum(1)
    purity = 1 - entropy / np.log(len(SIZES))
    return seconds, float(np.average(purity, weights=importance.sum(1)))


def _importance(points: NDArray[Any], values: NDArray[Any], train: int) -> NDArray[Any]:
    model = GradientBoostingClassifier(random_state=0).fit(points[:train], values[:train])
    for part in (slice(train), slice(train, None)):
        model.score(points[part], values[part])
    return model.feature_importances_


def _validation(device: torch.device) -> Iterator[dict[str, Any]]:
    """DCI by both presets in every world of the validation grid, which lies on the processor."""
    if device.type != "cpu":
        return
    tables, spent = {}, {}
    for preset in ("dlib", "fast"):
        start = time.perf_counter()
        tables[preset] = validation_grid(["dci"], points=GRID_POINTS, preset=preset)
        spent[preset] = time.perf_counter() - start
    apart = (tables["fast"].score - tables["dlib"].score).abs()
    shape = torch.empty(tables["fast"].encoder.nunique(), GRID_POINTS, 4, device="meta")
    for preset, error in (("dlib", "–"), ("fast", float(apart.max()))):
        score = float(tables[preset].query("metric == 'dci'").score.mean())
        yield _row(f"ours, dci {preset}, validation grid", shape, spent[preset], spent["dlib"], score, error)


def _members(factors: Tensor) -> Iterator[dict[str, Any]]:
    """Members that differ in their noise, in single precision, as encoders give codes; times one member."""
    codes = torch.empty((MEMBERS[-1], len(factors), LATENT), device=factors.device)
    for seed, member in enumerate(codes):
        member.copy_(torch.from_numpy(grid_codes(seed)))
    for name, metric in TENSOR.items():
        single = None
        for members in MEMBERS:
            row = _scored(f"ours, {name}", metric, codes[:members], factors, single)
            single = row["s"] if single is None else single
            yield row


def _latents(codes: Tensor, factors: Tensor) -> Iterator[dict[str, Any]]:
    more = torch.cat([codes, torch.from_numpy(grid_codes(1)).to(codes)], 1)
    for name, metric in TENSOR.items():
        for latent in (LATENT // 2, 2 * LATENT):
            some = more[:, :latent].contiguous()
            yield _scored(f"ours, {name}", metric, some, factors)


def _points(codes: Tensor, factors: Tensor) -> Iterator[dict[str, Any]]:
    """Worlds of so many points: all of them used, but for the votes, whose number stays."""
    for points in (*POINTS, len(codes)):
        index = torch.from_numpy(np.random.default_rng(0).permutation(len(codes))[:points]).to(codes.device)
        some, values = codes[index], factors[index]
        split = SapSettings(train=2 * points // 3, test=points - 2 * points // 3)
        yield _scored("ours, mig, all points", partial(mig, preset=MigSettings(points=None)), some, values)
        yield _scored("ours, sap, all points", partial(sap, preset=split), some, values)
        yield _scored("ours, factor_vae", factor_vae_score, some, values)


def _scored(
    way: str,
    metric: Callable[..., Any],
    codes: Tensor,
    factors: Tensor,
    ours: float | None = None,
    *,
    repeats: int = 3,
) -> dict[str, Any]:
    """Repeated once a metric is timed cold, and is called no more than that."""
    results = []
    seconds = seconds_per_call(
        lambda: results.append(metric(codes, factors)),
        device=codes.device,
        calls=1,
        repeats=repeats,
        warm_up=int(repeats > 1),
    )
    found = results[-1]
    score, error = (float(part.flatten()[0]) for part in (found.score, found.interval.error))
    return _row(way, codes, seconds, seconds if ours is None else ours, score, error)


def _row(
    way: str, codes: Tensor, seconds: float, ours: float, score: float, error: float | str
) -> dict[str, Any]:
    members, points, latents = codes.shape if codes.ndim == 3 else (1, *codes.shape)
    return {
        "way": way,
        "members": members,
        "points": points,
        "latents": latents,
        "s": seconds,
        "times": seconds / ours,
        "score": score,
        "error": error,
    }
