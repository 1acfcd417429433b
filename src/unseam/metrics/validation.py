"""Every metric on encoders whose codes are known: a grid that shows what each metric measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from unseam.inputs import check_count
from unseam.metrics._inputs import default_generator
from unseam.metrics.evaluate import Metric, draw_seed, evaluate

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FactorWorld", "SyntheticEncoder", "encoders", "validation_grid", "worlds"]

Way = Callable[[Tensor, torch.Generator], Tensor]

SIZES = (4, 4, 6, 6)
"""Values of the discrete factors: equal within the pairs that encoders mix, different between them."""
ANGLES = (15, 30, 45)
"""Degrees by which codes are rotated; at 45 a code holds both factors of its pair equally."""
NOISES = (0.1, 0.3, 1.0)
"""Standard deviations of noise beside codes of standard deviation 1."""
CORRELATION = 0.5
"""Correlation of the normal variables behind every two correlated factors."""
EXTRA = 4
"""Codes that are added to as many good ones in overcomplete encoders."""
DEAD = 0.01
"""Standard deviation of a collapsed code: below every threshold of activity in use (0.05, and variance 0.01)."""


class FactorWorld(NamedTuple):
    """A distribution of factors."""

    name: str
    """What the distribution is called."""
    draw: Callable[[int, torch.Generator], Tensor]
    """Factors (batch, factor) of about so many points: integers where discrete."""


class SyntheticEncoder(NamedTuple):
    """A way to make codes from the factors themselves."""

    name: str
    """What the encoder is called."""
    encode: Way
    """Codes (batch, latent), float64, of factors (batch, factor)."""


def worlds() -> Sequence[FactorWorld]:
    """Distributions of four factors: a uniform grid, correlated, imbalanced, continuous.

    ``uniform`` holds every combination of 4 x 4 x 6 x 6 values equally often, as many whole grids as fit, so
    that factors are independent in the sample and not just on average. ``correlated`` cuts normal variables
    with pairwise correlation 0.5 at their quantiles: uniform margins, incomplete grid. ``imbalanced`` gives
    value v a probability in proportion to :math:`2^{-v}`, independently. ``continuous`` is uniform on [0, 1].

    >>> world = worlds()[0]
    >>> world.name, world.draw(1200, torch.Generator().manual_seed(0)).shape
    ('uniform', torch.Size([1152, 4]))
    """
    return (
        FactorWorld("uniform", _uniform),
        FactorWorld("correlated", _correlated),
        FactorWorld("imbalanced", _imbalanced),
        FactorWorld("continuous", _continuous),
    )


def encoders() -> Sequence[SyntheticEncoder]:
    r"""Encoders that are right, or wrong in one known way.

    With v the four factors, each shifted and scaled to mean 0 and variance 1:

    - ``perfect``: z = v. ``permuted``: the same codes in another order. ``scaled``: each times a power of two.
    - ``rotated 15°``, ``30°``, ``45°``: each pair of factors rotated by the angle,
      :math:`z_0 = v_0 \cos\varphi - v_1 \sin\varphi,\ z_1 = v_0 \sin\varphi + v_1 \cos\varphi`.
    - ``entangled pairs``: radius and angle of each pair: orthogonal axes that are not the factors.
    - ``merged``: the first two factors in one code, none of them lost, the other two in one each.
    - ``duplicated``: the first factor in two codes. ``missing``: the last factor in none.
    - ``noisy 0.1``, ``0.3``, ``1``: normal noise of that standard deviation added.
    - ``monotone``: z = sinh v. ``steep``: z = exp 2v.
    - ``with collapsed codes``: four codes of standard deviation 0.01 that know nothing are added.
      ``with noise codes``: four of standard deviation 1.

    >>> encoder = encoders()[0]
    >>> factors = torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]])
    >>> encoder.name, encoder.encode(factors, torch.Generator())[0].tolist()
    ('perfect', [-1.0, -1.0, -1.0, -1.0])
    """
    ways: dict[str, Way] = {
        "perfect": lambda values, generator: values,
        "permuted": lambda values, generator: values[:, [2, 0, 3, 1]],
        "scaled": lambda values, generator: values * values.new_tensor([0.25, 0.5, 4.0, 8.0]),
        "monotone": lambda values, generator: values.sinh(),
        "steep": lambda values, generator: (2 * values).exp(),
        **{f"rotated {angle}°": partial(_rotated, angle=angle) for angle in ANGLES},
        "entangled pairs": _polar,
        "merged": _merged,
        "duplicated": lambda values, generator: torch.cat([values, values[:, :1]], 1),
        "missing": lambda values, generator: values[:, :-1],
        **{f"noisy {level:g}": partial(_noisy, level=level) for level in NOISES},
        "with collapsed codes": partial(_overcomplete, scale=DEAD),
        "with noise codes": partial(_overcomplete, scale=1.0),
    }
    return tuple(SyntheticEncoder(name, partial(_encode, way)) for name, way in ways.items())


def validation_grid(
    metrics: Sequence[str | Metric] | None = None,
    *,
    points: int = 10_000,
    preset: str | Mapping[str, Any] = "fast",
    generator: torch.Generator | None = None,
) -> pd.DataFrame:
    """Every metric on every synthetic encoder in every world, as a tidy table.

    Args:
        metrics: functions or names, as in :func:`~unseam.metrics.evaluate`; by default all that fit.
        points: number of points in each world, at least that of one whole grid, 576.
        preset: as in :func:`~unseam.metrics.evaluate`.
        generator: source of a seed for factors, noise and metrics; by default seed 0. All encoders see the same
            factors and the same noise.

    Returns:
        Columns ``metric``, ``world``, ``encoder``, ``score``, ``lower``, ``upper``, in the order in which
        metrics, worlds and encoders are listed.

    >>> grid = validation_grid(["mig"], points=576)
    >>> round(grid[(grid.world == "uniform") & (grid.encoder == "duplicated")].score.item(), 9)
    0.75
    """
    import pandas as pd

    if check_count("points", points) < math.prod(SIZES):
        raise ValueError(f"points must be at least those of one grid, {math.prod(SIZES)}, got {points}")
    seed = draw_seed(default_generator(generator))
    parts = []
    for world in worlds():
        factors = world.draw(points, _seeded(seed))
        for names, codes in _stacks(factors, seed + 1):
            table = evaluate(codes, factors, metrics, preset=preset, generator=_seeded(seed + 2))
            parts.append(
                table.assign(world=world.name, encoder=[names[member] for member in table["member"]])
            )
    return _sort_table(pd.concat(parts, ignore_index=True))


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _stacks(factors: Tensor, seed: int) -> Iterator[tuple[list[str], Tensor]]:
    """Names and codes (encoder, batch, latent) of all encoders, those with as many codes together."""
    codes = {way.name: way.encode(factors, _seeded(seed)) for way in encoders()}
    for latent in sorted({code.shape[1] for code in codes.values()}):
        stack = {name: code for name, code in codes.items() if code.shape[1] == latent}
        yield list(stack), torch.stack(list(stack.values()))


def _sort_table(table: pd.DataFrame) -> pd.DataFrame:
    """Columns and rows in the order in which a reader meets them; what was left out is left out."""
    import pandas as pd

    scored = table[table["note"] == ""]
    order = {
        "metric": list(dict.fromkeys(scored["metric"])),
        "world": [world.name for world in worlds()],
        "encoder": [way.name for way in encoders()],
    }
    ranks = pd.DataFrame({column: scored[column].map(names.index) for column, names in order.items()})
    rows = ranks.sort_values(list(order)).index
    return scored.loc[rows, [*order, "score", "lower", "upper"]].reset_index(drop=True)


# Worlds


def _uniform(points: int, generator: torch.Generator) -> Tensor:
    grid = torch.cartesian_prod(*(torch.arange(size) for size in SIZES))
    rows = grid.repeat(points // len(grid), 1)
    return rows[torch.randperm(len(rows), generator=generator)]


def _correlated(points: int, generator: torch.Generator) -> Tensor:
    shared = torch.randn(points, 1, generator=generator, dtype=torch.float64)
    own = torch.randn(points, len(SIZES), generator=generator, dtype=torch.float64)
    normal = math.sqrt(CORRELATION) * shared + math.sqrt(1 - CORRELATION) * own
    sizes = torch.tensor(SIZES)
    return (torch.special.ndtr(normal) * sizes).long().clamp(max=sizes - 1)


def _imbalanced(points: int, generator: torch.Generator) -> Tensor:
    columns = [
        torch.multinomial(0.5 ** torch.arange(size).double(), points, replacement=True, generator=generator)
        for size in SIZES
    ]
    return torch.stack(columns, 1)


def _continuous(points: int, generator: torch.Generator) -> Tensor:
    return torch.rand(points, len(SIZES), generator=generator, dtype=torch.float64)


# Encoders, of standardised factors


def _encode(way: Way, factors: Tensor, generator: torch.Generator) -> Tensor:
    given = factors.double()
    values = (given - given.mean(0)) / given.std(0, correction=0)
    # Codes that are equal in exact arithmetic are equal: rounding must not put them into different bins.
    return way(values, generator).round(decimals=9)


def _rotated(values: Tensor, generator: torch.Generator, *, angle: float) -> Tensor:
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    first, second = values[:, ::2], values[:, 1::2]
    rotated = torch.stack([cosine * first - sine * second, sine * first + cosine * second], 2)
    return rotated.flatten(1)


def _polar(values: Tensor, generator: torch.Generator) -> Tensor:
    first, second = values[:, ::2], values[:, 1::2]
    return torch.stack([torch.hypot(first, second), torch.atan2(second, first)], 2).flatten(1)


def _merged(values: Tensor, generator: torch.Generator) -> Tensor:
    """Quarters of the first factor's range, and within each the whole range of the second."""
    low, high = values.aminmax(dim=0)
    unit = (values - low) / (high - low)
    quarter = (unit[:, 0] * SIZES[0]).floor().clamp(max=SIZES[0] - 1)
    both = quarter + unit[:, 1] * (SIZES[1] - 1) / SIZES[1]
    return torch.stack([both - both.mean(), values[:, 2], values[:, 3]], 1)


def _noisy(values: Tensor, generator: torch.Generator, *, level: float) -> Tensor:
    noise = torch.randn(values.shape, generator=generator, dtype=values.dtype)
    return values + level * noise


def _overcomplete(values: Tensor, generator: torch.Generator, *, scale: float) -> Tensor:
    noise = torch.randn((len(values), EXTRA), generator=generator, dtype=values.dtype)
    return torch.cat([values, scale * noise], 1)
