"""What users pass, as tensors and numbers: the one conversion of all packages, with messages that name the argument."""

from __future__ import annotations

import math
import numbers
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "Array",
    "Decoder",
    "as_floating",
    "as_mask",
    "as_tensor",
    "check_choice",
    "check_count",
    "check_finite",
    "check_flag",
    "check_generator",
    "check_number",
    "check_scale",
    "check_shape",
    "ordinary_modes",
]

Array = Tensor | NDArray[Any]
"""Numbers that a user passes."""
Decoder = Callable[[Tensor], Tensor]
"""A decoder as a function of latents (batch, latent)."""


@contextmanager
def ordinary_modes() -> Iterator[None]:
    """No automatic mixed precision, and the host as default device, whatever a program around a call has set.

    >>> with torch.autocast("cpu", dtype=torch.bfloat16), ordinary_modes():
    ...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
    torch.float32
    """
    with ExitStack() as modes:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                modes.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            modes.enter_context(torch.device("cpu"))
        yield


def as_tensor(name: str, value: object, shape: str = "") -> Tensor:
    """A tensor of what NumPy reads as numbers: tensors, arrays of any layout, nested lists, tables of pandas.

    Memory is shared where torch can: it takes neither negative strides nor another machine's byte order, and warns of
    read-only memory, so these are copied. Tensors stay as they are, with their gradients. Booleans and unsigned
    integers that torch cannot compute with become int64.

    Args:
        name: what messages call the value.
        value: what was passed.
        shape: axes such as ``"(batch, latent)"`` or ``"(..., latent, latent)"``, where axes of one name are of one
            size and none that is named is empty; several shapes are parted by ``" or "``. Empty for any shape.

    >>> as_tensor("z", np.arange(3.0)[::-1])
    tensor([2., 1., 0.], dtype=torch.float64)
    >>> as_tensor("pullback", [[1, 2, 3]], "(..., latent, latent)")
    Traceback (most recent call last):
    ValueError: pullback must have shape (..., latent, latent), got shape (1, 3)
    """
    given = value if isinstance(value, Tensor) else torch.from_numpy(_as_array(name, value))
    if given.layout is not torch.strided or given.is_quantized or given.is_nested:
        raise ValueError(f"{name} must be a dense tensor, got one of layout {given.layout}")
    if given.is_meta:
        raise ValueError(f"{name} must be a tensor with values, got one on the device meta")
    if given.is_complex():
        raise ValueError(f"{name} must be real, got {given.dtype}")
    if shape:
        check_shape(name, given, shape)
    if given.dtype in (torch.bool, torch.uint16, torch.uint32, torch.uint64):
        return given.long()
    return given


def as_mask(name: str, value: object) -> Tensor:
    """A mask or list of indices: booleans or integers, as they came.

    >>> as_mask("active", [True, False])
    tensor([ True, False])
    """
    boolean = isinstance(value, Tensor) and value.dtype == torch.bool
    if not isinstance(value, Tensor):
        value = _as_array(name, value)
        boolean = value.dtype == np.bool
    given = as_tensor(name, value)
    if given.is_floating_point() and given.numel():
        raise ValueError(f"{name} must be a mask or indices, got {given.dtype} of shape {tuple(given.shape)}")
    return given.bool() if boolean else given.long()


def as_floating(name: str, value: object, shape: str = "", *, finite: bool = True) -> Tensor:
    """:func:`as_tensor` in single or double precision, refused where NaN or infinite.

    Integers become float64, half precision float32: results are in that type.

    Args:
        name: what messages call the value.
        value: what was passed.
        shape: as for :func:`as_tensor`.
        finite: whether entries are looked at, which waits for the device.

    >>> as_floating("mean", [1, 2])
    tensor([1., 2.], dtype=torch.float64)
    >>> as_floating("mean", [1.0, float("nan")])
    Traceback (most recent call last):
    ValueError: mean must be finite, got 1 entries that are NaN or infinite
    """
    given = as_tensor(name, value, shape)
    if not given.is_floating_point():
        given = given.double()
    elif given.dtype not in (torch.float32, torch.float64):
        given = given.float()
    if finite:
        check_finite(name, given)
    return given


def check_shape(name: str, value: Tensor, shape: str) -> None:
    """Refuse a tensor that has none of the shapes; the notation is that of :func:`as_tensor`.

    >>> check_shape("z", torch.zeros(2, 3), "(batch, latent)")
    """
    if not any(_fits(tuple(value.shape), axes) for axes in _axes(shape)):
        raise ValueError(f"{name} must have shape {shape}, got shape {tuple(value.shape)}")


def check_finite(name: str, value: Tensor) -> None:
    """Refuse NaN and infinite entries, which a sum that is neither excludes at a glance.

    >>> check_finite("z", torch.zeros(2))
    """
    if not value.is_floating_point() or bool(value.detach().sum().isfinite()):
        return
    if count := int((~value.isfinite()).sum()):
        raise ValueError(f"{name} must be finite, got {count} entries that are NaN or infinite")


def check_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """A finite real number within bounds: larger than ``above``, at least ``least``, and so on.

    >>> check_number("beta", np.float32(0.5), above=0)
    0.5
    >>> check_number("share", float("nan"), above=0, most=1)
    Traceback (most recent call last):
    ValueError: share must lie in (0, 1], got nan
    """
    number = _as_float(name, value)
    shown = value if isinstance(value, int) and math.isfinite(number) else number
    low, high = above if least is None else least, below if most is None else most
    inside = (low is None or (number > low if least is None else number >= low)) and (
        high is None or (number < high if most is None else number <= high)
    )
    if not inside or math.isnan(number):
        raise ValueError(f"{name} must {_range(above, least, below, most)}, got {shown}")
    if math.isinf(number):
        raise ValueError(f"{name} must be finite, got {shown}")
    return number


def check_count(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """An integer within bounds; neither a boolean nor a float.

    >>> check_count("latent", np.int64(3), 1, 4)
    3
    >>> check_count("chunk_size", 0)
    Traceback (most recent call last):
    ValueError: chunk_size must be at least 1, got 0
    """
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        count = None
    if (
        count is None
        or isinstance(value, bool | np.bool)
        or (isinstance(value, Tensor) and value.dtype == torch.bool)
    ):
        raise ValueError(f"{name} must be an integer, got {_describe(value)}")
    if count < least or (most is not None and count > most):
        wanted = f"be at least {least}" if most is None else f"be from {least} to {most}"
        raise ValueError(
            f"{name} must {'not be negative' if wanted == 'be at least 0' else wanted}, got {count}"
        )
    return count


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse what is not among the choices.

    >>> check_choice("form", "cubic", ("linear", "nonlinear"))
    Traceback (most recent call last):
    ValueError: form must be 'linear' or 'nonlinear', got 'cubic'
    """
    if not isinstance(value, str) or value not in choices:
        *others, last = map(repr, choices)
        listed = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{name} must be {listed}, got {_describe(value)}")


def check_flag(name: str, value: object) -> bool:
    """A boolean; refused otherwise, for a string or an array is true by accident.

    >>> check_flag("diagonal", np.True_)
    True
    """
    if not isinstance(value, bool | np.bool):
        raise ValueError(f"{name} must be True or False, got {_describe(value)}")
    return bool(value)


def check_generator(value: object, name: str = "generator") -> torch.Generator:
    """A source of random numbers.

    >>> check_generator(3)
    Traceback (most recent call last):
    ValueError: generator must be a torch.Generator (one of seed 3: torch.Generator().manual_seed(3)), got 3
    """
    if not isinstance(value, torch.Generator):
        example = "one of seed 3: torch.Generator().manual_seed(3)"
        raise ValueError(f"{name} must be a torch.Generator ({example}), got {_describe(value)}")
    return value


def _as_array(name: str, value: object) -> NDArray[Any]:
    """An array that torch takes: numbers, native byte order, strides that ascend, memory that may be written."""
    value = _table_values(name, value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} must have no masked entries; fill or drop them first")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{name} must hold numbers, got {_describe(value)}: {error}") from None
    kind = array.dtype
    if kind.kind not in "biufc":
        found = kind if isinstance(value, np.ndarray) else _describe(value)
        raise ValueError(f"{name} must hold numbers, got {found}")
    if kind.kind == "c":
        raise ValueError(f"{name} must be real, got {kind}")
    beyond = kind.kind == "u" and array.size > 0 and array.max() > np.iinfo(np.int64).max
    if beyond or kind.itemsize > 8:
        array = array.astype(np.float64)
    return np.require(array, array.dtype.newbyteorder("="), ["C", "W"])


def _table_values(name: str, value: object) -> object:
    """Values of a table or column of pandas, missing ones as NaN; anything else as it is."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, pandas.DataFrame | pandas.Series | pandas.Index):
        return value
    kinds = value.dtypes if isinstance(value, pandas.DataFrame) else [value.dtype]
    if not all(pandas.api.types.is_numeric_dtype(kind) for kind in kinds):
        raise ValueError(f"{name} must hold numbers, got {', '.join(map(str, kinds))}")
    if all(isinstance(kind, np.dtype) for kind in kinds):
        return value.to_numpy()
    return value.to_numpy("float64", na_value=float("nan"))


@lru_cache
def _axes(shape: str) -> tuple[tuple[str, ...], ...]:
    """Names of the axes of each shape; the first may be an ellipsis."""
    return tuple(
        tuple(axis.strip() for axis in part.strip("() ").split(",") if axis.strip())
        for part in shape.split(" or ")
    )


def _fits(sizes: tuple[int, ...], axes: tuple[str, ...]) -> bool:
    if axes and axes[0] == "...":
        axes = axes[1:]
        sizes = sizes[len(sizes) - len(axes) :] if len(sizes) >= len(axes) else ()
    if axes and axes[-1].startswith("*"):
        sizes = sizes if 0 not in sizes else ()
        axes = axes[:-1]
        sizes = sizes[: len(axes)] if len(sizes) > len(axes) else ()
    if len(sizes) != len(axes):
        return False
    found: dict[str, int] = {}
    return all(
        size > 0 and found.setdefault(axis, size) == size for axis, size in zip(axes, sizes, strict=True)
    )


def _as_float(name: str, value: object) -> float:
    array = value if isinstance(value, Tensor | np.ndarray | np.generic) else None
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if array is not None:
        kind = str(array.dtype)
        real = (array.ndim == 0 and "int" in kind) or ("float" in kind and array.ndim == 0)
        real = real and not (isinstance(value, Tensor) and value.is_meta)
    if not real:
        raise ValueError(f"{name} must be a number, got {_describe(value)}")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def _range(above: float | None, least: float | None, below: float | None, most: float | None) -> str:
    low, high = above if least is None else least, below if most is None else most
    if low is None and high is None:
        return "be a number"
    if high is None:
        zero = "be positive" if least is None else "not be negative"
        return zero if low == 0 else f"be {'above' if least is None else 'at least'} {low:g}"
    if low is None:
        return f"be {'below' if most is None else 'at most'} {high:g}"
    return f"lie in {'(' if least is None else '['}{low:g}, {high:g}{')' if most is None else ']'}"


def check_scale(argument: str, values: Tensor) -> None:
    """Refuse bytes, which do not say on which scale a model takes them.

    >>> check_scale("x", torch.zeros(1, 2, dtype=torch.uint8))
    Traceback (most recent call last):
    ValueError: x must be on the scale that the model was trained on, got bytes: pass x / 255 for images in [0, 1], ...
    """
    if values.dtype == torch.uint8:
        raise ValueError(
            f"{argument} must be on the scale that the model was trained on, got bytes: pass {argument} / 255 for "
            f"images in [0, 1], {argument} / 127.5 - 1 for [-1, 1]"
        )


def _describe(value: object) -> str:
    """A short value as it is written, anything else by its type and shape."""
    if isinstance(value, Tensor | np.ndarray):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    if value is None or isinstance(value, str | bytes | numbers.Number):
        written = repr(value)
        return written if len(written) <= 60 else f"{written[:57]}..."
    return type(value).__name__
