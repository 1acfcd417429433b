"""Ten handwritten digits that ship with the package."""

from __future__ import annotations

from importlib import resources

import numpy as np
import torch
from torch import Tensor

__all__ = ["digit_images"]


def digit_images() -> Tensor:
    """The first training example of each MNIST class, 0 to 9 in order: float64 (10, 28, 28) in [0, 1].

    >>> digit_images().shape
    torch.Size([10, 28, 28])
    """
    with resources.files("unseam.data").joinpath("digits.npy").open("rb") as file:
        return torch.from_numpy(np.load(file, allow_pickle=False)).double() / 255
