"""Meter: metrics accumulated over the batches of a training or validation loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unseam.inputs import Array
from unseam.metrics.evaluate import Metric, evaluate

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Meter"]


class Meter:
    """Metrics of codes that come batch by batch, in the manner of torchmetrics: ``update``, ``compute``, ``reset``.

    Scores are functions of all codes together and not means over batches, so that codes and factors are held on the
    host until ``reset``: 8 bytes per latent and item.

    Args:
        metrics: names or functions that :func:`unseam.metrics.evaluate` takes.
        options: further arguments of it: ``discrete``, ``preset``, ``generator``.

    >>> meter = Meter(["mig"])
    >>> for v in torch.cartesian_prod(torch.arange(3), torch.arange(3)).split(4):
    ...     meter.update(v.double(), v)
    >>> meter.compute()["score"].item()
    1.0
    """

    def __init__(self, metrics: Sequence[str | Metric], **options: Any) -> None:
        self.metrics, self.options = metrics, options
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._batches: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def update(self, codes: Array, factors: Array, variance: Array | None = None) -> None:
        """Add one batch.

        Args:
            codes: z (batch, latent) or (member, batch, latent).
            factors: v (batch, factor).
            variance: posterior variance of the codes, in their shape; of all batches or of none.
        """
        codes, factors = (torch.as_tensor(part).detach().cpu() for part in (codes, factors))
        spread = None if variance is None else torch.as_tensor(variance).detach().cpu()
        if codes.shape[-2] != len(factors):
            raise ValueError(
                f"codes and factors must have the same number of items, got {codes.shape[-2]} and {len(factors)}"
            )
        if self._batches and (self._batches[0][2] is None) != (spread is None):
            raise ValueError("variance must be given for all batches or for none")
        self._batches.append((codes, factors, spread))

    def compute(self) -> pd.DataFrame:
        """Scores of all batches since the last ``reset``, as the table of :func:`unseam.metrics.evaluate`."""
        if not self._batches:
            raise ValueError("compute needs codes: call update first")
        codes, factors, variance = zip(*self._batches, strict=True)
        return evaluate(
            torch.cat(codes, -2),
            torch.cat(factors),
            self.metrics,
            variance=None if variance[0] is None else torch.cat(variance, -2),
            **self.options,
        )
