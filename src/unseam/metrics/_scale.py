"""Codes of extreme size or far from 0, brought to where arithmetic neither overflows nor rounds them away."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["centred", "level", "scaled"]

# Between 2⁻⁴⁰ and 2⁴⁰ squares, and sums of millions of them, are far from the limits of single precision.
_EXPONENT = 40
# The most that one factor may be: 2¹⁰⁰⁰ is a number, the inverse of the smallest is not.
_MOST = 1000
# From so many times its range on a code loses digits that matter: single precision has 24, of which 18 are left.
_FAR = 64


def level(values: Tensor, *, common: bool = False, small: bool = True) -> Tensor:
    """Power of two, as its exponent, that brings columns of values (..., batch, column) within 2^±40: 0 for most.

    Values inside stay as they are, to the last digit, and a power of two changes no digit either. So a score that scale
    does not change is the same for codes of any finite size. A score with a penalty or threshold sees large codes as
    large as 2⁴⁰, beyond which neither matters.

    Args:
        values: real, finite.
        common: one power for all columns, where their sizes are compared.
        small: also for small ones; without, what is near 0 stays so, for scores that call such codes dead.

    Returns:
        (..., 1, column), or (..., 1, 1) for a common one.
    """
    low, high = values.aminmax(dim=-2, keepdim=True)
    most = torch.maximum(-low, high)
    exponent = torch.frexp(most.amax(-1, keepdim=True) if common else most).exponent
    return (exponent.clamp(-_EXPONENT if small else None, _EXPONENT) - exponent).clamp(max=_MOST)


def scaled(values: Tensor, exponent: Tensor) -> Tensor:
    """Values times two to the exponent, which broadcasts; the very same where that is 0."""
    return values * exponent.to(values.dtype).exp2() if bool(exponent.any()) else values


def centred(values: Tensor) -> Tensor:
    """Values (..., batch, column), a column that lies further from 0 than 64 times its range moved to mean 0.

    In the precision that they came in, before trees read them in single precision; others stay as they are.
    """
    low, high = values.aminmax(dim=-2, keepdim=True)
    far = torch.maximum(-low, high) > _FAR * (high - low)
    return torch.where(far, values - values.mean(-2, keepdim=True), values) if bool(far.any()) else values
