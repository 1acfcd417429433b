"""Pullback and distance to orthogonality against the Jacobians that people write, and against plain passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import jacfwd, jacrev, vmap

from benchmarks.timing import seconds_per_call
from unseam.geometry import distance_to_orthogonality, local_basis, pullback

__all__ = ["geometry"]

LATENT, WIDTHS, PIXELS, POINTS = 5, (1200, 1200, 1200), 4096, 2000
# Ways that take one point after another are timed on a few and scaled.
FEW, CHUNK = 20, 8
# Whole worlds: the number of pictures of the sprites.
WORLD = 737_280


class _Bernoulli:
    """The Fisher weight of logits."""

    def fisher_weight(self, output: Tensor) -> Tensor:
        success = output.sigmoid()
        return success * (1 - success)


def geometry(device: torch.device) -> Iterator[dict[str, Any]]:
    """One row per way of measuring the same decoder, then rows of growth in points, latents and pixels."""
    with torch.no_grad():
        yield from _ways(device)
        for points in (POINTS // 4, POINTS, 4 * POINTS):
            yield from _growth(device, points, LATENT, PIXELS)
        for latent in (2, 10, 20):
            yield from _growth(device, POINTS, latent, PIXELS)
        for pixels in (1024, 3 * 4096):
            yield from _growth(device, POINTS, LATENT, pixels)
        if device.type == "cuda":
            yield from _growth(device, WORLD, LATENT, PIXELS)


def _ways(device: torch.device) -> Iterator[dict[str, Any]]:
    decoder, z = _case(device, POINTS, LATENT, PIXELS)
    ways: dict[str, Callable[[], object]] = {
        "ours, pullback and DtO": partial(_dto, decoder, z),
        "ours, pullback": partial(pullback, decoder, z),
        "ours, Bernoulli pullback and DtO": partial(_dto, decoder, z, _Bernoulli()),
        "ours, layers unknown, pullback and DtO": partial(_dto, lambda z: decoder(1 * z), z),
        "d + 1 plain passes": partial(_passes, decoder, z),
        "vmap(jacfwd), batched SVD": partial(_forward_mode, decoder, z),
    }
    seconds = {way: _seconds(work, device) for way, work in ways.items()}
    scaled = {
        "vmap(jacrev) by 8, an SVD a point (scaled)": partial(_reverse, decoder, z[:FEW]),
        "autograd.functional.jacobian, an SVD a point (scaled)": partial(_autograd, decoder, z[:FEW]),
    }
    for way, work in scaled.items():
        once = seconds_per_call(work, device=device, calls=1, repeats=1, warm_up=0)
        seconds[way] = POINTS / FEW * once
    ours, passes = seconds["ours, pullback and DtO"], seconds["d + 1 plain passes"]
    for way, spent in seconds.items():
        yield _row(way, z, PIXELS, spent, passes, spent / ours)


def _growth(device: torch.device, points: int, latent: int, pixels: int) -> Iterator[dict[str, Any]]:
    decoder, z = _case(device, points, latent, pixels)
    passes = _seconds(partial(_passes, decoder, z), device)
    ours = _seconds(partial(_dto, decoder, z), device)
    yield _row("ours, pullback and DtO", z, pixels, ours, passes, 1.0)


def _row(way: str, z: Tensor, pixels: int, seconds: float, passes: float, ours: float) -> dict[str, Any]:
    return {
        "way": way,
        "points": len(z),
        "latents": z.shape[1],
        "pixels": pixels,
        "s": seconds,
        "µs/point": 1e6 * seconds / len(z),
        "times d + 1 passes": seconds / passes,
        "times ours": ours,
    }


def _case(device: torch.device, points: int, latent: int, pixels: int) -> tuple[nn.Sequential, Tensor]:
    """A tanh decoder 5 → 1200 → 1200 → 1200 → 4096 unless told otherwise, and latent points."""
    generator = torch.Generator(device=device).manual_seed(0)
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise((latent, *WIDTHS, pixels)):
        layer = nn.Linear(fan_in, fan_out, device=device)
        layer.weight.normal_(0, fan_in**-0.5, generator=generator)
        layer.bias.zero_()
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1]).eval(), torch.randn(points, latent, device=device, generator=generator)


def _dto(decoder: Callable[[Tensor], Tensor], z: Tensor, likelihood: _Bernoulli | None = None) -> Tensor:
    return distance_to_orthogonality(local_basis(decoder, z, likelihood=likelihood).right_vectors)


def _passes(decoder: nn.Module, z: Tensor) -> None:
    """As many passes as latents and one; outputs are dropped, a batch that memory holds at a time."""
    for _ in range(z.shape[1] + 1):
        for chunk in z.split(100_000):
            decoder(chunk)


def _forward_mode(decoder: nn.Module, z: Tensor) -> Tensor:
    columns = vmap(jacfwd(lambda point: decoder(point[None])[0]), chunk_size=500)(z)
    return torch.linalg.svd(columns, full_matrices=False).Vh


def _reverse(decoder: nn.Module, z: Tensor) -> list[Tensor]:
    with torch.enable_grad():
        rows = [vmap(jacrev(lambda point: decoder(point[None])[0]))(chunk) for chunk in z.split(CHUNK)]
    return [torch.linalg.svd(columns.detach(), full_matrices=False).Vh for columns in torch.cat(rows)]


def _autograd(decoder: nn.Module, z: Tensor) -> list[Tensor]:
    with torch.enable_grad():
        rows = [torch.autograd.functional.jacobian(lambda z: decoder(z[None])[0], point) for point in z]
    return [torch.linalg.svd(columns, full_matrices=False).Vh for columns in rows]


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    return seconds_per_call(work, device=device, calls=1, repeats=3)
