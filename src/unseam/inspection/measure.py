"""Inspection of any decoder: measure its local geometry at many points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from unseam import geometry
from unseam.geometry import FisherWeighted
from unseam.geometry.checks import check_points_finite
from unseam.inspection.axes import compare_axes, has_pair, random_axes
from unseam.inspection.baseline import random_baseline
from unseam.inspection.result import Inspection, PrecisionSummary, VarianceLaw

if TYPE_CHECKING:
    import numpy as np

__all__ = ["encode_data", "inspect"]

Decoder = Callable[[Tensor], Tensor]
Encoder = Callable[[Tensor], Any]

# A latent without an encoder is active if its column is not negligible relative to the longest one.
ACTIVE_COLUMN = 0.01
ENCODED_AT_ONCE = 4096


class _Given(NamedTuple):
    """A decoder, the points to measure it at, and what else is known of it."""

    decoder: Decoder
    z: Tensor
    mean: Tensor | None
    variance: Tensor | None
    likelihood: FisherWeighted | None
    beta: float
    generator: torch.Generator
    chunk_size: int | None
    progress: Callable[[int, int], None] | None

    @property
    def noisy(self) -> Tensor | None:
        """The posterior's variance, unless it is a point."""
        return self.variance if self.variance is not None and bool((self.variance != 0).any()) else None


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
    progress: Callable[[int, int], None] | None = None,
) -> Inspection:
    """Measure the local geometry of any decoder; ``.summary()`` of the result says what it means.

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
        latents: ``"all"``, or a number: that many sampled latents, for decoders with thousands, whose points may
            have any shape (batch, *latent); fields that samples cannot give are ``None``. Samples come from the
            active latents where ``active`` or an encoder gives them, and from all otherwise.
        generator: source of the random baselines and probes; one seeded with 0 by default.
        chunk_size: points differentiated at once, or columns where latents are sampled; chosen automatically by
            default.
        progress: called with how many columns of how many were sampled so far, where latents are sampled.

    >>> rotated = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) @ torch.diag(torch.tensor([2.0, 0.5]))
    >>> round(inspect(lambda z: z @ rotated, torch.zeros(4, 2)).cosine, 3)
    0.882
    """
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    sampled = isinstance(latents, int) and not isinstance(latents, bool)
    if latents != "all" and not sampled:
        raise ValueError(f'latents must be "all" or a whole number of latents to sample, got {latents!r}')
    with torch.no_grad():
        mean, variance = encode_data(encoder, x)
        points = _points(z, mean)
        if mean is not None and mean.shape != (points.flatten(1) if points.ndim > 1 else points).shape:
            raise ValueError(f"z and encoder(x) must agree in shape, got {points.shape} and {mean.shape}")
        given = _Given(decoder, points, mean, variance, likelihood, beta, generator, chunk_size, progress)
        return _inspect_sampled(given, active, int(latents)) if sampled else _inspect_all(given, active)


def _inspect_all(given: _Given, active: Any) -> Inspection:
    """Everything, from the pullback of all latents."""
    decoder, z, options = given.decoder, given.z, _options(given)
    metric, basis = geometry.local_geometry(decoder, z, **options)
    norms = metric.diagonal(dim1=-2, dim2=-1).clamp(min=0).mean(0).sqrt()
    if not bool(norms.any()):
        _check_constant(decoder, z)
    mask = _find_active(given, active, norms.device)
    if mask is None:
        mask = (norms >= ACTIVE_COLUMN * norms.max()) & (norms > 0)
    return Inspection(
        points=len(z),
        latent=z.shape[1],
        beta=given.beta,
        outputs=torch.as_tensor(decoder(z[:1])).numel(),
        active=mask,
        singular_values=basis.singular_values,
        right_vectors=basis.right_vectors,
        column_norms=norms,
        precision_error=_precision(given, metric),
        variance_law=_variance_law(given, metric, mask),
        pullback=metric,
        mean=given.mean,
        variance=given.variance,
        **_regime(given, mask, metric),
        **_compare_active(given, metric, basis, mask),
    )


def _compare_active(
    given: _Given, metric: Tensor, basis: geometry.RightBasis, mask: Tensor
) -> dict[str, Any]:
    """What compares latents with each other; nothing where fewer than two are active."""
    among = geometry.restrict(metric, mask) if int(mask.sum()) > 1 else None
    if among is None or not bool(has_pair(among).any()):
        return {"cosine": None}
    whole = basis
    if not bool(mask.all()):
        basis = geometry.restricted_basis(metric, mask, given.decoder, given.z, **_options(given))
    found = compare_axes(among, basis)
    baseline = random_baseline(
        given.decoder, given.z, among.shape[-1], generator=given.generator, **_options(given)
    )
    chance = random_axes(among[has_pair(among)], generator=given.generator)
    return {
        "dto": _mean(geometry.distance_to_orthogonality(whole.right_vectors)),
        "cosine": found.cosine,
        "hadamard_gap": found.hadamard_gap,
        "dto_active": found.dto,
        "degenerate_fraction": found.degenerate_fraction,
        "random_dto": baseline,
        "random_axes": chance._replace(hadamard_gap=None) if found.hadamard_gap is None else chance,
    }


def _inspect_sampled(given: _Given, active: Any, latents: int) -> Inspection:
    """What a sample of the latents can say."""
    z = given.z
    mask = _find_active(given, active, z.device)
    found = None
    if mask is None or int(mask.sum()) > 1:
        found = geometry.probe(
            given.decoder,
            z,
            latents=latents,
            active=mask,
            generator=given.generator,
            progress=given.progress,
            **_options(given),
        )
    return Inspection(
        points=len(z),
        latent=z[0].numel(),
        beta=given.beta,
        cosine=None if found is None or bool(found.cosine.isnan()) else float(found.cosine),
        active=mask,
        mean=given.mean,
        variance=given.variance,
        probes=found,
        **_regime(given, mask, None),
    )


def _options(given: _Given) -> dict[str, Any]:
    return {"likelihood": given.likelihood, "chunk_size": given.chunk_size}


def encode_data(encoder: Encoder | None, x: Any) -> tuple[Tensor | None, Tensor | None]:
    """Posterior mean and variance of every item, some at a time; nothing without an encoder and data.

    >>> encode_data(lambda x: (x, 0 * x), torch.ones(3, 2))[0].shape
    torch.Size([3, 2])
    """
    if encoder is None or x is None:
        if encoder is not None:
            raise ValueError("x must be given with encoder: the data that it encodes")
        if x is not None:
            raise ValueError("encoder must be given with x: it says where x lies in latent space")
        return None, None
    data = torch.as_tensor(x)
    if data.ndim < 2 or not len(data):
        raise ValueError(f"x must have shape (batch, *data) and hold something, got {tuple(data.shape)}")
    check_points_finite("x must be finite", data)
    parts = []
    for chunk in data.split(ENCODED_AT_ONCE):
        encoded = encoder(chunk)
        if not isinstance(encoded, tuple) or len(encoded) != 2:
            raise ValueError(f"encoder must return (mean, variance), got {type(encoded).__name__}")
        parts.append(encoded)
    mean, variance = (torch.cat([torch.as_tensor(part[i]) for part in parts]) for i in range(2))
    if mean.ndim != 2 or variance.shape not in (mean.shape, (*mean.shape, mean.shape[1])):
        raise ValueError(
            f"encoder must return a mean (batch, latent) and a variance of that shape or a covariance (batch, latent, "
            f"latent), got {tuple(mean.shape)} and {tuple(variance.shape)}"
        )
    return mean, variance


def _check_constant(decoder: Decoder, z: Tensor) -> None:
    """Refuse a decoder whose output changes although its derivative is zero: the derivative is wrong."""
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


def _find_active(given: _Given, active: Any, device: torch.device) -> Tensor | None:
    """Which latents are active, where the caller or the encoder says so: (latent,) booleans."""
    if active is not None:
        return _mask(torch.as_tensor(active), math.prod(given.z.shape[1:]), device)
    if given.mean is not None and given.noisy is not None:
        return geometry.active_latents(given.mean, given.noisy).active
    return None


def _mask(active: Tensor, latent: int, device: torch.device) -> Tensor:
    if active.dtype == torch.bool and active.shape == (latent,):
        return active.to(device)
    bad = active.dtype.is_floating_point or active.ndim != 1 or active.dtype == torch.bool
    if bad or (active.numel() and not 0 <= int(active.min()) <= int(active.max()) < latent):
        raise ValueError(
            f"active must be {latent} booleans or positions of latents, got {active.dtype} of shape "
            f"{tuple(active.shape)}"
        )
    mask = torch.zeros(latent, dtype=torch.bool, device=device)
    mask[active.to(device)] = True
    return mask


def _regime(given: _Given, mask: Tensor | None, metric: Tensor | None) -> dict[str, Any]:
    """How polarised the posterior is, where there is one."""
    if given.mean is None or given.noisy is None or mask is None:
        return {}
    return {
        "delta_kl": float(geometry.delta_kl(given.mean, given.noisy).whole),
        "polarised": geometry.polarisation(given.mean, given.noisy, pullback=metric),
    }


def _precision(given: _Given, metric: Tensor) -> PrecisionSummary | None:
    if given.noisy is None or given.beta == 0:
        return None
    error = geometry.precision_error(given.noisy, metric, beta=given.beta)
    return PrecisionSummary(_mean(error.relative), _mean(error.diagonal), _mean(error.off_diagonal))


def _variance_law(given: _Given, metric: Tensor, mask: Tensor) -> VarianceLaw | None:
    if given.noisy is None or int(mask.sum()) < 2:
        return None
    law = geometry.variance_norm_law(given.noisy, metric, active=mask)
    means = (float(value.double().nanmean()) for value in law)
    return VarianceLaw(*(None if value != value else value for value in means))


def _mean(values: Tensor) -> float:
    return float(values.double().mean())
