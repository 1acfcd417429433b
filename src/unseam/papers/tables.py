"""Tables of measurements: from tensors and trials, and one below the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from unseam.trial import Trial

__all__ = ["columns_of", "concatenate", "from_text", "of_tables", "rows_of", "table_of", "to_text"]


def table_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """A table of tensors (row,) of any device, sequences, and values that are the same in all rows.

    >>> import torch
    >>> table_of({"kind": "VAE", "seed": range(2), "dto": torch.tensor([0.5, 0.25])})["dto"].tolist()
    [0.5, 0.25]
    """
    arrays = {
        name: value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        for name, value in columns.items()
    }
    return pd.DataFrame(arrays)


def rows_of(columns: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """The same of tensors (row,) alone, as one record per row.

    >>> import torch
    >>> rows_of({"seed": torch.arange(2), "dto": torch.tensor([0.5, 0.25])})
    [{'seed': 0, 'dto': 0.5}, {'seed': 1, 'dto': 0.25}]
    """
    each = zip(*(values.tolist() for values in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in each]


def columns_of(trials: Sequence[Trial], *fields: str) -> dict[str, list[Any]]:
    """Columns with these fields of each trial.

    >>> columns_of([Trial(beta=1.0), Trial(beta=4.0)], "beta")
    {'beta': [1.0, 4.0]}
    """
    return {field: [getattr(trial, field) for trial in trials] for field in fields}


def concatenate(parts: Iterable[Mapping[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """Tables of the same name one below the other.

    >>> part = {"members": pd.DataFrame({"seed": [0]})}
    >>> concatenate([part, part])["members"].index.tolist()
    [0, 1]
    """
    found: dict[str, list[pd.DataFrame]] = {}
    for tables in parts:
        for name, table in tables.items():
            found.setdefault(name, []).append(table)
    return {name: pd.concat(tables, ignore_index=True) for name, tables in found.items()}


def to_text(images: Tensor, greys: str) -> list[str]:
    """Pictures (item, ...) with values from 0 to 1 as texts, one letter of ``greys`` per pixel.

    >>> import torch
    >>> to_text(torch.tensor([[0.0, 0.4, 1.0]]), "abc")
    ['abc']
    """
    most = len(greys) - 1
    levels = (most * images.flatten(1)).round().clamp(0, most).int().tolist()
    return ["".join(greys[level] for level in picture) for picture in levels]


def from_text(texts: Iterable[str], greys: str) -> NDArray[np.float64]:
    """Square pictures (item, side, side) from 0 to 1 that :func:`to_text` wrote.

    >>> from_text(["aabb"], "ab").tolist()
    [[[0.0, 0.0], [1.0, 1.0]]]
    """
    levels = np.array([[greys.index(letter) for letter in text] for text in texts])
    side = math.isqrt(levels.shape[1])
    return levels.reshape(-1, side, side) / (len(greys) - 1)


P = ParamSpec("P")
T = TypeVar("T")


def of_tables(
    function: Callable[Concatenate[Mapping[str, pd.DataFrame], P], T],
) -> Callable[P, Callable[[Mapping[str, pd.DataFrame]], T]]:
    """A function of tables and further arguments, as one of these arguments that returns a function of tables.

    >>> size = of_tables(lambda tables, name: len(tables[name]))
    >>> size("members")({"members": pd.DataFrame({"seed": [0, 1]})})
    2
    """

    @functools.wraps(function)
    def bound(*args: P.args, **options: P.kwargs) -> Callable[[Mapping[str, pd.DataFrame]], T]:
        return lambda tables: function(tables, *args, **options)

    return bound
