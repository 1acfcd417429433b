"""Sources mixed linearly under Gaussian noise, with their exact posterior (sikka2019 Eqs. 17-19)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unseam import choices
from unseam.data.array import ArrayWorld, Posterior
from unseam.data.digits import digit_images
from unseam.data.world import check_room

__all__ = ["mixture", "source_posterior"]

MIXTURE = choices.World("mixture", "digit mixture", "unseam.data.mixture:mixture")


def mixture(
    *,
    size: int = 1000,
    digits: int | Sequence[int] = 10,
    mixing: Tensor | np.ndarray | Sequence[Sequence[float]] | None = None,
    noise: float = 1.0,
    seed: int = 0,
) -> ArrayWorld:
    """Gaussian sources mixed by digit images, or by any matrix, plus Gaussian noise.

    x = A s + η with s ~ N(0, I_k) and η ~ N(0, noise² I_N): sikka2019 Eq. 17. By default the columns of A
    are digit images with pixels in [0, 1] and N = 784 (§V: ten digits; Appendix C: two), and the noise has
    unit standard deviation as in the paper, so single pixels are mostly noise while the k sources are well
    determined. Factors are the sources s; ``posterior(x)`` is Eq. 19 and ``generator(s)`` is A s without
    the noise.

    Args:
        size: number of items; the paper has 1000.
        digits: how many digits, from 0 up, or which.
        mixing: A (data, source), instead of digits; items then have shape (data,).
        noise: standard deviation of η.
        seed: seed of the sources, then of the noise.

    >>> world = mixture(size=5, mixing=[[1.0, 0.0], [0.5, 1.0], [0.0, 2.0]])
    >>> world.posterior(world.images(torch.arange(5))).mean.shape
    torch.Size([5, 2])
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    chosen = _digits(digits)
    columns = _digit_columns(chosen) if mixing is None else _mixing(mixing)
    process = LinearMixture(columns, _noise(noise), (1, 28, 28) if mixing is None else (len(columns),))
    check_room("size", size, process.shape)
    random = torch.Generator().manual_seed(seed)
    sources = torch.randn(size, columns.shape[1], generator=random, dtype=torch.float32)
    eta = torch.randn(size, *process.shape, generator=random, dtype=torch.float64)
    what: dict[str, object] = {"digits": list(chosen)} if mixing is None else {"mixing": columns.tolist()}
    return ArrayWorld(
        (process(sources.double()) + noise * eta).float(),
        sources,
        name="mixture",
        factor_names=tuple(f"s{i + 1}" for i in range(columns.shape[1])),
        factor_sizes=(0,) * columns.shape[1],
        options={"size": size, **what, "noise": noise, "seed": seed},
        generator=process,
        posterior=process.posterior,
        mixing=columns,
    )


def source_posterior(mixing: Tensor, noise: float, x: Tensor) -> Posterior:
    """Exact posterior of Gaussian sources given their noisy mixture.

    p(s|x) = N((AᵀA + σ²I)⁻¹Aᵀx, σ²(AᵀA + σ²I)⁻¹) for x = A s + η, s ~ N(0, I), η ~ N(0, σ²I): sikka2019 Eq.
    19, there with σ = 1.

    Args:
        mixing: A (data, source).
        noise: standard deviation σ of η.
        x: data (batch, data).

    Returns:
        Mean (batch, source) and the covariance (source, source), which is the same for every x, in x's type.

    >>> source_posterior(torch.eye(2), 1.0, torch.tensor([[2.0, 4.0]])).mean
    tensor([[1., 2.]])
    """
    x = torch.as_tensor(x)
    matrix = torch.as_tensor(mixing, dtype=torch.float64, device=x.device)
    gram = matrix.T @ matrix + noise**2 * torch.eye(matrix.shape[1], dtype=torch.float64, device=x.device)
    mean = torch.linalg.solve(gram, (x.double() @ matrix).T).T
    return Posterior(mean.to(x.dtype), (noise**2 * torch.linalg.inv(gram)).to(x.dtype))


@dataclass(frozen=True)
class LinearMixture:
    """x = A s, laid out as ``shape``, with A (data, source) in float64, and its posterior under noise."""

    mixing: Tensor
    noise: float
    shape: tuple[int, ...]

    def __call__(self, factors: Tensor) -> Tensor:
        """Map sources (batch, source) to x (batch, *shape), in their type and on their device."""
        factors = torch.as_tensor(factors)
        return (factors @ self.mixing.to(factors).T).reshape(len(factors), *self.shape)

    def posterior(self, x: Tensor) -> Posterior:
        """Posterior of the sources given x (batch, *shape) or (batch, data)."""
        return source_posterior(self.mixing, self.noise, x.reshape(len(x), -1))


def _digits(digits: int | Sequence[int]) -> tuple[int, ...]:
    """Which digits, in order."""
    chosen = tuple(range(digits)) if isinstance(digits, int) else tuple(digits)
    if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) <= set(range(10)):
        raise ValueError(f"digits must be a number from 1 to 10 or distinct digits from 0 to 9, got {digits}")
    return chosen


def _digit_columns(chosen: tuple[int, ...]) -> Tensor:
    """Digit images as the columns of a matrix (784, source)."""
    return digit_images()[list(chosen)].reshape(len(chosen), -1).T.contiguous()


def _mixing(mixing: Tensor | np.ndarray | Sequence[Sequence[float]]) -> Tensor:
    matrix = torch.as_tensor(mixing, dtype=torch.float64, device="cpu")
    if matrix.ndim != 2 or 0 in matrix.shape or not bool(matrix.isfinite().all()):
        raise ValueError(f"mixing must be a finite matrix (data, source), got shape {tuple(matrix.shape)}")
    return matrix


def _noise(noise: float) -> float:
    if not 0 < noise < math.inf:
        raise ValueError(f"noise must be a positive standard deviation, got {noise}")
    return float(noise)
