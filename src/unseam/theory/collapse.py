"""At which weight of the KL term each latent collapses, from the data alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from unseam.inputs import Array, as_floating, check_choice, check_count, check_number
from unseam.theory._inputs import covariance_matrix, floating, spectrum

__all__ = [
    "BetaRange",
    "Moments",
    "active_count",
    "beta_range",
    "collapse_thresholds",
    "data_moments",
    "data_thresholds",
    "sample_thresholds",
]

# Numbers of one batch that are centred and multiplied at once: 64 MB in double precision.
_AT_ONCE = 2**23


class Moments(NamedTuple):
    """Mean (data,) and covariance (data, data) of a data set, and how many points it has."""

    mean: Tensor
    covariance: Tensor
    points: int


class BetaRange(NamedTuple):
    """The weights of the KL term at which a number of latents is active: lower ≤ β < upper."""

    lower: float
    """Below this, more latents are active (0 where there is no further direction in the data)."""
    upper: float
    """From here on, fewer are active."""


def collapse_thresholds(covariance: Array, *, weight: Array | float = 1.0) -> Tensor:
    r"""The β at which each latent collapses: it is active while β is below its threshold.

    .. math:: \beta_j = \lambda_j\bigl(W^{1/2} C\, W^{1/2}\bigr), \qquad
              W = \tfrac{1}{\sigma^2} I \;\text{ or }\; \text{diag}\,\frac{1}{m (1 - m)}

    the eigenvalues at which the optimum :math:`U(\Lambda - \beta\sigma^2)_+^{1/2}` of a linear VAE loses its
    columns (allen2024 Eqs. 4 and 7, Theorem 3; sikka2019 Eq. 23). For a Bernoulli likelihood with data mean
    m the same holds of small departures from the collapsed decoder, whose Fisher information is m(1 − m) in
    the logits: for binary data W^½CW^½ is the correlation matrix. Exact for linear decoders and Gaussian
    likelihoods; for others it says where the collapsed solution stops being stable, and a decoder that is
    not linear may keep a latent active beyond that, where it gains by more than the covariance shows.

    Args:
        covariance: C (data, data).
        weight: 1/σ² for a Gaussian likelihood, or 1/(m(1 − m)) for each data dimension (data,); dimensions
            where it is infinite, those that never change, are left out.

    Returns:
        The thresholds (data,), descending, zeros for what was left out.

    >>> collapse_thresholds(torch.diag(torch.tensor([4.0, 1.0])), weight=0.5)
    tensor([2.0000, 0.5000])
    """
    given = covariance_matrix("covariance", covariance)
    scale = as_floating("weight", weight, finite=False).detach().double()
    if scale.ndim > 1 or (scale.ndim == 1 and len(scale) != len(given)):
        raise ValueError(
            f"weight must be a number or one for each of {len(given)} dimensions, got shape {tuple(scale.shape)}"
        )
    if not (scale > 0).all():
        raise ValueError("weight must be positive, got zero, negative or NaN values")
    root = scale.expand(len(given)).clone().sqrt()
    varies = root.isfinite()
    root = root[varies]
    scaled = given.double()[varies][:, varies] * root[:, None] * root
    thresholds = torch.zeros(len(given), dtype=torch.float64)
    if len(scaled):
        found = spectrum("covariance", scaled)[0]
        rounding = len(scaled) * torch.finfo(given.dtype).eps * found[0]
        thresholds[: len(scaled)] = torch.where(found > rounding, found, 0.0)
    return thresholds.to(given.dtype)


def data_moments(batches: Iterable[Array]) -> Moments:
    r"""Mean and covariance of data that come in batches, in one pass and without holding them.

    .. math:: C = \frac{1}{n} \sum_i (x_i - m)(x_i - m)^\top

    Merged pairwise (Chan et al. 1983), so that nothing cancels. Costs n · data² and memory data².

    Args:
        batches: arrays (batch, \*data), flattened; any number of them.

    Returns:
        Moments in double precision; the covariance is divided by n.

    >>> data_moments([torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0]])]).covariance
    tensor([[2.6667]], dtype=torch.float64)
    """
    count, mean, scatter = 0, torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.float64)
    if not isinstance(batches, Iterable) or (isinstance(batches, Tensor) and batches.ndim < 3):
        raise ValueError(
            f"batches must be arrays (batch, *data), one after the other, got {type(batches).__name__}"
        )
    for batch in batches:
        rows = floating("batches", batch, "(batch, *data)").flatten(1).double()
        if count and rows.shape[1] != len(mean):
            raise ValueError(f"batches must have {len(mean)} values per point, got {rows.shape[1]}")
        for part in rows.split(max(1, _AT_ONCE // max(1, rows.shape[1]))):
            here = part.mean(0)
            centred = part - here
            inner = centred.mT @ centred
            if count == 0:
                count, mean, scatter = len(part), here, inner
                continue
            total, apart = count + len(part), here - mean
            scatter = scatter + inner + torch.outer(apart, apart) * (count * len(part) / total)
            mean, count = mean + apart * (len(part) / total), total
    if count < 2:
        raise ValueError(f"batches must hold at least two points, got {count}")
    return Moments(mean, scatter / count, count)


def data_thresholds(
    moments: Moments, likelihood: Literal["gaussian", "bernoulli"], *, noise: float = 1.0
) -> Tensor:
    r"""Collapse thresholds of a data set under a likelihood, from its moments.

    .. math:: \beta_j = \lambda_j(C) / \sigma^2 \quad\text{or}\quad \lambda_j\bigl(W^{1/2} C\, W^{1/2}\bigr),
              \; W = \text{diag}\,\frac{1}{m(1 - m)}

    as :func:`collapse_thresholds` explains.

    Args:
        moments: of the data, as :func:`data_moments` gives them.
        likelihood: ``"gaussian"`` or ``"bernoulli"``.
        noise: variance σ² of a Gaussian likelihood.

    Returns:
        The thresholds (data,), descending, float64.

    >>> data_thresholds(Moments(torch.tensor([0.5]), torch.tensor([[0.25]]), 10), "bernoulli")
    tensor([1.], dtype=torch.float64)
    """
    if not isinstance(moments, Moments):
        raise ValueError(f"moments must be Moments, as data_moments gives them, got {type(moments).__name__}")
    mean = floating("moments", moments.mean, "(data)").double()
    covariance = covariance_matrix("moments", moments.covariance).double()
    weight = _fisher_weight(mean, covariance.diagonal(), likelihood, noise)
    return collapse_thresholds(covariance, weight=weight)


def sample_thresholds(
    x: Array, likelihood: Literal["gaussian", "bernoulli"], *, noise: float = 1.0
) -> Tensor:
    r"""Collapse thresholds of fewer points than data dimensions, from products of points with each other.

    .. math:: \lambda_j\bigl(W^{1/2} C\, W^{1/2}\bigr) = \lambda_j\bigl(\tfrac1n X W X^\top\bigr),
              \qquad X = x - m

    the thresholds of :func:`data_thresholds` with memory batch² in place of data².

    Args:
        x: data (batch, \*data).
        likelihood: ``"gaussian"`` or ``"bernoulli"``.
        noise: variance σ² of a Gaussian likelihood.

    Returns:
        The thresholds (data,), descending, float64; at most batch − 1 of them are not zero.

    >>> sample_thresholds(torch.tensor([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]), "gaussian")
    tensor([4., 0., 0.], dtype=torch.float64)
    """
    rows = floating("x", x, "(batch, *data)").flatten(1)
    points, data = rows.shape
    if points < 2:
        raise ValueError(f"x must hold at least two points, got {points}")
    gram = torch.zeros(points, points, dtype=torch.float64, device=rows.device)
    for part in rows.split(max(1, _AT_ONCE // points), 1):
        block = part.double()
        mean = block.mean(0)
        centred = block - mean
        weight = _fisher_weight(mean, centred.square().mean(0), likelihood, noise)
        scaled = centred * torch.where(weight.isfinite(), weight, 0.0).sqrt()
        gram += scaled @ scaled.mT
    found = torch.linalg.eigvalsh(gram / points).flip(0)[: min(points - 1, data)]
    rounding = points * torch.finfo(torch.float64).eps * found[0]
    thresholds = torch.zeros(data, dtype=torch.float64)
    thresholds[: len(found)] = torch.where(found > rounding, found, 0.0).cpu()
    return thresholds


def _fisher_weight(mean: Tensor, variance: Tensor, likelihood: str, noise: float) -> Tensor:
    """The diagonal of W (data,) at the collapsed decoder; infinite where Bernoulli data are constant."""
    check_choice("likelihood", likelihood, ("gaussian", "bernoulli"))
    if likelihood == "gaussian":
        return torch.full_like(mean, 1 / check_number("noise", noise, above=0))
    if not ((mean >= 0) & (mean <= 1)).all():
        raise ValueError("a Bernoulli likelihood needs data in [0, 1]")
    spread = mean * (1 - mean)
    # what varies by rounding alone does not vary
    constant = (variance <= 1e-14) | (spread <= 1e-14)
    return torch.where(constant, torch.inf, 1 / spread.clamp(min=1e-14))


def active_count(thresholds: Array, beta: Array | float) -> Tensor:
    r"""How many latents are active at each β.

    .. math:: \#\{j : \beta_j > \beta\}

    Args:
        thresholds: of :func:`collapse_thresholds` (data,).
        beta: weights of the KL term (...), not negative.

    Returns:
        The counts (...), int64, for a model with latents enough.

    >>> active_count(torch.tensor([4.0, 1.0, 0.2]), torch.tensor([0.5, 4.0]))
    tensor([2, 0])
    """
    given, weights = floating("thresholds", thresholds, "(data)"), floating("beta", beta)
    return (given.double() > weights.double().unsqueeze(-1)).sum(-1)


def beta_range(thresholds: Array, latents: int) -> BetaRange:
    r"""The interval of β at which exactly so many latents are active.

    .. math:: \beta_{k+1} \le \beta < \beta_k

    empty, upper no larger than lower, where the two thresholds agree.

    Args:
        thresholds: of :func:`collapse_thresholds` (data,).
        latents: k, how many should be active.

    Returns:
        Both ends; infinite above for no latent.

    >>> beta_range(torch.tensor([4.0, 1.0, 0.5]), 2)
    BetaRange(lower=0.5, upper=1.0)
    """
    given = floating("thresholds", thresholds, "(data)").double().sort(descending=True).values
    check_count("latents", latents, 0, len(given))
    lower = float(given[latents]) if latents < len(given) else 0.0
    return BetaRange(lower, float(given[latents - 1]) if latents else float("inf"))
