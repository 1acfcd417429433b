"""A digit moved over a blank canvas by two mixed sources (sikka2019 Fig. 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unseam import choices
from unseam.data.array import ArrayWorld, Posterior
from unseam.data.digits import digit_images
from unseam.data.mixture import source_posterior
from unseam.data.world import check_room

__all__ = ["moving_digit"]

MOVING_DIGIT = choices.World("moving_digit", "moving digit", "unseam.data.moving_digit:moving_digit")

MIXING = ((2.73, 0.73), (0.73, 2.73))
"""A_ij = 2 δ_ij + 0.73 (sikka2019 Fig. 3)."""

FRAME = 28
"""Side of the digit's own frame in pixels."""

MARGIN = 4.0
"""Standard deviations that the digit's frame may move before it touches the edge, by default."""


def moving_digit(
    *,
    size: int = 1000,
    digit: int = 3,
    canvas: int = 64,
    scale: float | None = None,
    noise: float = 1.0,
    seed: int = 0,
) -> ArrayWorld:
    """One digit at Gaussian coordinates on a blank canvas.

    The digit's frame is centred at c = A s + η from the middle of the canvas, with A_ij = 2 δ_ij + 0.73, s
    ~ N(0, I_2), η ~ N(0, noise² I_2): sikka2019 Fig. 3 and Eq. 17 with N = k = 2. Its pixels are spread
    bilinearly, so the image is differentiable in c and, while the digit is inside, keeps its mass and moves
    its centre of mass by exactly ``scale`` pixels per unit of c. Coordinates are (right, down).
    ``generator(s)`` is the image without noise; ``posterior(x)`` reads c off the image's centre of mass and
    is then Eq. 19, exact for every image whose digit is not cut by the edge.

    Neither the canvas nor the units are given in the paper. By default the digit's 28 × 28 frame touches
    the edge at four standard deviations of a coordinate, so at most 1.3e-4 of the draws are cut, fewer
    still in their ink.

    Args:
        size: number of items; the paper has 1000.
        digit: which digit, 0 to 9.
        canvas: side of the canvas in pixels.
        scale: pixels per unit of c; by default ((canvas − 28) / 2) / (4 · standard deviation of c).
        noise: standard deviation of η.
        seed: seed of the sources, then of the noise.

    >>> moving_digit(size=2).images(torch.arange(2)).shape
    torch.Size([2, 1, 64, 64])
    """
    _check(size, digit, canvas, scale, noise)
    mixing = torch.tensor(MIXING, dtype=torch.float64)
    spread = math.sqrt(sum(entry**2 for entry in MIXING[0]) + noise**2)
    pixels = (canvas - FRAME) / 2 / (MARGIN * spread) if scale is None else float(scale)
    process = DigitMover(digit_images()[digit], mixing, float(noise), pixels, canvas)
    random = torch.Generator().manual_seed(seed)
    sources = torch.randn(size, 2, generator=random, dtype=torch.float32)
    eta = torch.randn(size, 2, generator=random, dtype=torch.float64)
    coordinates = sources.double() @ mixing.T + noise * eta
    return ArrayWorld(
        torch.cat([process.draw(block).float() for block in coordinates.split(1024)]),
        sources,
        name="moving_digit",
        factor_names=("s1", "s2"),
        factor_sizes=(0, 0),
        options={
            "size": size,
            "digit": digit,
            "canvas": canvas,
            "scale": pixels,
            "noise": noise,
            "seed": seed,
        },
        generator=process,
        posterior=process.posterior,
        mixing=mixing,
    )


@dataclass(frozen=True)
class DigitMover:
    """The digit at coordinates A s on its canvas: sources, coordinates and images in each direction.

    Attributes:
        digit: image (28, 28) in [0, 1], float64.
        mixing: A (2, 2).
        noise: standard deviation of the coordinates' noise.
        scale: pixels per unit of a coordinate.
        canvas: side of the canvas in pixels.
    """

    digit: Tensor
    mixing: Tensor
    noise: float
    scale: float
    canvas: int

    def __call__(self, factors: Tensor) -> Tensor:
        """Images (batch, 1, canvas, canvas) of sources (batch, 2), without noise."""
        factors = torch.as_tensor(factors)
        return self.draw(factors @ self.mixing.to(factors).T)

    def draw(self, coordinates: Tensor) -> Tensor:
        """Images (batch, 1, canvas, canvas) of coordinates (batch, 2), in their type and on their device."""
        coordinates = torch.as_tensor(coordinates)
        columns, rows = (self._spread(coordinate) for coordinate in coordinates.unbind(-1))
        return torch.einsum("bpi,ij,bqj->bpq", rows, self.digit.to(coordinates), columns).unsqueeze(1)

    def coordinates(self, x: Tensor) -> Tensor:
        """Coordinates (batch, 2) of images, from their centre of mass."""
        x = torch.as_tensor(x)
        image = x.double().reshape(len(x), self.canvas, self.canvas)
        here = _centre(image) - (self.canvas - 1) / 2
        home = _centre(self.digit.to(image).unsqueeze(0)) - (FRAME - 1) / 2
        return ((here - home) / self.scale).to(x.dtype)

    def posterior(self, x: Tensor) -> Posterior:
        """Posterior of the sources given images (batch, 1, canvas, canvas)."""
        return source_posterior(self.mixing, self.noise, self.coordinates(x))

    def _spread(self, coordinate: Tensor) -> Tensor:
        """Share (batch, canvas, 28) of each line of the digit that falls on each line of the canvas."""
        offset = (self.canvas - FRAME) / 2 + self.scale * coordinate
        lines = torch.arange(FRAME).to(coordinate) + offset[:, None]
        return torch.relu(1 - (torch.arange(self.canvas).to(coordinate)[:, None] - lines[:, None, :]).abs())


def _centre(image: Tensor) -> Tensor:
    """Centre of mass (batch, 2) as (column, row) of images (batch, height, width)."""
    mass = image.sum((-1, -2))
    column = (image.sum(-2) * torch.arange(image.shape[-1]).to(image)).sum(-1) / mass
    row = (image.sum(-1) * torch.arange(image.shape[-2]).to(image)).sum(-1) / mass
    return torch.stack([column, row], dim=-1)


def _check(size: int, digit: int, canvas: int, scale: float | None, noise: float) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    if digit not in range(10):
        raise ValueError(f"digit must be from 0 to 9, got {digit}")
    if canvas <= FRAME:
        raise ValueError(f"canvas must be larger than the digit's {FRAME} pixels, got {canvas}")
    check_room("canvas", canvas, (canvas,))
    check_room("size", size, (canvas, canvas))
    if scale is not None and not 0 < scale < math.inf:
        raise ValueError(f"scale must be a positive number of pixels per unit, got {scale}")
    if not 0 < noise < math.inf:
        raise ValueError(f"noise must be a positive standard deviation, got {noise}")
