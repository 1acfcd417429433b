"""The mixing matrix of the paper's exactly solvable example."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["example_mixing"]


def example_mixing(data: int = 128, sources: int = 2) -> Tensor:
    """A_ij = ½(1 + δ_ij) of sikka2019 §IV-B (data, source).

    >>> example_mixing(3)
    tensor([[1.0000, 0.5000],
            [0.5000, 1.0000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    return (1 + torch.eye(data, sources, dtype=torch.float64)) / 2
