"""Checks and conversions that all metrics share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseam.metrics._scale import level, scaled

__all__ = [
    "Checked",
    "Table",
    "at_least_one",
    "checked",
    "chosen",
    "classes",
    "default_generator",
    "distinct",
    "drawn",
    "equal_width",
    "labels",
    "parts",
    "tensor",
    "unstacked",
    "unsupervised",
]

Table = Tensor | NDArray[Any] | pd.DataFrame
Settings = TypeVar("Settings")
Numbers = TypeVar("Numbers", bound=tuple[Any, ...])


class Checked(NamedTuple):
    """Codes and factors as every metric wants them."""

    codes: Tensor
    """(member, batch, latent), float32 or float64, finite."""
    factors: Tensor
    """(batch, factor), finite, on the device of the codes: float64, or the integers they came as where all are
    discrete and none has been drawn."""
    discrete: tuple[bool, ...]
    """Which factors are discrete."""
    variance: Tensor | None
    """Posterior variance (member, batch, latent), or none."""
    stacked: bool
    """Whether the codes came with a member axis, so that the score keeps it."""

    def levelled(self, *, common: bool = False, small: bool = True) -> Checked:
        """The same with codes of extreme size brought to one that can be squared, see :func:`level`."""
        return self._replace(codes=scaled(self.codes, level(self.codes, common=common, small=small)))


def checked(
    codes: Tensor | NDArray[Any],
    factors: Table,
    *,
    discrete: Sequence[bool] | None = None,
    variance: Tensor | NDArray[Any] | None = None,
) -> Checked:
    """Codes and factors that fit each other, or a message that says why they do not.

    Booleans and unsigned integers count as integers; words and categories as discrete, by their order.
    """
    given = _floating("codes", codes)
    if given.ndim not in (2, 3) or 0 in given.shape:
        empty = "no points, in " if given.ndim in (2, 3) and given.shape[-2] == 0 else ""
        raise ValueError(
            f"codes must have shape (batch, latent) or (member, batch, latent), got {empty}shape {tuple(given.shape)}"
        )
    stacked = given.ndim == 3
    values, integer = _columns(factors, discrete)
    if len(values) != given.shape[-2]:
        raise ValueError(
            f"codes and factors must have one row a point, got {given.shape[-2]} codes and {len(values)} factors"
        )
    if discrete is not None and len(discrete) != values.shape[1]:
        raise ValueError(
            f"discrete must say of each of {values.shape[1]} factors whether it is, got {len(discrete)} values"
        )
    spread = None if variance is None else _spread(variance, given)
    return Checked(
        given if stacked else given[None],
        values.to(given.device),
        tuple(bool(flag) for flag in (integer if discrete is None else discrete)),
        None if spread is None else spread if stacked else spread[None],
        stacked,
    )


def _spread(variance: Tensor | NDArray[Any], codes: Tensor) -> Tensor:
    """Posterior variances that fit codes."""
    spread = _floating("variance", variance)
    if spread.shape != codes.shape:
        raise ValueError(
            f"variance must have the shape of codes {tuple(codes.shape)}, got shape {tuple(spread.shape)}"
        )
    if count := int((spread < 0).sum()):
        raise ValueError(f"variance must not be negative, got {count} negative entries")
    return spread


def unsupervised(codes: Tensor | NDArray[Any], *, variance: Tensor | NDArray[Any] | None = None) -> Checked:
    """Codes alone, as :func:`checked` gives them, with a table of no factors."""
    given = tensor("codes", codes)
    rows = given.shape[-2] if given.ndim >= 2 else 1
    found = checked(given, torch.zeros(max(rows, 1), 1), variance=variance)
    return found._replace(factors=found.factors[:, :0], discrete=())


def equal_width(values: Tensor, bins: int) -> Tensor:
    """Bin (..., batch) of every value among equal ones between the smallest and largest of its row, int64.

    The convention of ``numpy.histogram``, edges rounded as there: all bins half-open but the last, which is
    closed. A row of equal values lies in bin 0.
    """
    low = values.amin(-1, keepdim=True)
    step = (values.amax(-1, keepdim=True) - low) / bins
    index = ((values - low) / torch.where(step > 0, step, 1.0)).floor_().clamp_(0, bins - 1)
    index.add_(values < index * step + low, alpha=-1)
    # The last bin's upper edge is beyond all values; a row without a width has no edges to cross.
    upper = torch.where((index < bins - 1) & (step > 0), (index + 1) * step + low, torch.inf)
    index.add_(values >= upper)
    return index.long()


def classes(given: Checked, bins: int) -> Tensor:
    """Class (batch, factor) of every factor's value: its label where discrete, else its equal-width bin."""
    columns = [
        column if discrete else equal_width(column, bins).double()
        for column, discrete in zip(given.factors.T, given.discrete, strict=True)
    ]
    return labels(torch.stack(columns, dim=1))


def parts(count: int, numbers: int, device: torch.device) -> Iterator[slice]:
    """Slices of ``count`` rows of so many numbers each: 8 MB at a time for a processor's caches, else 256 MB."""
    most = max(1, (2**25 if device.type == "cuda" else 2**20) // max(numbers, 1))
    return (slice(start, start + most) for start in range(0, count, most))


def labels(factors: Tensor) -> Tensor:
    """Position (batch, factor) of every value among the distinct values of its factor, int64."""
    return torch.stack([torch.unique(column, return_inverse=True)[1] for column in factors.T], dim=1)


def drawn(given: Checked, points: int | None, generator: torch.Generator) -> Checked:
    """At most so many points, at random without replacement, the same for all members."""
    batch = given.codes.shape[1]
    if points is None or points >= batch:
        return given._replace(factors=given.factors.double())
    index = distinct(batch, points, generator).to(given.codes.device)
    return given._replace(
        codes=given.codes.index_select(1, index),
        factors=given.factors.index_select(0, index).double(),
        variance=None if given.variance is None else given.variance.index_select(1, index),
    )


def distinct(batch: int, count: int, generator: torch.Generator) -> Tensor:
    """So many different points (count,) of a batch in random order, without permuting a much larger batch."""
    if count > batch // 4:
        return torch.randperm(batch, generator=generator, device=generator.device)[:count]
    found = torch.empty(0, dtype=torch.int64, device=generator.device)
    while len(found) < count:
        more = torch.randint(batch, (2 * count,), generator=generator, device=generator.device)
        found = torch.cat([found, more]).unique()
    # By symmetry any choice among the different ones is uniform.
    return found[torch.randperm(len(found), generator=generator, device=generator.device)[:count]]


def default_generator(generator: torch.Generator | None) -> torch.Generator:
    """The generator that was given, or one of its own with seed 0: a score is the same every time."""
    if generator is None:
        return torch.Generator().manual_seed(0)
    if not isinstance(generator, torch.Generator):
        raise ValueError(
            f"generator must be a torch.Generator (one of seed 3: torch.Generator().manual_seed(3)), got {generator!r}"
        )
    return generator


def chosen(preset: str | Settings, presets: Mapping[str, Settings]) -> Settings:
    """Settings of a named preset, or those that were given."""
    if not isinstance(preset, str):
        kind = type(next(iter(presets.values())))
        if not isinstance(preset, kind):
            raise ValueError(f"preset must be a name or {kind.__name__}, got {type(preset).__name__}")
        return preset
    if preset not in presets:
        raise ValueError(f"preset must be one of {', '.join(presets)}, got {preset!r}")
    return presets[preset]


def at_least_one(**counts: int | None) -> None:
    """Refuses settings that ask for less than one of something; none stands for all."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")


def unstacked(result: Numbers, stacked: bool) -> Numbers:
    """A result whose tensors lose their member axis where the codes had none; tuples inside likewise."""
    if stacked:
        return result
    parts = (
        part[0] if isinstance(part, Tensor) else unstacked(part, stacked) if _is_named(part) else part
        for part in result
    )
    return type(result)(*parts)


def _is_named(value: object) -> bool:
    return isinstance(value, tuple) and getattr(value, "_fields", None) is not None


def _columns(factors: Table, discrete: Sequence[bool] | None) -> tuple[Tensor, list[bool]]:
    """Factors as one table, and which columns are discrete; integers stay so where all are discrete."""
    named = isinstance(factors, np.ndarray) and factors.dtype.kind in "OUS" and factors.ndim == 2
    if named or isinstance(factors, pd.DataFrame):
        frame = pd.DataFrame(factors).infer_objects()
        numbers = [pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]
        _refuse_unordered(frame, numbers, discrete)
        columns = [
            _numbers(frame.iloc[:, place]) if number else _positions(frame.iloc[:, place])
            for place, number in enumerate(numbers)
        ]
        table = torch.as_tensor(np.stack(columns, 1) if columns else np.empty(frame.shape))
        integer = [not pd.api.types.is_float_dtype(kind) for kind in frame.dtypes]
    else:
        table = tensor("factors", factors)
        integer = [not table.is_floating_point()] * (table.shape[1] if table.ndim == 2 else 0)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"factors must have shape (batch, factor), got shape {tuple(table.shape)}")
    if table.is_complex() or _unfinite(table) > 0:
        raise ValueError("factors must be real and finite, got NaN, infinite or complex values")
    keep = not table.is_floating_point() and (discrete is None or all(discrete))
    if keep:
        return table, integer
    table = table.double()
    return scaled(table, level(table)), integer


def _refuse_unordered(frame: pd.DataFrame, numbers: list[bool], discrete: Sequence[bool] | None) -> None:
    for name, number, flag in zip(frame.columns, numbers, discrete or (), strict=False):
        if not number and not flag:
            raise ValueError(f"discrete must be true for factor {name!r}, whose values are no numbers")


def _numbers(column: pd.Series) -> NDArray[Any]:
    return column.to_numpy("float64", na_value=float("nan"))


def _positions(column: pd.Series) -> NDArray[Any]:
    """Position of every value among the categories, or among the sorted values; NaN for one that is missing."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        found = column.cat.codes.to_numpy()
    else:
        found = pd.factorize(column, sort=True)[0]
    return np.where(found < 0, np.nan, found)


def tensor(name: str, value: object) -> Tensor:
    """A tensor of an array, table or tensor, booleans and unsigned integers as int64, or a message with its name."""
    if isinstance(value, pd.DataFrame):
        if not all(pd.api.types.is_numeric_dtype(kind) for kind in value.dtypes):
            raise ValueError(f"{name} must hold numbers, got {', '.join(map(str, value.dtypes))}")
        value = value.to_numpy("float64", na_value=float("nan"))
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            raise ValueError(f"{name} must hold numbers, got {array.dtype}")
        # PyTorch takes neither negative strides nor another machine's byte order, and warns of read-only memory.
        value = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
    given = torch.as_tensor(value).detach()
    if given.dtype == torch.bool or given.dtype in (torch.uint16, torch.uint32, torch.uint64):
        given = given.long()
    return given


def _floating(name: str, value: Tensor | NDArray[Any] | pd.DataFrame) -> Tensor:
    """A real, finite tensor; integers and booleans as float64."""
    given = tensor(name, value)
    if given.is_complex():
        raise ValueError(f"{name} must be real, got {given.dtype}")
    if not given.is_floating_point():
        given = given.double()
    if given.dtype in (torch.float16, torch.bfloat16):
        given = given.float()
    count = _unfinite(given)
    if count > 0:
        raise ValueError(f"{name} must be finite, got {count} entries that are NaN or infinite")
    return given


def _unfinite(values: Tensor) -> int:
    """Number of entries that are NaN or infinite, which a sum that is neither excludes at a glance."""
    if not values.is_floating_point() or bool(values.sum().isfinite()):
        return 0
    return int((~values.isfinite()).sum())
