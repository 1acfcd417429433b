"""How often the tests of independence reject: at their level under independence, more often under dependence."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseam.files import write_atomically
from unseam.independence import GaussianTc, Statistic, independence_test
from unseam.training import provenance

TARGET = Path(__file__).parent.parent / "docs" / "_static" / "calibration.json"
# With 99 random orders a p-value is a multiple of 1/100, so it can be at each of these levels exactly.
PERMUTATIONS = 99
LEVELS = (0.01, 0.05, 0.1, 0.2, 0.5)
METHODS: dict[str, str | Statistic] = {
    "hsic": "hsic",
    "dcor": "dcor",
    "tc": "tc",
    "Gaussian tc": GaussianTc(),
}

Draw = Callable[[int, int, torch.Generator], Tensor]


class Case(NamedTuple):
    """Samples of one kind and size, tested many times by one method."""

    kind: str
    samples: str
    method: str
    points: int
    components: int
    tests: int


def normal(points: int, components: int, generator: torch.Generator) -> Tensor:
    return torch.randn(points, components, generator=generator, dtype=torch.float64)


def uniform(points: int, components: int, generator: torch.Generator) -> Tensor:
    return torch.rand(points, components, generator=generator, dtype=torch.float64)


def cauchy(points: int, components: int, generator: torch.Generator) -> Tensor:
    return (math.pi * (uniform(points, components, generator) - 0.5)).tan()


def discrete(points: int, components: int, generator: torch.Generator) -> Tensor:
    """Three values, the first in half of the points."""
    return (3.0 * uniform(points, components, generator) - 0.5).clamp(min=0.0).round()


def correlated(points: int, components: int, generator: torch.Generator) -> Tensor:
    samples = normal(points, components, generator)
    samples[:, 1] = 0.3 * samples[:, 0] + math.sqrt(1 - 0.3**2) * samples[:, 1]
    return samples


def circle(points: int, components: int, generator: torch.Generator) -> Tensor:
    """A ring of radius 1 and width 0.2: uncorrelated."""
    samples = normal(points, components, generator)
    angle = 2 * math.pi * uniform(points, 1, generator)[:, 0]
    samples[:, 0] = angle.cos() + 0.2 * samples[:, 0]
    samples[:, 1] = angle.sin() + 0.2 * samples[:, 1]
    return samples


def square(points: int, components: int, generator: torch.Generator) -> Tensor:
    """The second is the square of the first, with noise twice as wide."""
    samples = normal(points, components, generator)
    samples[:, 1] = samples[:, 0] ** 2 + 2 * math.sqrt(2) * samples[:, 1]
    return samples


def scale(points: int, components: int, generator: torch.Generator) -> Tensor:
    """The first is the second's scale: of mean zero whatever the first."""
    samples = normal(points, components, generator)
    samples[:, 1] = samples[:, 1] * samples[:, 0].exp()
    return samples


def parity(points: int, components: int, generator: torch.Generator) -> Tensor:
    """The sign of the third is that of the first two's product: any two of them are independent."""
    samples = normal(points, components, generator)
    samples[:, 2] = samples[:, 2].abs() * (samples[:, 0] * samples[:, 1]).sign()
    return samples


DRAWS: dict[str, Draw] = {
    "normal": normal,
    "uniform": uniform,
    "Cauchy": cauchy,
    "three values": discrete,
    "correlation 0.3": correlated,
    "circle": circle,
    "square": square,
    "scale": scale,
    "parity": parity,
}
INDEPENDENT = ("normal", "uniform", "Cauchy", "three values")
DEPENDENT = ("correlation 0.3", "circle", "square", "scale", "parity")


def cases(tests: int) -> Iterator[Case]:
    """All that is tested."""
    for points, components in itertools.product((30, 300), (2, 5)):
        for samples, method in itertools.product(INDEPENDENT, METHODS):
            yield Case("independent", samples, method, points, components, tests)
    for points, crowded in ((50, False), (100, False), (200, False), (100, True)):
        for samples, method in itertools.product(DEPENDENT, METHODS):
            few = 3 if samples == "parity" else 2
            yield Case("dependent", samples, method, points, 5 if crowded else few, tests)


def row(numbered: tuple[int, Case]) -> dict[str, Any]:
    """How many of a case's tests reject at each level: by the p-value, and by the joint statistic's alone."""
    number, case = numbered
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(number)
    draw, method = DRAWS[case.samples], METHODS[case.method]
    mutual, joint = [], []
    start = time.perf_counter()
    for _ in range(case.tests):
        found = independence_test(
            draw(case.points, case.components, generator),
            method=method,
            generator=generator,
            permutations=PERMUTATIONS,
        )
        mutual.append(float(found.p_value))
        joint.append(float(found.joint_p_value))
    seconds = (time.perf_counter() - start) / case.tests
    return case._asdict() | {
        "rejected": [_reached(mutual, level) for level in LEVELS],
        "rejected_jointly": [_reached(joint, level) for level in LEVELS],
        "seconds": round(seconds, 4),
    }


def _reached(p_values: list[float], level: float) -> int:
    return sum(p <= level + 1e-9 for p in p_values)


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(prog="benchmarks.calibration", description=__doc__)
    parser.add_argument("--tests", type=int, default=200, help="tests of each case")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=TARGET, help="file of the counts")
    asked = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(asked.workers) as pool:
        for found in pool.map(row, enumerate(cases(asked.tests))):
            print(found, flush=True)
            rows.append(found)
    about = provenance() | {"permutations": PERMUTATIONS, "levels": LEVELS}
    lines = ",\n".join(json.dumps(found) for found in rows)
    text = f'{{"about": {json.dumps(about)},\n"rows": [\n{lines}\n]}}\n'
    write_atomically(asked.out, lambda temporary: temporary.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main()
