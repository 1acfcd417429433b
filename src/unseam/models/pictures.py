"""Convolutional encoder and decoder of pictures of any side from 16 to 256 and any number of channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from unseam import choices
from unseam.models.initialisation import blank

__all__ = ["convolutional"]

CONVOLUTIONAL = choices.Architecture(
    "convolutional", "convolutional, any size", "unseam.models.pictures:convolutional"
)

LEAST, MOST = 16, 256
# Sides are halved until the shorter one is below this.
COARSE = 8
HIDDEN = 256


def convolutional(
    shape: Sequence[int], features: int, latent: int, output: Sequence[int]
) -> tuple[nn.Sequential, nn.Sequential]:
    """Encoder and decoder in the manner of the 12 600-model study, for pictures of any size.

    Convolutions 4x4 of stride 2 (32 channels twice, then 64) halve the sides until the shorter one is below 8; then 256
    units. The decoder is its mirror; ReLU. Pictures whose sides cannot be halved so often are padded with zeros to the
    next multiple, and outputs cut to size.

    Args:
        shape: of one picture (channel, height, width), sides from 16 to 256.
        features: number of encoder outputs.
        latent: number of latents.
        output: shape of the decoder's output (channel, height, width).

    >>> import torch
    >>> with torch.device("meta"):
    ...     encoder, decoder = convolutional((2, 28, 100), 20, 10, (2, 28, 100))
    ...     encoder(torch.zeros(3, 2, 28, 100)).shape, decoder(torch.zeros(3, 10)).shape
    (torch.Size([3, 20]), torch.Size([3, 2, 28, 100]))
    """
    if len(shape) != 3 or not all(LEAST <= side <= MOST for side in shape[1:]):
        raise ValueError(
            f"architecture convolutional needs pictures (channel, height, width) with sides from {LEAST} to {MOST}, "
            f"got shape {tuple(shape)}; use mlp, or resize the images"
        )
    height, width = int(shape[1]), int(shape[2])
    depth = 0
    while min(height, width) >> depth >= COARSE:
        depth += 1
    rows, columns = (math.ceil(side / 2**depth) for side in (height, width))
    bottom, right = (rows << depth) - height, (columns << depth) - width
    channels = [32, 32, *[64] * depth][:depth]
    down: list[nn.Module] = [nn.ZeroPad2d((0, right, 0, bottom))] if bottom or right else []
    up: list[nn.Module] = []
    inputs = [int(shape[0]), *channels[:-1]]
    for before, after in zip(inputs, channels, strict=True):
        down += [blank(nn.Conv2d, before, after, 4, 2, 1), nn.ReLU()]
    for before, after in zip(reversed(channels), [*reversed(channels[:-1]), int(output[0])], strict=True):
        up += [nn.ReLU(), blank(nn.ConvTranspose2d, before, after, 4, 2, 1)]
    flat = channels[-1] * rows * columns
    encoder = nn.Sequential(
        *down, nn.Flatten(), blank(nn.Linear, flat, HIDDEN), nn.ReLU(), blank(nn.Linear, HIDDEN, features)
    )
    decoder = nn.Sequential(
        blank(nn.Linear, latent, HIDDEN),
        nn.ReLU(),
        blank(nn.Linear, HIDDEN, flat),
        nn.Unflatten(1, (channels[-1], rows, columns)),
        *up,
        *([_Crop(height, width)] if bottom or right else []),
    )
    return encoder, decoder


class _Crop(nn.Module):
    """The upper left part of pictures."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height, self.width = height, width

    def forward(self, x: Tensor) -> Tensor:
        """Cut ``x`` (batch, channel, height, width) to size."""
        return x[..., : self.height, : self.width]
