"""What objectives are given, as tensors and numbers, before they compute."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn

from unseam.inputs import as_floating, check_count, check_number

__all__ = ["checked"]

F = TypeVar("F", bound=Callable[..., Any])
MODULES, ARRAYS, WORDS = ("model", "discriminator"), ("x", "noise", "keys"), ("form", "sampling")


def checked(objective: F) -> F:
    """An objective that takes whatever NumPy reads as numbers, in the precision of the model's weights.

    Only types and shapes are looked at, which costs no pass over the data, waits for no device, and works inside of
    ``torch.func`` transforms; missing values of masked likelihoods are NaN.
    """
    signature = inspect.signature(objective)

    @functools.wraps(objective)
    def call(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        for name in given.keys() & set(MODULES):
            if not isinstance(given[name], nn.Module):
                raise ValueError(f"{name} must be a module, got {type(given[name]).__name__}")
        first = next(given["model"].parameters(), None)
        for name, value in given.items():
            if name in ARRAYS:
                tensor = as_floating(name, value, finite=False)
                given[name] = tensor if first is None else tensor.to(first.dtype)
            elif name == "size":
                check_count(name, value)
            elif name not in (*MODULES, *WORDS):
                given[name] = _weight(name, value)
        return objective(**given)

    return call  # type: ignore[return-value]


def _weight(name: str, value: object) -> Tensor | float:
    """A number, or a tensor of one, as the weights of members of a stack are."""
    if not isinstance(value, Tensor):
        return check_number(name, value)
    if value.ndim or value.is_complex():
        raise ValueError(f"{name} must be a number, got {value.dtype} of shape {tuple(value.shape)}")
    return value
