"""Scores of the same codes by the library disent: run by a Python that has it and numpy, kept as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["COARSE", "SIZES", "checksum", "coarse", "grid_codes", "grid_factors", "rows"]

SIZES = (3, 6, 40, 32, 32)
"""Values of shape, scale, orientation, x and y in dSprites."""
KEPT = Path(__file__).parent.parent / "tests" / "metrics" / "disent.json"
COARSE = (3, 6, 8, 8, 8)
"""Values of the coarse grid: every fifth orientation, every fourth x and y."""
# Boosting at the full sizes costs minutes a draw, most of it for the many values of three factors.
FEW = {"num_train": 500, "num_test": 500}


def grid_factors() -> NDArray[np.int64]:
    """Factors (737 280, 5) of the whole grid, the last one fastest."""
    return np.stack([axis.ravel() for axis in np.indices(SIZES, dtype=np.int64)], axis=1)


def grid_codes(seed: int = 0) -> NDArray[np.float64]:
    """Ten codes (737 280, 10) of the whole grid: aligned, mixed, folded, noisy and dead ones."""
    noise = np.random.default_rng(seed).standard_normal((np.prod(SIZES), 10))
    shape, scale, turn, x, y = (axis / (size - 1) for axis, size in zip(grid_factors().T, SIZES, strict=True))
    angle = 2 * np.pi * turn * (1 - 1 / SIZES[2])
    signal = [
        (x, 0.05),
        (y, 0.1),
        (scale, 0.2),
        (shape, 0.8),
        (0.8 * x - 0.6 * y, 0.1),
        (np.tanh(4 * y - 2) + 0.5 * shape, 0.1),
        (np.cos(angle), 0.8),
        (np.sin(angle) * (1 + scale), 0.8),
        (0 * x, 0.3),
        (0 * x, 0.01),
    ]
    return np.stack([mean + spread * noise[:, code] for code, (mean, spread) in enumerate(signal)], axis=1)


def coarse(table: NDArray[Any]) -> NDArray[Any]:
    """The rows (9 216, ...) of a table of the whole grid that lie on the coarse one."""
    return table.reshape(*SIZES, -1)[:, :, ::5, ::4, ::4].reshape(np.prod(COARSE), -1)


def rows(seed: int, count: int, sizes: tuple[int, ...] = SIZES) -> NDArray[np.int64]:
    """Rows (count,) of a grid drawn with replacement; more of them begin with the same ones."""
    return np.ravel_multi_index(tuple(_positions(np.random.default_rng(seed), count, sizes).T), sizes)


def checksum(codes: NDArray[np.float64]) -> list[float]:
    """Mean square of each code: whether two sides speak of the same codes."""
    return [float(value) for value in (codes**2).mean(0)]


def main() -> None:
    """Parse, score, write."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--draws", type=int, default=12, help="draws of points")
    parser.add_argument("--metrics", nargs="+", choices=_METRICS, default=list(_METRICS))
    parser.add_argument("--output", type=Path, default=KEPT, help="JSON file, or - for the terminal")
    chosen = parser.parse_args()
    codes = grid_codes()
    kept: dict[str, Any] = {
        "about": _about(),
        "codes": {"sizes": SIZES, "seed": 0, "checksum": checksum(codes)},
        "draws": {},
    }
    for name in chosen.metrics:
        kept["draws"][name] = [_timed(name, codes, seed) for seed in range(chosen.draws)]
    text = json.dumps(kept, indent=1) + "\n"
    if str(chosen.output) == "-":
        sys.stdout.write(text)
    else:
        chosen.output.write_text(text)


def _timed(name: str, codes: NDArray[np.float64], seed: int) -> dict[str, Any]:
    metric, options, shown = _METRICS[name]
    data = _data(shown(codes), seed, COARSE if shown is coarse else SIZES)
    np.random.seed(seed)  # noqa: NPY002 (disent draws from the global generator)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        values = _metric(metric)(data, lambda observed: observed, **options)
        seconds = time.perf_counter() - start
    record = {"seed": seed, "seconds": round(seconds, 3)}
    record |= {key.split(".", 1)[1]: _number(value) for key, value in values.items()}
    record["warnings"] = sorted({type(warning.message).__name__ for warning in caught})
    print(name, record, file=sys.stderr, flush=True)
    return record


def _number(value: float) -> float | None:
    """A JSON number; JSON knows no NaN."""
    return float(value) if np.isfinite(value) else None


def _metric(name: str) -> Callable[..., dict[str, float]]:
    from disent import metrics

    return getattr(metrics, f"metric_{name}")


def _data(codes: NDArray[np.float64], seed: int, sizes: tuple[int, ...]) -> Any:
    """A data set whose observations are the codes, and whose points are those of :func:`rows`."""
    from disent.dataset import DisentDataset
    from disent.dataset.data import GroundTruthData

    class Codes(GroundTruthData):
        factor_names = ("shape", "scale", "orientation", "x", "y")
        factor_sizes = sizes
        stream = np.random.default_rng(seed)

        def _get_observation(self, index: int) -> NDArray[np.float64]:
            return codes[index]

        def sample_factors(self, size: int) -> NDArray[np.int64]:
            return _positions(self.stream, size, sizes)

    return DisentDataset(Codes())


def _positions(stream: np.random.Generator, count: int, sizes: tuple[int, ...]) -> NDArray[np.int64]:
    return (stream.random((count, len(sizes))) * sizes).astype(np.int64)


def _same(codes: NDArray[np.float64]) -> NDArray[np.float64]:
    return codes


def _alive(codes: NDArray[np.float64]) -> NDArray[np.float64]:
    return codes[:, :-1]


def _constant(codes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The dead code without its noise."""
    return np.concatenate([codes[:, :-1], np.zeros_like(codes[:, :1])], axis=1)


_METRICS: dict[str, tuple[str, dict[str, Any], Callable[[NDArray[np.float64]], NDArray[np.float64]]]] = {
    "mig": ("mig", {}, _same),
    "sap": ("sap", {}, _same),
    "factor_vae": ("factor_vae", {}, _same),
    "factor_vae, without the dead code": ("factor_vae", {}, _alive),
    "factor_vae, constant code": ("factor_vae", {}, _constant),
    "unsupervised": ("unsupervised", {}, _same),
    "unsupervised, constant code": ("unsupervised", {}, _constant),
    "dci, coarse grid": ("dci", FEW, coarse),
}


def _about() -> dict[str, Any]:
    """Versions, hardware and time."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("disent", "scikit-learn", "numpy", "scipy", "torch")},
        "hardware": {"processor": _processor(), "cores": os.cpu_count()},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


if __name__ == "__main__":
    main()
