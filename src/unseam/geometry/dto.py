"""Distance to orthogonality, and what it is for bases and decoders that are random."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from unseam.geometry.basis import local_basis, right_basis
from unseam.geometry.checks import check_points, check_square
from unseam.geometry.jacobian import FisherWeighted
from unseam.geometry.permutation import signed_permutation
from unseam.inputs import Array, check_count, check_generator

__all__ = ["RandomDto", "distance_to_orthogonality", "haar_dto", "random_decoder_dto", "uniform_dto"]

# Numbers drawn at once: 32 MB in double precision.
_DRAWN_AT_ONCE = 2**22


class RandomDto(NamedTuple):
    """Distance to orthogonality of something random: a baseline for a trained decoder's."""

    mean: float
    """Mean over the draws."""
    std: float
    """Standard deviation over the draws (of one draw, not of the mean)."""


def distance_to_orthogonality(right_vectors: Array) -> Tensor:
    r"""Distance of each right singular basis from the closest signed permutation (DtO).

    .. math:: \lVert V - P(V) \rVert_F = \sqrt{2 d - 2 \textstyle\sum_{ij} P_{ij} V_{ij}}

    whose mean over points is rolinek2019 Eq. 29; P is :func:`~unseam.geometry.signed_permutation`. Zero
    exactly where the Jacobian's columns are orthogonal and of distinct lengths (Prop. 1). Unchanged by order
    and sign of latents and of singular vectors. Report it beside :func:`haar_dto` and
    :func:`random_decoder_dto`, and the fraction of :func:`~unseam.geometry.degenerate_points`.

    Args:
        right_vectors: V (..., latent, latent), orthogonal, singular vectors in columns.

    Returns:
        The distance (...), one for each point: a Frobenius norm, not divided by the number of latents.

    >>> distance_to_orthogonality(torch.tensor([[[0.6, -0.8], [0.8, 0.6]]]))
    tensor([0.8944])
    """
    given = check_square("right_vectors", right_vectors)
    apart = given - signed_permutation(given)
    # by a power of two, which changes no bit: the squares of what is no basis at all could overflow
    power = torch.frexp(apart.abs().amax((-2, -1))).exponent.clamp(min=0)
    return torch.ldexp(torch.linalg.matrix_norm(torch.ldexp(apart, -power[..., None, None])), power)


def haar_dto(latent: int, *, samples: int = 10_000, generator: torch.Generator) -> RandomDto:
    r"""DtO of uniformly random orthogonal matrices.

    .. math:: V \sim \text{Haar}(O(d)), \qquad \mathbb{E}\,\lVert V - P(V) \rVert_F

    what a decoder that prefers no direction of its latents gives; rolinek2019 Table 2's autoencoders come
    close to it. For two latents the mean is :math:`(16 \sqrt 2 / \pi)(1 - \cos(\pi / 8)) = 0.548`.

    Args:
        latent: number of latents d.
        samples: number of matrices.
        generator: source of the draws, on the device where they are made.

    Returns:
        Mean and standard deviation over the matrices.

    >>> haar_dto(1, samples=10, generator=torch.Generator().manual_seed(0))
    RandomDto(mean=0.0, std=0.0)
    """
    _check(generator, latent=latent, samples=samples)

    def draw(count: int) -> Tensor:
        shape = (count, latent, latent)
        normal = torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
        orthogonal, triangle = torch.linalg.qr(normal)
        return orthogonal * triangle.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)

    return _summary(_map_samples(samples, latent**2, lambda count: distance_to_orthogonality(draw(count))))


def uniform_dto(data: int, latent: int, *, samples: int = 1_000, generator: torch.Generator) -> RandomDto:
    r"""DtO of matrices with independent entries from U[0, 1].

    .. math:: M_{ij} \sim U[0, 1], \quad M = U S V^\top, \qquad \mathbb{E}\,\lVert V - P(V) \rVert_F

    which reproduces the random decoders of rolinek2019 Table 2. Their first singular vector is close to the
    diagonal of the latent space, so they lie further off than :func:`haar_dto`.

    Args:
        data: number of rows n.
        latent: number of columns d.
        samples: number of matrices.
        generator: source of the draws, on the device where they are made.

    Returns:
        Mean and standard deviation over the matrices.

    >>> found = uniform_dto(784, 6, samples=100, generator=torch.Generator().manual_seed(0))
    >>> round(found.mean, 1)
    2.1
    """
    _check(generator, data=data, latent=latent, samples=samples)

    def measure(count: int) -> Tensor:
        shape = (count, data, latent)
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
        return distance_to_orthogonality(right_basis(drawn.mT @ drawn).right_vectors)

    return _summary(_map_samples(samples, data * latent, measure))


def random_decoder_dto(
    module: nn.Module,
    z: Array,
    *,
    seeds: int = 10,
    generator: torch.Generator,
    likelihood: FisherWeighted | None = None,
    chunk_size: int | None = None,
) -> RandomDto:
    r"""DtO of a decoder's architecture before any training: fresh copies with other initial weights.

    .. math:: \text{DtO}(\theta_s), \qquad \theta_s \sim p(\theta_0), \quad s = 1, \dots, \text{seeds}

    each the mean of rolinek2019 Eq. 29 over ``z``; the "random decoder" of Table 2. Every layer draws its
    weights by its own ``reset_parameters``. ``module`` and the global generators are left as they were. Uniform
    initial weights, torch's default, lie further off than :func:`haar_dto` even where the decoder is linear.

    Args:
        module: the decoder, all of whose parameters belong to layers with ``reset_parameters``.
        z: latent points (batch, latent), floating.
        seeds: number of copies, at least 2.
        generator: source of the copies' seeds.
        likelihood: weights the metric by ``fisher_weight(output)``; ``None`` for the identity.
        chunk_size: number of points differentiated at once.

    Returns:
        Mean and standard deviation over the copies of the mean over points.

    >>> generator = torch.Generator().manual_seed(0)
    >>> random_decoder_dto(nn.Linear(1, 9), torch.zeros(1, 1), seeds=3, generator=generator)
    RandomDto(mean=0.0, std=0.0)
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    check_count("seeds", seeds, 2)
    check_generator(generator)
    points = check_points(z)
    drawn = torch.randint(2**62, (seeds,), generator=generator, device=generator.device)
    means = []
    for seed in drawn.tolist():
        decoder = _fresh(module, seed).to(points.device)
        basis = local_basis(decoder, points, likelihood=likelihood, chunk_size=chunk_size)
        means.append(distance_to_orthogonality(basis.right_vectors).mean())
    return _summary(torch.stack(means))


def _fresh(module: nn.Module, seed: int) -> nn.Module:
    """A copy on the processor, whose stream of random numbers is the same for every device it may move to."""
    copy = deepcopy(module).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        # Children first: a container that initialises what it holds has the last word.
        for name, part in reversed(list(copy.named_modules())):
            reset = getattr(part, "reset_parameters", getattr(part, "_reset_parameters", None))
            if callable(reset):
                reset()
            elif any(True for _ in part.parameters(recurse=False)):
                raise ValueError(
                    f"module must consist of layers with reset_parameters, got parameters in "
                    f"{type(part).__name__} at '{name}' that has none"
                )
    return copy


def _check(generator: torch.Generator, *, samples: int, **sizes: int) -> None:
    check_generator(generator)
    check_count("samples", samples, 2)
    for name, size in sizes.items():
        check_count(name, size)


def _map_samples(samples: int, numbers: int, measure: Callable[[int], Tensor]) -> Tensor:
    """Distances of all samples, each of so many numbers, a part of them at a time."""
    most = max(1, _DRAWN_AT_ONCE // numbers)
    return torch.cat([measure(min(most, samples - done)) for done in range(0, samples, most)])


def _summary(distances: Tensor) -> RandomDto:
    return RandomDto(distances.mean().item(), distances.std().item())
