"""Inspection of any decoder: measure its local geometry at many points."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unseam import geometry
from unseam.geometry import FisherWeighted, Polarisation
from unseam.inspection.result import Inspection, PrecisionSummary, RandomBaseline

if TYPE_CHECKING:
    import numpy as np

__all__ = ["inspect"]

Decoder = Callable[[Tensor], Tensor]
Encoder = Callable[[Tensor], Any]

# A latent without an encoder to judge it is alive if its column is not negligible beside the longest one.
LIVE_COLUMN = 0.01
ENCODED_AT_ONCE = 4096
HAAR_SAMPLES = 2000
RANDOM_MODULES = 3
RANDOM_POINTS = 256


def inspect(
    decoder: Decoder,
    z: Tensor | np.ndarray | None = None,
    *,
    encoder: Encoder | None = None,
    x: Tensor | np.ndarray | None = None,
    likelihood: FisherWeighted | None = None,
    beta: float = 1.0,
    active: Tensor | np.ndarray | None = None,
    latents: str | int = "all",
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
) -> Inspection:
    """Measure the local geometry of any decoder, and say what it means.

    Args:
        decoder: any callable (batch, latent) -> (batch, *data) that returns the likelihood's parameter (Gaussian
            mean, Bernoulli logits).
        z: points (batch, latent); by default the means of ``encoder(x)``.
        encoder: x -> (mean, variance (batch, latent) or covariance (batch, latent, latent)).
        x: data (batch, *data), for ``encoder``.
        likelihood: gives W = ``likelihood.fisher_weight(output)``; without it W is the identity.
        beta: weight of the KL term that the model was trained with.
        active: (latent,) booleans, or positions; by default from the encoder (mean KL above 0.01 nats), else
            columns whose root mean square norm is at least 1 % of the largest.
        latents: ``"all"``, or a number: that many sampled latents, for decoders with thousands; fields that samples
            cannot give are ``None``.
        generator: source of the random baselines and probes; one seeded with 0 by default.
        chunk_size: points differentiated at once; chosen from the free memory by default.

    >>> turned = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) @ torch.diag(torch.tensor([2.0, 0.5]))
    >>> round(inspect(lambda z: z @ turned, torch.zeros(4, 2)).cosine, 3)
    0.882
    """
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    with torch.no_grad():
        mean, variance = _encode(encoder, x)
        points = _points(z, mean)
        if isinstance(latents, int) and not isinstance(latents, bool):
            return _probed(decoder, points, latents, likelihood, beta, generator)
        if latents != "all":
            raise ValueError(f'latents must be "all" or a whole number of latents to sample, got {latents!r}')
        if z is not None and mean is not None and mean.shape != points.shape:
            raise ValueError(f"z and encoder(x) must agree in shape, got {points.shape} and {mean.shape}")
        return _measured(decoder, points, mean, variance, likelihood, beta, active, generator, chunk_size)


def _measured(
    decoder: Decoder,
    z: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
    likelihood: FisherWeighted | None,
    beta: float,
    active: Any,
    generator: torch.Generator,
    chunk_size: int | None,
) -> Inspection:
    metric, basis = geometry.local_geometry(decoder, z, likelihood=likelihood, chunk_size=chunk_size)
    norms = metric.diagonal(dim1=-2, dim2=-1).clamp(min=0).mean(0).sqrt()
    if not bool(norms.any()):
        _check_constant(decoder, z)
    alive = _alive(active, mean, variance, norms)
    return Inspection(
        points=len(z),
        latent=z.shape[1],
        beta=beta,
        active=alive,
        dto=_mean(geometry.distance_to_orthogonality(basis.right_vectors)),
        singular_values=basis.singular_values,
        right_vectors=basis.right_vectors,
        column_norms=norms,
        delta_kl=_delta_kl(mean, variance, alive),
        polarised=_polarised(mean, variance, metric),
        precision_error=_precision(variance, metric, beta),
        pullback=metric,
        variance=variance,
        **_among_live(decoder, z, metric, basis, alive, likelihood, generator),
    )


def _among_live(
    decoder: Decoder,
    z: Tensor,
    metric: Tensor,
    basis: geometry.RightBasis,
    alive: Tensor,
    likelihood: FisherWeighted | None,
    generator: torch.Generator,
) -> dict[str, Any]:
    """What compares live latents with each other; nothing where there are fewer than two."""
    if int(alive.sum()) < 2:
        return {"cosine": None}
    live = geometry.restrict(metric, alive)
    squares = live.diagonal(dim1=-2, dim2=-1)
    # where fewer than two columns are there, there is no angle between them to measure
    paired = (squares > torch.finfo(live.dtype).eps ** 2 * squares.amax()).sum(-1) > 1
    if not bool(paired.any()):
        return {"cosine": None}
    metric = live[paired]
    if not bool(alive.all()):
        basis = geometry.right_basis(live)
    vectors, values = basis.right_vectors[paired], basis.singular_values[paired]
    return {
        "cosine": _mean(geometry.column_cosine(metric)),
        "hadamard_gap": _mean(geometry.hadamard_gap(metric)),
        "dto_active": _mean(geometry.distance_to_orthogonality(vectors)),
        "degenerate_fraction": _mean(geometry.degenerate_points(values)),
        "random_dto": _random(decoder, z, metric.shape[-1], likelihood, generator),
    }


def _probed(
    decoder: Decoder,
    z: Tensor,
    latents: int,
    likelihood: FisherWeighted | None,
    beta: float,
    generator: torch.Generator,
) -> Inspection:
    found = geometry.probe(decoder, z, latents=latents, generator=generator, likelihood=likelihood)
    return Inspection(
        points=len(z),
        latent=z[0].numel(),
        beta=beta,
        cosine=float(found.cosine),
        active=None,
        probes=found,
    )


def _encode(encoder: Encoder | None, x: Any) -> tuple[Tensor | None, Tensor | None]:
    """Mean and variance of every item, some at a time."""
    if encoder is None or x is None:
        if encoder is not None:
            raise ValueError("x must be given with encoder: the data that it encodes")
        if x is not None:
            raise ValueError("encoder must be given with x: it says where x lies in latent space")
        return None, None
    data = torch.as_tensor(x)
    if data.ndim < 2 or not len(data):
        raise ValueError(f"x must have shape (batch, *data) and hold something, got {tuple(data.shape)}")
    parts = []
    for chunk in data.split(ENCODED_AT_ONCE):
        given = encoder(chunk)
        if not isinstance(given, tuple) or len(given) != 2:
            raise ValueError(f"encoder must return (mean, variance), got {type(given).__name__}")
        parts.append(given)
    mean, variance = (torch.cat([torch.as_tensor(part[i]) for part in parts]) for i in range(2))
    if mean.ndim != 2 or variance.shape not in (mean.shape, (*mean.shape, mean.shape[1])):
        raise ValueError(
            f"encoder must return a mean (batch, latent) and a variance of that shape or a covariance (batch, latent, "
            f"latent), got {tuple(mean.shape)} and {tuple(variance.shape)}"
        )
    return mean, variance


def _check_constant(decoder: Decoder, z: Tensor) -> None:
    """Refuse a decoder that moves although its derivative is zero: what it says of itself is wrong."""
    first, second = (torch.as_tensor(decoder(points)) for points in (z[:1], z[:1] + 1.0))
    if not torch.equal(first, second):
        raise ValueError(
            "decoder's output changes with z but its derivative is zero: it leaves torch's differentiation (by NumPy, "
            "detach() or inference_mode), so its Jacobian cannot be measured"
        )


def _points(z: Any, mean: Tensor | None) -> Tensor:
    if z is not None:
        return torch.as_tensor(z)
    if mean is None:
        raise ValueError("z must be given, or encoder and x, whose posterior means are then the points")
    return mean


def _alive(active: Any, mean: Tensor | None, variance: Tensor | None, norms: Tensor) -> Tensor:
    """Which latents are alive: as given, by the encoder, or by their columns."""
    if active is not None:
        given = torch.as_tensor(active)
        mask = torch.zeros(len(norms), dtype=torch.bool, device=norms.device)
        if given.dtype == torch.bool and given.shape == mask.shape:
            return given.to(norms.device)
        bad = given.dtype.is_floating_point or given.ndim != 1 or given.dtype == torch.bool
        if bad or (given.numel() and not 0 <= int(given.min()) <= int(given.max()) < len(norms)):
            raise ValueError(
                f"active must be {len(norms)} booleans or positions of latents, got {given.dtype} of shape "
                f"{tuple(given.shape)}"
            )
        mask[given.to(norms.device)] = True
        return mask
    if mean is not None and variance is not None and bool((variance != 0).any()):
        return geometry.active_latents(mean, variance).active
    return (norms >= LIVE_COLUMN * norms.max()) & (norms > 0)


def _random(
    decoder: Decoder, z: Tensor, latent: int, likelihood: FisherWeighted | None, generator: torch.Generator
) -> RandomBaseline:
    haar = geometry.haar_dto(latent, samples=HAAR_SAMPLES, generator=generator)
    fresh = None
    if isinstance(decoder, nn.Module) and _can_reset(decoder):
        few = z[torch.linspace(0, len(z) - 1, min(len(z), RANDOM_POINTS), device=z.device).round().long()]
        fresh = geometry.random_decoder_dto(
            decoder, few, seeds=RANDOM_MODULES, generator=generator, likelihood=likelihood
        )
    return RandomBaseline(
        float(haar.mean),
        float(haar.std),
        None if fresh is None else float(fresh.mean),
        None if fresh is None else float(fresh.std),
    )


def _can_reset(module: nn.Module) -> bool:
    """Whether every parameter belongs to a layer that can draw it anew."""
    holders = [part for part in module.modules() if any(True for _ in part.parameters(recurse=False))]
    return bool(holders) and all(callable(getattr(part, "reset_parameters", None)) for part in holders)


def _delta_kl(mean: Tensor | None, variance: Tensor | None, alive: Tensor) -> float | None:
    if mean is None or variance is None or not bool((variance != 0).any()):
        return None
    return float(geometry.delta_kl(mean, variance, alive).whole)


def _polarised(mean: Tensor | None, variance: Tensor | None, metric: Tensor) -> Polarisation | None:
    if mean is None or variance is None or not bool((variance != 0).any()):
        return None
    return geometry.polarisation(mean, variance, pullback=metric)


def _precision(variance: Tensor | None, metric: Tensor, beta: float) -> PrecisionSummary | None:
    if variance is None or beta == 0 or not bool((variance != 0).any()):
        return None
    error = geometry.precision_error(variance, metric, beta=beta)
    return PrecisionSummary(_mean(error.relative), _mean(error.diagonal), _mean(error.off_diagonal))


def _mean(values: Tensor) -> float:
    return float(values.double().mean())
