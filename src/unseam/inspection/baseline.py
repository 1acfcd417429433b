"""What DtO a decoder has that prefers no axis: random rotations, random matrices, fresh weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from unseam import geometry
from unseam.geometry import FisherWeighted

__all__ = ["RandomBaseline", "random_baseline"]

SAMPLES = {"haar": 2000, "uniform": 1000}
FEWEST = 16
# Of numbers drawn, or steps of assignments: a fraction of a second's work.
WORK = 2**23
# Of matrices with more rows, the first right vector is the diagonal to 1/√rows, and the rest as random as before.
MOST_ROWS = 2**13
FRESH_MODULES = 3
FRESH_POINTS = 256


class RandomBaseline(NamedTuple):
    """What DtO a decoder without preferred axes has, as mean and standard deviation.

    Attributes:
        haar: over uniformly random rotations of the active latents.
        haar_std: its standard deviation from point to point.
        module: of the same module with fresh weights, over all latents, or ``None`` where it is not one that can be
            re-initialised.
        module_std: its standard deviation over fresh weights.
        uniform: over matrices (data, active latents) with entries from U[0, 1], the random decoders of rolinek2019
            Table 2.
        uniform_std: its standard deviation from matrix to matrix.
    """

    haar: float
    haar_std: float
    module: float | None
    module_std: float | None
    uniform: float
    uniform_std: float


def random_baseline(
    decoder: Callable[[Tensor], Tensor],
    z: Tensor,
    latent: int,
    *,
    generator: torch.Generator,
    likelihood: FisherWeighted | None = None,
    chunk_size: int | None = None,
) -> RandomBaseline:
    """DtO of random rotations, of random matrices of the decoder's size, and of the decoder with fresh weights.

    Costs little beside a measurement: as many draws as the sizes allow, at least 16 each, and no more than 8192
    rows of the matrices, beyond which their distances hardly change.

    Args:
        decoder: map from (batch, latent) to (batch, *data).
        z: points (batch, latent); fresh weights are measured at 256 of them.
        latent: number of active latents.
        generator: source of the draws.
        likelihood: weights the metric of fresh weights.
        chunk_size: points differentiated at once.

    >>> generator = torch.Generator().manual_seed(0)
    >>> found = random_baseline(lambda z: z.repeat(1, 9), torch.zeros(1, 2), 2, generator=generator)
    >>> found.module is None, round(found.haar, 1)
    (True, 0.5)
    """
    haar = geometry.haar_dto(latent, samples=_samples("haar", latent, 0), generator=generator)
    fresh = None
    if isinstance(decoder, nn.Module) and _can_reset(decoder):
        few = z[torch.linspace(0, len(z) - 1, min(len(z), FRESH_POINTS), device=z.device).round().long()]
        fresh = geometry.random_decoder_dto(
            decoder,
            few,
            seeds=FRESH_MODULES,
            generator=generator,
            likelihood=likelihood,
            chunk_size=chunk_size,
        )
    rows = min(decoder(z[:1]).numel(), MOST_ROWS)
    uniform = geometry.uniform_dto(
        rows, latent, samples=_samples("uniform", latent, rows), generator=generator
    )
    module, module_std = (None, None) if fresh is None else fresh
    return RandomBaseline(haar.mean, haar.std, module, module_std, uniform.mean, uniform.std)


def _samples(kind: str, latent: int, rows: int) -> int:
    """How many matrices to draw: an assignment of d latents takes about d³ steps."""
    return min(SAMPLES[kind], max(FEWEST, WORK // max(rows * latent, latent**3)))


def _can_reset(module: nn.Module) -> bool:
    """Whether every parameter belongs to a layer that can draw it again."""
    holders = [part for part in module.modules() if any(True for _ in part.parameters(recurse=False))]
    return bool(holders) and all(callable(getattr(part, "reset_parameters", None)) for part in holders)
