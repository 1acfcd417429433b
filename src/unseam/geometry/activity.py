"""Which latents a posterior uses: active units, the polarised regime, and how well its KL is approximated."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from unseam.geometry.gaussians import Gaussians, gaussian_kl, gaussians, kl, marginal
from unseam.inputs import Array, as_floating, as_mask, check_choice, check_number

__all__ = [
    "Activity",
    "DeltaKl",
    "Polarisation",
    "active_latents",
    "delta_kl",
    "polarisation",
]

Criterion = Literal["kl", "variance", "posterior"]

# A variance of 0.81 alone costs ½(0.81 - log 0.81 - 1) = 0.01 nats, so the three defaults agree in size.
_THRESHOLDS = {"kl": 0.01, "variance": 0.01, "posterior": 0.81}


class Activity(NamedTuple):
    """Active latents of a posterior.

    Attributes:
        active: (latent,) bool.
        value: what the criterion measures, (latent,); infinite where it exceeds the type of the means.
        threshold: what it is compared with.
        collapsed: positions of the latents that are not active.
    """

    active: Tensor
    value: Tensor
    threshold: float
    collapsed: tuple[int, ...]


class Polarisation(NamedTuple):
    """The sets of rolinek2019 Def. 1.

    Attributes:
        active, passive, mixed: (latent,) bool, each latent in one of the three.
        active_share, passive_share: share of the points at which condition (b), and (a), holds: (latent,).
        kl: mean KL of each latent's marginal, (latent,) in nats; infinite where it exceeds the type of the means.
        influence: root mean square column norm over the largest one, (latent,), zero for a latent that the
            decoder ignores, condition (c); ``None`` without a pullback.
        polarised: whether no latent is mixed.
    """

    active: Tensor
    passive: Tensor
    mixed: Tensor
    active_share: Tensor
    passive_share: Tensor
    kl: Tensor
    influence: Tensor | None
    polarised: bool


class DeltaKl(NamedTuple):
    """Relative error of the approximated KL term.

    Attributes:
        whole: of the sums over all points, 0-d.
        pointwise: at each point, (batch,).
        active: the latents that the approximation keeps, (latent,) bool.
    """

    whole: Tensor
    pointwise: Tensor
    active: Tensor


@torch.no_grad()
def active_latents(
    mean: Array, variance: Array, *, criterion: Criterion = "kl", threshold: float | None = None
) -> Activity:
    r"""Latents that carry information about the data, by one of the usual criteria.

    * ``"kl"``: mean KL of the latent's marginal above 0.01 nats,
      :math:`\tfrac12 E_x[\mu_j^2 + \sigma_j^2 - \log \sigma_j^2 - 1]` (the terms of rolinek2019 Eq. 4);
    * ``"variance"``: :math:`\mathrm{Var}_x[\mu_j] > 0.01`, the active units of Burda et al. 2016;
    * ``"posterior"``: mean posterior variance :math:`E_x[\sigma_j^2] < 0.81`, which alone costs 0.01 nats.

    Args:
        mean: posterior means μ (batch, latent).
        variance: σ² (batch, latent), or Σ (batch, latent, latent), of which the diagonal counts.
        criterion: one of the three above.
        threshold: in place of the criterion's default; a latent exactly at it is not active.

    Returns:
        Means over the points given; the variance of the means is over the points, not over one less.

    >>> mean = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    >>> active_latents(mean, torch.tensor([[0.1, 1.0]]).expand(2, 2)).collapsed
    (1,)
    """
    posterior = gaussians(mean, variance)
    check_choice("criterion", criterion, get_args(Criterion))
    if criterion == "variance" and len(posterior.mean) < 2:
        raise ValueError("mean must hold at least 2 points for the criterion 'variance', got 1")
    limit = _THRESHOLDS[criterion] if threshold is None else check_number("threshold", threshold)
    if criterion == "kl":
        value = gaussian_kl(posterior.mean, marginal(posterior.variance)).mean(0)
    elif criterion == "variance":
        value = posterior.mean.var(0, correction=0)
    else:
        value = marginal(posterior.variance).mean(0)
    active = value < limit if criterion == "posterior" else value > limit
    return Activity(active, value, limit, tuple((~active).nonzero().flatten().tolist()))


@torch.no_grad()
def polarisation(
    mean: Array, variance: Array, *, small: float = 0.1, share: float = 0.95, pullback: Array | None = None
) -> Polarisation:
    r"""Partition of the latents into active, passive and mixed ones (rolinek2019 Def. 1).

    (a) passive: :math:`\mu_j^2 \ll 1` and :math:`\sigma_j^2 \approx 1`; (b) active: :math:`\sigma_j^2 \ll 1`;
    each at nearly all points; (c) the decoder ignores passive latents. A latent that is neither, or active at
    some points and passive at others, is mixed.

    Args:
        mean: posterior means μ (batch, latent).
        variance: σ² (batch, latent), or Σ (batch, latent, latent), of which the diagonal counts.
        small: a ≪ 1 reads a < small, and a ≈ 1 reads abs(a - 1) < small.
        share: part of the points at which a condition must hold.
        pullback: JᵀWJ at the means (batch, latent, latent), to measure (c).

    >>> mean, variance = torch.zeros(4, 3), torch.tensor([[0.01, 1.0, 0.5]]).expand(4, 3)
    >>> found = polarisation(mean, variance)
    >>> found.active.tolist(), found.passive.tolist(), found.mixed.tolist()
    ([True, False, False], [False, True, False], [False, False, True])
    """
    posterior = gaussians(mean, variance)
    check_number("small", small, above=0, most=0.5)
    check_number("share", share, above=0.5, most=1)
    spread = marginal(posterior.variance)
    dtype = spread.dtype
    active_share = (spread < small).to(dtype).mean(0)
    at_prior = (posterior.mean.square() < small) & ((spread - 1).abs() < small)
    passive_share = at_prior.to(dtype).mean(0)
    active, passive = active_share >= share, passive_share >= share
    mixed = ~(active | passive)
    influence = None if pullback is None else _influence(pullback, posterior)
    return Polarisation(
        active=active,
        passive=passive,
        mixed=mixed,
        active_share=active_share,
        passive_share=passive_share,
        kl=gaussian_kl(posterior.mean, spread).mean(0),
        influence=influence,
        polarised=not bool(mixed.any()),
    )


@torch.no_grad()
def delta_kl(mean: Array, variance: Array, active: Array | None = None) -> DeltaKl:
    r"""Relative error of the KL term of the polarised regime (rolinek2019 Eq. 30).

    .. math:: \Delta_{KL} = \frac{|L_{KL} - L_{\approx KL}|}{L_{KL}}, \qquad
        L_{\approx KL} = \tfrac12 \sum_{j \in V_a} (\mu_j^2 - \log \sigma_j^2 - 1)

    with L_≈KL of Eq. 10. Of a full covariance, L_KL is Eq. S77's and the sum of logarithms is that of the
    determinant of the active latents' block. Where both terms are zero the error is zero;
    where the KL alone is, infinite.

    Args:
        mean: posterior means μ (batch, latent).
        variance: σ² (batch, latent), or Σ (batch, latent, latent).
        active: V_a as a mask (latent,) bool. By default the partition of least error for variances (batch, latent):
            counting a latent as active misses half its mean variance, leaving it out misses its mean KL, so those
            are active for which the former is less; of a full covariance, its marginals decide. A fixed threshold
            will not do: a latent of 0.02 nats that counts as active misses 0.49.

    Returns:
        The error of the sums over points, as in training, and at each point.

    >>> mean, variance = torch.zeros(1, 2), torch.tensor([[0.01, 1.0]])
    >>> f"{delta_kl(mean, variance).whole:.4f}"  # ½ · 0.01 of ½ (0.01 + log 100 - 1)
    '0.0028'
    """
    posterior = gaussians(mean, variance)
    if active is None:
        spread = marginal(posterior.variance)
        chosen = spread.mean(0) / 2 < gaussian_kl(posterior.mean, spread).mean(0)
    else:
        chosen = active_mask(active, posterior.mean)
    exact, approximate = kl(posterior), _polarised_kl(posterior, chosen)
    return DeltaKl(_relative(exact.sum(), approximate.sum()), _relative(exact, approximate), chosen)


def active_mask(active: Array, mean: Tensor) -> Tensor:
    """A mask over latents as a bool tensor (latent,), refused where it does not fit ``mean`` (batch, latent)."""
    mask = as_mask("active", active).to(mean.device)
    if mask.shape != mean.shape[1:] or mask.dtype != torch.bool:
        raise ValueError(
            f"active must be a mask of {mean.shape[1]} booleans, got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask


def _polarised_kl(posterior: Gaussians, active: Tensor) -> Tensor:
    if posterior.variance.ndim == 2:
        log_det = posterior.variance[:, active].log().sum(1)
    else:
        log_det = torch.linalg.slogdet(posterior.variance[:, active][:, :, active]).logabsdet
    return (posterior.mean[:, active].square().sum(1) - log_det - active.sum()) / 2


def _relative(exact: Tensor, approximate: Tensor) -> Tensor:
    error = (exact - approximate).abs()
    return torch.where(error == 0, 0.0, error / exact)


def _influence(pullback: Array, posterior: Gaussians) -> Tensor:
    pullback = as_floating("pullback", pullback, "(batch, latent, latent)")
    batch, latent = posterior.mean.shape
    if pullback.shape != (batch, latent, latent):
        raise ValueError(
            f"pullback must have shape ({batch}, {latent}, {latent}), got shape {tuple(pullback.shape)}"
        )
    norms = marginal(pullback).mean(0).clamp(min=0).sqrt()
    return norms / norms.amax().clamp(min=torch.finfo(norms.dtype).tiny)
